"""Typed expression → Spark Column with exactly PostgreSQL's meaning, or a refusal (0A000) that names what has none.

The public functions: `compile` (a Column in the storage type of the expression's type), `check` (the refusal alone, without
Spark), `condition`, `sort_key` (ORDER BY), `is_exact` . One short function per node; operators and functions are looked up by
the key of their implementation in the tables of the families (`compile_integer`, `compile_numeric`, `compile_text`, …).

What must hold: nothing is evaluated approximately; errors are PostgreSQL's (see `failure`); a value that a CASE, COALESCE, AND
or OR leaves out cannot fail. The session is expected to run with ANSI mode on and in UTC, as `headgate.storage.spark` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import not_supported
from headgate.expression import (
    builtin,
    compile_aggregate,
    compile_array,
    compile_cast,
    compile_clock,
    compile_document,
    compile_domain,
    compile_enum,
    compile_extract,
    compile_float,
    compile_format,
    compile_integer,
    compile_literal,
    compile_network,
    compile_number,
    compile_numeric,
    compile_octets,
    compile_regex,
    compile_row,
    compile_set,
    compile_string,
    compile_system,
    compile_text,
    compile_time,
    compile_window,
    compile_zone,
)
from headgate.expression import node as n
from headgate.expression.compile_collect import Ordering
from headgate.expression.compile_comparison import COMPARISONS, comparable, equal_keys, less
from headgate.expression.session_time import SessionTime, planning
from headgate.expression.value import BOOL, Env, Make, Value, after, missing, refuse, rep_of, settle, spark_type
from headgate.types import array as arrays
from headgate.types import registry

Builder = Callable[[n.Expression, Sequence[Value]], Value]
BUILDERS: dict[str, Builder] = {
    **COMPARISONS,
    **compile_integer.BUILDERS,
    **compile_float.BUILDERS,
    **compile_numeric.BUILDERS,
    **compile_text.BUILDERS,
    **compile_regex.BUILDERS,
    **compile_clock.BUILDERS,
    **compile_extract.BUILDERS,
    **compile_time.BUILDERS,
    **compile_zone.BUILDERS,
    **compile_format.BUILDERS,
    **compile_cast.BUILDERS,
    **compile_number.BUILDERS,
    **compile_string.BUILDERS,
    **compile_array.BUILDERS,
    **compile_document.BUILDERS,
    **compile_network.BUILDERS,
    **compile_octets.BUILDERS,
    **compile_system.BUILDERS,
    **compile_enum.BUILDERS,
}
_SILENT = frozenset(COMPARISONS) | {
    "textcat", "textlen", "lower", "upper", "btrim", "btrim1", "ltrim", "ltrim1", "rtrim", "rtrim1", "replace_text", "text_reverse",
    "textlike", "textnlike", "texticlike", "texticnlike", "like_escape", "int4_numeric", "int8_numeric", "int2_numeric", "i2toi4",
    "int28", "int48", "i2tod", "i4tod", "i8tod", "ftod", "booltext", "bool_int4", "int4_bool", "date_timestamp", "text_left",
    "text_right", "textpos", "text_starts_with", "md5_text", "bpcharlen", "textoctetlen",
}  # fmt: skip
"""Functions that never raise (but their operands may)."""
_LIKES = frozenset({"textlike", "textnlike", "texticlike", "texticnlike"})
"""Silent if the pattern is a constant."""
_WHOLE = frozenset(compile_text.BUILDERS) - _SILENT | {
    "btrim", "btrim1", "ltrim", "ltrim1", "rtrim", "rtrim1", "replace_text", "text_left", "text_right",
}  # fmt: skip
"""Functions built of parts that do not all hand a NULL on, so that it is looked for first."""
_RIGHT_FIRST = frozenset(key for key in BUILDERS if "div" in key or "mod" in key)
"""Functions of which Spark evaluates the right operand first."""
C_COLLATIONS = frozenset({0, 100, 950, 951, 12628})
_ORDER_FREE = frozenset({"texteq", "textne", "bpchareq", "bpcharne", "nameeq", "namene", "textcat", "textlen", "textlike", "textnlike"})


def compile(  # noqa: A001
    expression: n.Expression,
    columns: Mapping[str, Column],
    session: SessionTime | None = None,
    *,
    needed: Column | None = None,
) -> Column:
    """The Column of the expression, in the storage type of its type; `columns` by ColumnRef.key. 0A000 for what has no exact form.

    Without a `session`, what depends on its TimeZone or the current date is refused. With `needed`, the value counts only where that is
    true: the caller takes it under F.when(needed, …), and it fails nowhere else.
    """
    with planning(session):
        value = compile_cast.stored(plan(expression), expression.type)
    return settle(value)(Env(columns, needed))


def check(expression: n.Expression, session: SessionTime | None = None) -> None:
    """Raises what `compile` would refuse; needs no Spark."""
    with planning(session):
        compile_cast.stored(plan(expression), expression.type)


def condition(expression: n.Expression, columns: Mapping[str, Column], session: SessionTime | None = None) -> Column:
    """The Column of a WHERE, in which NULL counts as false."""
    return F.coalesce(compile(expression, columns, session), F.lit(False))


def sort_key(expression: n.Expression, columns: Mapping[str, Column], session: SessionTime | None = None) -> Column:
    """A Column that orders, groups and joins as PostgreSQL orders the expression's type (1.0 and 1.00 are equal)."""
    with planning(session):
        value = plan(expression)
        key = compile_row.key(value) if value.fields else equal_keys(value, expression.type)
    return settle(key)(Env(columns))


