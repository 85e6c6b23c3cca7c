"""Evaluate expressions that call functions which need the session, for each row of a frame, in the driver.

Such a function of a user reads tables, writes, or sends messages (`row_call.SessionFunction`), so no task can call it. nextval and
similar functions are the others (`sequence_call`). The planner and the
commands that write rows call this module before an expression becomes a Column. The rows of the frame are read in batches. The expression
is evaluated for one row after the other. The rows are put into a new frame, with the values as further columns. Memory is bounded: many
rows are in temporary files. The session can be cancelled between two rows.

`taken_out` takes calls with columns of the outer query out of subqueries: ``EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b)``. The calls are
evaluated for each row of the outer query, and the subqueries name columns with their values instead. Only calls of STABLE and IMMUTABLE
functions are taken out: a VOLATILE function is called for each row of the subquery. A call stays if it is in a CASE or COALESCE with
columns of the subquery, in a subquery of the subquery, or in FROM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import NullType, StringType, StructField, StructType

from headgate.analysis.query import PlanColumn, Query, Select, SetOperation, parts, reference
from headgate.commands import stored_expression
from headgate.commands.query import rendering, sequence_call
from headgate.commands.query.evaluation import Evaluation, lit_null
from headgate.commands.query.plan import col
from headgate.commands.query.row_evaluator import RowEvaluator
from headgate.commands.query.sequence_call import SequenceCalls
from headgate.errors import not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.node import (
    Aggregate,
    BoolKind,
    Case,
    CaseTest,
    Coalesce,
    ColumnRef,
    Const,
    Expression,
    SubLink,
    TypeRef,
    UserCall,
    WindowCall,
    conjuncts,
    joined,
    walk,
)
from headgate.sql.names import quote_ident
from headgate.storage import row_store
from headgate.storage.row_store import RowPart
from headgate.storage.spark import exchange, result_spool
from headgate.storage.spark.local_relation import local_frame
from headgate.types.storage import arrow_type, own_name, spark_type
from headgate.types.text.text import read_text, write_text

Texts = Sequence[str | None]


_Change = Callable[[Expression], Expression]


def calls_session(expression: Expression) -> bool:
    """Return whether an expression calls a function that needs the session."""
    return any(_needs_session(node) for node in walk(expression))


def _needs_session(node: Expression) -> bool:
    if not isinstance(node, UserCall):
        return sequence_call.is_call(node)
    return calls_session(node.body) if node.body is not None else node.compute is not None and node.compute.needs_session


def is_volatile(expression: Expression) -> bool:
    """Return whether an expression calls a volatile function that needs the session."""
    return any(_needs_session(node) and not (isinstance(node, UserCall) and node.volatility != "v") for node in walk(expression))


def refuse(expression: Expression) -> None:
    """Raise 0A000 if an expression calls a function that needs the session. Called for the expressions of indexes and domains."""
    for node in walk(expression):
        if isinstance(node, UserCall) and _needs_session(node):
            raise not_supported(
                f"calling the function {quote_ident(node.name)} in an index or a domain is not supported",
                detail="It does more than compute: it runs statements, sends messages, or needs the session.",
            )


def split(condition: Expression) -> tuple[Expression | None, list[Expression]]:
    """Return the part of a condition that tasks evaluate, None if there is none, and the terms that need the session (`passing`).

    PostgreSQL too evaluates the terms that call functions of users last, because they are the most expensive ones.
    """
    terms = conjuncts(condition)
    called = [term for term in terms if calls_session(term) or _has_outer_calls(term)]
    own = [term for term in terms if term not in called] if called else [condition]
    return joined(BoolKind.AND, own) if own else None, called


def settled(
    evaluation: Evaluation,
    frame: DataFrame,
    expressions: Sequence[Expression],
    *,
    in_order: bool = False,
    is_whole: Callable[[Expression], bool] = lambda _: True,
) -> tuple[DataFrame, list[Expression]]:
    """Return the frame with a further column for each expression that needs the session, and the expressions with references to these.

    `in_order`: the frame is sorted, and has to stay so. `is_whole`: returns whether an expression is evaluated, and not its operands.
    """
    frame, expressions = _with_outer_calls(evaluation, frame, expressions, in_order=in_order)
    values: list[tuple[PlanColumn, Expression]] = []

    def placed(node: Expression) -> Expression | None:
        if not calls_session(node):
            return node
        if not is_whole(node) or any(_is_of_rows(part) for part in walk(node)):
            return None  # its operands are evaluated instead
        column = PlanColumn("value", node.type, own_name(f"value{next(evaluation.numbers)}"))
        values.append((column, node))
        return reference(column)

    settled_expressions = [rewriting.rewrite(expression, placed) for expression in expressions]
    if not values:
        return frame, list(expressions)
    if not evaluation.runs:
        return frame.withColumns({column.key: lit_null(column.type) for column, _ in values}), settled_expressions
    rows = _Rows(evaluation, frame, [expression for _, expression in values])

    def extended(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = zip(*rows.values(batch), strict=True) if batch.num_rows else [()] * len(values)
        arrays = [_as_stored(texts, column.type) for texts, (column, _) in zip(columns, values, strict=True)]
        return pa.RecordBatch.from_arrays([*batch.columns[: len(frame.columns)], *arrays], names=[*frame.columns, *_keys(values)])

    fields = [StructField(column.key, spark_type(column.type.oid, column.type.typmod)) for column, _ in values]
    return rows.frame(extended, fields, in_order=in_order), settled_expressions


def settled_parts(evaluation: Evaluation, frame: DataFrame, condition: Expression) -> tuple[DataFrame, Expression]:
    """Return the frame of one side of a join with columns for the parts of its condition that have no columns of the other side."""
    if not calls_session(condition):
        return frame, condition  # Spark cannot resolve the columns of a LATERAL subquery by itself
    own = set(frame.columns)

    def is_of_frame(node: Expression) -> bool:
        keys = {part.key for part in walk(node) if isinstance(part, ColumnRef)}
        return keys <= own

    frame, [settled_condition] = settled(evaluation, frame, [condition], is_whole=is_of_frame)
    return frame, settled_condition


def passing(evaluation: Evaluation, frame: DataFrame, conditions: Sequence[Expression]) -> DataFrame:
    """Return the rows that meet all conditions. A condition is evaluated for the rows that meet the ones before it."""
    if not conditions or not evaluation.runs:
        return frame
    nested = [condition for condition in conditions if _has_outer_calls(condition) or _is_correlated(condition)]
    direct = [condition for condition in conditions if condition not in nested]
    frame = _met(evaluation, frame, direct) if direct else frame
    frame, nested = _with_outer_calls(evaluation, frame, nested)
    frame, nested = _with_own_calls(evaluation, frame, nested)
    for condition in nested:
        if not calls_session(condition):
            frame = frame.where(evaluation.filter(condition))
    called = [condition for condition in nested if calls_session(condition)]
    return _met(evaluation, frame, called) if called else frame


def filtered(evaluation: Evaluation, frame: DataFrame, condition: Expression) -> DataFrame:
    """Return the rows that meet a condition, whose terms are evaluated in order over all tables of the frame."""
    own, called = split(condition)
    return passing(evaluation, frame if own is None else frame.where(evaluation.filter(own)), called)


def _met(evaluation: Evaluation, frame: DataFrame, conditions: Sequence[Expression]) -> DataFrame:
    rows = _Rows(evaluation, frame, conditions)

    def filtered(batch: pa.RecordBatch) -> pa.RecordBatch:
        places = [place for place, is_met in enumerate(rows.are_met(batch)) if is_met]
        return batch.select(range(len(frame.columns))).take(pa.array(places, pa.int64()))

    return rows.frame(filtered, [])


def _has_outer_calls(expression: Expression) -> bool:
    """Return whether `taken_out` takes a call of a function that needs the session out of a subquery in an expression."""
    return any(isinstance(node, SubLink) for node in walk(expression)) and bool(taken_out([expression], calls_session, str)[0])


def _with_outer_calls(
    evaluation: Evaluation, frame: DataFrame, expressions: Sequence[Expression], *, in_order: bool = False
) -> tuple[DataFrame, list[Expression]]:
    """Return the frame with columns for the calls that `taken_out` takes out of subqueries, and the expressions that name them."""
    calls, changed = taken_out(expressions, calls_session, lambda: own_name(f"value{next(evaluation.numbers)}"))
    if not calls:
        return frame, list(expressions)
    frame, values = settled(evaluation, frame, list(calls), in_order=in_order)
    places = {column.key: col(value.key) for column, value in zip(calls.values(), values, strict=True) if isinstance(value, ColumnRef)}
    return frame.withColumns(places), changed


def _is_correlated(expression: Expression) -> bool:
    return any(isinstance(node, ColumnRef) and node.levels_up for node in walk(expression))


def _with_own_calls(evaluation: Evaluation, frame: DataFrame, conditions: Sequence[Expression]) -> tuple[DataFrame, list[Expression]]:
    """Return the frame with columns for the calls, beside columns of an outer query, that need only the frame's own columns."""
    parts = [part for condition in conditions for part in walk(condition) if calls_session(part)]
    if any(isinstance(part, Case | Coalesce) and not is_of_level(part, 0) for part in parts):
        return frame, list(conditions)
    return settled(evaluation, frame, conditions, is_whole=lambda part: is_of_level(part, 0))


