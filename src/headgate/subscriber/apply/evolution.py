"""Schema evolution: the publisher's description of a table's columns, which the local table follows (schema_evolution).

Each applier has one `Follower`. It makes a `DescribedTable` from a Relation message of the stream, and has the table changed by
`Worker.evolve`. The states of a table:

    described     a Relation message whose columns differ ends a run of transactions, so that the rows before it are applied first
    followed      the table has been altered; `numbers` keeps the publisher's attribute numbers of its columns
    pending       columns that must become NOT NULL, after the stream has been applied up to a position (`follow_pending`)
    unclear       the stream does not tell how the columns were altered: the table is synchronized again
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.catalog.relation import relation as relations
from headgate.catalog.replication import subscription as subscriptions
from headgate.errors import PostgresError, Severity
from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.storage.engine import Engine
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.described_table import DescribedTable, Evolve, Evolved, of_relation
from headgate.walreceiver.segment import Segment

_log = logging.getLogger("headgate.subscriber")
PENDING_PAUSE = 1.0
"""The seconds between two attempts to alter the tables in `Follower.pending`."""
FAILED_PAUSE = 5.0
"""The seconds until the next attempt after an error, such as a conflict with a table sync."""


@dataclass
class Follower:
    """Follows the columns of the tables of one stream (see the module)."""

    engine: Engine
    stream: AppliedStream
    evolve: Evolve | None = None
    """Changes tables to match the columns that the publisher described (schema_evolution)."""
    is_complete: bool = False
    """Whether tables follow every change of columns on the publisher, and do not only get the columns that they lack."""
    synchronize_again: Callable[[int], None] = lambda _: None
    """Requests a new synchronization of a table whose columns cannot be determined from the stream."""
    numbers: dict[m.Relation, tuple[int | None, ...]] = field(default_factory=dict)
    """The publisher's attribute numbers of the columns of relations that were followed."""
    pending: Evolved | None = None
    """Tables with columns that must become NOT NULL after the stream has been applied up to a position."""
    unfollowed: str | None = None
    """The error of the last attempt to follow the publisher's ALTER TABLE, or None."""
    _followed: dict[int, tuple[int, m.Relation]] = field(default_factory=dict)
    """The Relation message that was followed last, by relation, with its sequence number in the stream."""
    _next_attempt: float = 0.0
    """The monotonic time of the next attempt for `pending`."""

    def change_of_columns(self, segment: Segment, known: Mapping[int, m.Relation]) -> int:
        """Return the number of transactions before the first one that changes the columns of a table, or 0 if none does.

        `known`: the Relation messages before the segment. If tables follow the publisher, the rows before such a change are applied before
        the table changes here.
        """
        if self.evolve is None or len(segment.transactions) < 2:
            return 0
        described = dict(known)
        for seq, _, relation in segment.others:
            if isinstance(relation, m.Relation):
                known_relation = described.setdefault(relation.relation, relation)
                index = int(np.searchsorted(segment.transactions.begin, seq, side="right")) - 1
                if known_relation.columns != relation.columns and index > 0:
                    return index
                described[relation.relation] = relation
        return 0

    def follow(self, segment: Segment) -> None:
        """Change tables once to match the Relation messages of a segment, in their order."""
        if not self.is_complete or self.evolve is None:
            return
        messages: list[tuple[int, m.Relation]] = []
        for seq, _, relation in segment.others:  # the messages have no LSN of their own
            if isinstance(relation, m.Relation):
                if self._followed.get(relation.relation) == (seq, relation):  # followed, as are the messages before it
                    messages = [message for message in messages if message[1].relation != relation.relation]
                else:
                    messages.append((seq, relation))
        due = self._due(segment, messages) if messages else []
        evolved = self.have_followed([of_relation(relation) for _, relation in due]) if due else None
        if evolved is not None:
            self.numbers |= {relation: numbers for (_, relation), numbers in zip(due, evolved.numbers, strict=True)}
            self._followed |= {relation.relation: (seq, relation) for seq, relation in due}

    def follow_null(self, error: PostgresError, columns: Collection[str]) -> None:
        """Drop NOT NULL of the columns that 23502 errors have named, the last one of which is `error`.

        The row came from the publisher, so the columns were not NOT NULL there when the row was written.
        """
        transaction = self.engine.begin(self.stream.database)
        try:
            cursor, database = transaction.cursor, self.stream.database
            table = relations.lookup(cursor, database, error.schema or "", error.table or "")
            oids = [] if table is None else [table.oid, *relations.ancestors(cursor, database, table.oid)]
            states = {state.relation for state in subscriptions.tables(cursor, self.stream.subscription)}
            tables = [relations.get(cursor, database, oid) for oid in oids if oid in states]
        finally:
            transaction.rollback()
        self.have_followed([DescribedTable(table.schema, table.name, altered=False, nullable=frozenset(columns)) for table in tables])

    def have_followed(self, tables: Sequence[DescribedTable]) -> Evolved | None:
        """Change tables to match their descriptions. Return None if tables do not follow.

        Tables with unclear columns are synchronized again.
        """
        if self.evolve is None:
            return None
        evolved = self.evolve(tables)
        for relation in evolved.unclear:
            self.synchronize_again(relation)
        self.pending = evolved.with_others(self._pending_besides(tables))
        return evolved

    def _pending_besides(self, tables: Sequence[DescribedTable]) -> list[DescribedTable]:
        names = {(table.schema, table.name) for table in tables}
        return [table for table in self.pending.pending if (table.schema, table.name) not in names] if self.pending else []

    def _due(self, segment: Segment, new: Sequence[tuple[int, m.Relation]]) -> list[tuple[int, m.Relation]]:
        """Drop the descriptions of tables from before the position at which their changes start to be applied.

        A table sync has already given the table the publisher's columns at a later position, and has followed the stream from there.
        """
        begins, ends = segment.transactions.begin, segment.transactions.commit_lsn
        first = self._applied_from([of_relation(relation) for _, relation in new])
        indexes = [max(int(np.searchsorted(begins, seq, side="right")) - 1, 0) for seq, _ in new]
        return [
            message for message, applied, index in zip(new, first, indexes, strict=True) if applied is not None and ends[index] >= applied
        ]

    def _applied_from(self, tables: Sequence[DescribedTable]) -> list[int | None]:
        """Return the commit LSN from which each table's changes are applied. None: no changes.

        0: all changes, or the table does not exist here.
        """
        transaction = self.engine.begin(self.stream.database)
        try:
            states = {state.relation: state for state in subscriptions.tables(transaction.cursor, self.stream.subscription)}
            positions: list[int | None] = []
            for table in tables:
                local = relations.lookup(transaction.cursor, self.stream.database, table.schema, table.name)
                positions.append(0 if local is None else self.stream.applied_from(local.oid, states.get(local.oid)))
            return positions
        finally:
            transaction.rollback()

    def add_pending(self, tables: Sequence[DescribedTable], position: Lsn) -> None:
        """Add tables to `pending`: they may have columns that become NOT NULL after the stream has been applied up to a position."""
        remaining = self._pending_besides(tables)
        position = max(position, self.pending.position) if self.pending else position
        self.pending = Evolved((), position=position).with_others([*remaining, *tables])

    def follow_pending(self, applied: Lsn) -> None:
        """Set pending columns to NOT NULL if the stream has been applied up to their position. Failures are logged and retried."""
        moment = time.monotonic()
        if self.evolve is None or self.pending is None or moment < self._next_attempt or applied < self.pending.position:
            return
        self._next_attempt = moment + PENDING_PAUSE
        try:
            pending = self.pending.pending
            is_reached = [lsn is not None and applied >= lsn for lsn in self._applied_from(pending)]
            ready = [table for table, reached in zip(pending, is_reached, strict=True) if reached]
            if ready:
                waiting = [table for table, reached in zip(pending, is_reached, strict=True) if not reached]
                self.pending = self.evolve(ready).with_others(waiting)
            self.unfollowed = None
        except PostgresError as error:
            if error.severity is Severity.FATAL:
                raise
            self._next_attempt = moment + FAILED_PAUSE
            self.unfollowed = error.message
            _log.warning("could not follow what the publisher has altered, trying again in %d s: %s", FAILED_PAUSE, error.message)
