"""Keeps the statistics of subscriptions, slots and databases over a clean restart.

`keep` is called after a node has stopped its workers, `restore` before it starts them. `restore` removes the statistics from the catalog at
once. So they are reset after a crash, as in PostgreSQL. An error in either is only logged, and the node stops or starts anyway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from headgate.catalog import database as databases
from headgate.catalog import kept_statistics
from headgate.catalog.replication import subscription as subscriptions
from headgate.errors import PostgresError
from headgate.publisher.framing import Counts

if TYPE_CHECKING:
    from headgate.server.node_state import NodeState
    from headgate.subscriber.subscription_statistics import AccountState

_log = logging.getLogger("headgate.server")


class SlotState(TypedDict):
    """The counters of a slot, and the time of their reset."""

    counts: Mapping[str, int]
    reset: float | None


class KeptStatistics(TypedDict):
    """The statistics as stored in JSON. Those stored by a version without statistics of tables do not have `tables`."""

    since: float
    subscriptions: Mapping[str, AccountState]
    databases: Mapping[str, Mapping[str, int]]
    tables: NotRequired[Sequence[Sequence[int]]]
    slots: Mapping[str, SlotState]


def keep(node: NodeState) -> None:
    with contextlib.closing(node.catalog.cursor()) as cursor:
        subscription_oids = {subscription.oid for subscription in subscriptions.all_subscriptions(cursor)}
        database_oids = {subscription.oid for subscription in databases.all_databases(cursor)}
    slots: dict[str, SlotState] = {
        live.slot.name: {"counts": dataclasses.asdict(live.counts), "reset": live.reset}
        for live in node.slots.all()
        if not live.slot.temporary
    }
    content: KeptStatistics = {
        "since": node.counted_since,
        "subscriptions": node.workers.host.ledger.state(subscription_oids),
        "databases": node.engine.statistics.state(database_oids),
        "tables": node.engine.statistics.state_of_tables(database_oids),
        "slots": slots,
    }
    try:
        node.catalog.change(lambda cursor: kept_statistics.write(cursor, json.dumps(content)))
    except PostgresError as error:
        _log.warning("could not keep statistics: %s", error.message)


def restore(node: NodeState) -> None:
    """Restore the statistics from the catalog. It must be called before the node counts anything."""
    with contextlib.closing(node.catalog.cursor()) as cursor:
        content = kept_statistics.read(cursor)
    if content is None:
        return
    try:
        node.catalog.change(kept_statistics.remove)
        _apply(node, json.loads(content))
    except (PostgresError, ValueError, KeyError, TypeError) as error:
        _log.warning("statistics begin anew: %s", error)


def _apply(node: NodeState, content: KeptStatistics) -> None:
    node.counted_since = float(content["since"])
    node.engine.statistics.restore(content["databases"], content.get("tables", []))
    node.slots.restore_statistics({name: (Counts(**slot["counts"]), slot["reset"]) for name, slot in content["slots"].items()})
    node.workers.host.ledger.restore(content["subscriptions"])
