"""The constraint that a partition's bound implies for its rows, as an expression (partbounds.c: get_qual_from_partbound).

The text is stored in the catalog (for `pg_get_partition_constraintdef`, which psql shows). `headgate.storage.routing` checks the rows
themselves. The constraint of a default partition depends on its siblings, and a partition below another has its ancestors' constraints
as well. So `rewrite` rewrites the constraints of a whole tree after any change to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import partition
from headgate.catalog.relation.partition import Bound, Branch, Edge, Strategy
from headgate.catalog.relation.relation import Column, Relation
from headgate.commands import stored_expression
from headgate.expression import builtin
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.sort_operator import ordering_operator
from headgate.expression.deparsing import deparse
from headgate.expression.node import (
    BOOLEAN,
    ArrayExpr,
    BoolExpr,
    BoolKind,
    ColumnRef,
    Const,
    Expression,
    Form,
    FuncExpr,
    NullTest,
    OpExpr,
    Relabel,
    ScalarArrayOp,
    TypeRef,
    joined,
)
from headgate.storage import routing
from headgate.types import registry

LESS, LESS_EQUAL, EQUAL, GREATER_EQUAL, GREATER = 1, 2, 3, 4, 5


def rewrite(cursor: Cursor, relation: Relation) -> None:
    """Rewrite the constraints of all partitions of the tree to which a relation belongs."""
    tree = partition.load(cursor, relation.database, partition.root_of(cursor, relation))
    _write(cursor, tree, [])


def _write(cursor: Cursor, branch: Branch, above: list[Expression]) -> None:
    for child in branch.children:
        assert child.bound is not None
        quals = [*above, *constraint(branch, child.bound)]
        partition.set_constraint_text(cursor, child.relation, deparse.stored(_all(quals)) if quals else None)
        _write(cursor, child, quals)


def constraint(table: Branch, bound: Bound) -> list[Expression]:
    """Return the condition that a partition's bound implies, or None for a default partition without siblings."""
    match table.strategy:
        case Strategy.HASH:
            return [_hash(table, bound)]
        case Strategy.LIST:
            return _list_default(table) if bound.default else _list(table.key[0], bound.values)
        case Strategy.RANGE:
            return _range_default(table) if bound.default else [*_not_nulls(table), *_range(table.key, bound.lower, bound.upper)]


def _all(quals: Sequence[Expression]) -> Expression:
    return joined(BoolKind.AND, quals)


def _not(expression: Expression) -> Expression:
    return BoolExpr(type=BOOLEAN, kind=BoolKind.NOT, args=(expression,))


def _reference(column: Column) -> Expression:
    return ColumnRef(type=stored_expression.type_of(column), name=column.name, attnum=column.attnum, key=column.name)


def _is_null(column: Column, *, is_null: bool) -> Expression:
    return NullTest(type=BOOLEAN, arg=_reference(column), is_null=is_null)


def _comparison(column: Column, strategy: int, values: Sequence[str]) -> Expression:
    """Compare the column with one value, or with = ANY of several (make_partition_op_expr)."""
    number = ordering_operator(column.type_oid, strategy, BindContext())
    assert number is not None
    operand_type = builtin.operator(number).left
    left = _reference(column)
    if operand_type not in (column.type_oid, registry.ANYARRAY, registry.ANYENUM, registry.RECORD):
        left = Relabel(type=TypeRef(operand_type, -1, column.collation), arg=left, form=Form.EXPLICIT)
    constants = [Const(type=stored_expression.type_of(column), value=value) for value in values]
    if len(constants) == 1:
        return OpExpr(type=BOOLEAN, operator=number, args=(left, constants[0]))
    array = registry.by_oid(column.type_oid).array
    elements = ArrayExpr(type=TypeRef(array, column.typmod, column.collation), elements=tuple(constants))
    return ScalarArrayOp(type=BOOLEAN, operator=number, any=True, args=(left, elements))


