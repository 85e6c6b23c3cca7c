"""Which leaves of a partitioned table an UPDATE or DELETE can touch, by its WHERE (partprune.c).

PostgreSQL asks for a replica identity only of the leaves that are left, and only they are read here. What is understood: comparisons of
a key column with constants, = ANY and IN, IS [NOT] NULL, joined by AND. Everything else may match any row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.partition import Branch, Edge, Strategy
from headgate.catalog.relation.relation import Column, Relation
from headgate.commands import stored_expression
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding import binder
from headgate.expression.node import (
    ArrayExpr,
    ColumnRef,
    Const,
    Expression,
    Form,
    FuncExpr,
    NullTest,
    OpExpr,
    Relabel,
    ScalarArrayOp,
    conjuncts,
)
from headgate.sql.parser import has_condition, walk
from headgate.storage.routing import children_of, order_codes, texts_of
from headgate.types import registry

_TURNED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_WHOLE = frozenset({registry.INT2, registry.INT4, registry.INT8})
_TEXTS = frozenset({registry.TEXT, registry.VARCHAR})


@dataclass(frozen=True)
class Limit:
    """What WHERE demands of a column: `name` operator one of `values`; operator "null" or "not null" has no values."""

    name: str
    operator: str
    values: tuple[str, ...] = ()


def leaves(planner: Planner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, items: Sequence[pb.Node]) -> tuple[Relation, ...]:
    """The leaves that a statement on `relation` can touch; `items`: its FROM or USING."""
    table = planner.transaction.partitioned(relation)
    if not node.relation.inh:
        return ()
    plain = has_condition(node) and not items and not planner.describing
    if not plain or any(each.DESCRIPTOR.name == "SubLink" for each in walk(node.where_clause)):
        return table.leaves
    scope = stored_expression.scope_of(relation.columns, node.relation.alias.aliasname or relation.name)
    condition = binder.bind_condition(node.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
    parts = conjuncts(planner.prepare(condition))
    if any(isinstance(part, Const) and part.value != "t" for part in parts):
        return ()
    limits = [limit for part in parts if (limit := _limit(part, relation)) is not None]
    wanted = {leaf.oid for leaf in _left(table.branch, limits)}
    return tuple(leaf for leaf in table.leaves if leaf.oid in wanted)


def _limit(part: Expression, relation: Relation) -> Limit | None:
    if isinstance(part, NullTest):
        column = _column(part.arg, relation)
        return None if column is None else Limit(column.name, "null" if part.is_null else "not null")
    if isinstance(part, OpExpr) and len(part.args) == 2:
        operator = builtin.operator(part.operator).name
        left, right = part.args
        if operator in _TURNED and isinstance(left, Const):
            left, right, operator = right, left, _TURNED[operator]
        return _comparison(left, operator, [right], relation)
    if isinstance(part, ScalarArrayOp) and part.any and isinstance(part.args[1], ArrayExpr):
        return _comparison(part.args[0], builtin.operator(part.operator).name, part.args[1].elements, relation)
    return None


def _comparison(left: Expression, operator: str, right: Sequence[Expression], relation: Relation) -> Limit | None:
    column = _column(left, relation)
    if column is None or operator not in _TURNED or (len(right) > 1 and operator != "="):
        return None
    values = []
    for each in right:
        constant = _constant(each)
        if constant is None or constant.value is None or not _same_values(constant.type.oid, column.type_oid):
            return None
        values.append(constant.value)
    try:
        texts_of(values, column)
    except PostgresError:
        return None  # a value that the column cannot have
    return Limit(column.name, operator, tuple(values))


def _constant(expression: Expression) -> Const | None:
    """A constant, or a whole number that is cast to numeric."""
    if isinstance(expression, FuncExpr) and expression.form is Form.IMPLICIT and expression.type.oid == registry.NUMERIC:
        [inner] = expression.args[:1] or [expression]
        if isinstance(inner, Const) and inner.type.oid in _WHOLE:
            return Const(type=expression.type, value=inner.value)
    return expression if isinstance(expression, Const) else None


def _column(expression: Expression, relation: Relation) -> Column | None:
    inner = expression.arg if isinstance(expression, Relabel) else expression
    return relation.column(inner.name) if isinstance(inner, ColumnRef) and inner.attnum > 0 and not inner.levels_up else None


def _same_values(one: int, other: int) -> bool:
    return one == other or any(one in family and other in family for family in (_WHOLE, _TEXTS))


# ---- the tree ---------------------------------------------------------------------------------------------------------


def _left(branch: Branch, limits: Sequence[Limit]) -> Iterator[Relation]:
    if not branch.relation.is_partitioned:
        yield branch.relation
        return
    exact = _exact(branch, limits)
    for number, child in enumerate(branch.children):
        if (number in exact) if exact is not None else _can_hold(branch, child, limits):
            yield from _left(child, limits)


def _exact(branch: Branch, limits: Sequence[Limit]) -> set[int] | None:
    """The children that take the rows, where WHERE names all values of the key."""
    values: list[Sequence[str | None]] = []
    for column in branch.key:
        mine = [limit for limit in limits if limit.name == column.name]
        found: list[Sequence[str | None]] = [limit.values for limit in mine if limit.operator == "="]
        found += [(None,) for limit in mine if limit.operator == "null"]
        if not found or (len(branch.key) > 1 and len(found[0]) > 1):
            return None
        values.append(found[0])
    key = {column.name: texts_of(each, column) for column, each in zip(branch.key, values, strict=True)}
    return set(children_of(branch, key, len(values[0])).tolist())


def _can_hold(branch: Branch, child: Branch, limits: Sequence[Limit]) -> bool:
    """Whether a partition can hold a row that obeys the limits on the first column of the key."""
    bound, column = child.bound, branch.key[0]
    mine = [limit for limit in limits if limit.name == column.name]
    if bound is None or bound.default or not mine or branch.strategy is Strategy.HASH:
        return True
    if branch.strategy is Strategy.LIST:
        return any(all(_obeys(column, value, limit) for limit in mine) for value in bound.values)
    return all(_overlaps(column, bound.lower[0], bound.upper[0], limit, single=len(branch.key) == 1) for limit in mine)


def _obeys(column: Column, value: str | None, limit: Limit) -> bool:
    if value is None or not limit.values:
        return (value is None) == (limit.operator == "null")
    return any(_compare(column, Edge(value), limit.operator, each) for each in limit.values)


def _overlaps(column: Column, lower: Edge, upper: Edge, limit: Limit, *, single: bool) -> bool:
    if not limit.values:
        return limit.operator != "null"
    below = "<" if single else "<="
    match limit.operator:
        case "=":
            return any(
                _compare(column, lower, "<=", each) and _compare(column, upper, _TURNED[below], each) for each in limit.values
            )  # fmt: skip
        case "<" | "<=":
            return _compare(column, lower, limit.operator, limit.values[0])
        case ">":
            return _compare(column, upper, ">", limit.values[0])
        case _:
            return _compare(column, upper, _TURNED[below], limit.values[0])


def _compare(column: Column, edge: Edge, operator: str, value: str) -> bool:
    one, other = order_codes([column], [(edge,), (Edge(value),)], []).tolist()
    return bool({"=": one == other, "<": one < other, ">": one > other, "<=": one <= other, ">=": one >= other}[operator])
