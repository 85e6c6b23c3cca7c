"""Fire the triggers of a table: row triggers over Arrow tables of rows, statement triggers once per statement (manual, 39.1).

`statement` calls it for the statements of clients, and `commands.subscription.applied_triggers` for applied changes. `RoutedFiring` does
the same for partitioned tables. `access` determines whether the triggers can fire for all rows at once (`batch`). `call` calls one trigger.

    session_replication_role   fire
    origin, local              triggers that are O (default) and A (ALWAYS)
    replica                    triggers that are R (REPLICA) and A (ALWAYS)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headgate.catalog.function import UserFunction
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import stored_expression
from headgate.commands.deferral import Deferrable
from headgate.commands.function.host import SessionHost
from headgate.commands.function.simple_expression import Column
from headgate.commands.query import rendering
from headgate.commands.session import Session
from headgate.commands.transaction.subtransaction import undone
from headgate.commands.transition_table import TransitionTable
from headgate.commands.trigger.access import Access, TriggerAccess, all_used, are_independent, firing_in
from headgate.commands.trigger.batch import BatchCall, Gathered, RowByRowError, RowNumbers
from headgate.commands.trigger.call import TriggerCalls
from headgate.commands.trigger.own_change import OwnChanges
from headgate.errors import PostgresError
from headgate.plpgsql.scope import Row, Scope, Value
from headgate.storage.partitioned import Fence
from headgate.storage.transaction.transaction_catalog import StaleDefinitionError
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry
from headgate.types.storage import NO_COLUMN

EVENTS = (triggers.INSERT, triggers.UPDATE, triggers.DELETE)
Write: TypeAlias = Callable[[pa.Table], None]
"""Writes rows, or changes of rows, that have passed the BEFORE triggers."""
T = TypeVar("T")

FEWEST_TOGETHER = 8
"""Minimum number of rows for which a function is called once for all rows."""
_PASSED_ON = ("40", "53", "57", "58")
"""SQLSTATE classes of errors that are not caused by a row. They are raised without calling the function again for each row."""


@dataclass(frozen=True)
class _Together:
    """The result of calling the functions of triggers once for many rows."""

    kept: RowNumbers
    """The numbers of the rows that no trigger skips."""
    new: pa.Table | None
    inserts: list[tuple[UserFunction, Gathered]]


class References(Protocol):
    """The foreign keys of a table that are checked like AFTER triggers. Only workers that apply changes have them (`applied_triggers`)."""

    def accessed(self, event: int) -> Access | None: ...

    def checks(self, event: int, old: pa.Table | None, new: pa.Table | None) -> list[Callable[[], None]]:
        """Return the functions to call after the rows are written."""


class Firing:
    """The triggers of a table that fire in a session."""

    def __init__(self, session: Session, relation: Relation, *, collects: bool = False, references: References | None = None) -> None:
        """Load the triggers. With `collects`, the object serves one statement and keeps the rows of transition tables."""
        self.session, self.relation, self._references = session, relation, references
        self._triggers = firing_in(session, relation)
        self.calls = TriggerCalls(session, relation)
        self._access = TriggerAccess(self.calls)
        self._fence: Fence | None = None
        self._collects = collects
        self._transitions: dict[tuple[int, str], TransitionTable] = {}

    def of(self, event: int, *, row: bool, before: bool, columns: set[str] | None = None) -> list[Trigger]:
        """Return the triggers of an event. `columns`: the columns that an UPDATE sets, None for all."""
        return [
            trigger for trigger in self._triggers
            if trigger.kind & event and trigger.is_row == row and trigger.is_before == before and not trigger.kind & triggers.INSTEAD
            and self._is_of(trigger, columns)
        ]  # fmt: skip

    def _is_of(self, trigger: Trigger, columns: set[str] | None) -> bool:
        if not trigger.columns or columns is None:
            return True
        return any(column.name in columns or self._is_computed(column, columns) for column in self.relation.columns_at(trigger.columns))

    def _is_computed(self, column: TableColumn, columns: set[str]) -> bool:
        """Return whether an UPDATE of columns computes a generated column: if it depends on them, or BEFORE triggers may change others."""
        if column.generated is None:
            return False
        relation, cursor = self.relation, self.session.begin_statement().cursor
        before = triggers.ROW | triggers.BEFORE | triggers.UPDATE
        if any(trigger.kind & before == before for trigger in triggers.of_relation(cursor, relation.database, relation.oid)):
            return True
        return bool(columns & stored_expression.columns_of(column.generated, relation))

    def fires_instead(self, event: int) -> bool:
        """Return whether an INSTEAD OF trigger fires. Without one, the rows of a view cannot be changed."""
        return bool(self._instead_of(event))

    def _instead_of(self, event: int) -> list[Trigger]:
        return [trigger for trigger in self._triggers if trigger.kind & triggers.INSTEAD and trigger.kind & event]

    def is_independent(self, event: int) -> bool:
        """Return whether the row triggers of an event would do the same if the event's earlier rows were not yet written."""
        return are_independent([self.accessed(event)])

    def accessed(self, event: int) -> Access | None:
        """Return the tables that the row triggers of an event use, or None if they are unknown."""
        access = self._access.of_event(self._triggers, event)
        if self._references is None or access is None:
            return access
        checked = self._references.accessed(event)
        return None if checked is None or access.changed & checked.all else access | checked

    def used(self) -> set[int] | None:
        """Return the tables that the row triggers read or change, or None if they may be any tables."""
        return all_used([self.accessed(event) for event in EVENTS])

    @property
    def fires(self) -> bool:
        """Return whether any trigger fires."""
        return bool(self._triggers) or self._references is not None

    def fires_before(self, event: int) -> bool:
        """Return whether BEFORE triggers fire for each row of an event."""
        return bool(self.of(event, row=True, before=True))

    def has_rows(self, event: int) -> bool:
        """Return whether triggers fire for each row of an event, or need its rows in a transition table."""
        return self.collects(event) or any(trigger.kind & event and trigger.is_row for trigger in self._triggers)

    def collects(self, event: int) -> bool:
        """Return whether the rows of an event are kept in transition tables, or checks must wait for all rows."""
        if not self._collects:
            return False
        if self._references is not None and self._references.accessed(event) is None:
            return True
        return any(trigger.kind & event and trigger.has_transition_tables for trigger in self._triggers)

    def collect(self, event: int, old: pa.Table | None, new: pa.Table | None) -> None:
        """Add changed rows to the transition tables of an event."""
        collecting = [trigger for trigger in self._triggers if self._collects and trigger.kind & event]
        if old is not None and any(trigger.old_table for trigger in collecting):
            self._transition(event, "old").add(old)
        if new is not None and any(trigger.new_table for trigger in collecting):
            self._transition(event, "new").add(new)

    def _transition(self, event: int, side: str) -> TransitionTable:
        if (event, side) not in self._transitions:
            self._transitions[event, side] = TransitionTable(self.relation, rendering.kept(self.session))
        return self._transitions[event, side]

    def close(self) -> None:
        """End the statement and remove the rows of transition tables."""
        for table in self._transitions.values():
            table.close()

    def _tables(self, trigger: Trigger, event: int) -> dict[str, TransitionTable]:
        """Return the transition tables of a trigger by name, or none for a change that a replication worker applies."""
        if not self._collects:
            return {}
        names = (("old", trigger.old_table), ("new", trigger.new_table))
        return {name: self._transition(event, side) for side, name in names if name is not None}

    # ---- rows ---------------------------------------------------------------------------------------------

    def before_insert(self, rows: pa.Table, write: Write | None = None) -> tuple[pa.Table, list[int]]:
        """Return the rows as BEFORE INSERT triggers change them, and the numbers of the original rows, because a trigger may skip a row.

        With `write`, a trigger that reads the table sees the rows before its own: they are written then, and not returned.
        """
        fired = self.of(triggers.INSERT, row=True, before=True)
        if not fired or not rows.num_rows:
            return rows, list(range(rows.num_rows))
        result = self._together(fired, triggers.INSERT, None, rows)
        if result is not None and result.new is not None and self._written(result.inserts):
            return result.new.take(pa.array(result.kept)), result.kept.tolist()
        places, changed_rows = list[int](), list[Row]()

        def taken() -> pa.Table:
            places.clear()
            return self.calls.table_of(emptied(changed_rows))

        with written_before_reads(self.session, self.relation, write, taken):
            for place, new in enumerate(self.calls.rows_of(rows)):
                with failing_at(place):
                    row = self.through(fired, triggers.INSERT, None, new)
                if row is not None:
                    places.append(place)
                    changed_rows.append(row)
        return self.calls.table_of(changed_rows), places

    def instead(self, event: int, old: pa.Table | None, new: pa.Table | None) -> tuple[pa.Table, list[int]]:
        """Call the INSTEAD OF triggers of a view for each row. Return the rows that they return, and the numbers of the original rows.

        A deleted row is returned unchanged. Rows that a trigger skips are not returned.
        """
        fired, count = self._instead_of(event), _count(old, new)
        olds: Sequence[Row | None] = [None] * count if old is None else self.calls.rows_of(old)
        news: Sequence[Row | None] = [None] * count if new is None else self.calls.rows_of(new)
        returned_rows, places = list[Row](), list[int]()
        for place, (before, after) in enumerate(zip(olds, news, strict=True)):
            with failing_at(place):
                row = self.through(fired, event, before, after)
            if row is not None:
                returned_rows.append(before if after is None and before is not None else row)
                places.append(place)
        return self.calls.table_of(returned_rows), places

    def before_update(self, changed: pa.Table, columns: set[str] | None, write: Write | None = None) -> pa.Table:
        """Return the changes (`old`, `new`, …) as BEFORE UPDATE triggers change them, without the rows that they skip.

        `write`: see `before_insert`.
        """
        fired = self.of(triggers.UPDATE, row=True, before=True, columns=columns)
        if not fired or not changed.num_rows:
            return changed
        old_rows, new_rows = flat(changed["old"], self.relation), flat(changed["new"], self.relation)
        result = self._together(fired, triggers.UPDATE, old_rows, new_rows)
        if result is not None and result.new is not None and self._written(result.inserts):
            made_rows = buffers.whole(result.new.to_struct_array())
            return changed.set_column(changed.column_names.index("new"), "new", made_rows).take(pa.array(result.kept))
        places, new_versions = list[int](), list[Row]()
        olds, news = self.calls.rows_of(old_rows), self.calls.rows_of(new_rows)

        def remaining() -> pa.Table:
            rows = changed.take(pa.array(emptied(places), pa.int64()))
            versions = buffers.whole(self.calls.table_of(emptied(new_versions)).to_struct_array())
            return rows.set_column(rows.column_names.index("new"), "new", versions)

        own_changes = OwnChanges(self.session, self.relation, changed)
        with written_before_reads(self.session, self.relation, write, remaining):
            for place, (old, new) in enumerate(zip(olds, news, strict=True)):
                own_changes.refuse(place, "updated")
                row = self.through(fired, triggers.UPDATE, old, new)
                if row is not None:
                    own_changes.refuse(place, "updated")
                    places.append(place)
                    new_versions.append(row)
        return remaining()

    def before_delete(self, changed: pa.Table, write: Write | None = None) -> pa.Table:
        """Return the changes without the rows that BEFORE DELETE triggers skip. `write`: see `before_insert`."""
        fired = self.of(triggers.DELETE, row=True, before=True)
        if not fired or not changed.num_rows:
            return changed
        old_rows = flat(changed["old"], self.relation)
        result = self._together(fired, triggers.DELETE, old_rows, None)
        if result is not None and self._written(result.inserts):
            return changed.take(pa.array(result.kept))
        places = list[int]()

        def remaining() -> pa.Table:
            return changed.take(pa.array(emptied(places), pa.int64()))

        own_changes = OwnChanges(self.session, self.relation, changed)
        with written_before_reads(self.session, self.relation, write, remaining):
            for place, old in enumerate(self.calls.rows_of(old_rows)):
                own_changes.refuse(place, "updated")
                if self.through(fired, triggers.DELETE, old, None) is not None:
                    own_changes.refuse(place, "deleted")
                    places.append(place)
        return remaining()

    def after(self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None) -> list[Callable[[], None]]:
        """Return the calls of AFTER triggers to make after the statement has written all its rows: one for all rows, or one per row."""
        self.collect(event, old, new)
        checks = self._references.checks(event, old, new) if self._references is not None and _count(old, new) else []
        return checks + self._after(event, old, new, columns)

    def _after(self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None) -> list[Callable[[], None]]:
        fired = self.of(event, row=True, before=False, columns=columns)
        if not fired or not all(self._access.reads_rows_only(trigger) and not trigger.deferrable for trigger in fired):
            return self._after_each(event, old, new, columns)
        depth = self.session.context.trigger_depth  # WHEN is evaluated now

        def fire() -> None:
            result = self._together(fired, event, old, new, depth)
            if result is None or not self._written(result.inserts):
                with self.session.context.at_trigger_depth(depth):
                    calls = self._after_each(event, old, new, columns)
                for fire_row in calls:
                    fire_row()

        return [fire]

    def after_each(
        self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None
    ) -> list[Callable[[], None]]:
        """Return the calls of the AFTER triggers, one for each row."""
        references = self._references
        calls = self._after_each(event, old, new, columns)
        if references is None:
            return calls

        def check(place: int) -> None:
            sides = [None if rows is None else rows.slice(place, 1) for rows in (old, new)]
            for call in (*references.checks(event, *sides), *calls[place : place + 1]):
                call()

        return [functools.partial(check, place) for place in range(_count(old, new))]

    def _after_each(
        self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None
    ) -> list[Callable[[], None]]:
        """See `after_each`. The WHEN conditions are evaluated here, before any trigger fires."""
        fired = self.of(event, row=True, before=False, columns=columns)
        if not fired:
            return []
        count = _count(old, new)
        olds: Sequence[Row | None] = [None] * count if old is None else self.calls.rows_of(old)
        news: Sequence[Row | None] = [None] * count if new is None else self.calls.rows_of(new)

        def fire(met: Sequence[Trigger], before: Row | None, after: Row | None) -> None:
            for trigger in met:
                self._call_after(trigger, event, before, after)

        return [
            functools.partial(fire, [trigger for trigger in fired if self.calls.is_met(trigger, before, after)], before, after)
            for before, after in zip(olds, news, strict=True)
        ]

    def _call_after(self, trigger: Trigger, event: int, old: Row | None, new: Row | None) -> None:
        """Call an AFTER trigger's function, or register the call for the end of the transaction if the trigger is deferred."""
        session, relation = self.session, self.relation
        constraint = Deferrable(trigger.oid, trigger.initially_deferred)
        if not trigger.deferrable or not session.deferral.deferred(constraint):
            self._call(trigger, event, old, new)
            return

        def call_later() -> None:
            cursor = session.begin_statement().cursor
            if any(table_trigger.oid == trigger.oid for table_trigger in triggers.of_relation(cursor, relation.database, relation.oid)):
                TriggerCalls(session, relation).call(trigger, event, old, new)  # a new object, because the function may have been replaced

        session.deferral.put_off(constraint, relation.oid, call_later)

    def settle(self) -> None:
        """Call the functions of deferred triggers, at the end of a replication worker's transaction."""
        self.session.deferral.finish()

    def committed(self) -> None:
        """Send the notifications of the functions, after a replication worker's transaction has committed."""
        if self.session.pending:
            self.session.parts.announce(self.session.context.database, self.session.pending)

    def statement(self, event: int, *, before: bool, columns: set[str] | None = None) -> None:
        """Fire the statement triggers of an event."""
        for trigger in self.of(event, row=False, before=before, columns=columns):
            if self.calls.is_met(trigger, None, None):
                self._call(trigger, event, None, None)

    def through(self, fired: Sequence[Trigger], event: int, old: Row | None, new: Row | None) -> Row | None:
        """Return the row after all BEFORE triggers, or None if one of them skips it. Raise 0A000 if it moves to another partition."""
        row = old if new is None else new
        for trigger in fired:
            if self.calls.is_met(trigger, old, new):
                row = self._call(trigger, event, old, new)
                if row is None:
                    return None
                is_remade = trigger.parent and event == triggers.INSERT and new is not None and row.fields != new.fields
                if is_remade and self._is_outside(self.calls.table_of([row])):
                    raise self._moved(trigger)
                new = new if new is None else row
        return row

    def _call(self, trigger: Trigger, event: int, old: Row | None, new: Row | None) -> Row | None:
        return self.calls.call(trigger, event, old, new, self._tables(trigger, event))

    @property
    def fence(self) -> Fence:
        """The bounds of the table if it is a partition."""
        if self._fence is None:
            self._fence = Fence(self.session.begin_statement().cursor, self.relation)
        return self._fence

    def _is_outside(self, rows: pa.Table) -> bool:
        """Return whether one of the rows that a cloned trigger has changed belongs to another partition."""
        return self.fence.first_outside(rows) is not None

    def _moved(self, trigger: Trigger) -> PostgresError:
        table = f"{self.relation.schema}.{self.relation.name}"
        return PostgresError(
            "0A000", "moving row to another partition during a BEFORE FOR EACH ROW trigger is not supported",
            detail=f'Before executing trigger "{trigger.name}", the row was to be in partition "{table}".',
        )  # fmt: skip

    # ---- all rows at once ---------------------------------------------------------------------------------

    def _together(
        self, fired: Sequence[Trigger], event: int, old: pa.Table | None, new: pa.Table | None, depth: int | None = None
    ) -> _Together | None:
        """Call the functions of triggers once for all rows, without writing. Return None if they must be called for each row.

        `depth`: the pg_trigger_depth() of WHEN conditions, if it is not the current one.
        """
        count = _count(old, new)
        if count < FEWEST_TOGETHER or not all(self._access.reads_rows_only(trigger) for trigger in fired):
            return None
        row_numbers, inserts = np.arange(count), list[tuple[UserFunction, Gathered]]()
        try:
            for trigger in fired:
                batch, scope = self._batch(trigger, event, old, new, row_numbers, depth)
                row_numbers = row_numbers[batch.kept[row_numbers]]
                inserts += [(self.calls.function(trigger)[0], insert) for insert in batch.inserts]
                if trigger.is_before and new is not None:
                    variable, schema = scope.names["new"], arrow_row(self.relation)
                    new = pa.table([batch.column(variable, field.name).cast(field.type) for field in schema], schema=schema)
                    if trigger.parent and event == triggers.INSERT and self._is_outside(new):
                        return None  # the call for the row that moves raises the error with its detail
        except RowByRowError:
            return None
        return _Together(row_numbers, new, inserts)

    def _batch(
        self, trigger: Trigger, event: int, old: pa.Table | None, new: pa.Table | None, places: RowNumbers, depth: int | None
    ) -> tuple[BatchCall, Scope]:
        """Call a trigger's function for those of the rows `places` that meet its WHEN condition."""
        function, function_body, _ = self.calls.function(trigger)
        kinds = {column.name: stored_expression.type_of(column) for column in self.relation.columns}
        nulls = Row({name: Value(kind, None) for name, kind in kinds.items()}, self.calls.row_type)
        scope = self.calls.scope(trigger, event, function, nulls, nulls)
        count = _count(old, new)
        calls = [BatchCall(SessionHost(self.session, prepared), scope, count) for prepared in (self.calls.prepared, function_body.prepared)]
        unset = self.calls.unset(trigger, event, function)
        for (name, rows), batch in itertools.product((("old", old), ("new", new)), calls):
            for column, kind in kinds.items():
                is_null = rows is None or (name == "new" and column in unset)
                values = Value(kind, None) if is_null else Column(kind, buffers.whole(rows[column]))
                batch.give(scope.names[name], column, values)
        row_numbers = places
        if trigger.condition is not None:
            with registry.unguarded(), self.session.context.at_trigger_depth(depth):
                row_numbers = calls[0].met(self.calls.condition(trigger), places)
        returns = "" if not trigger.is_before else "old" if event == triggers.DELETE else "new"
        with self.calls.inside(function):
            calls[1].run(function_body.function, returns, row_numbers)
        return calls[1], scope

    def _written(self, inserts: Sequence[tuple[UserFunction, Gathered]]) -> bool:
        """Write the rows that functions have inserted, together for each table. Return False, and write nothing, if that fails."""
        tables: dict[int, list[tuple[UserFunction, Gathered]]] = {}
        for function, insert in inserts:
            tables.setdefault(insert.relation.oid, []).append((function, insert))
        for table_inserts in tables.values():
            (function, first), *rest = table_inserts
            if any(next_function is not function or insert.columns.keys() != first.columns.keys() for next_function, insert in rest):
                return False
        try:
            with undone(self.session) if tables else contextlib.nullcontext():
                for table_inserts in tables.values():
                    function, first = table_inserts[0]
                    order = pa.array(np.argsort(np.concatenate([insert.at for _, insert in table_inserts]), kind="stable"))
                    parts = [pa.table({**insert.columns, NO_COLUMN: pa.nulls(len(insert.at), pa.bool_())}) for _, insert in table_inserts]
                    rows = pa.concat_tables(parts).take(order)
                    with self.calls.inside(function):
                        self.session.parts.insert_rows(first.node, self.session, rows)
        except PostgresError as error:
            if error.sqlstate.startswith(_PASSED_ON) and not isinstance(error, StaleDefinitionError):
                raise
            return False  # the call for the row that fails raises the error with its context
        return True


