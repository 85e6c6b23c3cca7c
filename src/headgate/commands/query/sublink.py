"""Subqueries in expressions (EXISTS, scalar, IN and other quantified comparisons, ARRAY(SELECT …)) as Columns of the outer frame.

`Evaluation` calls it through the planner, which plans the `query` of the SubLink. The plan references columns of the enclosing query as
outer references, which Spark decorrelates.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.analysis.query import parts, reference
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.plan import Plan, col
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


def column(evaluation: Evaluation, node: SubLink, plan: Plan) -> Column:
    """Return the value of a subquery, whose query has this plan."""
    frame = plan.frame.select(*[col(column.key) for column in plan.columns]) if plan.columns else plan.frame
    if node.kind == "EXISTS":
        return frame.exists()
    if node.kind == "EXPR":
        return evaluation.scalar(frame)
    if node.kind == "ARRAY":
        return _array(evaluation, node, plan)
    assert node.test is not None
    return _quantified_test(evaluation, node, node.test, plan)


def _array(evaluation: Evaluation, node: SubLink, plan: Plan) -> Column:
    """Return the value of ARRAY(SELECT …), which is empty, not NULL, if there are no rows."""
    [only] = plan.columns
    gather = next(
        function
        for function in builtin.builtins().functions_named["array_agg"]
        if (function.arguments[0] == registry.ANYARRAY) == _is_array(only.type.oid)
    )
    order = tuple((item.expression, item.descending, item.nulls_first) for item in plan.sorts)
    aggregate = Aggregate(type=node.type, function=gather.oid, args=(reference(only),), order=order)
    return F.coalesce(evaluation.scalar(plan.frame.select(evaluation.column(aggregate).alias("array"))), F.lit("{}"))


def _is_array(oid: int) -> bool:
    type_entry = registry.builtin().find(oid)
    return type_entry is not None and type_entry.is_array


def _quantified_test(evaluation: Evaluation, node: SubLink, test: Expression, plan: Plan) -> Column:
    """Translate ``x op ANY/ALL (SELECT …)``.

    | comparison                                            | translation                                      |
    |-------------------------------------------------------|--------------------------------------------------|
    | IN and NOT IN as a condition                          | Spark's IN over keys                             |
    | IN and NOT IN of one column of an uncorrelated query  | Spark's IN, and NULL by the numbers of values    |
    | an ordered type without IN                            | a comparison with the least and greatest value   |
    | any other                                             | EXISTS of a row that decides, else of one that is NULL |
    """
    negated = node.kind == "ALL"
    pairs = test.args if isinstance(test, BoolExpr) else (test,)
    operator_name = "<>" if negated else "="
    plain = all(isinstance(pair, OpExpr) and builtin.operator(pair.operator).name == operator_name for pair in pairs)
    connected = not isinstance(test, BoolExpr) or test.kind is (BoolKind.OR if negated else BoolKind.AND)
    is_test, is_correlated = evaluation.is_test(node), _is_correlated(node)
    if plain and connected and (is_test or (len(pairs) == 1 and not is_correlated)):
        return _is_in_rows(evaluation, [pair for pair in pairs if isinstance(pair, OpExpr)], plan, negated=negated, is_value=not is_test)
    if isinstance(test, OpExpr) and not is_correlated and _has_extremes(test, plan):
        return _compare_with_extremes(evaluation, test, plan, negated=negated)
    return _compare_with_each(evaluation, test, plan, negated=negated)


def _is_correlated(node: SubLink) -> bool:
    return any(isinstance(part, ColumnRef) and part.levels_up for part in parts(node.query))


def _compare_with_each(evaluation: Evaluation, test: Expression, plan: Plan, *, negated: bool) -> Column:
    """Compare with each row: one that gives true (ANY) or false (ALL) decides. Without one, the value is NULL if a row gives NULL."""

    def in_subquery(node: Expression) -> Expression | None:
        if isinstance(node, ColumnRef):
            return replace(node, levels_up=node.levels_up + 1)
        return _replace_case_test(node, plan)

    result = evaluation.column(rewriting.rewrite(test, in_subquery))
    decides = plan.frame.where(~result if negated else result).exists()
    is_unknown = plan.frame.where(result.isNull()).exists()
    return F.when(decides, F.lit(not negated)).when(is_unknown, F.lit(None).cast("boolean")).otherwise(F.lit(negated))


def _is_in_rows(evaluation: Evaluation, pairs: list[OpExpr], plan: Plan, *, negated: bool, is_value: bool) -> Column:
    """Return whether the values are in the subquery. Spark's IN may return false instead of NULL, which counts if `is_value`."""
    left, right = [], []
    for pair in pairs:
        inner = rewriting.rewrite(pair.args[1], lambda node: _replace_case_test(node, plan))
        ours, theirs = pair.args[0], inner
        if ours.type.oid == theirs.type.oid and not _compares_as_stored(ours.type.oid):
            left_key, right_key = evaluation.join_keys(ours, theirs)
        else:
            left_key, right_key = evaluation.column(ours), evaluation.column(theirs)
        left.append(left_key)
        right.append(right_key)
    side = plan.frame.select(*(column.alias(f"value{place}") for place, column in enumerate(right)))
    is_member = left[0].isin(side) if len(left) == 1 else F.struct(*left).isin(side)
    if is_value:
        counts = F.struct(F.count(F.lit(1)).alias("all"), F.count(right[0]).alias("some")).alias("counts")
        rows = evaluation.scalar(plan.frame.select(counts))
        is_unknown = (left[0].isNull() & (rows["all"] > 0)) | (rows["some"] < rows["all"])
        is_member = F.when(is_member, F.lit(True)).when(is_unknown, F.lit(None).cast("boolean")).otherwise(F.lit(False))
    return ~is_member if negated else is_member


