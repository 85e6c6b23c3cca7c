"""What a person can do about the error that a subscription stopped with: one sentence, for `headgate status`.

The errors are those of PostgreSQL's worker.c and tablesync.c; a worker tries again by itself, so the advice says what must change first.
"""

from __future__ import annotations

import re

from headgate.errors import PostgresError
from headgate.settings.definition import SettingContext
from headgate.settings.node import Settings
from headgate.settings.table import find
from headgate.sql.names import quote_ident

_LOST_SLOT = re.compile(
    r'replication slot "[^"]*" does not exist|(?:cannot|can no longer) (?:read|get changes) from (?:logical )?replication slot'
)
_LOST_PUBLICATION = re.compile(r'publication "[^"]*" does not exist')
RECIPE = (
    "The slot on the publisher is gone, and with it the changes since. Begin anew: ALTER SUBSCRIPTION {name} DISABLE;"
    " ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}; TRUNCATE its tables; CREATE SUBSCRIPTION again,"
    " which copies them."
)
"""What to do where the slot is lost."""
LOST_PUBLICATION = (
    "Name a publication that is there with ALTER SUBSCRIPTION {name} SET PUBLICATION …; one that is made only now is younger than the slot:"
    " DROP SUBSCRIPTION {name} and CREATE it again behind CREATE PUBLICATION."
)
NO_PUBLICATION = (
    "Create the publication on the publisher and run ALTER SUBSCRIPTION {name} REFRESH PUBLICATION, or name another with ALTER SUBSCRIPTION"
    " {name} SET PUBLICATION …"
)
NO_TABLES = "Run ALTER SUBSCRIPTION {name} REFRESH PUBLICATION once its publications have tables."
LEFT_OUT = "Run ALTER SUBSCRIPTION {name} REFRESH PUBLICATION: these tables are published and not in the subscription."
_SLOT_IN_USE = "The slot on the publisher is in use or cannot be read: see pg_replication_slots there."
_FINISHED = re.compile(r"finished at ([0-9A-F]+/[0-9A-F]+)")
_BY_TEXT = (
    ("is missing replicated column", "Add the columns with ALTER TABLE … ADD COLUMN, or set schema_evolution = add_columns or follow."),
    (
        "replication target relation",
        "Make the table as the publisher has it and run ALTER SUBSCRIPTION {name} REFRESH PUBLICATION, or have it made: ALTER SUBSCRIPTION"
        " {name} SET (create_tables = true); or take it out of the publication.",
    ),
    ("could not connect to the publisher", "See whether the publisher runs and whether CONNECTION is right; it is tried again by itself."),
    ("could not start WAL streaming: ERROR:  replication slot", _SLOT_IN_USE),
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


def raise_setting(name: str, settings: Settings) -> str:
    """Return what to do when the limit that a setting of this node gives is reached."""
    definition = find(name)
    assert definition is not None
    restart = definition.context is SettingContext.POSTMASTER
    then = 'and restart it with "headgate restart"' if restart else "and run SELECT pg_reload_conf()"
    return f"On this node: ALTER SYSTEM SET {name} = {max(2 * settings.integer(name), 2)} (it is {settings.integer(name)}), {then}."


def advice(error: PostgresError, subscription: str) -> str:
    """What to do; the subscription's name is for the commands in it."""
    if error.hint and error.message.startswith("could not follow"):
        return f"Do here what was done there, then it goes on: {error.hint}"
    if _LOST_SLOT.search(error.message):
        return RECIPE.format(name=quote_ident(subscription))
    if _LOST_PUBLICATION.search(error.message):
        return LOST_PUBLICATION.format(name=quote_ident(subscription))
    for text, found in _BY_TEXT:
        if text in error.message:
            return found.format(name=quote_ident(subscription))
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
    return error.hint or "Read the server log."
