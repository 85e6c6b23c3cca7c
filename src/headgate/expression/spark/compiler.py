"""Compile a typed expression to a Spark Column with exactly PostgreSQL's meaning, or refuse it with 0A000 and the unsupported construct.

The public functions are `compile` (returns a Column in the storage type of the expression's type), `check` (only raises the refusal,
without Spark), `condition` and `sort_key` (for ORDER BY). There is one short function per node. `call` looks up the meaning of an
operator or function in `expression.implementation`.

Invariant: no result is approximate. Errors are PostgreSQL's (`spark.failure`). A value that CASE, COALESCE, AND or OR skips cannot
fail. The session must run with ANSI mode on and in UTC, as `headgate.storage.spark.application` configures it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate import interruption
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, rewriting
from headgate.expression import node as n
from headgate.expression.implementation import array as compile_array
from headgate.expression.implementation import json
from headgate.expression.spark import aggregate, cast, conditional, domain, literal, row_value, set_returning, vectorised, window
from headgate.expression.spark.aggregate_call import Ordering
from headgate.expression.spark.call import apply, by_operator, check_collation, implementation, is_silent, may_raise
from headgate.expression.spark.common_subexpression import bound
from headgate.expression.spark.comparison import C_COLLATIONS, equal_keys, numeric_keys
from headgate.expression.spark.session_time import SessionTime, planning
from headgate.expression.spark.value import BOOL, Env, Guard, Make, Value, after, refuse, rep_of, settle
from headgate.sql.names import quote_ident
from headgate.types import registry
from headgate.types.text import array as arrays

LONG = 1_500
"""Number of nodes of a condition, not counting constants (Spark handles a list of a thousand as one node), from which Spark does not
generate code for it."""


def compile(  # noqa: A001
    expression: n.Expression,
    columns: Mapping[str, Column],
    session: SessionTime | None = None,
    *,
    needed: Column | None = None,
) -> Column:
    """Return the Column of the expression, in the storage type of its type. Raise 0A000 for a construct without an exact form.

    `columns` maps each ColumnRef.key to a Column. Without a `session`, expressions that depend on its TimeZone or the current date are
    refused. With `needed`, the caller uses the value only under F.when(needed, …), and it cannot fail for other rows.
    """
    with planning(session):
        value = cast.stored(plan(expression), expression.type)
    return settle(value)(Env(columns, None if needed is None else Guard(lambda: needed)))


def check(expression: n.Expression, session: SessionTime | None = None) -> None:
    """Raise the error that `compile` would raise for an unsupported expression. Does not need Spark."""
    with planning(session):
        cast.stored(plan(expression), expression.type)


def qual(expression: n.Expression, columns: Mapping[str, Column], session: SessionTime | None = None) -> Column:
    """Return the Column of a WHERE, which keeps the rows for which it is true.

    PostgreSQL stops at the first operand of a top-level AND that is not true, so a NULL hides the errors of the operands after it
    (execExpr.c, ExecInitQual). In an expression, NULL AND x evaluates x, and so does the row filter of a stream. Spark's optimizer splits
    an AND and first evaluates the parts that need no Python. If a condition may raise, the whole AND is therefore hidden from it. Only the
    leading conditions that cannot raise stay visible, because Spark uses them to skip files.
    """
    parts = n.conjuncts(expression)
    node_counts = list(itertools.accumulate(sum(not isinstance(node, n.Const) for node in n.walk(conjunct)) for conjunct in parts))
    with planning(session):
        tests = [plan(conjunct) for conjunct in parts]
        is_long = node_counts[-1] > LONG
        if not is_long and not may_raise(expression):
            return settle(replace(_chain(tests, n.BoolKind.AND), calm=True))(Env(columns))
        every = settle(_chain([_is_true(test) for test in tests], n.BoolKind.AND))
        whole = _interpret(every, columns) if is_long else every(Env(columns))
        leading = itertools.takewhile(lambda index: node_counts[index] <= LONG and not may_raise(parts[index]), range(len(parts)))
        leading_tests = [settle(tests[index])(Env(columns)) for index in leading]
    return functools.reduce(Column.__and__, [*leading_tests, _as_one(whole)])


def _interpret(test: Make, columns: Mapping[str, Column]) -> Column:
    """Return a test that Spark interprets instead of compiling.

    Otherwise Spark would generate Java source of about a kilobyte for each comparison, find that the method exceeds Java's size limit, and
    then interpret the test anyway. For a list of four thousand pairs of keys, that takes half a minute and the whole heap.
    """
    return bound([F.lit(True)], lambda _: test(Env(columns)), long=0)


def _as_one(test: Column) -> Column:
    """Wrap a test that is never NULL, so that Spark's optimizer does not recognize it as an AND."""
    return F.coalesce(F.when(test, F.lit(True)), F.lit(False))


