"""Compile a typed expression to DuckDB's SQL, with one short function per node.

Called by `commands.query.catalog` for every expression of a query on the catalogs. The `Env` supplies the SQL of the columns, and
the parts that depend on the session, on parameters or on subqueries. A node, function or type without an exact form raises 0A000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate import interruption
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, rewriting
from headgate.expression import node as n
from headgate.expression.duckdb import aggregate, call, cast, comparison, literal, set_returning
from headgate.expression.duckdb.value import (
    Env,
    base_of,
    duckdb_type,
    element_of,
    null,
    quote,
    raised,
    refuse,
    scale,
    zero_based,
)
from headgate.types import registry as t


def compile(expression: n.Expression, env: Env) -> str:  # noqa: A001 (as the other compiler's)
    interruption.check()
    handler = _NODES.get(type(expression))
    if handler is None:
        raise refuse(f"an expression of the form {type(expression).__name__}", expression)
    return handler(expression, env)


def sort_key(expression: n.Expression, env: Env) -> str:
    """Return SQL whose order and equality are those of the expression's values in PostgreSQL."""
    return comparison.sort_key(expression, compile(expression, env), env)


def check_order(expression: n.Expression, env: Env) -> None:
    """Raise 0A000 if DuckDB does not order the expression's type as PostgreSQL does."""
    comparison.sort_key(expression, "", env)


def _column(node: n.ColumnRef, env: Env) -> str:
    if node.attnum:
        return env.column(node.key)
    if node.key not in env.rows:
        raise refuse("a reference to this whole row", node)
    return _struct([(column.name, env.column(column.key)) for column in env.rows[node.key]])


def _struct(parts: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{quote(name)}: {sql}" for name, sql in parts) + "}" if parts else "NULL"


def _parameter(node: n.Param, env: Env) -> str:
    return literal.constant(env.parameter(node), env)


def _call(node: n.FuncExpr, env: Env) -> str:
    function = builtin.function(node.function)
    session_sql = env.session_call(node)
    if session_sql is not None:
        return session_sql
    if function.retset:
        return set_returning.unnested(node, [compile(arg, env) for arg in node.args], env)
    args = [compile(arg, env) for arg in node.args]
    if node.function in cast.functions():
        return cast.by_function(node, args, env)
    return call.apply(node.function, node, node.args, args, env)


def _operation(node: n.OpExpr, env: Env) -> str:
    return call.operate(node.operator, node, node.args, [_operand(arg, env) for arg in node.args], env)


def _operand(node: n.Expression, env: Env) -> str:
    """Compile an operand. For like_escape, compile only the pattern, because `call` handles the escape character."""
    if isinstance(node, n.FuncExpr) and builtin.function(node.function).key == "like_escape":
        return compile(node.args[0], env)
    return compile(node, env)


def _distinct(node: n.Distinct, env: Env) -> str:
    a, b = (compile(arg, env) for arg in node.args)
    call.operate(node.operator, node, node.args, [a, b], env)
    if base_of(node.args[0].type.oid) == t.BPCHAR:
        a, b = f"rtrim({a}, ' ')", f"rtrim({b}, ' ')"
    return f"({a} IS DISTINCT FROM {b})"


def _null_if(node: n.NullIf, env: Env) -> str:
    args = [compile(arg, env) for arg in node.args]
    return f"CASE WHEN {call.operate(node.operator, node, node.args, args, env)} THEN {null(node.type.oid)} ELSE {args[0]} END"


