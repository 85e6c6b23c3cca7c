"""The published changes of one table between two LSNs, as Arrow: what `headgate.changes` and `headgate.change_ranges` read.

A `ChangeRange` belongs to no slot: any number of readers can read any part of the log that is still kept, again and again, with the same
rows each time. Changes are read by `change_reader` and judged by the gate, as for a stream. A transaction belongs to the range if its
commit LSN is in (start, end]. Without a start, the range is the table itself as of `end`, as a first copy has it (operation R).

What must hold: while a range is read, the log from its start on is held (`Snapshots.holding`), and each part of the log is checked after it
was read to be still kept. A missing part is an error (55000), never a gap. All rows of a range have one definition: a change of the
published columns inside of it is an error, which names the LSN at which the range must be cut.

Memory: the changes of `RUN` rows, or of one piece of a large write (`feed.pieces`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import history
from headgate.catalog.history import PublishedState
from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput.encode import DELETE
from headgate.publisher import alteration, framing
from headgate.publisher.alteration import Crossing, PublicationAlteration
from headgate.publisher.change_reader import ChangeReader, with_old_row
from headgate.publisher.decoded import DecodedChanges, Shared
from headgate.publisher.framing import Wanted
from headgate.publisher.historic_snapshot import Judgement
from headgate.publisher.published import Published, identity_columns, named, published, truncated
from headgate.storage.transaction.log import POSTGRES_EPOCH, EntryKind, LogEntry, TableWrite
from headgate.types import buffers
from headgate.types.storage import arrow_type

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog
    from headgate.storage.engine import Engine

ENTRIES = 1000
"""Transactions read from the log at once."""
RUN = 32_768
"""Changes of small writes that are read and judged together; a write with more is read by itself."""
LAST = 2**31 - 1
"""Behind every change of a transaction."""

Definition = tuple[tuple[str, int, int], ...]
"""Name, type and type modifier of each published column."""

HEAD = (
    ("_op", pa.string()),
    ("_lsn", pa.int64()),
    ("_seq", pa.int64()),
    ("_xid", pa.int64()),
    ("_commit_time", pa.timestamp("us", "UTC")),
    ("_origin", pa.string()),
)
"""The columns that stand before the table's own."""
OLD = "_old"
"""The column behind them: the old row, as much as the replica identity gives."""


@dataclass(frozen=True)
class Cut:
    """A part of a range that ends with a transaction. `altered`: its columns are not those before it."""

    start: Lsn
    end: Lsn
    changes: int
    altered: bool


@dataclass(frozen=True)
class _Write:
    """A write of the table or of a partition of it, and how its changes are sent."""

    entry: LogEntry
    write: TableWrite
    plan: Published


@dataclass(frozen=True)
class _Part:
    """An entry of the log: its writes that the range has, and the rows that an ALTER PUBLICATION makes cross the gate."""

    entry: LogEntry
    writes: tuple[_Write, ...]
    crossings: tuple[Crossing, ...] = ()

    @property
    def plans(self) -> Iterator[Published]:
        """How its changes are sent, each way at least once."""
        yield from (each.plan for each in self.writes)
        for crossing in self.crossings:
            yield from (plan for plan in (crossing.before, crossing.now) if plan is not None)


