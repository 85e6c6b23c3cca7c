"""The planner of a statement as the clauses of its queries use it: the state of the statement, and the plans of nested queries.

`query_planner.QueryPlanner` plans a query clause by clause and fills in the methods that need the clauses. The clauses import only this
module, so none of them imports another clause for a nested query.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.analysis import sublink as analysis
from headgate.analysis.analyser import Analyser, Names
from headgate.analysis.query import Cte, Query, RowLock
from headgate.analysis.query_analyser import QueryAnalyser
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands.query import sublink
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.plan import LEAF, Plan
from headgate.commands.query.statement_triggers import StatementTriggers
from headgate.commands.session import Session
from headgate.expression.binding import function_call
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Expression, SubLink
from headgate.expression.spark import compiler
from headgate.sql.parser import unwrap
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns


class Planner:
    """The planner of one statement."""

    def __init__(self, session: Session, transaction: Transaction, parameters: dict[int, int] | None = None) -> None:
        """Create a planner. `parameters`: the parameter types of a statement that is only described. Types of 0 are inferred in place."""
        self.session = session
        self.transaction = transaction
        self.session_spark = transaction.storage.spark
        self.describing = parameters is not None
        self.evaluation = Evaluation(session, self._value_of_subquery, describing=self.describing)
        self.parameters = (
            {number: parameter.type_oid for number, parameter in enumerate(session.parameters, 1)} if parameters is None else parameters
        )
        """The types of the parameters by number."""
        context = self.evaluation.context.within(parameters=self.parameters, infer=parameters is not None)
        self.analyser: Analyser = QueryAnalyser(self.names(), context, self.evaluation.rows)
        self.context: BindContext = self.analyser.context.within(subquery=self._subquery)
        self.role = session.context.user
        """The role whose privileges are checked: the session's user or, inside a view, the view's owner."""
        self.triggers = StatementTriggers()
        self.frozen: dict[tuple[int, bool], DataFrame] = {}
        """Tables (`Relation.rows_key`) as they were before the data-modifying statements of a WITH clause."""
        self.own_files: dict[tuple[int, bool], frozenset[str]] = {}
        """The files of these tables that the transaction had written then (`modifying_with.unwritten`)."""
        self.written: dict[int, set[int]] = {}
        """The columns that the statement itself writes, by table: error details may show their values (`disclosure`)."""
        self._views: frozenset[int] = frozenset()
        """The views whose query this planner plans, one inside another."""
        self._plans: dict[int, tuple[Query, Plan]] = {}
        self._cte_plans: dict[int, tuple[Cte, Plan]] = {}

    def writes(self, relation: Relation, attnums: Iterable[int]) -> None:
        """Record that the statement writes these columns of the table."""
        self.written.setdefault(relation.oid, set()).update(attnums)

    def nested(self, *, describing: bool = False, analyser: Analyser | None = None) -> Self:
        """Return the planner of a statement inside WITH, which can use the queries before it (those of `analyser`).

        `describing`: the planner binds the clauses of the statement with known parameter types, and runs nothing.
        """
        types = {number: parameter.type_oid for number, parameter in enumerate(self.session.parameters, 1)} if describing else None
        planner = type(self)(self.session, self.transaction, types)
        planner.analyser.ctes = dict((analyser or self.analyser).ctes)
        planner.analyser.in_view = self.analyser.in_view
        planner.frozen, planner.own_files = self.frozen, self.own_files
        planner.role, planner._cte_plans, planner.triggers = self.role, self._cte_plans, self.triggers
        return planner

    def within(self, analyser: Analyser, role: str | None = None) -> Self:
        """Return the planner of a part of the statement, with other WITH queries in scope or with the rights of another role."""
        planner = copy.copy(self)
        planner.analyser, planner.role = analyser, role or self.role
        planner.evaluation = self.evaluation.within(planner._value_of_subquery)
        planner.context = analyser.context.within(subquery=planner._subquery)
        return planner

    def key(self, name: str = "") -> str:
        """Return a new key (`Analyser.key`)."""
        return self.analyser.key(name)

    def column(self, expression: Expression) -> Column:
        return self.evaluation.column(expression)

    def prepare(self, expression: Expression) -> Expression:
        """Return the expression with parameters and session values substituted."""
        return self.evaluation.prepare(expression)

    def one_row(self) -> DataFrame:
        """Return a frame of one row whose column is irrelevant.

        Spark evaluates expressions over it while planning, without code generation.
        """
        return self.session_spark.sql(f"VALUES (0) AS t ({self.key('one')})")

    def frame_of(
        self, relation: Relation, *, only: bool = False, skipped: AbstractSet[int] = frozenset(), in_order: bool = False
    ) -> DataFrame:
        """Return the rows of a table as this statement sees them; for a relation with leaves, the rows of these.

        With `only`, a partitioned table has no rows. The leaves in `skipped` are left out. The frame of several leaves has the additional
        last column `plan.LEAF`, the leaf of each row. `in_order`: the rows must be read in the order in which they were written.
        """
        if self.describing and relation.kind == RelationKind.TABLE:
            return local_frame(self.session_spark, arrow_row(relation).empty_table(), spark_columns(relation))
        if relation.rows_key in self.frozen and not only and not skipped:
            return self.frozen[relation.rows_key]
        if relation.has_leaves:
            table = self.transaction.partitioned(relation)
            leaves = [] if only else [leaf for leaf in table.leaves if leaf.oid not in skipped]
            return table.frame(leaves, leaf=LEAF)
        return self.transaction.reader.frame(relation, in_order=in_order)

    # ---- nested queries --------------------------------------------------------------------------------------

    def plan(self, query: Query) -> Plan:
        """Return the plan of a query. It is made once, because an expression with a subquery may be compiled several times."""
        known = self._plans.get(id(query))
        if known is None:
            known = self._plans[id(query)] = query, self.make_plan(query)
        return known[1]

    def plan_of_cte(self, cte: Cte, most: int | None = None) -> Plan:
        """Return the plan of a WITH query. It is planned for its first reference, and has its own barrier (`guarded`).

        `most`: the number of rows of a recursive query that suffice, for its only reference. None: all.
        """
        known = self._cte_plans.get(id(cte))
        if known is None:
            counts = self.evaluation.counts
            before = counts.conditions_in_python
            known = self._cte_plans[id(cte)] = cte, self.make_plan_of_cte(cte, most)
            counts.conditions_in_python = before
        return known[1]

    @contextmanager
    def working_table(self, cte: Cte, plan: Plan) -> Iterator[None]:
        """Let a working table have these rows in the block. Plans that are made there are forgotten, because they may read it."""
        plans, cte_plans = self._plans, self._cte_plans
        self._plans, self._cte_plans = dict(plans), cte_plans | {id(cte): (cte, plan)}
        try:
            yield
        finally:
            self._plans, self._cte_plans = plans, cte_plans

    def guarded(self, query: Query) -> Plan:
        r"""Plan a query in FROM or WITH. Conditions around it are evaluated after its own WHERE, as in PostgreSQL with equal costs.

        Otherwise Spark's optimizer would first evaluate conditions that need no Python: with WHERE v ~ '^(?!..$)' inside and WHERE 10 /
        (length(v) - 2) > 5 outside, it would divide by zero. A query that references an outer query is left unchanged, because Spark turns
        it into a join.
        """
        before = replace(self.evaluation.counts)
        plan = self.make_plan(query)
        after = self.evaluation.counts
        if after.conditions_in_python == before.conditions_in_python or after.outer_references > before.outer_references:
            return plan
        return replace(plan, frame=plan.frame.where(compiler.barrier(F.lit(True))))

    # ---- for `QueryPlanner` ----------------------------------------------------------------------------------

    def names(self) -> Names:
        """Return what the analysis asks of the session."""
        raise NotImplementedError

    def make_plan(self, query: Query) -> Plan:
        """Plan a query, clause by clause."""
        raise NotImplementedError

    def make_plan_of_cte(self, cte: Cte, most: int | None) -> Plan:
        """Plan a WITH query. `most`: see `plan_of_cte`."""
        raise NotImplementedError

    def view(self, relation: Relation, locks: Sequence[RowLock] = ()) -> Plan:
        """Plan a view. It is read with the rights of its owner or, with `security_invoker`, of the role that runs the query.

        `locks` are the locking clauses that apply to the rows of the view. Raise 42P17 if the view reads itself.
        """
        raise NotImplementedError

    # ---- subqueries in expressions ---------------------------------------------------------------------------

    def _value_of_subquery(self, evaluation: Evaluation, node: SubLink) -> Column:
        """Return the value of a SubLink (a callback of the evaluation)."""
        return sublink.column(evaluation, node, self.plan(node.query))

    def _subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """Analyse and plan the query of a SubLink in a clause that is bound outside a query (a callback of the binder).

        It is planned at once, so that it reads the tables as they are before the statement writes.
        """
        link = self.analysed_subquery(node, scope, context)
        self.plan(link.query)
        return link

    def analysed_subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> SubLink:
        """Analyse the query of a SubLink like `_subquery`, for a caller that runs it before the statement writes."""
        query = self.analyser.select(unwrap(node.subselect), replace(scope, clause=function_call.clause(context)))
        return analysis.bound(node, scope, context, query)
