"""Statistics over a clean restart: of subscriptions, slots and databases.

`keep` is called when a node has stopped its workers, `take` before it starts them; what is taken is removed from the catalog at once. So a
crash begins anew, as with PostgreSQL. Neither keeps a node from stopping or starting.
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
    from headgate.server.node import Node
    from headgate.subscriber.subscription_statistics import AccountState

_log = logging.getLogger("headgate.server")


class SlotState(TypedDict):
    """What a slot has counted, and since when."""

    counts: Mapping[str, int]
    reset: float | None


class KeptStatistics(TypedDict):
    """What is kept, in JSON; who kept them before there were statistics of tables has none."""

    since: float
    subscriptions: Mapping[str, AccountState]
    databases: Mapping[str, Mapping[str, int]]
    tables: NotRequired[Sequence[Sequence[int]]]
    slots: Mapping[str, SlotState]


def keep(node: Node) -> None:
    """Writes what has been counted into the catalog."""
    with contextlib.closing(node.catalog.cursor()) as cursor:
        known = {one.oid for one in subscriptions.all_subscriptions(cursor)}
        there = {one.oid for one in databases.all_databases(cursor)}
    slots: dict[str, SlotState] = {
        live.slot.name: {"counts": dataclasses.asdict(live.counts), "reset": live.reset}
        for live in node.slots.all()
        if not live.slot.temporary
    }
    content: KeptStatistics = {
        "since": node.counted_since,
        "subscriptions": node.launcher.ledger.state(known),
        "databases": node.engine.statistics.state(there),
        "tables": node.engine.statistics.state_of_tables(there),
        "slots": slots,
    }
    try:
        node.catalog.change(lambda cursor: kept_statistics.write(cursor, json.dumps(content)))
    except PostgresError as error:
        _log.warning("could not keep statistics: %s", error.message)


def take(node: Node) -> None:
    """Gives the node's parts what was kept. Call before anything is counted."""
    with contextlib.closing(node.catalog.cursor()) as cursor:
        content = kept_statistics.read(cursor)
    if content is None:
        return
    try:
        node.catalog.change(kept_statistics.remove)
        _give(node, json.loads(content))
    except (PostgresError, ValueError, KeyError, TypeError) as error:
        _log.warning("statistics begin anew: %s", error)


def _give(node: Node, content: KeptStatistics) -> None:
    node.counted_since = float(content["since"])
    node.engine.statistics.restore(content["databases"], content.get("tables", []))
    node.slots.restore_statistics({name: (Counts(**each["counts"]), each["reset"]) for name, each in content["slots"].items()})
    node.launcher.ledger.restore(content["subscriptions"])