def barrier(test: Column) -> Column:
    """Return a test that rows must pass before any other test is evaluated (security barriers: manual, 41.5).

    Spark's optimizer moves conditions below others that need Python, and through joins, but not past nondeterministic ones. A random number
    would not do, because the optimizer knows that it is not negative. It does not know that of a partition's number.
    """
    return F.coalesce(F.when(F.spark_partition_id() >= 0, test), F.lit(False))


def _is_true(test: Value) -> Value:
    """Return False instead of NULL, because Spark's AND evaluates the right operand if the left one is NULL."""
    return Value(BOOL, lambda env: F.coalesce(test.make(env), F.lit(False)))


def condition(expression: n.Expression, columns: Mapping[str, Column], session: SessionTime | None = None) -> Column:
    """Return the Column of a WHERE (`qual`) with NULL replaced by false."""
    return F.coalesce(qual(expression, columns, session), F.lit(False))


def sort_key(expression: n.Expression, columns: Mapping[str, Column], session: SessionTime | None = None) -> Column:
    """Return a Column that orders, groups and joins as PostgreSQL orders the expression's type (1.0 and 1.00 are equal)."""
    with planning(session):
        key = row_value.sort_key(plan(expression), expression.type)
    return settle(key)(Env(columns))


def join_keys(
    left: n.Expression,
    left_columns: Mapping[str, Column],
    right: n.Expression,
    right_columns: Mapping[str, Column],
    session: SessionTime | None = None,
) -> tuple[Column, Column]:
    """Return two Columns that are equal exactly if the two values, of one type, are. Each is over the columns of its own side."""
    with planning(session):
        left_key, right_key = plan(left), plan(right)
        if left.type.oid == registry.NUMERIC:
            left_key, right_key = numeric_keys(left_key, right_key)
        else:
            left_key, right_key = equal_keys(left_key, left.type), equal_keys(right_key, right.type)
    return settle(left_key)(Env(left_columns)), settle(right_key)(Env(right_columns))


def set_of(expression: n.FuncExpr, session: SessionTime | None) -> set_returning.Set:
    with planning(session):
        return set_returning.build(expression, [plan(arg) for arg in expression.args])


def has_form(node: n.Expression) -> bool:
    """Return whether Spark has a form of the function that a node calls. True for a node that calls none."""
    match node:
        case n.FuncExpr() if builtin.function(node.function).retset:
            return set_returning.has_form(node)
        case n.FuncExpr():
            return implementation(node.function) is not None
        case n.OpExpr() | n.ScalarArrayOp() | n.Distinct() | n.NullIf():
            return implementation(builtin.operator(node.operator).function) is not None
        case n.Aggregate():
            return aggregate.compiled(builtin.function(node.function))
        case n.WindowCall():
            return window.compiled(builtin.function(node.function))
        case _:
            return True


DEEPEST = 64
"""Maximum nesting depth of nodes. An operand that may raise is bound by a lambda, so that it is computed once. For each nested lambda,
Spark's analyzer, which cannot be cancelled, traverses the whole expression: a second for 20 of them, five for 64, a minute for 200."""
_depth: ContextVar[int] = ContextVar("nodes above the one that is planned", default=0)


def plan(expression: n.Expression) -> Value:
    """Return the planned value of a node. Raise 54001 if it is nested too deeply."""
    interruption.check()
    handler = _NODES.get(type(expression))
    if handler is None:
        raise not_supported(f"expressions of the form {type(expression).__name__} are not supported")
    above = _depth.get()
    if above == DEEPEST:
        hint = f"At most {DEEPEST} operators and functions may stand in each other where rows are computed by Spark."
        raise PostgresError("54001", "stack depth limit exceeded", hint=hint)
    token = _depth.set(above + 1)
    try:
        value = handler(expression)
    finally:
        _depth.reset(token)
    return value if value.calm or may_raise(expression) else replace(value, calm=True)


