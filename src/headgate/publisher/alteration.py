"""What an alteration of publications means for the rows that a subscriber has: the difference, sent as a transaction at its commit.

A publication with ``reconcile = true`` (a node alone has it) is followed: where its filters, tables, column lists or options change, each
stream that carries it sends the rows that cross the gate with the change. For each table, over all publications of the stream ORed as
for a first copy (`Published.copied`):

    let through before   now   the columns have grown   the row is sent as
    no                   no    -                        nothing
    no                   yes   -                        INSERT
    yes                  no    -                        DELETE, by the replica identity
    yes                  yes   no                       nothing
    yes                  yes   yes                      UPDATE

and where the table is sent under another name than before (publish_via_partition_root) every row as DELETE under the one, as INSERT under
the other. The rows are those of the table at the entry's LSN, so that a stream that reads the entry later, or again, sends the same.

What must hold: no transaction has written to a table between the two definitions of what is sent of it. ALTER PUBLICATION takes the write
locks of the tables (`commands.publication.reconciliation`), so whoever writes them commits before it, judged by what was, or begins after
it; the writes of the altering transaction itself are judged by what was (`judged`), and the difference is that of the rows that they left.

`PublicationAlteration` is made by `stream` for an entry of the log; `crossings` and `check` are what ALTER PUBLICATION asks. Traced: entry
0/900 is ALTER PUBLICATION p SET TABLE t WHERE (a > 5), which was a > 7; t holds 6, 7, 8. Rows 6 and 7 are sent: B R I(6) I(7) C at 0/900.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from headgate.storage.rows import RowGroup
from headgate.storage.write import arrow_row

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.publisher")

PIECE_ROWS = 131_072
"""Rows that are judged at once."""


@dataclass(frozen=True)
class Crossing:
    """How a table's rows were sent before, and how they are now; None: not at all."""

    relation: Relation
    before: Published | None
    now: Published | None

    @property
    def renamed(self) -> bool:
        """Whether the rows are sent as those of another table than before."""
        return self.before is not None and self.now is not None and self.before.target.oid != self.now.target.oid

    @property
    def widened(self) -> bool:
        """Whether columns are sent that were not."""
        return self.before is not None and self.now is not None and not set(self.now.columns) <= set(self.before.columns)

    @property
    def differs(self) -> bool:
        """Whether any row may have to be sent."""
        if self.before is None or self.now is None:
            return self.before is not self.now
        return self.renamed or self.widened or self.before.copied != self.now.copied


def crossings(state: PublishedState, before: Sequence[Publication], now: Sequence[Publication]) -> Iterator[Crossing]:
    """The tables whose rows may cross the gate where the publications `before` become `now`; the other catalogs are `state`.

    Not a table for which the publications disagree (0A000 in a stream): it is logged.
    """
    for relation in state.relations.values():
        if relation.kind != RelationKind.TABLE or relation.persistence != "p":
            continue
        try:
            one, other = _sent(state, before, relation), _sent(state, now, relation)
        except PostgresError as error:
            _log.warning('table "%s.%s" is not reconciled: %s', relation.schema, relation.name, error.message)
            continue
        crossing = Crossing(relation, one, other)
        if crossing.differs:
            yield crossing


def _sent(state: PublishedState, publications: Sequence[Publication], relation: Relation) -> Published | None:
    found = published(state, publications, relation.oid)
    return found if found is not None and found.actions else None


@dataclass(frozen=True)
class PublicationAlteration:
    """What one entry of the log did to the publications of a stream. `before`: those that are not followed are as they are now."""

    state: PublishedState
    before: tuple[Publication, ...]
    now: tuple[Publication, ...]

    def judged(self, state: PublishedState) -> PublishedState:
        """The state by which the entry's own writes are judged: with the publications of before."""
        return replace(state, publications=state.publications | {each.name: each for each in self.before})

    def crossings(self, existed: PublishedState) -> list[Crossing]:
        """The tables whose rows may cross; not those that the entry made (`existed`: the state before it), which no subscriber has."""
        return [each for each in crossings(self.state, self.before, self.now) if each.relation.oid in existed.relations]


def alteration(before: PublishedState, now: PublishedState, names: Sequence[str]) -> PublicationAlteration | None:
    """What is to be followed of the change of publications of these names; None if nothing is."""
    if any(name not in before.publications or name not in now.publications for name in names):
        return None
    found = named(now, names)
    past = [then if (then := before.publications[each.name]).reconcile and each.reconcile else each for each in found]
    return None if past == found else PublicationAlteration(now, tuple(past), tuple(found))


