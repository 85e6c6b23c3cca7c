"""What a person can do about the error that a subscription stopped with: one sentence, for `headgate status`.

The errors are those of PostgreSQL's worker.c and tablesync.c; a worker tries again by itself, so the advice says what must change first.
"""

from __future__ import annotations

import re

from headgate.errors import PostgresError

_FINISHED = re.compile(r"finished at ([0-9A-F]+/[0-9A-F]+)")
_BY_TEXT = (
    ("is missing replicated column", "Add the columns with ALTER TABLE … ADD COLUMN, or set schema_evolution = add_columns."),
    ("replication target relation", "Make the table as the publisher has it, or take it out of the publication."),
    ("could not connect to the publisher", "See whether the publisher runs and whether CONNECTION is right; it is tried again by itself."),
    ("could not start WAL streaming", "The slot on the publisher is missing or in use: see pg_replication_slots there."),
    ("could not create replication slot", "Look at the publisher's slots and its max_replication_slots."),
    (
        "terminating logical replication worker due to timeout",
        "The publisher was silent too long; it is tried again by itself.",
    ),
    ("could not receive data from WAL stream", "The publisher ended the stream; it is tried again by itself."),
)
_BY_STATE = {
    "42501": "Grant the right to the subscription's owner.",
    "53100": "Free disk space; it is tried again by itself.",
    "58030": "See what the operating system says of the disk.",
}


def advice(error: PostgresError, subscription: str) -> str:
    """What to do; the subscription's name is for the commands in it."""
    for text, found in _BY_TEXT:
        if text in error.message:
            return found
    if error.sqlstate in _BY_STATE:
        return _BY_STATE[error.sqlstate]
    finished = _FINISHED.search(error.context or "")
    if finished is not None:
        skip = f"ALTER SUBSCRIPTION {subscription} SKIP (lsn = '{finished[1]}')"
        if error.sqlstate.startswith("23"):
            return f"Change the row that is in the way, or leave the whole transaction out with {skip}."
        return f"Change the table so that it takes the value, or leave the whole transaction out with {skip}."
    if error.sqlstate.startswith(("22", "23")):
        return "Change the table, or the rows that are in it; the copy is tried again by itself."
    return "Read the server log."
