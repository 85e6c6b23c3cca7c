"""Reconciles subscribers after an alteration of publications: the rows that differ are sent as a transaction at its commit.

A publication with ``reconcile = true`` (only a node has it) is followed: if its filters, tables, column lists or options change, each
stream that includes it sends the rows that the change adds or removes. For each table, over all publications of the stream ORed as for an
initial copy (`Published.copied`):

    passed before   passes now   the columns have grown   the row is sent as
    no              no           -                        nothing
    no              yes          -                        INSERT
    yes             no           -                        DELETE, by the replica identity
    yes             yes          no                       nothing
    yes             yes          yes                      UPDATE

If the table is now sent under another name (publish_via_partition_root), each row is sent as DELETE under the old name and as INSERT under
the new one. The rows are those of the table at the entry's LSN. So a stream that reads the entry later, or again, sends the same.

Invariant: no transaction has written to a table between the two definitions of what is sent of it. ALTER PUBLICATION acquires the write
locks of the tables (`commands.publication.publication`). So a transaction that writes them commits before it, and is judged by the old
definition, or begins after it. The writes of the altering transaction itself are judged by the old definition (`judged`), and the
difference is that of the resulting rows.

`stream` and `change_range` create a `PublicationAlteration` for an entry of the log. ALTER PUBLICATION calls `crossings` and `check`.
Traced: entry 0/900 is ALTER PUBLICATION p SET TABLE t WHERE (a > 5), which was a > 7; t holds 6, 7, 8. Rows 6 and 7 are sent:
B R I(6) I(7) C at 0/900.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headgate.catalog.history import PublishedState
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.replication.publication import Publication
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput.encode import DELETE, INSERT, UPDATE
from headgate.publisher import gate
from headgate.publisher.decoded import DecodedChanges
from headgate.publisher.published import Published, PublishedAction, identity_columns, named, published
from headgate.storage import feed
from headgate.storage.delta.rows import RowGroup
from headgate.storage.transaction.storage import Storage
from headgate.storage.write import arrow_row

_log = logging.getLogger("headgate.publisher")

PIECE_ROWS = 131_072
"""The number of rows that are judged at once."""


@dataclass(frozen=True)
class Crossing:
    """A table with its plans before and after an alteration; None: not published."""

    relation: Relation
    before: Published | None
    now: Published | None

    @property
    def renamed(self) -> bool:
        """Whether the rows are now sent as those of another table."""
        return self.before is not None and self.now is not None and self.before.target.oid != self.now.target.oid

    @property
    def widened(self) -> bool:
        """Whether additional columns are sent."""
        return self.before is not None and self.now is not None and not set(self.now.columns) <= set(self.before.columns)

    @property
    def differs(self) -> bool:
        """Whether any row may have to be sent."""
        if self.before is None or self.now is None:
            return self.before is not self.now
        return self.renamed or self.widened or self.before.copied != self.now.copied


def crossings(state: PublishedState, before: Sequence[Publication], now: Sequence[Publication]) -> Iterator[Crossing]:
    """Yield the tables whose published rows may differ if the publications `before` become `now`. The other catalogs are in `state`.

    A table for which the publications disagree (0A000 in a stream) is logged and skipped.
    """
    for relation in state.relations.values():
        if relation.kind != RelationKind.TABLE or relation.persistence != "p":
            continue
        try:
            old_plan, new_plan = _plan_of(state, before, relation), _plan_of(state, now, relation)
        except PostgresError as error:
            _log.warning('table "%s.%s" is not reconciled: %s', relation.schema, relation.name, error.message)
            continue
        crossing = Crossing(relation, old_plan, new_plan)
        if crossing.differs:
            yield crossing


def _plan_of(state: PublishedState, publications: Sequence[Publication], relation: Relation) -> Published | None:
    plan = published(state, publications, relation.oid)
    return plan if plan is not None and plan.actions else None


@dataclass(frozen=True)
class PublicationAlteration:
    """The changes of a stream's publications by one log entry. In `before`, publications without reconcile are as they are now."""

    state: PublishedState
    before: tuple[Publication, ...]
    now: tuple[Publication, ...]

    def judged(self, state: PublishedState) -> PublishedState:
        """Return the state by which the entry's own writes are judged: with the publications before it."""
        return replace(state, publications=state.publications | {publication.name: publication for publication in self.before})

    def crossings(self, existed: PublishedState) -> list[Crossing]:
        """Return the tables whose published rows may differ. Tables created by the entry (not in `existed`) are on no subscriber yet."""
        return [crossing for crossing in crossings(self.state, self.before, self.now) if crossing.relation.oid in existed.relations]


def alteration(before: PublishedState, now: PublishedState, names: Sequence[str]) -> PublicationAlteration | None:
    """Return the alteration of the named publications that must be reconciled, or None."""
    if any(name not in before.publications or name not in now.publications for name in names):
        return None
    current = named(now, names)
    past = [old if (old := before.publications[new.name]).reconcile and new.reconcile else new for new in current]
    return None if past == current else PublicationAlteration(now, tuple(past), tuple(current))


