"""ALTER ROLE … [IN DATABASE d] SET, RESET, and ALTER DATABASE … SET, RESET (AlterRoleSet, AlterDatabaseSet, AlterSetting).

A value is checked as SET checks it and stored as written. Sessions that start later use it. Called by `execute`.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.catalog import database as databases
from headgate.catalog.physical import Cursor
from headgate.catalog.security import role as roles
from headgate.catalog.security import stored_setting
from headgate.commands import privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing, not_supported
from headgate.settings import check
from headgate.settings.session import SessionSettings
from headgate.settings.table import find
from headgate.sql import names, setting

ALL = 0
_OF_SESSIONS = ("role", "session_authorization")


def alter_role(node: pb.AlterRoleSetStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    role = database = ALL
    superuser = privilege.is_superuser(cursor, context.user)
    if node.HasField("role"):
        if node.role.roletype == pb.ROLESPEC_CSTRING:
            roles.refuse_reserved(node.role.rolename, "Cannot alter reserved roles.")
        altered_role = roles.get(cursor, names.role_name(node.role, context.user, context.session_user))
        role = altered_role.oid
        transaction.catalog.change_object("pg_authid", role)
        if altered_role.superuser and not superuser:
            raise PostgresError("42501", "must be superuser to alter superusers")
        if not (superuser or roles.get(cursor, context.user).create_role or altered_role.name == context.user):
            raise PostgresError("42501", "permission denied")
    if node.database:
        database = _database(cursor, node.database, None if role else context.user)
    if not role and not database and not superuser:
        raise PostgresError("42501", "must be superuser to alter settings globally")
    _change(session, cursor, database, role, node.setstmt)
    return CommandResult("ALTER ROLE")


def alter_database(node: pb.AlterDatabaseSetStmt, session: Session) -> CommandResult:
    cursor = session.begin_statement().cursor
    _change(session, cursor, _database(cursor, node.dbname, session.context.user), ALL, node.setstmt)
    return CommandResult("ALTER DATABASE")


def _database(cursor: Cursor, name: str, owner: str | None) -> int:
    row = existing(databases.lookup(cursor, name), "3D000", f'database "{name}"')
    if owner is not None:
        privilege.check_owner(cursor, owner, row.owner, "database", name)
    return row.oid


def _change(session: Session, cursor: Cursor, database: int, role: int, node: pb.VariableSetStmt) -> None:
    superuser = privilege.is_superuser(cursor, session.context.user)
    stored = stored_setting.of(cursor, database, role)
    trial = SessionSettings(session.parts.settings)
    name = node.name
    match node.kind:
        case pb.VAR_SET_VALUE | pb.VAR_SET_CURRENT:
            if name.lower() in _OF_SESSIONS:
                raise not_supported(f'storing "{name}" for a role or database is not supported')
            values = [session.settings[name]] if node.kind == pb.VAR_SET_CURRENT else setting.values(node.args)
            trial.set_values(name, values, superuser=superuser)
            definition = find(name)
            is_list = definition is not None and definition.is_list and node.kind == pb.VAR_SET_VALUE
            stored = _without(stored, name) | {_spelt(name): check.join_list(name, values) if is_list else values[0]}
        case pb.VAR_SET_DEFAULT | pb.VAR_RESET:
            trial.reset(name, superuser=superuser)
            stored = _without(stored, name)
        case pb.VAR_RESET_ALL:
            stored = {key: value for key, value in stored.items() if not superuser and not _may_reset(trial, key)}
        case _:
            raise PostgresError("42601", "syntax error")
    stored_setting.store(cursor, database, role, stored)


def _spelt(name: str) -> str:
    definition = find(name)
    return name if definition is None else definition.name


def _without(held: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in held.items() if key.lower() != name.lower()}


def _may_reset(trial: SessionSettings, name: str) -> bool:
    """Return whether a user without superuser may reset a setting. One that only a superuser can set stays."""
    try:
        trial.reset(name, superuser=False)
    except PostgresError:
        return False
    return True
