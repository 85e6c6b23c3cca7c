"""CREATE, ALTER and DROP DATABASE."""

from __future__ import annotations

import time

from postgast import pg_query_pb2 as pb

from headgate.catalog import database as databases
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.replication import slot as slots
from headgate.catalog.replication import subscription as subscriptions
from headgate.commands import privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing, not_supported
from headgate.sql.options import unique
from headgate.sql.parser import unwrap

_ACCEPTED = {"encoding", "lc_collate", "lc_ctype", "locale", "tablespace", "allow_connections", "connection_limit", "is_template", "owner",
             "template",             "locale_provider", "icu_locale", "strategy", "oid", "collation_version"}  # fmt: skip
LEAVING_SECONDS = 5.0
"""Time in seconds that DROP DATABASE waits for sessions that are about to end."""
_UTF8 = ("utf8", "utf-8", "unicode", "6")


def create(node: pb.CreatedbStmt, session: Session) -> CommandResult:
    """Execute CREATE DATABASE. All databases of a node have the encoding UTF8 and the locale C."""
    session.prevent_in_block("CREATE DATABASE")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    options = unique(node.options)
    for name, option in options.items():
        if name not in _ACCEPTED:
            raise PostgresError("42601", f'option "{name}" not recognized', location=option.location)
    if "encoding" in options and options["encoding"].node is not None and options["encoding"].text().lower() not in _UTF8:
        raise not_supported(f'encoding "{options["encoding"].text()}" is not supported', hint="A node stores text as UTF8.")
    provider = options["locale_provider"].text().lower() if "locale_provider" in options else "libc"
    if provider not in ("libc", "icu"):
        raise PostgresError("42P17", f"unrecognized locale provider: {options['locale_provider'].text()}")
    if provider == "icu":
        raise not_supported('locale provider "icu" is not supported', hint="A node compares text as the locale C does.")
    if "icu_locale" in options:
        raise PostgresError("42P17", "ICU locale cannot be specified unless locale provider is ICU")
    for name in ("lc_collate", "lc_ctype", "locale"):
        if name in options and options[name].value is not None and options[name].text() not in ("C", "POSIX"):
            raise not_supported(f'locale "{options[name].text()}" is not supported', hint="A node compares text as the locale C does.")
    owner = options["owner"].text() if "owner" in options and options["owner"].value else context.user
    owner_oid = privilege.used_role(cursor, owner)
    if not privilege.may_create_databases(cursor, context.user):
        raise PostgresError("42501", "permission denied to create database")
    privilege.check_member(cursor, context.user, owner)
    template = options["template"].text() if "template" in options and options["template"].value else "template1"
    if databases.lookup(cursor, node.dbname) is not None:
        raise PostgresError("42P04", f'database "{node.dbname}" already exists')
    source = existing(databases.lookup(cursor, template), "3D000", f'template database "{template}"')
    if not source.is_template and not privilege.owns(cursor, context.user, source.owner):
        raise PostgresError("42501", f'permission denied to copy database "{template}"')
    if source.oid != context.database:
        _refuse_others(session, source, "source database")
    if relations.all_tables(cursor, source.oid, {RelationKind.TABLE}):
        raise not_supported(f'database "{template}" cannot be a template because it has tables')
    databases.create(cursor, transaction.catalog.next_oid(), node.dbname, owner_oid, template)
    return CommandResult("CREATE DATABASE")


