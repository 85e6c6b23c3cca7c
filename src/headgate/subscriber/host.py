"""What a subscriber needs of the node that it belongs to. The server's `Node` is one (the floors forbid the import).

Its workers find here where things are, and who does what stands above them: the commands' floor completes rows, checks rights and makes
tables, the floor `verify` finds what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation.relation import Index, Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.settings.node import Settings
from headgate.storage.engine import Engine
from headgate.storage.lock import Mode, Patience
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply.evolution import Evolved, Told
from headgate.subscriber.apply.relation_map import Mapping
from headgate.subscriber.apply.row_completion import RowCompletion
from headgate.subscriber.apply.row_triggers import FiringTriggers
from headgate.subscriber.synchronization.reconciliation import FoundDifference
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.definition import Definitions
from headgate.walreceiver.remote import RemoteRelation

Jobs = Callable[[], AbstractContextManager[str]]
"""Inside, Spark's jobs of the group that it gives end when the worker is asked to end; a commit is not for inside."""


class Backend(Protocol):
    """A row of pg_stat_activity, as a worker fills it in."""

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
        """The lock that it waits for now, None for none."""
        ...


class Activity(Protocol):
    """Who works in the node."""

    def enter(self, kind: str) -> Backend:
        """The entry of a worker of this kind; 53300 where there is no room."""
        ...

    def leave(self, pid: int) -> None:
        """Takes the entry of that pid out."""
        ...


class Host(Protocol):
    """The node."""

    @property
    def catalog(self) -> Catalog:
        """The system catalogs."""
        ...

    @property
    def engine(self) -> Engine:
        """The tables."""
        ...

    @property
    def settings(self) -> Settings:
        """The node's settings."""
        ...

    @property
    def data_dir(self) -> Path:
        """Its directory."""
        ...

    @property
    def system_identifier(self) -> str:
        """As in pg_control_system(); names of synchronization slots have it."""
        ...

    @property
    def activity(self) -> Activity:
        """Who works in it."""
        ...

    def applied_rows(
        self, transaction: Transaction, subscription: Subscription, relation: Relation, routed_from: Relation | None = None
    ) -> RowCompletion:
        """What completes and checks the rows that a worker applies."""
        ...

    def applied_triggers(
        self, transaction: Transaction, subscription: Subscription, relation: Relation, *, collects: bool = False
    ) -> FiringTriggers | None:
        """The triggers of a table that fire for what a worker applies."""
        ...

    def applied_unique(self, transaction: Transaction, relation: Relation, index: Index) -> None:
        """Raises 23505 if a table has a key of a unique index twice."""
        ...

    def applied_rights(self, cursor: CatalogCursor, subscription: Subscription, relation: Relation | None, ops: Iterable[str]) -> None:
        """Raises unless the owner may apply changes of these kinds (I, U, D, T) to the relation; with None, unless it may log in."""
        ...

    def applied_difference(
        self, subscription: Subscription, transaction: Transaction, mapping: Mapping, remote: RemoteRelation, reader: PublisherConnection
    ) -> FoundDifference:
        """What a table must be changed by to be the publisher's."""
        ...

    def applied_evolution(
        self, subscription: Subscription, told: Sequence[Told], stopping: Patience, jobs: Jobs, *, catalog: Definitions | None
    ) -> Evolved:
        """Has tables follow what their publisher told of their columns (schema_evolution)."""
        ...

    def applied_histories(self, subscription: Subscription, stopping: Patience, jobs: Jobs) -> list[str]:
        """Begins the histories of ready tables that have none yet, and gives all the columns that they lack; a line for each."""
        ...

    def applied_tables(self, subscription: Subscription, stopping: Patience, jobs: Jobs) -> list[str]:
        """Has the published tables that are not in a subscription join it (create_tables)."""
        ...
