"""CREATE, ALTER and DROP PUBLICATION (manual, CREATE PUBLICATION).

The order of checks is PostgreSQL's (publicationcmds.c): privilege on the database, FOR ALL TABLES, the name, the options, then
the objects. Every change calls `Transaction.catalog_changed`, so that a stream evaluates each change by the publications at its
position in the log.

With ``reconcile = true``, streams follow an alteration (`publisher.alteration`). So for each table with rows that enter or leave the
publication:

    its write lock      is held until COMMIT, so that no transaction writes between the old and the new definition of what is sent
    its identity        must identify the rows that leave, and cover filters and column lists, as for a DELETE
    its filters         must be computable for every existing row, otherwise the stream would stop at the alteration forever

The result must be what a first copy would contain, so the streams cannot follow a publication that does not publish all changes of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from postgast import pg_query_pb2 as pb

from headgate.catalog import history
from headgate.catalog import namespace as namespaces
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication.publication import Member, Publication
from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.commands.function import user_call
from headgate.commands.publication import publication_object, replica_identity
from headgate.commands.publication.publication_object import TableObject
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.spark.call import may_raise
from headgate.publisher import gate
from headgate.publisher.alteration import Crossing, check, crossings
from headgate.publisher.published import GENERATED_COLUMNS
from headgate.rowfilter import filter as row_filter
from headgate.sql import names
from headgate.sql.names import quote_ident
from headgate.sql.options import Option, conflicting, options
from headgate.sql.parser import unwrap
from headgate.storage.spark.failure import from_spark
from headgate.storage.transaction.transaction import Transaction

_OPTIONS = {"publish": "publish", "publish_via_partition_root": "via_root", "reconcile": "reconcile"}
GENERATED = "publish_generated_columns"
ACTIONS = ("insert", "update", "delete", "truncate")


def read_options(nodes: Iterable[pb.Node], announced: int) -> dict[str, bool]:
    """Return options as fields of `Publication`: insert, update, delete and truncate (all four or none), via_root, reconcile, gencols."""
    fields: dict[str, bool] = {}
    names_seen: set[str] = set()
    for option in options(nodes):
        if option.name not in _OPTIONS and not (option.name == GENERATED and announced >= GENERATED_COLUMNS):
            raise PostgresError("42601", f'unrecognized publication parameter: "{option.name}"')
        if option.name in names_seen:
            raise conflicting(option)
        names_seen.add(option.name)
        if option.name == "publish":
            fields |= _actions(option)
        elif option.name == GENERATED:
            fields["gencols"] = _read_generated(option)
        else:
            fields[_OPTIONS[option.name]] = option.boolean()
    return fields


def _read_generated(option: Option) -> bool:
    word = (option.value or "").lower()
    if word not in ("none", "stored"):
        raise PostgresError(
            "42601",
            f'invalid value for publication parameter "{GENERATED}": "{option.value or ""}"',
            detail='Valid values are "none" and "stored".',
        )
    return word == "stored"


def _actions(option: Option) -> dict[str, bool]:
    actions = names.split_identifiers(option.text())
    if actions is None:
        raise PostgresError("42601", 'invalid list syntax in parameter "publish"')
    for action in actions:
        if action not in ACTIONS:
            raise PostgresError("42601", f'unrecognized value for publication option "publish": "{action}"')
    return {action: action in actions for action in ACTIONS}


def create(node: pb.CreatePublicationStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    privilege.check_create_on_database(cursor, context.user, context.database)
    superuser = privilege.is_superuser(cursor, context.user)
    if node.for_all_tables and not superuser:
        raise PostgresError("42501", "must be superuser to create FOR ALL TABLES publication")
    if publications.lookup(cursor, context.database, node.pubname) is not None:
        raise PostgresError("42710", f'publication "{node.pubname}" already exists')
    options = read_options(node.options, context.announced)
    via_root = options.get("via_root", False)
    members: list[Member] = []
    schemas: list[int] = []
    if not node.for_all_tables:
        tables, schemas = publication_object.resolve(node.pubobjects, cursor, context)
        if schemas and not superuser:
            raise PostgresError("42501", "must be superuser to create FOR TABLES IN SCHEMA publication")
        table_objects = publication_object.open_tables(tables, cursor, context)
        publication_object.bind_filters(table_objects, via_root, context.forms, functools.partial(user_call.is_users, session))
        publication_object.check_column_lists(node.pubname, table_objects, bool(schemas), via_root)
        members = [_member(table, transaction, context) for table in table_objects]
        for schema in schemas:
            publication_object.check_schema(cursor, context.database, schema)
    owner = privilege.used_role(cursor, context.user)
    publication = Publication(0, node.pubname, owner, node.for_all_tables, members=tuple(members), schemas=tuple(schemas), **options)
    _check_reconcile(publication)
    publications.create(cursor, transaction.catalog.next_oid, context.database, publication)
    transaction.catalog_changed()
    if session.settings.text("wal_level") != "logical":
        session.notices.warning(
            "wal_level is insufficient to publish logical changes",
            sqlstate="55000",
            hint='Set wal_level to "logical" before creating subscriptions.',
        )
    return CommandResult("CREATE PUBLICATION")


def _member(table: TableObject, transaction: Transaction, context: SessionContext) -> Member:
    publication_object.check_table(table, transaction.cursor, context.user, generated=context.announced >= GENERATED_COLUMNS)
    if table.filter is None:
        return Member(table.relation.oid, None, None, table.columns)
    return Member(table.relation.oid, table.filter.text, table.filter.dump(), table.columns)


def alter(node: pb.AlterPublicationStmt, session: Session) -> CommandResult:
    """Execute ALTER PUBLICATION … ADD, SET, DROP objects, or SET (options)."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    publication = publications.get(cursor, context.database, node.pubname)
    privilege.check_owner(cursor, context.user, publication.owner, "publication", publication.name)
    transaction.catalog.lock_object("pg_publication", publication.oid)
    if node.options:
        _alter_options(node, publication, transaction, context.announced)
    else:
        _alter_objects(node, publication, session, transaction)
    now = publications.get(cursor, context.database, node.pubname)
    _check_reconcile(now)
    if publication.reconcile and now.reconcile:
        _follow(transaction, publication, now)  # before the rows that this transaction has added are written, which takes the lock
    transaction.catalog_changed()
    return CommandResult("ALTER PUBLICATION")


