"""Selects the changes of a segment that are to be applied inside one transaction, as one changes frame per local table.

`apply` makes a `Batch` for each segment. Its main functions:

- `frames`: the driver reads and decodes a segment part by part, so that a transaction of any size needs only the memory of one part.
  Each table then gets a frame for each part. TRUNCATEs become frames of their own. Rows that were inserted before a
  TRUNCATE … RESTART IDENTITY are left out.
- `for_tasks`: returns what Spark tasks need to decode and apply the whole segment as one job (`changes.tasks`). Only this function decides
  which changes the driver must apply.
- `record`: writes the frames as rows into the tables' histories (`table_history`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter, abc
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation import foreign_key as foreign_keys
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_history
from headgate.changes import tasks
from headgate.changes.tasks import Job, Results, TaskLeaf, TaskTable
from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.storage.partitioned import rows_of
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.apply import decoding
from headgate.subscriber.apply.decoding import MOST_FRAME, SegmentSource, TableChanges
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.rows import conversion, leaf_constraints, partitioned, row_completion, row_triggers, table_history
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.rows.relation_map import Mapping, MissingColumnsError, local_relation, map_relation
from headgate.subscriber.rows.table_history import LackingHistoryError
from headgate.subscriber.rows.table_writer import TableRules
from headgate.subscriber.rows.updated_rows import Reads
from headgate.types import buffers
from headgate.types.buffers import Numbers
from headgate.walreceiver.segment import Segment, SegmentPart

PART_SIZE = 64 << 20
"""The number of bytes of a segment that are decoded at a time."""

Frame = tuple[Relation, tuple[int, ...] | None, pa.Table]
_Group = tuple[int, tuple[int, ...] | None]
"""A changes frame: the table (oid), and the key that finds its rows. The key of a partitioned table depends on what the publisher sends."""
Truncated = list[tuple[int, Mapping, pa.Table]]
"""The frames of TRUNCATEs, with their sequence numbers and mappings."""


class Batch:
    """One segment inside one transaction."""

    def __init__(
        self, stream: AppliedStream, transaction: Transaction, segment: Segment, session: InputSettings, rules: TableRules,
        place: ApplyPlace, *, described: abc.Mapping[int, m.Relation], numbers: abc.Mapping[m.Relation, tuple[int | None, ...]],
        keeps_history: bool, found_only: bool,
    ) -> None:  # fmt: skip
        """`described`: the publisher's Relation messages before the segment. `numbers`: the attribute numbers of followed relations.

        `place` is kept up to date for the context of errors. `keeps_history`: whether histories may be begun. `found_only`: whether the
        new rows of UPDATEs are checked later, after their rows were looked up.
        """
        self._stream, self.transaction, self.segment, self.session = stream, transaction, segment, session
        self._rules, self._place, self._described, self._numbers, self._keeps_history = rules, place, described, numbers, keeps_history
        self._found_only = found_only
        self.states = {rel.relation: rel for rel in subscriptions.tables(transaction.cursor, stream.subscription)}
        self.mappings: dict[m.Relation, Mapping] = {}
        self.restarted: dict[int, int] = {}
        """The sequence number of the last TRUNCATE … RESTART IDENTITY, by local table."""
        self.left_out: dict[int, int] = {}
        """The number of changes of tables that are not in the subscription, by relation."""
        self._histories = subscription_history.of_subscription(transaction.cursor, stream.subscription)
        self._recorded: dict[int, list[pa.Table]] = {}
        """Rows that have not been written to the tables' histories yet, by table."""
        self._in_history: dict[int, bool] = {}
        """The tables whose histories have rows of this segment, and whether each of these rows has all values of its change."""
        self.descriptions = decoding.descriptions_of(described.values(), segment)
        """The publisher's Relation messages before and in the segment."""
        self.is_cut = False
        """Whether a table may get several frames. Constraints that hold after the transaction may then not hold between two frames. Set by
        `frames`."""

    def mapping(self, remote: m.Relation) -> Mapping:
        """Return the mapping of a published relation to its local table."""
        mapping = self.mappings.get(remote)
        if mapping is None:
            self._place.relation = None
            try:
                cursor, stream = self.transaction.cursor, self._stream
                mapping = map_relation(cursor, stream.database, remote, self._names)
            except MissingColumnsError as error:
                error.remote = remote
                raise
            self.mappings[remote] = mapping
        return mapping

    def _names(self, remote: m.Relation, local: Relation) -> tuple[str | None, ...] | None:
        """Return the local columns of a relation that was followed, by the publisher's attribute numbers, or None if it was not followed.

        The name of a dropped column is None.
        """
        numbers = self._numbers.get(remote)
        if not numbers:
            return None
        columns = subscription_column.of_table(self.transaction.cursor, self._stream.subscription, local.oid)
        local_names = {column.attnum: None if column.dropped else column.name for column in columns}
        pairs = zip(numbers, remote.columns, strict=True)
        return tuple(column.name if number is None else local_names.get(number, column.name) for number, column in pairs)

    def applied_from(self, local: Relation) -> int | None:
        """Return the commit LSN from which a table's changes are applied, or None if none of the segment's are.

        Like PostgreSQL's should_apply_changes_for_rel.
        """
        first = self._stream.applied_from(local.oid, self.states.get(local.oid))
        return None if first is None or first > self.segment.transactions.commit_lsn[-1] else first

    def _local(self, remote: m.Relation) -> Relation:
        """Return the local table of a published relation. Their columns may differ as long as no change is applied."""
        return local_relation(self.transaction.cursor, self._stream.database, remote.schema, remote.name)

    @cached_property
    def _without_history(self) -> Collection[int]:
        """The tables whose history must be begun before changes are applied to them."""
        cursor = self.transaction.cursor
        subscription = subscriptions.find(cursor, self._stream.subscription) if self._keeps_history else None
        return [] if subscription is None else subscriptions.without_history(cursor, subscription)

    def history(self, local: Relation) -> Relation | None:
        """Return the history table of a table, or None if it has none.

        Raises LackingHistoryError if the history must be begun or extended first.
        """
        entry = self._histories.get(local.oid)
        if entry is None or not entry.is_begun:
            if local.oid in self._without_history:
                raise LackingHistoryError("55000", f'the history of table "{local.schema}.{local.name}" has not begun')
            return None
        history = relations.get(self.transaction.cursor, self._stream.database, entry.relation)
        if table_history.differing(local, history):
            raise LackingHistoryError(
                "55000", f'table "{history.schema}.{history.name}" does not have the columns of table "{local.schema}.{local.name}"'
            )
        return history

    def record(self, local: Relation) -> None:
        """Append the changes of a table that have been decoded since the last call to its history, if it has one."""
        recorded = self._recorded.pop(local.oid, [])
        if recorded and (history := self.history(local)) is not None:
            rows = table_history.in_order(recorded)
            self.transaction.append(history, rows)
            self.note_recorded(local.oid, is_whole=rows["_unchanged"].null_count == rows.num_rows)

    def note_recorded(self, table: int, *, is_whole: bool) -> None:
        """Note that rows were added to the history of a table (oid), and whether they have all values of their changes."""
        self._in_history[table] = self._in_history.get(table, True) and is_whole

    def mark_complete_histories(self, missing: abc.Mapping[int, int]) -> None:
        """Mark the histories whose rows are exactly the changes of their table, so that `headgate.changes` may read them instead.

        `missing`: the number of rows to change that did not exist, by table. Rows of a partitioned table would have to be divided among
        its partitions, generated columns are not recorded, and triggers can change any table.
        """
        mappings = list(self.mappings.values()) if self._in_history else []
        if any(self._rules.fired(self.transaction, mapping.local) is not None for mapping in mappings):
            return
        for table, is_whole in self._in_history.items():
            of_table = [mapping for mapping in mappings if mapping.local.oid == table]
            if is_whole and not missing.get(table) and all(_can_be_read_from_history(mapping) for mapping in of_table):
                local = of_table[0].local
                history = self.history(local)
                assert history is not None
                self.transaction.record_completely(local, history)

    def _note_truncation(self, local: Relation, frame: pa.Table) -> None:
        history = self.history(local)
        if history is not None:
            self._recorded.setdefault(local.oid, []).append(table_history.rows(local, history, frame, self.segment.transactions))

    def _is_outside(self, local: Relation) -> bool:
        """Return whether a table is not in the subscription at all, as opposed to not copied yet."""
        return self._stream.only is None and local.oid not in self.states

    def _leave_out(self, local: Relation, count: int) -> None:
        if count and self._is_outside(local):
            self.left_out[local.oid] = self.left_out.get(local.oid, 0) + count

    def frames(self) -> Generator[Frame]:
        """Decode the segment and yield the frames of its tables. They must be applied in this order."""
        self.is_cut = self.segment.size > PART_SIZE
        yield from self._decode()
        self.transaction.storage.statistics.decoded(self.segment.changes, by_spark=False)

    def _is_cut_by_sync(self) -> bool:
        """Return whether a table's changes are applied from a position inside the segment. Its columns may differ before that position."""
        ends = self.segment.transactions.commit_lsn
        first = [self._stream.applied_from(oid, state) for oid, state in self.states.items()]
        return any(ends[0] < lsn <= ends[-1] for lsn in first if lsn is not None)

    @cached_property
    def emptied(self) -> dict[int, tuple[Relation, int]]:
        """The tables to truncate before all changes, with the sequence number of their last TRUNCATE: earlier changes have no effect.

        They are truncated as one statement, because foreign keys may refer from one to another. If a table has triggers, they must see
        the tables as they were: each TRUNCATE is then applied in its place.
        """
        last = {mapping.local.oid: (mapping.local, seq) for seq, mapping, _ in self._truncated}
        tables = [*(local for local, _ in last.values()), *(self._local(remote) for remote in self._touched_relations() if last)]
        return {} if any(self._rules.fired(self.transaction, table) is not None for table in tables) else last

    @cached_property
    def _truncated(self) -> Truncated:
        return list(self.truncations(self._truncations()))

    def _decode(self) -> Iterator[Frame]:
        """Decode one part of the segment at a time, and yield the frames."""
        for part in self.segment.parts(PART_SIZE):
            decoded = decode.decode(
                *part.read(), relations=decoding.described_before(self.descriptions, part.first_seq), first_seq=part.first_seq
            )
            commit_lsn = decoding.commit_lsns(decoding.begun_before(self.segment, part), decoded.transactions)
            frames: dict[_Group, list[pa.Table]] = {}
            for changes in decoded.changes:
                frame = self._frame(changes, commit_lsn)
                if frame is not None:
                    frames.setdefault(_group_of(self.mapping(changes.relation)), []).append(frame)
            for mapping, frame in _within(part, self._truncated):
                self._note_truncation(mapping.local, frame)
                frames.setdefault(_group_of(mapping), []).append(frame)
            mappings = {_group_of(mapping): mapping for mapping in self.mappings.values()}
            whole = {group: tables[0] if len(tables) == 1 else pa.concat_tables(tables) for group, tables in frames.items()}
            for group in [group for group in whole if group[0] in self.emptied]:
                whole[group] = whole[group].filter(pc.greater(whole[group]["seq"], self.emptied[group[0]][1]))
            entangled = self._entangled_tables([mappings[group].local for group in whole])
            counts = Counter(oid for oid, _ in whole)
            in_runs = [group for group in whole if group[0] in entangled or counts[group[0]] > 1]
            self.is_cut = self.is_cut or bool(in_runs)
            runs = row_triggers.runs({group: whole.pop(group) for group in in_runs})
            for group, frame in itertools.chain(whole.items(), runs):
                yield mappings[group].local, mappings[group].key, frame

    def _entangled_tables(self, tables: Sequence[Relation]) -> set[int]:
        """Return the tables whose changes must be applied in the order of the stream, because triggers of one use another."""
        entangled, oids = set[int](), {table.oid for table in tables}
        for table in tables if len(tables) > 1 else ():
            firing = self._rules.fired(self.transaction, table)
            if firing is not None:
                used = firing.used()
                others = (oids if used is None else oids & used) - {table.oid}
                entangled |= {table.oid, *others} if others else set()
        return entangled

    def _frame(self, changes: decode.Changes, commit_lsn: Numbers) -> pa.Table | None:
        """Return the changes of one relation that are to be applied, or None if there are none.

        `commit_lsn` is as in `TableChanges.chosen`.
        """
        local = self._local(changes.relation)
        table_changes = self._changes_to_apply(local)
        if table_changes is None:
            self._leave_out(local, len(changes))
            return None
        chosen, history = table_changes.chosen(changes, commit_lsn), self.history(local)
        if not len(chosen) and history is None:
            return None
        mapping, place = self.mapping(changes.relation), self._place
        table_changes = replace(table_changes, mappings=(mapping,))
        if history is not None and table_changes.restarted >= 0:
            early = replace(table_changes, restarted=-1).chosen(changes.where(changes.seq < table_changes.restarted), commit_lsn)
            self._note(table_changes, early, table_changes.frame(early, commit_lsn, self.session, place), history)
        if not len(chosen):
            return None
        later = ("I" if self._is_filled(mapping) else "") + ("U" if self._found_only else "")
        frame = self.completed(table_changes.frame(chosen, commit_lsn, self.session, place, checked_later=later), mapping)
        if history is not None:
            self._note(table_changes, chosen, frame, history)
        return frame

    def _note(self, table_changes: TableChanges, changes: decode.Changes, frame: pa.Table, history: Relation) -> None:
        """Store rows for the history of a table until `record` writes them."""
        if len(changes):
            rows = table_changes.history(changes, frame, history, self.segment.transactions, self.session, self._place)
            self._recorded.setdefault(table_changes.mappings[0].local.oid, []).append(rows)

    def _changes_to_apply(self, local: Relation, *mappings: Mapping) -> TableChanges | None:
        first = self.applied_from(local)
        return None if first is None else TableChanges(mappings, first, self.restarted.get(local.oid, -1))

    # ---- by tasks ---------------------------------------------------------------------------------------

    def for_tasks(self) -> list[TableChanges] | None:
        """Return the changes that tasks apply, one value for each local table, or None if the driver must apply the segment.

        The driver applies the changes of tables without a key, of tables whose rows need defaults, generated columns or constraints
        (including a partition's bounds), and of partitioned tables whose leaves do not have one key with the partition columns. It also
        applies segments with changes larger than MOST_FRAME, and segments inside which the copy of a table ends, because the table's
        columns may be different before that position. If a relation cannot be mapped, the driver applies the segment, and finds out whether
        it changes the relation at all.
        """
        if self._is_cut_by_sync() or any(piece.frames and piece.lengths.max() > MOST_FRAME for piece in self.segment.pieces):
            return None
        try:
            touched = self._touched_relations()
            mappings = [self.mapping(remote) for remote in touched if self.applied_from(self._local(remote)) is not None]
            truncations, emptied = self._truncated, self.emptied
        except PostgresError:
            return None
        by_table: dict[int, list[Mapping]] = {}
        for mapping in [*mappings, *(mapping for _, mapping, _ in truncations)]:
            if mapping not in by_table.setdefault(mapping.local.oid, []):
                by_table[mapping.local.oid].append(mapping)
        if not all(self._is_for_tasks(group) for group in by_table.values()):
            return None
        self._count_left_out(touched)
        for _, mapping, frame in truncations:
            self._note_truncation(mapping.local, frame)
        table_changes = [(self._changes_to_apply(group[0].local, *group), emptied.get(oid)) for oid, group in by_table.items()]
        return [replace(table, truncated=-1 if last is None else last[1]) for table, last in table_changes if table is not None]

    def _touched_relations(self) -> list[m.Relation]:
        """Return the descriptions of the relations that are changed here."""
        known = decoding.described_before(self.descriptions, self.segment.first_seq).values()
        described = [*known, *(relation for seq, relation in self.descriptions if seq >= self.segment.first_seq)]
        return [relation for relation in dict.fromkeys(described) if relation.relation in self.segment.touched]

    def _count_left_out(self, touched: Sequence[m.Relation]) -> None:
        """Count the changes of tables outside the subscription, which tasks do not decode."""
        if not any(self._is_outside(self._local(relation)) for relation in touched):
            return
        for part in self.segment.parts(PART_SIZE):
            known = decoding.described_before(self.descriptions, part.first_seq)
            for relation, count in decode.survey(*part.read(), relations=known, first_seq=part.first_seq):
                self._leave_out(self._local(relation), count)

    def _is_for_tasks(self, mappings: list[Mapping]) -> bool:
        """Return whether tasks can apply the changes of a local table, given all mappings of its relation (`for_tasks`)."""
        local, key = mappings[0].local, mappings[0].key
        if key is None or any(conversion.frame_schema(mapping) != conversion.frame_schema(mappings[0]) for mapping in mappings):
            return False
        if any(self._is_filled(mapping) for mapping in mappings) or not Reads.of(self.transaction, local).is_empty:
            return False
        return not local.is_partitioned or partitioned.has_one_key(self.transaction.partitioned(local), key)

    def run(
        self, changes: Sequence[TableChanges], tables: Sequence[TaskTable], histories: abc.Mapping[int, Relation], description: str,
        spread: set[int],
    ) -> Results:  # fmt: skip
        """Decode and apply the segment in Spark tasks, and record it in the history tables (`histories`, by index of the table).

        `tables` belong to `changes`. Their TRUNCATEs are already staged and recorded. `spread`: the tables (oids) for which `Job.insert` is
        not tried, because it has failed before. They are added here.
        """
        storage = self.transaction.storage
        cores = storage.spark.sparkContext.defaultParallelism
        slices = decoding.slices_of(self.segment, 2 * cores)
        handed = decoding.handed_over(slices, storage.exchange) if storage.on_cluster else contextlib.nullcontext(slices)
        with handed as handed_slices:
            leaves = {number: TaskLeaf.of(self.transaction, history) for number, history in histories.items()}
            source = SegmentSource(tuple(handed_slices), self.descriptions, tuple(changes), self.session, leaves)
            numbers = storage.spark.range(0, len(handed_slices), 1, min(len(handed_slices), 2 * cores))
            beside = tuple(histories.values())
            job = Job(self.transaction, numbers, source, tuple(tables), description, self.session.types, beside)
            result = None
            if self.segment.only_inserts and all(table.can_insert and table.relation.oid not in spread for table in tables):
                result = job.insert()
                spread.update(() if result else (table.relation.oid for table in tables))
            if result is None:
                result = job.run(tasks.partitions(storage.spark, self.segment.size, self.segment.changes, tables))
        storage.statistics.decoded(self.segment.changes, by_spark=True)
        return result

    def _is_filled(self, mapping: Mapping) -> bool:
        """Return whether `row_completion` adds defaults or generated columns to a relation's rows, or checks them, or triggers fire."""
        if self._rules.rows is None:
            return False
        return row_completion.needed(mapping.local, mapping.sources) or self._rules.fired(self.transaction, mapping.local) is not None

    def completed(self, frame: pa.Table, mapping: Mapping) -> pa.Table:
        """Return the frame with the rows of its INSERTs completed and checked, if the table needs it."""
        factory, local = self._rules.rows, mapping.local
        if factory is None:
            return frame
        if self._is_filled(mapping):
            fires = self._rules.fired(self.transaction, local) is not None
            frame = row_completion.complete(frame, local, mapping.sources, self.transaction, factory, self._place, is_checked=not fires)
        if leaf_constraints.further(self.transaction, local):
            new = buffers.whole(frame["new"]).filter(pc.equal(frame["op"], "I"))
            leaf_constraints.check_rows(rows_of(new), local, self.transaction, factory)
        return frame

    def truncations(self, truncations: Iterable[decode.Truncation]) -> Iterator[tuple[int, Mapping, pa.Table]]:
        """Yield the frames of the TRUNCATEs that are to be applied, with their sequence numbers. Restart sequences for RESTART IDENTITY."""
        for truncation in truncations:
            lsn = int(self.segment.transactions.commit_lsn[truncation.txn])
            self._place.message, self._place.relation = "TRUNCATE", None
            self._check_references(truncation, lsn)
            self._place.message = "INSERT"
            for remote in truncation.relations:
                first = self.applied_from(self._local(remote))
                if first is not None and lsn >= first:
                    mapping = self.mapping(remote)
                    if truncation.message.restart_identity:
                        database, lock = self._stream.database, self.transaction.catalog.lock_object
                        sequences.restart_owned(self.transaction.cursor, database, mapping.local.oid, lock)
                        self.restarted[mapping.local.oid] = truncation.seq
                    yield truncation.seq, mapping, conversion.truncate_frame(mapping, lsn, truncation.seq)

    def _check_references(self, truncation: decode.Truncation, lsn: int) -> None:
        """Raise 0A000 if a table that is not truncated has a foreign key to one that is."""
        cursor, database = self.transaction.cursor, self._stream.database
        applied = []
        for remote in truncation.relations:
            local = self._local(remote)
            first = self.applied_from(local)
            if first is not None and lsn >= first:
                applied.append(relations.get(cursor, database, local.oid))
        foreign_keys.check_truncate(cursor, applied)

    def _truncations(self) -> Iterator[decode.Truncation]:
        known = dict(self._described)
        begins = self.segment.transactions.begin
        for seq, lsn, message in self.segment.others:
            if isinstance(message, m.Relation):
                known[message.relation] = message
            elif isinstance(message, m.Truncate):
                txn = int(np.searchsorted(begins, seq, side="right")) - 1
                yield decode.Truncation(txn, lsn, seq, message, tuple(known[oid] for oid in message.relations if oid in known))


def _group_of(mapping: Mapping) -> _Group:
    """Return the changes frame that the changes of a published relation go to."""
    return mapping.local.oid, mapping.key


def _can_be_read_from_history(mapping: Mapping) -> bool:
    """Return whether the publisher sends all columns of a table, and at least the old values that the table's replica identity has."""
    local, sent = mapping.local, mapping.remote.columns
    if local.is_partitioned or local.parent or mapping.extra or any(column.generated is not None for column in local.columns):
        return False
    identity = None if local.replica_identity == ReplicaIdentity.FULL else set(local.identity_key() or ())
    pairs = zip(local.columns, mapping.sources, strict=True)
    return all(sent[source].key for column, source in pairs if source is not None and (identity is None or column.attnum in identity))


def _within(part: SegmentPart, truncations: Truncated) -> list[tuple[Mapping, pa.Table]]:
    return [(mapping, frame) for seq, mapping, frame in truncations if part.first_seq <= seq < part.end_seq]
