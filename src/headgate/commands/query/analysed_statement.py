"""The analysed queries of SELECTs that run more than once: those in functions, and those that a client has prepared.

A session has one `AnalysedStatements`. Code that is going to run a parse tree again calls `expect`. `engine.analysed` calls `query` for
every SELECT. It returns the earlier analysis of an expected tree while everything that the analysis reads is the same. The key has these
parts:

    catalog       `TransactionCatalog.shown`: relations, functions, types and rights as the transaction sees them, with its own DDL
    types         the session's registry of types, which is replaced when types or the search path change
    user          whose USAGE on schemas and EXECUTE on functions is checked; SET ROLE and SECURITY DEFINER change it
    search path   and the schema of temporary tables: they decide which object a name denotes
    forms         DateStyle, TimeZone and the like, by which constants are read
    announced     the release whose system relations the node shows
    parameters    the types of the parameters; an operator or a function is chosen by them
    transition    the transition tables of the trigger whose function runs the statement, which hide relations of the same name

Rights on tables and columns, policies, `row_security` and the values of parameters are not part of an analysis. They are read whenever the
query runs. Some analyses are not repeatable and are made each time (`_is_repeatable`).
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import ChangesItem, PlanColumn, Query, parts
from headgate.commands.query.planner import Planner
from headgate.expression.node import UserCall
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.types import registry

MOST = 200
"""Maximum number of statements of a session."""
_LARGEST = 16 << 10
"""Maximum size of a parse tree, in bytes as protobuf serializes it. The analysis takes about ten times as much memory."""
_MOMENTS = ("now", "today", "tomorrow", "yesterday")


@dataclass(frozen=True)
class _Analysis:
    """An analysed query with its key, and the state in which it left the planner's analyser."""

    key: tuple[object, ...]
    query: Query
    next_key: int
    rows: dict[str, tuple[PlanColumn, ...]]
    parameters: dict[int, int]


class AnalysedStatements:
    """The statements that a session is going to run again. The least recently used ones are evicted."""

    def __init__(self) -> None:
        self._statements: OrderedDict[int, tuple[ParseNode, _Analysis | None]] = OrderedDict()
        """By the id of the parse tree. The entry refers to the tree, so its id stays unique."""

    def expect(self, node: ParseNode) -> None:
        """Note that a parse tree is going to run again. It must not be changed from now on."""
        if node.DESCRIPTOR.name != "SelectStmt":
            return
        self._statements.setdefault(id(node), (node, None))
        self._statements.move_to_end(id(node))
        if len(self._statements) > MOST:
            self._statements.popitem(last=False)

    def query(self, planner: Planner, node: pb.SelectStmt, analyse: Callable[[], Query]) -> Query:
        """Return the query of a parse tree that `analyse` returns, or an earlier one."""
        if planner.describing or id(node) not in self._statements:
            return analyse()
        key, analyser = _key(planner), planner.analyser
        analysis = self._statements[id(node)][1]
        if analysis is not None and analysis.key == key:
            analyser.keys = itertools.count(analysis.next_key)
            analyser.rows.update(analysis.rows)
            planner.parameters.update(analysis.parameters)
            return analysis.query
        query = analyse()
        if _is_repeatable(node, query):
            analysis = _Analysis(key, query, next(analyser.keys), dict(analyser.rows), dict(planner.parameters))
            self._statements[id(node)] = node, analysis
        return query


def _key(planner: Planner) -> tuple[object, ...]:
    session = planner.session
    context = session.context
    return (
        planner.transaction.catalog.shown, registry.known(), context.user, context.superuser, tuple(context.search_path),
        context.temp_schema, context.forms, context.announced, tuple(planner.parameters.values()),
        tuple((name, table.relation) for name, table in session.transition_tables.items()),
    )  # fmt: skip


def _is_repeatable(node: pb.SelectStmt, query: Query) -> bool:
    """Return whether an analysis depends on nothing but its key, and has no effect.

    A data-modifying statement in WITH runs during the analysis. The columns of headgate.changes depend on values. A call of a user's
    function has the time of its transaction. A constant such as 'today' has been read by the clock.
    """
    if node.ByteSize() > _LARGEST or any(unwrap(unwrap(item).ctequery).DESCRIPTOR.name != "SelectStmt" for item in node.with_clause.ctes):
        return False
    constants = (part.sval.sval.lower() for part in walk(node) if part.DESCRIPTOR.name == "A_Const" and part.HasField("sval"))
    if any(moment in constant for constant in constants for moment in _MOMENTS):
        return False
    return not any(isinstance(part, UserCall | ChangesItem) for part in parts(query))