def _compares_as_stored(oid: int) -> bool:
    """Return whether equal values have equal stored forms."""
    return in_stored_order(oid) and oid not in (registry.BPCHAR, registry.FLOAT4, registry.FLOAT8, registry.NUMERIC)


def _replace_case_test(node: Expression, plan: Plan) -> Expression | None:
    """Replace a `CaseTest` by the column of the subquery whose place is its location."""
    if not isinstance(node, CaseTest):
        return None
    return reference(plan.columns[max(node.location, 0)])


def _has_extremes(test: OpExpr, plan: Plan) -> bool:
    """Return whether the least and the greatest value of the subquery decide the comparison."""
    [only] = plan.columns
    is_ordered = in_stored_order(only.type.oid) and only.type.oid not in (registry.BPCHAR, registry.NUMERIC)
    return is_ordered and builtin.operator(test.operator).name in _DECIDING


def _compare_with_extremes(evaluation: Evaluation, test: OpExpr, plan: Plan, *, negated: bool) -> Column:
    """Compare with the least and the greatest value and test for NULLs, for ``x > ANY (SELECT …)`` and similar comparisons."""
    name = builtin.operator(test.operator).name
    [only] = plan.columns
    value = col(only.key)
    facts = F.struct(F.min(value).alias("min"), F.max(value).alias("max"), F.count(F.lit(1)).alias("all"), F.count(value).alias("some"))
    facts_row = evaluation.scalar(plan.frame.select(facts.alias("facts")))
    tests = [_with_value(evaluation, test, facts_row[bound]) for bound in _DECIDING[name][negated]]
    decided = tests[0] if len(tests) == 1 else (tests[0] & tests[1] if negated else tests[0] | tests[1])
    unknown = decided.isNull() | (facts_row["some"] < facts_row["all"])
    return (
        F.when(facts_row["all"] == 0, F.lit(negated))
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
"""The values for which an operator must hold: with ANY, with ALL (= ANY and <> ALL are IN and NOT IN)."""


def _with_value(evaluation: Evaluation, test: OpExpr, value: Column) -> Column:
    key = "quantified"
    prepared = evaluation.prepare(test)
    compared = rewriting.rewrite(
        prepared, lambda node: ColumnRef(type=node.type, name=key, attnum=1, key=key) if isinstance(node, CaseTest) else None
    )
    return compiler.compile(compared, {**evaluation.places(prepared), key: value}, evaluation.time)
