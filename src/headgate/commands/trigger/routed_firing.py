"""Fire the triggers of a partitioned table's partitions.

`statement` creates a `RoutedFiring` instead of a `Firing` if the table is partitioned. The triggers of all partitions fire in the order of
the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.commands.disclosure import RowShown, whole_row
from headgate.commands.session import Session
from headgate.commands.trigger.access import all_used, are_independent
from headgate.commands.trigger.firing import EVENTS, Firing, References, Write, emptied, failing_at, flat, written_before_reads
from headgate.commands.trigger.own_change import OwnChanges
from headgate.errors import PostgresError
from headgate.plpgsql.scope import Row
from headgate.storage.partitioned import Places, of_leaf, of_root
from headgate.storage.transaction.partitioned_table import PartitionedTable
from headgate.types import buffers


class RoutedFiring:
    """The triggers of a partitioned table's partitions that fire in a session. Rows have the columns of the partitioned table.

    An UPDATE that moves a row to another partition fires UPDATE triggers before the change. The move itself is a DELETE from the old
    partition and an INSERT into the new one.
    """

    def __init__(
        self, session: Session, table: PartitionedTable, *, collects: bool = False,
        references: Callable[[Relation], References | None] = lambda _: None, shown: Callable[[Relation], RowShown] = whole_row,
    ) -> None:  # fmt: skip
        """Load the triggers. `collects`, `references`: see `Firing`. `shown`: the columns of a row that the DETAIL of an error shows."""
        self.session, self.table, self._shown = session, table, shown
        self.lost: list[pa.Table] = []
        """The changes of rows that have left their partition, but whose BEFORE INSERT trigger has skipped them. `new` is NULL."""
        self.root = Firing(session, table.root, collects=collects)
        self._leaves = [Firing(session, leaf, references=references(leaf)) for leaf in table.leaves]

    @property
    def fires(self) -> bool:
        """Return whether any trigger fires."""
        return self.root.fires or any(leaf.fires for leaf in self._leaves)

    def is_independent(self, event: int) -> bool:
        """See `Firing`. An UPDATE can also fire the triggers of DELETE and INSERT."""
        events = EVENTS if event == triggers.UPDATE else (event,)
        return are_independent([leaf.accessed(leaf_event) for leaf in self._leaves if leaf.fires for leaf_event in events])

    def used(self) -> set[int] | None:
        return all_used([leaf.accessed(event) for leaf in self._leaves if leaf.fires for event in EVENTS])

    def fires_before(self, event: int) -> bool:
        return any(leaf.fires_before(event) for leaf in self._leaves)

    def has_rows(self, event: int) -> bool:
        events = EVENTS if event == triggers.UPDATE else (event,)
        return self.collects(event) or any(leaf.has_rows(leaf_event) for leaf in self._leaves for leaf_event in events)

    def collects(self, event: int) -> bool:
        """See `Firing`. Only the partitioned table that the statement names has transition tables."""
        return self.root.collects(event)

    def statement(self, event: int, *, before: bool, columns: set[str] | None = None) -> None:
        """Fire statement triggers of the partitioned table itself."""
        self.root.statement(event, before=before, columns=columns)

    def close(self) -> None:
        self.root.close()

    def settle(self) -> None:
        self.root.settle()

    def committed(self) -> None:
        self.root.committed()

    def before_insert(self, rows: pa.Table, write: Write | None = None) -> tuple[pa.Table, list[int]]:
        """See `Firing`. The triggers of all partitions fire in the order of the rows."""
        places = self._places(rows)
        records = self._records(rows, places, triggers.INSERT)
        places_left, changed_rows = list[int](), dict[int, Row]()

        def rows_at(at: Sequence[int]) -> pa.Table:
            return self._rewritten(rows, places, changed_rows).take(pa.array(at, pa.int64()))

        with written_before_reads(self.session, self.table.root, write, lambda: rows_at(emptied(places_left))):
            for place in range(rows.num_rows):
                record = records.get(place)
                if record is not None:
                    leaf = self._leaves[places[place]]
                    with failing_at(place):
                        passed = leaf.through(leaf.of(triggers.INSERT, row=True, before=True), triggers.INSERT, None, record)
                        if passed is not None and passed.fields != record.fields:
                            self._refuse_outside(leaf, passed)
                    if passed is None:
                        continue
                    changed_rows[place] = passed
                places_left.append(place)
        return rows_at(places_left), places_left

    def _refuse_outside(self, leaf: Firing, changed_row: Row) -> None:
        """Raise 23514 if a trigger has moved a row out of its partition."""
        if leaf.fence.first_outside(leaf.calls.table_of([changed_row])) is None:
            return
        rows = of_root(self.table.root, leaf.calls.table_of([changed_row]))
        raise PostgresError(
            "23514", f'new row for relation "{leaf.relation.name}" violates partition constraint',
            detail=self._shown(self.table.root).row_detail(rows, 0, self.session.context.forms),
            schema=leaf.relation.schema, table=leaf.relation.name,
        )  # fmt: skip

    def before_update(self, changed: pa.Table, columns: set[str] | None, write: Write | None = None) -> pa.Table:
        if not changed.num_rows:
            return changed
        old, new = flat(changed["old"], self.table.root), flat(changed["new"], self.table.root)
        leaf_of_row = self._places(old)
        before, after = self._records(old, leaf_of_row, triggers.UPDATE, columns), self._records(new, leaf_of_row, triggers.UPDATE, columns)
        places, changed_rows = list[int](), dict[int, Row]()

        def remaining() -> pa.Table:
            here, at = leaf_of_row[places], pa.array(emptied(places), pa.int64())
            return self._moved(changed.take(at), self._rewritten(new, leaf_of_row, changed_rows).take(at), here)

        own_changes = [OwnChanges(self.session, leaf.relation, changed) for leaf in self._leaves]
        with written_before_reads(self.session, self.table.root, write, remaining):
            for place in range(changed.num_rows):
                if place in before:
                    leaf, own = self._leaves[leaf_of_row[place]], own_changes[leaf_of_row[place]]
                    own.refuse(place, "updated")
                    fired = leaf.of(triggers.UPDATE, row=True, before=True, columns=columns)
                    record = leaf.through(fired, triggers.UPDATE, before[place], after[place])
                    if record is None:
                        continue
                    own.refuse(place, "updated")
                    changed_rows[place] = record
                places.append(place)
        return remaining()

    def _moved(self, changed: pa.Table, new: pa.Table, here: Places) -> pa.Table:
        """Return the changes with their new rows, after the BEFORE triggers of rows that move to another partition."""
        moves = np.flatnonzero(self._places(new) != here)
        is_included = np.ones(changed.num_rows, np.bool_)
        if len(moves):
            old = flat(changed["old"].take(pa.array(moves)), self.table.root)
            deleted = self.before_delete(pa.table({"old": old.to_struct_array(), "place": pa.array(moves)}))["place"].to_numpy()
            is_included[np.setdiff1d(moves, deleted)] = False
            arriving, passed = self.before_insert(new.take(pa.array(deleted)))
            lost = np.delete(deleted, passed)
            is_included[lost] = False
            if len(lost):
                no_rows = pa.nulls(len(lost), changed.schema.field("new").type)
                self.lost.append(changed.take(pa.array(lost)).set_column(changed.column_names.index("new"), "new", no_rows))
            order = np.arange(new.num_rows)
            order[deleted[passed]] = new.num_rows + np.arange(len(passed))
            new = pa.concat_tables([new, arriving]).take(pa.array(order))
        whole = buffers.whole(new.to_struct_array())
        changed = changed.set_column(changed.column_names.index("new"), "new", whole)
        return changed.filter(pa.array(is_included))

    def before_delete(self, changed: pa.Table, write: Write | None = None) -> pa.Table:
        if not changed.num_rows:
            return changed
        old = flat(changed["old"], self.table.root)
        places = self._places(old)
        records = self._records(old, places, triggers.DELETE)
        places_left = list[int]()

        def remaining() -> pa.Table:
            return changed.take(pa.array(emptied(places_left), pa.int64()))

        own_changes = [OwnChanges(self.session, leaf.relation, changed) for leaf in self._leaves]
        with written_before_reads(self.session, self.table.root, write, remaining):
            for place in range(changed.num_rows):
                record, leaf, own = records.get(place), self._leaves[places[place]], own_changes[places[place]]
                if record is not None:
                    own.refuse(place, "updated")
                    if leaf.through(leaf.of(triggers.DELETE, row=True, before=True), triggers.DELETE, record, None) is None:
                        continue
                    own.refuse(place, "deleted")
                places_left.append(place)
        return remaining()

    def after(self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None) -> list[Callable[[], None]]:
        """See `Firing`: the AFTER triggers of all partitions in the order of the rows."""
        self.root.collect(event, old, new)
        calls_by_place: list[tuple[tuple[int, bool], Callable[[], None]]] = []
        old_leaf = None if old is None else self._places(old)
        new_leaf = None if new is None else self._places(new)
        for number, leaf in enumerate(self._leaves):
            if not leaf.fires:
                continue
            leaving = np.empty(0, np.int64) if old_leaf is None else np.flatnonzero(old_leaf == number)
            arriving = np.empty(0, np.int64) if new_leaf is None else np.flatnonzero(new_leaf == number)
            staying = np.intersect1d(leaving, arriving)
            moved, moves = np.setdiff1d(leaving, staying), np.setdiff1d(arriving, staying)
            for kind, at in ((triggers.UPDATE, staying), (triggers.DELETE, moved), (triggers.INSERT, moves)):
                if not len(at):
                    continue
                sides = [None if rows is None else of_leaf(leaf.relation, rows.take(pa.array(at))) for rows in (old, new)]
                before, after = (sides[0] if kind != triggers.INSERT else None), (sides[1] if kind != triggers.DELETE else None)
                calls = leaf.after_each(kind, before, after, columns)
                # for a row that moves, DELETE fires first
                calls_by_place += [
                    ((place, kind == triggers.INSERT), fire) for place, fire in zip(at.tolist() if calls else [], calls, strict=True)
                ]
        return [fire for _, fire in sorted(calls_by_place, key=lambda entry: entry[0])]

    def _places(self, rows: pa.Table) -> Places:
        """Return the number of the leaf of each row, or NOWHERE for a row without a partition, whose write then fails."""
        router = self.table.router
        return np.asarray(router.route({name: buffers.whole(rows[name]) for name in router.key_names()}, rows.num_rows)[0])

    def _records(self, rows: pa.Table, places: Places, event: int, columns: set[str] | None = None) -> dict[int, Row]:
        """Return the rows for which BEFORE triggers fire, as records of their leaves, by place."""
        records: dict[int, Row] = {}
        for number, leaf in enumerate(self._leaves):
            at = np.flatnonzero(places == number)
            if len(at) and leaf.of(event, row=True, before=True, columns=columns):
                records.update(zip(at.tolist(), leaf.calls.rows_of(of_leaf(leaf.relation, rows.take(pa.array(at)))), strict=True))
        return records

    def _rewritten(self, rows: pa.Table, places: Places, new_rows: dict[int, Row]) -> pa.Table:
        """Return the rows, with the rows that triggers have changed replaced."""
        if not new_rows:
            return rows
        order, parts, count = np.arange(rows.num_rows), [rows.select([column.name for column in self.table.root.columns])], rows.num_rows
        for number, leaf in enumerate(self._leaves):
            at = [place for place in new_rows if places[place] == number]
            if at:
                parts.append(of_root(self.table.root, leaf.calls.table_of([new_rows[place] for place in at])))
                order[at] = count + np.arange(len(at))
                count += len(at)
        return pa.concat_tables(parts).take(pa.array(order))
