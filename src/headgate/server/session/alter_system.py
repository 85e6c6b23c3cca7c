"""ALTER SYSTEM (manual, part VI): write a setting to headgate.auto.conf. It takes effect after pg_reload_conf() or a restart.

Called by `utility`. It is not part of a transaction and therefore not allowed inside a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.settings.check import join_list
from headgate.settings.table import find
from headgate.sql import setting as sql_setting

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


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