@contextlib.contextmanager
def failing_at(place: int) -> Iterator[None]:
    """Give an error of a trigger the number of its row."""
    try:
        yield
    except PostgresError as error:
        error.row = place
        raise


@contextlib.contextmanager
def written_before_reads(session: Session, relation: Relation, write: Write | None, taken: Callable[[], pa.Table]) -> Iterator[None]:
    """Write the rows that have passed the BEFORE triggers before a trigger of a later row reads the table.

    `taken` removes and returns these rows.
    """
    if write is None:
        yield
        return

    def write_rows() -> None:
        rows = taken()
        if rows.num_rows:
            write(rows)

    with session.begin_statement().reader.unwritten(relation, write_rows):
        yield


def emptied(items: list[T]) -> list[T]:
    """Empty a list and return its items."""
    removed = items.copy()
    items.clear()
    return removed


def flat(rows: pa.ChunkedArray, relation: Relation) -> pa.Table:
    """Return a column of rows as a table."""
    whole = buffers.whole(rows)
    return pa.table(whole.flatten(), names=[field.name for field in whole.type]) if len(whole) else arrow_row(relation).empty_table()


def _count(old: pa.Table | None, new: pa.Table | None) -> int:
    """Return the number of changed rows. `old` is None for an INSERT, `new` for a DELETE."""
    rows = new if old is None else old
    assert rows is not None
    return int(rows.num_rows)
