"""Typed expression → DuckDB's SQL, one short function per node.

Called by `commands.query.catalog` for every expression of a query on the catalogs. Columns are written as their keys; what depends on the
session, on parameters or on subqueries the `Env` gives. A node, function or type without an exact form is 0A000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.errors import PostgresError
from headgate.expression import builtin, rewriting
from headgate.expression import node as n
from headgate.expression.duckdb import aggregate, call, cast, comparison, literal, set_returning, window
from headgate.expression.duckdb.value import (
    Env,
    base_of,
    duckdb_type,
    element_of,
    fields,
    null,
    quote,
    raised,
    refuse,
    scale,
    zero_based,
)
from headgate.interruption import look
from headgate.types import registry as t


def compile(expression: n.Expression, env: Env) -> str:  # noqa: A001 (as the other compiler's)
    """The SQL of an expression."""
    look()
    handler = _NODES.get(type(expression))
    if handler is None:
        raise refuse(f"an expression of the form {type(expression).__name__}", expression)
    return handler(expression, env)


def sort_key(expression: n.Expression, env: Env) -> str:
    """SQL that orders, and is equal, as the expression's values are in PostgreSQL."""
    return comparison.sort_key(expression, compile(expression, env), env)


def check_order(expression: n.Expression, env: Env) -> None:
    """0A000 for what DuckDB does not order as PostgreSQL does."""
    comparison.sort_key(expression, "", env)


def _column(node: n.ColumnRef, env: Env) -> str:
    if node.attnum:
        return node.key
    if node.key not in env.rows:
        raise refuse("a reference to this whole row", node)
    return _struct([(each.name, each.key) for each in env.rows[node.key]])


def _struct(parts: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{quote(name)}: {sql}" for name, sql in parts) + "}" if parts else "NULL"


def _parameter(node: n.Param, env: Env) -> str:
    return literal.constant(env.parameter(node), env)


def _call(node: n.FuncExpr, env: Env) -> str:
    found = builtin.function(node.function)
    given = env.session_call(node)
    if given is not None:
        return given
    if found.retset:
        return set_returning.unnested(node, [compile(each, env) for each in node.args], env)
    args = [compile(each, env) for each in node.args]
    if node.function in cast.functions():
        return cast.by_function(node, args, env)
    return call.apply(node.function, node, node.args, args, env)


def _operation(node: n.OpExpr, env: Env) -> str:
    return call.operate(node.operator, node, node.args, [_operand(each, env) for each in node.args], env)


def _operand(node: n.Expression, env: Env) -> str:
    """An operand; what like_escape makes of a pattern, `call` reads itself."""
    if isinstance(node, n.FuncExpr) and builtin.function(node.function).key == "like_escape":
        return compile(node.args[0], env)
    return compile(node, env)


def _distinct(node: n.Distinct, env: Env) -> str:
    a, b = (compile(each, env) for each in node.args)
    call.operate(node.operator, node, node.args, [a, b], env)
    if base_of(node.args[0].type.oid) == t.BPCHAR:
        a, b = f"rtrim({a}, ' ')", f"rtrim({b}, ' ')"
    return f"({a} IS DISTINCT FROM {b})"


def _null_if(node: n.NullIf, env: Env) -> str:
    args = [compile(each, env) for each in node.args]
    return f"CASE WHEN {call.operate(node.operator, node, node.args, args, env)} THEN {null(node.type.oid)} ELSE {args[0]} END"


