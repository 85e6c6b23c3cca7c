"""The published changes of one table between two LSNs, as Arrow, for `headgate.changes` and `headgate.change_ranges`.

A `ChangeRange` belongs to no slot: any number of readers can read any retained part of the log repeatedly, and get the same rows each
time. `change_reader` reads the changes and the gate judges them, as for a stream. If a subscription has applied a transaction and its
history has every change of the table, `recorded_changes` reads those instead of the netted ones. A transaction belongs to the range if
its commit LSN is in (start, end]. Without a start, the range is the table itself as of `end`, as in an initial copy (operation R).

No change is judged by a catalog older than the start, as a slot that was created there would do. So a range that starts at the end of a
copy continues it, even if a transaction had written before the publication was created or altered.

A range may start before the log, if the table's history has all changes from there on (`TransactionLog.recorded`). They are judged like the
others: by the publication as of their transaction.

Invariants: while a range is read, the log from its start on is retained (`Snapshots.holding`). After each part of the log was read, it is
checked that the part is still retained. A missing part is an error (55000), never a gap. All rows of a range have one definition: a change
of the published columns within it is an error that names the LSN at which the range must be split.

Memory: the changes of `RUN` rows, or of one piece of a large write (`feed.pieces`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
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
from headgate.pgoutput.change_columns import HEAD, Definition, schema_of
from headgate.pgoutput.encode import DELETE
from headgate.publisher import alteration, framing, recorded_changes
from headgate.publisher.alteration import Crossing, PublicationAlteration
from headgate.publisher.change_reader import ChangeReader, with_old_row
from headgate.publisher.decoded import ChangeCache, DecodedChanges
from headgate.publisher.framing import StreamOptions
from headgate.publisher.historic_snapshot import Judgement
from headgate.publisher.published import Published, identity_columns, named, published, truncated
from headgate.storage.transaction.log import POSTGRES_EPOCH, EntryKind, LogEntry, RecordedEntry, TableWrite
from headgate.types import buffers
from headgate.types.storage import arrow_type

if TYPE_CHECKING:
    from headgate.storage.transaction.storage import Storage

ENTRIES = 1000
"""The number of transactions read from the log at once."""
RUN = 32_768
"""The number of changes of small writes that are read and judged together. A write with more is read separately."""
LAST = 2**31 - 1
"""A sequence number after all changes of a transaction."""


@dataclass(frozen=True)
class Subrange:
    """A part of a range that ends with a transaction. `altered`: its columns differ from those before it."""

    start: Lsn
    end: Lsn
    changes: int
    altered: bool


@dataclass(frozen=True)
class _Write:
    """A write of the table or one of its partitions, or a write to the table's history (`history`), and how its changes are sent."""

    entry: LogEntry
    write: TableWrite
    plan: Published
    history: Relation | None = None

    @property
    def source(self) -> Hashable:
        """Identify the writes that are read together."""
        return id(self.plan), self.history and self.history.oid


@dataclass(frozen=True)
class _RangeEntry:
    """A log entry: its writes in the range, and the rows that an ALTER PUBLICATION adds to or removes from the published ones."""

    entry: LogEntry
    writes: tuple[_Write, ...]
    crossings: tuple[Crossing, ...] = ()

    @property
    def plans(self) -> Iterator[Published]:
        """Yield the plans by which its changes are sent, each at least once."""
        yield from (write.plan for write in self.writes)
        for crossing in self.crossings:
            yield from (plan for plan in (crossing.before, crossing.now) if plan is not None)


