"""SET, RESET, SHOW and ALTER SYSTEM, and the modes of a transaction (manual, part VI: SET, SHOW, SET TRANSACTION, ALTER SYSTEM).

Called by `utility`. The session's settings hold the values and restore them when a transaction rolls back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.security.role import READ_ALL_SETTINGS
from headgate.commands import privilege
from headgate.errors import PostgresError
from headgate.server.session import session_role, transaction_mode
from headgate.settings.check import join_list
from headgate.settings.definition import guarded
from headgate.settings.table import find
from headgate.sql import setting as sql_setting
from headgate.sql.parser import ParseNode
from headgate.sql.setting import values
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet, of_rows

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


def set_statement(session: ClientSession, node: pb.VariableSetStmt, text: str) -> str:
    """Execute SET … or RESET … and return its command tag."""
    kind = str(node.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[node.kind].name)
    local = bool(node.is_local)
    if local and not session.in_block:
        session.notices.warning("SET LOCAL can only be used in transaction blocks", sqlstate="25P01")
    session.block.touch()
    if kind == "VAR_SET_MULTI":
        _set_multi(session, node)
    elif kind == "VAR_SET_VALUE":
        if node.name in session_role.NAMES:
            session.role.set_to(node.name, values(node.args)[0], local=local)
        else:
            set_value(session, node.name, values(node.args), local=local)
    elif kind == "VAR_RESET_ALL":
        session.settings.reset_all()
        return "RESET"
    elif kind in ("VAR_SET_DEFAULT", "VAR_RESET"):
        if node.name in session_role.NAMES:
            session.role.set_to(node.name, None, local=local)
        else:
            session.settings.reset(node.name, local=local, superuser=session.is_superuser)
        return "RESET" if kind == "VAR_RESET" else "SET"
    return "SET"


def set_value(session: ClientSession, name: str, words: list[str], *, local: bool) -> None:
    """Set one setting to the values of SET name TO a, b."""
    transaction_mode.check(session, name, words)
    session.settings.set_values(name, words, local=local, superuser=session.is_superuser)
    session.setting_changed(name)


def _set_multi(session: ClientSession, node: ParseNode) -> None:
    if node.name == "TRANSACTION":
        if not session.in_block:
            session.notices.warning("SET TRANSACTION can only be used in transaction blocks", sqlstate="25P01")
        transaction_mode.set_modes(session, node.args)
    elif node.name == "SESSION CHARACTERISTICS":
        for name, value in transaction_mode.read(node.args):
            set_value(session, "default_" + name, [value], local=False)
    elif node.name == "TRANSACTION SNAPSHOT":
        if not session.in_block:
            session.notices.warning("SET TRANSACTION can only be used in transaction blocks", sqlstate="25P01")
        _import_snapshot(session, values(node.args)[0])


def _import_snapshot(session: ClientSession, name: str) -> None:
    if session.block.isolation not in ("repeatable read", "serializable"):
        raise PostgresError("0A000", "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ")
    if session.block.statements or session.block.in_subtransaction:
        raise PostgresError("25001", "SET TRANSACTION SNAPSHOT must be called before any query")
    session.import_snapshot(session.node.slots.snapshots.find(name, session.context.database))


# ---- SHOW -----------------------------------------------------------------------------------------------
def show_columns(session: ClientSession, name: str) -> tuple[ResultColumn, ...]:
    if name.lower() == "all":
        return tuple(ResultColumn(name, registry.TEXT) for name in ("name", "setting", "description"))
    return (ResultColumn(session.settings.canonical(name), registry.TEXT),)


def show_statement(session: ClientSession, node: pb.VariableShowStmt, text: str) -> ResultSet:
    columns = show_columns(session, node.name)
    if node.name.lower() == "all":
        return of_rows(columns, session.settings.all(guarded=_reads_all(session)), "SHOW")
    return of_rows(columns, [(show(session, node.name),)], "SHOW")


def show(session: ClientSession, name: str) -> str:
    """Return a setting's value as SHOW prints it, with the transaction's changes. Raise 42501 if the user may not read the setting."""
    setting = session.settings.setting(name)
    if setting.definition.guarded and not _reads_all(session):
        raise guarded(setting.definition.name)
    return setting.shown


def _reads_all(session: ClientSession) -> bool:
    return session.is_superuser or privilege.owns(session.begin_statement().cursor, session.context.user, READ_ALL_SETTINGS)


def alter_system(session: ClientSession, node: pb.AlterSystemStmt, text: str) -> str:
    """Execute ALTER SYSTEM SET or RESET and return its command tag. Raise 42501 without the privilege, 22023 for too many arguments."""
    session.prevent_in_block("ALTER SYSTEM")
    change = node.setstmt
    kind = str(change.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[change.kind].name)
    settings = session.node.settings
    if kind == "VAR_RESET_ALL":
        if not session.is_superuser:
            raise PostgresError("42501", "permission denied to perform ALTER SYSTEM RESET ALL")
        settings.alter_system_reset_all()
        return "ALTER SYSTEM"
    definition = find(change.name)
    if not session.is_superuser:
        title = change.name if definition is None else definition.name
        raise PostgresError("42501", f'permission denied to set parameter "{title}"')
    value = None
    if kind == "VAR_SET_VALUE":
        values = sql_setting.values(change.args)
        if definition is not None and definition.is_list:
            value = join_list(definition.name, values)
        elif len(values) == 1:
            value = values[0]
        else:
            raise PostgresError("22023", f"SET {change.name} takes only one argument")
    settings.alter_system(change.name, value)
    return "ALTER SYSTEM"
