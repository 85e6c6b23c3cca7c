"""Compile the FROM items of an analysed query: catalog tables and views, WITH queries, subqueries, joins, functions.

`select.CatalogQueryPlanner` calls it and compiles the SELECT around them. A user must not read a catalog relation or column without the
right to do so (`_guard`). The body of a view must be analysed with only pg_catalog in the search path (`view_query`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb

from headgate.analysis.analyser import Analyser, Names
from headgate.analysis.query import (
    AliasItem,
    CteItem,
    FromItem,
    FunctionItem,
    JoinItem,
    PlanColumn,
    Query,
    RelationItem,
    SubqueryItem,
    parts,
    reference,
    renamed,
    used_keys,
)
from headgate.analysis.query_analyser import QueryAnalyser
from headgate.catalog import procedure, system_view
from headgate.catalog.dynamic import arrow_table
from headgate.catalog.relation.relation import Relation
from headgate.catalog.system_view import SystemColumn, SystemRelation
from headgate.commands import lookup
from headgate.commands.query.catalog import privilege_inquiry, session_call
from headgate.commands.query.catalog.planner import CatalogPlanner
from headgate.commands.query.catalog.relation_source import Source
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding.context import BindContext
from headgate.expression.duckdb import set_returning
from headgate.expression.duckdb.value import MAX_DIGITS, NOTHING_KNOWN, Facts, quote, refuse
from headgate.expression.implementation.set_returning import CatalogRows
from headgate.expression.node import Expression, FuncExpr
from headgate.initial_catalog import rows as initial
from headgate.sql.parser import ParseNode, parse
from headgate.types import registry as t
from headgate.types.text_column import TextSettings

_PRETTY = {"pg_attrdef": "adbinpretty", "pg_constraint": "conbinpretty", "pg_index": "indpredpretty"}
"""Catalogs that also store the pretty-printed form of an expression (`session_call`, pg_get_expr)."""
_WHOLE = {"pg_attribute": "every_attribute", "pg_depend": "every_dependency"}
"""Catalogs whose stored table is incomplete, with the view that has all rows."""
_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
_VIEWS: dict[tuple[object, ...], str] = {}
"""The SQL of system view bodies that depend only on the key (`_view_sql`)."""
_MOST_VIEWS = 1024


def compile(planner: CatalogPlanner, item: FromItem) -> Source:  # noqa: A001 (as the compiler of expressions)
    """Return the SQL of a FROM item, and make its columns known to the planner."""
    match item:
        case RelationItem():
            return _relation(planner, item)
        case CteItem():
            return _with_query(planner, item)
        case SubqueryItem():
            alias = planner.alias()
            sql = planner.query(item.query, needed=_needed(planner, item) if planner.view_depth else None)
            _place(planner, item, [f"{alias}.c{place}" for place, _ in enumerate(item.star, 1)])
            return Source(f"{'LATERAL ' if item.lateral else ''}({sql}) {alias}")
        case FunctionItem():
            return _function(planner, item)
        case JoinItem():
            return _join(planner, item)
        case AliasItem():
            source = compile(planner, item.item)
            planner.rows[item.tables[0].row_key] = item.star
            return source
        case _ if type(item) is FromItem:
            return Source("")
        case _:
            raise not_supported(f"{type(item).__name__} is not supported in a query on system catalogs")


def _needed(planner: CatalogPlanner, item: FromItem) -> frozenset[int] | None:
    """Return the places of the columns that the statement references, or None for all columns of the item."""
    if planner.used is None or item.tables[-1].row_key in planner.used:
        return None
    return frozenset(place for place, column in enumerate(item.star) if column.key in planner.used)


def _place(planner: CatalogPlanner, item: FromItem, sqls: Sequence[str]) -> None:
    """Set the SQL of the columns of an item that is one table."""
    planner.columns.update(zip([column.key for column in item.star], sqls, strict=True))
    planner.rows[item.tables[-1].row_key] = tuple(renamed(item.star, item.tables[-1].row_names))


def _with_query(planner: CatalogPlanner, item: CteItem) -> Source:
    alias = planner.alias()
    name = planner.ctes.get(item.cte)
    if name is None:
        raise not_supported("data-modifying statements in WITH are not supported in a query on system catalogs")
    _place(planner, item, [f"{alias}.c{place}" for place, _ in enumerate(item.star, 1)])
    for column, original in zip(item.star, item.cte.columns or (), strict=True):
        planner.know(column.key, planner.facts.get(original.key, NOTHING_KNOWN))
    return Source(f"{name} {alias}")


# ---- system relations ----------------------------------------------------------------------------------------------------


def _relation(planner: CatalogPlanner, item: RelationItem) -> Source:
    schema, name = item.relation.schema, item.relation.name
    alias = planner.alias()
    if schema == system_view.NODE_SCHEMA:
        _place(planner, item, [f'{alias}."{column.name}"' for column in item.relation.columns])
        return Source(f"hg.{name} {alias}")
    relation = system_view.relation(schema, name, planner.announced)
    if relation is None:  # the query itself names no table, as the engines have checked
        raise refuse("a table in an argument of a function in FROM")
    _guard(planner, relation, item)
    sql_names, numbers = _columns(schema, name, planner.announced)
    _place(planner, item, [f"{alias}.{sql_name}" for sql_name in sql_names])
    [table] = item.tables
    planner.columns.update(
        (column.key, f"CAST({_VERSION.get(column.name, relation.oid)} AS UINTEGER)") for column in table.columns if column.attnum < 0
    )
    for place in numbers:
        planner.facts[item.star[place].key] = Facts(scale=0)
    return Source(f"({_relation_sql(planner, relation, _needed(planner, item))}) {alias}")


def _guard(planner: CatalogPlanner, relation: SystemRelation, item: RelationItem) -> None:
    """Raise 42501 if the user may not read a relation. Columns that the user may not read are restricted: a reference raises 42501."""
    if planner.context.superuser or planner.view_depth or relation.schema == "information_schema":
        return
    if privilege_inquiry.may_select(planner.cursor, planner.context, relation.oid):
        return
    allowed = privilege_inquiry.selectable_columns(planner.cursor, planner.context, relation.oid)
    if not allowed:
        word = "view" if relation.kind == "v" else "table"
        raise PostgresError("42501", f"permission denied for {word} {relation.name}")
    planner.restricted.update((column.key, relation.name) for column in item.star if column.attnum not in allowed)


def _relation_sql(planner: CatalogPlanner, relation: SystemRelation, needed: frozenset[int] | None) -> str:
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
    if relation.expanded or (relation.name in system_view.FROM_CATALOG and relation.name not in planner.dynamic):
        return _view_sql(planner, relation, needed)
    provider = planner.dynamic.get(relation.name)
    return _table_sql(planner, relation.columns, [] if provider is None else list(provider()))


def _table_sql(planner: CatalogPlanner, columns: Sequence[SystemColumn], rows: Sequence[Sequence[object]]) -> str:
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


def _view_sql(planner: CatalogPlanner, relation: SystemRelation, needed: frozenset[int] | None) -> str:
    """Return a view's definition as a subquery.

    Columns that are not needed are NULL. DuckDB would drop them only after it has planned them, which may take seconds. The SQL is
    cached, unless it reads data of this statement alone: the rows of a Provider, rights or the clock.
    """
    context = planner.context
    key = (relation.oid, needed, relation.name in planner.dynamic, *session_key(planner))
    cached = _VIEWS.get(key)
    if cached is not None:
        return cached
    if planner.view_depth > 12:
        raise PostgresError("54001", "stack depth limit exceeded")
    outer_kept_view, outer = planner.kept_view, (planner.columns, planner.rows, planner.facts, planner.used)
    planner.context, planner.kept_view = replace(context, search_path=["pg_catalog"]), True
    planner.columns, planner.rows, planner.facts = {}, {}, {}  # another analysis has the same keys
    planner.view_depth += 1
    try:
        with t.unguarded():
            query = view_query(relation.schema, relation.name, planner.announced, context.forms)
            planner.used = used_keys(query, range(len(query.columns)) if needed is None else needed)
            call_functions(planner, query)
            sql = planner.query(query, needed=needed)
    finally:
        keep = planner.kept_view
        planner.context = context
        planner.columns, planner.rows, planner.facts, planner.used = outer
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


# ---- joins -----------------------------------------------------------------------------------------------------------------


def _join(planner: CatalogPlanner, item: JoinItem) -> Source:
    left, right = compile(planner, item.left), compile(planner, item.right)
    order = left.sorted_by + right.sorted_by
    if item.listed:
        return Source(f"{left.sql}, {right.sql}", order)
    if item.condition is None:
        return Source(f"({left.sql} CROSS JOIN {right.sql})", order)
    condition = planner.sql(item.condition)
    for column, merged in item.using:
        if merged != reference(column):
            planner.know(column.key, planner.facts_of(merged))
            planner.columns[column.key] = planner.sql(merged)
    if item.using_alias is not None:
        planner.rows[item.using_alias.row_key] = tuple(column for column, _ in item.using)
    return Source(f"({left.sql} {_JOINS[item.how]} {right.sql} ON {condition})", order)


# ---- functions -------------------------------------------------------------------------------------------------------------


def _function(planner: CatalogPlanner, item: FunctionItem) -> Source:
    """Compile functions in FROM, which may use the FROM items before them."""
    left = Source("") if item.left is None else compile(planner, item.left)
    alias = planner.alias("f")
    rows = [_rows(planner, item, call) for call in item.calls]
    sql = rows[0].table_sql
    order: tuple[str, ...] = (f"{alias}.c1",) if rows[0].in_order else ()
    if rows[0].list_sql:
        listed = [value for row_set, call in zip(rows, item.calls, strict=True) for value in _unnested(planner, row_set, call)]
        lists = [row_set.list_sql for row_set in rows]
        longest = f"greatest({', '.join(f'len({list_sql})' for list_sql in lists)})"
        numbers = f"generate_subscripts({lists[0]}, 1)" if len(lists) == 1 else f"unnest(range(1, 1 + {longest}))"
        shown = ", ".join(f"{value} AS c{place}" for place, value in enumerate(listed, 1))
        sql = f"SELECT {shown}, {numbers} AS n"
        order = (f"{alias}.n",)
    elif item.ordinality:
        sql = f"SELECT *, row_number() OVER () AS n FROM ({sql}) {planner.alias('o')}"
    columns = item.columns[: len(item.columns) - item.ordinality]
    planner.columns.update((column.key, f"{alias}.c{place}") for place, column in enumerate(columns, 1))
    planner.facts.update((column.key, Facts(scale=0)) for column in columns if column.type.oid == t.NUMERIC)
    if item.ordinality:
        planner.columns[item.columns[-1].key] = f"CAST({alias}.n AS BIGINT)"
    planner.rows[item.tables[-1].row_key] = item.columns
    table = f"LATERAL ({sql}) {alias}"
    if item.left is None:
        return Source(table, order)
    order = left.sorted_by + order
    if item.listed:
        return Source(f"{left.sql}, {table}", order)
    condition = "true" if item.condition is None else planner.sql(item.condition)
    return Source(f"({left.sql} {'LEFT ' if item.keep_left else ''}JOIN {table} ON {condition})", order)


def _rows(planner: CatalogPlanner, item: FunctionItem, call: Expression) -> CatalogRows:
    if not isinstance(call, FuncExpr):
        return CatalogRows(table_sql=f"SELECT {planner.sql(call)} AS c1")
    function = builtin.function(call.function)
    if session_call.called(call) in planner.functions:
        return CatalogRows(table_sql=f"SELECT * FROM {planner.called[id(call)]}")
    if function.name in _BEHIND_VIEWS:
        relation = system_view.relations()["pg_catalog", _BEHIND_VIEWS[function.name]]
        listed = ", ".join(f"{key} AS c{place}" for place, key in enumerate(_columns("pg_catalog", relation.name, 15)[0], 1))
        return CatalogRows(table_sql=f"SELECT {listed} FROM ({_relation_sql(planner, relation, None)}) {planner.alias()}")
    if function.name in _KEPT_ROWS:
        rows = [tuple(row.values()) for row in initial.rows(function.name)]
        return CatalogRows(table_sql=_table_sql(planner, _system_columns(call), rows))
    if function.retset:
        session_call.check_arguments(planner, call)
        return set_returning.rows(call, [planner.sql(argument) for argument in call.args], planner, in_from=True)
    return CatalogRows(table_sql=f"SELECT {planner.sql(call)} AS c1")


def call_functions(planner: CatalogPlanner, query: Query, *, run: bool = True) -> None:
    """Call the functions with side effects in FROM, in their order, before the query is compiled. Their rows become tables.

    Without `run`, they are not called, and the tables are empty.
    """
    calls = [call for item in parts(query) if isinstance(item, FunctionItem) for call in item.calls if isinstance(call, FuncExpr)]
    for call in sorted(calls, key=lambda call: call.location):
        if session_call.called(call) in planner.functions:
            planner.called[id(call)] = _called(planner, call, run=run)


def _called(planner: CatalogPlanner, call: FuncExpr, *, run: bool) -> str:
    """Call a session function, and return the name of the table with its rows."""
    chosen = procedure.procedures()[call.function]
    session_call.check_right(planner, chosen)
    planner.kept_view = False
    function, values = planner.functions[session_call.called(call)], session_call.given_values(planner, call)
    rows = session_call.result_rows(function, values, chosen) if run else []
    table = f"hg_rows_{planner.alias('r')}"
    planner.tables[table] = arrow_table(_system_columns(call), rows)
    return table


def _system_columns(call: FuncExpr) -> list[SystemColumn]:
    columns = call.type.fields or (("", call.type),)
    return [SystemColumn(name, kind.oid, -1, place) for place, (name, kind) in enumerate(columns, 1)]


def _unnested(planner: CatalogPlanner, rows: CatalogRows, call: Expression) -> list[str]:
    """Return the SQL of the columns of a list, one row for each element."""
    if not call.type.fields:
        return [f"unnest({rows.list_sql})"]
    return [f"struct_extract(unnest({rows.list_sql}), {quote(name)})" for name, _ in call.type.fields]


_VERSION = {"xmin": 1, "cmin": 0, "xmax": 0, "cmax": 0}
"""The system columns of catalog rows. Programs read them; every row has the same version (BootstrapTransactionId), visible to all."""
_LATER = {"pubgencols": "coalesce(pubgencols, 'n') AS pubgencols"}
"""Catalog columns that PostgreSQL 15 does not have."""
_BEHIND_VIEWS = {"pg_show_all_settings": "pg_settings"}
"""Functions that return the rows of a view."""
_KEPT_ROWS = frozenset({"pg_get_keywords"})
"""Functions whose rows `initial_catalog` stores under their name."""


@lru_cache(maxsize=512)
def _columns(schema: str, name: str, announced: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the columns of a system relation in SQL, and the places of the numeric ones, which are whole numbers."""
    relation = system_view.relation(schema, name, announced)
    assert relation is not None
    physical = relation.physical is not None
    return (
        tuple(f'"{column.name}"' if physical else f"c{place}" for place, column in enumerate(relation.columns, 1)),
        tuple(place for place, column in enumerate(relation.columns) if column.type_oid == t.NUMERIC),
    )


