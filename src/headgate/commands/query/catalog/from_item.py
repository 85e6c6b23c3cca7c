"""FROM items of a query on system relations: tables and views of the catalogs, WITH queries, subqueries, joins.

One half of `rewrite.Rewriter`, which writes the SELECT around them. What must hold: a user reads no relation or column of the catalogs
on which he has no right (`_guard`, `check_guarded`); the text of a view is rewritten with nothing but pg_catalog in the search path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.catalog import system_view
from headgate.catalog.dynamic import arrow_table
from headgate.catalog.query import privilege_inquiry
from headgate.catalog.query.from_function import FromFunctions
from headgate.catalog.query.scope import FromItem, Query, QueryScope
from headgate.catalog.query.value import TypedSql, position
from headgate.catalog.relation import relation
from headgate.errors import PostgresError, not_supported
from headgate.sql import names as sql_names
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.types import registry as t

_PRETTY = {"pg_attrdef": "adbinpretty", "pg_constraint": "conbinpretty", "pg_index": "indpredpretty"}
"""Catalogs with the pretty-printed form of an expression beside it (`call._pretty`)."""


class FromItems(FromFunctions):
    """FROM items. Needs `dynamic`, `guarded`, `view_depth`, `select`."""

    dynamic: Mapping[str, system_view.Provider]
    guarded: list[tuple[str, str]]
    """(a column's SQL, its relation) of the columns that the user may not read: the finished query must not have them."""
    view_depth: int

    def select(self, node: ParseNode, parent: QueryScope | None, *, keep_order: bool = False) -> Query:
        """A SELECT, VALUES or set operation."""
        raise NotImplementedError

    def from_clause(self, clause: Sequence[Any], scope: QueryScope) -> str:
        """FROM with its items, or nothing."""
        shown = [self._item(unwrap(each), scope) for each in clause]
        return f" FROM {', '.join(shown)}" if shown else ""

    def _item(self, node: ParseNode, scope: QueryScope) -> str:
        kind = node.DESCRIPTOR.name
        if kind == "RangeVar":
            return self._range_var(node, scope)
        if kind == "RangeSubselect":
            return self._range_subselect(node, scope)
        if kind == "RangeFunction":
            return self.range_function(node, scope)
        if kind == "JoinExpr":
            return self._join(node, scope)
        raise not_supported(f"{kind} is not supported in a query on system catalogs")

    def _range_var(self, node: pb.RangeVar, scope: QueryScope) -> str:
        alias = self.alias()
        cte = scope.cte(node.relname) if not node.schemaname else None
        if cte is not None:
            columns = [(name, replace(value, sql=f"{alias}.c{place}")) for place, (name, value) in enumerate(cte.columns, 1)]
            self.add_source(scope, node, node.relname, None, columns)
            return f"{cte.sql_name} {alias}"
        if node.schemaname == "hg" and self.view_depth:
            listed = [(name, TypedSql(f'{alias}."{name}"', kind)) for name, kind in system_view.NODE_TABLES[node.relname]]
            self.add_source(scope, node, node.relname, None, listed)
            return f"hg.{node.relname} {alias}"
        found = self._system_relation(node)
        self._guard(found, alias)
        self.add_source(scope, node, found.name, found.schema, self._relation_columns(found, alias), table=found.oid)
        return f"({self._relation_sql(found)}) {alias}"

    def _guard(self, found: system_view.SystemRelation, alias: str) -> None:
        """42501 for a relation that the user may not read; its single columns are checked in the finished query."""
        if self.context.superuser or self.view_depth or found.schema == "information_schema":
            return
        if privilege_inquiry.may_select(self.cursor, self.context, found.oid):
            return
        allowed = privilege_inquiry.selectable_columns(self.cursor, self.context, found.oid)
        if not allowed:
            word = "view" if found.kind == "v" else "table"
            raise PostgresError("42501", f"permission denied for {word} {found.name}")
        self.guarded += [(f'{alias}."{each.name}"', found.name) for each in found.columns if each.attnum not in allowed]

    def check_guarded(self, sql: str) -> None:
        """42501 if the query reads a column that the user may not."""
        for column, name in self.guarded:
            if re.search(rf"(?<!\w){re.escape(column)}", sql):
                raise PostgresError("42501", f"permission denied for table {name}")

    def _relation_columns(self, found: system_view.SystemRelation, alias: str) -> list[tuple[str, TypedSql]]:
        columns = []
        for place, column in enumerate(found.columns, 1):
            name = f"c{place}" if found.physical is None else f'"{column.name}"'
            value = TypedSql(
                f"{alias}.{name}", column.type_oid, column.typmod, zero_based=column.type_oid in (t.INT2VECTOR, t.OIDVECTOR),
                relation=found.oid, attnum=column.attnum,
            )  # fmt: skip
            columns.append((column.name, value))
        return columns

    def _path(self) -> list[str]:
        found = self._schemas()
        return found if "pg_catalog" in found else ["pg_catalog", *found]

    def _system_relation(self, node: pb.RangeVar) -> system_view.SystemRelation:
        if node.catalogname and node.catalogname != self.context.database_name:
            shown = f"{node.catalogname}.{node.schemaname}.{node.relname}"
            raise PostgresError("0A000", f'cross-database references are not implemented: "{shown}"', position=position(node.location))
        schemas = [node.schemaname] if node.schemaname else self._path()
        for schema in schemas:
            found = system_view.relations().get((schema, node.relname))
            if found is not None:
                return found
        shown = f"{node.schemaname}.{node.relname}" if node.schemaname else node.relname
        oid = relation.find_oid(self.cursor, self.context.database, node.schemaname or None, node.relname, self._schemas())
        if oid is not None:
            raise not_supported(f'relation "{shown}" cannot be used together with system catalogs', position=position(node.location))
        raise PostgresError("42P01", f'relation "{shown}" does not exist', position=position(node.location))

    def _relation_sql(self, found: system_view.SystemRelation) -> str:
        table = found.physical
        if table is not None:
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            if table.name in _PRETTY:
                names += f", {_PRETTY[table.name]}"
            scope = "" if table.shared else f" WHERE dbid IN (0, {self.context.database})"
            return f"SELECT {names} FROM hg.{table.name}{scope}"
        if found.expanded or (found.name in system_view.FROM_CATALOG and found.name not in self.dynamic):
            return self._view_sql(found)
        provider = self.dynamic.get(found.name)
        rows = [] if provider is None or self.describing else list(provider())
        name = f"hg_dynamic_{self.alias('d')}"
        self.tables[name] = arrow_table(found.columns, rows)
        return f"SELECT * FROM {name}"

    def _view_sql(self, found: system_view.SystemRelation) -> str:
        """The definition of a view as a subquery, rewritten with nothing but pg_catalog in the search path."""
        text = system_view.FROM_CATALOG.get(found.name) or found.definition or ""
        if self.view_depth > 12:
            raise PostgresError("54001", "stack depth limit exceeded")
        [statement] = parse(text)
        kept = self.context
        self.context = replace(kept, search_path=["pg_catalog"])
        self.view_depth += 1
        try:
            with t.unguarded():
                query = self.select(statement.node, None)
                return query.build([column.type_oid for column in found.columns])
        finally:
            self.context = kept
            self.view_depth -= 1

    def _range_subselect(self, node: pb.RangeSubselect, scope: QueryScope) -> str:
        alias = self.alias()
        parent = scope if node.lateral else QueryScope(scope.parent, ctes=scope.ctes)
        query = self.subquery(node.subquery, parent)
        types = query.types()
        columns = output_columns(query.columns, types, alias, [])
        self.add_source(scope, node, "", None, columns)
        return f"{'LATERAL ' if node.lateral else ''}({query.build(types)}) {alias}"

    def add_source(
        self,
        scope: QueryScope,
        node: ParseNode,
        name: str,
        schema: str | None,
        columns: list[tuple[str, TypedSql]],
        order: str | None = None,
        table: int = 0,
    ) -> None:
        """Makes a FROM item visible, with its alias and column aliases."""
        shown = list(columns)
        visible: str | None = name or None
        if node.HasField("alias"):
            visible, schema = node.alias.aliasname, None
            given = sql_names.strings(node.alias.colnames)
            if len(given) > len(shown):
                raise PostgresError("42P10", f'table "{visible}" has {len(shown)} columns available but {len(given)} columns specified')
            shown = [(new, value) for new, (_, value) in zip(given, shown, strict=False)] + shown[len(given) :]
        if visible is not None and any(source.name == visible and source.schema == schema for source in scope.sources):
            raise PostgresError("42712", f'table name "{visible}" specified more than once')
        scope.sources.append(FromItem(visible, schema, shown, order=order, table=table))

    def _join(self, node: pb.JoinExpr, scope: QueryScope) -> str:
        start = len(scope.sources)
        left = self._item(unwrap(node.larg), scope)
        middle = len(scope.sources)
        right = self._item(unwrap(node.rarg), scope)
        word = {pb.JOIN_INNER: "JOIN", pb.JOIN_LEFT: "LEFT JOIN", pb.JOIN_RIGHT: "RIGHT JOIN", pb.JOIN_FULL: "FULL JOIN"}[node.jointype]
        if node.HasField("quals"):
            inner = QueryScope(scope.parent, scope.sources[start:], scope.ctes)
            return f"({left} {word} {right} ON {self.condition(node.quals, inner, 'JOIN/ON')})"
        names = sql_names.strings(node.using_clause)
        if node.is_natural:
            there = {name for source in scope.sources[middle:] for name, _ in source.columns if name not in source.hidden}
            names = [
                name for source in scope.sources[start:middle] for name, _ in source.columns if name in there and name not in source.hidden
            ]
        if not names:
            return f"({left} CROSS JOIN {right})" if word == "JOIN" else f"({left} {word} {right} ON true)"
        return f"({left} {word} {right} ON {self._merge(names, node, scope, start, middle)})"

    def _merge(self, names: list[str], node: ParseNode, scope: QueryScope, start: int, middle: int) -> str:
        """USING: the condition, and the merged columns before the others."""
        conditions, merged = [], []
        for name in names:
            a = QueryScope(None, scope.sources[start:middle]).column(name, -1)
            b = QueryScope(None, scope.sources[middle:]).column(name, -1)
            conditions.append(f"{a.sql} = {b.sql}")
            chosen = b if node.jointype == pb.JOIN_RIGHT else a
            if node.jointype == pb.JOIN_FULL:
                chosen = TypedSql(f"coalesce({a.sql}, {b.sql})", a.type)
            merged.append((name, chosen))
        for source in scope.sources[start:]:
            source.hidden.update(names)
        scope.sources.insert(start, FromItem(None, None, merged))
        return " AND ".join(conditions)


def output_columns(columns: list[tuple[str, TypedSql]], types: list[int], alias: str, given: list[str]) -> list[tuple[str, TypedSql]]:
    """The columns of a query that is a FROM item `alias`, by the names `given` and behind those by its own."""
    found = []
    for place, ((name, value), kind) in enumerate(zip(columns, types, strict=True), 1):
        shown = given[place - 1] if place <= len(given) else name
        found.append((shown, replace(value, sql=f"{alias}.c{place}", type=kind, literal=None, parameter=0, fields=())))
    return found