def _column(node: n.ColumnRef) -> Value:
    if node.attnum < 0:
        raise not_supported(f"system column {node.name} is not supported")
    if node.attnum == 0 and node.key.endswith(".*"):
        raise not_supported("whole-row references are not supported")
    key, name = node.key, node.name

    def make(env: Env) -> Column:
        if key not in env.columns:
            raise KeyError(f"no column for {name!r} (key {key!r})")
        return env.columns[key]

    return Value(rep_of(node.type.oid, node.type.typmod), make)


def _param(node: n.Param) -> Value:
    raise not_supported("parameters must be replaced by their values before an expression is compiled")


def _call(node: n.FuncExpr) -> Value:
    check_collation(node.function, node.args)
    args = [plan(arg) for arg in node.args]
    return apply(node.function, node, node.args, args)


def _user_call(node: n.UserCall) -> Value:
    """Compile a function that a user made: its body in its place, or its interpreter in Spark's tasks."""
    if node.body is not None:
        return plan(rewriting.inlined(node))
    if node.compute.needs_session:
        raise not_supported(f"calling the function {quote_ident(node.name)} here for each row is not supported",
                            detail="It does more than compute: it runs statements, sends messages, or needs the session.")  # fmt: skip
    return vectorised.call(node.compute, rep_of(node.type.oid), [plan(argument) for argument in node.args], strict=node.strict, whole=True)


def _operation(node: n.OpExpr) -> Value:
    operator = builtin.operator(node.operator)
    check_collation(operator.function, node.args)
    if implementation(operator.function) is None:
        left = f"{registry.format_type(operator.left)} " if operator.left else ""
        raise refuse(f"operator {left}{operator.name} {registry.format_type(operator.right)}")
    return apply(operator.function, node, node.args, [plan(arg) for arg in node.args])


def _distinct(node: n.Distinct) -> Value:
    left, right = (plan(arg) for arg in node.args)
    same = by_operator(node.operator, node, node.args, (left, right))

    def make(env: Env) -> Column:
        a, b = settle(left)(env), settle(right)(env)
        both = F.isnull(a) & F.isnull(b)
        either = F.isnull(a) | F.isnull(b)
        return F.when(both, F.lit(False)).when(either, F.lit(True)).otherwise(~same.make(env))

    return Value(BOOL, make)


def _null_if(node: n.NullIf) -> Value:
    left, right = (plan(arg) for arg in node.args)
    same = by_operator(node.operator, node, node.args, (left, right))
    return Value(
        left.rep, lambda env: F.when(F.coalesce(same.make(env), F.lit(False)), F.lit(None)).otherwise(left.make(env)), left.fallible
    )


def _array_operation(node: n.ScalarArrayOp) -> Value:
    left_node, array_node = node.args
    left = plan(left_node)
    items = _items(array_node)
    if items is None:
        return compile_array.quantified(node, left, plan(array_node))
    if not items:
        decided = Value(BOOL, lambda env: F.lit(not node.any))
        return after([settle(left)], decided) if may_raise(left_node) else decided
    planned = [plan(element) for element in items]
    chain = compile_array.listed(node, left, planned)
    if chain is None:
        tests = [by_operator(node.operator, node, (left_node, item), (left, value)) for item, value in zip(items, planned, strict=True)]
        guarded = not is_silent(builtin.operator(node.operator).function)
        chain = _chain(tests, n.BoolKind.OR if node.any else n.BoolKind.AND, guarded=guarded)
    raisers = [settle(value) for item, value in zip(items, planned, strict=True) if may_raise(item)]
    is_skipped = any(planned_item.is_null for planned_item in planned) and may_raise(left_node)
    return after([settle(left), *raisers], chain) if raisers or is_skipped else chain


def _items(array: n.Expression) -> list[n.Expression] | None:
    """Return the elements of an array constructor or array constant, or None for any other expression."""
    if isinstance(array, n.ArrayExpr) and not array.nested:
        return list(array.elements)
    if isinstance(array, (n.Relabel, n.ArrayCoerce)) and isinstance(array.arg, n.ArrayExpr) and not array.arg.nested:
        function = 0 if isinstance(array, n.Relabel) else array.function
        kind = n.TypeRef(registry.by_oid(array.type.oid).element, -1, array.type.collation)
        if function == 0:
            return [n.Relabel(type=kind, arg=element, form=array.form) for element in array.arg.elements]
        if function > 0 and len(builtin.function(function).arguments) == 1:
            return [n.FuncExpr(type=kind, function=function, args=(element,), form=array.form) for element in array.arg.elements]
    if isinstance(array, n.Const) and array.value is not None:
        kind = n.TypeRef(registry.by_oid(array.type.oid).element, -1, array.type.collation)
        return [n.Const(type=kind, value=element) for element in arrays.parts(array.value)[1]]
    return None


