"""Tables of subscriptions that are to be synchronized again, though they have been before: hg.subscription_resync.

    (none)      the table is as its stream left it
    requested   by a session (`commands`), in any state of the table
    taken       by the apply worker, between two batches, from a table in state r: the table goes back to state i
    done        by the sync worker, in the commit that writes state s: the request is removed

One row a table. What a crash finds here goes on from the table's state: i and d begin again, by the same method.
"""

from __future__ import annotations

import enum

from headgate.catalog.physical import Cursor, rows, run

DEFINITION = "CREATE TABLE IF NOT EXISTS hg.subscription_resync (dbid UINTEGER, subid UINTEGER, relid UINTEGER, method VARCHAR)"


class Method(enum.Enum):
    """How a table that has rows already is synchronized."""

    COPY = "copy"
    """All rows are copied again, and take the place of those that are here in one commit."""
    DIFFERENCE = "difference"
    """Both sides are compared, and what differs is written in one commit."""


def request(cursor: Cursor, database: int, subscription: int, relation: int, method: Method) -> bool:
    """Asks for a table; False if it has been asked for before and is not done."""
    if relation in requested(cursor, subscription):
        return False
    run(cursor, "INSERT INTO hg.subscription_resync VALUES (?, ?, ?, ?)", [database, subscription, relation, method.value])
    return True


def requested(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """What is asked for and not done, by relation."""
    found = rows(cursor, "SELECT relid, method FROM hg.subscription_resync WHERE subid = ?", [subscription])
    return {relation: Method(method) for relation, method in found}


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Removes a request, or all of a subscription."""
    only = "" if relation is None else " AND relid = ?"
    run(cursor, f"DELETE FROM hg.subscription_resync WHERE subid = ?{only}", [subscription, *([] if relation is None else [relation])])
