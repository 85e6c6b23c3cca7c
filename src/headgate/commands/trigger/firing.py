"""Fire triggers: row triggers over Arrow tables of rows, statement triggers once per statement (manual, 39.1).

`commands.dml` calls it for changes of clients, and `commands.subscription.applied_triggers` for applied changes. `firing_of` returns the
triggers of a table that fire in a session as a `Firing`. For a partitioned table it returns a `RoutedFiring`, which fires the triggers of
each row's partition. AFTER triggers wait in the planner until the statement has written all of its rows (`statement`). A statement has one
of these objects for each table (`of_statement`), which collects the rows of transition tables.

    session_replication_role   fire
    origin, local              triggers that are O (default) and A (ALWAYS)
    replica                    triggers that are R (REPLICA) and A (ALWAYS)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headgate.catalog import function as functions
from headgate.catalog.function import UserFunction
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import lookup, stored_expression
from headgate.commands.deferral import Deferrable
from headgate.commands.function import body, call
from headgate.commands.function.host import SessionHost
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.function.simple_expression import Column
from headgate.commands.function.variable_type import row_type
from headgate.commands.query import rendering
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.commands.transaction.subtransaction import undone
from headgate.commands.transition_table import TransitionTable
from headgate.commands.trigger.batch import BatchCall, Gathered, RowByRowError, RowNumbers
from headgate.errors import PostgresError
from headgate.expression.node import TEXT, TypeRef
from headgate.plpgsql import interpreter, reach
from headgate.plpgsql.interpreter import Execution
from headgate.plpgsql.scope import Row, Scope, Value, Variable
from headgate.plpgsql.tree import Sql
from headgate.storage.partitioned import Fence, PartitionedTable, Places, of_leaf, of_root
from headgate.storage.transaction.transaction_catalog import StaleDefinitionError
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry
from headgate.types.storage import NO_COLUMN
from headgate.types.text.array import Shape, print_array
from headgate.types.text.text import read_text, write_text

_NAME, _OID, _INT = TypeRef(registry.NAME), TypeRef(registry.OID), TypeRef(registry.INT4)
_TEXTS = TypeRef(registry.TEXT_ARRAY)
_EVENTS = (triggers.INSERT, triggers.UPDATE, triggers.DELETE)
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


class Firing:
    """The triggers of a table that fire in a session."""

    def __init__(self, session: Session, relation: Relation, *, collects: bool = False) -> None:
        """Load the triggers. With `collects`, the object serves one statement and keeps the rows of transition tables."""
        self.session, self.relation = session, relation
        cursor = session.begin_statement().cursor
        role = session.settings.text("session_replication_role")
        table_triggers = triggers.of_relation(cursor, relation.database, relation.oid) if relation.has_triggers else []
        self._triggers = [trigger for trigger in table_triggers if trigger.fires(role)]
        self._row_type = row_type(session, relation) if self._triggers else 0
        self._conditions: dict[int, Sql] = {}
        self._functions: dict[int, tuple[UserFunction, body.Body, str]] = {}
        self._prepared = Prepared()
        self._fence: Fence | None = None
        self._known_tables: dict[tuple[int, bool], set[int] | None] = {}
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
        named = {column.name for number in trigger.columns if (column := self.relation.numbered(number)) is not None}
        return bool(named & columns)

    def fires_instead(self, event: int) -> bool:
        """Return whether an INSTEAD OF trigger fires. Without one, the rows of a view cannot be changed."""
        return bool(self._instead_of(event))

    def _instead_of(self, event: int) -> list[Trigger]:
        return [trigger for trigger in self._triggers if trigger.kind & triggers.INSTEAD and trigger.kind & event]

    def is_independent(self, event: int) -> bool:
        """Return whether the row triggers of an event would do the same if the event's earlier rows were not yet written."""
        return _are_independent([self.accessed(event)])

    def accessed(self, event: int) -> tuple[set[int], set[int]] | None:
        """Return the tables that the row triggers of an event read, and those into which they insert rows. Return None if unknown."""
        read, inserted = set[int](), set[int]()
        for trigger in self._triggers:
            if not trigger.kind & event or not trigger.is_row:
                continue
            tables = self._inserted(trigger)
            if tables is not None:
                inserted |= tables
            elif (tables := self._read(trigger)) is not None:
                read |= tables
            else:
                return None
        return read, inserted

    def used(self) -> set[int] | None:
        """Return the tables that the row triggers read or change, or None if they may be any tables."""
        return _used([self.accessed(event) for event in _EVENTS])

    def _reads_rows_only(self, trigger: Trigger) -> bool:
        """Return whether a trigger reads only OLD and NEW, and at most inserts rows into tables without triggers."""
        return self._inserted(trigger) is not None

    def _inserted(self, trigger: Trigger) -> set[int] | None:
        """Return the tables into which a trigger inserts rows that may be written together, or None if it does anything else."""
        return self._tables_of(trigger, reads=False)

    def _read(self, trigger: Trigger) -> set[int] | None:
        """Return the tables that a trigger reads, or None if it does anything else, or may see the rows of its own table."""
        return self._tables_of(trigger, reads=True)

    def _tables_of(self, trigger: Trigger, *, reads: bool) -> set[int] | None:
        key = trigger.oid, reads
        if key not in self._known_tables:
            self._known_tables[key] = self._found_tables(trigger, reads=reads)
        return self._known_tables[key]

    def _found_tables(self, trigger: Trigger, *, reads: bool) -> set[int] | None:
        function, function_body, _ = self._called(trigger)
        inserts = function_body.inserts
        nodes = function_body.reads if reads else None if inserts is None else [statement.relation for statement in inserts]
        if nodes is None or (trigger.condition is not None and not reach.is_plain(trigger.condition)):
            return None
        tables, is_allowed = set[int](), self._is_elsewhere if reads else self._takes_rows
        with call.acting(function, self.session) if nodes else contextlib.nullcontext():
            for node in nodes:
                target = lookup.find(self.session.begin_statement().cursor, self.session.context, node)
                if target is None or target.oid == self.relation.oid or not is_allowed(target):
                    return None
                tables.add(target.oid)
        return tables

    def _takes_rows(self, target: Relation) -> bool:
        """Return whether rows can be inserted into a table together and later, with the same result as inserting them one by one."""
        is_table = target.kind in (RelationKind.TABLE, RelationKind.PARTITIONED_TABLE)
        return is_table and firing_of(self.session, target) is None

    def _is_elsewhere(self, target: Relation) -> bool:
        """Return whether the rows of a relation do not depend on those of other tables: a plain table without policies."""
        is_plain = target.kind == RelationKind.TABLE and target.oid >= registry.FIRST_USER_OID
        return is_plain and not target.parent and not target.row_security

    @property
    def fires(self) -> bool:
        """Return whether any trigger fires."""
        return bool(self._triggers)

    def has_rows(self, event: int) -> bool:
        """Return whether triggers fire for each row of an event, or need its rows in a transition table."""
        return self.collects(event) or any(trigger.kind & event and trigger.is_row for trigger in self._triggers)

    def collects(self, event: int) -> bool:
        """Return whether the rows of an event are kept in transition tables."""
        return self._collects and any(trigger.kind & event and trigger.has_transition_tables for trigger in self._triggers)

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
            return self.table_of(_emptied(changed_rows))

        with _written_before_reads(self.session, self.relation, write, taken):
            for place, new in enumerate(self.rows_of(rows)):
                row = self.through(fired, triggers.INSERT, None, new)
                if row is not None:
                    places.append(place)
                    changed_rows.append(row)
        return self.table_of(changed_rows), places

    def instead(self, event: int, old: pa.Table | None, new: pa.Table | None) -> tuple[pa.Table, list[int]]:
        """Call the INSTEAD OF triggers of a view for each row. Return the rows that they return, and the numbers of the original rows.

        A deleted row is returned unchanged. Rows that a trigger skips are not returned.
        """
        fired, count = self._instead_of(event), _count(old, new)
        olds: Sequence[Row | None] = [None] * count if old is None else self.rows_of(old)
        news: Sequence[Row | None] = [None] * count if new is None else self.rows_of(new)
        returned_rows, places = list[Row](), list[int]()
        for place, (before, after) in enumerate(zip(olds, news, strict=True)):
            row = self.through(fired, event, before, after)
            if row is not None:
                returned_rows.append(before if after is None and before is not None else row)
                places.append(place)
        return self.table_of(returned_rows), places

    def before_update(self, changed: pa.Table, columns: set[str] | None, write: Write | None = None) -> pa.Table:
        """Return the changes (`old`, `new`, …) as BEFORE UPDATE triggers change them, without the rows that they skip.

        `write`: see `before_insert`.
        """
        fired = self.of(triggers.UPDATE, row=True, before=True, columns=columns)
        if not fired or not changed.num_rows:
            return changed
        old_rows, new_rows = _flat(changed["old"], self.relation), _flat(changed["new"], self.relation)
        result = self._together(fired, triggers.UPDATE, old_rows, new_rows)
        if result is not None and result.new is not None and self._written(result.inserts):
            made_rows = buffers.whole(result.new.to_struct_array())
            return changed.set_column(changed.column_names.index("new"), "new", made_rows).take(pa.array(result.kept))
        places, new_versions = list[int](), list[Row]()
        olds, news = self.rows_of(old_rows), self.rows_of(new_rows)

        def remaining() -> pa.Table:
            rows = changed.take(pa.array(_emptied(places), pa.int64()))
            versions = buffers.whole(self.table_of(_emptied(new_versions)).to_struct_array())
            return rows.set_column(rows.column_names.index("new"), "new", versions)

        with _written_before_reads(self.session, self.relation, write, remaining):
            for place, (old, new) in enumerate(zip(olds, news, strict=True)):
                row = self.through(fired, triggers.UPDATE, old, new)
                if row is not None:
                    places.append(place)
                    new_versions.append(row)
        return remaining()

    def before_delete(self, changed: pa.Table, write: Write | None = None) -> pa.Table:
        """Return the changes without the rows that BEFORE DELETE triggers skip. `write`: see `before_insert`."""
        fired = self.of(triggers.DELETE, row=True, before=True)
        if not fired or not changed.num_rows:
            return changed
        old_rows = _flat(changed["old"], self.relation)
        result = self._together(fired, triggers.DELETE, old_rows, None)
        if result is not None and self._written(result.inserts):
            return changed.take(pa.array(result.kept))
        places = list[int]()

        def remaining() -> pa.Table:
            return changed.take(pa.array(_emptied(places), pa.int64()))

        with _written_before_reads(self.session, self.relation, write, remaining):
            for place, old in enumerate(self.rows_of(old_rows)):
                if self.through(fired, triggers.DELETE, old, None) is not None:
                    places.append(place)
        return remaining()

    def after(self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None) -> list[Callable[[], None]]:
        """Return the calls of AFTER triggers to make after the statement has written all its rows: one for all rows, or one per row."""
        self.collect(event, old, new)
        fired = self.of(event, row=True, before=False, columns=columns)
        if not fired or not all(self._reads_rows_only(trigger) and not trigger.deferrable for trigger in fired):
            return self.after_each(event, old, new, columns)

        def fire() -> None:
            result = self._together(fired, event, old, new)
            if result is None or not self._written(result.inserts):
                for fire_row in self.after_each(event, old, new, columns):
                    fire_row()

        return [fire]

    def after_each(
        self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None
    ) -> list[Callable[[], None]]:
        """Return the calls of the AFTER triggers, one for each row. Their WHEN conditions are evaluated here, before any of them fires."""
        fired = self.of(event, row=True, before=False, columns=columns)
        if not fired:
            return []
        count = _count(old, new)
        olds: Sequence[Row | None] = [None] * count if old is None else self.rows_of(old)
        news: Sequence[Row | None] = [None] * count if new is None else self.rows_of(new)

        def fire(met: Sequence[Trigger], before: Row | None, after: Row | None) -> None:
            for trigger in met:
                self._call_after(trigger, event, before, after)

        return [
            functools.partial(fire, [trigger for trigger in fired if self._is_met(trigger, before, after)], before, after)
            for before, after in zip(olds, news, strict=True)
        ]

    def _call_after(self, trigger: Trigger, event: int, old: Row | None, new: Row | None) -> None:
        """Call an AFTER trigger's function, or register the call for the end of the transaction if the trigger is deferred."""
        session, relation = self.session, self.relation
        constraint = Deferrable(trigger.oid, trigger.initially_deferred)
        if not trigger.deferrable or not session.deferral.deferred(constraint):
            self.call(trigger, event, old, new)
            return

        def call_later() -> None:
            cursor = session.begin_statement().cursor
            if any(table_trigger.oid == trigger.oid for table_trigger in triggers.of_relation(cursor, relation.database, relation.oid)):
                Firing(session, relation).call(trigger, event, old, new)  # a new object, because the function may have been replaced

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
            if self._is_met(trigger, None, None):
                self.call(trigger, event, None, None)

    def through(self, fired: Sequence[Trigger], event: int, old: Row | None, new: Row | None) -> Row | None:
        """Return the row after all BEFORE triggers, or None if one of them skips it. Raise 0A000 if it moves to another partition."""
        row = old if new is None else new
        for trigger in fired:
            if self._is_met(trigger, old, new):
                row = self.call(trigger, event, old, new)
                if row is None:
                    return None
                is_remade = trigger.parent and event == triggers.INSERT and new is not None and row.fields != new.fields
                if is_remade and self._is_outside(self.table_of([row])):
                    raise self._moved(trigger)
                new = new if new is None else row
        return row

    def _is_outside(self, rows: pa.Table) -> bool:
        """Return whether one of the rows that a cloned trigger has changed belongs to another partition."""
        if self._fence is None:
            self._fence = Fence(self.session.begin_statement().cursor, self.relation)
        return self._fence.first_outside(rows) is not None

    def _moved(self, trigger: Trigger) -> PostgresError:
        table = f"{self.relation.schema}.{self.relation.name}"
        return PostgresError(
            "0A000", "moving row to another partition during a BEFORE FOR EACH ROW trigger is not supported",
            detail=f'Before executing trigger "{trigger.name}", the row was to be in partition "{table}".',
        )  # fmt: skip

    def rows_of(self, rows: pa.Table) -> list[Row]:
        """Convert a table of rows to records."""
        columns = [(column.name, stored_expression.type_of(column)) for column in self.relation.columns]
        texts = [write_text(buffers.whole(rows[name]), kind.oid).to_pylist() for name, kind in columns]
        return [
            Row({name: Value(kind, text) for (name, kind), text in zip(columns, row, strict=True)}, self._row_type)
            for row in zip(*texts, strict=True)
        ]

    def table_of(self, rows: Sequence[Row]) -> pa.Table:
        """Convert records to a table with the relation's columns."""
        schema = arrow_row(self.relation)
        columns = []
        for column, described in zip(self.relation.columns, schema, strict=True):
            texts = pa.array([row.fields[column.name].text for row in rows], pa.string())
            columns.append(buffers.whole(read_text(texts, column.type_oid, column.typmod)).cast(described.type))
        return pa.table(columns, schema=schema)

    # ---- all rows at once ---------------------------------------------------------------------------------

    def _together(self, fired: Sequence[Trigger], event: int, old: pa.Table | None, new: pa.Table | None) -> _Together | None:
        """Call the functions of triggers once for all rows, without writing. Return None if they must be called for each row."""
        count = _count(old, new)
        if count < FEWEST_TOGETHER or not all(self._reads_rows_only(trigger) for trigger in fired):
            return None
        row_numbers, inserts = np.arange(count), list[tuple[UserFunction, Gathered]]()
        try:
            for trigger in fired:
                batch, scope = self._batch(trigger, event, old, new, row_numbers)
                row_numbers = row_numbers[batch.kept[row_numbers]]
                inserts += [(self._called(trigger)[0], insert) for insert in batch.inserts]
                if trigger.is_before and new is not None:
                    variable, schema = scope.names["new"], arrow_row(self.relation)
                    new = pa.table([batch.column(variable, field.name).cast(field.type) for field in schema], schema=schema)
                    if trigger.parent and event == triggers.INSERT and self._is_outside(new):
                        return None  # the call for the row that moves raises the error with its detail
        except RowByRowError:
            return None
        return _Together(row_numbers, new, inserts)

    def _batch(
        self, trigger: Trigger, event: int, old: pa.Table | None, new: pa.Table | None, places: RowNumbers
    ) -> tuple[BatchCall, Scope]:
        """Call a trigger's function for those of the rows `places` that meet its WHEN condition."""
        function, function_body, _ = self._called(trigger)
        kinds = {column.name: stored_expression.type_of(column) for column in self.relation.columns}
        nulls = Row({name: Value(kind, None) for name, kind in kinds.items()}, self._row_type)
        scope = self._scope(trigger, event, function, nulls, nulls)
        count = _count(old, new)
        calls = [BatchCall(SessionHost(self.session, prepared), scope, count) for prepared in (self._prepared, function_body.prepared)]
        for (name, rows), batch in itertools.product((("old", old), ("new", new)), calls):
            for column, kind in kinds.items():
                values = Value(kind, None) if rows is None else Column(kind, buffers.whole(rows[column]))
                batch.give(scope.names[name], column, values)
        row_numbers = places
        if trigger.condition is not None:
            with registry.unguarded():
                row_numbers = calls[0].met(self._conditions.setdefault(trigger.oid, Sql(trigger.condition)), places)
        returns = "" if not trigger.is_before else "old" if event == triggers.DELETE else "new"
        with self._inside(function):
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
                    with self._inside(function):
                        self.session.parts.insert_rows(first.node, self.session, rows)
        except PostgresError as error:
            if error.sqlstate.startswith(_PASSED_ON) and not isinstance(error, StaleDefinitionError):
                raise
            return False  # the call for the row that fails raises the error with its context
        return True

    # ---- one call -----------------------------------------------------------------------------------------

    def _is_met(self, trigger: Trigger, old: Row | None, new: Row | None) -> bool:
        """Return whether the WHEN condition of a trigger is met."""
        if trigger.condition is None:
            return True
        sql = self._conditions.setdefault(trigger.oid, Sql(trigger.condition))
        with registry.unguarded():
            value = SessionHost(self.session, self._prepared).evaluate(sql, self._records(Scope(), old, new))
        return value.text == "t"

    def _records(self, scope: Scope, old: Row | None, new: Row | None) -> Scope:
        kind = TypeRef(self._row_type)
        for name, row in (("new", new), ("old", old)):
            scope.names[name] = Variable(name, kind, row, row=True)
        return scope

    def call(self, trigger: Trigger, event: int, old: Row | None, new: Row | None) -> Row | None:
        """Call a trigger's function and return the row that it returns. Raise 2F005 if it does not return."""
        session = self.session
        function, function_body, shown = self._called(trigger)
        host = SessionHost(session, function_body.prepared, self._tables(trigger, event))
        execution = Execution(host, shown, result_is_row=True)
        scope = self._scope(trigger, event, function, old, new)
        with self._inside(function):
            interpreter.run(function_body.function, execution, scope)
        if not execution.has_returned:
            raise PostgresError(
                "2F005", "control reached end of trigger procedure without RETURN", context=f"PL/pgSQL function {execution.shown}"
            )
        return self._returned(execution, host)

    def _scope(self, trigger: Trigger, event: int, function: UserFunction, old: Row | None, new: Row | None) -> Scope:
        """Return the scope of a trigger's function, with NEW, OLD and the TG_ variables."""
        scope = self._records(call.root_scope(function.name), old, new)
        for name, value in self._described(trigger, event):
            scope.names[name] = Variable(name, value.type, value)
        return scope

    @contextlib.contextmanager
    def _inside(self, function: UserFunction) -> Iterator[None]:
        """Run the block in the environment of a trigger's function."""
        self.session.context.trigger_depth += 1
        try:
            with call.acting(function, self.session):
                yield
        except PostgresError as error:
            if function is functions.SUPPRESS_REDUNDANT:  # in PostgreSQL it is a function in C, which adds no line
                error.context = None
            raise
        finally:
            self.session.context.trigger_depth -= 1

    def _called(self, trigger: Trigger) -> tuple[UserFunction, body.Body, str]:
        if trigger.oid not in self._functions:
            self._functions[trigger.oid] = self._function(trigger)
        return self._functions[trigger.oid]

    def _function(self, trigger: Trigger) -> tuple[UserFunction, body.Body, str]:
        """Return the function of a trigger, its body, and its name in error contexts. They are the same for all rows of a statement."""
        session, relation = self.session, self.relation
        function = functions.find(session.begin_statement().cursor, relation.database, trigger.function)
        if function is None:
            raise PostgresError("42883", f"function with OID {trigger.function} does not exist")
        columns = tuple(column.name for column in relation.columns)  # a whole row in a prepared text stands for them
        caller = (relation.oid, columns, trigger.old_table, trigger.new_table)
        return function, body.of(function, session, caller), call.shown(function, session)

    def _returned(self, execution: Execution, host: SessionHost) -> Row | None:
        result = execution.result
        if isinstance(result, Value):
            if result.text is None:
                return None
            if not host.types.is_row(result.type):
                raise PostgresError("42804", "cannot return non-composite value from function returning composite type")
            result = host.types.row_of(result)
        if result is None:
            return None
        names = [column.name for column in self.relation.columns]
        if len(result.fields) != len(names):
            detail = f"Number of returned columns ({len(result.fields)}) does not match expected column count ({len(names)})."
            raise PostgresError("42804", "returned row structure does not match the structure of the triggering table", detail=detail)
        if list(result.fields) != names:
            return replace(result, fields=dict(zip(names, result.fields.values(), strict=True)))
        return result

    def _described(self, trigger: Trigger, event: int) -> list[tuple[str, Value]]:
        """Return the TG_ variables (manual, 43.10.1)."""
        relation, words = self.relation, trigger.arguments
        arguments = print_array(Shape((len(words),), (0,)), words, ",") if words else "{}"
        return [
            ("tg_name", Value(_NAME, trigger.name)),
            ("tg_when", Value(TEXT, _when(trigger))),
            ("tg_level", Value(TEXT, "ROW" if trigger.is_row else "STATEMENT")),
            ("tg_op", Value(TEXT, triggers.EVENTS[event])),
            ("tg_relid", Value(_OID, str(relation.oid))),
            ("tg_relname", Value(_NAME, relation.name)),
            ("tg_table_name", Value(_NAME, relation.name)),
            ("tg_table_schema", Value(_NAME, relation.schema)),
            ("tg_nargs", Value(_INT, str(len(words)))),
            ("tg_argv", Value(_TEXTS, arguments)),
        ]


