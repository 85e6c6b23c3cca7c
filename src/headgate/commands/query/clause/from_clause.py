"""FROM: tables, subqueries, functions, VALUES and joins → a `Source`.

Called by the planner for each SELECT, and by UPDATE … FROM and DELETE … USING. Each column gets a key of its own, so frames
that are joined never have two columns of one name.
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
"""The column of a partitioned table's frame that names the leaf of each row (its oid)."""


def plan_from(planner: Planner, items: Sequence[pb.Node], outer: Scope | None) -> Source:
    """The FROM list; several items are a cross join. No items: one row without columns."""
    if not items:
        return Source(planner.one_row(), (), ())
    whole = item(planner, items[0], outer)
    for node in items[1:]:
        whole = _beside(planner, whole, node, outer)
    return whole


def is_one_relation(items: Sequence[pb.Node]) -> bool:
    """Whether a FROM list is the name of a relation."""
    return len(items) == 1 and unwrap(items[0]).DESCRIPTOR.name == "RangeVar"


def multiplies(items: Sequence[pb.Node], where: pb.Node, *, beside: int = 0) -> bool:
    """Whether FROM joins relations by fewer equalities than it takes: then pairs of rows are made in a loop, which sees no cancel.

    `beside`: how many relations stand beside the FROM list (the table of UPDATE and DELETE).
    """
    relations, equalities = beside, _equalities(where)
    waiting = [unwrap(each) for each in items]
    while waiting:
        each = waiting.pop()
        if each.DESCRIPTOR.name == "JoinExpr":
            waiting += [unwrap(each.larg), unwrap(each.rarg)]
            equalities += 1 if each.using_clause or each.is_natural else _equalities(each.quals)
        else:
            relations += 1
    return relations > 1 + equalities


def _equalities(condition: pb.Node) -> int:
    """How many terms of a condition say that two columns are equal, or what is made of them."""
    return sum(
        all(any(kind(each) == "ColumnRef" for each in walk(side)) for side in (term.lexpr, term.rexpr))
        for term in anded(condition)
        if term.DESCRIPTOR.name == "A_Expr" and term.kind == pb.AEXPR_OP and names.strings(term.name)[-1] == "="
    )


def _beside(planner: Planner, left: Source, node: ParseNode, outer: Scope | None) -> Source:
    """A further item of FROM: a function or LATERAL subquery may use the columns of those before it."""
    inner = unwrap(node)
    if inner.DESCRIPTOR.name == "RangeFunction":
        found = function_scan.scan(planner, inner, outer, left)
        _check_alias(left, replace(found, tables=found.tables[len(left.tables) :]))
        return found
    right = item(planner, node, outer, left)
    _check_alias(left, right)
    lateral = inner.DESCRIPTOR.name == "RangeSubselect" and inner.lateral
    frame = left.frame.lateralJoin(right.frame) if lateral else left.frame.crossJoin(right.frame)
    merged, equal = left.merged + right.merged, left.equal + right.equal
    return Source(frame, left.tables + right.tables, left.star + right.star, merged, equal=equal)


def _check_alias(left: Source, right: Source) -> None:
    for table in right.tables:
        if any(each.name == table.name and each.schema == table.schema for each in left.tables if table.name):
            raise PostgresError("42712", f'table name "{table.name}" specified more than once')


def item(planner: Planner, node: ParseNode, outer: Scope | None, left: Source | None = None) -> Source:
    """One item of a FROM list; `left` is what a LATERAL subquery can use."""
    inner = unwrap(node)
    match inner.DESCRIPTOR.name:
        case "RangeVar":
            return noticing(planner, _range_var(planner, inner))
        case "RangeSubselect":
            found = _subselect(planner, inner, outer, left)
            return found if inner.lateral else noticing(planner, found)
        case "JoinExpr":
            return _join(planner, inner, outer)
        case "RangeFunction":
            return noticing(planner, function_scan.scan(planner, inner, outer))
        case other:
            raise not_supported(f"{other} in FROM is not supported")


def noticing(planner: Planner, source: Source) -> Source:
    """One side of a join whose pairs are made in a loop: each row of it looks whether its task was cancelled."""
    return replace(source, frame=source.frame.where(job_group.noticing(each=True))) if planner.multiplies else source


