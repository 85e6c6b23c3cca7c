"""Find the leaves of a partitioned table that an UPDATE or DELETE can change, by its WHERE (partprune.c).

As in PostgreSQL, only these leaves need a replica identity, and only they are read. Comparisons of a key column with constants, = ANY and
IN, and IS [NOT] NULL, joined by AND, are used. Any other condition may match every row.
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
_TEXTS = frozenset({registry.TEXT, registry.VARCHAR})


@dataclass(frozen=True)
class Limit:
    """A condition on a column: `name` operator one of `values`. The operators "null" and "not null" have no values."""

    name: str
    operator: str
    values: tuple[str, ...] = ()


def leaves(planner: Planner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, items: Sequence[pb.Node]) -> tuple[Relation, ...]:
    """Return the leaves that a statement on `relation` can change. `items` is its FROM or USING."""
    table = planner.transaction.partitioned(relation)
    if not node.relation.inh:
        return ()
    is_usable = has_condition(node) and not items and not planner.describing
    if not is_usable or any(node_part.DESCRIPTOR.name == "SubLink" for node_part in walk(node.where_clause)):
        return table.leaves
    scope = stored_expression.scope_of(relation.columns, node.relation.alias.aliasname or relation.name)
    condition = binder.bind_condition(node.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
    parts = conjuncts(planner.prepare(condition))
    if any(isinstance(part, Const) and part.value != "t" for part in parts):
        return ()
    limits = [limit for part in parts if (limit := _limit(part, relation)) is not None]
    leaf_oids = {leaf.oid for leaf in _remaining(table.branch, limits)}
    return tuple(leaf for leaf in table.leaves if leaf.oid in leaf_oids)


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
    for operand in right:
        constant = _constant(operand)
        if constant is None or constant.value is None or not _same_values(constant.type.oid, column.type_oid):
            return None
        values.append(constant.value)
    try:
        texts_of(values, column)
    except PostgresError:
        return None  # a value that the column cannot contain
    return Limit(column.name, operator, tuple(values))


def _constant(expression: Expression) -> Const | None:
    """Return a constant, or an integer that is cast to numeric. Return None for any other expression."""
    if isinstance(expression, FuncExpr) and expression.form is Form.IMPLICIT and expression.type.oid == registry.NUMERIC:
        [inner] = expression.args[:1] or [expression]
        if isinstance(inner, Const) and inner.type.oid in registry.INTEGERS:
            return Const(type=expression.type, value=inner.value)
    return expression if isinstance(expression, Const) else None


def _column(expression: Expression, relation: Relation) -> Column | None:
    inner = expression.arg if isinstance(expression, Relabel) else expression
    return relation.column(inner.name) if isinstance(inner, ColumnRef) and inner.attnum > 0 and not inner.levels_up else None


def _same_values(left: int, right: int) -> bool:
    return left == right or any(left in family and right in family for family in (registry.INTEGERS, _TEXTS))


# ---- the tree ---------------------------------------------------------------------------------------------------------


def _remaining(branch: Branch, limits: Sequence[Limit]) -> Iterator[Relation]:
    if not branch.relation.is_partitioned:
        yield branch.relation
        return
    exact = _exact(branch, limits)
    for number, child in enumerate(branch.children):
        if (number in exact) if exact is not None else _can_hold(branch, child, limits):
            yield from _remaining(child, limits)


def _exact(branch: Branch, limits: Sequence[Limit]) -> set[int] | None:
    """Return the children that contain the matching rows if WHERE has values for all key columns, otherwise None."""
    values: list[Sequence[str | None]] = []
    for column in branch.key:
        column_limits = [limit for limit in limits if limit.name == column.name]
        candidates: list[Sequence[str | None]] = [limit.values for limit in column_limits if limit.operator == "="]
        candidates += [(None,) for limit in column_limits if limit.operator == "null"]
        if not candidates or (len(branch.key) > 1 and len(candidates[0]) > 1):
            return None
        values.append(candidates[0])
    key = {column.name: texts_of(key_values, column) for column, key_values in zip(branch.key, values, strict=True)}
    return set(children_of(branch, key, len(values[0])).tolist())


def _can_hold(branch: Branch, child: Branch, limits: Sequence[Limit]) -> bool:
    """Return whether a partition can contain a row that meets the limits on the first key column."""
    bound, column = child.bound, branch.key[0]
    column_limits = [limit for limit in limits if limit.name == column.name]
    if bound is None or bound.default or not column_limits or branch.strategy is Strategy.HASH:
        return True
    if branch.strategy is Strategy.LIST:
        return any(all(_obeys(column, value, limit) for limit in column_limits) for value in bound.values)
    return all(_overlaps(column, bound.lower[0], bound.upper[0], limit, single=len(branch.key) == 1) for limit in column_limits)


def _obeys(column: Column, value: str | None, limit: Limit) -> bool:
    if value is None or not limit.values:
        return (value is None) == (limit.operator == "null")
    return any(_compare(column, Edge(value), limit.operator, bound_value) for bound_value in limit.values)


def _overlaps(column: Column, lower: Edge, upper: Edge, limit: Limit, *, single: bool) -> bool:
    if not limit.values:
        return limit.operator != "null"
    below = "<" if single else "<="
    match limit.operator:
        case "=":
            return any(
                _compare(column, lower, "<=", end) and _compare(column, upper, _TURNED[below], end) for end in limit.values
            )  # fmt: skip
        case "<" | "<=":
            return _compare(column, lower, limit.operator, limit.values[0])
        case ">":
            return _compare(column, upper, ">", limit.values[0])
        case _:
            return _compare(column, upper, _TURNED[below], limit.values[0])


def _compare(column: Column, edge: Edge, operator: str, value: str) -> bool:
    edge_code, value_code = order_codes([column], [(edge,), (Edge(value),)], []).tolist()
    return bool(
        {
            "=": edge_code == value_code,
            "<": edge_code < value_code,
            ">": edge_code > value_code,
            "<=": edge_code <= value_code,
            ">=": edge_code >= value_code,
        }[operator]
    )
