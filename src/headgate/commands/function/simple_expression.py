"""Compute the expressions of a function that need no query (PL/pgSQL's simple expressions), for one row or for many.

`host` creates a `SimpleExpressions` for each call of a function. An expression is bound once for the types of its variables. Then the
values of the variables are put in as constants.

    expression                                              computed by
    operators and functions that `expression.scalar` has    a Python function
    other, with an exact form in Arrow                      Arrow (`columnwise`)
    other, with an exact form in the compiler, or nextval   `RowEvaluator`
    any other, such as a row or a call of the catalogs      nothing: the caller runs a query
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headgate.commands.function.prepared_text import PreparedText
from headgate.commands.query import sequence_call
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.query.row_evaluator import RowEvaluator, array_of
from headgate.commands.query.sequence_call import SequenceCalls
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import columnwise, rewriting, scalar
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, FieldSelect, Param, SetToDefault, TypeRef
from headgate.expression.node import walk as expressions
from headgate.expression.spark import compiler
from headgate.plpgsql.scope import Value
from headgate.sql.parser import ParseNode
from headgate.storage.spark.local_relation import local_frame
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type, spark_type
from headgate.types.text.text import read_text, write_text

FEWEST_FOR_SPARK = 100
"""Minimum number of rows for which a Spark job evaluates an expression."""


@dataclass(frozen=True)
class Column:
    """The values of a variable for many rows, in stored form."""

    type: TypeRef
    array: pa.Array


class SimpleExpressions:
    """Computes the expressions of one call of a function in a session."""

    def __init__(self, session: Session) -> None:
        """Create the object. The first expression loads what evaluation needs."""
        self._session = session
        self._evaluation: Evaluation | None = None

    def reset(self) -> None:
        """Load what evaluation needs again, because the transaction has ended."""
        self._evaluation = None

    @property
    def evaluation(self) -> Evaluation:
        """The session's values that expressions use."""
        if self._evaluation is None:
            self._evaluation = Evaluation(self._session)
        return self._evaluation

    def context(self, kinds: Sequence[TypeRef]) -> BindContext:
        """Return the context in which to bind an expression with parameters of these types."""
        return self.evaluation.context.within(parameters={number: kind.oid for number, kind in enumerate(kinds, 1)})

    def value(self, prepared: PreparedText, values: Sequence[Value]) -> Value | None:
        """Return the value of an expression. `values`: its parameters. Return None if only a query can compute it."""
        kinds = tuple(argument.type for argument in values)
        quick = prepared.quick.get(kinds)
        if quick is not None:
            kind, compute = quick
            return Value(kind, scalar.printed(compute([scalar.read(argument.type.oid, argument.text) for argument in values])))
        context, bound = self.context(kinds), prepared.bound.get(kinds)
        if bound is None:
            bound = prepared.bound[kinds] = binder.bind_raw(prepared.expression, EMPTY, context)
            are_known = all(scalar.is_known(node.type.oid) for node in expressions(bound) if isinstance(node, Param))
            compiled = scalar.compiled(bound) if are_known and all(scalar.is_known(kind.oid) for kind in kinds) else None
            if compiled is not None:
                prepared.quick[kinds] = (bound.type, compiled)
                return self.value(prepared, values)
        if isinstance(bound, Param) and values[bound.number - 1].type.oid == bound.type.oid:
            return values[bound.number - 1]
        if isinstance(bound, Const):
            return Value(bound.type, bound.value)

        def constant(node: Expression) -> Expression | None:
            return Const(type=node.type, value=values[node.number - 1].text) if isinstance(node, Param) else None

        return self._constant_value(rewriting.rewrite(bound, constant))

    def _constant_value(self, expression: Expression) -> Value | None:
        """Return the value of an expression without variables, or None if only a query can compute it."""
        evaluable = self.evaluation.prepare(expression)
        if any(map(sequence_call.is_call, expressions(evaluable))):
            return self._value_by_nodes(evaluable)
        try:
            return Value(expression.type, write_text(self._array(evaluable), expression.type.oid)[0].as_py())
        except NotColumnwise:
            return self._value_by_nodes(evaluable)

    def _array(self, expression: Expression) -> pa.Array:
        """Return an array of the one value in stored form. Raise NotColumnwise if neither the compiler nor Arrow can compute it."""
        if isinstance(expression, Const):
            return read_text(pa.array([expression.value], pa.string()), expression.type.oid, expression.type.typmod)
        return array_of(expression, self.evaluation.time)

    def _value_by_nodes(self, evaluable: Expression) -> Value | None:
        """Return the value of a prepared expression, or None if it has no form that is exact for these values (0A000)."""
        nodes = list(expressions(evaluable))
        is_row = any(node.type.oid == registry.RECORD for node in nodes) and not any(isinstance(node, FieldSelect) for node in nodes)
        if is_row or not all(compiler.has_form(node) or sequence_call.is_call(node) for node in nodes):
            return None
        evaluator = RowEvaluator(self.evaluation.time, called=SequenceCalls(self._session, []).value)
        try:
            return Value(evaluable.type, evaluator.constant(evaluable).value)
        except PostgresError as error:
            if error.sqlstate != "0A000":
                raise
            return None

    def _text_by_nodes(self, expression: Expression) -> str | None:
        """Return the text of a value, also if its cast is that of an assignment, which a query would not have."""
        return RowEvaluator(self.evaluation.time).constant(self.evaluation.prepare(expression)).value

    def assigned(self, value: Value, target: TypeRef) -> Value:
        """Cast a value as in an assignment, or else by its text (exec_cast_value). The type is not a domain with constraints."""
        context = self.evaluation.context
        try:
            bound = binder.assign(Const(type=value.type, value=value.text), target, "", context)
        except PostgresError as error:
            if error.sqlstate != "42804":
                raise
            bound = binder.assign(Const(type=TypeRef(registry.UNKNOWN), value=value.text), target, "", context)
        try:
            return self._cast(bound, target)
        except PostgresError as error:
            error.position = None
            raise

    def _cast(self, expression: Expression, target: TypeRef) -> Value:
        try:
            array = self._array(self.evaluation.prepare(expression))
        except NotColumnwise:
            return Value(target, self._text_by_nodes(expression))
        return Value(target, write_text(array, target.oid)[0].as_py())

    # ---- many rows ----------------------------------------------------------------------------------------

    def columns(
        self, node: ParseNode, values: Sequence[Value | Column], rows: int, target: tuple[str, TypeRef] | None = None
    ) -> Value | Column | None:
        """Return the values of an expression for many rows; a Value if it is the same for all. `values`: the parameters.

        `target`: the name and the type of the column that the values enter by an assignment cast; DEFAULT gives None.
        """
        context = self.context([argument.type for argument in values])
        bound = binder.bind_raw(node, EMPTY, context.within(construct="VALUES", default=target is not None))
        if isinstance(bound, SetToDefault):
            return None
        if target is not None:
            bound = binder.assign(bound, target[1], target[0], context)
        return self._over(bound, values, rows)

    def cast_column(self, value: Column, target: TypeRef, rows: int) -> Value | Column:
        """Return values as they enter a variable of a type; see `assigned`."""
        if value.type.oid == target.oid and target.typmod in (-1, value.type.typmod):
            return value
        return self._over(binder.assign(Param(type=value.type, number=1), target, "", self.context([value.type])), [value], rows)

    def _over(self, bound: Expression, values: Sequence[Value | Column], rows: int) -> Value | Column:
        """Compute an expression over columns: by Arrow, or by Spark if there are many rows."""
        used = {node.number for node in expressions(bound) if isinstance(node, Param)}
        arrays_by_name = {
            f"p{number}": argument.array for number, argument in enumerate(values, 1) if isinstance(argument, Column) and number in used
        }

        def replaced(node: Expression) -> Expression | None:
            if not isinstance(node, Param):
                return None
            value = values[node.number - 1]
            if isinstance(value, Value):
                return Const(type=node.type, value=value.text)
            return ColumnRef(type=node.type, name=f"p{node.number}", attnum=node.number, key=f"p{node.number}")

        expression = rewriting.rewrite(bound, replaced)
        prepared = self.evaluation.prepare(expression)
        if not arrays_by_name:
            try:
                return Value(bound.type, write_text(self._array(prepared), bound.type.oid)[0].as_py())
            except NotColumnwise:
                return Value(bound.type, self._text_by_nodes(expression))
        if isinstance(prepared, ColumnRef):
            return Column(bound.type, arrays_by_name[prepared.key])
        try:
            return Column(bound.type, columnwise.value(prepared, arrays_by_name, rows))
        except NotColumnwise:
            if rows < FEWEST_FOR_SPARK:
                raise
        kinds = {f"p{number}": argument.type for number, argument in enumerate(values, 1)}
        schema = StructType([StructField(name, spark_type(kinds[name].oid, kinds[name].typmod)) for name in arrays_by_name])
        frame = local_frame(QueryPlanner(self._session, self._session.begin_statement()).session_spark, pa.table(arrays_by_name), schema)
        computed = frame.coalesce(1).select(self.evaluation.column(expression).alias("value")).toArrow()["value"]
        return Column(bound.type, buffers.whole(computed).cast(arrow_type(bound.type.oid, bound.type.typmod)))
