"""Suggested actions for the errors that stop a subscription (advice.toml).

`headgate status` shows the action as `to do`. Each one names the server on which to act ("On the publisher", "On this node") and contains
the statement to run. The worker retries in any case. The patterns match the messages of PostgreSQL's worker.c, tablesync.c and walsender.c.
An error that the publisher reported is looked up among `publisher` only: the same text has another meaning there than on this node.
Called by `report`, by the apply worker, and by commands that query a publisher.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources

from psycopg import conninfo as conninfos

from headgate.errors import PostgresError, causes
from headgate.settings.definition import SettingContext
from headgate.settings.node import Settings
from headgate.settings.table import find
from headgate.sql.names import quote_ident
from headgate.walreceiver.answer import PublisherError

NO_PUBLICATION = (
    "On the publisher: CREATE PUBLICATION …; then on this node: ALTER SUBSCRIPTION {name} REFRESH PUBLICATION. Or name another one on this"
    " node: ALTER SUBSCRIPTION {name} SET PUBLICATION …"
)
NO_TABLES = "On this node: ALTER SUBSCRIPTION {name} REFRESH PUBLICATION, after its publications have been given tables."
STUCK = (
    "The copy waits for a lock of this node (pg_locks), or on the publisher for transactions that are older than the copy"
    " (pg_stat_activity) or for its disk and network."
)
LEFT_OUT = "On this node: ALTER SUBSCRIPTION {name} REFRESH PUBLICATION. These tables are published and not in the subscription."

_BY_STATE = {
    "42501": "On this node: grant the right to {owner}, the subscription's owner.",
    "53100": "On this node: free disk space.",
    "58030": "On this node: see what the operating system says about the disk.",
}
_OF_CONNECTION = ("could not connect to the publisher", "could not receive data from WAL stream", "due to timeout")
_FINISHED = re.compile(r"finished at ([0-9A-F]+/[0-9A-F]+)")


@dataclass(frozen=True)
class Subject:
    """The names in an action: of the subscription, its owner, and the table of a table sync, if it is one."""

    subscription: str
    owner: str
    conninfo: str
    table: str | None

    def names(self) -> dict[str, str]:
        """Return the names as SQL has them."""
        there = conninfos.conninfo_to_dict(self.conninfo)
        return {
            "name": quote_ident(self.subscription),
            "owner": quote_ident(self.owner),
            "user": quote_ident(str(there["user"])) if there.get("user") else "the role that CONNECTION names",
            "database": quote_ident(str(there["dbname"])) if there.get("dbname") else "the database that CONNECTION names",
        }


@functools.cache
def _actions() -> dict[str, list[dict[str, str]]]:
    return tomllib.loads((resources.files("headgate.subscriber") / "advice.toml").read_text("utf-8"))


def raise_setting(name: str, settings: Settings) -> str:
    """Return what to do when the limit that a setting of this node gives is reached."""
    definition = find(name)
    assert definition is not None
    restart = definition.context is SettingContext.POSTMASTER
    then = 'and restart it with "headgate restart"' if restart else "and run SELECT pg_reload_conf()"
    return f"On this node: ALTER SYSTEM SET {name} = {max(2 * settings.integer(name), 2)} (it is {settings.integer(name)}), {then}."


def advice(error: PostgresError, subject: Subject) -> str:
    """Return what to do about an error that stopped a worker of a subscription."""
    if error.hint and error.message.startswith("could not follow"):
        return f"On this node: do what was done on the publisher: {error.hint}"
    remote = any(isinstance(cause, PublisherError) for cause in causes(error)) or any(text in error.message for text in _OF_CONNECTION)
    for entry in _actions()["publisher" if remote else "node"]:
        if match := re.search(entry["error"], error.message):
            return _fill_names(entry["action"], subject, match)
    names = subject.names()
    if error.sqlstate in _BY_STATE:
        return _BY_STATE[error.sqlstate].format(**names)
    finished = _FINISHED.search(error.context or "")
    if finished is not None:
        skip = f"ALTER SUBSCRIPTION {names['name']} SKIP (lsn = '{finished[1]}')"
        if error.sqlstate.startswith("23"):
            return f"On this node: change the row that is in the way, or leave the whole transaction out with {skip}."
        return f"On this node: change the table so that it takes the value, or leave the whole transaction out with {skip}."
    if error.sqlstate.startswith(("22", "23")):
        return "On this node: change the table, or the rows that are in it."
    return error.hint or "Read the server log of this node."


def on_publisher(error: PostgresError, subscription: str, conninfo: str) -> str | None:
    """Return what to do on the publisher about an error that a command on a subscription got; None if there is nothing to do there."""
    action = advice(error, Subject(subscription, "", conninfo, None))
    return action if action.startswith("On the publisher: ") else None


def _fill_names(action: str, subject: Subject, match: re.Match[str]) -> str:
    """Return an action with the names of the error and of the subscription."""
    named = {key: quote_ident(value) for key, value in match.groupdict().items()}
    table = subject.table or named.get("relation", "the table")
    return action.format(**subject.names() | {"table": table} | named)
