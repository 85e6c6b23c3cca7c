"""Subscriptions (pg_subscription) and the synchronization state of their tables (pg_subscription_rel).

States of a table (`SubscriptionRel.state`, manual 53.55): i initialize (set by CREATE and REFRESH), d data is being copied,
f finished table copy, s synchronized with its lsn, r ready (plain replication). The table's sync worker writes d, f, s; the
apply worker writes r. The row of one table has one writer at a time, so writers do not conflict.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, delete, insert, one, rows, run, update
from headgate.catalog.replication import subscription_column, subscription_history, subscription_resync
from headgate.errors import PostgresError, existing
from headgate.lsn import INVALID, Lsn


@dataclass(frozen=True)
class Subscription:
    """A row of pg_subscription. `two_phase`: 'd' disabled, 'p' pending, 'e' enabled. `slot_name` None: NONE.

    The fields after `skip_lsn` are those of PostgreSQL 16 and later, and headgate's own, which are stored in hg.subscription_option.
    `origin`: any or none. `schema_evolution`: none, add_columns or follow. `history`: none, all, or the names of tables
    (`subscription_history`).
    """

    oid: int
    database: int
    name: str
    owner: int
    conninfo: str
    publications: tuple[str, ...]
    enabled: bool = True
    slot_name: str | None = None
    binary: bool = False
    stream: bool = False
    two_phase: str = "d"
    disable_on_error: bool = False
    synchronous_commit: str = "off"
    skip_lsn: Lsn = INVALID
    origin: str = "any"
    run_as_owner: bool = True
    password_required: bool = True
    failover: bool = False
    create_tables: bool = False
    schema_evolution: str = "none"
    history: str = subscription_history.NONE


class SyncState(enum.StrEnum):
    """The synchronization state of a table, pg_subscription_rel.srsubstate, in the order in which a table passes through the states.

    (PostgreSQL's CATCHUP and SYNCWAIT exist only between its processes, and never in the catalog.)
    """

    INIT = "i"
    DATASYNC = "d"
    """Rows are being copied."""
    FINISHEDCOPY = "f"
    """The copy is committed, and the changes since are being applied."""
    SYNCDONE = "s"
    """Caught up with `lsn`. The apply worker takes over when it passes that."""
    READY = "r"


COPIED = frozenset({SyncState.SYNCDONE, SyncState.READY})
"""The states of a table whose rows have all been copied."""


@dataclass(frozen=True)
class SubscriptionRel:
    """The state of one table of a subscription. `lsn` is None until SYNCDONE."""

    subscription: int
    relation: int
    state: SyncState
    lsn: Lsn | None = None

    @property
    def applied_from(self) -> int | None:
        """The commit LSN from which the apply worker applies changes, or None if it applies none (should_apply_changes_for_rel)."""
        if self.state is SyncState.READY:
            return 0
        return int(self.lsn or 0) if self.state is SyncState.SYNCDONE else None


_FIELDS = {
    "oid": "oid", "database": "subdbid", "name": "subname", "owner": "subowner", "conninfo": "subconninfo",
    "publications": "subpublications", "enabled": "subenabled", "slot_name": "subslotname", "binary": "subbinary", "stream": "substream",
    "two_phase": "subtwophasestate", "disable_on_error": "subdisableonerr", "synchronous_commit": "subsynccommit", "skip_lsn": "subskiplsn",
}  # fmt: skip
_OPTIONS = {
    "origin": "suborigin", "run_as_owner": "subrunasowner", "password_required": "subpasswordrequired", "failover": "subfailover",
    "create_tables": "subcreatetables", "schema_evolution": "subschemaevolution", "history": "subhistory",
}  # fmt: skip
_SELECT = (
    f"SELECT {', '.join([*_FIELDS.values(), *_OPTIONS.values()])} FROM hg.pg_subscription s"
    " JOIN hg.subscription_option o ON o.subid = s.oid"
)


def lookup(cursor: Cursor, database: int, name: str) -> Subscription | None:
    row = one(cursor, f"{_SELECT} WHERE subdbid = ? AND subname = ?", [database, name])
    return None if row is None else _subscription(row)


def find(cursor: Cursor, oid: int) -> Subscription | None:
    row = one(cursor, f"{_SELECT} WHERE oid = ?", [oid])
    return None if row is None else _subscription(row)


def get(cursor: Cursor, database: int, name: str) -> Subscription:
    """Return the subscription with this name. Raise 42704 if it does not exist."""
    return existing(lookup(cursor, database, name), "42704", f'subscription "{name}"')


def all_subscriptions(cursor: Cursor, database: int | None = None) -> list[Subscription]:
    """Return the subscriptions of a database, or of all databases if None, ordered by oid."""
    if database is None:
        return [_subscription(row) for row in rows(cursor, f"{_SELECT} ORDER BY oid")]
    return [_subscription(row) for row in rows(cursor, f"{_SELECT} WHERE subdbid = ? ORDER BY oid", [database])]


def create(cursor: Cursor, subscription: Subscription) -> Subscription:
    """Create a subscription. Raise 42710 if the name is in use in the database."""
    if lookup(cursor, subscription.database, subscription.name) is not None:
        raise PostgresError("42710", f'subscription "{subscription.name}" already exists')
    values = {column: _as_list(getattr(subscription, field)) for field, column in _FIELDS.items()}
    insert(cursor, "pg_subscription", **values)
    options = [getattr(subscription, field) for field in _OPTIONS]
    marks = ", ".join("?" * (1 + len(options)))
    run(cursor, f"INSERT INTO hg.subscription_option (subid, {', '.join(_OPTIONS.values())}) VALUES ({marks})",
        [subscription.oid, *options])  # fmt: skip
    run(cursor, "INSERT INTO hg.subscription_stats VALUES (?, 0, 0, NULL)", [subscription.oid])
    return subscription


def change(cursor: Cursor, oid: int, **fields: object) -> None:
    """Change fields of `Subscription` by their names, as ``change(cursor, oid, enabled=False)``. Raise 42710 for a name in use."""
    if "name" in fields:
        row = find(cursor, oid)
        if row is not None and lookup(cursor, row.database, str(fields["name"])) is not None:
            raise PostgresError("42710", f'subscription "{fields["name"]}" already exists')
    for field, value in fields.items():
        if field in _OPTIONS:
            run(cursor, f"UPDATE hg.subscription_option SET {_OPTIONS[field]} = ? WHERE subid = ?", [value, oid])
        else:
            update(cursor, "pg_subscription", {"oid": oid}, **{_FIELDS[field]: _as_list(value)})


def drop(cursor: Cursor, oid: int) -> None:
    """Delete a subscription, its tables' states and its statistics. The caller drops the origins (origin.drop)."""
    delete(cursor, "pg_subscription_rel", srsubid=oid)
    delete(cursor, "subscription_stats", subid=oid)
    subscription_column.forget(cursor, oid)
    subscription_resync.forget(cursor, oid)
    subscription_history.forget(cursor, oid)
    delete(cursor, "subscription_option", subid=oid)
    delete(cursor, "pg_subscription", oid=oid)


def tables(cursor: Cursor, oid: int) -> list[SubscriptionRel]:
    """Return the states of a subscription's tables, ordered by relation."""
    return [_state(row) for row in rows(cursor, f"{_STATES} WHERE srsubid = ? ORDER BY srrelid", [oid])]


def table(cursor: Cursor, oid: int, relation: int) -> SubscriptionRel | None:
    row = one(cursor, f"{_STATES} WHERE srsubid = ? AND srrelid = ?", [oid, relation])
    return None if row is None else _state(row)


_STATES = "SELECT srsubid, srrelid, srsubstate, srsublsn FROM hg.pg_subscription_rel"


def _state(row: Row) -> SubscriptionRel:
    return SubscriptionRel(row[0], row[1], SyncState(row[2]), None if row[3] is None else Lsn(row[3]))


def titles(cursor: Cursor, database: int, oids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Return (schema, name) of the existing ones among these relations of a database."""
    if not oids:
        return {}
    oid_list = ", ".join(str(int(oid)) for oid in oids)
    sql = (
        "SELECT c.oid, n.nspname, c.relname FROM hg.pg_class c JOIN hg.pg_namespace n ON n.oid = c.relnamespace AND n.dbid IN (0, c.dbid)"
        f" WHERE c.dbid = ? AND c.oid IN ({oid_list})"
    )
    return {oid: (schema, name) for oid, schema, name in rows(cursor, sql, [database])}


def without_history(cursor: Cursor, subscription: Subscription) -> list[int]:
    """Return the ready tables of a subscription whose history is wanted and not begun."""
    if subscription.history == subscription_history.NONE:
        return []
    begun = {oid for oid, history in subscription_history.of_subscription(cursor, subscription.oid).items() if history.is_begun}
    ready = [rel.relation for rel in tables(cursor, subscription.oid) if rel.state is SyncState.READY and rel.relation not in begun]
    names = titles(cursor, subscription.database, ready)
    return [oid for oid in ready if oid in names and subscription_history.is_wanted(subscription.history, names[oid])]


def errors(cursor: Cursor) -> dict[int, tuple[int, int]]:
    """Return (errors of apply workers, errors of table syncs) by subscription."""
    counters = rows(cursor, "SELECT subid, apply_error_count, sync_error_count FROM hg.subscription_stats")
    return {oid: (apply, sync) for oid, apply, sync in counters}


def add_table(cursor: Cursor, database: int, rel: SubscriptionRel) -> None:
    insert(
        cursor, "pg_subscription_rel", dbid=database, srsubid=rel.subscription, srrelid=rel.relation, srsubstate=rel.state, srsublsn=rel.lsn
    )  # fmt: skip


def set_table(cursor: Cursor, rel: SubscriptionRel) -> bool:
    """Write the state of a table. Return False if it is not (or no longer) in the subscription.

    A table that is initialized gets rows that no stream has sent: its history is interrupted.
    """
    if rel.state is SyncState.INIT:
        subscription_history.interrupt(cursor, rel.subscription, rel.relation)
    sql = "UPDATE hg.pg_subscription_rel SET srsubstate = ?, srsublsn = ? WHERE srsubid = ? AND srrelid = ?"
    updated = one(cursor, sql, [rel.state, rel.lsn, rel.subscription, rel.relation])
    return updated is not None and updated[0] > 0


def drop_table(cursor: Cursor, oid: int, relation: int) -> None:
    delete(cursor, "pg_subscription_rel", srsubid=oid, srrelid=relation)
    subscription_column.forget(cursor, oid, relation)
    subscription_resync.forget(cursor, oid, relation)
    subscription_history.forget(cursor, oid, relation)


def subscribing(cursor: Cursor, database: int, relation: int) -> Sequence[int]:
    """Return the oids of the subscriptions that write a table."""
    subscriptions = rows(
        cursor, "SELECT srsubid FROM hg.pg_subscription_rel WHERE dbid = ? AND srrelid = ? ORDER BY 1", [database, relation]
    )
    return [oid for (oid,) in subscriptions]


def count_error(cursor: Cursor, oid: int, *, sync: bool) -> None:
    """Count an error in pg_stat_subscription_stats."""
    column = "sync_error_count" if sync else "apply_error_count"
    run(cursor, f"UPDATE hg.subscription_stats SET {column} = {column} + 1 WHERE subid = ?", [oid])


def reset_errors(cursor: Cursor, oid: int | None) -> None:
    """Reset the error counters of a subscription, or of all if None (pg_stat_reset_subscription_stats)."""
    sql = "UPDATE hg.subscription_stats SET apply_error_count = 0, sync_error_count = 0, stats_reset = now() AT TIME ZONE 'UTC'"
    run(cursor, sql if oid is None else f"{sql} WHERE subid = {int(oid)}")


def _subscription(row: Row) -> Subscription:
    values = dict(zip((*_FIELDS, *_OPTIONS), row, strict=True))
    values["publications"] = tuple(values["publications"])
    values["skip_lsn"] = Lsn(values["skip_lsn"])
    values["history"] = values["history"] or subscription_history.NONE  # of a catalog that was made before it
    return Subscription(**values)


def _as_list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def refuse_unfinished_sync(cursor: Cursor, database: int, relation: int, name: str) -> None:
    """Raise 22023 for DROP TABLE and DROP SCHEMA while the table is being copied (RemoveSubscriptionRel)."""
    states = rows(
        cursor,
        "SELECT s.subname, r.srsubstate FROM hg.pg_subscription_rel r JOIN hg.pg_subscription s ON s.oid = r.srsubid"
        " WHERE r.dbid = ? AND r.srrelid = ? AND r.srsubstate NOT IN ('i', 'r', 's')",
        [database, relation],
    )
    for subscription, state in states:
        raise PostgresError(
            "22023",
            f'could not drop relation mapping for subscription "{subscription}"',
            detail=f'Table synchronization for relation "{name}" is in progress and is in state "{state}".',
            hint="Use ALTER SUBSCRIPTION ... ENABLE to enable subscription if not already enabled or use DROP SUBSCRIPTION ..."
            " to drop the subscription.",
        )
