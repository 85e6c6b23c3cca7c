"""Conditional expressions in Spark: CASE, COALESCE, GREATEST and LEAST (manual, 9.18). NULLIF is compiled with the operators.

Called by `compiler`, which passes its own `plan` function. Invariant: a branch that PostgreSQL skips cannot fail.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextvars import ContextVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression import node as n
from headgate.expression.implementation.number import numeric
from headgate.expression.spark.call import may_raise, varies
from headgate.expression.spark.comparison import C_COLLATIONS, comparable, less
from headgate.expression.spark.value import Env, Make, Plan, Value, after, refuse

_case_value: ContextVar[Value] = ContextVar("case_value")
"""The operand of the CASE that is being planned. A context variable, because sessions plan concurrently."""


def case(node: n.Case, plan: Plan) -> Value:
    """Return a CASE, in which a branch counts only if its condition is the first that is true."""
    token = _case_value.set(plan(node.arg)) if node.arg is not None else None
    try:
        conditions = [plan(condition) for condition in node.conditions]
    finally:
        if token is not None:
            _case_value.reset(token)
    branches = numeric.unify([*(plan(result) for result in node.results), plan(node.default)])
    idle = _idle(node)
    tested = node.arg is not None and may_raise(node.arg)

    def make(env: Env) -> Column:
        cases: Column | None = None
        reached = env
        watched: list[Make] = []
        before: list[Column] = []
        for index, (test, branch) in enumerate(zip(conditions, branches, strict=False)):
            result = test.make(reached)
            is_met = F.coalesce(result, F.lit(False))
            if index >= idle and (tested or may_raise(node.conditions[index])):
                watched.append(_unless(before, result))
            cases = (F if cases is None else cases).when(is_met, branch.make(reached.under(functools.partial(_is, is_met))))
            reached = reached.under(functools.partial(_is_not, is_met))
            before.append(is_met)
        assert cases is not None
        column = cases.otherwise(branches[-1].make(reached))
        return after(watched, Value(branches[0].rep, lambda env: column)).make(env) if watched else column

    return Value(branches[0].rep, make, any(value.fallible for value in branches))


def _is(condition: Column) -> Column:
    return condition


def _is_not(condition: Column) -> Column:
    return ~condition


def _idle(node: n.Case) -> int:
    """Return the index of the first condition from which all results may equal ELSE. Spark drops such conditions, with their errors."""
    place = len(node.results)
    while place and _may_be_same(node.results[place - 1], node.default):
        place -= 1
    return place


def _may_be_same(left: n.Expression, right: n.Expression) -> bool:
    if isinstance(left, n.Const) and isinstance(right, n.Const):
        return left.value == right.value
    return left == right or not (varies(left) or varies(right))


def _unless(before: Sequence[Column], decided: Column) -> Make:
    """Return the value of a condition, or NULL if one of the conditions before it is met."""
    guarded = F.when(functools.reduce(Column.__or__, before, F.lit(False)), F.lit(None)).otherwise(decided)
    return lambda env: guarded


def case_test(node: n.CaseTest) -> Value:
    return _case_value.get()


def coalesce(node: n.Coalesce, plan: Plan) -> Value:
    """Return a COALESCE, in which an argument counts only if those before it are NULL."""
    args = numeric.unify([plan(arg) for arg in node.args])

    def make(env: Env) -> Column:
        columns = [args[0].make(env)]
        for arg in args[1:]:
            env = env.under(functools.partial(F.isnull, columns[-1]))
            columns.append(arg.make(env))
        return F.coalesce(*columns)

    return Value(args[0].rep, make, any(arg.fallible for arg in args))


def min_max(node: n.MinMax, plan: Plan) -> Value:
    """Return GREATEST or LEAST, which ignore NULLs."""
    for arg in node.args:
        if arg.type.collation not in C_COLLATIONS:
            raise refuse("GREATEST and LEAST under a collation other than C")
    args = numeric.unify([plan(expression) for expression in node.args])
    comparable(node.type.oid)

    def make(env: Env) -> Column:
        best = args[0]
        for candidate in args[1:]:
            best = _better(best, candidate, node)
        return best.make(env)

    return Value(args[0].rep, make, any(value.fallible for value in args))


def _better(best: Value, candidate: Value, node: n.MinMax) -> Value:
    def make(env: Env) -> Column:
        a, b = best.make(env), candidate.make(env)
        oid = node.type.oid
        prefer = less(candidate, best, oid) if not node.greatest else less(best, candidate, oid)
        return F.when(F.isnull(a), b).when(F.isnull(b), a).when(prefer.make(env), b).otherwise(a)

    return Value(best.rep, make, best.fallible or candidate.fallible)