def _range_var(planner: Planner, node: pb.RangeVar) -> Source:
    if not node.schemaname and node.relname in planner.ctes:
        found = planner.ctes[node.relname]
        if found is None:
            message = f'WITH query "{node.relname}" does not have a RETURNING clause'
            raise PostgresError("0A000", message, position=position(node.location))
        plan = planner.copy_of(found)
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
    """The system column tableoid, and the same as regclass prints it, under the keys by which `evaluation` finds them."""
    oid, name = evaluation.table_oid_keys(f"{alias}.tableoid")
    if LEAF not in frame.columns:
        return [F.lit(relation.oid).cast("bigint").alias(oid), F.lit(_shown(planner, relation)).alias(name)]
    shown = F.lit(None).cast("string")
    for leaf in planner.transaction.partitioned(relation).leaves:
        shown = F.when(F.col(LEAF) == leaf.oid, _shown(planner, leaf)).otherwise(shown)
    return [F.col(LEAF).cast("bigint").alias(oid), shown.alias(name)]


def _shown(planner: Planner, relation: Relation) -> str:
    """A relation as regclass prints it."""
    cursor, context = planner.transaction.cursor, planner.session.context
    found = relations.find_oid(cursor, context.database, None, relation.name, lookup.search_path(cursor, context))
    return names.quote_ident(relation.name) if found == relation.oid else names.qualified(relation.schema, relation.name)


def restrict(planner: Planner, relation: Relation, columns: Sequence[PlanColumn], alias: str | None = None) -> None:
    """Forbids the expressions of a statement to read the columns on which the role has no right; those of a table that it may read.

    `alias`: of a table that has a tableoid, on which nobody is given a right of its own.
    """
    cursor = planner.transaction.cursor
    if privilege.may_on_table(cursor, planner.role, relation.database, relation.oid, "SELECT"):
        return
    allowed = privilege.columns_with(cursor, planner.role, relation, "SELECT")
    error = privilege.denied(cursor, relation.database, relation.oid, relation.name)
    planner.evaluation.restricted |= {each.key: error for each in columns if each.attnum not in allowed}
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
    """The source of a table's rows; `keep` are further columns of the frame (positions) that stay under their names."""
    table, shown = named_table(planner, relation, alias, schema, aliases)
    named = [F.col(quoted(column.name)).alias(each.key) for column, each in zip(relation.columns, shown, strict=True)]
    further = [F.lit(True).alias(table.row_key), *table_oid(planner, frame, relation, alias), *[F.col(quoted(name)) for name in keep]]
    return Source(frame.select(*named, *further), (table,), shown)


def named_table(
    planner: Planner, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str] = ()
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """A table as an entry of FROM, without its rows, and its columns, which get their keys."""
    columns = [
        PlanColumn(each.name, TypeRef(each.type_oid, each.typmod, each.collation), planner.key(each.name), relation.oid, each.attnum)
        for each in relation.columns
    ]
    row = planner.row_key(alias)
    if len(aliases) > len(columns):
        raise PostgresError("42P10", f'table "{alias}" has {len(columns)} columns available but {len(aliases)} columns specified')
    shown = tuple(renamed(columns, aliases))
    fields = tuple(ScopeColumn(each.name, each.attnum, each.type, each.key) for each in shown)
    planner.evaluation.rows[row] = shown
    return ScopeTable(alias, fields, schema, relation.oid, row_key=row), shown


def as_table(planner: Planner, plan: Plan, alias: str, aliases: Sequence[str], schema: str | None = None) -> Source:
    """A planned query as an item of FROM."""
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
        there = {each.name for each in right.star}
        using = [each.name for each in left.star if each.name in there]
    if using:
        found = _using(planner, left, right, using, how, node)
    else:
        both = Source(left.frame, left.tables + right.tables, left.star + right.star, left.merged + right.merged)
        if node.HasField("quals"):
            context = planner.context.within(construct="JOIN/ON", aggregates=False)
            condition = binder.bind_condition(node.quals, both.scope(outer), "JOIN/ON", context=context)
            frame = _joined(node, left, right, _on(planner, condition, both.tables), how)
            equal = tuple(where_clause.pairs(condition)) if how == "inner" else ()
        else:
            frame, equal = _joined(node, left, right, None, "cross"), ()
        found = replace(both, frame=frame, equal=_equal(left, right, how) + equal)
    if node.HasField("alias"):
        return as_table(planner, Plan(found.frame, found.star), node.alias.aliasname, names.strings(node.alias.colnames))
    return found