@lru_cache(maxsize=1024)
def view_query(schema: str, name: str, announced: int, forms: TextSettings) -> Query:
    """Return the analysed body of a system view. `announced`: the release that the node announces. `forms`: how constants are read."""
    view = system_view.relation(schema, name, announced)
    assert view is not None
    [statement] = parse(system_view.FROM_CATALOG.get(name) or view.definition or "")

    def relation(node: pb.RangeVar, _check: bool) -> Relation:
        named = lookup.system_relation(node.schemaname or "pg_catalog", node.relname, announced, 0)
        assert named is not None
        return named

    return system_analyser(relation, BindContext(forms=forms), in_view=True).select(statement.node, None)


def system_analyser(relation: Callable[[pb.RangeVar, bool], Relation], context: BindContext, *, in_view: bool = False) -> Analyser:
    """Return an analyser of queries that read system relations and change nothing. `relation`: returns the relation that a query names."""
    names = Names(
        relation=relation,
        relation_of_oid=lambda _: None,
        transition=lambda _: None,
        changes=lambda _, __: None,
        modify=_refuse_modification,
    )
    return QueryAnalyser(names, context, {}, in_view=in_view)


def _refuse_modification(_: Analyser, __: ParseNode) -> tuple[tuple[PlanColumn, ...] | None, None]:
    raise not_supported("data-modifying statements in WITH are not supported in a query on system catalogs")
