"""Firing triggers: row triggers over Arrow tables of rows, statement triggers once for each statement (manual, 39.1).

Called by `commands.dml` for what clients change and by `commands.subscription.applied_triggers` for what is applied. Which triggers fire is
asked of `Firing`, made for one table and one session; what fires behind the rows waits in the
planner until the statement has written all of its own (`statement`).

    session_replication_role   fire
    origin, local              triggers that are O (as made) and A (ALWAYS)
    replica                    triggers that are R (REPLICA) and A (ALWAYS)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.catalog import function as functions
from headgate.catalog.function import UserFunction
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import stored_expression
from headgate.commands.function import body, call
from headgate.commands.function.host import Prepared, SessionHost, row_type
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.node import TEXT, TypeRef
from headgate.plpgsql import interpreter, reach
from headgate.plpgsql.interpreter import Execution
from headgate.plpgsql.scope import Row, Scope, Value, Variable
from headgate.plpgsql.tree import Sql
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry
from headgate.types.text.array import Shape, print_array
from headgate.types.text.text import read_text, write_text

_NAME, _OID, _INT = TypeRef(registry.NAME), TypeRef(registry.OID), TypeRef(registry.INT4)
_TEXTS = TypeRef(registry.TEXT_ARRAY)


class Firing:
    """The triggers of a table that fire in a session."""

    def __init__(self, session: Session, relation: Relation) -> None:
        self.session, self.relation = session, relation
        cursor = session.begin_statement().cursor
        role = session.settings.text("session_replication_role")
        found = triggers.of_relation(cursor, relation.database, relation.oid) if relation.has_triggers else []
        self._triggers = [each for each in found if each.fires(role)]
        self._row_type = row_type(session, relation) if self._triggers else 0
        self._conditions: dict[int, Sql] = {}
        self._functions: dict[int, tuple[UserFunction, body.Body, str]] = {}
        self._prepared = Prepared()

    def of(self, event: int, *, row: bool, before: bool, columns: set[str] | None = None) -> list[Trigger]:
        """The triggers of an event; `columns`: those that an UPDATE sets, None for all."""
        return [
            each for each in self._triggers
            if each.kind & event and each.is_row == row and each.is_before == before and not each.kind & triggers.INSTEAD
            and self._is_of(each, columns)
        ]  # fmt: skip

    def _is_of(self, trigger: Trigger, columns: set[str] | None) -> bool:
        if not trigger.columns or columns is None:
            return True
        named = {column.name for number in trigger.columns if (column := self.relation.numbered(number)) is not None}
        return bool(named & columns)

    @property
    def inserts_instead(self) -> bool:
        """Whether an INSTEAD OF INSERT trigger fires, without which no row can be inserted into a view."""
        return any(each.kind & triggers.INSTEAD and each.kind & triggers.INSERT for each in self._triggers)

    def reads_rows_only(self, event: int) -> bool:
        """Whether the row triggers of an event look at nothing but OLD and NEW: neither a query nor another function is in them."""
        cursor, database = self.session.begin_statement().cursor, self.relation.database
        fired = [each for each in self._triggers if each.kind & event and each.is_row]
        called = [functions.find(cursor, database, each.function) for each in fired]
        return all(each is not None and reach.of_rows_only(body.of(each, self.session, self.relation.oid).function) for each in called)

    def has_rows(self, event: int) -> bool:
        """Whether triggers fire for each row of an event."""
        return any(each.kind & event and each.is_row for each in self._triggers)

    # ---- rows ---------------------------------------------------------------------------------------------

    def before_insert(self, rows: pa.Table) -> tuple[pa.Table, list[int]]:
        """The rows as BEFORE INSERT triggers make them, and which they are of those that came: a trigger may leave a row out."""
        fired = self.of(triggers.INSERT, row=True, before=True)
        if not fired or not rows.num_rows:
            return rows, list(range(rows.num_rows))
        kept, made = [], []
        for place, new in enumerate(self.rows_of(rows)):
            found = self._through(fired, triggers.INSERT, None, new)
            if found is not None:
                kept.append(place)
                made.append(found)
        return self.table_of(made), kept

    def instead_of_insert(self, rows: pa.Table) -> pa.Table:
        """What INSTEAD OF triggers of a view make of the rows that are inserted there; without those that they leave out."""
        fired = [each for each in self._triggers if each.kind & triggers.INSTEAD and each.kind & triggers.INSERT]
        made = [self._through(fired, triggers.INSERT, None, new) for new in self.rows_of(rows)]
        return self.table_of([row for row in made if row is not None])

    def before_update(self, changed: pa.Table, columns: set[str] | None) -> pa.Table:
        """Changes (`old`, `new`, …) as BEFORE UPDATE triggers make them; without those that they leave out."""
        fired = self.of(triggers.UPDATE, row=True, before=True, columns=columns)
        if not fired or not changed.num_rows:
            return changed
        kept, made = [], []
        olds, news = self.rows_of(_flat(changed["old"], self.relation)), self.rows_of(_flat(changed["new"], self.relation))
        for place, (old, new) in enumerate(zip(olds, news, strict=True)):
            found = self._through(fired, triggers.UPDATE, old, new)
            if found is not None:
                kept.append(place)
                made.append(found)
        left = changed.take(pa.array(kept, pa.int64()))
        return left.set_column(left.column_names.index("new"), "new", buffers.whole(self.table_of(made).to_struct_array()))

    def before_delete(self, changed: pa.Table) -> pa.Table:
        """Changes without the rows that BEFORE DELETE triggers keep."""
        fired = self.of(triggers.DELETE, row=True, before=True)
        if not fired or not changed.num_rows:
            return changed
        passing = [
            self._through(fired, triggers.DELETE, old, None) is not None for old in self.rows_of(_flat(changed["old"], self.relation))
        ]
        return changed.filter(pa.array(np.asarray(passing, np.bool_)))

    def after(self, event: int, old: pa.Table | None, new: pa.Table | None, columns: set[str] | None = None) -> list[Callable[[], None]]:
        """What is to be called when the statement has written all its rows: the AFTER triggers, row by row."""
        fired = self.of(event, row=True, before=False, columns=columns)
        if not fired:
            return []
        count = (new if old is None else old).num_rows  # type: ignore[union-attr]
        olds: Sequence[Row | None] = [None] * count if old is None else self.rows_of(old)
        news: Sequence[Row | None] = [None] * count if new is None else self.rows_of(new)

        def fire(before: Row | None, after: Row | None) -> None:
            for each in fired:
                if self._is_met(each, before, after):
                    self.call(each, event, before, after)

        return [lambda pair=pair: fire(*pair) for pair in zip(olds, news, strict=True)]  # type: ignore[misc]

    def statement(self, event: int, *, before: bool, columns: set[str] | None = None) -> None:
        """Fires statement triggers."""
        for each in self.of(event, row=False, before=before, columns=columns):
            if self._is_met(each, None, None):
                self.call(each, event, None, None)

    def _through(self, fired: Sequence[Trigger], event: int, old: Row | None, new: Row | None) -> Row | None:
        """The row behind all BEFORE triggers; None where one leaves it out."""
        row = old if new is None else new
        for each in fired:
            if self._is_met(each, old, new):
                row = self.call(each, event, old, new)
                if row is None:
                    return None
                new = new if new is None else row
        return row

    def rows_of(self, rows: pa.Table) -> list[Row]:
        """The rows of a table as records."""
        named = [(each.name, stored_expression.type_of(each)) for each in self.relation.columns]
        texts = [write_text(buffers.whole(rows[name]), kind.oid, kind.typmod).to_pylist() for name, kind in named]
        return [
            Row({name: Value(kind, text) for (name, kind), text in zip(named, row, strict=True)}, self._row_type)
            for row in zip(*texts, strict=True)
        ]

    def table_of(self, rows: Sequence[Row]) -> pa.Table:
        """Records as a table of the relation's rows."""
        schema = arrow_row(self.relation)
        columns = []
        for column, described in zip(self.relation.columns, schema, strict=True):
            texts = pa.array([row.fields[column.name].text for row in rows], pa.string())
            columns.append(buffers.whole(read_text(texts, column.type_oid, column.typmod)).cast(described.type))
        return pa.table(columns, schema=schema)

    # ---- one call -----------------------------------------------------------------------------------------

    def _is_met(self, trigger: Trigger, old: Row | None, new: Row | None) -> bool:
        """Whether WHEN of a trigger holds."""
        if trigger.condition is None:
            return True
        sql = self._conditions.setdefault(trigger.oid, Sql(trigger.condition))
        value = SessionHost(self.session, self._prepared).evaluate(sql, self._records(Scope(), old, new))
        return value.text == "t"

    def _records(self, scope: Scope, old: Row | None, new: Row | None) -> Scope:
        kind = TypeRef(self._row_type)
        for name, row in (("new", new), ("old", old)):
            scope.names[name] = Variable(name, kind, row, row=True)
        return scope

    def call(self, trigger: Trigger, event: int, old: Row | None, new: Row | None) -> Row | None:
        """Calls a trigger's function; the row that it gives."""
        session = self.session
        if trigger.function not in self._functions:
            self._functions[trigger.function] = self._function(trigger)
        function, found, shown = self._functions[trigger.function]
        host = SessionHost(session, found.prepared)
        execution = Execution(host, shown, result_is_row=True)
        context = session.context
        context.trigger_depth += 1
        scope = self._records(call.root_scope(function.name), old, new)
        for name, value in self._described(trigger, event):
            scope.names[name] = Variable(name, value.type, value)
        try:
            with call.acting(function, session):
                interpreter.run(found.function, execution, scope)
        finally:
            context.trigger_depth -= 1
        if not execution.has_returned:
            raise PostgresError(
                "2F005", "control reached end of trigger procedure without RETURN", context=f"PL/pgSQL function {execution.shown}"
            )
        return self._returned(execution, host)

    def _function(self, trigger: Trigger) -> tuple[UserFunction, body.Body, str]:
        """The function of a trigger, its body, and how error contexts call it: the same for all rows of a statement."""
        session, relation = self.session, self.relation
        function = functions.find(session.begin_statement().cursor, relation.database, trigger.function)
        if function is None:
            raise PostgresError("42883", f"function with OID {trigger.function} does not exist")
        return function, body.of(function, session, relation.oid), call.shown(function, session)

    def _returned(self, execution: Execution, host: SessionHost) -> Row | None:
        result = execution.result
        if isinstance(result, Value):
            if result.text is None:
                return None
            if not host.is_row(result.type):
                raise PostgresError("42804", "cannot return non-composite value from function returning composite type")
            result = host.row_of(result)
        if result is None:
            return None
        names = [each.name for each in self.relation.columns]
        if len(result.fields) != len(names):
            detail = f"Number of returned columns ({len(result.fields)}) does not match expected column count ({len(names)})."
            raise PostgresError("42804", "returned row structure does not match the structure of the triggering table", detail=detail)
        if list(result.fields) != names:
            return replace(result, fields=dict(zip(names, result.fields.values(), strict=True)))
        return result

    def _described(self, trigger: Trigger, event: int) -> list[tuple[str, Value]]:
        """The TG_ variables (manual, 43.10.1)."""
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


