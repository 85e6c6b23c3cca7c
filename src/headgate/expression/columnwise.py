"""Evaluate a bound condition over Arrow columns in the driver, for the filters that a stream applies to many small batches.

`condition` returns PostgreSQL's answer. It raises `NotColumnwise` if Arrow has no exact kernel, and if a kernel raises (an overflow, or a
division by zero in an operand that AND may have skipped). The caller then evaluates the filter with Spark (`spark.compiler`), which is
exact for every filter, including its errors. So nothing here raises errors of PostgreSQL, Python or Arrow, and nothing is approximate.

Invariant: columns are in storage types (`types.storage`). Three-valued logic is Kleene's, as in SQL. Text compares by bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.expression import builtin, rewriting
from headgate.expression import node as n
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.sort_operator import ordering_operator
from headgate.expression.implementation.comparison import ArrowComparison, decimals, without_nan, without_negative_zero
from headgate.expression.implementation.implementation import ArrowForm, NotColumnwise, Operand
from headgate.expression.implementation.implementations import IMPLEMENTATIONS
from headgate.expression.spark.comparison import C_COLLATIONS
from headgate.types import buffers, registry, text_cache
from headgate.types.storage import arrow_type, stored_as_text
from headgate.types.text import array as arrays
from headgate.types.text import text

_UNSIGNED = frozenset({registry.OID, registry.XID, registry.CID})
"""Types to which a cast of integers keeps the bits: -1 becomes 4294967295."""
_CASE_TEST = "case test"
"""The key of the value that a CASE compares, among the columns. A column's key has no blank."""
_MANY = 16
"""Maximum number of list items that are compared one by one."""