class ChangeRange:
    """See the module. `relation`: the table as the publication sends it; `check` is called between batches."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        relation: Relation,
        publication: str,
        bounds: tuple[Lsn | None, Lsn],
        check: Callable[[], None] = lambda: None,
        shared: Shared | None = None,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._relation = relation
        self._publication = publication
        self.start, self.end = bounds[0], min(bounds[1], engine.log.end)
        self._check = check
        self._reader = ChangeReader(engine, shared or Shared(), relation.database)
        self.check_kept(self.end if self.start is None else self.start)

    def check_kept(self, position: Lsn) -> None:
        """Raise 55000 unless the log from a position on is still kept."""
        kept = self._engine.log.oldest_kept()
        if position < kept:
            raise PostgresError(
                "55000",
                f"the log from LSN {position} on is no longer kept",
                detail=f"The oldest LSN that is kept is {kept}.",
                hint="A replication slot keeps the log from its position on.",
            )

    # ---- the definition ---------------------------------------------------------------------------------------
    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the published columns: those of the first change in the range, or as of its end if there is none.

        Raises 42704 if the publication does not exist there, or does not publish the table.
        """
        if self.start is not None:
            for part in self._parts():
                for plan in part.plans:
                    return plan.sent_columns
        return self._plan_at_end().sent_columns

    def _plan_at_end(self) -> Published:
        return self._required(self._state(self.end))

    def _state(self, at: Lsn) -> PublishedState:
        cursor = self._catalog.cursor()
        try:
            return history.at(cursor, self._relation.database, int(at), LAST)
        finally:
            cursor.close()

    def _required(self, state: PublishedState) -> Published:
        name = f"{self._relation.schema}.{self._relation.name}"
        plan = published(state, named(state, [self._publication]), self._relation.oid)
        if plan is None or not plan.actions:
            raise PostgresError("42704", f'table "{name}" is not part of publication "{self._publication}"')
        if plan.target.oid != self._relation.oid:
            target = f"{plan.target.schema}.{plan.target.name}"
            hint = f'Its changes are published as those of table "{target}".'
            raise PostgresError("42704", f'table "{name}" is not part of publication "{self._publication}"', hint=hint)
        return plan

    # ---- the log ----------------------------------------------------------------------------------------------
    def _parts(self) -> Iterator[_Part]:
        """Yield the entries of the range that change published rows of the table, in log order."""
        assert self.start is not None
        judgement = Judgement(self._catalog, self._relation.database, INVALID)
        at = self.start
        try:
            while True:
                self._check()
                entries = self._engine.log.entries(Lsn(at + 1), self._relation.database, ENTRIES)
                self.check_kept(at)
                more = len(entries) == ENTRIES
                entries = [entry for entry in entries if entry.commit_lsn <= self.end]
                if not entries:
                    return
                at = entries[-1].commit_lsn
                yield from self._concerned(judgement, [entry for entry in entries if framing.has_changes(entry, _WANTED)])
                if not more:
                    return
        finally:
            judgement.close()

    def _concerned(self, judgement: Judgement, entries: Sequence[LogEntry]) -> Iterator[_Part]:
        altered = self._alterations(judgement, entries)
        found: dict[Lsn, list[_Write]] = {}
        plans: dict[tuple[int, int], Published | None] = {}
        kept: list[PublishedState] = []  # what the keys of `plans` are the ids of
        for entry, write, current in judgement.states(entries):
            state = current
            if write.kind == "message" or self._relation.oid not in (write.relation, *state.ancestors(write.relation)):
                continue
            if entry.commit_lsn in altered:
                state = altered[entry.commit_lsn][0].judged(state)
            kept.append(state)
            key = id(state), write.relation
            if key not in plans:
                plans[key] = self._plan(state, write.relation)
            plan = plans[key]
            if plan is not None and (write.kind != "truncate" or truncated(plan)):
                found.setdefault(entry.commit_lsn, []).append(_Write(entry, write, plan))
        for entry in entries:
            crossed = altered[entry.commit_lsn][1] if entry.commit_lsn in altered else ()
            if entry.commit_lsn in found or crossed:
                yield _Part(entry, tuple(found.get(entry.commit_lsn, ())), tuple(crossed))

    def _plan(self, state: PublishedState, oid: int) -> Published | None:
        """How changes of a relation are sent; None if not as those of the table."""
        plan = published(state, named(state, [self._publication]), oid)
        return plan if plan is not None and plan.actions and plan.target.oid == self._relation.oid else None

    def _alterations(self, judgement: Judgement, entries: Sequence[LogEntry]) -> dict[Lsn, tuple[PublicationAlteration, list[Crossing]]]:
        found = {}
        for lsn, (before, after) in judgement.following(entries).items():
            altered = alteration.alteration(before, after, [self._publication])
            if altered is not None:
                found[lsn] = altered, [each for each in altered.crossings(before) if self._crosses(each)]
        return found

    def _crosses(self, crossing: Crossing) -> bool:
        plans = [plan for plan in (crossing.before, crossing.now) if plan is not None]
        return any(plan.target.oid == self._relation.oid for plan in plans)

    def cuts(self, most: int) -> Iterator[Cut]:
        """Cut the range at transactions into parts of about `most` changes, told by the log alone, and where the columns change.

        The last part reaches the end of the range. Changes are counted as they were written, also those that the filter will leave out.
        """
        assert self.start is not None
        start, last, count, altered = self.start, self.start, 0, False
        try:
            columns: Definition | None = definition(self._required(self._state(self.start)).sent_columns)
        except PostgresError:
            columns = None  # the table was not published there
        for part in self._parts():
            found = [definition(plan.sent_columns) for plan in part.plans]
            changed = columns is not None and found[0] != columns
            size = sum(each.write.changes for each in part.writes) or 1
            if last > start and (changed or (count and count + size > most)):
                yield Cut(start, last, count, altered)
                start, count, altered = last, 0, False
            altered |= changed
            columns, last, count = found[-1], part.entry.end_lsn, count + size
        if self.end > start:
            yield Cut(start, self.end, count, altered)

    # ---- the rows ---------------------------------------------------------------------------------------------
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in the order of their commits; all batches have one schema, the first of which may be empty."""
        columns = self.columns
        made = schema(columns)
        yield pa.RecordBatch.from_pylist([], schema=made)
        for table in self._copied() if self.start is None else self._changed(definition(columns)):
            self._check()
            yield from table.combine_chunks().to_batches()

    def _copied(self) -> Iterator[pa.Table]:
        """The rows of the table as of the end, as a first copy has them."""
        state = self._state(self.end)
        self._required(state)
        entry, count = LogEntry(self.end, self.end, 0, 0, self._relation.database, None, INVALID), 0
        for oid in [self._relation.oid, *(oid for oid in state.relations if self._relation.oid in state.ancestors(oid))]:
            plan = self._plan(state, oid)
            if plan is None or plan.relation.is_partitioned:
                continue
            for sent, rows in alteration.changes(self._engine, Crossing(plan.relation, None, plan), self.end, self.end):
                self.check_kept(self.end)
                numbered = replace(rows, lsn=np.arange(count, count + len(rows)))
                yield _table(numbered, sent, {0: entry}, copied=True)
                count += len(rows)

    def _changed(self, columns: Definition) -> Iterator[pa.Table]:
        run: list[_Write] = []
        size = 0
        for part in self._parts():
            for plan in part.plans:
                if definition(plan.sent_columns) != columns:
                    raise self._altered(part.entry)
            changes = sum(each.write.changes for each in part.writes)
            if run and (size + changes > RUN or part.crossings):
                yield from self._read(run)
                run, size = [], 0
            run += part.writes
            size += changes
            if part.crossings:
                yield from self._read(run)
                yield from self._crossed(part)
                run, size = [], 0
        yield from self._read(run)

    def _altered(self, entry: LogEntry) -> PostgresError:
        name = f"{self._relation.schema}.{self._relation.name}"
        return PostgresError(
            "55000",
            f'the published columns of table "{name}" change within the range',
            detail=f"The transaction that commits at LSN {entry.commit_lsn} is the first with the new columns.",
            hint="headgate.change_ranges cuts a range where the columns change.",
        )

    def _crossed(self, part: _Part) -> Iterator[pa.Table]:
        """The rows that an alteration of the publication lets through, or no more; numbered from the commit on, where they all stand."""
        entry, count = part.entry, 0
        for crossing in part.crossings:
            for plan, rows in alteration.changes(self._engine, crossing, entry.commit_lsn, entry.end_lsn):
                if plan.target.oid == self._relation.oid:
                    numbered = replace(rows, lsn=int(entry.commit_lsn) + np.arange(count, count + len(rows)))
                    yield _table(numbered, plan, {0: entry})
                    count += len(rows)

    def _read(self, writes: Sequence[_Write]) -> Iterator[pa.Table]:
        """The changes of some writes: small ones together, put in order; otherwise write by write, which is their order."""
        entries = {int(each.write.commit_lsn): each.entry for each in writes}
        groups: dict[int, list[_Write]] = {}
        for each in writes:
            if each.write.kind != "truncate":
                groups.setdefault(id(each.plan), []).append(each)
        if sum(each.write.changes for each in writes) <= RUN:
            tables = [_truncate(each) for each in writes if each.write.kind == "truncate"]
            for group in groups.values():
                found = self._reader.small(group[0].plan, [each.write for each in group])
                if found is None:
                    break
                tables += _kept(*found, group[0].plan, entries)
            else:
                if len(tables) > 1 or any(each.entry.kind is EntryKind.COMMIT_PREPARED for each in writes):
                    tables = [pa.concat_tables(tables).sort_by([("_lsn", "ascending"), ("_seq", "ascending")])] if tables else []
                yield from tables
                return
        for each in writes:
            if each.write.kind == "truncate":
                yield _truncate(each)
                continue
            for changes, letters in self._reader.large(each.plan, each.write):
                self._check()
                yield from _kept(changes, letters, each.plan, entries)


_WANTED = Wanted()


def definition(columns: Sequence[Column]) -> Definition:
    """Return what two descriptions of the published columns must share for their rows to be alike."""
    return tuple((column.name, column.type_oid, column.typmod) for column in columns)


def schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of a range whose table has these columns."""
    row = [pa.field(column.name, arrow_type(column.type_oid, column.typmod)) for column in columns]
    return pa.schema([*(pa.field(name, kind) for name, kind in HEAD), *row, pa.field(OLD, pa.struct(row))])