class RoutedFiring:
    """The triggers of a partitioned table's partitions that fire in a session. Rows have the columns of the partitioned table.

    An UPDATE that moves a row to another partition fires UPDATE triggers before the change. The move itself is a DELETE from the old
    partition and an INSERT into the new one.
    """

    def __init__(self, session: Session, table: PartitionedTable, *, collects: bool = False) -> None:
        self.session, self.table = session, table
        self.root = Firing(session, table.root, collects=collects)
        self._leaves = [Firing(session, leaf) for leaf in table.leaves]

    @property
    def fires(self) -> bool:
        """Return whether any trigger fires."""
        return self.root.fires or any(leaf.fires for leaf in self._leaves)

    def is_independent(self, event: int) -> bool:
        """See `Firing`. An UPDATE can also fire the triggers of DELETE and INSERT."""
        events = _EVENTS if event == triggers.UPDATE else (event,)
        return _are_independent([leaf.accessed(leaf_event) for leaf in self._leaves if leaf.fires for leaf_event in events])

    def used(self) -> set[int] | None:
        """See `Firing`."""
        return _used([leaf.accessed(event) for leaf in self._leaves if leaf.fires for event in _EVENTS])

    def has_rows(self, event: int) -> bool:
        """See `Firing`."""
        events = _EVENTS if event == triggers.UPDATE else (event,)
        return self.collects(event) or any(leaf.has_rows(leaf_event) for leaf in self._leaves for leaf_event in events)

    def collects(self, event: int) -> bool:
        """See `Firing`. Only the partitioned table that the statement names has transition tables."""
        return self.root.collects(event)

    def statement(self, event: int, *, before: bool, columns: set[str] | None = None) -> None:
        """Fire statement triggers of the partitioned table itself."""
        self.root.statement(event, before=before, columns=columns)

    def close(self) -> None:
        """See `Firing`."""
        self.root.close()

    def settle(self) -> None:
        """See `Firing`."""
        self.root.settle()

    def committed(self) -> None:
        """See `Firing`."""
        self.root.committed()

    def before_insert(self, rows: pa.Table, write: Write | None = None) -> tuple[pa.Table, list[int]]:
        """See `Firing`. The triggers of all partitions fire in the order of the rows."""
        places = self._places(rows)
        records = self._records(rows, places, triggers.INSERT)
        places_left, changed_rows = list[int](), dict[int, Row]()

        def rows_at(at: Sequence[int]) -> pa.Table:
            return self._rewritten(rows, places, changed_rows).take(pa.array(at, pa.int64()))

        with _written_before_reads(self.session, self.table.root, write, lambda: rows_at(_emptied(places_left))):
            for place in range(rows.num_rows):
                record = records.get(place)
                if record is not None:
                    leaf = self._leaves[places[place]]
                    record = leaf.through(leaf.of(triggers.INSERT, row=True, before=True), triggers.INSERT, None, record)
                    if record is None:
                        continue
                    changed_rows[place] = record
                places_left.append(place)
        return rows_at(places_left), places_left

    def before_update(self, changed: pa.Table, columns: set[str] | None, write: Write | None = None) -> pa.Table:
        """See `Firing`."""
        if not changed.num_rows:
            return changed
        old, new = _flat(changed["old"], self.table.root), _flat(changed["new"], self.table.root)
        leaf_of_row = self._places(old)
        before, after = self._records(old, leaf_of_row, triggers.UPDATE, columns), self._records(new, leaf_of_row, triggers.UPDATE, columns)
        places, changed_rows = list[int](), dict[int, Row]()

        def remaining() -> pa.Table:
            here, at = leaf_of_row[places], pa.array(_emptied(places), pa.int64())
            return self._moved(changed.take(at), self._rewritten(new, leaf_of_row, changed_rows).take(at), here)

        with _written_before_reads(self.session, self.table.root, write, remaining):
            for place in range(changed.num_rows):
                if place in before:
                    leaf = self._leaves[leaf_of_row[place]]
                    fired = leaf.of(triggers.UPDATE, row=True, before=True, columns=columns)
                    record = leaf.through(fired, triggers.UPDATE, before[place], after[place])
                    if record is None:
                        continue
                    changed_rows[place] = record
                places.append(place)
        return remaining()

    def _moved(self, changed: pa.Table, new: pa.Table, here: Places) -> pa.Table:
        """Return the changes with their new rows, after the BEFORE triggers of rows that move to another partition."""
        moves = np.flatnonzero(self._places(new) != here)
        is_included = np.ones(changed.num_rows, np.bool_)
        if len(moves):
            old = _flat(changed["old"].take(pa.array(moves)), self.table.root)
            deleted = self.before_delete(pa.table({"old": old.to_struct_array(), "place": pa.array(moves)}))["place"].to_numpy()
            is_included[np.setdiff1d(moves, deleted)] = False
            arriving, passed = self.before_insert(new.take(pa.array(deleted)))
            is_included[np.delete(deleted, passed)] = False
            order = np.arange(new.num_rows)
            order[deleted[passed]] = new.num_rows + np.arange(len(passed))
            new = pa.concat_tables([new, arriving]).take(pa.array(order))
        whole = buffers.whole(new.to_struct_array())
        changed = changed.set_column(changed.column_names.index("new"), "new", whole)
        return changed.filter(pa.array(is_included))

    def before_delete(self, changed: pa.Table, write: Write | None = None) -> pa.Table:
        """See `Firing`."""
        if not changed.num_rows:
            return changed
        old = _flat(changed["old"], self.table.root)
        places = self._places(old)
        records = self._records(old, places, triggers.DELETE)
        places_left = list[int]()

        def remaining() -> pa.Table:
            return changed.take(pa.array(_emptied(places_left), pa.int64()))

        with _written_before_reads(self.session, self.table.root, write, remaining):
            for place in range(changed.num_rows):
                record, leaf = records.get(place), self._leaves[places[place]]
                fired = leaf.of(triggers.DELETE, row=True, before=True)
                if record is None or leaf.through(fired, triggers.DELETE, record, None) is not None:
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
                records.update(zip(at.tolist(), leaf.rows_of(of_leaf(leaf.relation, rows.take(pa.array(at)))), strict=True))
        return records

    def _rewritten(self, rows: pa.Table, places: Places, new_rows: dict[int, Row]) -> pa.Table:
        """Return the rows, with the rows that triggers have changed replaced."""
        if not new_rows:
            return rows
        order, parts, count = np.arange(rows.num_rows), [rows.select([column.name for column in self.table.root.columns])], rows.num_rows
        for number, leaf in enumerate(self._leaves):
            at = [place for place in new_rows if places[place] == number]
            if at:
                parts.append(of_root(self.table.root, leaf.table_of([new_rows[place] for place in at])))
                order[at] = count + np.arange(len(at))
                count += len(at)
        return pa.concat_tables(parts).take(pa.array(order))