def _alter_options(node: pb.AlterPublicationStmt, publication: Publication, transaction: Transaction, announced: int) -> None:
    options = read_options(node.options, announced)
    cursor, database = transaction.cursor, transaction.database
    if options.get("via_root") is False and not publication.all_tables:
        for member in publication.members:
            if member.filter is None and member.columns is None:
                continue
            relation = relations.find(cursor, database, member.relation)
            if relation is not None and relation.is_partitioned:
                what = "WHERE clause" if member.filter is not None else "column list"
                article = f"a {what}"
                raise PostgresError(
                    "22023",
                    f'cannot set parameter "publish_via_partition_root" to false for publication "{publication.name}"',
                    detail=f'The publication contains {article} for partitioned table "{relation.name}", which is not allowed when'
                    ' "publish_via_partition_root" is false.',
                )
    publications.set_options(cursor, database, publication.oid, **options)


def _alter_objects(node: pb.AlterPublicationStmt, publication: Publication, session: Session, transaction: Transaction) -> None:
    cursor, context = transaction.cursor, session.context
    tables, schemas = publication_object.resolve(node.pubobjects, cursor, context)
    adding, setting = node.action == pb.AP_AddObjects, node.action == pb.AP_SetObjects
    if (adding or setting) and schemas and not privilege.is_superuser(cursor, context.user):
        raise PostgresError("42501", "must be superuser to add or set schemas")
    if publication.all_tables and (schemas or tables):
        what = "Schemas" if schemas else "Tables"
        raise PostgresError(
            "55000",
            f'publication "{publication.name}" is defined as FOR ALL TABLES',
            detail=f"{what} cannot be added to or dropped from FOR ALL TABLES publications.",
        )
    table_objects = publication_object.open_tables(tables, cursor, context)
    if adding:
        _add(publication, table_objects, schemas, session, transaction)
    elif setting:
        _set(publication, table_objects, schemas, session, transaction)
    else:
        _drop(publication, table_objects, schemas, transaction)