def _is_of_rows(node: Expression) -> bool:
    """Return whether a node needs other rows, or returns several."""
    return isinstance(node, WindowCall) or builtin.returns_set(node)


def _keys(values: Sequence[tuple[PlanColumn, Expression]]) -> list[str]:
    return [column.key for column, _ in values]


def _as_stored(texts: Texts, kind: TypeRef) -> pa.Array:
    return read_text(pa.array(texts, pa.string()), kind.oid, kind.typmod).cast(arrow_type(kind.oid, kind.typmod))


@dataclass(frozen=True)
class _Input:
    """A column that expressions name: its key, its type, and its place in a batch."""

    key: str
    type: TypeRef
    place: int


class _Rows:
    """The rows of a frame, and expressions over them. Subqueries of the expressions are columns that Spark computes."""

    def __init__(self, evaluation: Evaluation, frame: DataFrame, expressions: Sequence[Expression]) -> None:
        self._evaluation = evaluation
        self._row: dict[str, Const] = {}
        """The values of the row that is evaluated, by the keys of their columns."""
        self._expressions = [evaluation.prepare(expression) for expression in expressions]
        self._calls = SequenceCalls(evaluation.session, self._expressions)
        self._evaluator = RowEvaluator(evaluation.time, lambda column: self._row[column.key], self._calls.value)
        self._is_volatile, self._results = any(map(is_volatile, self._expressions)), 0
        self._columns = list(frame.columns)
        further: dict[str, Column] = {}
        inputs: dict[str, _Input] = {}
        for expression in self._expressions:
            places = evaluation.places(expression)
            for node in walk(expression):
                if not isinstance(node, ColumnRef) or node.key in inputs:
                    continue
                if node.levels_up:
                    raise not_supported("calling a function that needs the session with columns of an outer query is not supported")
                if node.key not in self._columns:
                    further[node.key] = places[node.key].alias(node.key)
                inputs[node.key] = _Input(node.key, node.type, 0)
        self._frame = frame.select("*", *further.values()) if further else frame
        order = {name: place for place, name in enumerate(self._frame.columns)}
        self._inputs = [replace(column, place=order[column.key]) for column in inputs.values()]

    def values(self, batch: pa.RecordBatch) -> Iterator[list[str | None]]:
        self._calls.reserve(batch.num_rows)
        for _ in self._each(batch):
            with self._after_others():
                values = [self._evaluator.constant(expression).value for expression in self._expressions]
            self._results += 1
            yield values

    def are_met(self, batch: pa.RecordBatch) -> Iterator[bool]:
        for _ in self._each(batch):
            with self._after_others():
                is_met = all(self._evaluator.constant(expression).value == "t" for expression in self._expressions)
            self._results += is_met
            yield is_met

    def _after_others(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which to evaluate a row, if other rows before it have been evaluated and not written."""
        return self._evaluation.after_unwritten_rows() if self._results and self._is_volatile else contextlib.nullcontext()

    def _each(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Set the values of one row after the other."""
        texts = [write_text(batch.column(column.place), column.type.oid).to_pylist() for column in self._inputs]
        for number in range(batch.num_rows):
            self._evaluation.session.check_cancel()
            self._row = {
                column.key: Const(type=column.type, value=values[number]) for column, values in zip(self._inputs, texts, strict=True)
            }
            yield

    def frame(
        self, change: Callable[[pa.RecordBatch], pa.RecordBatch], fields: Sequence[StructField], *, in_order: bool = False
    ) -> DataFrame:
        """Return a frame of the changed batches, whose columns are those of the original frame and `fields`."""
        session, transaction = self._evaluation.session, self._evaluation.session.begin_statement()
        store = rendering.kept(session)
        with rendering.running(session, transaction):
            for batch in result_spool.batches(self._frame, transaction.storage.exchange):
                store.append(change(batch))
        own = [_without_null(field) for field in self._frame.schema.fields[: len(self._columns)]]
        rows, schema = store.part(0, store.rows), StructType([*own, *fields])
        spark = transaction.storage.spark
        if not rows.is_large:
            batches = list(rows)
            return local_frame(spark, pa.Table.from_batches(batches) if batches else pa.table({}), schema)
        return self._in_files(rows, in_order=in_order)

    def _in_files(self, rows: RowPart, *, in_order: bool) -> DataFrame:
        """Write many rows to files, which tasks read until the transaction ends."""
        transaction = self._evaluation.session.begin_statement()
        pieces = row_store.tables(rows, exchange.FILE_ROWS, row_store.MEMORY_BYTES)
        storage = transaction.storage
        frame, forget = exchange.kept(storage.spark, _number_rows(pieces) if in_order else pieces, storage.exchange)
        transaction.until_end.callback(forget)
        return frame.orderBy(_PLACE).drop(_PLACE) if in_order else frame


_PLACE = own_name("_place")


def _number_rows(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    first = 0
    for piece in pieces:
        yield piece.append_column(_PLACE, pa.array(range(first, first + piece.num_rows), pa.int64()))
        first += piece.num_rows


def _without_null(field: StructField) -> StructField:
    """Return the field of a column that `result_spool` reads as text, because its type is that of NULL."""
    return StructField(field.name, StringType()) if isinstance(field.dataType, NullType) else StructField(field.name, field.dataType)


def taken_out(
    expressions: Sequence[Expression], is_called: Callable[[Expression], bool], key: Callable[[], str]
) -> tuple[dict[Expression, PlanColumn], list[Expression]]:
    """Return the calls in the subqueries of expressions that need only the outer query, and the expressions with references to these.

    `is_called`: returns whether an expression has such a call. `key`: returns the key of a new column.
    """
    calls: dict[Expression, PlanColumn] = {}

    def placed(node: Expression, level: int = 1) -> Expression | None:
        if not is_called(node) or isinstance(node, SubLink):
            return node
        if not is_of_level(node, level):
            return node if isinstance(node, Case | Coalesce) else None
        call = rewriting.rewrite(node, lambda part: replace(part, levels_up=0) if isinstance(part, ColumnRef) else None)
        if call not in calls:
            calls[call] = PlanColumn("value", node.type, key())
        return replace(reference(calls[call]), levels_up=level)

    def changed(node: Expression) -> Expression | None:
        if not isinstance(node, SubLink) or not isinstance(node.query, Query):
            return None
        query, test = node.query, node.test
        if any(isinstance(part, UserCall) and is_called(part) for part in parts(query)):
            query = _rewritten(query, lambda expression: rewriting.rewrite(expression, placed))
        if test is not None and is_called(test):
            test = rewriting.rewrite(test, lambda part: placed(part, level=0))
        return None if query is node.query and test is node.test else replace(node, query=query, test=test)

    return calls, [rewriting.rewrite(expression, changed) for expression in expressions]


def is_of_level(node: Expression, level: int) -> bool:
    """Return whether an expression has one value for each row of the query around it, so many levels up."""
    nodes = list(walk(node))
    columns = [part for part in nodes if isinstance(part, ColumnRef)]
    if not columns or any(column.levels_up != level for column in columns) or stored_expression.volatile(node):
        return False
    return not any(isinstance(part, SubLink | Aggregate | WindowCall | CaseTest) or builtin.returns_set(part) for part in nodes)


def _rewritten(query: Query, change: _Change) -> Query:
    """Return a query with changed expressions in its SELECT list, WHERE, GROUP BY, HAVING and ORDER BY."""
    body = query.body
    if isinstance(body, SetOperation):
        return replace(query, body=replace(body, left=_rewritten(body.left, change), right=_rewritten(body.right, change)))
    if not isinstance(body, Select):
        return query
    grouped = body.grouped
    if grouped is not None:
        having = None if grouped.having is None else change(grouped.having)
        changed = [(change(aggregate), key) for aggregate, key in grouped.aggregates.items()]
        aggregates = {aggregate: key for aggregate, key in changed if isinstance(aggregate, Aggregate)}
        grouped = replace(grouped, having=having, aggregates=aggregates)
    body = replace(
        body,
        where=None if body.where is None else change(body.where),
        targets=tuple(replace(target, expression=change(target.expression)) for target in body.targets),
        grouped=grouped,
    )
    return replace(query, body=body, sorts=tuple(replace(sort, expression=change(sort.expression)) for sort in query.sorts))
