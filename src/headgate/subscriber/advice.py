"""The table error → server → action: what a person can do about the error that stopped a subscription.

`headgate status` shows the action as `to do`. Each one names the server on which to act ("On the publisher", "On this node") and gives
the statement to type. The worker tries again by itself. Texts are those of PostgreSQL's worker.c, tablesync.c and walsender.c. An error
that the publisher reported is looked up in `_ON_PUBLISHER` only, because the same text means another server and another role there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg import conninfo as conninfos

from headgate.errors import PostgresError, causes
from headgate.settings.definition import SettingContext
from headgate.settings.node import Settings
from headgate.settings.table import find
from headgate.sql.names import quote_ident
from headgate.walreceiver.answer import PublisherError

RECIPE = (
    "The slot on the publisher is gone, and with it the changes since. On this node: ALTER SUBSCRIPTION {name} DISABLE;"
    " ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}; TRUNCATE its tables; CREATE SUBSCRIPTION again,"
    " which copies them."
)
"""What to do if the slot is lost."""
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

_RAISE = "On the publisher: ALTER SYSTEM SET {setting} = … (a larger value), and restart it."
_CONNECT = "On this node: ALTER SUBSCRIPTION {name} CONNECTION '…' with "
_ON_PUBLISHER = (
    (
        r'replication slot "[^"]*" does not exist|(?:cannot|can no longer) (?:read|get changes) from (?:logical )?replication slot',
        RECIPE,
    ),
    (
        r'replication slot "[^"]*" is active for PID (?P<pid>\d+)',
        "If no other subscriber uses the slot, on the publisher: SELECT pg_terminate_backend({pid})",
    ),
    (
        r'publication "[^"]*" does not exist',
        "On this node: ALTER SUBSCRIPTION {name} SET PUBLICATION … with a publication that is there. One that is created only now is"
        " younger than the slot: DROP SUBSCRIPTION {name}, and CREATE it again after CREATE PUBLICATION.",
    ),
    (r"permission denied for schema (?P<schema>.+)", "On the publisher: GRANT USAGE ON SCHEMA {schema} TO {user}"),
    (
        r"permission denied for (?:table|view|materialized view|relation) (?P<relation>.+)",
        "On the publisher: GRANT SELECT ON {table} TO {user}",
    ),
    (r"permission denied for database", "On the publisher: GRANT CONNECT ON DATABASE {database} TO {user}"),
    (r"affected by row-level security policy", "On the publisher: ALTER ROLE {user} BYPASSRLS"),
    (
        r"must be superuser or replication role|permission denied to (?:start WAL sender|use replication slots)",
        "On the publisher: ALTER ROLE {user} REPLICATION",
    ),
    (r"is not permitted to log in", "On the publisher: ALTER ROLE {user} LOGIN"),
    (r'role "[^"]*" does not exist', "On the publisher: CREATE ROLE {user} LOGIN REPLICATION PASSWORD '…'"),
    (r'database "[^"]*" does not exist', f"{_CONNECT}a dbname that the publisher has"),
    (r"is not currently accepting connections", "On the publisher: ALTER DATABASE {database} ALLOW_CONNECTIONS true"),
    (
        r"password authentication failed|no password supplied|empty password",
        f"{_CONNECT}the right password, or on the publisher: ALTER ROLE {{user}} PASSWORD '…'",
    ),
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        'On the publisher: add the line "host {database} {user} ADDRESS scram-sha-256" to pg_hba.conf, with the address of this node, and'
        " run SELECT pg_reload_conf()",
    ),
    (r"all replication slots are in use", _RAISE.format(setting="max_replication_slots")),
    (r"exceeds max_wal_senders", _RAISE.format(setting="max_wal_senders")),
    (r"too many clients already|remaining connection slots are reserved", _RAISE.format(setting="max_connections")),
    (r"requires wal_level", "On the publisher: ALTER SYSTEM SET wal_level = logical, and restart it."),
    (
        r"could not connect to the publisher",
        "See whether the publisher runs. If it has moved, on this node: ALTER SUBSCRIPTION {name} CONNECTION '…' with its host and port",
    ),
    (r"could not receive data from WAL stream", "The publisher ended the stream. If this happens again, see its server log."),
    (r"terminating logical replication worker due to timeout", "The publisher was silent too long. See its server log and the network."),
    (r"", "See the server log of the publisher."),
)
"""Pattern of an error that the publisher reported, or of one about the connection to it; the action."""
_ON_NODE = (
    (
        r"is missing replicated column",
        "On this node: ALTER TABLE {table} ADD COLUMN …, or ALTER SUBSCRIPTION {name} SET (schema_evolution = add_columns)",
    ),
    (
        r"replication target relation",
        "On this node: create the table as the publisher has it and run ALTER SUBSCRIPTION {name} REFRESH PUBLICATION, or have it created:"
        " ALTER SUBSCRIPTION {name} SET (create_tables = true); or take it out of the publication.",
    ),
    (
        r"could not find free replication state slot",
        "On this node: ALTER SYSTEM SET max_replication_slots = … (a larger value), and restart it.",
    ),
    (r"permission denied for schema (?P<schema>.+)", "On this node: GRANT USAGE ON SCHEMA {schema} TO {owner}"),
    (
        r"permission denied for (?:table|relation) (?P<relation>.+)",
        "On this node: GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {table} TO {owner}",
    ),
    (r"is not permitted to log in", "On this node: ALTER ROLE {owner} LOGIN"),
)
"""Pattern of an error of this node; the action."""
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
    for pattern, action in _ON_PUBLISHER if remote else _ON_NODE:
        if match := re.search(pattern, error.message):
            return _fill_names(action, subject, match)
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