def of_statement(planner: Planner, relation: Relation) -> Firing | RoutedFiring | None:
    """Return the triggers of a table that fire in a statement, or None. A statement always gets the same object for a table."""
    if relation.oid not in planner.firings:
        planner.firings[relation.oid] = firing_of(planner.session, relation, collects=True)
    firing: Firing | RoutedFiring | None = planner.firings[relation.oid]
    return firing


def firing_of(session: Session, relation: Relation, *, collects: bool = False) -> Firing | RoutedFiring | None:
    """Return the triggers of a table that fire in a session; None if there are none. `collects`: see `Firing`."""
    firing: Firing | RoutedFiring
    if relation.is_partitioned:
        table = session.begin_statement().partitioned(relation)
        if not relation.has_triggers and not any(leaf.has_triggers for leaf in table.leaves):
            return None
        firing = RoutedFiring(session, table, collects=collects)
    elif relation.has_triggers:
        firing = Firing(session, relation, collects=collects)
    else:
        return None
    return firing if firing.fires else None


def _are_independent(accesses: Sequence[tuple[set[int], set[int]] | None]) -> bool:
    """Return whether none of the triggers with these accesses (`Firing.accessed`) reads a table into which one of them inserts rows."""
    known = [access for access in accesses if access is not None]
    read, inserted = (set[int]().union(*tables) for tables in ([reads for reads, _ in known], [inserts for _, inserts in known]))
    return len(known) == len(accesses) and not read & inserted