def _array(node: n.ArrayExpr) -> Value:
    return compile_array.constructed(node, [plan(element) for element in node.elements])


def _subscript(node: n.Subscript) -> Value:
    lower = [None if bound is None else plan(bound) for bound in node.lower]
    upper = [None if bound is None else plan(bound) for bound in node.upper]
    if node.arg.type.oid == registry.JSONB:
        return json.subscripted(plan(node.arg), upper)
    if node.arg.type.oid == registry.NAME:
        raise not_supported("a subscript of a name is not supported")
    return compile_array.subscripted(node, plan(node.arg), lower, upper)


def _subscript_store(node: n.SubscriptStore) -> Value:
    lower = [None if bound is None else plan(bound) for bound in node.lower]
    upper = [None if bound is None else plan(bound) for bound in node.upper]
    return compile_array.stored(node, plan(node.arg), lower, upper, plan(node.value))


def _field_store(node: n.FieldStore) -> Value:
    composite = row_value.composite(node.type)
    assert composite is not None
    return row_value.with_attribute(plan(node.arg), composite, node.name, plan(node.value), node.value.type)


def _boolean(node: n.BoolExpr) -> Value:
    args = [plan(arg) for arg in node.args]
    if node.kind is n.BoolKind.NOT:
        return Value(BOOL, lambda env: ~args[0].make(env))
    return _chain(args, node.kind)


def _chain(args: Sequence[Value], kind: n.BoolKind, *, guarded: bool = True) -> Value:
    """Combine operands by AND or OR from left to right. If `guarded`, an operand counts only if those before it have not decided.

    The operands form a balanced tree, because a tree with a thousand levels takes Spark's optimizer minutes and all its memory.
    """

    def open_(before: Column) -> Column:
        return F.coalesce(before, F.lit(True)) if kind is n.BoolKind.AND else ~F.coalesce(before, F.lit(False))

    def make(env: Env) -> Column:
        operands = [args[0].make(env)]
        for arg in args[1:]:
            interruption.check()
            if guarded:
                env = env.under(functools.partial(open_, operands[-1]))
            operands.append(arg.make(env))
        while len(operands) > 1:
            pairs = [operands[index : index + 2] for index in range(0, len(operands), 2)]
            operands = [_connect(pair, kind) for pair in pairs]
        return operands[0]

    return Value(BOOL, make)


def _connect(pair: Sequence[Column], kind: n.BoolKind) -> Column:
    interruption.check()
    return functools.reduce(Column.__and__ if kind is n.BoolKind.AND else Column.__or__, pair)


def _relabel(node: n.Relabel) -> Value:
    return cast.relabel(plan(node.arg), node)


def _collate(node: n.Collate) -> Value:
    return plan(node.arg)


def _row(node: n.RowExpr) -> Value:
    present = plan(node.present) if node.present is not None else None
    return row_value.build(node, [plan(arg) for arg in node.args], present)


def _null_test(node: n.NullTest) -> Value:
    if isinstance(node.arg, n.RowExpr):
        return row_value.null_test(plan(node.arg), is_null=node.is_null)
    composite = row_value.composite(node.arg.type)
    if composite is not None:
        return row_value.composite_null_test(plan(node.arg), composite, is_null=node.is_null)
    arg = settle(plan(node.arg))
    return Value(BOOL, (lambda env: F.isnull(arg(env))) if node.is_null else (lambda env: F.isnotnull(arg(env))))


def _row_coerce(node: n.RowCoerce) -> Value:
    value = plan(node.arg)
    return row_value.of_composite(node.arg, value) if row_value.composite(node.type) is not None else value


def _field_select(node: n.FieldSelect) -> Value:
    if isinstance(node.arg, n.RowExpr) and node.name in node.arg.names:
        return plan(node.arg.args[node.arg.names.index(node.name)])
    composite = row_value.composite(node.arg.type)
    if composite is None:
        raise not_supported("a field of a row is not supported")
    return row_value.attribute(plan(node.arg), composite, node.name, node.type)


