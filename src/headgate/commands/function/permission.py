"""Check the rights EXECUTE on functions and USAGE on languages, which PUBLIC has unless they are revoked (manual, 5.7)."""

from __future__ import annotations

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.function import UserFunction
from headgate.catalog.security import acl
from headgate.catalog.security.rights import one
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing

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


def check_language(session: Session, language: int) -> None:
    """Raise 42501 without USAGE on a language. CREATE FUNCTION and DO need it."""
    cursor, database = session.begin_statement().cursor, session.context.database
    sql = "SELECT lanname, lanowner, lanacl FROM hg.pg_language WHERE dbid IN (0, ?) AND oid = ?"
    name, owner, items = existing(one(cursor, sql, [database, language]), "42704", "language")
    if not acl.role(cursor, session.context.user).may("U", owner, acl.read(items, "l", acl.role_name(cursor, owner))):
        raise PostgresError("42501", f"permission denied for language {name}")
