"""Read FROM: the items of an analysed FROM clause become a `Source`.

The planner calls it for each SELECT, as do UPDATE … FROM and DELETE … USING.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.analysis import from_clause as analysis
from headgate.analysis import row_locking as locking_clause
from headgate.analysis.query import (
    AliasItem,
    ChangesItem,
    CteItem,
    FromItem,
    FunctionItem,
    JoinItem,
    PlanColumn,
    RelationItem,
    RowLock,
    Select,
    SubqueryItem,
    TransitionItem,
    reference,
)
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.query import change_scan, evaluation, row_by_row, row_security
from headgate.commands.query.clause import function_scan, system_relation, where_clause
from headgate.commands.query.driver import key_lookup
from headgate.commands.query.plan import LEAF, EqualColumns, Plan, Source, col
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Statement
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding.scope import Scope, ScopeTable
from headgate.expression.implementation.system import has_volatile
from headgate.expression.node import BoolKind, Expression, conjuncts, joined
from headgate.sql import names
from headgate.sql.parser import ParseNode
from headgate.storage.spark import job_group
from headgate.storage.spark.column_name import quoted
from headgate.types import registry
from headgate.types.registry import FIRST_USER_OID


@dataclass(frozen=True)
class Reading:
    """How the rows of a FROM clause are read.

    `multiplies`: it makes pairs of rows in a nested loop, so each side checks whether its task was cancelled. `in_order`: in the order in
    which they were written. `where`: the condition on the rows of its only relation.
    """

    multiplies: bool = False
    in_order: bool = False
    where: Expression | None = None

    @classmethod
    def of(cls, select: Select, planner: Planner) -> Reading:
        return cls(
            select.multiplies and not planner.describing,
            select.in_order,
            select.where if isinstance(select.source, RelationItem) else None,
        )


def plan_from(planner: Planner, items: Sequence[pb.Node], *, multiplies: bool) -> Source:
    """Analyse and plan the FROM list of a statement."""
    return source_of(planner, analysis.analyse(planner.analyser, items, None), Reading(multiplies))


def item(planner: Planner, node: ParseNode, outer: Scope | None = None) -> Source:
    """Analyse and plan one item of a FROM list."""
    return source_of(planner, analysis.item(planner.analyser, node, outer))


def source_of(planner: Planner, item: FromItem, reading: Reading = Reading()) -> Source:
    match item:
        case RelationItem():
            return _noticing(_relation(planner, item, reading), reading)
        case TransitionItem():
            table = planner.session.transition_tables[item.name]
            rows = table.frame(planner.session_spark, planner.transaction.storage.exchange)
            return _noticing(_table_rows(planner, rows, table.relation, item), reading)
        case CteItem():
            return _noticing(_as_item(planner.plan_of_cte(item.cte), item), reading)
        case SubqueryItem():
            subquery = _as_item(planner.guarded(item.query), item)
            return subquery if item.lateral else _noticing(subquery, reading)
        case FunctionItem():
            source = function_scan.scan(planner, item, None if item.left is None else source_of(planner, item.left, reading))
            if item.condition is not None:
                source = replace(source, frame=source.frame.where(planner.evaluation.filter(item.condition)))
            return _noticing(source, reading) if item.left is None else source
        case ChangesItem():
            return _noticing(_as_item(change_scan.plan(planner, item.scan), item), reading)
        case JoinItem():
            return _join(planner, item, reading)
        case AliasItem():
            whole = source_of(planner, item.item, reading)
            return _as_item(Plan(whole.frame, whole.star), item)
        case _:
            return Source(planner.one_row(), (), ())


def noticing(source: Source) -> Source:
    """Return one side of a nested-loop join with a check, in each row, whether the task was cancelled."""
    return replace(source, frame=source.frame.where(job_group.noticing(each_row=True)))


def _noticing(source: Source, reading: Reading) -> Source:
    return noticing(source) if reading.multiplies else source


def _as_item(plan: Plan, item: FromItem) -> Source:
    """Return the rows of a plan under the keys of a FROM item."""
    own = {column.key for column in plan.columns}
    [table] = item.tables
    if all(column.key in own for column in item.star):
        frame = plan.frame.select("*", F.lit(True).alias(table.row_key))
        return Source(frame, item.tables, item.star, sorts=plan.sorts)
    named = [col(old.key).alias(new.key) for old, new in zip(plan.columns, item.star, strict=True)]
    return Source(plan.frame.select(*named, F.lit(True).alias(table.row_key)), item.tables, item.star)


def _relation(planner: Planner, item: RelationItem, reading: Reading) -> Source:
    relation, alias, locks = item.relation, item.alias, item.locks
    privilege.readable(planner.transaction.cursor, planner.role, relation)
    permit(planner, relation, locks)
    if relation.oid < registry.FIRST_USER_OID:
        source = _as_item(system_relation.read(planner, item, item.star), item)
        own = _table_oid_columns(f"{item.tables[0].row_key}.tableoid", planner, relation)
        return replace(source, frame=source.frame.select("*", *own))
    if relation.kind == RelationKind.VIEW:
        source = _as_item(planner.view(relation, locking_clause.inside(locks, alias)), item)
        restrict(planner, relation, source.star)
        return source
    if relation.kind == RelationKind.SEQUENCE:
        source = _as_item(system_relation.sequence(planner, relation), item)
        restrict(planner, relation, source.star)
        return source
    if relation.kind not in TABLE_KINDS:
        raise not_supported(f"reading {lookup.PLURALS[relation.kind]} is not supported", location=item.location)
    skipped = take(planner, relation, locks)
    frame = None if skipped or reading.where is None else key_lookup.frame(planner, relation, item.star, reading.where)
    if frame is None:
        frame = planner.frame_of(relation, only=item.only, skipped=skipped, in_order=reading.in_order)
    if relation.oid in skipped and not relation.has_leaves:
        frame = frame.limit(0)
    source = _table_rows(planner, frame, relation, item)
    restrict(planner, relation, source.star, alias)
    statement = Statement.LOCK if locks else Statement.SELECT
    return row_security.of_statement(planner, relation, statement).visible(source)


def table_oid(planner: Planner, frame: DataFrame, relation: Relation, alias: str) -> list[Column]:
    """Return the system column tableoid and its regclass text, under the keys that `evaluation` uses."""
    oid, name = evaluation.table_oid_keys(f"{alias}.tableoid")
    if LEAF not in frame.columns:
        return _table_oid_columns(oid, planner, relation)
    shown = F.lit(None).cast("string")
    for leaf in planner.transaction.partitioned(relation).leaves:
        shown = F.when(F.col(LEAF) == leaf.oid, _regclass_name(planner, leaf)).otherwise(shown)
    return [F.col(LEAF).cast("bigint").alias(oid), shown.alias(name)]


def _table_oid_columns(key: str, planner: Planner, relation: Relation) -> list[Column]:
    oid, name = evaluation.table_oid_keys(key)
    return [F.lit(relation.oid).cast("bigint").alias(oid), F.lit(_regclass_name(planner, relation)).alias(name)]


def _regclass_name(planner: Planner, relation: Relation) -> str:
    cursor, context = planner.transaction.cursor, planner.session.context
    visible_oid = relations.find_oid(cursor, context.database, None, relation.name, lookup.search_path(cursor, context))
    return names.quote_ident(relation.name) if visible_oid == relation.oid else names.qualified(relation.schema, relation.name)


def restrict(planner: Planner, relation: Relation, columns: Sequence[PlanColumn], alias: str | None = None) -> None:
    """Restrict the columns on which the role does not have SELECT: expressions that use them raise 42501.

    `alias`: the alias of a table that has a tableoid column, which is restricted too because no role can be granted a right on it.
    """
    cursor = planner.transaction.cursor
    if privilege.may_on_table(cursor, planner.role, relation.database, relation.oid, "SELECT"):
        return
    allowed = privilege.columns_with(cursor, planner.role, relation, "SELECT")
    error = privilege.denied(cursor, relation.database, relation.oid, relation.name)
    planner.evaluation.restricted |= {column.key: error for column in columns if column.attnum not in allowed}
    if alias is not None:
        planner.evaluation.restricted |= dict.fromkeys(evaluation.table_oid_keys(f"{alias}.tableoid"), error)


def table_source(
    planner: Planner,
    frame: DataFrame,
    relation: Relation,
    alias: str,
    schema: str | None,
    aliases: Sequence[str] = (),
    *,
    keep: Sequence[str] = (),
) -> Source:
    """Return the source of a table's rows. `keep`: further columns of the frame (positions) that keep their names."""
    table, shown = named_table(planner, relation, alias, schema, aliases)
    return _table_rows(planner, frame, relation, FromItem((table,), shown), keep)