def _boolean_test(node: n.BooleanTest) -> Value:
    arg = plan(node.arg).make
    tests: dict[n.TestKind, Make] = {
        n.TestKind.TRUE: lambda env: F.coalesce(arg(env), F.lit(False)),
        n.TestKind.NOT_TRUE: lambda env: ~F.coalesce(arg(env), F.lit(False)),
        n.TestKind.FALSE: lambda env: ~F.coalesce(arg(env), F.lit(True)),
        n.TestKind.NOT_FALSE: lambda env: F.coalesce(arg(env), F.lit(True)),
        n.TestKind.UNKNOWN: lambda env: F.isnull(arg(env)),
        n.TestKind.NOT_UNKNOWN: lambda env: F.isnotnull(arg(env)),
    }
    return Value(BOOL, tests[node.kind])


def _row_comparison(node: n.RowCompare) -> Value:
    """Compare field by field: the first pair that is NULL or differs decides, the last by the operator itself (manual, 9.24.5)."""
    left, right = [plan(field) for field in node.left], [plan(field) for field in node.right]
    steps = []
    for index, operator in enumerate(node.operators):
        operands = (node.left[index], node.right[index])
        steps.append(by_operator(operator, node, operands, (left[index], right[index])))
    strict = {1: 1, 2: 1, 4: 5, 5: 5}[node.strategy]
    comparisons = []
    for index, operator in enumerate(node.operators):
        family = {strategy: oid for oid, rows in builtin.builtins().families.items() for row_family, strategy in rows
                  if row_family == builtin.builtins().families[operator][0][0]
                  and builtin.operator(oid).left == builtin.operator(operator).left
                  and builtin.operator(oid).right == builtin.operator(operator).right}  # fmt: skip
        operands = (node.left[index], node.right[index])
        comparisons.append(
            (
                by_operator(family[3], node, operands, (left[index], right[index])),
                by_operator(family[strict], node, operands, (left[index], right[index])),
            )
        )

    def make(env: Env, index: int = 0) -> Column:
        if index == len(comparisons) - 1:
            return steps[-1].make(env)
        same, before = (test.make(env) for test in comparisons[index])
        later_fields = make(env.under(lambda: F.coalesce(same, F.lit(False))), index + 1)
        return F.when(F.isnull(same), F.lit(None).cast("boolean")).when(same, later_fields).otherwise(before)

    return Value(BOOL, make)


def _aggregate(node: n.Aggregate) -> Value:
    for arg in node.args:
        if arg.type.collation not in C_COLLATIONS:
            raise refuse("an aggregate over a collation other than C")
    values = [plan(arg) for arg in node.args]
    condition = plan(node.filter) if node.filter is not None else None
    order = [Ordering(plan(item), item.type, descending, first) for item, descending, first in node.order]
    return aggregate.build(node, values, condition, order)


def _window(node: n.WindowCall) -> Value:
    args = [plan(arg) for arg in node.args]
    partition = [plan(item) for item in node.partition]
    order = [Ordering(plan(item), item.type, descending, first) for item, descending, first in node.order]
    condition = plan(node.filter) if node.filter is not None else None
    return window.build(node, args, partition, order, condition)


_NODES: dict[type[n.Expression], Callable[[Any], Value]] = {
    n.ColumnRef: _column,
    n.Const: literal.constant,
    n.Param: _param,
    n.FuncExpr: _call,
    n.UserCall: _user_call,
    n.OpExpr: _operation,
    n.Distinct: _distinct,
    n.NullIf: _null_if,
    n.ScalarArrayOp: _array_operation,
    n.ArrayExpr: _array,
    n.ArrayCoerce: lambda node: compile_array.coerced(node, plan(node.arg)),
    n.Subscript: _subscript,
    n.SubscriptStore: _subscript_store,
    n.BoolExpr: _boolean,
    n.Relabel: _relabel,
    n.DomainCoerce: lambda node: domain.checked(plan(node.arg), node.type.oid, plan),
    n.DomainValue: domain.value,
    n.CoerceViaIO: lambda node: cast.via_text(plan(node.arg), node.arg.type, node.type),
    n.Collate: _collate,
    n.Case: lambda node: conditional.case(node, plan),
    n.CaseTest: conditional.case_test,
    n.Coalesce: lambda node: conditional.coalesce(node, plan),
    n.MinMax: lambda node: conditional.min_max(node, plan),
    n.RowExpr: _row,
    n.RowCoerce: _row_coerce,
    n.FieldSelect: _field_select,
    n.FieldStore: _field_store,
    n.NullTest: _null_test,
    n.BooleanTest: _boolean_test,
    n.RowCompare: _row_comparison,
    n.Aggregate: _aggregate,
    n.WindowCall: _window,
}
