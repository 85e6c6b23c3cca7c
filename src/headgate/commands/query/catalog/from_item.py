"""FROM items of a query on system relations: catalog tables and views, WITH queries, subqueries, joins, functions.

`select.CatalogPlanner` calls it and plans the SELECT around them. A user must not read a catalog relation or column without the
right to do so (`_guard`, `check_guarded`). The text of a view must be planned with only pg_catalog in the search path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb

from headgate.analysis.from_clause import JOINS, check_alias, merged_column, using_names
from headgate.catalog import procedure, system_view
from headgate.catalog.dynamic import arrow_table
from headgate.catalog.relation import relation
from headgate.catalog.system_view import SystemColumn
from headgate.commands.query.catalog import privilege_inquiry, session_call
from headgate.commands.query.catalog.relation_source import CatalogSource, SourceColumn
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable, hiding, merging
from headgate.expression.duckdb import set_returning, value
from headgate.expression.duckdb.value import MAX_DIGITS, NOTHING_KNOWN, Facts
from headgate.expression.implementation.set_returning import CatalogRows
from headgate.expression.node import Expression, FuncExpr, TypeRef
from headgate.initial_catalog import rows as initial
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, position, unwrap
from headgate.types import registry as t

if TYPE_CHECKING:
    from headgate.commands.query.catalog.select import CatalogPlanner

_PRETTY = {"pg_attrdef": "adbinpretty", "pg_constraint": "conbinpretty", "pg_index": "indpredpretty"}
"""Catalogs that also store the pretty-printed form of an expression (`session_call`, pg_get_expr)."""
_WHOLE = {"pg_attribute": "every_attribute", "pg_depend": "every_dependency"}
"""Catalogs whose stored table is incomplete, with the view that has all rows."""
_JOINS = {pb.JOIN_INNER: "JOIN", pb.JOIN_LEFT: "LEFT JOIN", pb.JOIN_RIGHT: "RIGHT JOIN", pb.JOIN_FULL: "FULL JOIN"}
_VIEWS: dict[tuple[object, ...], str] = {}
"""The SQL of system view bodies that depend only on the key (`_view_sql`)."""
_MOST_VIEWS = 1024


def from_clause(planner: CatalogPlanner, clause: Sequence[object], outer: Scope | None) -> CatalogSource:
    """Plan the FROM list, which may be empty."""
    if not clause:
        return CatalogSource("")
    whole = _item(planner, unwrap(clause[0]), outer, None)
    for item_node in clause[1:]:
        item = _item(planner, unwrap(item_node), outer, whole)
        check_alias(whole.tables, item.tables)
        whole = whole.beside(item, f"{whole.sql}, {item.sql}")
    return replace(whole, sql=f" FROM {whole.sql}")


def _item(planner: CatalogPlanner, node: ParseNode, outer: Scope | None, left: CatalogSource | None) -> CatalogSource:
    match node.DESCRIPTOR.name:
        case "RangeVar":
            return _range_var(planner, node)
        case "RangeSubselect":
            return _range_subselect(planner, node, outer, left)
        case "RangeFunction":
            return _range_function(planner, node, Scope((), outer) if left is None else left.scope(outer))
        case "JoinExpr":
            return _join(planner, node, outer, left)
        case node_type:
            raise not_supported(f"{node_type} is not supported in a query on system catalogs")


def _range_var(planner: CatalogPlanner, node: pb.RangeVar) -> CatalogSource:
    alias = planner.alias()
    cte = planner.ctes.get(node.relname) if not node.schemaname else None
    if cte is not None:
        return _source(planner, f"{cte.sql_name} {alias}", node, node.relname, None, cte.under(alias), alias)
    if node.schemaname == "hg" and planner.view_depth:
        listed = [SourceColumn(name, _type(planner, kind), f'{alias}."{name}"') for name, kind in system_view.NODE_TABLES[node.relname]]
        return _source(planner, f"hg.{node.relname} {alias}", node, node.relname, None, listed, alias)
    system_relation = _system_relation(planner, node)
    _guard(planner, system_relation, alias)
    columns = _relation_columns(planner, system_relation, alias)
    return _source(
        planner,
        f"({_relation_sql(planner, system_relation)}) {alias}",
        node,
        system_relation.name,
        system_relation.schema,
        columns,
        alias,
        table=system_relation.oid,
        stored=system_relation.kind == "r",
    )


def _type(planner: CatalogPlanner, oid: int) -> TypeRef:
    return TypeRef(oid, -1, planner.binding.collation_of_type(oid))


def _source(
    planner: CatalogPlanner,
    sql: str,
    node: ParseNode,
    name: str,
    schema: str | None,
    columns: Sequence[SourceColumn],
    alias: str,
    *,
    table: int = 0,
    stored: bool = False,
    sorted_by: tuple[str, ...] = (),
) -> CatalogSource:
    """Return a FROM item with the alias and column aliases of the query. `stored`: its rows have system columns such as xmin."""
    visible, shown, relation_name = name, list(columns), (schema, name)
    if node.HasField("alias"):
        visible, schema = node.alias.aliasname, None
        aliases = names.strings(node.alias.colnames)
        if len(aliases) > len(shown):
            raise PostgresError("42P10", f'table "{visible}" has {len(shown)} columns available but {len(aliases)} columns specified')
        shown = [replace(column, name=alias_name) for column, alias_name in zip(shown, aliases, strict=False)] + shown[len(aliases) :]
    listed = [ScopeColumn(column.name, max(column.attnum, 1), column.type, column.key) for column in shown]
    if table:
        listed.append(ScopeColumn("tableoid", -6, TypeRef(t.OID), f"CAST({table} AS UINTEGER)"))
    if stored:
        listed += _VERSIONS
    key = f"{alias}.*"
    planner.rows[key] = shown
    planner.facts.update({column.key: column.facts for column in shown if column.facts != NOTHING_KNOWN})
    entry = ScopeTable(visible, tuple(listed), schema, table, system=False, row_key=key, relation_name=relation_name)
    return CatalogSource(sql, (entry,), tuple(shown), sorted_by=sorted_by)


# ---- system relations ----------------------------------------------------------------------------------------------------


def _guard(planner: CatalogPlanner, relation: system_view.SystemRelation, alias: str) -> None:
    """Raise 42501 if the user may not read a relation. Rights on single columns are checked in the finished query."""
    if planner.context.superuser or planner.view_depth or relation.schema == "information_schema":
        return
    if privilege_inquiry.may_select(planner.cursor, planner.context, relation.oid):
        return
    allowed = privilege_inquiry.selectable_columns(planner.cursor, planner.context, relation.oid)
    if not allowed:
        word = "view" if relation.kind == "v" else "table"
        raise PostgresError("42501", f"permission denied for {word} {relation.name}")
    planner.guarded += [(f'{alias}."{column.name}"', relation.name) for column in relation.columns if column.attnum not in allowed]


def check_guarded(planner: CatalogPlanner, sql: str) -> None:
    """Raise 42501 if the query reads a column that the user may not read."""
    for column, name in planner.guarded:
        if re.search(rf"(?<!\w){re.escape(column)}", sql):
            raise PostgresError("42501", f"permission denied for table {name}")


def _relation_columns(planner: CatalogPlanner, relation: system_view.SystemRelation, alias: str) -> list[SourceColumn]:
    return [
        SourceColumn(name, kind, f"{alias}.{sql_name}", relation.oid, attnum, facts=facts)
        for name, kind, sql_name, attnum, facts in _columns(relation.schema, relation.name, planner.context.announced)
    ]


def _path(planner: CatalogPlanner) -> list[str]:
    schemas = session_call.effective_schemas(planner)
    return schemas if "pg_catalog" in schemas else ["pg_catalog", *schemas]


def _system_relation(planner: CatalogPlanner, node: pb.RangeVar) -> system_view.SystemRelation:
    if node.catalogname and node.catalogname != planner.context.database_name:
        shown = f"{node.catalogname}.{node.schemaname}.{node.relname}"
        raise PostgresError("0A000", f'cross-database references are not implemented: "{shown}"', position=position(node.location))
    schemas = [node.schemaname] if node.schemaname else _path(planner)
    for schema in schemas:
        system_relation = system_view.relation(schema, node.relname, planner.context.announced)
        if system_relation is not None:
            return system_relation
    shown = f"{node.schemaname}.{node.relname}" if node.schemaname else node.relname
    oid = relation.find_oid(
        planner.cursor, planner.context.database, node.schemaname or None, node.relname, session_call.effective_schemas(planner)
    )
    if oid is not None:
        raise not_supported(f'relation "{shown}" cannot be used together with system catalogs', position=position(node.location))
    raise PostgresError("42P01", f'relation "{shown}" does not exist', position=position(node.location))


def _relation_sql(planner: CatalogPlanner, relation: system_view.SystemRelation) -> str:
    table = relation.physical
    if table is not None:
        listed = ", ".join(f'"{column.name}"' for column in table.columns)
        listed += "".join(f", {_LATER[column.name]}" for column in relation.columns[len(table.columns) :])
        if table.name in _PRETTY:
            listed += f", {_PRETTY[table.name]}"
        scope = "" if table.shared else f" WHERE dbid IN (0, {planner.context.database})"
        return f"SELECT {listed} FROM hg.{_WHOLE.get(table.name, table.name)}{scope}"
    if relation.schema == "information_schema" and relation.kind == "r":
        return _table_sql(planner, relation.columns, [tuple(row.values()) for row in initial.rows(relation.name)])
    if relation.expanded or (relation.name in system_view.FROM_CATALOG and relation.name not in planner.dynamic and not planner.describing):
        return _view_sql(planner, relation)
    provider = planner.dynamic.get(relation.name)
    return _table_sql(planner, relation.columns, [] if provider is None or planner.describing else list(provider()))


def _table_sql(planner: CatalogPlanner, columns: Sequence[SystemColumn], rows: Sequence[Sequence[object]]) -> str:
    """Return the SQL of a table with these rows."""
    planner.kept_view = False
    name = f"hg_dynamic_{planner.alias('d')}"
    planner.tables[name] = arrow_table(columns, rows)
    # a certificate serial number may exceed DuckDB's DECIMAL: it then stays text, for which only = and <> are right
    whole = [f"c{place}" for place, column in enumerate(columns, 1) if column.type_oid == t.NUMERIC]
    whole = [
        column_name
        for column_name in whole
        if (pc.max(pc.utf8_length(planner.tables[name].column(column_name))).as_py() or 0) <= MAX_DIGITS
    ]
    casts = ", ".join(f"CAST({column_name} AS DECIMAL(38,0)) AS {column_name}" for column_name in whole)
    return f"SELECT * {f'REPLACE ({casts}) ' if whole else ''}FROM {name}"


def _view_sql(planner: CatalogPlanner, relation: system_view.SystemRelation) -> str:
    """Return a view's definition as a subquery, planned with only pg_catalog in the search path.

    The SQL is cached, unless it reads data of this statement alone: the rows of a Provider, rights or the clock.
    """
    context = planner.context
    key = (relation.oid, relation.name in planner.dynamic, planner.describing, *session_key(planner))
    cached = _VIEWS.get(key)
    if cached is not None:
        return cached
    if planner.view_depth > 12:
        raise PostgresError("54001", "stack depth limit exceeded")
    outer_kept_view, ctes = planner.kept_view, planner.ctes
    planner.context, planner.ctes, planner.kept_view = replace(context, search_path=["pg_catalog"]), {}, True
    planner.view_depth += 1
    try:
        with t.unguarded():
            query = planner.select(_definition(relation), None)
            sql = query.build([_type(planner, column.type_oid) for column in relation.columns])
    finally:
        keep = planner.kept_view
        planner.context, planner.ctes = context, ctes
        planner.kept_view = outer_kept_view and keep
        planner.view_depth -= 1
    if keep:
        if len(_VIEWS) >= _MOST_VIEWS:
            _VIEWS.clear()
        _VIEWS[key] = sql
    return sql


def session_key(planner: CatalogPlanner) -> tuple[object, ...]:
    """Return the session values on which SQL depends besides the tree, if nothing has cleared `kept_view`."""
    context = planner.context
    return (
        context.database, context.database_name, context.user, context.session_user, context.superuser, planner.path,
        context.time_zone, context.temp_schema, context.forms,
    )  # fmt: skip


# ---- subqueries, joins -----------------------------------------------------------------------------------------------------


def _range_subselect(planner: CatalogPlanner, node: pb.RangeSubselect, outer: Scope | None, left: CatalogSource | None) -> CatalogSource:
    alias = planner.alias()
    lateral = node.lateral and left is not None
    around = outer if left is None else left.scope(outer) if lateral else hiding(outer, left.tables)
    query = planner.inner_select(node.subquery, around)
    sql = f"{'LATERAL ' if lateral else ''}({query.build(planner.types_of(query))}) {alias}"
    return _source(planner, sql, node, "", None, planner.shown(query, alias), alias)


def _join(planner: CatalogPlanner, node: pb.JoinExpr, outer: Scope | None, before: CatalogSource | None) -> CatalogSource:
    left = _item(planner, unwrap(node.larg), outer, before)
    lateral = left if before is None else before.beside(left, "")
    right = _item(planner, unwrap(node.rarg), outer, lateral)
    check_alias(left.tables, right.tables)
    word = _JOINS[node.jointype]
    using = using_names(node, left.star, right.star)
    both = left.beside(right, "")
    if node.HasField("quals"):
        context = planner.binding.within(construct="JOIN/ON")
        condition = binder.bind_condition(node.quals, both.scope(outer), "JOIN/ON", context=context)
        joined_source = replace(both, sql=f"({left.sql} {word} {right.sql} ON {planner.sql(condition)})")
    elif using:
        joined_source = _join_using(planner, using, node, left, right, both)
    elif word == "JOIN":
        joined_source = replace(both, sql=f"({left.sql} CROSS JOIN {right.sql})")
    else:
        joined_source = replace(both, sql=f"({left.sql} {word} {right.sql} ON true)")
    if not node.HasField("alias"):
        return joined_source
    alias = planner.alias()
    listed = ", ".join(f"{column.key} AS c{place}" for place, column in enumerate(joined_source.star, 1))
    columns = [replace(column, key=f"{alias}.c{place}") for place, column in enumerate(joined_source.star, 1)]
    return _source(planner, f"(SELECT {listed} FROM {joined_source.sql}) {alias}", node, "", None, columns, alias)


def _join_using(
    planner: CatalogPlanner, using: Sequence[str], node: pb.JoinExpr, left: CatalogSource, right: CatalogSource, both: CatalogSource
) -> CatalogSource:
    """Join with USING: build the condition, and put the merged columns before the others."""
    conditions, merged = [], []
    for name in using:
        equality, column, column_value = merged_column(planner.binding, left.star, right.star, name, JOINS[node.jointype])
        conditions.append(planner.sql(equality))
        merged.append(replace(column, key=planner.sql(column_value)))
    star = (*merged, *[column for column in both.star if column.name not in using])
    merged_scope = tuple(ScopeColumn(column.name, 1, column.type, column.key) for column in merged)
    alias = node.join_using_alias.aliasname
    named = [ScopeTable(alias, merged_scope, system=False)] if alias else []
    check_alias(both.tables, named)
    tables = merging([*both.tables, *named], using)
    sql = f"({left.sql} {_JOINS[node.jointype]} {right.sql} ON {' AND '.join(conditions)})"
    outer = [column for column in both.merged if column.name not in using]
    return replace(both, sql=sql, tables=tables, star=star, merged=(*merged_scope, *outer))


# ---- functions -------------------------------------------------------------------------------------------------------------


def _range_function(planner: CatalogPlanner, node: pb.RangeFunction, scope: Scope) -> CatalogSource:
    """Plan a function in FROM, which may use the FROM items before it."""
    if len(node.functions) != 1 or node.coldeflist:
        raise not_supported("ROWS FROM with several functions is not supported in a query on system catalogs")
    call = unwrap(unwrap(node.functions[0]).items[0])
    name = names.strings(call.funcname)[-1] if call.DESCRIPTOR.name == "FuncCall" else "value"
    bound = binder.bind(call, scope, context=planner.binding.within(construct="functions in FROM", sets=True))
    rows = _rows(planner, bound, name)
    alias = planner.alias("f")
    columns = [
        SourceColumn(label or name, _type(planner, kind), f"{alias}.c{place}", facts=Facts(scale=0) if kind == t.NUMERIC else NOTHING_KNOWN)
        for place, (label, kind) in enumerate(rows.columns, 1)
    ]
    if columns[0].name == name and rows.scalar and node.HasField("alias") and not node.alias.colnames:
        columns = [replace(columns[0], name=node.alias.aliasname)]
    sql = rows.table_sql
    order: tuple[str, ...] = ()
    if rows.list_sql:
        sql = f"SELECT {_unnest(rows)}, generate_subscripts({rows.list_sql}, 1) AS n"
        order = (f"{alias}.n",)
    elif rows.in_order:
        order = (f"{alias}.c1",)
    if node.ordinality:
        columns.append(SourceColumn("ordinality", TypeRef(t.INT8), f"CAST({alias}.n AS BIGINT)"))
        if not rows.list_sql:
            sql = f"SELECT *, row_number() OVER () AS n FROM ({sql}) {planner.alias('o')}"
    source = _source(planner, f"LATERAL ({sql}) {alias}", node, name, None, columns, alias, sorted_by=order)
    return replace(source, tables=tuple(replace(table, is_scalar=rows.scalar and len(columns) == 1) for table in source.tables))


def _rows(planner: CatalogPlanner, bound: Expression, name: str) -> CatalogRows:
    if not isinstance(bound, FuncExpr):
        return CatalogRows(((name, bound.type.oid),), table_sql=f"SELECT {planner.sql(bound)} AS c1")
    function = builtin.function(bound.function)
    if session_call.called(bound) in planner.functions:
        return _acting_rows(planner, bound, name)
    if function.name in _BEHIND_VIEWS:
        relation = system_view.relations()["pg_catalog", _BEHIND_VIEWS[function.name]]
        listed = ", ".join(f"{key} AS c{place}" for place, (_, _, key, _, _) in enumerate(_columns("pg_catalog", relation.name, 15), 1))
        columns = tuple((column.name, column.type_oid) for column in relation.columns)
        return CatalogRows(columns, table_sql=f"SELECT {listed} FROM ({_relation_sql(planner, relation)}) {planner.alias()}", scalar=False)
    if function.name in _KEPT_ROWS:
        outputs = procedure.outputs(bound.function)
        listed_outputs = [SystemColumn(label, kind, -1, place) for place, (label, kind) in enumerate(outputs, 1)]
        rows = [tuple(row.values()) for row in initial.rows(function.name)]
        return CatalogRows(outputs, table_sql=_table_sql(planner, listed_outputs, rows), scalar=False)
    if function.retset:
        session_call.check_arguments(planner, bound)
        return set_returning.rows(bound, [planner.sql(argument) for argument in bound.args], planner, in_from=True)
    sql = planner.sql(bound)
    if sql.startswith("<acting"):
        raise not_supported(f"function {name} is not supported here", position=position(bound.location))
    return CatalogRows(((name, bound.type.oid),), table_sql=f"SELECT {sql} AS c1")


def _acting_rows(planner: CatalogPlanner, bound: FuncExpr, name: str) -> CatalogRows:
    """Call a session function in FROM while planning, and return its rows as a table."""
    chosen = procedure.procedures()[bound.function]
    session_call.check_right(planner, chosen)
    planner.kept_view = False
    columns = chosen.outputs or ((name, chosen.result),)
    rows: list[tuple[object, ...]] = []
    if not planner.describing:
        rows = session_call.result_rows(planner.functions[session_call.called(bound)], session_call.given_values(planner, bound), chosen)
    table = f"hg_rows_{planner.alias('r')}"
    listed = [SystemColumn(label, kind, -1, place) for place, (label, kind) in enumerate(columns, 1)]
    planner.tables[table] = arrow_table(listed, rows)
    return CatalogRows(columns, table_sql=f"SELECT * FROM {table}", scalar=not chosen.outputs)


_VERSIONS = tuple(
    ScopeColumn(name, attnum, TypeRef(kind), f"CAST({value} AS UINTEGER)")
    for name, attnum, kind, value in (("xmin", -2, t.XID, 1), ("cmin", -3, t.CID, 0), ("xmax", -4, t.XID, 0), ("cmax", -5, t.CID, 0))
)
"""The system columns of catalog rows. Programs read them; every row has the same version (BootstrapTransactionId), visible to all."""
_LATER = {"pubgencols": "coalesce(pubgencols, 'n') AS pubgencols"}
"""Catalog columns that PostgreSQL 15 does not have."""
_BEHIND_VIEWS = {"pg_show_all_settings": "pg_settings"}
"""Functions that return the rows of a view."""
_KEPT_ROWS = frozenset({"pg_get_keywords"})
"""Functions whose rows `initial_catalog` stores under their name."""


@lru_cache(maxsize=512)
def _columns(schema: str, name: str, announced: int) -> tuple[tuple[str, TypeRef, str, int, Facts], ...]:
    """Return the columns of a system relation: name, type, name in SQL, number and facts."""
    system_relation = system_view.relation(schema, name, announced)
    assert system_relation is not None
    types, physical = t.builtin(), system_relation.physical is not None
    return tuple(
        (
            column.name,
            TypeRef(column.type_oid, column.typmod, types.by_oid(column.type_oid).collation),
            f'"{column.name}"' if physical else f"c{place}",
            column.attnum,
            Facts(scale=0) if column.type_oid == t.NUMERIC else NOTHING_KNOWN,
        )
        for place, column in enumerate(system_relation.columns, 1)
    )


@lru_cache(maxsize=256)
def _parse(text: str) -> ParseNode:
    [statement] = parse(text)
    return statement.node


def _definition(relation: system_view.SystemRelation) -> ParseNode:
    return _parse(system_view.FROM_CATALOG.get(relation.name) or relation.definition or "")


def _unnest(rows: CatalogRows) -> str:
    if rows.scalar:
        return f"unnest({rows.list_sql}) AS c1"
    parts = [f"struct_extract(unnest({rows.list_sql}), {value.quote(name)}) AS c{place}" for place, (name, _) in enumerate(rows.columns, 1)]
    return ", ".join(parts)