def _add(publication: Publication, tables: list[TableObject], schemas: list[int], session: Session, transaction: Transaction) -> None:
    cursor, context = transaction.cursor, session.context
    publication_object.bind_filters(tables, publication.via_root, context.forms, functools.partial(user_call.is_users, session))
    publication_object.check_column_lists(publication.name, tables, bool(schemas or publication.schemas), publication.via_root)
    lists = any(member.columns is not None for member in publication.members)
    for table in tables:
        privilege.check_owner(cursor, context.user, table.relation.owner, "table", table.relation.name)
        if publication.member(table.relation.oid) is not None:
            raise PostgresError("42710", f'relation "{table.relation.name}" is already member of publication "{publication.name}"')
        publications.add_member(
            cursor, transaction.catalog.next_oid, context.database, publication.oid, _member(table, transaction, context)
        )
    if schemas and lists:
        raise PostgresError(
            "22023",
            f'cannot add schema to publication "{publication.name}"',
            detail="Schemas cannot be added if any tables that specify a column list are already part of the publication.",
        )
    for schema in schemas:
        if schema in publication.schemas:
            name = namespaces.name_of(cursor, context.database, schema)
            raise PostgresError("42710", f'schema "{name}" is already member of publication "{publication.name}"')
        publication_object.check_schema(cursor, context.database, schema)
        publications.add_schema(cursor, transaction.catalog.next_oid, context.database, publication.oid, schema)


def _set(publication: Publication, tables: list[TableObject], schemas: list[int], session: Session, transaction: Transaction) -> None:
    cursor, context = transaction.cursor, session.context
    publication_object.bind_filters(tables, publication.via_root, context.forms, functools.partial(user_call.is_users, session))
    publication_object.check_column_lists(publication.name, tables, bool(schemas), publication.via_root)
    members = [_member(table, transaction, context) for table in tables]
    for schema in schemas:
        publication_object.check_schema(cursor, context.database, schema)
    publications.set_members(cursor, transaction.catalog.next_oid, context.database, publication.oid, members, schemas)