def _table_rows(planner: Planner, frame: DataFrame, relation: Relation, item: FromItem, keep: Sequence[str] = ()) -> Source:
    [table] = item.tables
    named = [F.col(quoted(column.name)).alias(plan_column.key) for column, plan_column in zip(relation.columns, item.star, strict=True)]
    further = [F.lit(True).alias(table.row_key), *table_oid(planner, frame, relation, table.name), *[F.col(quoted(name)) for name in keep]]
    return Source(frame.select(*named, *further), item.tables, item.star)


def named_table(
    planner: Planner, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str] = ()
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """Return a table as a scope entry, without its rows, and its columns with new keys."""
    return analysis.named_table(planner.analyser, relation, alias, schema, aliases)


def as_table(planner: Planner, plan: Plan, alias: str, schema: str | None) -> Source:
    table, columns = analysis.entry(planner.analyser, plan.columns, alias, (), schema)
    return _as_item(plan, FromItem((table,), columns))


def _join(planner: Planner, item: JoinItem, reading: Reading) -> Source:
    if not isinstance(item.right, SubqueryItem) and analysis.uses(item.right, item.left):
        if item.how not in ("inner", "cross") or item.using:
            raise not_supported(
                "an outer join or a join with USING, in whose right side a LATERAL item uses columns of the left one, is not supported"
            )
        source = source_of(planner, analysis.before_join(item.left, item.right), reading)
        return source if item.condition is None else replace(source, frame=source.frame.where(planner.evaluation.filter(item.condition)))
    left, right = source_of(planner, item.left, reading), source_of(planner, item.right, reading)
    condition, called, volatile = None, list[Expression](), list[Expression]()
    equal: tuple[EqualColumns, ...] = _equal(left, right, item.how)
    if item.condition is not None:
        own: Expression | None = item.condition
        if item.how == "inner":
            own, called = row_by_row.split(item.condition)
            terms = [] if own is None else conjuncts(own)
            volatile = [term for term in terms if has_volatile(term)]
            if volatile:
                own = joined(BoolKind.AND, [term for term in terms if term not in volatile]) if len(volatile) < len(terms) else None
        elif has_volatile(item.condition):
            raise not_supported("a volatile function in the condition of an outer join is not supported")
        else:
            left_frame, left_condition = row_by_row.settled_parts(planner.evaluation, left.frame, item.condition)
            right_frame, own = row_by_row.settled_parts(planner.evaluation, right.frame, left_condition)
            left, right = replace(left, frame=left_frame), replace(right, frame=right_frame)
        if own is not None:
            condition = planner.column(own) if item.using else _on(planner, own, left.tables + right.tables)
        if item.how == "inner":
            equal += tuple(where_clause.pairs(item.condition))
    if isinstance(item.right, SubqueryItem) and item.right.lateral:
        frame = left.frame.lateralJoin(right.frame, condition, item.how) if condition is not None else left.frame.lateralJoin(right.frame)
    else:
        frame = left.frame.crossJoin(right.frame) if condition is None else left.frame.join(right.frame, condition, item.how)
    if volatile:  # a join of Spark does not evaluate them
        frame = frame.where(planner.evaluation.filter(joined(BoolKind.AND, volatile)))
    frame = row_by_row.passing(planner.evaluation, frame, called)
    if item.using:
        named = [F.lit(True).alias(item.using_alias.row_key)] if item.using_alias is not None else []
        computed = [(column, value) for column, value in item.using if value != reference(column)]
        frame = frame.select("*", *[planner.column(value).alias(column.key) for column, value in computed], *named)
    if item.how == "inner":
        merged = [(reference(column), reference(analysis.using_column(right.star, column.name, "right"))) for column, _ in item.using]
        equal += tuple(pair for pair in merged if where_clause.are_same(*pair))
    return Source(frame, item.tables, item.star, item.merged, equal=equal)