class ChangeRange:
    """The changes of a range of LSNs. `relation`: the table as the publication sends it. `check` is called between batches."""

    def __init__(
        self,
        storage: Storage,
        relation: Relation,
        publication: str,
        bounds: tuple[Lsn | None, Lsn],
        check: Callable[[], None],
    ) -> None:
        """`bounds`: start, None for the table itself, and end."""
        self._storage = storage
        self._catalog = storage.catalog
        self._relation = relation
        self._publication = publication
        self.start, self.end = bounds[0], min(bounds[1], storage.log.end)
        self._check = check
        self._reader = ChangeReader(storage, ChangeCache(), relation.database)
        self.check_kept(self.end if self.start is None else self.start)

    def check_kept(self, position: Lsn) -> None:
        """Raise 55000 unless the log, or the history of the table, still has all changes from a position on."""
        oldest = self._storage.log.oldest_kept()
        if position >= oldest:
            return
        if self.start is not None:
            oldest = self._oldest_recorded(position, oldest)
        if position < oldest:
            raise self._removed(position, f"The oldest retained LSN is {oldest}.")

    def _oldest_recorded(self, position: Lsn, oldest: Lsn) -> Lsn:
        """Return the LSN from which on the history has the changes before the log, which begins at `oldest`. `oldest` if it has none.

        The history does not have the rows that an ALTER PUBLICATION after the position adds or removes.
        """
        database = self._relation.database
        first = self._storage.log.oldest_recorded(database, self._relation.oid)
        if first is None or first >= oldest:
            return oldest
        with contextlib.closing(self._catalog.cursor()) as cursor:
            lsns = [lsn for lsn in history.following(cursor, database) if max(first, position) < lsn < oldest]
            for lsn in sorted(lsns, reverse=True):
                before, after = (history.at(cursor, database, at, LAST) for at in (lsn - 1, lsn))
                altered = alteration.alteration(before, after, [self._publication])
                if altered is not None and any(map(self._crosses, altered.crossings(before))):
                    return Lsn(lsn)
        return first

    def _removed(self, position: Lsn, detail: str) -> PostgresError:
        hint = "A replication slot keeps the log from its position on."
        return PostgresError("55000", f"the log from LSN {position} on is no longer kept", detail=detail, hint=hint)

    # ---- the definition ---------------------------------------------------------------------------------------
    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """The published columns: those of the first change in the range, or as of its end if there is none.

        Raises 42704 if the publication does not exist there or does not publish the table.
        """
        if self.start is not None:
            for part in self._parts():
                for plan in part.plans:
                    return plan.sent_columns
        return self._required(self._state(self.end)).sent_columns

    def _state(self, lsn: Lsn) -> PublishedState:
        cursor = self._catalog.cursor()
        try:
            return history.at(cursor, self._relation.database, int(lsn), LAST)
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
    def _parts(self) -> Iterator[_RangeEntry]:
        """Yield the entries of the range that change published rows of the table, in log order."""
        assert self.start is not None
        judgement = Judgement(self._catalog, self._relation.database, self.start)
        log, position, has_more = self._storage.log, self.start, True
        entries: Sequence[LogEntry]
        try:
            while has_more and position < self.end:
                self._check()
                oldest = log.oldest_kept()
                if position < oldest:
                    entries = log.recorded(position, self._relation.database, self._relation.oid, ENTRIES)
                    self.check_kept(position)
                    reached = oldest if len(entries) < ENTRIES else INVALID
                else:
                    entries = log.entries(Lsn(position + 1), self._relation.database, ENTRIES)
                    if position < log.oldest_kept():
                        continue  # some of them may have been removed
                    reached, has_more = INVALID, len(entries) == ENTRIES
                position = max([position, reached, *(entry.commit_lsn for entry in entries[-1:])])
                entries = [entry for entry in entries if entry.commit_lsn <= self.end]
                yield from self._concerned(judgement, [entry for entry in entries if framing.has_changes(entry, _WANTED)])
        finally:
            judgement.close()

    def _concerned(self, judgement: Judgement, entries: Sequence[LogEntry]) -> Iterator[_RangeEntry]:
        altered = self._alterations(judgement, entries)
        is_removed = isinstance(next(iter(entries), None), RecordedEntry)
        retained = self._state(self._storage.log.oldest_kept()) if is_removed else None
        """The catalog by which the histories are read if the log no longer has the entries."""
        writes: dict[Lsn, list[_Write]] = {}
        plans: dict[tuple[int, int], Published | None] = {}
        states: list[PublishedState] = []  # keeps the states alive whose ids are keys of `plans`
        for entry, write, current in judgement.states(entries):
            state = current
            history_table = (retained or state).relations.get(write.relation) if write.recorded == self._relation.oid else None
            relation = write.relation if history_table is None else self._relation.oid
            if write.kind == "message" or self._relation.oid not in (relation, *state.ancestors(relation)):
                continue
            if entry.commit_lsn in altered:
                state = altered[entry.commit_lsn][0].judged(state)
            states.append(state)
            key = id(state), relation
            if key not in plans:
                plans[key] = self._plan(state, relation)
            plan = plans[key]
            if plan is not None and (write.kind != "truncate" or truncated(plan)):
                writes.setdefault(entry.commit_lsn, []).append(_Write(entry, write, plan, history_table))
        writes = {lsn: self._from_history(parts) for lsn, parts in writes.items()}
        for entry in entries:
            crossed = altered[entry.commit_lsn][1] if entry.commit_lsn in altered else ()
            if entry.commit_lsn in writes or crossed:
                yield _RangeEntry(entry, tuple(writes.get(entry.commit_lsn, ())), tuple(crossed))

    def _from_history(self, writes: list[_Write]) -> list[_Write]:
        """Return which writes of a transaction are read: those to the table's history instead of all others if the history suffices."""
        recorded = [write for write in writes if write.history is not None]
        if recorded and all(write.history is not None and recorded_changes.suffices(write.plan, write.history) for write in recorded):
            return recorded
        if any(isinstance(write.entry, RecordedEntry) for write in writes):
            assert self.start is not None
            lacking = f'The history of the table lacks values for publication "{self._publication}".'
            raise self._removed(self.start, f"{lacking} The oldest retained LSN is {self._oldest_sufficient(self.start)}.")
        return [write for write in writes if write.history is None]

    def _oldest_sufficient(self, position: Lsn) -> Lsn:
        """Return the LSN from which on the history has all values: the end of the last batch before the log that lacks some."""
        log, database, oid = self._storage.log, self._relation.database, self._relation.oid
        retained = self._state(log.oldest_kept()).relations
        oldest = position
        with contextlib.closing(Judgement(self._catalog, database, position)) as judgement:
            while entries := log.recorded(position, database, oid, ENTRIES):
                for entry, write, state in judgement.states(entries):
                    plan = self._plan(state, oid)
                    if plan is not None and not recorded_changes.suffices(plan, retained[write.relation]):
                        oldest = entry.end_lsn
                position = entries[-1].commit_lsn
        return oldest

    def _plan(self, state: PublishedState, oid: int) -> Published | None:
        """Return how changes of a relation are sent, or None if they are not sent as those of the table."""
        plan = published(state, named(state, [self._publication]), oid)
        return plan if plan is not None and plan.actions and plan.target.oid == self._relation.oid else None

    def _alterations(self, judgement: Judgement, entries: Sequence[LogEntry]) -> dict[Lsn, tuple[PublicationAlteration, list[Crossing]]]:
        alterations = {}
        for lsn, (before, after) in judgement.following(entries).items():
            altered = alteration.alteration(before, after, [self._publication])
            if altered is not None:
                alterations[lsn] = altered, [crossing for crossing in altered.crossings(before) if self._crosses(crossing)]
        return alterations

    def _crosses(self, crossing: Crossing) -> bool:
        plans = [plan for plan in (crossing.before, crossing.now) if plan is not None]
        return any(plan.target.oid == self._relation.oid for plan in plans)

    def cuts(self, most: int) -> Iterator[Subrange]:
        """Split the range at transactions into parts of about `most` changes, using only the log, and where the columns change.

        The last part extends to the end of the range. All written changes count, including those that the filter will drop.
        """
        assert self.start is not None
        start, last, count, altered = self.start, self.start, 0, False
        try:
            columns: Definition | None = definition(self._required(self._state(self.start)).sent_columns)
        except PostgresError:
            columns = None  # the table was not published there
        for part in self._parts():
            definitions = [definition(plan.sent_columns) for plan in part.plans]
            changed = columns is not None and definitions[0] != columns
            size = sum(write.write.changes for write in part.writes) or 1
            if last > start and (changed or (count and count + size > most)):
                yield Subrange(start, last, count, altered)
                start, count, altered = last, 0, False
            altered |= changed
            columns, last, count = definitions[-1], part.entry.end_lsn, count + size
        if self.end > start:
            yield Subrange(start, self.end, count, altered)

    # ---- the rows ---------------------------------------------------------------------------------------------
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in commit order. All batches have one schema, the first is empty."""
        columns = self.columns
        arrow_schema = schema(columns)
        yield pa.RecordBatch.from_pylist([], schema=arrow_schema)
        for table in self._copied() if self.start is None else self._changed(definition(columns)):
            self._check()
            yield from table.combine_chunks().to_batches()

    def _copied(self) -> Iterator[pa.Table]:
        """Yield the rows of the table as of the end, as in an initial copy."""
        state = self._state(self.end)
        self._required(state)
        entry, count = LogEntry(self.end, self.end, 0, 0, self._relation.database, None, INVALID), 0
        for oid in [self._relation.oid, *(oid for oid in state.relations if self._relation.oid in state.ancestors(oid))]:
            plan = self._plan(state, oid)
            if plan is None or plan.relation.is_partitioned:
                continue
            for sent, rows in alteration.changes(self._storage, Crossing(plan.relation, None, plan), self.end, self.end):
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
            changes = sum(write.write.changes for write in part.writes)
            is_removed = isinstance(part.entry, RecordedEntry)
            if run and (size + changes > RUN or part.crossings or is_removed != isinstance(run[-1].entry, RecordedEntry)):
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

    def _crossed(self, part: _RangeEntry) -> Iterator[pa.Table]:
        """Yield the rows that an alteration of the publication adds or removes. They are numbered from its commit LSN on."""
        entry, count = part.entry, 0
        for crossing in part.crossings:
            for plan, rows in alteration.changes(self._storage, crossing, entry.commit_lsn, entry.end_lsn):
                if plan.target.oid == self._relation.oid:
                    numbered = replace(rows, lsn=int(entry.commit_lsn) + np.arange(count, count + len(rows)))
                    yield _table(numbered, plan, {0: entry})
                    count += len(rows)

    def _read(self, writes: Sequence[_Write]) -> Iterator[pa.Table]:
        """Yield the changes of some writes. The log has the entries of all of them, or of none."""
        entries = {int(write.write.commit_lsn): write.entry for write in writes}
        is_removed = bool(writes) and isinstance(writes[0].entry, RecordedEntry)
        return self._read_removed(writes, entries) if is_removed else self._read_logged(writes, entries)

    def _read_logged(self, writes: Sequence[_Write], entries: dict[int, LogEntry]) -> Iterator[pa.Table]:
        """Yield the changes of some writes: small ones together, in order; larger ones write by write, which is their order."""
        groups: dict[Hashable, list[_Write]] = {}
        for write in writes:
            if write.write.kind != "truncate":
                groups.setdefault(write.source, []).append(write)
        if sum(write.write.changes for write in writes) <= RUN:
            tables = [_truncate(write) for write in writes if write.write.kind == "truncate"]
            for group in groups.values():
                if group[0].history is not None:
                    rows = self._recorded(group, entries)
                else:
                    judged = self._reader.small(group[0].plan, [write.write for write in group])
                    rows = None if judged is None else _kept(*judged, group[0].plan, entries)
                if rows is None:
                    break
                tables += rows
            else:
                if len(tables) > 1 or any(write.entry.kind is EntryKind.COMMIT_PREPARED for write in writes):
                    tables = [pa.concat_tables(tables).sort_by([("_lsn", "ascending"), ("_seq", "ascending")])] if tables else []
                yield from tables
                return
        for _, of_transaction in itertools.groupby(writes, lambda write: (write.write.commit_lsn, write.history is None)):
            group = list(of_transaction)
            if group[0].history is not None:
                parts = [write.write for write in group]
                for recorded in recorded_changes.large(self._storage, group[0].plan.relation, group[0].history, parts):
                    self._check()
                    yield from self._judged(recorded, group[0], entries)
                continue
            for write in group:
                if write.write.kind == "truncate":
                    yield _truncate(write)
                    continue
                for changes, letters in self._reader.large(write.plan, write.write):
                    self._check()
                    yield from _kept(changes, letters, write.plan, entries)

    def _read_removed(self, writes: Sequence[_Write], entries: dict[int, LogEntry]) -> Iterator[pa.Table]:
        """Yield the changes in consecutive entries that the log no longer has."""
        for _, of_plan in itertools.groupby(writes, lambda write: id(write.plan)):
            first, *others = of_plan
            assert first.history is not None
            parts = [write.entry for write in (first, *others) if isinstance(write.entry, RecordedEntry)]
            oldest = self._storage.log.oldest_kept()
            for recorded in recorded_changes.removed(self._storage, first.plan.relation, first.history, parts, oldest):
                self._check()
                yield from self._judged(recorded, first, entries)

    def _recorded(self, writes: Sequence[_Write], entries: dict[int, LogEntry]) -> list[pa.Table] | None:
        """Return the changes in small writes to the history, or None if the driver should not read them at once."""
        first = writes[0]
        assert first.history is not None
        changes = recorded_changes.small(self._storage, first.plan.relation, first.history, [write.write for write in writes])
        return None if changes is None else self._judged(changes, first, entries)

    def _judged(self, changes: DecodedChanges, write: _Write, entries: dict[int, LogEntry]) -> list[pa.Table]:
        """Return the changes in a history that are sent, in order."""
        is_truncate = changes.op == _TRUNCATE
        places = np.flatnonzero(~is_truncate)
        tables = []
        if len(places):
            rows = changes if len(places) == len(changes) else changes.take(places, changes.op[places])
            tables += _kept(*self._reader.judge(write.plan, rows), write.plan, entries)
        if is_truncate.any() and truncated(write.plan):
            for commit, lsn in zip(*(numbers[is_truncate] for numbers in (changes.commit_lsn, changes.lsn)), strict=True):
                truncate = replace(write, entry=entries[int(commit)], write=replace(write.write, lsn=Lsn(int(lsn))))
                tables.append(_truncate(truncate))
            tables = [pa.concat_tables(tables).sort_by([("_lsn", "ascending"), ("_seq", "ascending")])]
        return tables


_WANTED = StreamOptions()
_TRUNCATE = ord("T")


def definition(columns: Sequence[Column]) -> Definition:
    """Return the properties that the columns of two parts must share to be in one range."""
    return tuple((column.name, column.type_oid, column.typmod) for column in columns)


def schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of a range whose table has these columns."""
    row = [pa.field(column.name, arrow_type(column.type_oid, column.typmod)) for column in columns]
    return schema_of(row)


