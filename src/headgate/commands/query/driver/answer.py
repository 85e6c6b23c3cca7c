"""Answer an analysed query in the driver, without a Spark job.

Called by `engine`. The FROM clause decides which module answers: constants, one table, or published changes. `refusal` decides from the
analysed query alone whether the driver takes it, before anything is read. `answer` raises NotColumnwise if the driver's answer would differ
from PostgreSQL's for the values or the rights at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeAlias

from headgate.analysis.query import ChangesItem, FromItem, Query, RelationItem, Select
from headgate.commands.query import change_scan
from headgate.commands.query.driver import constant, single_table
from headgate.commands.query.planner import Planner
from headgate.types.resultset import ResultSet

_Refuse: TypeAlias = Callable[[Query, Select], str | None]
_Answer: TypeAlias = Callable[[Planner, Query, Select], ResultSet]

_BY_SOURCE: Mapping[type[FromItem], tuple[_Refuse, _Answer]] = {
    FromItem: (
        lambda query, select: constant.refusal(query, select, refusal),
        lambda planner, query, select: constant.answer(planner, query, select, functools.partial(answer, planner)),
    ),
    RelationItem: (single_table.refusal, single_table.answer),
    ChangesItem: (change_scan.refusal, change_scan.answer),
}


def refusal(query: Query) -> str | None:
    """Return the reason why the driver does not take the query, or None if it does."""
    if not isinstance(query.body, Select) or type(query.body.source) not in _BY_SOURCE or not query.columns:
        return "not a SELECT list over one source"
    refuse, _ = _BY_SOURCE[type(query.body.source)]
    return refuse(query, query.body)


def answer(planner: Planner, query: Query) -> ResultSet:
    """Return the result of a query that `refusal` accepts."""
    assert isinstance(query.body, Select)
    _, answer_of = _BY_SOURCE[type(query.body.source)]
    return answer_of(planner, query, query.body)
