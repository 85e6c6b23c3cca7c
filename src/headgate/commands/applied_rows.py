"""Rows that a worker applies: their defaults, generated columns and constraints.

The subscriber is a floor below and asks through `headgate.subscriber.completion.Rows`; the server hands `applied_rows` to it. A worker
acts as the subscription's owner with an empty search path, as PostgreSQL's does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.catalog import database as databases
from headgate.catalog.relation import Relation
from headgate.catalog.session import SessionContext
from headgate.commands.new_rows import NewRows
from headgate.commands.query.planner import Planner
from headgate.errors import Notices
from headgate.lsn import Lsn
from headgate.storage.transaction import Transaction


@dataclass
class WorkerSession:
    """As much of a session as expressions of a table need."""

    node: Any
    context: SessionContext
    transaction: Transaction
    notices: Notices = field(default_factory=Notices)
    settings: Any = None
    parameters: tuple[Any, ...] = ()
    dynamic: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    in_block: bool = False
    job_group: str = "apply"
    snapshot: Lsn | None = None

    def begin_statement(self) -> Transaction:
        """The worker's transaction."""
        return self.transaction

    def use_types(self) -> None:
        """The worker has put the types in force before the batch."""


def applied_rows(node: Any, transaction: Transaction, relation: Relation, routed_from: Relation | None = None) -> NewRows:
    """What completes and checks the rows of one table within a worker's transaction."""
    database = databases.find(transaction.cursor, relation.database)
    name = database.name if database is not None else ""
    settings = {"TimeZone": node.settings.text("TimeZone")}
    context = SessionContext(relation.database, name, "postgres", search_path=[], settings=settings)
    return NewRows(Planner(WorkerSession(node, context, transaction), transaction), relation, routed_from=routed_from)  # type: ignore[arg-type]