def changes(storage: Storage, crossing: Crossing, lsn: Lsn, end: Lsn) -> Iterator[tuple[Published, DecodedChanges]]:
    """Yield the plan and the changes to send for a table, piece by piece. All changes have the LSN `lsn`; the rows are those as of `end`.

    Raise the errors of a filter.
    """
    if crossing.before is not None and crossing.now is not None and crossing.renamed:
        for side, operation in ((crossing.before, DELETE), (crossing.now, INSERT)):
            for rows in _rows(storage, crossing.relation, lsn, end):
                yield from _selected(side, rows, np.where(_passes(storage, rows, side), operation, 0).astype(np.uint8))
        return
    plan = crossing.now or crossing.before
    assert plan is not None
    unchanged = UPDATE if crossing.widened else 0
    all_names, some_names = _names(crossing)
    names = some_names
    for group in _groups(storage, crossing.relation, end):
        deferred, sends_new = [], False
        for rows in _pieces(group.pieces(names), lsn):
            passed, passes = _passes(storage, rows, crossing.before), _passes(storage, rows, crossing.now)
            letters = np.where(passed, np.where(passes, unchanged, DELETE), np.where(passes, INSERT, 0)).astype(np.uint8)
            with_new = (letters == INSERT) | (letters == UPDATE)
            sends_new |= bool(with_new.any())
            if names != all_names:
                deferred.append(np.where(with_new, letters, 0).astype(np.uint8))
                letters[with_new] = 0
            yield from _selected(plan, rows, letters)
        if sends_new and deferred:
            for rows, letters in zip(_pieces(group.pieces(all_names), lsn), deferred, strict=True):
                yield from _selected(plan, rows, letters)
        names = all_names if sends_new else some_names  # the next group, likely to be similar, is then read only once


def _names(crossing: Crossing) -> tuple[list[str], list[str]]:
    """Return the names of all columns, and of those that determine which rows differ and identify deleted rows.

    Most changes of a filter affect few rows. Of the other rows only the latter columns are read.
    """
    all_names = [column.name for column in crossing.relation.columns]
    identity = identity_columns(crossing.relation)
    if crossing.before is None or identity is None:
        return all_names, all_names
    needed = {column.name for plan in (crossing.before, crossing.now) if plan is not None for column in gate.filter_columns(plan)}
    needed |= {column.name for column in crossing.relation.columns if column.attnum in identity}
    return all_names, [name for name in all_names if name in needed]


def check(storage: Storage, plan: Published, rows: Iterable[pa.RecordBatch]) -> None:
    """Raise the errors that the filters raise for one of the rows."""
    for piece in _pieces(rows, INVALID):
        _passes(storage, piece, plan)


def _passes(storage: Storage, rows: DecodedChanges, plan: Published | None) -> gate.Mask:
    """Return which rows an initial copy would contain."""
    if plan is None:
        return np.zeros(len(rows), np.bool_)
    inserted = {PublishedAction.INSERT: plan.copied} if plan.copied else {}
    copy_plan = replace(plan, actions=frozenset({PublishedAction.INSERT}), filters=inserted)
    return np.asarray(gate.verdicts(storage, rows, copy_plan) != 0)


def _selected(plan: Published, rows: DecodedChanges, letters: gate.Letters) -> Iterator[tuple[Published, DecodedChanges]]:
    """Yield the rows that have a letter, as these operations."""
    if identity_columns(plan.relation) == frozenset():
        letters[letters != INSERT] = 0
    places = np.flatnonzero(letters)
    if not len(places):
        return
    operations = letters[places]
    sent = rows.take(places, operations)
    table = sent.table
    for side, without in (("old", INSERT), ("new", DELETE)):
        values = rows.new.take(pa.array(places, mask=operations == without))
        if side == "new" and (operations == DELETE).all():  # not all columns may have been read
            values = pa.nulls(len(places), pa.struct(list(arrow_row(plan.relation))))
        table = table.set_column(table.schema.get_field_index(side), side, values)
    yield plan, DecodedChanges(table, sent.lsn)


def _groups(storage: Storage, relation: Relation, end: Lsn) -> Iterator[RowGroup]:
    key = (relation.database, relation.oid)
    state = storage.state_at(key, end)
    if state is not None and relation.columns:
        yield from storage.tables[key].groups(state)


def _rows(storage: Storage, relation: Relation, lsn: Lsn, end: Lsn) -> Iterator[DecodedChanges]:
    """Yield the rows of a table as of an LSN as inserted ones."""
    names = [column.name for column in relation.columns]
    for group in _groups(storage, relation, end):
        yield from _pieces(group.pieces(names), lsn)


def _pieces(batches: Iterable[pa.RecordBatch], lsn: Lsn) -> Iterator[DecodedChanges]:
    """Yield rows as inserted ones, in pieces that are judged at once."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(part.num_rows for part in gathered) >= PIECE_ROWS:
            yield _inserted(gathered, lsn)
            gathered = []
    if any(part.num_rows for part in gathered):
        yield _inserted(gathered, lsn)


def _inserted(batches: Sequence[pa.RecordBatch], lsn: Lsn) -> DecodedChanges:
    rows = pa.Table.from_batches(batches).combine_chunks().to_struct_array().combine_chunks()
    arranged = feed.arrange(rows, None, 0)
    zero = pa.array(np.zeros(len(rows), np.int64))
    table = arranged.add_column(0, "seq", zero).add_column(0, "commit_lsn", zero)
    return DecodedChanges(table, np.full(len(rows), int(lsn), np.int64))