def set_of(expression: n.FuncExpr, session: SessionTime | None = None) -> compile_set.Set:
    """The rows of a set-returning call."""
    with planning(session):
        return compile_set.build(expression, [plan(each) for each in expression.args])


def supported() -> dict[str, list[str]]:
    """The operators and functions that are compiled, as signatures: for docs/compatibility.md."""
    from headgate.types.registry import format_type

    tables = builtin.builtins()
    listed: dict[str, list[str]] = {"operators": [], "functions": [], "aggregates": []}
    for operator in tables.operators.values():
        if tables.functions[operator.function].key in BUILDERS:
            left = f"{format_type(operator.left)} " if operator.left else ""
            listed["operators"].append(f"{left}{operator.name} {format_type(operator.right)}")
    for function in tables.functions.values():
        shown = f"{function.name}({', '.join(format_type(each) for each in function.arguments)})"
        if function.kind == "a":
            if compile_aggregate.compiled(function):
                listed["aggregates"].append(shown)
        elif function.key in BUILDERS:
            listed["functions"].append(shown)
    return {kind: sorted(set(each)) for kind, each in listed.items()}


def plan(expression: n.Expression) -> Value:
    """The planned value of a node."""
    handler = _NODES.get(type(expression))
    if handler is None:
        raise not_supported(f"expressions of the form {type(expression).__name__} are not supported")
    return handler(expression)


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


def _const(node: n.Const) -> Value:
    return compile_literal.constant(node)


def _param(node: n.Param) -> Value:
    raise not_supported("parameters must be replaced by their values before an expression is compiled")


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    """A call of a function over planned arguments.

    Spark skips an operand once an earlier one is NULL; PostgreSQL evaluates all of them first, and so raises what they raise: an
    operand that may raise is looked at before the call. A constant NULL makes a strict call NULL before anything is evaluated.
    """
    found = builtin.function(function)
    builder = BUILDERS.get(found.key)
    if builder is None:
        shown = registry.format_type
        raise refuse(f"function {found.name}({', '.join(shown(each) for each in found.arguments)})")
    value = builder(node, args)
    if not found.strict:
        return value
    if any(each.is_null for each in args):
        return Value(value.rep, lambda env: F.lit(None).cast(spark_type(value.rep)), is_null=True)
    if found.key in _WHOLE:
        watched = [settle(each) for each in args]
    else:
        raisers = [place for place, operand in enumerate(operands) if _may_raise(operand)]
        late = raisers and (raisers[-1] > 0 or found.key in _RIGHT_FIRST)
        watched = [settle(args[place]) for place in raisers] if late else []
    if not watched or value.rep.name == "digits" or value.raw is not None:
        return value
    return replace(value, make=lambda env: F.when(missing(watched, env) > 0, F.lit(None)).otherwise(value.make(env)))


