"""Run an analysed query as a Spark DataFrame, clause by clause.

One planner serves one statement. Its `analyser` turns a parse tree into a `Query`, and `plan` turns a Query into a `Plan`:

    FROM (from_clause) → WHERE → GROUP BY, aggregates, HAVING (grouping) → SELECT list (_project) → DISTINCT → ORDER BY, LIMIT (ordering)
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headgate import interruption
from headgate.analysis import sublink as analysis
from headgate.analysis.analyser import Analyser
from headgate.analysis.names import Names
from headgate.analysis.query import Cte, PlanColumn, Query, RowLock, Select, SelectItem, SetOperation, Sort, Values, reference
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.security import acl
from headgate.commands import lookup, stored_expression
from headgate.commands.query import change_scan, row_by_row
from headgate.commands.query.catalog import answer as catalog
from headgate.commands.query.clause import (
    from_clause,
    function_scan,
    grouping,
    modifying_with,
    ordering,
    recursive_with,
    set_operation,
    sublink,
    system_relation,
    volatile_call,
    where_clause,
)
from headgate.commands.query.driver import values_list
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.plan import Plan, Source
from headgate.commands.query.statement_triggers import StatementTriggers
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import rewriting
from headgate.expression.binding import function_call
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Expression, SubLink, TypeRef, walk
from headgate.expression.spark import compiler
from headgate.expression.spark.value import PythonInside, without_python
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns
from headgate.types import registry
from headgate.types.storage import spark_type


class Planner:
    """Plans the queries of one statement."""

    def __init__(self, session: Session, transaction: Transaction, parameters: dict[int, int] | None = None) -> None:
        """Create a planner. `parameters`: the parameter types of a statement that is only described. Types of 0 are inferred in place."""
        self.session = session
        self.transaction = transaction
        self.session_spark = transaction.engine.spark
        self.describing = parameters is not None
        self.evaluation = Evaluation(session, self._value_of_subquery, describing=self.describing)
        self.parameters = (
            {number: parameter.type_oid for number, parameter in enumerate(session.parameters, 1)} if parameters is None else parameters
        )
        """The types of the parameters by number."""
        context = self.evaluation.context.within(parameters=self.parameters, infer=parameters is not None)
        self.analyser = Analyser(self._names(), context, self.evaluation.rows)
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

    def _names(self) -> Names:
        """Return what the analysis asks of the session."""
        session, transaction = self.session, self.transaction

        def transition(name: str) -> Relation | None:
            table = session.transition_tables.get(name)
            return None if table is None else table.relation

        return Names(
            relation=lambda node, check: lookup.queried(transaction.cursor, session.context, node, check=check),
            relation_of_oid=lambda oid: relations.find(transaction.cursor, session.context.database, oid),
            transition=transition,
            changes=lambda analyser, node: change_scan.item(analyser, node, session, describing=self.describing),
            modify=lambda analyser, query: modifying_with.run(self, analyser, query),
        )

    def writes(self, relation: Relation, attnums: Iterable[int]) -> None:
        """Record that the statement writes these columns of the table."""
        self.written.setdefault(relation.oid, set()).update(attnums)

    def nested(self, *, describing: bool = False, analyser: Analyser | None = None) -> Planner:
        """Return the planner of a statement inside WITH, which can use the queries before it (those of `analyser`).

        `describing`: the planner binds the clauses of the statement with known parameter types, and runs nothing.
        """
        types = {number: parameter.type_oid for number, parameter in enumerate(self.session.parameters, 1)} if describing else None
        planner = Planner(self.session, self.transaction, types)
        planner.analyser.ctes = dict((analyser or self.analyser).ctes)
        planner.analyser.in_view = self.analyser.in_view
        planner.frozen, planner.own_files = self.frozen, self.own_files
        planner.role, planner._cte_plans, planner.triggers = self.role, self._cte_plans, self.triggers
        return planner

    def within(self, analyser: Analyser, role: str | None = None) -> Planner:
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
        last column `from_clause.LEAF`, the leaf of each row. `in_order`: the rows must be read in the order in which they were
        written.
        """
        if self.describing and relation.kind == RelationKind.TABLE:
            return local_frame(self.session_spark, arrow_row(relation).empty_table(), spark_columns(relation))
        if relation.rows_key in self.frozen and not only and not skipped:
            return self.frozen[relation.rows_key]
        if relation.has_leaves:
            table = self.transaction.partitioned(relation)
            leaves = [] if only else [leaf for leaf in table.leaves if leaf.oid not in skipped]
            return table.frame(leaves, leaf=from_clause.LEAF)
        return self.transaction.reader.frame(relation, in_order=in_order)

    def view(self, relation: Relation, locks: Sequence[RowLock] = ()) -> Plan:
        """Plan a view. It is read with the rights of its owner or, with `security_invoker`, of the role that runs the query.

        `locks` are the locking clauses that apply to the rows of the view. Raise 42P17 if the view reads itself.
        """
        if relation.oid in self._views:
            raise PostgresError("42P17", f'infinite recursion detected in rules for relation "{relation.name}"')
        cursor = self.transaction.cursor
        text = views.query(cursor, relation.database, relation.oid)
        [statement] = parse(text)
        options = views.options(cursor, relation.database, relation.oid)
        role = self.session.context.user if views.invokers_rights(options) else acl.role_name(cursor, relation.owner)
        planner = self.within(self.analyser.nested(in_view=True, ctes=False), role)
        planner._views = self._views | {relation.oid}
        with registry.unguarded():
            query = planner.analyser.select(statement.node, None, locks=locks)
            plan = planner.guarded(query) if catalog.refusal(planner, query) else system_relation.frame_of(self, catalog.run(self, query))
        columns = [
            replace(plan_column, name=column.name, relation=relation.oid, attnum=column.attnum)
            for plan_column, column in zip(plan.columns, relation.columns, strict=True)
        ]
        frame = plan.frame.where(compiler.barrier(F.lit(True))) if views.is_barrier(options) else plan.frame
        return Plan(frame, tuple(columns))

    # ---- queries ---------------------------------------------------------------------------------------------

    def select(self, node: pb.SelectStmt, outer: Scope | None, types: Sequence[TypeRef] = ()) -> Plan:
        """Analyse and plan a query. `types`: the types of the columns that INSERT … SELECT fills (`Analyser.select`)."""
        return self.plan(self.analyse(node, outer, types))

    def analyse(self, node: pb.SelectStmt, outer: Scope | None = None, types: Sequence[TypeRef] = ()) -> Query:
        """Analyse a query of the statement, and run the data-modifying statements in its WITH clause."""
        if not node.HasField("with_clause"):
            return self.analyser.select(node, outer, types, top=True)
        modifying_with.freeze(self, node.with_clause, node)
        with self.triggers.statement():
            return self.analyser.select(node, outer, types, top=True)

    def with_queries(self, statement: ParseNode) -> None:
        """Analyse the queries of a statement's WITH clause, if it has one, and run the data-modifying ones."""
        if statement.HasField("with_clause"):
            modifying_with.freeze(self, statement.with_clause, statement)
            self.analyser.with_queries(statement.with_clause, top=True)

    def plan(self, query: Query) -> Plan:
        """Return the plan of a query. It is made once, because an expression with a subquery may be compiled several times."""
        known = self._plans.get(id(query))
        if known is None:
            known = self._plans[id(query)] = query, self._make_plan(query)
        return known[1]

    def plan_of_cte(self, cte: Cte) -> Plan:
        """Return the plan of a WITH query. It is planned for its first reference, and has its own barrier (`guarded`)."""
        known = self._cte_plans.get(id(cte))
        if known is None:
            counts = self.evaluation.counts
            before = counts.conditions_in_python
            known = self._cte_plans[id(cte)] = cte, self._plan_of_cte(cte)
            counts.conditions_in_python = before
        return known[1]

    def _plan_of_cte(self, cte: Cte) -> Plan:
        if cte.recursion is not None:
            return recursive_with.run(self, cte, cte.recursion)
        return cte.rows if cte.query is None else self.guarded(cte.query)

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
        plan = self._make_plan(query)
        after = self.evaluation.counts
        if after.conditions_in_python == before.conditions_in_python or after.outer_references > before.outer_references:
            return plan
        return replace(plan, frame=plan.frame.where(compiler.barrier(F.lit(True))))

    def _make_plan(self, query: Query) -> Plan:
        match query.body:
            case Select() as select:
                return self._plain(query, select)
            case Values(cells):
                plan = self._values(query.columns, cells)
            case SetOperation() as operation:
                plan = set_operation.combine(self, operation, query.columns)
        return ordering.limit(self, ordering.sort(self, plan, query.sorts), query.limit, query.sorts)

    def _plain(self, query: Query, select: Select) -> Plan:
        source = from_clause.source_of(self, select.source, from_clause.Reading.of(select, self))
        if select.where is not None:
            source = self.filtered(source, select.where)
        if select.grouped is not None:
            source = grouping.group(self, select.grouped, source)
        frame, query, select = self._called_late(source.frame, query, select)
        plan, placed = self._project(frame, query, select)
        sorts, on = placed[: len(query.sorts)], placed[len(query.sorts) :]
        if select.distinct:
            plan = ordering.distinct(self, plan, [item.expression for item in on])
        elif on:
            plan = ordering.distinct_on(self, plan, on, sorts)
        return ordering.limit(self, ordering.sort(self, plan, sorts), query.limit, sorts)

    def where(self, node: pb.DeleteStmt | pb.UpdateStmt, source: Source, scope: Scope) -> Source:
        """Return the source with the rows that meet the WHERE clause of a statement."""
        condition = self.analyser.where(node, scope)
        return source if condition is None else self.filtered(source, condition)

    def filtered(self, source: Source, condition: Expression) -> Source:
        """Return the source with the rows that meet a condition."""
        own, called = row_by_row.split(condition)
        later = None
        if own is not None and called and not any(map(stored_expression.volatile, called)):
            own, later = where_clause.without_outer(own)  # the driver cannot read a frame with columns of an outer query
        frame = self._where(source.frame, own, source)
        return replace(source, frame=self._where(row_by_row.passing(self.evaluation, frame, called), later, source))

    def _where(self, frame: DataFrame, condition: Expression | None, source: Source) -> DataFrame:
        for part in () if condition is None else where_clause.conditions(condition, source.tables, source.equal):
            frame = frame.where(self._test(part))
        return frame

    def filtered_in_turn(self, source: Source, condition: Expression) -> Source:
        """Return the source with the rows that meet a condition, whose terms are evaluated in order over all of its tables."""
        own, called = row_by_row.split(condition)
        frame = source.frame if own is None else source.frame.where(self.evaluation.filter(own))
        return replace(source, frame=row_by_row.passing(self.evaluation, frame, called))

    def _test(self, condition: where_clause.InTurn | where_clause.Equality) -> Column:
        for node in walk(condition.term if isinstance(condition, where_clause.Equality) else condition.expression):
            if isinstance(node, SubLink):
                self.plan(node.query)  # may need Python for itself
        try:
            with without_python():
                return self._condition(condition)
        except PythonInside:
            self.evaluation.counts.conditions_in_python += 1
            return self._condition(condition)

    def _condition(self, condition: where_clause.InTurn | where_clause.Equality) -> Column:
        match condition:
            case where_clause.Equality(term):
                return self.evaluation.equality(term)
            case where_clause.InTurn(expression):
                return self.evaluation.filter(expression)

    def _called_late(self, frame: DataFrame, query: Query, select: Select) -> tuple[DataFrame, Query, Select]:
        """Evaluate the targets that PostgreSQL evaluates after ORDER BY and LIMIT, and that need the session. Return what is left to do.

        These are volatile targets, and with LIMIT all that call functions of users, if they are not sort keys (make_sort_input_target).
        """
        keys = {sort.expression for sort in query.sorts}
        late = [
            target.expression for target in select.targets
            if row_by_row.calls_session(target.expression) and target.expression not in keys
            and (query.limit is not None or (query.sorts and row_by_row.is_volatile(target.expression)))
        ]  # fmt: skip
        if not late or select.distinct or select.on or function_scan.has_sets(select.targets):
            return frame, query, select
        frame, sort_keys = row_by_row.settled(self.evaluation, frame, [sort.expression for sort in query.sorts])
        places = {sort.expression: key for sort, key in zip(query.sorts, sort_keys, strict=True) if key is not sort.expression}
        sorts = tuple(replace(sort, expression=key) for sort, key in zip(query.sorts, sort_keys, strict=True))
        rows, limit = ordering.sort(self, Plan(frame, ()), sorts), query.limit
        if limit is not None and limit.with_ties:
            rows, limit = ordering.limit(self, rows, limit, sorts), None
        elif limit is not None:
            rows = ordering.first(self, rows, limit)
        frame, values = row_by_row.settled(self.evaluation, rows.frame, late, in_order=bool(sorts))
        remaining = iter(values)
        targets = [
            replace(target, expression=next(remaining) if any(target.expression is value for value in late) else
                    places.get(target.expression, target.expression))
            for target in select.targets
        ]  # fmt: skip
        return frame, replace(query, sorts=(), limit=limit), replace(select, targets=tuple(targets))

    def _project(self, frame: DataFrame, query: Query, select: Select) -> tuple[Plan, list[Sort]]:
        """Project the SELECT list. Sort expressions (also of DISTINCT) that are not targets become additional columns of the frame."""
        targets: Sequence[SelectItem] = select.targets
        sorts, on = query.sorts, select.on
        if function_scan.has_sets(targets):
            frame, settled = row_by_row.settled(self.evaluation, frame, [target.expression for target in targets])
            targets = [replace(target, expression=expression) for target, expression in zip(targets, settled, strict=True)]
        frame, places = function_scan.expand(self, frame, targets)
        if places:
            targets = [replace(target, expression=rewriting.rewrite(target.expression, places.get)) for target in targets]
            sorts, on = (
                tuple(replace(sort, expression=rewriting.rewrite(sort.expression, places.get)) for sort in items) for items in (sorts, on)
            )
        frame, settled = volatile_call.compute(self, frame, [target.expression for target in targets])
        same = {target.expression: settled_expression for target, settled_expression in zip(targets, settled, strict=True)}
        targets = [replace(target, expression=settled_expression) for target, settled_expression in zip(targets, settled, strict=True)]
        sorts, on = (tuple(replace(sort, expression=same.get(sort.expression, sort.expression)) for sort in items) for items in (sorts, on))
        frame, sort_keys = row_by_row.settled(self.evaluation, frame, [sort.expression for sort in (*sorts, *on)])
        placed_sorts = [replace(sort, expression=key) for sort, key in zip((*sorts, *on), sort_keys, strict=True)]
        if select.distinct:
            placed_sorts += [Sort(target.expression, descending=False, nulls_first=False) for target in targets]
        columns = query.columns
        by_target = {target.expression: column for target, column in zip(targets, columns, strict=True)}
        extra: list[Column] = []
        placed: list[Sort] = []
        for sort in placed_sorts:
            row = sort.expression.type.oid == registry.RECORD
            column = by_target.get(sort.expression)
            if column is None or (row and column.key not in self.evaluation.row_keys):
                key = self.key("sort")
                if row:
                    self.evaluation.row_keys.add(key)
                extra.append((self.evaluation.sort_key if row else self.column)(sort.expression).alias(key))
                column = by_target[sort.expression] = PlanColumn("", sort.expression.type, key)
            placed.append(replace(sort, expression=reference(column)))
        selected = [self.column(target.expression).alias(column.key) for target, column in zip(targets, columns, strict=True)]
        if not selected and not extra:
            selected = [F.lit(True).alias(self.key("none"))]
        return Plan(frame.select(*selected, *extra), columns), placed

    def _values(self, columns: tuple[PlanColumn, ...], values: Sequence[Sequence[Expression]]) -> Plan:
        """Plan VALUES (…), (…)."""
        known = None if self.describing else values_list.constants(self, columns, values)
        if known is not None:
            schema = StructType([StructField(column.key, spark_type(column.type.oid, column.type.typmod)) for column in columns])
            return Plan(local_frame(self.session_spark, known, schema), columns)
        structs = []
        for row in zip(*values, strict=True):
            interruption.check()  # check for a cancel: each row calls Java several times
            structs.append(F.struct(*[self.column(value).alias(column.key) for value, column in zip(row, columns, strict=True)]))
        rows = self.one_row().select(F.array(*structs).alias("rows"))  # Spark resolves columns of the outer query here, but not in explode
        frame = rows.select(F.explode("rows").alias("row")).select("row.*")
        return Plan(frame, columns)

    # ---- subqueries in expressions ---------------------------------------------------------------------------

    def _value_of_subquery(self, evaluation: Evaluation, node: SubLink) -> Column:
        """Return the value of a SubLink (a callback of the evaluation)."""
        return sublink.column(evaluation, node, self.plan(node.query))

    def _subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """Analyse and plan the query of a SubLink in a clause that is bound outside a query (a callback of the binder).

        It is planned at once, so that it reads the tables as they are before the statement writes.
        """
        query = self._query_of(node, scope, context)
        self.plan(query)
        return analysis.bound(node, scope, context, [column.type for column in query.columns], query)

    def analysed_subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """Analyse the query of a SubLink like `_subquery`, for a caller that runs it before the statement writes."""
        query = self._query_of(node, scope, context)
        return analysis.bound(node, scope, context, [column.type for column in query.columns], query)

    def _query_of(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Query:
        return self.analyser.select(unwrap(node.subselect), replace(scope, clause=function_call.clause(context)))