def _array_operation(node: n.ScalarArrayOp, env: Env) -> str:
    left, array = node.args
    if isinstance(array, n.ArrayCoerce) and array.function == 0 and isinstance(array.arg, n.ArrayExpr) and not array.arg.nested:
        kind = n.TypeRef(element_of(array.type.oid) or t.TEXT, -1, array.type.collation)
        items = tuple(n.Relabel(type=kind, arg=each, form=array.form) for each in array.arg.elements)
        array = n.ArrayExpr(type=array.type, elements=items)
    name = builtin.operator(node.operator).name
    if isinstance(array, n.ArrayExpr) and not array.nested:
        return _listed(node, left, array, name, env)
    element = n.ColumnRef(type=n.TypeRef(element_of(array.type.oid) or t.TEXT, -1, array.type.collation), name="x", attnum=1, key="x")
    a, listed = compile(left, env), compile(array, env)
    if isinstance(array, n.Const) and array.value == "{}":
        return _of_nothing(a, node)
    each = call.operate(node.operator, node, (left, element), (a, "x"), env)
    if name == ("=" if node.any else "<>") and base_of(left.type.oid) != t.BPCHAR:
        return _contained(a, listed, node)
    if name in comparison.OPERATORS and base_of(left.type.oid) != t.BPCHAR:
        return f"CASE WHEN {listed} IS NOT NULL THEN {a} {name} {'ANY' if node.any else 'ALL'} ({listed}) END"  # NULL is no empty list
    tests = f"list_transform({listed}, lambda x: {each})"
    decided = "TRUE" if node.any else "FALSE"
    return (
        f"CASE WHEN {listed} IS NULL THEN NULL WHEN list_contains({tests}, {decided}) THEN {decided}"
        f" WHEN list_count({tests}) < len({tests}) THEN NULL ELSE NOT {decided} END"
    )


def _of_nothing(a: str, node: n.ScalarArrayOp) -> str:
    """Compared with no element; what is compared is computed all the same, for it may raise."""
    decided = "FALSE" if node.any else "TRUE"
    return f"CASE WHEN ({a}) IS NULL THEN {decided} ELSE {decided} END"


def _contained(a: str, listed: str, node: n.ScalarArrayOp) -> str:
    """``x = ANY (array)`` and its opposite without a subquery, which DuckDB computes over the product of the tables before it joins."""
    found = "TRUE" if node.any else "FALSE"
    return (
        f"CASE WHEN {listed} IS NULL OR ({a} IS NULL AND len({listed}) > 0) THEN NULL WHEN list_contains({listed}, {a}) THEN {found}"
        f" WHEN list_count({listed}) < len({listed}) THEN NULL ELSE NOT {found} END"
    )


def _listed(node: n.ScalarArrayOp, left: n.Expression, array: n.ArrayExpr, name: str, env: Env) -> str:
    """``x op ANY (ARRAY[…])``: IN and NOT IN, or each test beside the others."""
    a = compile(left, env)
    items = [compile(each, env) for each in array.elements]
    tests = [call.operate(node.operator, node, (left, each), (a, sql), env) for each, sql in zip(array.elements, items, strict=True)]
    if not tests:
        return _of_nothing(a, node)
    if name == ("=" if node.any else "<>") and base_of(left.type.oid) != t.BPCHAR:
        return f"({a} {'' if node.any else 'NOT '}IN ({', '.join(items)}))"
    return f"({' OR '.join(tests) if node.any else ' AND '.join(tests)})"


def _boolean(node: n.BoolExpr, env: Env) -> str:
    args = [compile(each, env) for each in node.args]
    return f"(NOT {args[0]})" if node.kind is n.BoolKind.NOT else f"({f' {node.kind.value} '.join(args)})"


def _relabel(node: n.Relabel, env: Env) -> str:
    return cast.relabelled(node, compile(node.arg, env), env)


def _domain(node: n.DomainCoerce, env: Env) -> str:
    known = t.builtin().find(node.type.oid)
    if known is None:
        raise refuse("a domain of a user", node)
    return compile(node.arg, env)


def _through_text(node: n.CoerceViaIO, env: Env) -> str:
    return cast.through_text(node, compile(node.arg, env), env)


def _elementwise(node: n.ArrayCoerce, env: Env) -> str:
    return cast.elementwise(node, compile(node.arg, env), env)


