"""Requests to synchronize tables of subscriptions again: hg.subscription_resync.

    (none)      the table is not to be synchronized again
    requested   by a session (`commands`), in any state of the table
    taken       by the apply worker, between two batches, from a table in state r. The table returns to state i in the same commit. The
                apply worker also takes a table, by the difference method, if the stream does not say how its columns were altered
    done        by the sync worker, in the commit that writes state s: the taken row is deleted

A table has at most one taken row. Sessions only insert rows, and the last request counts: DuckDB does not notice if one transaction updates
a row that another one deletes. A request that arrives while a copy runs may concern changes that the copy's snapshot does not show, so it
is processed after the copy. After a crash, a taken row continues from the table's state: i and d start again with the same method, and so
does a copy that is rolled back (`subscriber.synchronization.table_sync`).
"""

from __future__ import annotations

import enum

from headgate.catalog.physical import Cursor, rows, run


class Method(enum.Enum):
    """How a table that already has rows is synchronized."""

    COPY = "copy"
    """All rows are copied again, and replace the existing ones in one commit."""
    DIFFERENCE = "difference"
    """Both sides are compared, and the differences are written in one commit."""


def request(cursor: Cursor, database: int, subscription: int, relation: int, method: Method) -> None:
    """Request the synchronization of a table. The request replaces those that have not been taken yet."""
    _insert(cursor, database, subscription, relation, method, is_taken=False)


def requested(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """Return the last requests that have not been taken yet, by relation."""
    return _requests(cursor, subscription, "NOT taken")


def take_difference(cursor: Cursor, database: int, subscription: int, relation: int) -> None:
    """Change the state from none or requested to taken, with the difference method unless a session has requested another one."""
    method = pending(cursor, subscription).get(relation, Method.DIFFERENCE)
    forget(cursor, subscription, relation)
    _insert(cursor, database, subscription, relation, method, is_taken=True)


def taken(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """Return the requests that have been taken, by relation."""
    return _requests(cursor, subscription, "taken")


def pending(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """Return the requested or taken method by relation. If a relation has both, return the requested one.

    This is one query, because two queries, one for each state, would miss a table that is taken between them.
    """
    return _requests(cursor, subscription, "true")


def done(cursor: Cursor, subscription: int, relation: int) -> None:
    """Delete the taken row of a table."""
    run(cursor, "DELETE FROM hg.subscription_resync WHERE subid = ? AND relid = ? AND taken", [subscription, relation])


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Delete all requests for a table, or for a subscription."""
    condition = "" if relation is None else " AND relid = ?"
    run(cursor, f"DELETE FROM hg.subscription_resync WHERE subid = ?{condition}", [subscription, *([] if relation is None else [relation])])


def _insert(cursor: Cursor, database: int, subscription: int, relation: int, method: Method, *, is_taken: bool) -> None:
    row = [database, subscription, relation, method.value, is_taken]
    run(cursor, "INSERT INTO hg.subscription_resync VALUES (?, ?, ?, ?, ?)", row)


def _requests(cursor: Cursor, subscription: int, state: str) -> dict[int, Method]:
    """Return the last method of each relation in a state. Requested ones follow taken ones."""
    sql = f"SELECT relid, method FROM hg.subscription_resync WHERE subid = ? AND {state} ORDER BY NOT taken, rowid"
    return {relation: Method(method) for relation, method in rows(cursor, sql, [subscription])}
