"""Tables of subscriptions that are to be synchronized again, though they have been before: hg.subscription_resync.

    (none)      the table is as its stream left it
    requested   by a session (`commands`), in any state of the table
    taken       by the apply worker, between two batches, from a table in state r: the table goes back to state i in the same commit. Also,
                with the difference as the method, when the stream does not tell which columns of the table were altered how
    done        by the sync worker, in the commit that writes state s: what was taken is removed

A table has at most one row that is requested and one that is taken: what is asked for while a copy runs may be about something that the
copy's snapshot does not show, and is done after it. What a crash finds taken goes on from the table's state: i and d begin again, by the
same method; a copy that is taken back (`subscriber.synchronization.table_sync`) is made again by it.
"""

from __future__ import annotations

import enum

from headgate.catalog.physical import Cursor, rows, run

DEFINITION = (
    "CREATE TABLE IF NOT EXISTS hg.subscription_resync (dbid UINTEGER, subid UINTEGER, relid UINTEGER, method VARCHAR, taken BOOLEAN)"
)


class Method(enum.Enum):
    """How a table that has rows already is synchronized."""

    COPY = "copy"
    """All rows are copied again, and take the place of those that are here in one commit."""
    DIFFERENCE = "difference"
    """Both sides are compared, and what differs is written in one commit."""


def request(cursor: Cursor, database: int, subscription: int, relation: int, method: Method) -> None:
    """Asks for a table; what has been asked for before and is not taken yet is done as the later request says."""
    run(cursor, "DELETE FROM hg.subscription_resync WHERE subid = ? AND relid = ? AND NOT taken", [subscription, relation])
    run(cursor, "INSERT INTO hg.subscription_resync VALUES (?, ?, ?, ?, false)", [database, subscription, relation, method.value])


def requested(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """What is asked for and not taken yet, by relation."""
    return _found(cursor, subscription, "NOT taken")


def take(cursor: Cursor, subscription: int, relation: int) -> None:
    """requested → taken."""
    run(cursor, "UPDATE hg.subscription_resync SET taken = true WHERE subid = ? AND relid = ?", [subscription, relation])


def take_difference(cursor: Cursor, database: int, subscription: int, relation: int) -> None:
    """(none), requested → taken; by the difference, unless a session has asked for another method."""
    if relation not in pending(cursor, subscription):
        request(cursor, database, subscription, relation, Method.DIFFERENCE)
    take(cursor, subscription, relation)


def taken(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """What is being done, by relation."""
    return _found(cursor, subscription, "taken")


def pending(cursor: Cursor, subscription: int) -> dict[int, Method]:
    """What is asked for or being done, by relation; of both what is asked for.

    One query: of two, one for each state, neither finds a table that is taken between them.
    """
    return _found(cursor, subscription, "true ORDER BY NOT taken")


def done(cursor: Cursor, subscription: int, relation: int) -> None:
    """Removes what was taken."""
    run(cursor, "DELETE FROM hg.subscription_resync WHERE subid = ? AND relid = ? AND taken", [subscription, relation])


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Removes whatever is asked for of a table, or of a subscription."""
    only = "" if relation is None else " AND relid = ?"
    run(cursor, f"DELETE FROM hg.subscription_resync WHERE subid = ?{only}", [subscription, *([] if relation is None else [relation])])


def _found(cursor: Cursor, subscription: int, state: str) -> dict[int, Method]:
    found = rows(cursor, f"SELECT relid, method FROM hg.subscription_resync WHERE subid = ? AND {state}", [subscription])
    return {relation: Method(method) for relation, method in found}
