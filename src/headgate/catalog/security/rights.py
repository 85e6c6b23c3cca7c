"""Queries on the catalog for permission checks: roles, memberships, owners and access privileges.

Called by `acl`, `role`, `namespace` and the checks of commands instead of `physical.rows` and `one`. They read the newest catalog, whatever
snapshot the transaction has, as PostgreSQL does. So the revocation of a privilege takes effect in every session with its next statement,
also under REPEATABLE READ and SERIALIZABLE. The transaction's own changes are included. A caller cannot choose another view, because each
query goes to `cursor.newest(sql)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.catalog import physical
from headgate.catalog.cursor import CatalogCursor, Row


def one(cursor: CatalogCursor, sql: str, parameters: Sequence[object] | None = None) -> Row | None:
    """Return the first row of a query on the newest catalog, or None."""
    return physical.one(cursor.newest(sql), sql, parameters)


def rows(cursor: CatalogCursor, sql: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the newest catalog."""
    return physical.rows(cursor.newest(sql), sql, parameters)
