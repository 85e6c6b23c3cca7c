"""Run a trigger function once for many rows: a variable is a column, and IF splits the rows.

`firing` calls it for functions that only read OLD and NEW, assign to variables and insert rows into other tables (`reach.inserts`), as most
trigger functions do. `BatchCall.run` writes nothing: it gathers the rows of INSERTs, and the caller writes them if everything succeeds.
Anything else raises `RowByRowError`. The caller then calls the function for each row, which also gives an error its row and its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup, stored_expression
from headgate.commands.function.host import SessionHost
from headgate.commands.function.simple_expression import Column
from headgate.errors import PostgresError
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import BOOLEAN, TypeRef
from headgate.plpgsql import reach, tree
from headgate.plpgsql.scope import Scope, Value, Variable
from headgate.plpgsql.tree import Names, Sql
from headgate.sql.parser import unwrap
from headgate.types import registry
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text

RowNumbers = NDArray[np.int64]


class RowByRowError(Exception):
    """The function must be called for each row."""


@dataclass(frozen=True)
class Gathered:
    """The rows of an INSERT in a function. `at`: the batch rows that they come from, in ascending order."""

    node: pb.InsertStmt
    relation: Relation
    at: RowNumbers
    columns: dict[str, pa.Array]


class BatchCall:
    """One call of a function for all rows of a batch."""

    def __init__(self, host: SessionHost, scope: Scope, rows: int) -> None:
        """Create the call. `scope` has the function's variables. `give` sets the values of those that are columns."""
        self._host, self._scope, self._rows = host, scope, rows
        self._columns: dict[tuple[int, str | None], Value | Column] = {}
        self._variables: list[Variable] = []
        self._returns = ""
        self.kept = np.ones(rows, np.bool_)
        """For each row, whether the function has not returned NULL."""
        self.inserts: list[Gathered] = []

    def give(self, variable: Variable, name: str, values: Value | Column) -> None:
        """Set a field of a record for all rows."""
        self._columns[id(variable), name] = values

    def column(self, variable: Variable, name: str) -> pa.Array:
        content = self._columns[id(variable), name]
        return content.array if isinstance(content, Column) else self._array(content, content.type, self._rows)

    def run(self, function: tree.Function, returns: str, at: RowNumbers) -> None:
        """Run the function for some rows. `returns`: the record (new or old) that must be returned; if empty, any result is accepted."""
        self._returns = returns
        try:
            if len(self._block(function.block, self._scope, at)):
                raise RowByRowError  # 2F005
        except (NotColumnwise, PostgresError, pa.ArrowException) as error:
            raise RowByRowError from error

    def met(self, condition: Sql, at: RowNumbers) -> RowNumbers:
        try:
            return self._met(condition, self._scope, at)[0]
        except (NotColumnwise, PostgresError, pa.ArrowException) as error:
            raise RowByRowError from error

    # ---- statements ---------------------------------------------------------------------------------------

    def _block(self, block: tree.Block, outer: Scope, at: RowNumbers) -> RowNumbers:
        scope = Scope(block.label, outer)
        for declaration in block.declarations:
            if declaration.alias is not None or declaration.constant or declaration.not_null or declaration.cursor is not None:
                raise RowByRowError
            kind = self._host.types.declared(declaration.type, scope)
            if self._host.types.is_row(kind):
                raise RowByRowError
            value = Value(kind, None) if declaration.default is None else self._evaluate(declaration.default, scope, at)
            variable = Variable(declaration.name, kind, Value(kind, None))
            self._store(variable, None, self._host.cast_columns(value, kind, len(at)), at)
            scope.names[declaration.name] = variable
        return self._statements(block.body, scope, at)

    def _statements(self, body: Sequence[tree.Statement], scope: Scope, at: RowNumbers) -> RowNumbers:
        """Run statements for some rows. Return the rows for which execution continues after them."""
        for statement in body:
            if not len(at):
                break
            match statement:
                case tree.Assign(subscripts=(), target=target, value=value):
                    self._assign(target, value, scope, at)
                case tree.If(branches=branches, otherwise=otherwise):
                    at = self._if(branches, otherwise, scope, at)
                case tree.Block(handlers=()):
                    at = self._block(statement, scope, at)
                case tree.Return(value=value):
                    self._return(value, at)
                    at = at[:0]
                case tree.Execute(query=query):
                    self._insert(query, scope, at)
                case _:
                    raise RowByRowError
        return at

    def _assign(self, target: Names, value: Sql, scope: Scope, at: RowNumbers) -> None:
        resolved = scope.find(target)
        if resolved is None or resolved[0].constant or (resolved[0].row and resolved[1] is None):
            raise RowByRowError
        variable, name = resolved
        kind = self._held(variable, name).type
        self._store(variable, name, self._host.cast_columns(self._evaluate(value, scope, at), kind, len(at)), at)

    def _if(
        self, branches: Sequence[tuple[Sql, Sequence[tree.Statement]]], otherwise: Sequence[tree.Statement], scope: Scope, at: RowNumbers
    ) -> RowNumbers:
        continuing = []
        for condition, body in branches:
            met, at = self._met(condition, scope, at)
            continuing.append(self._statements(body, scope, met))
        return np.sort(np.concatenate([*continuing, self._statements(otherwise, scope, at)]))

    def _met(self, condition: Sql, scope: Scope, at: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        value = self._evaluate(condition, scope, at)
        if value.type.oid != registry.BOOL:
            raise RowByRowError
        if isinstance(value, Value):
            return (at, at[:0]) if value.text == "t" else (at[:0], at)
        holds = np.asarray(pc.fill_null(value.array, False))
        return at[holds], at[~holds]

    def _return(self, value: Sql | None, at: RowNumbers) -> None:
        text = "" if value is None else value.text.strip("() ").lower()  # the parser adds parentheses
        if text not in ("new", "old", "null"):
            raise RowByRowError
        if not self._returns:
            return
        if text == "null":
            self.kept[at] = False
        elif text != self._returns:
            raise RowByRowError

    def _insert(self, query: Sql, scope: Scope, at: RowNumbers) -> None:
        prepared = self._host.prepare(query, scope)
        node = prepared.node
        items = reach.row_of(node)
        relation = lookup.find(self._host.session.begin_statement().cursor, self._host.session.context, node.relation)
        if items is None or relation is None:
            raise RowByRowError
        column_names = [unwrap(target).name for target in node.cols] or [column.name for column in relation.columns][: len(items)]
        if len(column_names) != len(items):
            raise RowByRowError
        parameters, columns = [self._given(variable, scope, at) for variable in prepared.variables], {}
        for name, item in zip(column_names, items, strict=True):
            column = relation.column(name)
            if column is None:
                raise RowByRowError
            kind = stored_expression.type_of(column)
            value = self._host.expressions.columns(unwrap(item), parameters, len(at), (name, kind))
            if value is not None:
                columns[name] = value.array if isinstance(value, Column) else self._array(value, kind, len(at))
        self.inserts.append(Gathered(node, relation, at, columns))
        found_variable = scope.find(("found",))
        assert found_variable is not None, "every function has it"
        self._store(found_variable[0], None, Value(BOOLEAN, "t"), at)

    # ---- variables ----------------------------------------------------------------------------------------

    def _evaluate(self, sql: Sql, scope: Scope, at: RowNumbers) -> Value | Column:
        prepared = self._host.prepare(sql, scope)
        if prepared.expression is None:
            raise RowByRowError
        value = self._host.expressions.columns(
            prepared.expression, [self._given(variable, scope, at) for variable in prepared.variables], len(at)
        )
        assert value is not None, "DEFAULT is not an expression"
        return value

    def _given(self, variable_names: Names, scope: Scope, at: RowNumbers) -> Value | Column:
        resolved = scope.find(variable_names)
        if resolved is None:
            raise RowByRowError
        content = self._held(*resolved)
        if isinstance(content, Value) or len(at) == self._rows:
            return content
        return Column(content.type, content.array.take(pa.array(at)))

    def _held(self, variable: Variable, name: str | None) -> Value | Column:
        content = self._columns.get((id(variable), name))
        if content is not None:
            return content
        if variable.row or not isinstance(variable.value, Value):
            raise RowByRowError
        return variable.value

    def _store(self, variable: Variable, name: str | None, value: Value | Column, at: RowNumbers) -> None:
        if len(at) < self._rows:
            before = self._columns.get((id(variable), name), variable.value)
            assert isinstance(before, Value | Column)
            old = before.array if isinstance(before, Column) else self._array(before, value.type, self._rows)
            new = value.array if isinstance(value, Column) else self._array(value, value.type, len(at))
            order = np.arange(self._rows)
            order[at] = self._rows + np.arange(len(at))
            value = Column(value.type, pa.concat_arrays([old, new]).take(pa.array(order)))
        self._columns[id(variable), name] = value
        self._variables.append(variable)  # keep the variable, so that its id stays unique

    @staticmethod
    def _array(value: Value, kind: TypeRef, rows: int) -> pa.Array:
        single = read_text(pa.array([value.text], pa.string()), kind.oid, kind.typmod).cast(arrow_type(kind.oid, kind.typmod))
        return single.take(pa.array(np.zeros(rows, np.int64)))