def _may_raise(operand: n.Expression) -> bool:
    for each in n.walk(operand):
        if isinstance(each, (n.FuncExpr, n.OpExpr)):
            function = each.function if isinstance(each, n.FuncExpr) else builtin.operator(each.operator).function
            key = builtin.function(function).key
            if key not in _SILENT or (key in _LIKES and not isinstance(each.args[1], n.Const)):
                return True
        elif isinstance(each, n.CoerceViaIO):
            return True
    return False


def _check_collation(node: n.Expression, function: int, args: Sequence[n.Expression]) -> None:
    if builtin.function(function).key in _ORDER_FREE:
        return
    for each in args:
        if each.type.collation not in C_COLLATIONS:
            name = builtin.builtins().collation_names.get(each.type.collation, str(each.type.collation))
            raise not_supported(f'collation "{name}" is not supported: only text in the order of its bytes can be compared exactly')


def _call(node: n.FuncExpr) -> Value:
    _check_collation(node, node.function, node.args)
    args = [plan(each) for each in node.args]
    return apply(node.function, node, node.args, args)


def _operation(node: n.OpExpr) -> Value:
    operator = builtin.operator(node.operator)
    _check_collation(node, operator.function, node.args)
    if builtin.function(operator.function).key not in BUILDERS:
        left = f"{registry.format_type(operator.left)} " if operator.left else ""
        raise refuse(f"operator {left}{operator.name} {registry.format_type(operator.right)}")
    return apply(operator.function, node, node.args, [plan(each) for each in node.args])


