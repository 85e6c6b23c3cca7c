"""Conditional expressions: CASE, COALESCE, GREATEST and LEAST (manual, 9.18; NULLIF is an operator's).

Called by `compiler`, which hands itself down as `plan`. What must hold: a branch that PostgreSQL leaves out cannot fail.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression import node as n
from headgate.expression.implementation.number import numeric
from headgate.expression.spark.call import may_raise, varies
from headgate.expression.spark.comparison import C_COLLATIONS, comparable, less
from headgate.expression.spark.value import Env, Make, Plan, Value, after, refuse

_case_value: ContextVar[Value] = ContextVar("case_value")
"""What the CASE that is being planned tests; sessions plan at the same time."""


def case(node: n.Case, plan: Plan) -> Value:
    """CASE: a branch counts only where its condition is the first that is true."""
    token = _case_value.set(plan(node.arg)) if node.arg is not None else None
    try:
        conditions = [plan(each) for each in node.conditions]
    finally:
        if token is not None:
            _case_value.reset(token)
    branches = numeric.unify([*(plan(each) for each in node.results), plan(node.default)])
    idle = _idle(node)
    tested = node.arg is not None and may_raise(node.arg)

    def make(env: Env) -> Column:
        made: Any = F
        reached = env
        watched: list[Make] = []
        before: list[Column] = []
        for place, (test, branch) in enumerate(zip(conditions, branches, strict=False)):
            decided = test.make(reached)
            met = F.coalesce(decided, F.lit(False))
            if place >= idle and (tested or may_raise(node.conditions[place])):
                watched.append(_unless(before, decided))
            made = made.when(met, branch.make(reached.under(functools.partial(_is, met))))
            reached = reached.under(functools.partial(_is_not, met))
            before.append(met)
        column: Column = made.otherwise(branches[-1].make(reached))
        return after(watched, Value(branches[0].rep, lambda env: column)).make(env) if watched else column

    return Value(branches[0].rep, make, any(each.fallible for each in branches))


def _is(condition: Column) -> Column:
    return condition


def _is_not(condition: Column) -> Column:
    return ~condition


def _idle(node: n.Case) -> int:
    """From which condition on all results are that of ELSE, as far as Spark may find: it leaves these out, with what they raise."""
    place = len(node.results)
    while place and _may_be_same(node.results[place - 1], node.default):
        place -= 1
    return place


def _may_be_same(one: n.Expression, other: n.Expression) -> bool:
    if isinstance(one, n.Const) and isinstance(other, n.Const):
        return one.value == other.value
    return one == other or not (varies(one) or varies(other))


def _unless(before: Sequence[Column], decided: Column) -> Make:
    """A condition where none of those before it is met."""
    watched = F.when(functools.reduce(Column.__or__, before, F.lit(False)), F.lit(None)).otherwise(decided)
    return lambda env: watched


def case_test(node: n.CaseTest) -> Value:
    """The value that the CASE around it tests."""
    return _case_value.get()


def coalesce(node: n.Coalesce, plan: Plan) -> Value:
    """COALESCE: an argument counts only where those before it are NULL."""
    args = numeric.unify([plan(each) for each in node.args])

    def make(env: Env) -> Column:
        made = [args[0].make(env)]
        for each in args[1:]:
            env = env.under(functools.partial(F.isnull, made[-1]))
            made.append(each.make(env))
        return F.coalesce(*made)

    return Value(args[0].rep, make, any(each.fallible for each in args))


def min_max(node: n.MinMax, plan: Plan) -> Value:
    """GREATEST and LEAST; NULLs are passed over."""
    for each in node.args:
        if each.type.collation not in C_COLLATIONS:
            raise refuse("GREATEST and LEAST under a collation other than C")
    args = numeric.unify([plan(each) for each in node.args])
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