def changes(engine: Engine, crossing: Crossing, lsn: Lsn, end: Lsn) -> Iterator[tuple[Published, DecodedChanges]]:
    """What is sent of a table, piece by piece: as what, and the rows; every change has the LSN `lsn`. The rows are those as of `end`.

    Raises what a filter raises for a row.
    """
    if crossing.before is not None and crossing.now is not None and crossing.renamed:
        for each, operation in ((crossing.before, DELETE), (crossing.now, INSERT)):
            for rows in _rows(engine, crossing.relation, lsn, end):
                yield from _some(each, rows, np.where(_through(engine, rows, each), operation, 0).astype(np.uint8))
        return
    plan = crossing.now or crossing.before
    assert plan is not None
    kept = UPDATE if crossing.widened else 0
    every, few = _names(crossing)
    wanted = few
    for group in _groups(engine, crossing.relation, end):
        deferred, grows = [], False
        for rows in _pieces(group.pieces(wanted), lsn):
            one, other = _through(engine, rows, crossing.before), _through(engine, rows, crossing.now)
            letters = np.where(one, np.where(other, kept, DELETE), np.where(other, INSERT, 0)).astype(np.uint8)
            with_new = (letters == INSERT) | (letters == UPDATE)
            grows |= bool(with_new.any())
            if wanted != every:
                deferred.append(np.where(with_new, letters, 0).astype(np.uint8))
                letters[with_new] = 0
            yield from _some(plan, rows, letters)
        if grows and deferred:
            for rows, letters in zip(_pieces(group.pieces(every), lsn), deferred, strict=True):
                yield from _some(plan, rows, letters)
        wanted = every if grows else few  # what comes of one group is likely to come of the next, which is read once then


def _names(crossing: Crossing) -> tuple[list[str], list[str]]:
    """The columns of the table, and those that tell which rows cross and name the rows that are deleted.

    Most changes of a filter are of few rows: of the others only these are read.
    """
    every = [column.name for column in crossing.relation.columns]
    identity = identity_columns(crossing.relation)
    if crossing.before is None or identity is None:
        return every, every
    told = {column.name for each in (crossing.before, crossing.now) if each is not None for column in gate.filter_columns(each)}
    told |= {column.name for column in crossing.relation.columns if column.attnum in identity}
    return every, [name for name in every if name in told]


def check(engine: Engine, plan: Published, rows: Iterable[pa.RecordBatch]) -> None:
    """Raises what the filters raise for one of the rows."""
    for piece in _pieces(rows, INVALID):
        _through(engine, piece, plan)


def _through(engine: Engine, rows: DecodedChanges, plan: Published | None) -> gate.Mask:
    """Which rows a first copy would have."""
    if plan is None:
        return np.zeros(len(rows), np.bool_)
    inserted = {PublishedAction.INSERT: plan.copied} if plan.copied else {}
    asked = replace(plan, actions=frozenset({PublishedAction.INSERT}), filters=inserted)
    return np.asarray(gate.verdicts(engine, rows, asked) != 0)


def _some(plan: Published, rows: DecodedChanges, letters: gate.Letters) -> Iterator[tuple[Published, DecodedChanges]]:
    """Those of the rows that have a letter, as these operations."""
    if identity_columns(plan.relation) == frozenset():
        letters[letters != INSERT] = 0
    places = np.flatnonzero(letters)
    if not len(places):
        return
    found = letters[places]
    chosen = rows.take(places, found)
    table = chosen.table
    for side, without in (("old", INSERT), ("new", DELETE)):
        values = rows.new.take(pa.array(places, mask=found == without))
        if side == "new" and (found == DELETE).all():  # of which not all columns may have been read
            values = pa.nulls(len(places), pa.struct(list(arrow_row(plan.relation))))
        table = table.set_column(table.schema.get_field_index(side), side, values)
    yield plan, DecodedChanges(table, chosen.lsn)


def _groups(engine: Engine, relation: Relation, end: Lsn) -> Iterator[RowGroup]:
    """The rows of a table as of an LSN."""
    key = (relation.database, relation.oid)
    state = engine.state_at(key, end)
    if state is not None and relation.columns:
        yield from engine.table(key).groups(state)


def _rows(engine: Engine, relation: Relation, lsn: Lsn, end: Lsn) -> Iterator[DecodedChanges]:
    """The same, as inserted ones."""
    names = [column.name for column in relation.columns]
    for group in _groups(engine, relation, end):
        yield from _pieces(group.pieces(names), lsn)


def _pieces(batches: Iterable[pa.RecordBatch], lsn: Lsn) -> Iterator[DecodedChanges]:
    """Rows as inserted ones, in pieces that are judged at once."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(each.num_rows for each in gathered) >= PIECE_ROWS:
            yield _inserted(gathered, lsn)
            gathered = []
    if any(each.num_rows for each in gathered):
        yield _inserted(gathered, lsn)


def _inserted(batches: Sequence[pa.RecordBatch], lsn: Lsn) -> DecodedChanges:
    rows = pa.Table.from_batches(batches).combine_chunks().to_struct_array().combine_chunks()
    arranged = feed.arrange(rows, None, 0)
    zero = pa.array(np.zeros(len(rows), np.int64))
    table = arranged.add_column(0, "seq", zero).add_column(0, "commit_lsn", zero)
    return DecodedChanges(table, np.full(len(rows), int(lsn), np.int64))