def _kept(changes: DecodedChanges, letters: npt.NDArray[np.uint8], plan: Published, entries: dict[int, LogEntry]) -> list[pa.Table]:
    places = np.flatnonzero(letters)
    return [_table(changes.take(places, letters[places]), plan, entries)] if len(places) else []


def _table(changes: DecodedChanges, plan: Published, entries: dict[int, LogEntry], *, copied: bool = False) -> pa.Table:
    """Changes, all of which are sent, as rows of the range; `entries`: by the commit LSN that their write has."""
    count = len(changes)
    commits = np.array(sorted(entries), np.int64)
    at = np.searchsorted(commits, changes.table["commit_lsn"].to_numpy())
    of = [entries[int(commit)] for commit in commits]
    operation = pa.array(["R"] * count, pa.string()) if copied else buffers.whole(changes.table["op"])
    if copied:
        xid, time = pa.nulls(count, pa.int64()), pa.nulls(count, pa.timestamp("us", "UTC"))
    else:
        xid = pa.array(np.array([entry.xid for entry in of], np.int64)[at])
        time = pa.array(np.array([entry.commit_time for entry in of], np.int64)[at] + POSTGRES_EPOCH * 1_000_000)
    lsn = pa.array(np.array([int(entry.commit_lsn) for entry in of], np.int64)[at])
    origin = pa.array([entry.origin for entry in of], pa.string()).take(pa.array(at))
    values, old = _values(changes, plan)
    made = schema(plan.sent_columns)
    return pa.Table.from_arrays([operation, lsn, pa.array(changes.lsn), xid, time.cast(HEAD[4][1]), origin, *values, old], schema=made)