def _when(trigger: Trigger) -> str:
    return "INSTEAD OF" if trigger.kind & triggers.INSTEAD else "BEFORE" if trigger.is_before else "AFTER"


@contextlib.contextmanager
def statement(planner: Planner, relation: Relation, *events: tuple[int, set[str] | None]) -> Iterator[None]:
    """Around a statement that changes rows of a table: its statement triggers, and behind its rows what waits for them.

    `events`: bits of tgtype, with the columns that an UPDATE sets.
    """
    if planner.describing:
        yield
        return
    firing = Firing(planner.session, relation) if relation.has_triggers else None
    for event, columns in events if firing is not None else ():
        firing.statement(event, before=True, columns=columns)  # type: ignore[union-attr]
    outermost = not planner.fires_later and not planner.is_firing
    yield
    if outermost:
        planner.is_firing = True
        try:
            while planner.fires_later:
                planner.fires_later.pop(0)()
        finally:
            planner.is_firing = False
    for event, columns in reversed(events) if firing is not None else ():
        firing.statement(event, before=False, columns=columns)  # type: ignore[union-attr]


def _flat(rows: pa.ChunkedArray, relation: Relation) -> pa.Table:
    whole = buffers.whole(rows)
    return pa.table(whole.flatten(), names=[each.name for each in whole.type]) if len(whole) else arrow_row(relation).empty_table()
