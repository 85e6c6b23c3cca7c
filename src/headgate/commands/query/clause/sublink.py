"""Subqueries in expressions: EXISTS, scalar, IN and the other quantified comparisons, ARRAY(SELECT …), as Columns of the outer frame.

Called by `evaluation` for each SubLink, whose `query` is the `Plan` that the planner made of it. Columns of the enclosing query stand in
it as outer references, which Spark decorrelates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.commands.query.plan import Plan, col, reference
from headgate.errors import not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.node import (
    Aggregate,
    BoolExpr,
    BoolKind,
    CaseTest,
    ColumnRef,
    Expression,
    OpExpr,
    SubLink,
)
from headgate.expression.spark import compiler
from headgate.expression.spark.comparison import in_stored_order
from headgate.types import registry

if TYPE_CHECKING:
    from headgate.commands.query.evaluation import Evaluation


def column(evaluation: Evaluation, node: SubLink) -> Column:
    """The subquery's value."""
    plan: Plan = node.query
    frame = plan.frame.select(*[col(each.key) for each in plan.columns]) if plan.columns else plan.frame
    if node.kind == "EXISTS":
        return frame.exists()
    if node.kind == "EXPR":
        return evaluation.scalar(frame)
    if node.kind == "ARRAY":
        return _array(evaluation, node, plan)
    assert node.test is not None
    return _quantified(evaluation, node.test, plan, negated=node.kind == "ALL")


def _array(evaluation: Evaluation, node: SubLink, plan: Plan) -> Column:
    """ARRAY(SELECT …): empty, not NULL, for no rows."""
    [only] = plan.columns
    gather = next(
        each
        for each in builtin.builtins().functions_named["array_agg"]
        if (each.arguments[0] == registry.ANYARRAY) == _is_array(only.type.oid)
    )
    order = tuple((each.expression, each.descending, each.nulls_first) for each in plan.sorts)
    made = Aggregate(type=node.type, function=gather.oid, args=(reference(only),), order=order)
    return F.coalesce(evaluation.scalar(plan.frame.select(evaluation.column(made).alias("array"))), F.lit("{}"))


def _is_array(oid: int) -> bool:
    found = registry.builtin().find(oid)
    return found is not None and found.is_array


def _quantified(evaluation: Evaluation, test: Expression, plan: Plan, *, negated: bool) -> Column:
    """``x op ANY/ALL (SELECT …)``: IN and NOT IN as Spark's, by keys; other operators over the gathered values."""
    pairs = test.args if isinstance(test, BoolExpr) else (test,)
    wanted = "<>" if negated else "="
    plain = all(isinstance(each, OpExpr) and builtin.operator(each.operator).name == wanted for each in pairs)
    connected = not isinstance(test, BoolExpr) or test.kind is (BoolKind.OR if negated else BoolKind.AND)
    if plain and connected:
        return _listed(evaluation, [each for each in pairs if isinstance(each, OpExpr)], plan, negated=negated)
    if not isinstance(test, OpExpr):
        raise not_supported("comparing rows with a subquery by this operator is not supported")
    return _gathered(evaluation, test, plan, negated=negated)


def _listed(evaluation: Evaluation, pairs: list[OpExpr], plan: Plan, *, negated: bool) -> Column:
    left, right = [], []
    for each in pairs:
        inner = rewriting.rewrite(each.args[1], lambda node: _tested(node, plan))
        ours, theirs = each.args[0], inner
        if ours.type.oid == theirs.type.oid and not _stored(ours.type.oid):
            one, other = evaluation.join_keys(ours, theirs)
        else:
            one, other = evaluation.column(ours), evaluation.column(theirs)
        left.append(one)
        right.append(other)
    side = plan.frame.select(*(each.alias(f"value{place}") for place, each in enumerate(right)))
    found = left[0].isin(side) if len(left) == 1 else F.struct(*left).isin(side)
    return ~found if negated else found


def _stored(oid: int) -> bool:
    """Whether the stored form itself says what is equal."""
    return in_stored_order(oid) and oid not in (registry.BPCHAR, registry.FLOAT4, registry.FLOAT8, registry.NUMERIC)


def _tested(node: Expression, plan: Plan) -> Expression | None:
    """A `CaseTest` stands for a column of the subquery; its location is the column's place."""
    if not isinstance(node, CaseTest):
        return None
    return reference(plan.columns[max(node.location, 0)])


def _gathered(evaluation: Evaluation, test: OpExpr, plan: Plan, *, negated: bool) -> Column:
    """``x > ANY (SELECT …)`` and its like: the least and the greatest value decide, and whether there are NULLs."""
    name = builtin.operator(test.operator).name
    [only] = plan.columns
    if name not in _DECIDING or not in_stored_order(only.type.oid) or only.type.oid in (registry.BPCHAR, registry.NUMERIC):
        raise not_supported("this comparison with the rows of a subquery is not supported")
    value = col(only.key)
    facts = F.struct(F.min(value).alias("min"), F.max(value).alias("max"), F.count(F.lit(1)).alias("all"), F.count(value).alias("some"))
    found = evaluation.scalar(plan.frame.select(facts.alias("facts")))
    tests = [_with_value(evaluation, test, found[each]) for each in _DECIDING[name][negated]]
    decided = tests[0] if len(tests) == 1 else (tests[0] & tests[1] if negated else tests[0] | tests[1])
    unknown = decided.isNull() | (found["some"] < found["all"])
    return (
        F.when(found["all"] == 0, F.lit(negated))
        .when(decided if not negated else ~decided, ~F.lit(negated))
        .when(unknown, F.lit(None).cast("boolean"))
        .otherwise(F.lit(negated))
    )


_DECIDING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ">": (("min",), ("max",)),
    ">=": (("min",), ("max",)),
    "<": (("max",), ("min",)),
    "<=": (("max",), ("min",)),
    "=": (("min", "max"), ("min", "max")),
    "<>": (("min", "max"), ("min", "max")),
}
"""Which of the values an operator has to hold for: with ANY, with ALL (= ANY and <> ALL are IN and NOT IN)."""


def _with_value(evaluation: Evaluation, test: OpExpr, value: Column) -> Column:
    key = "quantified"
    prepared = evaluation.prepare(test)
    compared = rewriting.rewrite(
        prepared, lambda node: ColumnRef(type=node.type, name=key, attnum=1, key=key) if isinstance(node, CaseTest) else None
    )
    return compiler.compile(compared, {**evaluation.places(prepared), key: value}, evaluation.time)