def condition(expression: n.Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    """Return whether each row passes. NULL counts as false. `columns` maps ColumnRef.key to an array."""
    try:
        passes = pc.fill_null(_evaluate(expression, columns), pa.scalar(False))
    except NotColumnwise:
        raise
    except Exception as error:  # Spark has the answer: a stream must not end because of a value that Arrow or Python cannot represent
        raise NotColumnwise(type(error).__name__) from error
    return pa.array([passes.as_py()] * rows, pa.bool_()) if isinstance(passes, pa.Scalar) else passes


def value(expression: n.Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return the value of the expression for each row, as an array of the storage type of the expression's type."""
    kind = arrow_type(expression.type.oid, expression.type.typmod)
    try:
        result = _evaluate(expression, columns)
        if isinstance(result, pa.Scalar):
            result = pa.array([result.as_py()] * rows, result.type)
        if pa.types.is_decimal(result.type):
            result = _stored(result, kind, expression)
    except NotColumnwise:
        raise
    except Exception as error:  # as above
        raise NotColumnwise(type(error).__name__) from error
    if result.type != kind:
        raise NotColumnwise(str(kind))
    return result


def _stored(decimals: pa.Array, kind: pa.DataType, expression: n.Expression) -> pa.Array:
    """Return the decimals of a numeric in the storage type: as decimals of the declared scale, or as text.

    As text, each value has its own scale. The decimals of COALESCE and CASE have only one for the values of all branches.
    """
    if pa.types.is_decimal(kind):
        return decimals.cast(kind)
    if any(isinstance(part, n.Coalesce | n.Case) and part.type.oid == registry.NUMERIC for part in n.walk(expression)):
        raise NotColumnwise("a numeric of several scales")
    return text.write_text(decimals, registry.NUMERIC)


def is_known(expression: n.Expression, constants: Collection[str] = ()) -> bool:
    """Return whether Arrow has a form of every part of an expression, by the tree alone; the values may still have none.

    Parameters count as constants, and so do calls of the functions named in `constants`, which the caller replaces. A function that acts
    has no form, so an expression of which this is true may be evaluated twice.
    """
    return all(_is_known(part, constants) for part in n.walk(expression))


def _is_known(node: n.Expression, constants: Collection[str]) -> bool:
    match node:
        case n.ColumnRef():
            return node.attnum > 0 and not node.levels_up
        case (
            n.OpExpr(operator=operator, args=args)
            | n.Distinct(operator=operator, args=args)
            | n.ScalarArrayOp(operator=operator, args=args)
        ):
            return not any(map(_is_numeric_text, args)) and _has_form(builtin.operator(operator).function, args)
        case n.FuncExpr(function=function, args=args):
            if function not in builtin.builtins().functions or any(map(_is_numeric_text, args)):
                return False
            return builtin.function(function).name in constants or _has_form(function, args)
        case n.NullTest(row=row):
            return not row
        case n.ArrayExpr(nested=nested):
            return not nested
        case n.Const() | n.Param() | n.SqlValue() | n.BoolExpr() | n.BooleanTest() | n.Coalesce() | n.Case() | n.CaseTest():
            return True
        case _:
            return type(node) is n.Relabel


def _is_numeric_text(node: n.Expression) -> bool:
    return isinstance(node, n.ColumnRef) and node.type.oid == registry.NUMERIC and stored_as_text(node.type.oid, node.type.typmod)


def _has_form(function: int, args: Sequence[n.Expression]) -> bool:
    implementation = IMPLEMENTATIONS.get(_implementation(function))
    if implementation is None or implementation.arrow is None:
        return False
    return implementation.any_collation or all(argument.type.collation in C_COLLATIONS for argument in args)


def is_ordered(expression: n.Expression) -> bool:
    """Return whether Arrow can order the values of an expression, by its type."""
    return _order(expression.type) is not None and not _is_numeric_text(expression)


def is_grouped(expression: n.Expression) -> bool:
    """Return whether equal values of an expression are the same to Arrow, by its type; doubles may turn out not to be."""
    compare = _order(expression.type)
    return compare is not None and compare.prepare in (None, decimals, without_nan) and not _is_numeric_text(expression)


def sort_key(kind: n.TypeRef, values: pa.Array) -> pa.Array:
    """Return what Arrow orders as PostgreSQL orders these values."""
    compare = _order(kind)
    if compare is None:
        raise NotColumnwise("a type without an order")
    [key] = [values] if compare.prepare is None else compare.prepare(values)
    return key


def group_key(kind: n.TypeRef, values: pa.Array) -> pa.Array:
    """Return the values, if those that are equal to PostgreSQL are the same to Arrow."""
    compare = _order(kind)
    if compare is not None and compare.prepare is without_nan:
        return without_negative_zero(values)
    if compare is None or compare.prepare not in (None, decimals):
        raise NotColumnwise("equal values that differ")
    return sort_key(kind, values)


def _order(kind: n.TypeRef) -> ArrowComparison | None:
    less = ordering_operator(kind.oid, 1, BindContext())
    if less is None or kind.collation not in C_COLLATIONS:
        return None
    implementation = IMPLEMENTATIONS.get(_implementation(builtin.operator(less).function))
    return implementation.arrow if implementation is not None and isinstance(implementation.arrow, ArrowComparison) else None


def _evaluate(node: n.Expression, columns: Mapping[str, pa.Array]) -> Operand:
    """Return a boolean, numeric or text array, or a scalar."""
    match node:
        case n.ColumnRef():
            return columns[node.key]
        case n.Const():
            return constant(node.value, node.type.oid, node.type.typmod)
        case n.BoolExpr(kind=kind, args=args):
            return _connect(kind, [_evaluate(operand, columns) for operand in args])
        case n.NullTest(arg=arg, is_null=is_null, row=False):
            value = _evaluate(arg, columns)
            return pc.is_null(value) if is_null else pc.is_valid(value)
        case n.BooleanTest(arg=arg, kind=kind):
            return _BOOLEAN_TESTS[kind](_evaluate(arg, columns))
        case n.OpExpr(operator=operator, args=args) | n.Distinct(operator=operator, args=args):
            values = [_evaluate(operand, columns) for operand in args]
            key = _implementation(builtin.operator(operator).function)
            return _distinct(key, *values) if isinstance(node, n.Distinct) else _call(key, node, values)
        case n.FuncExpr(function=function, args=args):
            return _call(_implementation(function), node, [_evaluate(operand, columns) for operand in args])
        case n.UserCall():
            return _user_call(node, columns)
        case n.ScalarArrayOp(args=args):
            return _any_or_all(node, _evaluate(args[0], columns), _items(args[1]))
        case n.Relabel(arg=arg) if type(node) is n.Relabel and registry.BPCHAR not in (arg.type.oid, node.type.oid):
            value = _evaluate(arg, columns)
            if value.type == arrow_type(node.type.oid, node.type.typmod):
                return value
        case n.Case():
            return _case(node, columns)
        case n.CaseTest():
            return columns[_CASE_TEST]
        case n.Coalesce(args=args):
            return pc.coalesce(*_same([_evaluate(operand, columns) for operand in args]))
        case _:
            pass
    raise NotColumnwise(type(node).__name__)


def constant(value: str | None, oid: int, typmod: int) -> pa.Scalar:
    """Return a constant in the storage type of its type. A numeric is always a decimal."""
    if oid == registry.UNKNOWN:
        raise NotColumnwise("unknown")
    if value is None:
        return pa.scalar(None, pa.decimal128(1, 0) if oid == registry.NUMERIC else arrow_type(oid, typmod))
    return _constant(value, oid, typmod)


@text_cache.cached(1024)
def _constant(value: str, oid: int, typmod: int) -> pa.Scalar:
    if oid != registry.NUMERIC:
        return text.read_text(pa.array([value]), oid, typmod)[0]
    number = Decimal(value)
    if not number.is_finite():
        raise NotColumnwise(value)
    return pa.scalar(number)


def _implementation(function: int) -> str:
    return builtin.function(function).key


def _user_call(node: n.UserCall, columns: Mapping[str, pa.Array]) -> Operand:
    if node.body is not None:
        return _evaluate(rewriting.inlined(node), columns)
    if node.compute.needs_session:
        raise NotColumnwise(node.name)
    values = [_evaluate(argument, columns) for argument in node.args]
    if any(pa.types.is_decimal(value.type) for value in values):
        raise NotColumnwise("decimal")
    rows = next((len(value) for value in values if isinstance(value, pa.Array)), 1)
    arrays = [pa.array([value.as_py()] * rows, value.type) if isinstance(value, pa.Scalar) else buffers.whole(value) for value in values]
    computed = node.compute(*arrays).cast(arrow_type(node.type.oid, -1))
    return computed if any(isinstance(value, pa.Array) for value in values) else computed[0]


def _connect(kind: n.BoolKind, values: Sequence[Operand]) -> Operand:
    if kind is n.BoolKind.NOT:
        return pc.invert(values[0])
    connect = pc.and_kleene if kind is n.BoolKind.AND else pc.or_kleene
    return functools.reduce(connect, values)


_BOOLEAN_TESTS: dict[n.TestKind, Callable[[Operand], Operand]] = {
    n.TestKind.TRUE: lambda value: pc.fill_null(value, False),
    n.TestKind.NOT_TRUE: lambda value: pc.invert(pc.fill_null(value, False)),
    n.TestKind.FALSE: lambda value: pc.invert(pc.fill_null(value, True)),
    n.TestKind.NOT_FALSE: lambda value: pc.fill_null(value, True),
    n.TestKind.UNKNOWN: pc.is_null,
    n.TestKind.NOT_UNKNOWN: pc.is_valid,
}


def _case(node: n.Case, columns: Mapping[str, pa.Array]) -> Operand:
    """Evaluate all branches. If one that no row needs raises, Spark evaluates the expression."""
    if node.arg is not None:
        columns = {**columns, _CASE_TEST: _evaluate(node.arg, columns)}
    conditions = [_evaluate(condition, columns) for condition in node.conditions]
    *results, chosen = _same([_evaluate(branch, columns) for branch in (*node.results, node.default)])
    for condition, result in zip(reversed(conditions), reversed(results), strict=True):
        chosen = pc.if_else(pc.fill_null(condition, pa.scalar(False)), result, chosen)
    return chosen


def _same(values: Sequence[Operand]) -> Sequence[Operand]:
    if all(pa.types.is_decimal(operand.type) for operand in values):
        return decimals(*values)
    if len({operand.type for operand in values}) > 1:
        raise NotColumnwise("types that differ")
    return values


def _distinct(key: str, left: Operand, right: Operand) -> Operand:
    return pc.fill_null(pc.invert(_comparison(key)(left, right)), pc.xor(pc.is_null(left), pc.is_null(right)))


def _items(node: n.Expression) -> list[pa.Scalar]:
    if isinstance(node, n.ArrayExpr) and not node.nested:
        scalars = [_evaluate(item, {}) for item in node.elements]
        if all(isinstance(scalar, pa.Scalar) for scalar in scalars):
            return scalars
    if isinstance(node, n.Const) and node.value is not None:
        element = registry.known().by_oid(node.type.oid).element
        _, texts = arrays.parts(node.value)
        return [constant(item_text, element, -1) for item_text in texts]
    raise NotColumnwise("an array that is not a constant")


def _any_or_all(node: n.ScalarArrayOp, value: Operand, items: Sequence[pa.Scalar]) -> Operand:
    """Evaluate op ANY and op ALL. ``= ANY`` and ``<> ALL`` of several items use one `is_in` call."""
    key = _implementation(builtin.operator(node.operator).function)
    compare = _comparison(key)
    if not items:
        raise NotColumnwise(key)
    is_uniform = all(item.is_valid and item.type == value.type for item in items)
    is_plain = compare.prepare is None and isinstance(value, pa.Array)
    if is_plain and is_uniform and len(items) > 1 and (compare.name, node.any) in (("eq", True), ("ne", False)):
        member = pc.is_in(value, value_set=pa.array(items, value.type))
        return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), member if node.any else pc.invert(member))
    if len(items) > _MANY:
        raise NotColumnwise("a long array")
    return _connect(n.BoolKind.OR if node.any else n.BoolKind.AND, [compare(value, item) for item in items])


def _call(key: str, node: n.Expression, values: Sequence[Operand]) -> Operand:
    form = _form(key)
    if not isinstance(form, ArrowComparison) and (node.type.collation not in C_COLLATIONS or node.type.oid in _UNSIGNED):
        raise NotColumnwise(key)
    return form(*values)


def _form(key: str) -> ArrowForm:
    entry = IMPLEMENTATIONS.get(key)
    if entry is None or entry.arrow is None:
        raise NotColumnwise(key)
    return entry.arrow


def _comparison(key: str) -> ArrowComparison:
    form = _form(key)
    if not isinstance(form, ArrowComparison):
        raise NotColumnwise(key)
    return form