def _used(accesses: Sequence[tuple[set[int], set[int]] | None]) -> set[int] | None:
    """Return the tables of all accesses, or None if one is unknown."""
    known = [access for access in accesses if access is not None]
    return set[int]().union(*itertools.chain.from_iterable(known)) if len(known) == len(accesses) else None


def _when(trigger: Trigger) -> str:
    return "INSTEAD OF" if trigger.kind & triggers.INSTEAD else "BEFORE" if trigger.is_before else "AFTER"


@contextlib.contextmanager
def statement(planner: Planner, relation: Relation, *events: tuple[int, set[str] | None]) -> Iterator[None]:
    """Fire the statement triggers around a statement that changes rows of a table, and the AFTER triggers after its rows.

    `events`: bits of tgtype, with the columns that an UPDATE sets.
    """
    if planner.describing:
        yield
        return
    firing = of_statement(planner, relation)
    own, before = {(relation.oid, event): columns for event, columns in events}, set(planner.changed_by_actions)
    planner.evaluation.changed = relation
    with contextlib.nullcontext() if firing is None else contextlib.closing(firing), _using(planner.session, relation):
        if firing is not None:
            for event, columns in events:
                firing.statement(event, before=True, columns=columns)
        planner.changed_by_actions |= own
        outermost = not planner.fires_later and not planner.is_firing
        yield
        if outermost:
            planner.is_firing = True
            try:
                while planner.fires_later:
                    planner.fires_later.pop(0)()
            finally:
                planner.is_firing = False
        if firing is not None:
            for event, columns in reversed(events):
                firing.statement(event, before=False, columns=columns)
        for key in [key for key in planner.changed_by_actions if key not in before and key not in own]:
            with contextlib.closing(planner.firings[key[0]]) as acted_on:
                acted_on.statement(key[1], before=False, columns=planner.changed_by_actions[key])


