"""Run an analysed query as a Spark DataFrame, clause by clause.

One planner serves one statement. Its `analyser` turns a parse tree into a `Query`, and `plan` turns a Query into a `Plan`:

    FROM (from_clause) → WHERE → GROUP BY, aggregates, HAVING (grouping) → SELECT list (_project) → DISTINCT → ORDER BY, LIMIT (ordering)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headgate import interruption
from headgate.analysis.analyser import Names
from headgate.analysis.query import Cte, CteItem, PlanColumn, Query, RowLock, Select, SelectItem, SetOperation, Sort, Values, reference
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
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
    system_relation,
    volatile_call,
    where_clause,
)
from headgate.commands.query.driver import values_list
from headgate.commands.query.plan import Plan, Source
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.expression import rewriting
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Expression, SubLink, TypeRef, walk
from headgate.expression.spark import compiler
from headgate.expression.spark.value import PythonInside, without_python
from headgate.sql.parser import ParseNode, parse
from headgate.storage.spark.local_relation import local_frame
from headgate.types import registry
from headgate.types.storage import spark_type


class QueryPlanner(Planner):
    """Plans the queries of one statement."""

    def names(self) -> Names:
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

    def view(self, relation: Relation, locks: Sequence[RowLock] = ()) -> Plan:
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

    def make_plan_of_cte(self, cte: Cte, most: int | None) -> Plan:
        if cte.recursion is not None:
            return recursive_with.run(self, cte, cte.recursion, most)
        return cte.rows if cte.query is None else self.guarded(cte.query)

    def make_plan(self, query: Query) -> Plan:
        match query.body:
            case Select() as select:
                return self._plain(query, select)
            case Values(cells):
                plan = self._values(query.columns, cells)
            case SetOperation() as operation:
                plan = set_operation.combine(self, operation, query.columns)
        return ordering.limit(self, ordering.sort(self, plan, query.sorts), query.limit, query.sorts)

    def _plain(self, query: Query, select: Select) -> Plan:
        if isinstance(select.source, CteItem) and select.source.cte.recursion is not None:
            self.plan_of_cte(select.source.cte, recursive_with.enough(self, query, select))
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