# ---- LIST -----------------------------------------------------------------------------------------------------------


def _list(column: Column, values: Sequence[str | None]) -> list[Expression]:
    not_null = [value for value in values if value is not None]
    test = [_comparison(column, EQUAL, not_null)] if not_null else []
    if None in values:
        return [joined(BoolKind.OR, [_is_null(column, is_null=True), *test])]
    return [_is_null(column, is_null=False), *test]


def _list_default(table: Branch) -> list[Expression]:
    values = [value for child in table.children if child.bound is not None for value in child.bound.values]
    if not values:
        return []
    column = table.key[0]
    not_null = [value for value in values if value is not None]
    codes = routing.order_codes([column], [(Edge(value),) for value in not_null], []).tolist() if not_null else []
    ordered: list[str | None] = [not_null[place] for place in sorted(range(len(not_null)), key=codes.__getitem__)]
    return [_not(_all(_list(column, [*ordered, *([None] if None in values else [])])))]


# ---- RANGE ----------------------------------------------------------------------------------------------------------


def _not_nulls(table: Branch) -> list[Expression]:
    return [_is_null(column, is_null=False) for column in table.key]


def _range(columns: Sequence[Column], lower: Sequence[Edge], upper: Sequence[Edge]) -> list[Expression]:
    tests: list[Expression] = []
    first = 0
    while first < len(columns):
        low, high = lower[first], upper[first]
        if low.infinite or high.infinite or len(set(routing.order_codes(columns[first : first + 1], [(low,), (high,)], []).tolist())) > 1:
            break
        tests.append(_comparison(columns[first], EQUAL, [low.value]))
        first += 1
    for edges, is_lower in ((lower, True), (upper, False)):
        arms = _arms(columns, edges, first, is_lower=is_lower)
        if arms:
            tests.append(joined(BoolKind.OR, arms))
    return tests


def _arms(columns: Sequence[Column], edges: Sequence[Edge], first: int, *, is_lower: bool) -> list[Expression]:
    """Return ``a > 2 OR (a = 2 AND b >= 'a')``. Each arm fixes one more column, up to an unbounded one."""
    arms = []
    for last in range(first, len(columns)):
        if edges[last].infinite:
            break
        following = edges[last + 1] if last + 1 < len(columns) else None
        if is_lower:
            strategy = GREATER_EQUAL if following is None or following.infinite < 0 else GREATER
        else:
            strategy = LESS_EQUAL if following is not None and following.infinite > 0 else LESS
        tests = [_comparison(columns[place], EQUAL, [edges[place].value]) for place in range(first, last)]
        arms.append(_all([*tests, _comparison(columns[last], strategy, [edges[last].value])]))
        if following is None or following.infinite:
            break
    return arms


def _range_default(table: Branch) -> list[Expression]:
    bounds = [child.bound for child in table.children if child.bound is not None and not child.bound.default]
    if not bounds:
        return []
    codes = routing.order_codes(table.key, [bound.lower for bound in bounds], []).tolist()
    parts = []
    for place in sorted(range(len(bounds)), key=codes.__getitem__):
        tests = _range(table.key, bounds[place].lower, bounds[place].upper)
        parts.append(_all(tests or _not_nulls(table)))
    return [_not(_all([*_not_nulls(table), joined(BoolKind.OR, parts)]))]


# ---- HASH -----------------------------------------------------------------------------------------------------------


def _hash(table: Branch, bound: Bound) -> Expression:
    function = builtin.builtins().functions_named["satisfies_hash_partition"][0]
    integer = TypeRef(registry.INT4)
    constants = [
        Const(type=TypeRef(registry.OID), value=str(table.relation.oid)),
        Const(type=integer, value=str(bound.modulus)),
        Const(type=integer, value=str(bound.remainder)),
    ]
    return FuncExpr(type=BOOLEAN, function=function.oid, args=(*constants, *[_reference(column) for column in table.key]))