def _array_operation(node: n.ScalarArrayOp, env: Env) -> str:
    left, array = node.args
    if isinstance(array, n.ArrayCoerce) and array.function == 0 and isinstance(array.arg, n.ArrayExpr) and not array.arg.nested:
        kind = n.TypeRef(element_of(array.type.oid) or t.TEXT, -1, array.type.collation)
        items = tuple(n.Relabel(type=kind, arg=value, form=array.form) for value in array.arg.elements)
        array = n.ArrayExpr(type=array.type, elements=items)
    name = builtin.operator(node.operator).name
    if isinstance(array, n.ArrayExpr) and not array.nested:
        return _is_in_list(node, left, array, name, env)
    element = n.ColumnRef(type=n.TypeRef(element_of(array.type.oid) or t.TEXT, -1, array.type.collation), name="x", attnum=1, key="x")
    a, array_sql = compile(left, env), compile(array, env)
    if isinstance(array, n.Const) and array.value == "{}":
        return _of_nothing(a, node)
    test = call.operate(node.operator, node, (left, element), (a, "x"), env)
    if name == ("=" if node.any else "<>") and base_of(left.type.oid) != t.BPCHAR:
        return _is_in_array(a, array_sql, node)
    if name in comparison.OPERATORS and base_of(left.type.oid) != t.BPCHAR:
        # NULL is not an empty list
        return f"CASE WHEN {array_sql} IS NOT NULL THEN {a} {name} {'ANY' if node.any else 'ALL'} ({array_sql}) END"
    tests = f"list_transform({array_sql}, lambda x: {test})"
    decisive = "TRUE" if node.any else "FALSE"
    return (
        f"CASE WHEN {array_sql} IS NULL THEN NULL WHEN list_contains({tests}, {decisive}) THEN {decisive}"
        f" WHEN list_count({tests}) < len({tests}) THEN NULL ELSE NOT {decisive} END"
    )


def _of_nothing(a: str, node: n.ScalarArrayOp) -> str:
    """Compare with an empty array. The left operand is still computed, because it may raise."""
    result = "FALSE" if node.any else "TRUE"
    return f"CASE WHEN ({a}) IS NULL THEN {result} ELSE {result} END"


def _is_in_array(a: str, listed: str, node: n.ScalarArrayOp) -> str:
    """Compile ``x = ANY (array)`` or ``x <> ALL (array)`` without a subquery, which DuckDB would compute over the tables' cross product."""
    decisive = "TRUE" if node.any else "FALSE"
    return (
        f"CASE WHEN {listed} IS NULL OR ({a} IS NULL AND len({listed}) > 0) THEN NULL WHEN list_contains({listed}, {a}) THEN {decisive}"
        f" WHEN list_count({listed}) < len({listed}) THEN NULL ELSE NOT {decisive} END"
    )


def _is_in_list(node: n.ScalarArrayOp, left: n.Expression, array: n.ArrayExpr, name: str, env: Env) -> str:
    """Compile ``x op ANY (ARRAY[…])`` or ALL as IN or NOT IN, or as one test per element."""
    a = compile(left, env)
    items = [compile(element, env) for element in array.elements]
    tests = [call.operate(node.operator, node, (left, element), (a, sql), env) for element, sql in zip(array.elements, items, strict=True)]
    if not tests:
        return _of_nothing(a, node)
    if name == ("=" if node.any else "<>") and base_of(left.type.oid) != t.BPCHAR:
        return f"({a} {'' if node.any else 'NOT '}IN ({', '.join(items)}))"
    return f"({' OR '.join(tests) if node.any else ' AND '.join(tests)})"


def _boolean(node: n.BoolExpr, env: Env) -> str:
    args = [compile(arg, env) for arg in node.args]
    return f"(NOT {args[0]})" if node.kind is n.BoolKind.NOT else f"({f' {node.kind.value} '.join(args)})"


def _relabel(node: n.Relabel, env: Env) -> str:
    return cast.relabelled(node, compile(node.arg, env), env)


def _domain(node: n.DomainCoerce, env: Env) -> str:
    built_in = t.builtin().find(node.type.oid)
    if built_in is None:
        raise refuse("a domain of a user", node)
    return compile(node.arg, env)


def _inner(node: n.Collate | n.RowCoerce, env: Env) -> str:
    return compile(node.arg, env)


def _case(node: n.Case, env: Env) -> str:
    conditions = node.conditions
    if node.arg is not None:
        tested = node.arg
        conditions = tuple(rewriting.rewrite(when, lambda inner: _replace_case_test(inner, tested)) for when in conditions)
    _one_scale(node, (*node.results, node.default), env)
    pairs = zip(conditions, node.results, strict=True)
    whens = " ".join(f"WHEN {compile(condition, env)} THEN {compile(result, env)}" for condition, result in pairs)
    return f"CASE {whens} ELSE {compile(node.default, env)} END"


def _replace_case_test(node: n.Expression, value: n.Expression) -> n.Expression | None:
    """Replace a CaseTest by the tested value. Leave the CaseTest of a nested CASE unchanged."""
    if isinstance(node, n.CaseTest):
        return value
    return node if isinstance(node, n.Case) and node.arg is not None else None


