"""SELECT → a Spark DataFrame, clause by clause, as PostgreSQL's parse_analyze resolves it.

`Planner.select` takes a SelectStmt and gives a `Plan`. One planner serves one statement; it hands out the keys under which
columns run through the frames, so that any two frames of a statement can be joined.

    FROM (from_clause) → WHERE → GROUP BY, aggregates, HAVING (grouping) → SELECT list (target) → DISTINCT → ORDER BY, LIMIT (ordering)

Traced: ``SELECT b, count(*) FROM t WHERE a > 1 GROUP BY b ORDER BY 2`` reads t as (k1_a, k2_b), filters by the Column of
``a > 1``, groups by g3 = k2_b with a4 = count(1), projects (k5_b, k6_count), sorts by k6_count, NULLs last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.commands.query import engine_choice
from headgate.commands.query.clause import (
    from_clause,
    function_scan,
    grouping,
    modifying_with,
    ordering,
    recursive_with,
    row_locking,
    select_list,
    set_operation,
    sublink_binding,
    system_relation,
    volatile_call,
    where_clause,
)
from headgate.commands.query.clause.row_locking import RowLock
from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.driver import values_list
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.plan import Plan, PlanColumn, Sort, Source, col, reference
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import rewriting
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import resolve_unknown
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Expression, TypeRef
from headgate.expression.spark import compiler
from headgate.expression.spark.value import PythonInside, without_python
from headgate.interruption import look
from headgate.sql import command_tag, names
from headgate.sql.parser import ParseNode, has_condition, parse, position, unwrap
from headgate.sql.parser import walk as walk_tree
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns
from headgate.types import registry
from headgate.types.storage import spark_type


class Planner:
    """Plans the queries of one statement."""

    def __init__(self, session: Session, transaction: Transaction, parameters: dict[int, int] | None = None) -> None:
        """`parameters`: the types of parameters of a statement that is only described; 0 is to be inferred, in place."""
        self.session = session
        self.transaction = transaction
        self.session_spark = transaction.engine.spark
        self.describing = parameters is not None
        self.evaluation = Evaluation(session, describing=self.describing)
        given = {number: each.type_oid for number, each in enumerate(session.parameters, 1)} if parameters is None else parameters
        self.context: BindContext = self.evaluation.context.within(
            parameters=given, infer=parameters is not None, subquery=self._subquery, construct="SELECT"
        )
        self.ctes: dict[str, Plan | None] = {}
        """The queries of WITH; None: a data-modifying one without RETURNING."""
        self.role = session.context.user
        """Whose privileges count: the session's user, inside a view the view's owner."""
        self.in_view = False
        self.in_order = False
        """Whether the rows of the table that is read next should come in the order in which they were written."""
        self.fires_later: list[Callable[[], None]] = []
        """What fires when the statement has written all its rows (`trigger.firing`)."""
        self.is_firing = False
        """Whether that is being done."""
        self.firings: dict[int, Any] = {}
        """The triggers of tables that fire in this statement, by table (`trigger.firing.of_statement`)."""
        self.multiplies = False
        """Whether the FROM that is planned makes pairs of rows in a loop (`from_clause.multiplies`)."""
        self.only_where: ParseNode | None = None
        """The WHERE of a query whose FROM is one relation, for who reads that."""
        self.locks: tuple[RowLock, ...] = ()
        """The locking clauses that count for the FROM that is planned."""
        self.frozen: dict[int, DataFrame] = {}
        """Tables as they were before the data-modifying statements of a WITH clause."""
        self.written: dict[int, set[int]] = {}
        """The columns that the statement itself gives to rows of tables: what errors may tell of them (`disclosure`)."""
        self._keys = 0
        self._depth = 0
        self._conditions_in_python = 0

    def writes(self, relation: Relation, attnums: Iterable[int]) -> None:
        """The statement gives rows of the table values in these columns."""
        self.written.setdefault(relation.oid, set()).update(attnums)

    def nested(self, *, describing: bool = False) -> Planner:
        """Return the planner of a statement inside WITH, which can use the queries before it.

        `describing`: the planner binds the clauses of this statement, with parameters of known types, and runs nothing.
        """
        types = {number: each.type_oid for number, each in enumerate(self.session.parameters, 1)} if describing else None
        made = Planner(self.session, self.transaction, types)
        made.ctes, made.frozen, made.role, made.in_view = dict(self.ctes), self.frozen, self.role, self.in_view
        return made

    def key(self, name: str = "") -> str:
        """A new key; the name in it is for whoever reads a plan, without what Spark reads in a name."""
        self._keys += 1
        return f"k{self._keys}_{re.sub(r'[.`]', '_', name)}"

    def row_key(self, alias: str) -> str:
        """The key of a table's whole rows: a column that is true, or NULL where an outer join found no row."""
        return self.key(f"row_{alias}")

    def column(self, expression: Expression) -> Column:
        """The Column of an expression."""
        return self.evaluation.column(expression)

    def prepare(self, expression: Expression) -> Expression:
        """The expression with parameters and the session's values in place."""
        return self.evaluation.prepare(expression)

    def one_row(self) -> DataFrame:
        """One row without columns that matter; what is computed of it alone, Spark computes while it plans, without compiling code."""
        return self.session_spark.sql(f"VALUES (0) AS t ({self.key('one')})")

    def frame_of(self, relation: Relation, *, only: bool = False, skipped: AbstractSet[int] = frozenset()) -> DataFrame:
        """The rows of a table, of a partitioned one those of all its leaves (`only`: none; not the `skipped`), as this statement sees them.

        Behind the columns of a partitioned table stands `from_clause.LEAF`, the leaf of each row.
        """
        if self.describing and relation.kind == RelationKind.TABLE:
            return local_frame(self.session_spark, arrow_row(relation).empty_table(), spark_columns(relation))
        if relation.oid in self.frozen and not only and not skipped:
            return self.frozen[relation.oid]
        if relation.is_partitioned:
            table = self.transaction.partitioned(relation)
            leaves = [] if only else [each for each in table.leaves if each.oid not in skipped]
            return table.frame(leaves, leaf=from_clause.LEAF)
        return self.transaction.frame(relation, in_order=self.in_order)

    def view(self, relation: Relation, locks: Sequence[RowLock] = ()) -> Plan:
        """The rows of a view, read with the rights of its owner, or (`security_invoker`) as if the query itself read them.

        `locks` reach into it.
        """
        cursor = self.transaction.cursor
        text = views.query(cursor, relation.database, relation.oid)
        [statement] = parse(text)
        saved = self.ctes, self.role, self.in_view
        options = views.options(cursor, relation.database, relation.oid)
        role = self.session.context.user if views.invokers_rights(options) else privilege.role_name(cursor, relation.owner)
        self.ctes, self.role, self.in_view = {}, role, True
        try:
            with registry.unguarded():
                by_catalog, plan = engine_choice.find(statement.node, self.session, lambda: self.from_query(statement.node, locks=locks))
                if by_catalog:
                    plan = system_relation.answer(self, text)
                elif plan is None:
                    plan = self.from_query(statement.node, locks=locks)
        finally:
            self.ctes, self.role, self.in_view = saved
        columns = [
            replace(plan_column, name=column.name, relation=relation.oid, attnum=column.attnum)
            for plan_column, column in zip(plan.columns, relation.columns, strict=True)
        ]
        frame = plan.frame.where(compiler.barrier(F.lit(True))) if views.is_barrier(options) else plan.frame
        return Plan(frame, tuple(columns))

    def copy_of(self, plan: Plan) -> Plan:
        """The same rows under new keys: a WITH query that is read more than once."""
        columns = tuple(replace(each, key=self.key(each.name)) for each in plan.columns)
        frame = plan.frame.select(*[col(old.key).alias(new.key) for old, new in zip(plan.columns, columns, strict=True)])
        return Plan(frame, columns)

    # ---- queries ---------------------------------------------------------------------------------------------

    def select(self, node: pb.SelectStmt, outer: Scope | None, wanted: Sequence[TypeRef] = (), locks: Sequence[RowLock] = ()) -> Plan:
        """A SELECT, VALUES or set operation, with its WITH clause.

        `wanted`: the types of the columns that INSERT … SELECT fills; literals of unknown type are read as these. `locks`: the locking
        clauses of a query in whose FROM it stands.
        """
        saved, around = dict(self.ctes), self.locks
        self._depth += 1
        try:
            if node.HasField("with_clause"):
                self.with_queries(node.with_clause, node)
            if node.locking_clause and node.values_lists:
                strength = command_tag.STRENGTHS[unwrap(node.locking_clause[0]).strength]
                raise PostgresError("0A000", f"{strength} cannot be applied to VALUES")
            self.locks = row_locking.of_query(node, locks, self.ctes)
            if node.into_clause.ByteSize():
                raise PostgresError("42601", "SELECT ... INTO is not allowed here")
            if node.op != pb.SETOP_NONE:
                return self._set_operation(node, outer)
            if node.values_lists:
                return self._limited(node, self._sorted_by_name(node, self._values(node, outer)), outer)
            return self._plain(node, outer, wanted)
        finally:
            self.ctes, self.locks = saved, around
            self._depth -= 1

    def with_queries(self, clause: pb.WithClause, statement: pb.SelectStmt) -> None:
        """Plans the queries of the WITH clause of a statement, for those that come after; runs those that change data."""
        modifying_with.freeze(self, clause, statement)
        for each in clause.ctes:
            cte = unwrap(each)
            query = unwrap(cte.ctequery)
            if query.DESCRIPTOR.name != "SelectStmt":
                if self._depth > 1:
                    message = "WITH clause containing a data-modifying statement must be at the top level"
                    raise PostgresError("0A000", message, position=position(cte.location))
                plan = modifying_with.run(self, query)
                self.ctes[cte.ctename] = None if plan is None else named(cte, plan)
                continue
            recursive = clause.recursive and mentions(cte)
            plan = recursive_with.run(self, cte, query) if recursive else self.from_query(query)
            self.ctes[cte.ctename] = named(cte, plan)

    def _plain(self, node: pb.SelectStmt, outer: Scope | None, wanted: Sequence[TypeRef] = ()) -> Plan:
        windows = {unwrap(each).name: unwrap(each) for each in node.window_clause}
        above, self.in_order = self.in_order, outer is None and ordering.unsorted(node)
        self.only_where = node.where_clause if from_clause.is_one_relation(node.from_clause) and node.HasField("where_clause") else None
        beyond, self.multiplies = self.multiplies, not self.describing and from_clause.multiplies(node.from_clause, node.where_clause)
        source = from_clause.plan_from(self, node.from_clause, outer)
        self.in_order, self.only_where, self.multiplies = above, None, beyond
        locks, self.locks = self.locks, ()
        scope = source.scope(outer)
        targets = select_list.expand(node.target_list, source, scope, self.context.within(aggregates=True, sets=True, windows=windows))
        row_locking.check_targets(locks, targets)
        source = self.where(node, source, scope)
        sorts = ordering.read(self, node.sort_clause, targets, scope, windows)
        on = ordering.read_on(self, node, targets, scope, sorts)
        literals = () if node.distinct_clause else [select_list.undecided(each) for each in targets]
        targets = select_list.resolve_unknown(targets, self.context, wanted)
        grouped = grouping.group(self, node, source, scope, targets, [*sorts, *on])
        if grouped is not None:
            source, targets, rewritten = grouped
            sorts, on = rewritten[: len(sorts)], rewritten[len(sorts) :]
        if node.distinct_clause:
            ordering.check_distinct(sorts, targets, on=bool(on))
        plan, placed = self._project(source.frame, targets, sorts, on)
        sorts, on = placed[: len(sorts)], placed[len(sorts) :]
        if on:
            plan = ordering.distinct_on(self, plan, on, sorts)
        elif node.distinct_clause:
            plan = ordering.distinct(self, plan)
        limited = self._limited(node, ordering.sort(self, plan, sorts), outer, sorts)
        if not any(literals):
            return limited
        columns = [replace(each, literal=literal) for each, literal in zip(limited.columns, literals, strict=True)]
        return replace(limited, columns=tuple(columns))

    def where(self, node: pb.DeleteStmt | pb.SelectStmt | pb.UpdateStmt, source: Source, scope: Scope) -> Source:
        """The source after WHERE."""
        if not has_condition(node):
            return source
        condition = binder.bind_condition(node.where_clause, scope, "WHERE", context=self.context.within(construct="WHERE"))
        frame = source.frame
        for each in where_clause.conditions(condition, source.tables, source.equal):
            frame = frame.where(self._test(each))
        return replace(source, frame=frame)

    def _test(self, condition: where_clause.InTurn | where_clause.Equality) -> Column:
        try:
            with without_python():
                return self._tested(condition)
        except PythonInside:
            self._conditions_in_python += 1
            return self._tested(condition)

    def _tested(self, condition: where_clause.InTurn | where_clause.Equality) -> Column:
        match condition:
            case where_clause.Equality(term):
                return self.evaluation.equality(term)
            case where_clause.InTurn(expression):
                return self.evaluation.filter(expression)

    def from_query(self, query: pb.SelectStmt, outer: Scope | None = None, locks: Sequence[RowLock] = ()) -> Plan:
        r"""A query that stands in FROM or WITH. What surrounds it is looked at behind its WHERE, as PostgreSQL does if the costs are equal.

        Spark's optimizer would look first at what needs no Python: WHERE v ~ '^(?!..$)' inside and WHERE 10 / (length(v) - 2) > 5 around it
        would divide by zero. A query that names columns of one around it is left as it is: Spark makes a join of it.
        """
        before, references = self._conditions_in_python, self.evaluation.outer_references
        plan = self.select(query, outer, locks=locks)
        if self._conditions_in_python == before or self.evaluation.outer_references > references:
            return plan
        return replace(plan, frame=plan.frame.where(compiler.barrier(F.lit(True))))

    def _project(
        self, frame: DataFrame, targets: Sequence[SelectItem], sorts: Sequence[Sort], on: Sequence[Sort] = ()
    ) -> tuple[Plan, list[Sort]]:
        """The SELECT list; sort expressions (those of DISTINCT ON too) that are no targets become further columns of the frame."""
        frame, places = function_scan.expand(self, frame, targets)
        if places:
            targets = [replace(each, expression=rewriting.rewrite(each.expression, places.get)) for each in targets]
            sorts = [replace(each, expression=rewriting.rewrite(each.expression, places.get)) for each in sorts]
            on = [replace(each, expression=rewriting.rewrite(each.expression, places.get)) for each in on]
        frame, settled = volatile_call.settled(self, frame, [each.expression for each in targets])
        same = {each.expression: made for each, made in zip(targets, settled, strict=True)}
        targets = [replace(each, expression=made) for each, made in zip(targets, settled, strict=True)]
        sorts = [replace(each, expression=same.get(each.expression, each.expression)) for each in sorts]
        columns = [PlanColumn(each.name, each.expression.type, self.key(each.name), each.relation, each.attnum) for each in targets]
        by_target = {each.expression: column for each, column in zip(targets, columns, strict=True)}
        extra: list[Column] = []
        placed: list[Sort] = []
        for each in (*sorts, *on):
            column = by_target.get(each.expression)
            if column is None:
                key = self.key("sort")
                row = each.expression.type.oid == registry.RECORD
                extra.append((self.evaluation.sort_key if row else self.column)(each.expression).alias(key))
                column = by_target[each.expression] = PlanColumn("", each.expression.type, key)
            placed.append(replace(each, expression=reference(column)))
        selected = [self.column(each.expression).alias(column.key) for each, column in zip(targets, columns, strict=True)]
        if not selected and not extra:
            selected = [F.lit(True).alias(self.key("none"))]
        return Plan(frame.select(*selected, *extra), tuple(columns)), placed

    def _limited(self, node: pb.SelectStmt, plan: Plan, outer: Scope | None, sorts: Sequence[Sort] = ()) -> Plan:
        return ordering.limit(self, plan, node, sorts)

    def _sorted_by_name(self, node: pb.SelectStmt, plan: Plan) -> Plan:
        return ordering.sort(self, plan, ordering.by_output(self, node.sort_clause, plan))

    def _values(self, node: pb.SelectStmt, outer: Scope | None) -> Plan:
        """VALUES (…), (…): each column in the common type of its expressions."""
        scope = Scope((), outer)
        rows = [
            [binder.bind_raw(value, scope, self.context.within(construct="VALUES")) for value in unwrap(row).items]
            for row in node.values_lists
        ]
        if len({len(row) for row in rows}) > 1:
            raise PostgresError("42601", "VALUES lists must all be the same length")
        columns, values = [], []
        for place in range(len(rows[0])):
            cells, type_ref = binder.unify(
                [resolve_unknown(row[place], self.context) if len(rows) == 1 else row[place] for row in rows], "VALUES", self.context
            )
            columns.append(PlanColumn(f"column{place + 1}", type_ref, self.key(f"column{place + 1}")))
            values.append(cells)
        known = None if self.describing else values_list.constants(self, columns, values)
        if known is not None:
            schema = StructType([StructField(each.key, spark_type(each.type.oid, each.type.typmod)) for each in columns])
            return Plan(local_frame(self.session_spark, known, schema), tuple(columns))
        structs = []
        for row in zip(*values, strict=True):
            look()  # thousands of rows are thousands of calls of Java
            structs.append(F.struct(*[self.column(value).alias(column.key) for value, column in zip(row, columns, strict=True)]))
        frame = self.one_row().select(F.explode(F.array(*structs)).alias("row")).select("row.*")
        return Plan(frame, tuple(columns))

    def _set_operation(self, node: pb.SelectStmt, outer: Scope | None) -> Plan:
        plan = set_operation.combine(self, node, self.select(node.larg, outer), self.select(node.rarg, outer))
        return self._limited(node, self._sorted_by_name(node, plan), outer)

    # ---- subqueries in expressions ---------------------------------------------------------------------------

    def _subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """The callback of the binder: plans a SubLink's query, whose outer scope is the expression's."""
        plan = self.select(unwrap(node.subselect), scope)
        return sublink_binding.bound(node, scope, context, [each.type for each in plan.columns], plan)


def named(cte: pb.CommonTableExpr, plan: Plan) -> Plan:
    """The plan under the column names that a WITH query gives."""
    aliases = names.strings(cte.aliascolnames)
    if len(aliases) > len(plan.columns):
        raise PostgresError(
            "42P10",
            f'WITH query "{cte.ctename}" has {len(plan.columns)} columns available but {len(aliases)} columns specified',
            position=position(cte.location),
        )
    shown = aliases + [column.name for column in plan.columns[len(aliases) :]]
    return Plan(plan.frame, tuple(replace(each, name=name) for each, name in zip(plan.columns, shown, strict=True)))


def mentions(cte: ParseNode) -> bool:
    """Whether a WITH RECURSIVE query names itself."""
    return any(
        each.DESCRIPTOR.name == "RangeVar" and each.relname == cte.ctename and not each.schemaname for each in walk_tree(cte.ctequery)
    )