def _equal(left: Source, right: Source, how: str) -> tuple[EqualColumns, ...]:
    """Return the equal column pairs of both sides that still hold after the join: none of a side that an outer join can fill with NULLs."""
    return (left.equal if how in ("inner", "left", "cross") else ()) + (right.equal if how in ("inner", "right", "cross") else ())


def _on(planner: Planner, condition: Expression, tables: Sequence[ScopeTable]) -> Column:
    planner.evaluation.note_tests(condition)
    keys, ordinary = where_clause.on(condition, tables)
    conditions = [planner.evaluation.equality(key) for key in keys]
    return functools.reduce(Column.__and__, [*conditions, planner.column(joined(BoolKind.AND, ordinary))] if ordinary else conditions)


def permit(planner: Planner, relation: Relation, clauses: Sequence[RowLock]) -> None:
    """Raise 42809 for locking clauses on a sequence, and 42501 without the right to UPDATE."""
    if clauses and relation.kind == RelationKind.SEQUENCE:
        raise PostgresError("42809", f'cannot lock rows in sequence "{relation.name}"')
    if clauses and relation.oid >= FIRST_USER_OID:
        cursor, role = planner.transaction.cursor, planner.role
        whole = privilege.may_on_table(cursor, role, relation.database, relation.oid, "UPDATE")
        if not whole and not privilege.columns_with(cursor, role, relation, "UPDATE"):
            raise privilege.denied(cursor, relation.database, relation.oid, relation.name)


def take(planner: Planner, relation: Relation, locks: Sequence[RowLock]) -> set[int]:
    """Lock a table, or the leaves of a relation. Return the oids of the tables whose rows are skipped."""
    if not locks or planner.describing:
        return set()
    skipped: set[int] = set()
    policy = max(lock.policy for lock in locks)
    for leaf in planner.transaction.reader.leaves(relation):
        try:
            planner.transaction.lock(leaf, wait=policy == pb.LockWaitBlock)
            planner.transaction.reader.refuse_changed(leaf)
        except PostgresError as error:
            if error.sqlstate != "55P03" or policy == pb.LockWaitBlock:
                raise
            if policy == pb.LockWaitError:
                raise PostgresError("55P03", f'could not obtain lock on row in relation "{leaf.name}"') from error
            skipped.add(leaf.oid)
    return skipped