@contextlib.contextmanager
def _using(session: Session, relation: Relation) -> Iterator[None]:
    """Mark a table as used by a statement, so that the statements of triggers cannot alter it."""
    tables_in_use = session.deferral.tables_in_use
    tables_in_use.append(relation.oid)
    try:
        yield
    finally:
        tables_in_use.pop()


def change_by_action(planner: Planner, relation: Relation, event: int, columns: set[str] | None = None) -> None:
    """Fire the BEFORE STATEMENT triggers of a table that ON DELETE or ON UPDATE is about to change.

    As in PostgreSQL they fire once for the statement that changes the referenced table. Its end fires the AFTER STATEMENT triggers.
    """
    acted_on = of_statement(planner, relation)
    if acted_on is not None and (relation.oid, event) not in planner.changed_by_actions:
        planner.changed_by_actions[relation.oid, event] = columns
        acted_on.statement(event, before=True, columns=columns)


@contextlib.contextmanager
def _written_before_reads(session: Session, relation: Relation, write: Write | None, taken: Callable[[], pa.Table]) -> Iterator[None]:
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

    with session.begin_statement().unwritten(relation, write_rows):
        yield


def _emptied(items: list[T]) -> list[T]:
    """Empty a list and return its items."""
    removed = items.copy()
    items.clear()
    return removed


def _flat(rows: pa.ChunkedArray, relation: Relation) -> pa.Table:
    whole = buffers.whole(rows)
    return pa.table(whole.flatten(), names=[field.name for field in whole.type]) if len(whole) else arrow_row(relation).empty_table()


def _count(old: pa.Table | None, new: pa.Table | None) -> int:
    """Return the number of changed rows. `old` is None for an INSERT, `new` for a DELETE."""
    rows = new if old is None else old
    assert rows is not None
    return int(rows.num_rows)
