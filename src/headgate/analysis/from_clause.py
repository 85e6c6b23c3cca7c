"""Analyse FROM: tables, subqueries, functions, VALUES and joins become a `FromItem` (transformFromClause)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.analysis import row_locking
from headgate.analysis.analyser import Analyser
from headgate.analysis.query import (
    AliasItem,
    CteItem,
    FromItem,
    FunctionItem,
    JoinItem,
    PlanColumn,
    RelationItem,
    RowLock,
    SubqueryItem,
    TransitionItem,
    parts,
    reference,
    renamed,
    scope_table,
)
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder, operators
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import SYSTEM_COLUMNS, Scope, ScopeColumn, ScopeTable, hiding, merging
from headgate.expression.implementation.set_returning import columns_of
from headgate.expression.node import BoolKind, Coalesce, ColumnRef, Expression, TypeRef, joined
from headgate.sql import names
from headgate.sql.column_name import title
from headgate.sql.parser import ParseNode, anded, kind, unwrap, walk
from headgate.types import registry
from headgate.types.registry import FIRST_USER_OID

_JOINS = {pb.JOIN_INNER: "inner", pb.JOIN_LEFT: "left", pb.JOIN_RIGHT: "right", pb.JOIN_FULL: "full"}
_SEQUENCE = (("last_value", registry.INT8), ("log_cnt", registry.INT8), ("is_called", registry.BOOL))


def analyse(analyser: Analyser, items: Sequence[pb.Node], outer: Scope | None, locks: Sequence[RowLock] = ()) -> FromItem:
    """Analyse the FROM list. Several items are a cross join; without items, the result is one row without columns."""
    if not items:
        return FromItem()
    whole = item(analyser, items[0], outer, locks=locks)
    for node in items[1:]:
        whole = _beside(analyser, whole, node, outer, locks)
    return whole


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


def _beside(analyser: Analyser, left: FromItem, node: ParseNode, outer: Scope | None, locks: Sequence[RowLock]) -> FromItem:
    """Add a FROM item. A function or LATERAL subquery may use the columns of the items before it."""
    right = item(analyser, node, outer, left, locks)
    _check_alias(left.tables, right.tables)
    if isinstance(right, FunctionItem) and right.left is None:
        return _after(left, right, listed=True)
    return _joined(left, right, "cross", listed=True)


def _joined(left: FromItem, right: FromItem, how: str, *, listed: bool = False) -> JoinItem:
    """Return the join of two items, without its condition."""
    tables, star, merged = left.tables + right.tables, left.star + right.star, left.merged + right.merged
    return JoinItem(tables, star, merged, left.hidden + right.hidden, left=left, right=right, how=how, listed=listed)


def uses(right: FromItem, left: FromItem) -> bool:
    """Return whether a LATERAL subquery or a function in a FROM item uses columns of the items before it."""
    keys = {column.key for column in left.star} | {column.key for table in left.all_tables for column in table.columns}
    keys |= {table.row_key for table in left.all_tables}
    return any(isinstance(part, ColumnRef) and part.key in keys for part in parts(right))


def before_join(left: FromItem, right: FromItem) -> FromItem:
    """Return the join of items that a LATERAL subquery or a function inside `right` uses: ``a, b JOIN c`` is ``(a, b) JOIN c`` then.

    Raise 0A000 for an outer join that would have other rows.
    """
    tables, star, merged = left.tables + right.tables, left.star + right.star, left.merged + right.merged
    whole = replace(right, tables=tables, star=star, merged=merged, hidden=left.hidden + right.hidden)
    match whole:
        case JoinItem(how="inner" | "left" | "cross"):
            return replace(whole, left=before_join(left, whole.left))
        case FunctionItem(left=None):
            return replace(whole, left=left)
        case FunctionItem(left=FromItem() as inner):
            return replace(whole, left=before_join(left, inner))
        case JoinItem() | AliasItem():
            raise not_supported(
                "a LATERAL item of a RIGHT or FULL JOIN, or of a join with an alias, that uses columns before the join is not supported"
            )
        case _:
            return _joined(left, right, "cross", listed=True)


def _after(left: FromItem, right: FunctionItem, *, keep_left: bool = False, listed: bool = False) -> FunctionItem:
    """Call functions for each row of the items before them. `keep_left`: keep a row for which they return none (LEFT JOIN … ON true)."""
    tables, star = (*left.tables, *right.tables), (*left.star, *right.star)
    whole = replace(right, tables=tables, star=star, merged=left.merged, hidden=left.hidden)
    return replace(whole, left=left, keep_left=keep_left, listed=listed)


def _check_alias(left: Sequence[ScopeTable], right: Sequence[ScopeTable]) -> None:
    """Raise 42712 for a name that both sides have. Tables of two schemas may share a name if neither has an alias."""
    for table in right:
        same = [left_table for left_table in left if table.name and left_table.name == table.name]
        if any(table.schema == left_table.schema or None in (table.schema, left_table.schema) for left_table in same):
            raise PostgresError("42712", f'table name "{table.name}" specified more than once')


def item(analyser: Analyser, node: ParseNode, outer: Scope | None, left: FromItem | None = None, locks: Sequence[RowLock] = ()) -> FromItem:
    """Analyse one item of a FROM list. `left`: the items whose columns a function or a LATERAL subquery can use."""
    inner = unwrap(node)
    match inner.DESCRIPTOR.name:
        case "RangeVar":
            return _range_var(analyser, inner, locks)
        case "RangeSubselect":
            return _subselect(analyser, inner, outer, left, locks)
        case "JoinExpr":
            return _join(analyser, inner, hiding(outer, left.all_tables if left is not None else ()), locks, left)
        case "RangeFunction":
            return function(analyser, inner, outer, left)
        case node_type:
            raise not_supported(f"{node_type} in FROM is not supported")


# ---- relations --------------------------------------------------------------------------------------------------------------


def _range_var(analyser: Analyser, node: pb.RangeVar, locks: Sequence[RowLock]) -> FromItem:
    aliases = names.strings(node.alias.colnames)
    if not node.schemaname and node.relname in analyser.ctes:
        cte = analyser.ctes[node.relname]
        if cte.columns is None:
            message = f'WITH query "{node.relname}" does not have a RETURNING clause'
            raise PostgresError("0A000", message, location=node.location)
        own = [replace(column, key=analyser.key(column.name)) for column in cte.columns]
        table, columns = entry(analyser, own, node.alias.aliasname or node.relname, aliases)
        return CteItem((replace(table, relation_name=(None, node.relname)),), columns, cte=cte)
    transition = None if node.schemaname or analyser.in_view else analyser.names.transition(node.relname)
    if transition is not None:
        table, columns = named_table(analyser, transition, node.alias.aliasname or node.relname, None, aliases)
        return TransitionItem((table,), columns, name=node.relname)
    relation = analyser.names.relation(node, not analyser.in_view)
    alias = node.alias.aliasname or relation.name
    schema = None if node.alias.aliasname else relation.schema
    if relation.kind in (RelationKind.TABLE, RelationKind.PARTITIONED_TABLE) and relation.oid >= FIRST_USER_OID:
        table, columns = named_table(analyser, relation, alias, schema, aliases)
    elif relation.oid < FIRST_USER_OID:
        table, columns = _system_table(analyser, relation, alias, schema, aliases)
    else:
        table, columns = _relation_entry(analyser, _columns(analyser, relation), alias, aliases, schema)
    applying = tuple(lock for lock in locks if lock.of(alias))
    table = replace(table, relation_name=(relation.schema, relation.name))
    return RelationItem((table,), columns, relation=relation, alias=alias, only=not node.inh, locks=applying, location=node.location)


def _columns(analyser: Analyser, relation: Relation) -> list[PlanColumn]:
    """Return the columns of a view or a sequence with new keys."""
    if relation.kind == RelationKind.SEQUENCE:
        numbered = enumerate(_SEQUENCE, 1)
        return [PlanColumn(name, TypeRef(oid), analyser.key(name), relation.oid, place) for place, (name, oid) in numbered]
    return relation_columns(analyser, relation)


def relation_columns(analyser: Analyser, relation: Relation) -> list[PlanColumn]:
    return [
        PlanColumn(
            column.name, TypeRef(column.type_oid, column.typmod, column.collation), analyser.key(column.name), relation.oid, column.attnum
        )
        for column in relation.columns
    ]


def named_table(
    analyser: Analyser, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str]
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """Return a table as a scope entry, with system columns, and its columns with new keys."""
    own = relation_columns(analyser, relation)
    columns = aliased(own, alias, aliases)
    fields = tuple(ScopeColumn(column.name, column.attnum, column.type, column.key) for column in columns)
    table = ScopeTable(
        alias, fields, schema, relation.oid, row_key=analyser.row_key(alias, own), relation_name=(relation.schema, relation.name)
    )
    return replace(table, row_names=tuple(column.name for column in own) if aliases else ()), columns


def _system_table(
    analyser: Analyser, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str]
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """Return a system relation as a scope entry, with the system columns of a catalog except ctid, and its columns with new keys."""
    table, columns = _relation_entry(analyser, relation_columns(analyser, relation), alias, aliases, schema)
    own = [
        ScopeColumn(name, attnum, TypeRef(oid), f"{table.row_key}.{name}")
        for name, (attnum, oid) in SYSTEM_COLUMNS.items()
        if relation.kind == RelationKind.TABLE and name != "ctid"
    ]
    return replace(table, relation=relation.oid, columns=(*table.columns, *own)), columns


def _relation_entry(
    analyser: Analyser, columns: Sequence[PlanColumn], alias: str, aliases: Sequence[str], schema: str | None
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """Return the scope entry of a view or system relation, and its columns. A whole row has the names of `columns`."""
    shown = aliased(columns, alias, aliases)
    table = scope_table(alias, shown, schema, row_key=analyser.row_key(alias, columns))
    return replace(table, row_names=tuple(column.name for column in columns) if aliases else ()), shown


def entry(
    analyser: Analyser, columns: Sequence[PlanColumn], alias: str, aliases: Sequence[str], schema: str | None = None
) -> tuple[ScopeTable, tuple[PlanColumn, ...]]:
    """Return the scope entry of a FROM item without system columns, and its columns."""
    shown = aliased(columns, alias, aliases)
    return scope_table(alias, shown, schema, row_key=analyser.row_key(alias, shown)), shown


def aliased(columns: Sequence[PlanColumn], alias: str, aliases: Sequence[str]) -> tuple[PlanColumn, ...]:
    """Return the columns of a FROM item with the names of its alias list. Raise 42P10 if it names too many."""
    if len(aliases) > len(columns):
        raise PostgresError("42P10", f'table "{alias}" has {len(columns)} columns available but {len(aliases)} columns specified')
    return tuple(renamed(columns, aliases))


def _subselect(
    analyser: Analyser, node: pb.RangeSubselect, outer: Scope | None, left: FromItem | None, locks: Sequence[RowLock]
) -> FromItem:
    if not node.HasField("alias"):
        values = bool(unwrap(node.subquery).values_lists)
        what, example = ("VALUES in FROM", "FROM (VALUES ...) [AS] foo.") if values else ("subquery in FROM", "FROM (SELECT ...) [AS] foo.")
        raise PostgresError("42601", f"{what} must have an alias", hint=f"For example, {example}")
    alias = node.alias.aliasname
    around = outer if left is None else left.scope(outer) if node.lateral else hiding(outer, left.all_tables)
    query = analyser.select(unwrap(node.subquery), around, locks=row_locking.inside(locks, alias))
    table, columns = entry(analyser, query.columns, alias, names.strings(node.alias.colnames))
    return SubqueryItem((table,), columns, query=query, lateral=node.lateral)


# ---- joins ------------------------------------------------------------------------------------------------------------------


def _join(analyser: Analyser, node: pb.JoinExpr, outer: Scope | None, locks: Sequence[RowLock], before: FromItem | None) -> FromItem:
    """Analyse a join. `before`: the items before it, whose columns LATERAL subqueries and functions in it can use too."""
    row_locking.refuse_nullable(locks, node)
    left = item(analyser, node.larg, outer, before, locks)
    how = _JOINS[node.jointype]
    usable = left if how in ("inner", "left") else replace(left, tables=tuple(replace(table, outer_joined=True) for table in left.tables))
    usable = usable if before is None else _joined(before, usable, "cross")
    right = item(analyser, node.rarg, outer, usable, locks)
    _check_alias(left.tables, right.tables)
    if isinstance(right, FunctionItem) and right.lateral:
        return _aliased_join(analyser, node, _join_function(analyser, node, left, right, outer, how))
    if isinstance(right, SubqueryItem) and how not in ("inner", "left") and not uses(right, usable):
        right = replace(right, lateral=False)
    using = _using_names(node, left.star, right.star)
    both = _joined(left, right, how)
    if using:
        both = _using(analyser, both, using, node.join_using_alias.aliasname)
    else:
        condition = _quals(analyser, node, both, outer)
        both = replace(both, condition=condition, how="cross" if condition is None else how)
    return _aliased_join(analyser, node, both)


def _quals(analyser: Analyser, node: pb.JoinExpr, both: FromItem, outer: Scope | None) -> Expression | None:
    if not node.HasField("quals"):
        return None
    context = analyser.context.within(construct="JOIN/ON", aggregates=False)
    return binder.bind_condition(node.quals, both.scope(outer), "JOIN/ON", context=context)


def _aliased_join(analyser: Analyser, node: pb.JoinExpr, whole: FromItem) -> FromItem:
    if not node.HasField("alias"):
        return whole
    alias, aliases = node.alias.aliasname, names.strings(node.alias.colnames)
    if len(aliases) > len(whole.star):
        message = f'join expression "{alias}" has {len(whole.star)} columns available but {len(aliases)} columns specified'
        raise PostgresError("42P10", message)
    table, columns = entry(analyser, whole.star, alias, aliases)
    return AliasItem((table,), columns, hidden=whole.all_tables, item=whole)


def _join_function(analyser: Analyser, node: pb.JoinExpr, left: FromItem, right: FunctionItem, outer: Scope | None, how: str) -> FromItem:
    """Analyse ``… [LEFT] JOIN f(…) ON …`` whose arguments use the items before it."""
    always = node.HasField("quals") and unwrap(node.quals).DESCRIPTOR.name == "A_Const" and unwrap(node.quals).boolval.boolval
    if node.using_clause or node.is_natural:
        raise not_supported("JOIN ... USING with a function of the columns before it is not supported")
    whole = _after(left, right, keep_left=how == "left")
    return whole if how == "left" and always else replace(whole, condition=_quals(analyser, node, whole, outer))


def _using(analyser: Analyser, both: JoinItem, using: Sequence[str], alias: str) -> JoinItem:
    """Analyse JOIN … USING and NATURAL JOIN. The named columns appear once, at the start.

    `alias`: the name under which only the merged columns are in scope, or "".
    """
    conditions: list[Expression] = []
    merged: list[tuple[PlanColumn, Expression]] = []
    for name in using:
        equality, column, value = _merged_column(analyser.context, both.left.star, both.right.star, name, both.how)
        conditions.append(equality)
        merged.append((replace(column, key=value.key if isinstance(value, ColumnRef) else analyser.key(name)), value))
    columns = [column for column, _ in merged]
    named = [scope_table(alias, columns, row_key=analyser.row_key(alias, columns))] if alias else []
    _check_alias(both.tables, named)
    return replace(
        both,
        tables=merging([*both.tables, *named], using),
        star=(*columns, *(column for column in both.star if column.name not in using)),
        merged=(
            *(column for column in both.merged if column.name not in using),
            *(ScopeColumn(column.name, place, column.type, column.key) for place, column in enumerate(columns, 1)),
        ),
        condition=joined(BoolKind.AND, conditions),
        using=tuple(merged),
        using_alias=named[0] if named else None,
    )


def _using_names(node: pb.JoinExpr, left: Iterable[PlanColumn], right: Iterable[PlanColumn]) -> list[str]:
    """Return the names of the columns that USING, or NATURAL, merges."""
    right_names = {column.name for column in right}
    return [column.name for column in left if column.name in right_names] if node.is_natural else names.strings(node.using_clause)


def _merged_column(
    context: BindContext, left: Iterable[PlanColumn], right: Iterable[PlanColumn], name: str, how: str
) -> tuple[Expression, PlanColumn, Expression]:
    """Return the condition of a column of USING, the merged column, and its value.

    The value is that of the left side for inner and left joins, that of the right side for right joins, and the first that is not NULL for
    full joins.
    """
    columns = using_column(left, name, "left"), using_column(right, name, "right")
    ours, theirs = map(reference, columns)
    equality = operators.make(["="], ours, theirs, context, -1)
    sides, type_ref = binder.unify([ours, theirs], "JOIN/USING", context)
    value = {"inner": sides[0], "left": sides[0], "right": sides[1]}.get(how) or Coalesce(type=type_ref, args=tuple(sides))
    merged = replace(columns[how == "right"], type=type_ref)
    return equality, merged if isinstance(value, ColumnRef) else replace(merged, relation=0, attnum=0), value


def using_column(columns: Iterable[PlanColumn], name: str, side: str) -> PlanColumn:
    """Return the column that USING names on one side of a join. Raise 42703 if there is none, 42702 if there are several."""
    matches = [column for column in columns if column.name == name]
    if not matches:
        raise PostgresError("42703", f'column "{name}" specified in USING clause does not exist in {side} table')
    if len(matches) > 1:
        raise PostgresError("42702", f'common column name "{name}" appears more than once in {side} table')
    return matches[0]


# ---- functions --------------------------------------------------------------------------------------------------------------


def function(analyser: Analyser, node: pb.RangeFunction, outer: Scope | None, left: FromItem | None) -> FromItem:
    """Analyse ``FROM f(…) [WITH ORDINALITY] AS a (x, …)``. `left`: the items whose columns the arguments can use."""
    changes = analyser.names.changes(analyser, node)
    if changes is not None:
        return changes
    if len(node.functions) != 1 or node.coldeflist:
        raise not_supported("this form of function in FROM is not supported")
    call = unwrap(unwrap(node.functions[0]).items[0])
    name = title(call)
    alias = node.alias.aliasname or name
    calls = _calls(analyser, call, name, left.scope(outer) if left is not None else Scope((), outer))
    if name == "unnest" and any(analyser.context.is_composite(bound.type.oid) for bound in calls):
        raise not_supported("unnest of an array of rows in FROM is not supported", location=call.location)
    columns = [
        PlanColumn(own_name or name, type_ref, analyser.key(own_name or name))
        for bound in calls
        for own_name, type_ref in columns_of(bound)
    ]
    if node.ordinality:
        columns.append(PlanColumn("ordinality", TypeRef(registry.INT8), analyser.key("ordinality")))
    if node.HasField("alias") and len(columns) - node.ordinality == 1 and columns[0].name == name:  # not that of an OUT parameter
        columns = renamed(columns, [alias])
    star = aliased(columns, alias, names.strings(node.alias.colnames))
    table = replace(scope_table(alias, star, row_key=analyser.row_key(alias, star)), is_scalar=len(star) == 1)
    return FunctionItem((table,), star, calls=calls, columns=star, ordinality=node.ordinality)


def _calls(analyser: Analyser, call: pb.FuncCall, name: str, scope: Scope) -> tuple[Expression, ...]:
    """Bind the call; ``unnest(a, b)`` becomes one unnest for each array."""
    context = analyser.context.within(construct="functions in FROM", sets=True, aggregates=False)
    if name != "unnest" or len(call.args) < 2:
        return (binder.bind(call, scope, context=context),)
    bound_calls = []
    for argument in call.args:
        single = type(call)()
        single.CopyFrom(call)
        del single.args[:]
        single.args.append(argument)
        bound_calls.append(binder.bind(single, scope, context=context))
    return tuple(bound_calls)