def _inner(node: n.Collate | n.RowCoerce, env: Env) -> str:
    return compile(node.arg, env)


def _case(node: n.Case, env: Env) -> str:
    conditions = node.conditions
    if node.arg is not None:
        tested = node.arg
        conditions = tuple(rewriting.rewrite(each, lambda inner: _tested(inner, tested)) for each in conditions)
    _one_scale(node, (*node.results, node.default), env)
    pairs = zip(conditions, node.results, strict=True)
    shown = " ".join(f"WHEN {compile(condition, env)} THEN {compile(result, env)}" for condition, result in pairs)
    return f"CASE {shown} ELSE {compile(node.default, env)} END"


def _tested(node: n.Expression, value: n.Expression) -> n.Expression | None:
    """A CaseTest is the value of the CASE it belongs to; that of a CASE inside stays."""
    if isinstance(node, n.CaseTest):
        return value
    return node if isinstance(node, n.Case) and node.arg is not None else None


def _one_scale(node: n.Expression, branches: tuple[n.Expression, ...], env: Env) -> None:
    """0A000 for numeric values of several scales that become one column, which would all show the longest."""
    if node.type.oid == t.NUMERIC and any(not _is_null(each) for each in branches) and scale(node, env) is None:
        raise refuse("a numeric value whose scale is not known", node)


def _is_null(node: n.Expression) -> bool:
    return isinstance(node, n.Const) and node.value is None


def _array(node: n.ArrayExpr, env: Env) -> str:
    if node.nested:
        raise refuse("an array of several dimensions", node)
    if element_of(node.type.oid) == t.NUMERIC:
        raise refuse("an array of numeric values", node)
    return f"CAST([{', '.join(compile(each, env) for each in node.elements)}] AS {duckdb_type(node.type.oid)})"


def _row(node: n.RowExpr, env: Env) -> str:
    names = node.names or tuple(f"f{place}" for place, _ in enumerate(node.args, 1))
    return _struct([(name, compile(each, env)) for name, each in zip(names, node.args, strict=True)])


_ROW_OPERATORS = {1: "<", 2: "<=", 4: ">=", 5: ">"}


def _compare_rows(node: n.RowCompare, env: Env) -> str:
    """The first pair that differs decides; before the last it has to be less, or greater."""
    last = len(node.left) - 1
    equal, parts = "", []
    for place, (left, right, operator) in enumerate(zip(node.left, node.right, node.operators, strict=True)):
        a, b = compile(left, env), compile(right, env)
        call.operate(operator, node, (left, right), (a, b), env)
        name = _ROW_OPERATORS[node.strategy]
        parts.append(f"({equal}{a} {name if place == last else name[0]} {b})")
        equal += f"{a} = {b} AND "
    return f"({' OR '.join(parts)})"


def _coalesce(node: n.Coalesce, env: Env) -> str:
    _one_scale(node, node.args, env)
    return f"coalesce({', '.join(compile(each, env) for each in node.args)})"


def _min_max(node: n.MinMax, env: Env) -> str:
    if not comparison.in_order(node.type.oid) or base_of(node.type.oid) in (t.BPCHAR, t.INTERVAL):  # equal ones may print differently
        raise refuse(f"the order of type {t.format_type(node.type.oid)}", node)
    for each in node.args:
        comparison.check_collation(each)
    _one_scale(node, node.args, env)
    return f"{'greatest' if node.greatest else 'least'}({', '.join(compile(each, env) for each in node.args)})"


def _null_test(node: n.NullTest, env: Env) -> str:
    word = "IS NULL" if node.is_null else "IS NOT NULL"
    if not node.row:
        return f"({compile(node.arg, env)} {word})"
    arg = node.arg
    if isinstance(arg, n.RowExpr):
        parts = [compile(each, env) for each in arg.args]
    elif isinstance(arg, n.ColumnRef) and arg.attnum == 0 and arg.key in env.rows:
        parts = [each.key for each in env.rows[arg.key]]
    else:
        known = fields(arg, env)
        if known is None:
            raise refuse("a test of this row", node)
        parts = [f"struct_extract({compile(arg, env)}, {quote(name)})" for name, _ in known]
    return f"({' AND '.join(f'{each} {word}' for each in parts) or 'TRUE'})"