def _kept(changes: DecodedChanges, letters: npt.NDArray[np.uint8], plan: Published, entries: dict[int, LogEntry]) -> list[pa.Table]:
    places = np.flatnonzero(letters)
    return [_table(changes.take(places, letters[places]), plan, entries)] if len(places) else []


def _table(changes: DecodedChanges, plan: Published, entries: dict[int, LogEntry], *, copied: bool = False) -> pa.Table:
    """Return changes, all of which are sent, as rows of the range. `entries`: by the commit LSN of their write."""
    count = len(changes)
    commits = np.array(sorted(entries), np.int64)
    index = np.searchsorted(commits, changes.table["commit_lsn"].to_numpy())
    commit_entries = [entries[int(commit)] for commit in commits]
    operation = pa.array(["R"] * count, pa.string()) if copied else buffers.whole(changes.table["op"])
    if copied:
        xid, time = pa.nulls(count, pa.int64()), pa.nulls(count, pa.timestamp("us", "UTC"))
    else:
        xid = pa.array(np.array([entry.xid for entry in commit_entries], np.int64)[index])
        time = pa.array(np.array([entry.commit_time for entry in commit_entries], np.int64)[index] + POSTGRES_EPOCH * 1_000_000)
    lsn = pa.array(np.array([int(entry.commit_lsn) for entry in commit_entries], np.int64)[index])
    origin = pa.array([entry.origin for entry in commit_entries], pa.string()).take(pa.array(index))
    values, old = _values(changes, plan)
    arrow_schema = schema(plan.sent_columns)
    return pa.Table.from_arrays(
        [operation, lsn, pa.array(changes.lsn), xid, time.cast(HEAD[4][1]), origin, *values, old], schema=arrow_schema
    )