def _one_scale(node: n.Expression, branches: tuple[n.Expression, ...], env: Env) -> None:
    """Raise 0A000 for numeric branches of different scales, because one DuckDB column would print all of them with the longest scale."""
    if node.type.oid == t.NUMERIC and any(not _is_null(branch) for branch in branches) and scale(node, env) is None:
        raise refuse("a numeric value whose scale is not known", node)


def _is_null(node: n.Expression) -> bool:
    return isinstance(node, n.Const) and node.value is None


def _array(node: n.ArrayExpr, env: Env) -> str:
    if node.nested:
        raise refuse("an array of several dimensions", node)
    if element_of(node.type.oid) == t.NUMERIC:
        raise refuse("an array of numeric values", node)
    return f"CAST([{', '.join(compile(element, env) for element in node.elements)}] AS {duckdb_type(node.type.oid)})"


def _row(node: n.RowExpr, env: Env) -> str:
    names = node.names or tuple(f"f{place}" for place, _ in enumerate(node.args, 1))
    return _struct([(name, compile(arg, env)) for name, arg in zip(names, node.args, strict=True)])


_ROW_OPERATORS = {1: "<", 2: "<=", 4: ">=", 5: ">"}


def _compare_rows(node: n.RowCompare, env: Env) -> str:
    """Compare rows: the first pair that differs decides. Pairs before the last are compared strictly."""
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
    return f"coalesce({', '.join(compile(arg, env) for arg in node.args)})"


def _min_max(node: n.MinMax, env: Env) -> str:
    if not comparison.in_order(node.type.oid) or base_of(node.type.oid) in (t.BPCHAR, t.INTERVAL):  # equal ones may print differently
        raise refuse(f"the order of type {t.format_type(node.type.oid)}", node)
    for arg in node.args:
        comparison.check_collation(arg)
    _one_scale(node, node.args, env)
    return f"{'greatest' if node.greatest else 'least'}({', '.join(compile(arg, env) for arg in node.args)})"


def _null_test(node: n.NullTest, env: Env) -> str:
    word = "IS NULL" if node.is_null else "IS NOT NULL"
    if not node.row:
        return f"({compile(node.arg, env)} {word})"
    arg = node.arg
    if isinstance(arg, n.RowExpr):
        parts = [compile(field, env) for field in arg.args]
    elif isinstance(arg, n.ColumnRef) and arg.attnum == 0 and arg.key in env.rows:
        parts = [env.column(column.key) for column in env.rows[arg.key]]
    else:
        fields = n.record_fields(arg)
        if not fields:
            raise refuse("a test of this row", node)
        parts = [f"struct_extract({compile(arg, env)}, {quote(name)})" for name, _ in fields]
    return f"({' AND '.join(f'{part} {word}' for part in parts) or 'TRUE'})"


def _boolean_test(node: n.BooleanTest, env: Env) -> str:
    return f"({compile(node.arg, env)} {node.kind.value.replace('UNKNOWN', 'NULL')})"


def _character(node: n.Subscript, env: Env) -> str:
    """Compile ``name[n]``: one byte of a name, counted from 0."""
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
    fields = n.record_fields(node.arg)
    if not fields:
        raise not_supported("a field of this row is not supported")
    if node.name not in dict(fields):
        raise PostgresError("42703", f'could not identify column "{node.name}" in record data type')
    return f"struct_extract({compile(node.arg, env)}, {quote(node.name)})"


def _aggregate(node: n.Aggregate, env: Env) -> str:
    return aggregate.sql(node, [compile(arg, env) for arg in node.args], env, compile)


def _window(node: n.WindowCall, env: Env) -> str:
    return aggregate.window_sql(node, [compile(arg, env) for arg in node.args], env, compile)


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
    n.CoerceViaIO: lambda node, env: cast.through_text(node, compile(node.arg, env), env),
    n.ArrayCoerce: lambda node, env: cast.elementwise(node, compile(node.arg, env), env),
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
    n.SqlValue: lambda node, env: env.session_value(node),
    n.Subscript: _subscript,
    n.FieldSelect: _field,
    n.Aggregate: _aggregate,
    n.WindowCall: _window,
    n.SubLink: lambda node, env: env.subquery(node),
}