def _equal(left: Source, right: Source, how: str) -> tuple[EqualColumns, ...]:
    """The pairs of columns of both sides that are equal in each row of their join: of a side whose rows may be left empty, none."""
    return (left.equal if how in ("inner", "left", "cross") else ()) + (right.equal if how in ("inner", "right", "cross") else ())


def _on(planner: Planner, condition: Expression, tables: Sequence[ScopeTable]) -> Column:
    keys, others = where_clause.on(condition, tables)
    found = [planner.evaluation.equality(each) for each in keys]
    return functools.reduce(Column.__and__, [*found, planner.column(joined(BoolKind.AND, others))] if others else found)


def _joined(node: pb.JoinExpr, left: Source, right: Source, condition: Column | None, how: str) -> DataFrame:
    inner = unwrap(node.rarg)
    if inner.DESCRIPTOR.name == "RangeSubselect" and inner.lateral:
        if how not in ("inner", "left", "cross"):
            raise PostgresError("42P10", "The combining JOIN type must be INNER or LEFT for a LATERAL reference.")
        return left.frame.lateralJoin(right.frame, condition, how)
    return left.frame.crossJoin(right.frame) if condition is None else left.frame.join(right.frame, condition, how)


def _join_function(planner: Planner, node: ParseNode, left: Source, outer: Scope | None, how: str) -> Source:
    """``… [LEFT] JOIN f(…) ON …``: an outer join only ON true."""
    always = node.HasField("quals") and unwrap(node.quals).DESCRIPTOR.name == "A_Const" and unwrap(node.quals).boolval.boolval
    if how == "left" and not always:
        raise not_supported("LEFT JOIN of a function with a condition other than true is not supported")
    found = function_scan.scan(planner, unwrap(node.rarg), outer, left, keep_left=how == "left")
    _check_alias(left, replace(found, tables=found.tables[len(left.tables) :]))
    if node.using_clause or node.is_natural:
        raise not_supported("JOIN ... USING with a function is not supported")
    if how == "inner" and node.HasField("quals"):
        context = planner.context.within(construct="JOIN/ON", aggregates=False)
        condition = binder.bind_condition(node.quals, found.scope(outer), "JOIN/ON", context=context)
        found = replace(found, frame=found.frame.where(planner.evaluation.filter(condition)))
    if node.HasField("alias"):
        return as_table(planner, Plan(found.frame, found.star), node.alias.aliasname, names.strings(node.alias.colnames))
    return found


def _using(planner: Planner, left: Source, right: Source, using: Sequence[str], how: str, node: ParseNode) -> Source:
    """JOIN … USING and NATURAL JOIN: the named columns appear once, first, as the left or (outer joins) whichever value there is."""
    conditions: list[Expression] = []
    merged: list[PlanColumn] = []
    values = []
    for name in using:
        one, other = using_column(left.star, name, "left"), using_column(right.star, name, "right")
        condition = operators.make(["="], reference(one), reference(other), planner.context, -1)
        conditions.append(condition)
        sides, kind = binder.unify([reference(one), reference(other)], "JOIN/USING", planner.context)
        value: Expression = {"inner": sides[0], "left": sides[0], "right": sides[1]}.get(how) or Coalesce(type=kind, args=tuple(sides))
        key = planner.key(name)
        merged.append(
            PlanColumn(name, kind, key, one.relation if how in ("inner", "left") else 0, one.attnum if how in ("inner", "left") else 0)
        )
        values.append(planner.column(value).alias(key))
    frame = left.frame.join(right.frame, planner.column(joined(BoolKind.AND, conditions)), how).select("*", *values)
    rest = [each for each in left.star + right.star if each.name not in using]
    seen = tuple(ScopeColumn(each.name, place, each.type, each.key) for place, each in enumerate(merged, 1))
    equal = _equal(left, right, how)
    if how == "inner":
        equal += tuple(where_clause.pairs(joined(BoolKind.AND, conditions)))
        others = [(reference(each), reference(using_column(right.star, each.name, "right"))) for each in merged]
        equal += tuple(each for each in others if where_clause.are_same(*each))
    return Source(frame, left.tables + right.tables, (*merged, *rest), left.merged + right.merged + seen, equal=equal)