def _boolean_test(node: n.BooleanTest, env: Env) -> str:
    return f"({compile(node.arg, env)} {node.kind.value.replace('UNKNOWN', 'NULL')})"


def _session_value(node: n.SqlValue, env: Env) -> str:
    return env.session_value(node)


def _character(node: n.Subscript, env: Env) -> str:
    """``name[n]``: a byte of a name, counted from 0."""
    value, place = compile(node.arg, env), compile(node.upper[0] or node.arg, env)
    wide = raised("0A000", "a subscript of a name that is not plain ASCII is not supported", t.CHAR)
    return f"CASE WHEN strlen({value}) > length({value}) THEN {wide} WHEN {place} BETWEEN 0 AND 63 THEN substr({value}, {place} + 1, 1) END"


def _subscript(node: n.Subscript, env: Env) -> str:
    if base_of(node.arg.type.oid) == t.NAME:
        return _character(node, env)
    if len(node.upper) != 1 or element_of(node.arg.type.oid) is None:
        raise refuse("a subscript of this value", node)
    value, shift = compile(node.arg, env), 1 if zero_based(node.arg, env) else 0
    [upper] = node.upper
    high = f"CAST({compile(upper, env)} AS BIGINT) + {shift}" if upper is not None else f"len({value})"
    if not node.lower:
        return f"CASE WHEN {high} >= 1 THEN list_extract({value}, {high}) END"
    [lower] = node.lower
    low = f"CAST({compile(lower, env)} AS BIGINT) + {shift}" if lower is not None else "1"
    bounds = f"{low} IS NOT NULL AND {high} IS NOT NULL"
    return f"CASE WHEN {bounds} THEN list_slice({value}, greatest({low}, 1), greatest({high}, 0)) END"


def _field(node: n.FieldSelect, env: Env) -> str:
    known = fields(node.arg, env)
    if known is None or node.name not in dict(known):
        raise PostgresError("42703", f'could not identify column "{node.name}" in record data type')
    return f"struct_extract({compile(node.arg, env)}, {quote(node.name)})"


def _aggregate(node: n.Aggregate, env: Env) -> str:
    return aggregate.sql(node, [compile(each, env) for each in node.args], env, compile)


def _window(node: n.WindowCall, env: Env) -> str:
    return window.sql(node, [compile(each, env) for each in node.args], env, compile)


def _subquery(node: n.SubLink, env: Env) -> str:
    return env.subquery(node)


_NODES: dict[type[n.Expression], Callable[[Any, Env], str]] = {
    n.ColumnRef: _column,
    n.Const: literal.constant,
    n.Param: _parameter,
    n.FuncExpr: _call,
    n.OpExpr: _operation,
    n.Distinct: _distinct,
    n.NullIf: _null_if,
    n.ScalarArrayOp: _array_operation,
    n.BoolExpr: _boolean,
    n.Relabel: _relabel,
    n.DomainCoerce: _domain,
    n.CoerceViaIO: _through_text,
    n.ArrayCoerce: _elementwise,
    n.RowCoerce: _inner,
    n.Collate: _inner,
    n.Case: _case,
    n.ArrayExpr: _array,
    n.RowExpr: _row,
    n.RowCompare: _compare_rows,
    n.Coalesce: _coalesce,
    n.MinMax: _min_max,
    n.NullTest: _null_test,
    n.BooleanTest: _boolean_test,
    n.SqlValue: _session_value,
    n.Subscript: _subscript,
    n.FieldSelect: _field,
    n.Aggregate: _aggregate,
    n.WindowCall: _window,
    n.SubLink: _subquery,
}
