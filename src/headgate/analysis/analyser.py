"""The analyser of a statement as the clauses of its queries use it: WITH queries in scope, keys of columns, and nested queries.

`query_analyser.QueryAnalyser` analyses a query clause by clause. The clauses import only this module, so none of them imports another
clause for a nested query.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from postgast import pg_query_pb2 as pb

from headgate.analysis import sublink
from headgate.analysis.query import Cte, FromItem, PlanColumn, Query, RowLock
from headgate.catalog.relation.relation import Relation
from headgate.expression.binding import binder, function_call
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Expression, TypeRef
from headgate.sql.parser import ParseNode, has_condition, unwrap


@dataclass(frozen=True)
class Names:
    """The look-ups of one statement that its analysis needs from the session. The owner of the analysis fills in the callables.

    relation          the relation that a query names; 42P01 if there is none. The bool: whether the role needs USAGE on the schema
    relation_of_oid   the relation with an oid
    transition        the table whose changed rows a transition table has
    changes           a call of headgate.changes as a FROM item, or None for another function
    modify            runs a data-modifying statement in WITH: its columns, or None without RETURNING, and its rows
    """

    relation: Callable[[pb.RangeVar, bool], Relation]
    relation_of_oid: Callable[[int], Relation | None]
    transition: Callable[[str], Relation | None]
    changes: Callable[[Analyser, pb.RangeFunction], FromItem | None]
    modify: Callable[[Analyser, ParseNode], tuple[tuple[PlanColumn, ...] | None, Any]]


class Analyser:
    """The analyser of one statement. `ctes`: the WITH queries in scope, by name."""

    def __init__(self, names: Names, context: BindContext, rows: dict[str, tuple[PlanColumn, ...]], *, in_view: bool = False) -> None:
        """Create an analyser. `rows` receives the columns of the tables in FROM, by the keys of their whole rows."""
        self.names = names
        self.context = context.within(subquery=self.subquery, construct="SELECT")
        self.rows = rows
        self.in_view = in_view
        self.ctes: dict[str, Cte] = {}
        self.keys: Iterator[int] = itertools.count(1)
        """The numbers of the next keys."""

    def nested(self, *, in_view: bool | None = None, ctes: bool = True) -> Self:
        """Return an analyser of a part of the statement, which can add WITH queries of its own. With `ctes`, it has those in scope."""
        analyser = type(self)(self.names, self.context, self.rows, in_view=self.in_view if in_view is None else in_view)
        analyser.keys = self.keys
        analyser.ctes = dict(self.ctes) if ctes else {}
        return analyser

    def key(self, name: str = "") -> str:
        """Return a new key. The name in it is for readers of a plan, without the characters that Spark interprets in a name."""
        return f"k{next(self.keys)}_{re.sub(r'[.`]', '_', name)}"

    def row_key(self, alias: str, columns: Sequence[PlanColumn]) -> str:
        """Return a key for the whole rows of a table: a column that is true, or NULL in rows that an outer join filled with NULLs."""
        key = self.key(f"row_{alias}")
        self.rows[key] = tuple(columns)
        return key

    def select(
        self, node: pb.SelectStmt, outer: Scope | None, types: Sequence[TypeRef] = (), locks: Sequence[RowLock] = (), *, top: bool = False
    ) -> Query:
        """Analyse a SELECT, VALUES or set operation, with its WITH clause.

        `types`: the types of the columns that INSERT … SELECT fills. Literals of unknown type are read as these. `locks`: the
        locking clauses of the enclosing query. `top`: the query is not part of another query, so WITH may change data.
        """
        raise NotImplementedError

    def with_queries(self, clause: pb.WithClause, outer: Scope | None = None, *, top: bool) -> tuple[Cte, ...]:
        """Analyse the queries of a WITH clause for the queries after them, and run the data-modifying ones. Return them in this order."""
        raise NotImplementedError

    def where(self, node: pb.DeleteStmt | pb.OnConflictClause | pb.SelectStmt | pb.UpdateStmt, scope: Scope) -> Expression | None:
        if not has_condition(node):
            return None
        return binder.bind_condition(node.where_clause, scope, "WHERE", context=self.context.within(construct="WHERE"))

    def subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """Analyse the query of a SubLink (a callback of the binder). The scope of the expression becomes its outer scope."""
        outer = replace(scope, clause=function_call.clause(context), allowed=context.aggregates)
        query = self.select(unwrap(node.subselect), outer)
        return sublink.bound(node, scope, context, query)