def _drop(publication: Publication, tables: list[TableObject], schemas: list[int], transaction: Transaction) -> None:
    cursor, database = transaction.cursor, transaction.database
    for table in tables:
        if table.column_names is not None:
            raise PostgresError("42601", "column list must not be specified in ALTER PUBLICATION ... DROP")
        if publication.member(table.relation.oid) is None:
            raise PostgresError("42704", f'relation "{table.relation.name}" is not part of the publication')
        if table.where is not None:
            raise PostgresError("42601", "cannot use a WHERE clause when removing a table from a publication")
        publications.drop_member(cursor, database, publication.oid, table.relation.oid)
    for schema in schemas:
        if schema not in publication.schemas:
            name = namespaces.name_of(cursor, database, schema)
            raise PostgresError("42704", f'tables from schema "{name}" are not part of the publication')
        publications.drop_schema(cursor, database, publication.oid, schema)


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """Execute DROP PUBLICATION [IF EXISTS] a, b."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    dropped = []
    for item in node.objects:
        name = unwrap(item).sval
        publication = publications.lookup(cursor, context.database, name)
        if publication is None:
            session.notices.skip(PostgresError("42704", f'publication "{name}" does not exist'), allowed=node.missing_ok)
            continue
        privilege.check_owner(cursor, context.user, publication.owner, "publication", publication.name)
        transaction.catalog.lock_object("pg_publication", publication.oid)
        dropped.append(publication)
    for publication in dropped:
        publications.drop(cursor, context.database, publication.oid)
    transaction.catalog_changed()
    return CommandResult("DROP PUBLICATION")


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    name = unwrap(node.object).sval
    publication = publications.get(cursor, context.database, name)
    privilege.check_owner(cursor, context.user, publication.owner, "publication", name)
    transaction.catalog.lock_object("pg_publication", publication.oid)
    publications.rename(cursor, context.database, publication.oid, node.newname)
    transaction.catalog_changed()
    return CommandResult("ALTER PUBLICATION")


def check_new_owner(cursor: Cursor, context: SessionContext, publication: Publication, new: str) -> None:
    """Raise 42501 unless the user may give a publication to a role, by OWNER TO or REASSIGN OWNED."""
    if privilege.is_superuser(cursor, context.user):
        return
    privilege.check_may_give(cursor, context.user, publication.owner, "publication", publication.name, new)
    privilege.check_create_on_database(cursor, new, context.database)
    kind = "ALL TABLES" if publication.all_tables else "TABLES IN SCHEMA" if publication.schemas else None
    if kind is not None and not privilege.is_superuser(cursor, new):
        raise PostgresError(
            "42501",
            f'permission denied to change owner of publication "{publication.name}"',
            hint=f"The owner of a FOR {kind} publication must be a superuser.",
        )


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    name = unwrap(node.object).sval
    new_owner, oid = privilege.new_owner(cursor, context, node.newowner)
    publication = publications.get(cursor, context.database, name)
    if oid != publication.owner:
        check_new_owner(cursor, context, publication, new_owner)
    transaction.catalog.lock_object("pg_publication", publication.oid)
    publications.set_owner(cursor, context.database, publication.oid, oid)
    transaction.catalog_changed()
    return CommandResult("ALTER PUBLICATION")


def _check_reconcile(publication: Publication) -> None:
    """Raise 22023 if a publication with `reconcile` does not publish inserts, updates and deletes."""
    lacking = [word for word in ("insert", "update", "delete") if not getattr(publication, word)]
    if publication.reconcile and lacking:
        raise PostgresError(
            "22023",
            f'cannot set parameter "reconcile" for publication "{publication.name}"',
            detail=f"The publication does not publish {lacking[0]}s, so its filters do not determine the rows of its subscribers.",
            hint='Set "publish" to at least insert, update and delete.',
        )


def _follow(transaction: Transaction, before: Publication, now: Publication) -> None:
    """Lock and check the tables with rows that enter or leave. Raise the error of the first that cannot be followed."""
    transaction.unpreparable = "cannot PREPARE a transaction that has altered a publication with reconcile"
    state = history.current(transaction.cursor, transaction.database)
    crossed = sorted(crossings(state, [before], [now]), key=lambda item: item.relation.oid)
    for crossing in crossed:
        _check_identity(transaction, now, crossing.relation)
    for crossing in crossed:
        transaction.lock(crossing.relation, alone=True)
    for crossing in crossed:
        _check_filters(transaction, crossing)


def _check_identity(transaction: Transaction, publication: Publication, relation: Relation) -> None:
    try:
        replica_identity.check(transaction.cursor, relation, "delete")
    except PostgresError as error:
        raise PostgresError(
            error.sqlstate,
            f'cannot reconcile table "{relation.name}" of publication "{publication.name}"',
            detail=error.detail or "The table does not have a replica identity.",
            hint="Set REPLICA IDENTITY using ALTER TABLE, or let the streams not follow:"
            f" ALTER PUBLICATION {quote_ident(publication.name)} SET (reconcile = false).",
        ) from error


def _check_filters(transaction: Transaction, crossing: Crossing) -> None:
    """Raise the error of the new filters for a row of the table, as the streams would. Filters that cannot raise are not evaluated."""
    now = crossing.now
    if now is None or not any(may_raise(row_filter.load(tree).expression) for tree in now.copied):
        return
    try:
        with transaction.snapshot.seeing_newest():
            names = [column.name for column in gate.filter_columns(now)]
            check(transaction.storage, now, transaction.reader.pieces(crossing.relation, names))
    except PostgresError:
        raise
    except Exception as error:
        raise from_spark(error) from error