def _values(changes: DecodedChanges, plan: Published) -> tuple[list[pa.Array], pa.StructArray]:
    """Return the columns and the old rows. For a DELETE the columns are those of the old row that the replica identity provides."""
    deleted = changes.op == DELETE
    has_old, identity = with_old_row(changes, plan), identity_columns(plan.relation)
    values, old = [], []
    for column in plan.sent_columns:
        kind = arrow_type(column.type_oid, column.typmod)
        own_column = plan.relation.column(column.name)
        if own_column is None:
            values.append(pa.nulls(len(changes), kind))
            old.append(values[-1])
            continue
        if not has_old.any() or (identity is not None and own_column.attnum not in identity):
            old_values = pa.nulls(len(changes), kind)
        else:
            old_values = buffers.field(changes.old, own_column.name)
        new_values = old_values if deleted.all() and len(deleted) else buffers.field(changes.new, own_column.name)
        values.append(pc.if_else(pa.array(deleted), old_values, new_values) if deleted.any() and not deleted.all() else new_values)
        old.append(old_values)
    fields = [pa.field(column.name, arrow_type(column.type_oid, column.typmod)) for column in plan.sent_columns]
    if not fields:
        return [], pa.array([None if not present else {} for present in has_old], pa.struct([]))
    return values, pa.StructArray.from_arrays(old, fields=fields, mask=pa.array(~has_old))


def _truncate(write: _Write) -> pa.Table:
    """Return a TRUNCATE as a row without values."""
    entry = write.entry
    arrow_schema = schema(write.plan.sent_columns)
    row = {
        "_op": "T", "_lsn": int(entry.commit_lsn), "_seq": int(write.write.lsn), "_xid": entry.xid,
        "_commit_time": entry.commit_time + POSTGRES_EPOCH * 1_000_000, "_origin": entry.origin,
    }  # fmt: skip
    return pa.table([pa.array([row.get(field.name)], field.type) for field in arrow_schema], schema=arrow_schema)
