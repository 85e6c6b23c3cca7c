"""Check the right to call a function: EXECUTE, which PUBLIC has unless it is revoked (manual, 5.7)."""

from __future__ import annotations

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.function import UserFunction
from headgate.catalog.security import acl
from headgate.catalog.security.rights import one
from headgate.commands.session import Session
from headgate.errors import PostgresError

_KINDS = {"f": "function", "p": "procedure"}


def may_execute(cursor: CatalogCursor, user: str, database: int, oid: int) -> bool:
    function_row = one(cursor, "SELECT proowner, proacl FROM hg.pg_proc WHERE dbid = ? AND oid = ?", [database, oid])
    if function_row is None:
        return True
    items = acl.read(function_row[1], "f", acl.role_name(cursor, function_row[0]))
    return acl.role(cursor, user).may("X", function_row[0], items)


def check_execute(session: Session, function: UserFunction) -> None:
    """Raise 42501 without EXECUTE."""
    cursor, context = session.begin_statement().cursor, session.context
    if not may_execute(cursor, context.user, context.database, function.oid):
        raise PostgresError("42501", f"permission denied for {_KINDS[function.kind]} {function.name}")
