"""The interface of the node to its subscriber. The server's `Node` implements it. The layering of packages forbids the import of `Node`.

Workers get the node's objects here, and the functions of the layers above: `commands` completes rows, checks rights and creates tables,
and `verify` finds differences.
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
from headgate.subscriber.apply.evolution import DescribedTable, Evolved
from headgate.subscriber.apply.relation_map import Mapping
from headgate.subscriber.apply.row_completion import RowCompletion
from headgate.subscriber.apply.row_triggers import FiringTriggers
from headgate.subscriber.synchronization.reconciliation import FoundDifference
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.definition import Definitions
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
        ...


class Activity(Protocol):
    """The backends that run in the node."""

    def enter(self, kind: str) -> Backend:
        """Return a new entry for a worker of this kind. Raise 53300 if there is no free slot."""
        ...

    def leave(self, pid: int) -> None:
        """Remove the entry with this pid."""
        ...


class Host(Protocol):
    """The node."""

    @property
    def catalog(self) -> Catalog:
        """The system catalogs."""
        ...

    @property
    def engine(self) -> Engine:
        """The storage engine."""
        ...

    @property
    def settings(self) -> Settings:
        """The node's settings."""
        ...

    @property
    def data_dir(self) -> Path:
        """The node's data directory."""
        ...

    @property
    def system_identifier(self) -> str:
        """The identifier as in pg_control_system(). It is a part of the names of synchronization slots."""
        ...

    @property
    def activity(self) -> Activity:
        """The backends that run in the node."""
        ...

    def applied_rows(
        self, transaction: Transaction, subscription: Subscription, relation: Relation, routed_from: Relation | None = None
    ) -> RowCompletion:
        """Return the object that completes and checks the rows that a worker applies."""
        ...

    def applied_triggers(
        self, transaction: Transaction, subscription: Subscription, relation: Relation, *, collects: bool = False
    ) -> FiringTriggers | None:
        """Return the triggers of a table that fire for the changes that a worker applies, or None."""
        ...

    def applied_unique(self, transaction: Transaction, relation: Relation, index: Index) -> None:
        """Raise 23505 if a table holds a key of a unique index twice."""
        ...

    def applied_rights(self, cursor: CatalogCursor, subscription: Subscription, relation: Relation | None, ops: Iterable[str]) -> None:
        """Raise an error unless the owner may apply changes of these kinds (I, U, D, T) to the relation.

        If `relation` is None, raise an error unless the owner may log in.
        """
        ...

    def applied_difference(
        self, subscription: Subscription, transaction: Transaction, mapping: Mapping, remote: RemoteRelation, reader: PublisherConnection
    ) -> FoundDifference:
        """Return the changes that make a table equal to the publisher's."""
        ...

    def applied_evolution(
        self, subscription: Subscription, tables: Sequence[DescribedTable], stopping: Patience, jobs: Jobs, *, catalog: Definitions | None
    ) -> Evolved:
        """Change tables to match the columns that their publisher described (schema_evolution)."""
        ...

    def applied_histories(self, subscription: Subscription, stopping: Patience, jobs: Jobs) -> list[str]:
        """Begin the missing histories of ready tables, and add the columns that histories lack. Return a line for each change."""
        ...

    def applied_tables(self, subscription: Subscription, stopping: Patience, jobs: Jobs) -> list[str]:
        """Add the published tables that are not in a subscription to it (create_tables). Return a line for each change."""
        ...
