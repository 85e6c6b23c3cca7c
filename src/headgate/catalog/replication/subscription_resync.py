"""Requests to synchronize tables of subscriptions again: hg.subscription_resync.

    (none)      the table is not to be synchronized again
    requested   by a session (`commands`), in any state of the table
    taken       by the apply worker, between two batches, from a table in state r. The table returns to state i in the same commit. The
                apply worker also takes a table, by the difference method, if the stream does not say how its columns were altered
    done        by the sync worker, in the commit that writes state s: the taken row is deleted

A table has at most one requested row and one taken row. A request that arrives while a copy runs may concern changes that the copy's
snapshot does not show, so it is processed after the copy. After a crash, a taken row continues from the table's state: i and d start again
with the same method, and so does a copy that is rolled back (`subscriber.synchronization.table_sync`).
"""

from __future__ import annotations

import enum

from headgate.catalog.physical import Cursor, rows, run, update


class Method(enum.Enum):
    """How a table that already has rows is synchronized."""

    COPY = "copy"
    """All rows are copied again, and replace the existing ones in one commit."""
    DIFFERENCE = "difference"
    """Both sides are compared, and the differences are written in one commit."""


def request(cursor: Cursor, database: int, subscription: int, relation: int, method: Method) -> None:
    """Request the synchronization of a table. A pending request that has not been taken yet is replaced."""
    run(cursor, "DELETE FROM hg.subscription_resync WHERE subid = ? AND relid = ? AND NOT taken", [subscription, relation])
    run(cursor, "INSERT INTO hg.subscription_resync VALUES (?, ?, ?, ?, false)", [database, subscription, relation, method.value])


def requested(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """Return the requests that have not been taken yet, by relation."""
    return _requests(cursor, subscription, "NOT taken")


def take(cursor: Cursor, subscription: int, relation: int) -> None:
    """Change the state of a request from requested to taken."""
    update(cursor, "subscription_resync", {"subid": subscription, "relid": relation}, taken=True)


def take_difference(cursor: Cursor, database: int, subscription: int, relation: int) -> None:
    """Change the state from none or requested to taken, with the difference method unless a session has requested another one."""
    if relation not in pending(cursor, subscription):
        request(cursor, database, subscription, relation, Method.DIFFERENCE)
    take(cursor, subscription, relation)


def taken(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """Return the requests that have been taken, by relation."""
    return _requests(cursor, subscription, "taken")


def pending(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """Return the requested or taken method by relation. If a relation has both, return the requested one.

    This is one query, because two queries, one for each state, would miss a table that is taken between them.
    """
    return _requests(cursor, subscription, "true ORDER BY NOT taken")


def done(cursor: Cursor, subscription: int, relation: int) -> None:
    """Delete the taken row of a table."""
    run(cursor, "DELETE FROM hg.subscription_resync WHERE subid = ? AND relid = ? AND taken", [subscription, relation])


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Delete all requests for a table, or for a subscription."""
    condition = "" if relation is None else " AND relid = ?"
    run(cursor, f"DELETE FROM hg.subscription_resync WHERE subid = ?{condition}", [subscription, *([] if relation is None else [relation])])


def _requests(cursor: Cursor, subscription: int, state: str) -> dict[int, Method]:
    requests = rows(cursor, f"SELECT relid, method FROM hg.subscription_resync WHERE subid = ? AND {state}", [subscription])
    return {relation: Method(method) for relation, method in requests}