def _with(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    function = builtin.operator(operator).function
    _check_collation(node, function, operands)
    called = n.OpExpr(type=n.BOOLEAN, operator=operator, args=tuple(operands), location=node.location)
    return apply(function, called, operands, args)


def _distinct(node: n.Distinct) -> Value:
    left, right = (plan(each) for each in node.args)
    same = _with(node.operator, node, node.args, (left, right))

    def make(env: Env) -> Column:
        a, b = settle(left)(env), settle(right)(env)
        both = F.isnull(a) & F.isnull(b)
        either = F.isnull(a) | F.isnull(b)
        return F.when(both, F.lit(False)).when(either, F.lit(True)).otherwise(~same.make(env))

    return Value(BOOL, make)


def _null_if(node: n.NullIf) -> Value:
    left, right = (plan(each) for each in node.args)
    same = _with(node.operator, node, node.args, (left, right))
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
        return Value(BOOL, lambda env: F.when(F.isnull(settle(left)(env)), F.lit(not node.any)).otherwise(F.lit(not node.any)))
    planned = [plan(each) for each in items]
    tests = [_with(node.operator, node, (left_node, item), (left, value)) for item, value in zip(items, planned, strict=True)]
    chain = _chain(tests, n.BoolKind.OR if node.any else n.BoolKind.AND)
    raisers = [settle(value) for item, value in zip(items, planned, strict=True) if _may_raise(item)]
    unseen = any(each.is_null for each in planned) and _may_raise(left_node)
    return after([settle(left), *raisers], chain) if raisers or unseen else chain


def _items(array: n.Expression) -> list[n.Expression] | None:
    """The elements of an array that the expression itself writes out; None for any other."""
    if isinstance(array, n.ArrayExpr) and not array.nested:
        return list(array.elements)
    if isinstance(array, (n.Relabel, n.ArrayCoerce)) and isinstance(array.arg, n.ArrayExpr) and not array.arg.nested:
        function = 0 if isinstance(array, n.Relabel) else array.function
        kind = n.TypeRef(registry.by_oid(array.type.oid).element, -1, array.type.collation)
        if function == 0:
            return [n.Relabel(type=kind, arg=each, form=array.form) for each in array.arg.elements]
        if function > 0 and len(builtin.function(function).arguments) == 1:
            return [n.FuncExpr(type=kind, function=function, args=(each,), form=array.form) for each in array.arg.elements]
    if isinstance(array, n.Const) and array.value is not None:
        kind = n.TypeRef(registry.by_oid(array.type.oid).element, -1, array.type.collation)
        return [n.Const(type=kind, value=each) for each in arrays.parts(array.value)[1]]
    return None


def _array(node: n.ArrayExpr) -> Value:
    return compile_array.constructed(node, [plan(each) for each in node.elements])


def _array_coerce(node: n.ArrayCoerce) -> Value:
    return compile_array.coerced(node, plan(node.arg))


def _subscript(node: n.Subscript) -> Value:
    lower = [None if each is None else plan(each) for each in node.lower]
    upper = [None if each is None else plan(each) for each in node.upper]
    if node.arg.type.oid == registry.JSONB:
        return compile_document.subscripted(plan(node.arg), upper)
    return compile_array.subscripted(node, plan(node.arg), lower, upper)


def _boolean(node: n.BoolExpr) -> Value:
    args = [plan(each) for each in node.args]
    if node.kind is n.BoolKind.NOT:
        return Value(BOOL, lambda env: ~args[0].make(env))
    return _chain(args, node.kind)


def _chain(args: Sequence[Value], kind: n.BoolKind) -> Value:
    """AND or OR from left to right: an operand counts only where those before it have not decided."""

    def make(env: Env) -> Column:
        made = args[0].make(env)
        for each in args[1:]:
            if kind is n.BoolKind.AND:
                made = made & each.make(env.under(F.coalesce(made, F.lit(True))))
            else:
                made = made | each.make(env.under(~F.coalesce(made, F.lit(False))))
        return made

    return Value(BOOL, make)


def _relabel(node: n.Relabel) -> Value:
    return compile_cast.relabel(plan(node.arg), node)


def _via_text(node: n.CoerceViaIO) -> Value:
    return compile_cast.via_text(plan(node.arg), node.arg.type, node.type)


def _collate(node: n.Collate) -> Value:
    return plan(node.arg)


_case_value: ContextVar[Value] = ContextVar("case_value")
"""What the CASE that is being planned tests; sessions plan at the same time."""


def _case(node: n.Case) -> Value:
    token = _case_value.set(plan(node.arg)) if node.arg is not None else None
    try:
        conditions = [plan(each) for each in node.conditions]
    finally:
        if token is not None:
            _case_value.reset(token)
    branches = compile_numeric.unify([*(plan(each) for each in node.results), plan(node.default)])

    def make(env: Env) -> Column:
        made: Any = F
        reached = env
        for test, branch in zip(conditions, branches, strict=False):
            met = F.coalesce(test.make(reached), F.lit(False))
            made = made.when(met, branch.make(reached.under(met)))
            reached = reached.under(~met)
        column: Column = made.otherwise(branches[-1].make(reached))
        return column

    return Value(branches[0].rep, make, any(each.fallible for each in branches))


def _case_test(node: n.CaseTest) -> Value:
    return _case_value.get()


def _coalesce(node: n.Coalesce) -> Value:
    args = compile_numeric.unify([plan(each) for each in node.args])

    def make(env: Env) -> Column:
        made = [args[0].make(env)]
        for each in args[1:]:
            env = env.under(F.isnull(made[-1]))
            made.append(each.make(env))
        return F.coalesce(*made)

    return Value(args[0].rep, make, any(each.fallible for each in args))


def _min_max(node: n.MinMax) -> Value:
    for each in node.args:
        if each.type.collation not in C_COLLATIONS:
            raise refuse("GREATEST and LEAST under a collation other than C")
    args = compile_numeric.unify([plan(each) for each in node.args])
    comparable(node.type.oid)

    def make(env: Env) -> Column:
        best = args[0]
        for each in args[1:]:
            best = _better(best, each, node)
        return best.make(env)

    return Value(args[0].rep, make, any(each.fallible for each in args))


def _better(best: Value, other: Value, node: n.MinMax) -> Value:
    def make(env: Env) -> Column:
        a, b = best.make(env), other.make(env)
        oid = node.type.oid
        prefer = less(other, best, oid) if not node.greatest else less(best, other, oid)
        return F.when(F.isnull(a), b).when(F.isnull(b), a).when(prefer.make(env), b).otherwise(a)

    return Value(best.rep, make, best.fallible or other.fallible)


def _row(node: n.RowExpr) -> Value:
    present = plan(node.present) if node.present is not None else None
    return compile_row.build(node, [plan(each) for each in node.args], present)


def _null_test(node: n.NullTest) -> Value:
    if isinstance(node.arg, n.RowExpr):
        return compile_row.null_test(plan(node.arg), is_null=node.is_null)
    arg = settle(plan(node.arg))
    return Value(BOOL, (lambda env: F.isnull(arg(env))) if node.is_null else (lambda env: F.isnotnull(arg(env))))


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
    """Field by field: the first that is NULL or differs decides; the last decides by the operator itself (manual, 9.24.5)."""
    left, right = [plan(each) for each in node.left], [plan(each) for each in node.right]
    steps = []
    for place, operator in enumerate(node.operators):
        operands = (node.left[place], node.right[place])
        steps.append(_with(operator, node, operands, (left[place], right[place])))
    strict = {1: 1, 2: 1, 4: 5, 5: 5}[node.strategy]
    decided = []
    for place, operator in enumerate(node.operators):
        family = {strategy: oid for oid, rows in builtin.builtins().families.items() for row_family, strategy in rows
                  if row_family == builtin.builtins().families[operator][0][0]
                  and builtin.operator(oid).left == builtin.operator(operator).left
                  and builtin.operator(oid).right == builtin.operator(operator).right}  # fmt: skip
        operands = (node.left[place], node.right[place])
        decided.append(
            (
                _with(family[3], node, operands, (left[place], right[place])),
                _with(family[strict], node, operands, (left[place], right[place])),
            )
        )

    def make(env: Env) -> Column:
        made = steps[-1].make(env)
        for place in range(len(steps) - 2, -1, -1):
            same, before = (each.make(env) for each in decided[place])
            made = F.when(F.isnull(same), F.lit(None).cast("boolean")).when(same, made).otherwise(before)
        return made

    return Value(BOOL, make)


def _aggregate(node: n.Aggregate) -> Value:
    for each in node.args:
        if each.type.collation not in C_COLLATIONS:
            raise refuse("an aggregate over a collation other than C")
    values = [plan(each) for each in node.args]
    condition = plan(node.filter) if node.filter is not None else None
    order = [Ordering(plan(each), each.type, descending, first) for each, descending, first in node.order]
    return compile_aggregate.build(node, values, condition, order)


def _window(node: n.WindowCall) -> Value:
    args = [plan(each) for each in node.args]
    partition = [plan(each) for each in node.partition]
    order = [Ordering(plan(each), each.type, descending, first) for each, descending, first in node.order]
    condition = plan(node.filter) if node.filter is not None else None
    return compile_window.build(node, args, partition, order, condition)


_NODES: dict[type[n.Expression], Callable[[Any], Value]] = {
    n.ColumnRef: _column,
    n.Const: _const,
    n.Param: _param,
    n.FuncExpr: _call,
    n.OpExpr: _operation,
    n.Distinct: _distinct,
    n.NullIf: _null_if,
    n.ScalarArrayOp: _array_operation,
    n.ArrayExpr: _array,
    n.ArrayCoerce: _array_coerce,
    n.Subscript: _subscript,
    n.BoolExpr: _boolean,
    n.Relabel: _relabel,
    n.DomainCoerce: lambda node: compile_domain.checked(plan(node.arg), node.type.oid, plan),
    n.DomainValue: compile_domain.value,
    n.CoerceViaIO: _via_text,
    n.Collate: _collate,
    n.Case: _case,
    n.CaseTest: _case_test,
    n.Coalesce: _coalesce,
    n.MinMax: _min_max,
    n.RowExpr: _row,
    n.NullTest: _null_test,
    n.BooleanTest: _boolean_test,
    n.RowCompare: _row_comparison,
    n.Aggregate: _aggregate,
    n.WindowCall: _window,
}
