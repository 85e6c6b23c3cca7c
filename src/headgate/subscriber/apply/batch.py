"""A segment inside a transaction of its applier: which of its changes are to be applied, as one changes frame per local table.

Made by `apply` for each segment. A segment is read and decoded part by part, so that a transaction of any size takes the memory of a part;
each table then gets a frame for each part. TRUNCATEs become frames of their own; what was inserted before a TRUNCATE … RESTART IDENTITY is
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.catalog.relation import foreign_key as foreign_keys
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column
from headgate.catalog.replication.subscription import SyncState
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply import conversion, leaf_constraints, row_completion
from headgate.subscriber.apply.relation_map import Mapping, MissingColumnsError, map_relation
from headgate.walreceiver.segment import Segment

if TYPE_CHECKING:
    from headgate.subscriber.apply.apply import Applier

PART_SIZE = 64 << 20
"""Bytes of a segment that are decoded at a time."""

Numbers = npt.NDArray[np.int64]
Frame = tuple[Relation, tuple[int, ...] | None, pa.Table]


class Batch:
    """One segment inside one transaction: which of its changes are to be applied, as one frame per local table."""

    def __init__(self, applier: Applier, transaction: Transaction, segment: Segment) -> None:
        self.applier, self.transaction, self.segment = applier, transaction, segment
        stream = applier.stream
        self.states = {rel.relation: rel for rel in subscriptions.tables(transaction.cursor, stream.subscription)}
        self.mappings: dict[m.Relation, Mapping] = {}
        self.restarted: dict[int, int] = {}
        """Where a TRUNCATE … RESTART IDENTITY of a local table stands, the last one."""
        self.left_out: dict[int, int] = {}
        """Changes of tables that are not in the subscription, by relation."""
        self.session = applier.session()

    def mapping(self, remote: m.Relation) -> Mapping:
        """The mapping of a published relation."""
        found = self.mappings.get(remote)
        if found is None:
            self.applier.place.relation = None
            try:
                cursor, stream = self.transaction.cursor, self.applier.stream
                found = map_relation(cursor, stream.database, remote, self._former if self.applier.follow else None)
            except MissingColumnsError as error:
                error.remote = remote
                raise
            self.mappings[remote] = found
        return found

    def _former(self, local: Relation) -> dict[str, str | None]:
        """The names that columns of a table had, with those that they have now; None for a column that has gone."""
        columns = subscription_column.of_table(self.transaction.cursor, self.applier.stream.subscription, local.oid)
        found: dict[str, str | None] = {each.name: None for each in columns if each.dropped}
        return found | {name: None if each.dropped else each.name for each in columns for name in each.former}

    def applied_from(self, local: Relation) -> int | None:
        """The commit LSN from which on changes of a table are applied; None: not at all (should_apply_changes_for_rel)."""
        if self.applier.stream.everything:
            return 0
        only = self.applier.stream.only
        if only is not None:
            return 0 if local.oid == only else None
        state = self.states.get(local.oid)
        if state is None:
            return None
        if state.state == SyncState.READY:
            return 0
        return int(state.lsn or 0) if state.state == SyncState.SYNCDONE else None

    def _is_outside(self, local: Relation) -> bool:
        """Whether a table is not in the subscription at all (rather than not copied yet)."""
        return self.applier.stream.only is None and local.oid not in self.states

    def _leave_out(self, local: Relation, count: int) -> None:
        if count and self._is_outside(local):
            self.left_out[local.oid] = self.left_out.get(local.oid, 0) + count

    @property
    def is_cut(self) -> bool:
        """Whether a table may get several frames: what holds behind the transaction alone may not hold between them."""
        return self.segment.size > PART_SIZE

    def frames(self) -> Iterator[Frame]:
        """Decodes a part of the segment at a time: the frames of its tables, which are to be applied in this order."""
        truncations = list(self.truncations(self._truncations()))
        relations, transactions = dict(self.applier.relations), self.segment.transactions
        for part in self.segment.parts(PART_SIZE):
            decoded = decode.decode(*part.read(), relations=relations, first_seq=part.first_seq)
            relations = decoded.relations
            begun = int(np.searchsorted(transactions.begin, part.first_seq, side="left")) - 1
            before = int(transactions.commit_lsn[begun]) if begun >= 0 else 0
            commit_lsn = np.concatenate([[before], decoded.transactions.commit_lsn])
            here = [(found, frame) for seq, found, frame in truncations if part.first_seq <= seq < part.end_seq]
            yield from self._frames(decoded.changes, commit_lsn, here)

    def _frames(
        self, decoded: Iterable[decode.Changes], commit_lsn: Numbers, truncations: Iterable[tuple[Mapping, pa.Table]]
    ) -> Iterator[Frame]:
        """One frame for each table; `commit_lsn` of the transaction that had begun before, and of those that begin here."""
        frames: dict[int, list[pa.Table]] = {}
        for changes in decoded:
            found = self.mapping(changes.relation)
            first = self.applied_from(found.local)
            if first is None:
                self._leave_out(found.local, len(changes))
                continue
            lost = changes.seq < self.restarted.get(found.local.oid, -1)  # what is inserted would take the first numbers
            chosen = changes.where((commit_lsn[changes.txn + 1] >= first) & ~lost)
            if len(chosen):
                later = self.applier.rows is not None and row_completion.needed(found.local, found.sources)
                lsns = commit_lsn[chosen.txn + 1]
                frame = conversion.changes_frame(chosen, lsns, found, self.session, self.applier.place, completed=later)
                frames.setdefault(found.local.oid, []).append(self.completed(frame, found))
        for found, frame in truncations:
            frames.setdefault(found.local.oid, []).append(frame)
        mapped = {found.local.oid: found for found in self.mappings.values()}
        for oid, tables in frames.items():
            yield mapped[oid].local, mapped[oid].key, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def completed(self, frame: pa.Table, found: Mapping) -> pa.Table:
        """The frame with defaults, generated columns and checks, where the table has any."""
        factory = self.applier.rows
        if factory is None:
            return frame
        if row_completion.needed(found.local, found.sources):
            frame = row_completion.complete(frame, found.local, found.sources, self.transaction, factory, self.applier.place)
        if leaf_constraints.needed(self.transaction, found.local):
            leaf_constraints.check_frame(frame, found.local, self.transaction, factory, self.applier.place)
        return frame

    def truncations(self, found: Iterable[decode.Truncation]) -> Iterator[tuple[int, Mapping, pa.Table]]:
        """The frames of the TRUNCATEs that are to be applied, with their place; restarts sequences where they say so."""
        for truncation in found:
            lsn = int(self.segment.transactions.commit_lsn[truncation.txn])
            self.applier.place.message, self.applier.place.relation = "TRUNCATE", None
            self._check_references(truncation, lsn)
            self.applier.place.message = "INSERT"
            for remote in truncation.relations:
                mapped = self.mapping(remote)
                first = self.applied_from(mapped.local)
                if first is not None and lsn >= first:
                    if truncation.message.restart_identity:
                        database, lock = self.applier.stream.database, self.transaction.lock_object
                        sequences.restart_owned(self.transaction.cursor, database, mapped.local.oid, lock)
                        self.restarted[mapped.local.oid] = truncation.seq
                    yield truncation.seq, mapped, conversion.truncate_frame(mapped, lsn, truncation.seq)

    def _check_references(self, truncation: decode.Truncation, lsn: int) -> None:
        """0A000 if a table that is not truncated has a foreign key to one that is."""
        cursor, database = self.transaction.cursor, self.applier.stream.database
        applied = []
        for remote in truncation.relations:
            local = self.mapping(remote).local
            first = self.applied_from(local)
            if first is not None and lsn >= first:
                applied.append(relations.get(cursor, database, local.oid))
        foreign_keys.check_truncate(cursor, applied)

    def _truncations(self) -> Iterator[decode.Truncation]:
        known = dict(self.applier.relations)
        begins = self.segment.transactions.begin
        for seq, lsn, other in self.segment.others:
            if isinstance(other, m.Relation):
                known[other.relation] = other
            elif isinstance(other, m.Truncate):
                txn = int(np.searchsorted(begins, seq, side="right")) - 1
                yield decode.Truncation(txn, lsn, seq, other, tuple(known[oid] for oid in other.relations if oid in known))
