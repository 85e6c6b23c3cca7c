"""Plan a SELECT as a Spark DataFrame, clause by clause, in the order of PostgreSQL's parse analysis.

`Planner.select` turns a SelectStmt into a `Plan`. One planner serves one statement. It assigns each column a key that is unique in the
statement, so that any two frames of the statement can be joined.

    FROM (from_clause) → WHERE → GROUP BY, aggregates, HAVING (grouping) → SELECT list (target) → DISTINCT → ORDER BY, LIMIT (ordering)

Example: ``SELECT b, count(*) FROM t WHERE a > 1 GROUP BY b ORDER BY 2`` reads t as (k1_a, k2_b), filters by the Column of ``a > 1``, groups
by g3 = k2_b with a4 = count(1), projects (k5_b, k6_count) and sorts by k6_count with NULLs last.
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
        """Create a planner. `parameters`: the parameter types of a statement that is only described. Types of 0 are inferred in place."""
        self.session = session
        self.transaction = transaction
        self.session_spark = transaction.engine.spark
        self.describing = parameters is not None
        self.evaluation = Evaluation(session, describing=self.describing)
        parameter_types = (
            {number: parameter.type_oid for number, parameter in enumerate(session.parameters, 1)} if parameters is None else parameters
        )
        self.context: BindContext = self.evaluation.context.within(
            parameters=parameter_types, infer=parameters is not None, subquery=self._subquery, construct="SELECT"
        )
        self.ctes: dict[str, Plan | None] = {}
        """The plans of the WITH queries by name. None: a data-modifying statement without RETURNING."""
        self.role = session.context.user
        """The role whose privileges are checked: the session's user or, inside a view, the view's owner."""
        self.in_view = False
        self.in_order = False
        """Whether the rows of the next table must be read in the order in which they were written."""
        self.fires_later: list[Callable[[], None]] = []
        """Callbacks that fire triggers after the statement has written all its rows (`trigger.firing`)."""
        self.is_firing = False
        """Whether the callbacks in `fires_later` are running."""
        self.firings: dict[int, Any] = {}
        """The triggers that fire in this statement, by table (`trigger.firing.of_statement`)."""
        self.changed_by_actions: dict[tuple[int, int], set[str] | None] = {}  # see `trigger.firing.change_by_action`
        self.multiplies = False
        """Whether the FROM clause being planned makes pairs of rows in a nested loop (`from_clause.multiplies`)."""
        self.only_where: ParseNode | None = None
        """The WHERE clause of a query whose FROM is one relation, for the reader of that relation (`key_lookup`)."""
        self.locks: tuple[RowLock, ...] = ()
        """The locking clauses that apply to the FROM clause being planned."""
        self.frozen: dict[int, DataFrame] = {}
        """Tables as they were before the data-modifying statements of a WITH clause."""
        self.written: dict[int, set[int]] = {}
        """The columns that the statement itself writes, by table: error details may show their values (`disclosure`)."""
        self._keys = 0
        self._depth = 0
        self._conditions_in_python = 0

    def writes(self, relation: Relation, attnums: Iterable[int]) -> None:
        """Record that the statement writes these columns of the table."""
        self.written.setdefault(relation.oid, set()).update(attnums)

    def nested(self, *, describing: bool = False) -> Planner:
        """Return the planner of a statement inside WITH, which can use the queries before it.

        `describing`: the planner binds the clauses of the statement with known parameter types, and runs nothing.
        """
        types = {number: parameter.type_oid for number, parameter in enumerate(self.session.parameters, 1)} if describing else None
        planner = Planner(self.session, self.transaction, types)
        planner.ctes, planner.frozen, planner.role, planner.in_view = dict(self.ctes), self.frozen, self.role, self.in_view
        return planner

    def key(self, name: str = "") -> str:
        """Return a new key. The name in it is for readers of a plan, without the characters that Spark interprets in a name."""
        self._keys += 1
        return f"k{self._keys}_{re.sub(r'[.`]', '_', name)}"

    def row_key(self, alias: str) -> str:
        """Return a key for the whole rows of a table: a column that is true, or NULL in rows that an outer join filled with NULLs."""
        return self.key(f"row_{alias}")

    def column(self, expression: Expression) -> Column:
        """Return the Column of an expression."""
        return self.evaluation.column(expression)

    def prepare(self, expression: Expression) -> Expression:
        """Return the expression with parameters and session values substituted."""
        return self.evaluation.prepare(expression)

    def one_row(self) -> DataFrame:
        """Return a frame of one row whose column is irrelevant.

        Spark evaluates expressions over it while planning, without code generation.
        """
        return self.session_spark.sql(f"VALUES (0) AS t ({self.key('one')})")

    def frame_of(self, relation: Relation, *, only: bool = False, skipped: AbstractSet[int] = frozenset()) -> DataFrame:
        """Return the rows of a table as this statement sees them; for a partitioned table, the rows of its leaves.

        With `only`, a partitioned table has no rows. The leaves in `skipped` are left out. The frame of a partitioned table has the
        additional last column `from_clause.LEAF`, the leaf of each row.
        """
        if self.describing and relation.kind == RelationKind.TABLE:
            return local_frame(self.session_spark, arrow_row(relation).empty_table(), spark_columns(relation))
        if relation.oid in self.frozen and not only and not skipped:
            return self.frozen[relation.oid]
        if relation.is_partitioned:
            table = self.transaction.partitioned(relation)
            leaves = [] if only else [leaf for leaf in table.leaves if leaf.oid not in skipped]
            return table.frame(leaves, leaf=from_clause.LEAF)
        return self.transaction.frame(relation, in_order=self.in_order)

    def view(self, relation: Relation, locks: Sequence[RowLock] = ()) -> Plan:
        """Plan a view. It is read with the rights of its owner or, with `security_invoker`, of the role that runs the query.

        `locks` are the locking clauses that apply to the rows of the view.
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
        """Return the same rows under new keys, for a WITH query that is read more than once."""
        columns = tuple(replace(column, key=self.key(column.name)) for column in plan.columns)
        frame = plan.frame.select(*[col(old.key).alias(new.key) for old, new in zip(plan.columns, columns, strict=True)])
        return Plan(frame, columns)

    # ---- queries ---------------------------------------------------------------------------------------------

    def select(self, node: pb.SelectStmt, outer: Scope | None, wanted: Sequence[TypeRef] = (), locks: Sequence[RowLock] = ()) -> Plan:
        """Plan a SELECT, VALUES or set operation, with its WITH clause.

        `wanted`: the types of the columns that INSERT … SELECT fills; literals of unknown type are read as these. `locks`: the locking
        clauses of the enclosing query.
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
        """Plan the queries of a WITH clause for the queries after them, and run the data-modifying ones."""
        modifying_with.freeze(self, clause, statement)
        for item in clause.ctes:
            cte = unwrap(item)
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
        windows = {unwrap(definition).name: unwrap(definition) for definition in node.window_clause}
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
        literals = () if node.distinct_clause else [select_list.undecided(target) for target in targets]
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
        columns = [replace(column, literal=literal) for column, literal in zip(limited.columns, literals, strict=True)]
        return replace(limited, columns=tuple(columns))

    def where(self, node: pb.DeleteStmt | pb.SelectStmt | pb.UpdateStmt, source: Source, scope: Scope) -> Source:
        """Return the source with the rows that meet the WHERE clause."""
        if not has_condition(node):
            return source
        condition = binder.bind_condition(node.where_clause, scope, "WHERE", context=self.context.within(construct="WHERE"))
        frame = source.frame
        for part in where_clause.conditions(condition, source.tables, source.equal):
            frame = frame.where(self._test(part))
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
        r"""Plan a query in FROM or WITH. Conditions around it are evaluated after its own WHERE, as in PostgreSQL with equal costs.

        Otherwise Spark's optimizer would first evaluate conditions that need no Python: with WHERE v ~ '^(?!..$)' inside and WHERE 10 /
        (length(v) - 2) > 5 outside, it would divide by zero. A query that references an outer query is left unchanged, because Spark turns
        it into a join.
        """
        before, references = self._conditions_in_python, self.evaluation.outer_references
        plan = self.select(query, outer, locks=locks)
        if self._conditions_in_python == before or self.evaluation.outer_references > references:
            return plan
        return replace(plan, frame=plan.frame.where(compiler.barrier(F.lit(True))))

    def _project(
        self, frame: DataFrame, targets: Sequence[SelectItem], sorts: Sequence[Sort], on: Sequence[Sort] = ()
    ) -> tuple[Plan, list[Sort]]:
        """Project the SELECT list. Sort expressions (also of DISTINCT ON) that are not targets become additional columns of the frame."""
        frame, places = function_scan.expand(self, frame, targets)
        if places:
            targets = [replace(target, expression=rewriting.rewrite(target.expression, places.get)) for target in targets]
            sorts = [replace(sort, expression=rewriting.rewrite(sort.expression, places.get)) for sort in sorts]
            on = [replace(sort, expression=rewriting.rewrite(sort.expression, places.get)) for sort in on]
        frame, settled = volatile_call.settled(self, frame, [target.expression for target in targets])
        same = {target.expression: settled_expression for target, settled_expression in zip(targets, settled, strict=True)}
        targets = [replace(target, expression=settled_expression) for target, settled_expression in zip(targets, settled, strict=True)]
        sorts = [replace(target, expression=same.get(target.expression, target.expression)) for target in sorts]
        columns = [
            PlanColumn(target.name, target.expression.type, self.key(target.name), target.relation, target.attnum) for target in targets
        ]
        by_target = {target.expression: column for target, column in zip(targets, columns, strict=True)}
        extra: list[Column] = []
        placed: list[Sort] = []
        for sort in (*sorts, *on):
            column = by_target.get(sort.expression)
            if column is None:
                key = self.key("sort")
                row = sort.expression.type.oid == registry.RECORD
                extra.append((self.evaluation.sort_key if row else self.column)(sort.expression).alias(key))
                column = by_target[sort.expression] = PlanColumn("", sort.expression.type, key)
            placed.append(replace(sort, expression=reference(column)))
        selected = [self.column(target.expression).alias(column.key) for target, column in zip(targets, columns, strict=True)]
        if not selected and not extra:
            selected = [F.lit(True).alias(self.key("none"))]
        return Plan(frame.select(*selected, *extra), tuple(columns)), placed

    def _limited(self, node: pb.SelectStmt, plan: Plan, outer: Scope | None, sorts: Sequence[Sort] = ()) -> Plan:
        return ordering.limit(self, plan, node, sorts)

    def _sorted_by_name(self, node: pb.SelectStmt, plan: Plan) -> Plan:
        return ordering.sort(self, plan, ordering.by_output(self, node.sort_clause, plan))

    def _values(self, node: pb.SelectStmt, outer: Scope | None) -> Plan:
        """Plan VALUES (…), (…). Each column has the common type of its expressions."""
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
            schema = StructType([StructField(column.key, spark_type(column.type.oid, column.type.typmod)) for column in columns])
            return Plan(local_frame(self.session_spark, known, schema), tuple(columns))
        structs = []
        for row in zip(*values, strict=True):
            look()  # check for a cancel: each row calls Java several times
            structs.append(F.struct(*[self.column(value).alias(column.key) for value, column in zip(row, columns, strict=True)]))
        frame = self.one_row().select(F.explode(F.array(*structs)).alias("row")).select("row.*")
        return Plan(frame, tuple(columns))

    def _set_operation(self, node: pb.SelectStmt, outer: Scope | None) -> Plan:
        plan = set_operation.combine(self, node, self.select(node.larg, outer), self.select(node.rarg, outer))
        return self._limited(node, self._sorted_by_name(node, plan), outer)

    # ---- subqueries in expressions ---------------------------------------------------------------------------

    def _subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """Plan the query of a SubLink (a callback of the binder). The scope of the expression becomes its outer scope."""
        plan = self.select(unwrap(node.subselect), scope)
        return sublink_binding.bound(node, scope, context, [column.type for column in plan.columns], plan)


def named(cte: pb.CommonTableExpr, plan: Plan) -> Plan:
    """Return the plan with the column names of its WITH query. Raise 42P10 if it names too many."""
    aliases = names.strings(cte.aliascolnames)
    if len(aliases) > len(plan.columns):
        raise PostgresError(
            "42P10",
            f'WITH query "{cte.ctename}" has {len(plan.columns)} columns available but {len(aliases)} columns specified',
            position=position(cte.location),
        )
    shown = aliases + [column.name for column in plan.columns[len(aliases) :]]
    return Plan(plan.frame, tuple(replace(column, name=name) for column, name in zip(plan.columns, shown, strict=True)))


def mentions(cte: ParseNode) -> bool:
    """Return whether a WITH RECURSIVE query references itself."""
    return any(
        node.DESCRIPTOR.name == "RangeVar" and node.relname == cte.ctename and not node.schemaname for node in walk_tree(cte.ctequery)
    )
