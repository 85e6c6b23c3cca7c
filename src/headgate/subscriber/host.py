"""The parts of the node and the functions of upper layers that the subscriber uses. `server.node_parts` fills in the records.

The server and the commands may not be imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame

from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.settings.node import Settings
from headgate.storage.engine import Engine
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Mode, Patience
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.described_table import Evolve
from headgate.subscriber.rows.leaf_constraints import UniqueChecks
from headgate.subscriber.rows.relation_map import Mapping
from headgate.subscriber.rows.row_completion import Factory
from headgate.subscriber.rows.row_triggers import TriggerFactory
from headgate.subscriber.subscription_statistics import Ledger
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.remote import RemoteRelation

Jobs = Callable[[], AbstractContextManager[str]]
"""A context that yields the name of a Spark job group. Stopping the worker cancels its jobs. Do not commit inside."""


class Backend(Protocol):
    """A row of pg_stat_activity that a worker fills in."""

    pid: int
    database: int | None
    database_name: str | None
    role: int | None
    role_name: str | None
    state: str | None
    wait: tuple[str, str] | None
    at_rest: tuple[str, str] | None
    wake: Callable[[], None] | None

    def waits_for(self, mode: Mode | None) -> None:
        """Record the lock that the worker waits for, or None."""


class FoundDifference(Protocol):
    """The difference between a table and the publisher's (`headgate.verify.difference`)."""

    def ranges(self) -> Sequence[str]: ...

    @property
    def command(self) -> str:
        """Return the COPY command of the publisher's rows in these ranges, with the hashes of the key and of the row first."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The published columns that the COPY returns."""

    def changes(self, staged: DataPath, unchanged: Sequence[str]) -> DataFrame:
        """Return the changes frame. `staged` contains the rows (k, r, new)."""


class MadeDifference(Protocol):
    """Computes the difference of one table."""

    def __call__(
        self, transaction: Transaction, mapping: Mapping, remote: RemoteRelation, reader: PublisherConnection
    ) -> FoundDifference: ...


@dataclass(frozen=True)
class Commands:
    """The functions of the layers above that workers call.

    rows            the function that completes and checks the rows that a subscription's workers apply
    triggers        the function that finds the triggers of a table that fire for applied changes
    difference      the function that computes the changes that make a table equal to the publisher's
    evolution       the function that changes tables to match the columns that their publisher described (schema_evolution)
    unique          raise 23505 for a key of a unique index that exists twice
    check_rights    raise an error unless the subscription's owner may apply changes of these kinds (I, U, D, T) to the relation
    check_login     raise an error unless the subscription's owner may log in
    histories       begin the missing histories of ready tables, and add the columns that histories lack
    tables          add the published tables that are not in a subscription to it (create_tables)

    The last two return a line for each change.
    """

    rows: Callable[[Subscription], Factory]
    triggers: Callable[[Subscription], TriggerFactory]
    difference: Callable[[Subscription], MadeDifference]
    evolution: Callable[[Subscription, Patience, Jobs], Evolve]
    unique: UniqueChecks
    check_rights: Callable[[CatalogCursor, Subscription, Relation, Iterable[str]], None]
    check_login: Callable[[CatalogCursor, Subscription], None]
    histories: Callable[[Subscription, Patience, Jobs], list[str]]
    tables: Callable[[Subscription, Patience, Jobs], list[str]]


@dataclass(frozen=True)
class Host:
    """The parts of the node.

    `enter` returns the entry of a new worker of this kind in
    pg_stat_activity, or raises 53300 if there is no free slot. `leave` removes it. `commands` imports the commands when it is first called.
    """

    catalog: Catalog
    engine: Engine
    settings: Settings
    data_dir: Path
    system_identifier: str
    enter: Callable[[str], Backend]
    leave: Callable[[int], None]
    commands: Callable[[], Commands]
    ledger: Ledger

    def sync_slot_name(self, subscription: int, relation: int) -> str:
        """Return the slot (and application name) of a table's sync: ``pg_<subscription>_sync_<relation>_<system identifier>``."""
        return f"pg_{subscription}_sync_{relation}_{self.system_identifier}"