def _values(changes: DecodedChanges, plan: Published) -> tuple[list[pa.Array], pa.StructArray]:
    """The columns, of a DELETE those of the old row as far as the replica identity gives it, and the old rows."""
    deleted = changes.op == DELETE
    shown, before = with_old_row(changes, plan), identity_columns(plan.relation)
    values, old = [], []
    for column in plan.sent_columns:
        kind = arrow_type(column.type_oid, column.typmod)
        mine = plan.relation.column(column.name)
        if mine is None:
            values.append(pa.nulls(len(changes), kind))
            old.append(values[-1])
            continue
        if not shown.any() or (before is not None and mine.attnum not in before):
            gone = pa.nulls(len(changes), kind)
        else:
            gone = buffers.field(changes.old, mine.name)
        new = gone if deleted.all() and len(deleted) else buffers.field(changes.new, mine.name)
        values.append(pc.if_else(pa.array(deleted), gone, new) if deleted.any() and not deleted.all() else new)
        old.append(gone)
    fields = [pa.field(column.name, arrow_type(column.type_oid, column.typmod)) for column in plan.sent_columns]
    if not fields:
        return [], pa.array([None if not each else {} for each in shown], pa.struct([]))
    return values, pa.StructArray.from_arrays(old, fields=fields, mask=pa.array(~shown))


def _truncate(each: _Write) -> pa.Table:
    """TRUNCATE as a row without values."""
    entry = each.entry
    made = schema(each.plan.sent_columns)
    row = {
        "_op": "T", "_lsn": int(entry.commit_lsn), "_seq": int(each.write.lsn), "_xid": entry.xid,
        "_commit_time": entry.commit_time + POSTGRES_EPOCH * 1_000_000, "_origin": entry.origin,
    }  # fmt: skip
    return pa.table([pa.array([row.get(field.name)], field.type) for field in made], schema=made)
