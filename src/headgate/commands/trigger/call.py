"""Call the functions of a table's triggers.

`firing` decides which triggers fire, and calls each through a `TriggerCalls`. A row is a record (`plpgsql.scope.Row`) for a function. A
function has NEW, OLD and the TG_ variables (manual, 43.10.1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headgate.catalog import function as functions
from headgate.catalog.function import UserFunction
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import stored_expression
from headgate.commands.function import body
from headgate.commands.function import call as function_call
from headgate.commands.function.host import SessionHost
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.function.variable_type import VariableTypes, row_type
from headgate.commands.session import Session
from headgate.commands.transition_table import TransitionTable
from headgate.errors import PostgresError
from headgate.expression.node import TEXT, TypeRef
from headgate.plpgsql import interpreter
from headgate.plpgsql.interpreter import Execution
from headgate.plpgsql.scope import Row, Scope, Value, Variable
from headgate.plpgsql.tree import Sql
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry
from headgate.types.text.array import Shape, print_array
from headgate.types.text.text import read_text, write_text

_NAME, _OID, _INT = TypeRef(registry.NAME), TypeRef(registry.OID), TypeRef(registry.INT4)
_TEXTS = TypeRef(registry.TEXT_ARRAY)


class TriggerCalls:
    """The calls of the triggers of one table in a session. A function is loaded once, so that all rows of a statement use the same."""

    def __init__(self, session: Session, relation: Relation) -> None:
        """Create the object. The functions are loaded when they are first called."""
        self.session, self.relation = session, relation
        self.prepared = Prepared()
        """The texts of WHEN conditions."""
        self._row_type: int | None = None
        self._functions: dict[int, tuple[UserFunction, body.Body, str]] = {}

    def is_met(self, trigger: Trigger, old: Row | None, new: Row | None) -> bool:
        if trigger.condition is None:
            return True
        with registry.unguarded():
            value = SessionHost(self.session, self.prepared).evaluate(self.condition(trigger), self._records(Scope(), old, new))
        return value.text == "t"

    def condition(self, trigger: Trigger) -> Sql:
        assert trigger.condition is not None
        return self.prepared.expression(trigger.condition)

    def call(
        self, trigger: Trigger, event: int, old: Row | None, new: Row | None, tables: Mapping[str, TransitionTable] | None = None
    ) -> Row | None:
        """Call a trigger's function and return the row that it returns. Raise 2F005 if it does not return.

        `tables`: the transition tables, by name.
        """
        session = self.session
        function, function_body, shown = self.function(trigger)
        host = SessionHost(session, function_body.prepared, tables)
        execution = Execution(host, shown, result_is_row=True)
        scope = self.scope(trigger, event, function, old, new)
        with self.inside(function):
            interpreter.run(function_body.function, execution, scope)
        if not execution.has_returned:
            raise PostgresError(
                "2F005", "control reached end of trigger procedure without RETURN", context=f"PL/pgSQL function {execution.shown}"
            )
        return self._returned(execution, host.types)

    def scope(self, trigger: Trigger, event: int, function: UserFunction, old: Row | None, new: Row | None) -> Scope:
        """Return the scope of a trigger's function, with NEW, OLD and the TG_ variables."""
        unset = self.unset(trigger, event, function)
        if new is not None and unset:
            new = replace(new, fields={name: Value(value.type, None) if name in unset else value for name, value in new.fields.items()})
        scope = self._records(function_call.root_scope(function.name), old, new)
        for name, value in self._described(trigger, event):
            scope.names[name] = Variable(name, value.type, value)
        return scope

    def unset(self, trigger: Trigger, event: int, function: UserFunction) -> set[str]:
        """Return the columns of NEW that are NULL in a BEFORE UPDATE trigger, because they are generated later (plpgsql_exec_trigger)."""
        if not trigger.is_before or event != triggers.UPDATE or function is functions.SUPPRESS_REDUNDANT:
            return set()
        return {column.name for column in self.relation.columns if column.generated is not None}

    def _records(self, scope: Scope, old: Row | None, new: Row | None) -> Scope:
        kind = TypeRef(self.row_type)
        for name, row in (("new", new), ("old", old)):
            scope.names[name] = Variable(name, kind, row, row=True)
        return scope

    @contextlib.contextmanager
    def inside(self, function: UserFunction) -> Iterator[None]:
        """Run the block in the environment of a trigger's function."""
        self.session.context.trigger_depth += 1
        try:
            with function_call.acting(function, self.session):
                yield
        except PostgresError as error:
            if function is functions.SUPPRESS_REDUNDANT:  # in PostgreSQL it is a function in C, which adds no line
                error.context = None
            raise
        finally:
            self.session.context.trigger_depth -= 1

    @property
    def row_type(self) -> int:
        """The oid of the type of the table's rows."""
        if self._row_type is None:
            self._row_type = row_type(self.session, self.relation)
        return self._row_type

    def function(self, trigger: Trigger) -> tuple[UserFunction, body.Body, str]:
        """Return the function of a trigger, its body, and its name in error contexts."""
        if trigger.oid not in self._functions:
            self._functions[trigger.oid] = self._load(trigger)
        return self._functions[trigger.oid]

    def _load(self, trigger: Trigger) -> tuple[UserFunction, body.Body, str]:
        session, relation = self.session, self.relation
        function = functions.find(session.begin_statement().cursor, relation.database, trigger.function)
        if function is None:
            raise PostgresError("42883", f"function with OID {trigger.function} does not exist")
        columns = tuple(column.name for column in relation.columns)  # a whole row in a prepared text stands for them
        caller = (relation.oid, columns, trigger.old_table, trigger.new_table)
        return function, body.of(function, session, caller), function_call.shown(function, session)

    def _returned(self, execution: Execution, types: VariableTypes) -> Row | None:
        result = execution.result
        if isinstance(result, Value):
            if result.text is None:
                return None
            if not types.is_row(result.type):
                raise PostgresError("42804", "cannot return non-composite value from function returning composite type")
            result = types.row_of(result)
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

    def rows_of(self, rows: pa.Table) -> list[Row]:
        """Convert a table of rows to records."""
        columns = [(column.name, stored_expression.type_of(column)) for column in self.relation.columns]
        texts = [write_text(buffers.whole(rows[name]), kind.oid).to_pylist() for name, kind in columns]
        return [
            Row({name: Value(kind, text) for (name, kind), text in zip(columns, row, strict=True)}, self.row_type)
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


def _when(trigger: Trigger) -> str:
    return "INSTEAD OF" if trigger.kind & triggers.INSTEAD else "BEFORE" if trigger.is_before else "AFTER"