def drop(node: pb.DropdbStmt, session: Session) -> CommandResult:
    """Execute DROP DATABASE [IF EXISTS] d [WITH (FORCE)]."""
    session.prevent_in_block("DROP DATABASE")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    options = unique(node.options)
    for name, option in options.items():
        if name != "force":
            raise PostgresError("42601", f'unrecognized DROP DATABASE option "{name}"', location=option.location)
    database = databases.lookup(cursor, node.dbname)
    if database is None:
        session.notices.skip(PostgresError("3D000", f'database "{node.dbname}" does not exist'), allowed=node.missing_ok)
        return CommandResult("DROP DATABASE")
    privilege.check_owner(cursor, context.user, database.owner, "database", database.name)
    if database.is_template:
        raise PostgresError("42809", "cannot drop a template database")
    if database.oid == context.database:
        raise PostgresError("55006", "cannot drop the currently open database")
    _refuse_used(session, database)
    count = len(subscriptions.all_subscriptions(cursor, database.oid))
    if count:
        detail = "There is 1 subscription." if count == 1 else f"There are {count} subscriptions."
        raise PostgresError("55006", f'database "{database.name}" is being used by logical replication subscription', detail=detail)
    if "force" in options:
        prepared = sum(transaction_info.database == database.oid for transaction_info in session.parts.engine.prepared.all())
        if prepared:
            raise PostgresError("55006", f'database "{database.name}" is being used by prepared transactions', detail=_busy(0, prepared))
        session.parts.terminate_database(database.oid)
    _refuse_others(session, database, "database")
    transaction.catalog.database = database.oid  # the log entry belongs to the database whose tables are dropped
    for relation in relations.all_tables(cursor, database.oid, {RelationKind.TABLE}):
        transaction.ddl.drop(relation)
    databases.drop(cursor, database.oid)
    slots.drop_database(cursor, database.oid)
    session.after_commit(lambda: _forget(session, database.oid))
    return CommandResult("DROP DATABASE")


def _forget(session: Session, database: int) -> None:
    """Release a dropped database: its slots no longer need the files of its tables."""
    session.parts.slots.forget_database(database)
    session.parts.engine.clean()


def _refuse_others(session: Session, database: databases.Database, what: str) -> None:
    """Raise 55006 while others use a database. Sessions that are about to end have a few seconds (CountOtherDBBackends)."""
    until = time.monotonic() + LEAVING_SECONDS
    while True:
        others = session.parts.sessions_of(database.oid)
        prepared = sum(prepared_transaction.database == database.oid for prepared_transaction in session.parts.engine.prepared.all())
        if not others and not prepared:
            return
        if time.monotonic() >= until:
            raise PostgresError("55006", f'{what} "{database.name}" is being accessed by other users', detail=_busy(others, prepared))
        session.check_cancel()
        time.sleep(0.1)


def _busy(others: int, prepared: int) -> str:
    """Return the users of a database in PostgreSQL's words."""
    if others and prepared:
        return f"There are {others} other session(s) and {prepared} prepared transaction(s) using the database."
    count, what = (others, "other session") if others else (prepared, "prepared transaction")
    return f"There is 1 {what} using the database." if count == 1 else f"There are {count} {what}s using the database."


def _refuse_used(session: Session, database: databases.Database) -> None:
    """Raise 55006 if a slot of the database is in use. Other slots are dropped with it."""
    active = session.parts.slots.active_in(database.oid)
    if active:
        detail = "There is 1 active slot." if active == 1 else f"There are {active} active slots."
        raise PostgresError("55006", f'database "{database.name}" is used by an active logical replication slot', detail=detail)


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    database = databases.get(cursor, node.subname)
    privilege.check_owner(cursor, context.user, database.owner, "database", database.name)
    if not privilege.may_create_databases(cursor, context.user):
        raise PostgresError("42501", "permission denied to rename database")
    if databases.lookup(cursor, node.newname) is not None:
        raise PostgresError("42P04", f'database "{node.newname}" already exists')
    if database.oid == context.database:
        raise PostgresError("0A000", "current database cannot be renamed")
    _refuse_others(session, database, "database")
    databases.rename(cursor, database.oid, node.newname)
    return CommandResult("ALTER DATABASE")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    new_owner, oid = privilege.new_owner(cursor, context, node.newowner)
    database = databases.get(cursor, unwrap(node.object).sval)
    if oid != database.owner:
        privilege.check_may_give(cursor, context.user, database.owner, "database", database.name, new_owner)
        if not privilege.may_create_databases(cursor, context.user):
            raise PostgresError("42501", "permission denied to change owner of database")
    databases.set_owner(cursor, database.oid, oid)
    return CommandResult("ALTER DATABASE")
