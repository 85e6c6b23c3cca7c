"""Plan FROM: tables, subqueries, functions, VALUES and joins become a `Source`.

The planner calls it for each SELECT, as do UPDATE … FROM and DELETE … USING. Each column gets a unique key, so joined frames never have two
columns of the same name.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.query import evaluation, row_security
from headgate.commands.query.clause import function_scan, row_locking, system_relation, where_clause
from headgate.commands.query.driver import key_lookup
from headgate.commands.query.plan import EqualColumns, Plan, PlanColumn, Source, reference, renamed, scope_table
from headgate.commands.query.row_security import Statement
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder, operators
from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable, using_column
from headgate.expression.node import BoolKind, Coalesce, Expression, TypeRef, joined
from headgate.sql import names
from headgate.sql.parser import ParseNode, anded, kind, position, unwrap, walk
from headgate.storage.spark import job_group
from headgate.storage.spark.column_name import quoted
from headgate.types import registry
from headgate.types.storage import own_name

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

LEAF = own_name("_leaf")
"""The column of a partitioned table's frame with the oid of each row's leaf."""


def plan_from(planner: Planner, items: Sequence[pb.Node], outer: Scope | None) -> Source:
    """Plan the FROM list. Several items are a cross join; without items, the result is one row without columns."""
    if not items:
        return Source(planner.one_row(), (), ())
    whole = item(planner, items[0], outer)
    for node in items[1:]:
        whole = _beside(planner, whole, node, outer)
    return whole


def is_one_relation(items: Sequence[pb.Node]) -> bool:
    """Return whether a FROM list is a single relation name."""
    return len(items) == 1 and unwrap(items[0]).DESCRIPTOR.name == "RangeVar"


def multiplies(items: Sequence[pb.Node], where: pb.Node, *, beside: int = 0) -> bool:
    """Return whether FROM has fewer equalities than its joins need.

    Spark then makes pairs of rows in a loop, which does not notice a cancel.

    `beside`: the number of relations in addition to the FROM list (the table of UPDATE and DELETE).
    """
    relations, equalities = beside, _equalities(where)
    pending = [unwrap(node) for node in items]
    while pending:
        node = pending.pop()
        if node.DESCRIPTOR.name == "JoinExpr":
            pending += [unwrap(node.larg), unwrap(node.rarg)]
            equalities += 1 if node.using_clause or node.is_natural else _equalities(node.quals)
        else:
            relations += 1
    return relations > 1 + equalities


def _equalities(condition: pb.Node) -> int:
    """Return the number of equalities in a condition whose sides both name a column."""
    return sum(
        all(any(kind(node) == "ColumnRef" for node in walk(side)) for side in (term.lexpr, term.rexpr))
        for term in anded(condition)
        if term.DESCRIPTOR.name == "A_Expr" and term.kind == pb.AEXPR_OP and names.strings(term.name)[-1] == "="
    )


def _beside(planner: Planner, left: Source, node: ParseNode, outer: Scope | None) -> Source:
    """Add a FROM item. A function or LATERAL subquery may use the columns of the items before it."""
    inner = unwrap(node)
    if inner.DESCRIPTOR.name == "RangeFunction":
        joined_source = function_scan.scan(planner, inner, outer, left)
        _check_alias(left, replace(joined_source, tables=joined_source.tables[len(left.tables) :]))
        return joined_source
    right = item(planner, node, outer, left)
    _check_alias(left, right)
    lateral = inner.DESCRIPTOR.name == "RangeSubselect" and inner.lateral
    frame = left.frame.lateralJoin(right.frame) if lateral else left.frame.crossJoin(right.frame)
    merged, equal = left.merged + right.merged, left.equal + right.equal
    return Source(frame, left.tables + right.tables, left.star + right.star, merged, equal=equal)


def _check_alias(left: Source, right: Source) -> None:
    for table in right.tables:
        if any(left_table.name == table.name and left_table.schema == table.schema for left_table in left.tables if table.name):
            raise PostgresError("42712", f'table name "{table.name}" specified more than once')


def item(planner: Planner, node: ParseNode, outer: Scope | None, left: Source | None = None) -> Source:
    """Plan one item of a FROM list. `left`: the source that a LATERAL subquery can use."""
    inner = unwrap(node)
    match inner.DESCRIPTOR.name:
        case "RangeVar":
            return noticing(planner, _range_var(planner, inner))
        case "RangeSubselect":
            subquery = _subselect(planner, inner, outer, left)
            return subquery if inner.lateral else noticing(planner, subquery)
        case "JoinExpr":
            return _join(planner, inner, outer)
        case "RangeFunction":
            return noticing(planner, function_scan.scan(planner, inner, outer))
        case node_type:
            raise not_supported(f"{node_type} in FROM is not supported")


def noticing(planner: Planner, source: Source) -> Source:
    """Return one side of a nested-loop join with a check, in each row, whether the task was cancelled."""
    return replace(source, frame=source.frame.where(job_group.noticing(each=True))) if planner.multiplies else source


def _range_var(planner: Planner, node: pb.RangeVar) -> Source:
    if not node.schemaname and node.relname in planner.ctes:
        cte_plan = planner.ctes[node.relname]
        if cte_plan is None:
            message = f'WITH query "{node.relname}" does not have a RETURNING clause'
            raise PostgresError("0A000", message, position=position(node.location))
        plan = planner.copy_of(cte_plan)
        return as_table(planner, plan, node.alias.aliasname or node.relname, names.strings(node.alias.colnames))
    session, cursor = planner.session, planner.transaction.cursor
    transition = None if node.schemaname or planner.in_view else session.transition_tables.get(node.relname)
    if transition is not None:
        rows = transition.frame(planner.session_spark, planner.transaction.engine.exchange)
        return table_source(
            planner, rows, transition.relation, node.alias.aliasname or node.relname, None, names.strings(node.alias.colnames)
        )
    relation = lookup.source(cursor, session.context, node, check=not planner.in_view)
    privilege.readable(cursor, planner.role, relation)
    alias = node.alias.aliasname or relation.name
    schema = None if node.alias.aliasname else relation.schema
    locks = row_locking.permit(planner, relation, alias)
    if relation.kind == RelationKind.VIEW and relation.oid >= registry.FIRST_USER_OID:
        source = as_table(
            planner, planner.view(relation, row_locking.inside(locks, alias)), alias, names.strings(node.alias.colnames), schema
        )
        restrict(planner, relation, source.star)
        return source
    if relation.oid < registry.FIRST_USER_OID:
        return as_table(planner, system_relation.read(planner, node, relation), alias, names.strings(node.alias.colnames), schema)
    if relation.kind in INDEX_KINDS:
        raise PostgresError("42809", f'cannot open relation "{relation.name}"', detail="This operation is not supported for indexes.")
    if relation.kind == RelationKind.SEQUENCE:
        source = as_table(planner, system_relation.sequence(planner, relation), alias, names.strings(node.alias.colnames), schema)
        restrict(planner, relation, source.star)
        return source
    if relation.kind not in TABLE_KINDS:
        raise not_supported(f"reading {lookup.PLURALS[relation.kind]} is not supported", position=position(node.location))
    skipped = row_locking.take(planner, relation, locks)
    frame = None if skipped else key_lookup.frame(planner, relation, alias, schema, names.strings(node.alias.colnames))
    if frame is None:
        frame = planner.frame_of(relation, only=not node.inh, skipped=skipped)
    if relation.oid in skipped:
        frame = frame.limit(0)
    source = table_source(planner, frame, relation, alias, schema, names.strings(node.alias.colnames))
    restrict(planner, relation, source.star, alias)
    statement = Statement.LOCK if locks else Statement.SELECT
    return row_security.of_statement(planner, relation, statement).visible(source)


def table_oid(planner: Planner, frame: DataFrame, relation: Relation, alias: str) -> list[Column]:
    """Return the system column tableoid and its regclass text, under the keys that `evaluation` uses."""
    oid, name = evaluation.table_oid_keys(f"{alias}.tableoid")
    if LEAF not in frame.columns:
        return [F.lit(relation.oid).cast("bigint").alias(oid), F.lit(_shown(planner, relation)).alias(name)]
    shown = F.lit(None).cast("string")
    for leaf in planner.transaction.partitioned(relation).leaves:
        shown = F.when(F.col(LEAF) == leaf.oid, _shown(planner, leaf)).otherwise(shown)
    return [F.col(LEAF).cast("bigint").alias(oid), shown.alias(name)]


def _shown(planner: Planner, relation: Relation) -> str:
    """Return the name of a relation as regclass prints it."""
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
    named = [F.col(quoted(column.name)).alias(plan_column.key) for column, plan_column in zip(relation.columns, shown, strict=True)]
    further = [F.lit(True).alias(table.row_key), *table_oid(planner, frame, relation, alias), *[F.col(quoted(name)) for name in keep]]
    return Source(frame.select(*named, *further), (table,), shown)


def named_table(
    planner: Planner, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str] = ()
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """Return a table as a scope entry, without its rows, and its columns with new keys."""
    columns = [
        PlanColumn(
            column.name, TypeRef(column.type_oid, column.typmod, column.collation), planner.key(column.name), relation.oid, column.attnum
        )
        for column in relation.columns
    ]
    row = planner.row_key(alias)
    if len(aliases) > len(columns):
        raise PostgresError("42P10", f'table "{alias}" has {len(columns)} columns available but {len(aliases)} columns specified')
    shown = tuple(renamed(columns, aliases))
    fields = tuple(ScopeColumn(column.name, column.attnum, column.type, column.key) for column in shown)
    planner.evaluation.rows[row] = shown
    return ScopeTable(alias, fields, schema, relation.oid, row_key=row), shown


def as_table(planner: Planner, plan: Plan, alias: str, aliases: Sequence[str], schema: str | None = None) -> Source:
    """Return a planned query as a FROM item."""
    if len(aliases) > len(plan.columns):
        raise PostgresError("42P10", f'table "{alias}" has {len(plan.columns)} columns available but {len(aliases)} columns specified')
    columns = renamed(plan.columns, aliases)
    row = planner.row_key(alias)
    planner.evaluation.rows[row] = tuple(columns)
    frame = plan.frame.select("*", F.lit(True).alias(row))
    return Source(frame, (scope_table(alias, columns, schema, row_key=row),), tuple(columns), sorts=plan.sorts)


def _subselect(planner: Planner, node: pb.RangeSubselect, outer: Scope | None, left: Source | None) -> Source:
    if not node.HasField("alias"):
        query = unwrap(node.subquery)
        values = bool(query.values_lists)
        what, example = ("VALUES in FROM", "FROM (VALUES ...) [AS] foo.") if values else ("subquery in FROM", "FROM (SELECT ...) [AS] foo.")
        raise PostgresError("42601", f"{what} must have an alias", hint=f"For example, {example}")
    locks = row_locking.inside(planner.locks, node.alias.aliasname)
    plan = planner.from_query(unwrap(node.subquery), left.scope(outer) if node.lateral and left is not None else outer, locks)
    return as_table(planner, plan, node.alias.aliasname, names.strings(node.alias.colnames))


_JOINS = {pb.JOIN_INNER: "inner", pb.JOIN_LEFT: "left", pb.JOIN_RIGHT: "right", pb.JOIN_FULL: "full"}


def _join(planner: Planner, node: pb.JoinExpr, outer: Scope | None) -> Source:
    row_locking.refuse_nullable(planner.locks, node)
    left = item(planner, node.larg, outer)
    how = _JOINS[node.jointype]
    if unwrap(node.rarg).DESCRIPTOR.name == "RangeFunction" and how in ("inner", "left"):
        return _join_function(planner, node, left, outer, how)
    right = item(planner, node.rarg, outer, left)
    _check_alias(left, right)
    using = names.strings(node.using_clause)
    if node.is_natural:
        right_names = {column.name for column in right.star}
        using = [column.name for column in left.star if column.name in right_names]
    if using:
        joined_source = _using(planner, left, right, using, how, node)
    else:
        both = Source(left.frame, left.tables + right.tables, left.star + right.star, left.merged + right.merged)
        if node.HasField("quals"):
            context = planner.context.within(construct="JOIN/ON", aggregates=False)
            condition = binder.bind_condition(node.quals, both.scope(outer), "JOIN/ON", context=context)
            frame = _joined(node, left, right, _on(planner, condition, both.tables), how)
            equal = tuple(where_clause.pairs(condition)) if how == "inner" else ()
        else:
            frame, equal = _joined(node, left, right, None, "cross"), ()
        joined_source = replace(both, frame=frame, equal=_equal(left, right, how) + equal)
    if node.HasField("alias"):
        return as_table(planner, Plan(joined_source.frame, joined_source.star), node.alias.aliasname, names.strings(node.alias.colnames))
    return joined_source


def _equal(left: Source, right: Source, how: str) -> tuple[EqualColumns, ...]:
    """Return the equal column pairs of both sides that still hold after the join: none of a side that an outer join can fill with NULLs."""
    return (left.equal if how in ("inner", "left", "cross") else ()) + (right.equal if how in ("inner", "right", "cross") else ())


def _on(planner: Planner, condition: Expression, tables: Sequence[ScopeTable]) -> Column:
    keys, ordinary = where_clause.on(condition, tables)
    conditions = [planner.evaluation.equality(key) for key in keys]
    return functools.reduce(Column.__and__, [*conditions, planner.column(joined(BoolKind.AND, ordinary))] if ordinary else conditions)


def _joined(node: pb.JoinExpr, left: Source, right: Source, condition: Column | None, how: str) -> DataFrame:
    inner = unwrap(node.rarg)
    if inner.DESCRIPTOR.name == "RangeSubselect" and inner.lateral:
        if how not in ("inner", "left", "cross"):
            raise PostgresError("42P10", "The combining JOIN type must be INNER or LEFT for a LATERAL reference.")
        return left.frame.lateralJoin(right.frame, condition, how)
    return left.frame.crossJoin(right.frame) if condition is None else left.frame.join(right.frame, condition, how)


def _join_function(planner: Planner, node: ParseNode, left: Source, outer: Scope | None, how: str) -> Source:
    """Plan ``… [LEFT] JOIN f(…) ON …``. LEFT JOIN supports only ON true."""
    always = node.HasField("quals") and unwrap(node.quals).DESCRIPTOR.name == "A_Const" and unwrap(node.quals).boolval.boolval
    if how == "left" and not always:
        raise not_supported("LEFT JOIN of a function with a condition other than true is not supported")
    joined_source = function_scan.scan(planner, unwrap(node.rarg), outer, left, keep_left=how == "left")
    _check_alias(left, replace(joined_source, tables=joined_source.tables[len(left.tables) :]))
    if node.using_clause or node.is_natural:
        raise not_supported("JOIN ... USING with a function is not supported")
    if how == "inner" and node.HasField("quals"):
        context = planner.context.within(construct="JOIN/ON", aggregates=False)
        condition = binder.bind_condition(node.quals, joined_source.scope(outer), "JOIN/ON", context=context)
        joined_source = replace(joined_source, frame=joined_source.frame.where(planner.evaluation.filter(condition)))
    if node.HasField("alias"):
        return as_table(planner, Plan(joined_source.frame, joined_source.star), node.alias.aliasname, names.strings(node.alias.colnames))
    return joined_source


def _using(planner: Planner, left: Source, right: Source, using: Sequence[str], how: str, node: ParseNode) -> Source:
    """Plan JOIN … USING and NATURAL JOIN. The named columns appear once, at the start.

    Their value is that of the left side for inner and left joins, that of the right side for right joins, and the first that is not NULL
    for full joins.
    """
    conditions: list[Expression] = []
    merged: list[PlanColumn] = []
    values = []
    for name in using:
        left_column, right_column = using_column(left.star, name, "left"), using_column(right.star, name, "right")
        condition = operators.make(["="], reference(left_column), reference(right_column), planner.context, -1)
        conditions.append(condition)
        sides, kind = binder.unify([reference(left_column), reference(right_column)], "JOIN/USING", planner.context)
        value: Expression = {"inner": sides[0], "left": sides[0], "right": sides[1]}.get(how) or Coalesce(type=kind, args=tuple(sides))
        key = planner.key(name)
        merged.append(
            PlanColumn(
                name,
                kind,
                key,
                left_column.relation if how in ("inner", "left") else 0,
                left_column.attnum if how in ("inner", "left") else 0,
            )
        )
        values.append(planner.column(value).alias(key))
    frame = left.frame.join(right.frame, planner.column(joined(BoolKind.AND, conditions)), how).select("*", *values)
    rest = [column for column in left.star + right.star if column.name not in using]
    merged_scope = tuple(ScopeColumn(column.name, place, column.type, column.key) for place, column in enumerate(merged, 1))
    equal = _equal(left, right, how)
    if how == "inner":
        equal += tuple(where_clause.pairs(joined(BoolKind.AND, conditions)))
        merged_pairs = [(reference(column), reference(using_column(right.star, column.name, "right"))) for column in merged]
        equal += tuple(pair for pair in merged_pairs if where_clause.are_same(*pair))
    return Source(frame, left.tables + right.tables, (*merged, *rest), left.merged + right.merged + merged_scope, equal=equal)
