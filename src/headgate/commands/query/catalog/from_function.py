"""Set-returning functions: in FROM, and in a select list as unnest of a list.

Each is written as a list (`_set_<name>` gives the list's SQL and the columns of its elements), so that it may depend on other FROM
items; generate_series over constants and functions of the publications are written as tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.dynamic import arrow_table
from headgate.catalog.physical import one
from headgate.catalog.query.cast import coerce, common
from headgate.catalog.query.procedure import OWN_SCHEMA, Procedure, called, procedures
from headgate.catalog.query.scope import QueryScope
from headgate.catalog.query.session_call import SessionFunctions
from headgate.catalog.query.value import NUMBERS, VECTORS, TypedSql, element_of, no_function, position, quote
from headgate.catalog.system_view import SystemColumn
from headgate.errors import PostgresError, not_supported
from headgate.sql import names as sql_names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry as t

_PRIVILEGES = {
    "r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "D": "TRUNCATE", "x": "REFERENCES", "t": "TRIGGER", "X": "EXECUTE",
    "U": "USAGE", "C": "CREATE", "T": "TEMPORARY", "c": "CONNECT",
}  # fmt: skip


@dataclass(frozen=True)
class FunctionRows:
    """A set: `list_sql` a list of values (one column) or of structs, or `table_sql` a query with columns c1, c2, …."""

    columns: tuple[tuple[str, int], ...]
    list_sql: str = ""
    table_sql: str = ""
    scalar: bool = True


class FromFunctions(SessionFunctions):
    """Set-returning functions. Needs `tables`, `alias`, `add_source`."""

    tables: dict[str, pa.Table]

    def alias(self, letter: str = "t") -> str:
        """A new name."""
        raise NotImplementedError

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
        """Makes a FROM item visible."""
        raise NotImplementedError

    def set_call(self, name: str, node: pb.FuncCall, scope: QueryScope) -> TypedSql | None:
        """A set-returning function in a select list."""
        found = self._rows(name, node, scope)
        if found is None:
            return None
        if not found.list_sql:
            raise not_supported(f"function {name} is only supported in FROM", position=position(node.location))
        if found.scalar:
            return TypedSql(f"unnest({found.list_sql})", found.columns[0][1], is_set=True)
        return TypedSql(f"unnest({found.list_sql})", t.RECORD, struct=found.columns, is_set=True)

    def range_function(self, node: pb.RangeFunction, scope: QueryScope) -> str:
        """A function in FROM; it sees the FROM items before it."""
        if len(node.functions) != 1:
            raise not_supported("ROWS FROM with several functions is not supported in a query on system catalogs")
        call = unwrap(unwrap(node.functions[0]).items[0])
        if call.DESCRIPTOR.name != "FuncCall":
            value = self.expression(call, scope)
            name = "value"
            found = FunctionRows(((name, value.type),), table_sql=f"SELECT {value.sql} AS c1")
        else:
            name = called(sql_names.strings(call.funcname))
            found = self._from_call(name, call, scope)
            name = name.removeprefix(f"{OWN_SCHEMA}.")
        alias = self.alias("f")
        columns = [
            (label, TypedSql(f"{alias}.c{place}", kind, zero_based=kind in VECTORS)) for place, (label, kind) in enumerate(found.columns, 1)
        ]
        if found.scalar and len(columns) == 1 and node.HasField("alias") and not node.alias.colnames:
            columns = [(node.alias.aliasname, columns[0][1])]
        elif found.scalar and len(columns) == 1 and not node.HasField("alias"):
            columns = [(found.columns[0][0] or name, columns[0][1])]
        sql = found.table_sql
        order = None
        if found.list_sql:
            sql = f"SELECT {_unnested(found)}, generate_subscripts({found.list_sql}, 1) AS n"
            order = f"{alias}.n"
        if node.ordinality:
            columns.append(("ordinality", TypedSql(f"CAST({alias}.n AS BIGINT)", t.INT8)))
            if not found.list_sql:
                sql = f"SELECT *, row_number() OVER () AS n FROM ({sql}) {self.alias('o')}"
        self.add_source(scope, node, name, None, columns, order or (f"{alias}.c1" if name == "generate_series" else None))
        return f"LATERAL ({sql}) {alias}"

    def _from_call(self, name: str, call: pb.FuncCall, scope: QueryScope) -> FunctionRows:
        if name in self.functions:
            return self._acting_rows(name, call, scope)
        found = self._rows(name, call, scope, in_from=True)
        if found is not None:
            return found
        value = self.expression(call, scope)
        if value.sql.startswith("<acting"):
            raise not_supported(f"function {name} is not supported here", position=position(call.location))
        return FunctionRows(((name, value.type),), table_sql=f"SELECT {value.sql} AS c1")

    def _acting_rows(self, name: str, call: pb.FuncCall, scope: QueryScope) -> FunctionRows:
        """A function of the caller's in FROM: called now, its rows become a table."""
        candidates = procedures().get(name, [])
        if not candidates:
            raise no_function(name, [], call.location)
        chosen = next((each for each in candidates if each.required <= len(call.args) <= len(each.arguments)), candidates[0])
        arguments, keywords = self.acting_arguments(chosen, call, scope)
        self.check_right(chosen)
        columns = chosen.outputs or ((name, chosen.result),)
        rows: list[tuple[object, ...]] = []
        if not self.describing:
            values = [self._constant(value, value.type) for value in arguments]
            rows = result_rows(self.functions[name], values, keywords, chosen)
        table = f"hg_rows_{self.alias('r')}"
        listed = [SystemColumn(label, kind, -1, place) for place, (label, kind) in enumerate(columns, 1)]
        self.tables[table] = arrow_table(listed, rows)
        return FunctionRows(columns, table_sql=f"SELECT * FROM {table}", scalar=not chosen.outputs)

    def _rows(self, name: str, node: pb.FuncCall, scope: QueryScope, *, in_from: bool = False) -> FunctionRows | None:
        method = getattr(self, f"_set_{name.lstrip('_')}", None)
        if method is None:
            return None
        arguments = self.expressions(node.args, scope)
        constant = all(unwrap(each).DESCRIPTOR.name == "A_Const" for each in node.args)
        found: FunctionRows = method(arguments, node, in_from and constant)
        return found

    # ---- the functions ---------------------------------------------------------------------------------------------------------

    def _set_generate_series(self, arguments: list[TypedSql], node: pb.FuncCall, as_table: bool) -> FunctionRows:
        if not 2 <= len(arguments) <= 3:
            raise no_function("generate_series", arguments, node.location)
        kind = common([value for value in arguments if value.type != t.INTERVAL], "generate_series")
        if kind in NUMBERS:
            kind = t.INT4 if kind == t.INT2 else kind
            bounds = ", ".join(f"CAST({coerce(value, kind, self.names).sql} AS BIGINT)" for value in arguments)
            if kind == t.NUMERIC:
                raise not_supported("generate_series over numeric is not supported here", position=position(node.location))
            if len(arguments) == 3 and arguments[2].sql == "0":
                raise PostgresError("22023", "step size cannot equal zero")
            if as_table:
                alias = self.alias("g")
                sql = (
                    f"SELECT CAST({alias}.v AS {'INTEGER' if kind == t.INT4 else 'BIGINT'}) AS c1 FROM generate_series({bounds}) {alias}(v)"
                )
                return FunctionRows((("generate_series", kind),), table_sql=sql)
            cast = "INTEGER[]" if kind == t.INT4 else "BIGINT[]"
            return FunctionRows((("generate_series", kind),), list_sql=f"CAST(generate_series({bounds}) AS {cast})")
        if kind not in (t.TIMESTAMP, t.TIMESTAMPTZ, t.DATE, t.TEXT) or len(arguments) != 3:
            raise no_function("generate_series", arguments, node.location)
        kind = t.TIMESTAMPTZ if kind in (t.DATE, t.TEXT) else kind
        low, high = (coerce(value, kind, self.names).sql for value in arguments[:2])
        step = coerce(arguments[2], t.INTERVAL, self.names).sql
        return FunctionRows((("generate_series", kind),), list_sql=f"generate_series({low}, {high}, {step})")

    def _set_unnest(self, arguments: list[TypedSql], node: pb.FuncCall, _as_table: bool) -> FunctionRows:
        value = arguments[0] if arguments else TypedSql("NULL", t.UNKNOWN)
        element = element_of(value.type)
        if len(arguments) != 1 or element is None:
            raise no_function("unnest", arguments, node.location)
        return FunctionRows((("unnest", element),), list_sql=value.sql)

    def _set_generate_subscripts(self, arguments: list[TypedSql], node: pb.FuncCall, _as_table: bool) -> FunctionRows:
        if len(arguments) < 2 or element_of(arguments[0].type) is None:
            raise no_function("generate_subscripts", arguments, node.location)
        shift = 1 if arguments[0].zero_based else 0
        sql = f"CAST(generate_series({1 - shift}, len({arguments[0].sql}) - {shift}) AS INTEGER[])"
        return FunctionRows((("generate_subscripts", t.INT4),), list_sql=f"CASE WHEN {arguments[1].sql} = 1 THEN {sql} END")

    def _set_pg_expandarray(self, arguments: list[TypedSql], node: ParseNode, _as_table: bool) -> FunctionRows:
        element = element_of(arguments[0].type) if arguments else None
        if element is None:
            raise no_function("_pg_expandarray", arguments, node.location)
        listed = arguments[0].sql
        sql = f"list_transform({listed}, lambda v, i: struct_pack(x := v, n := CAST(i AS INTEGER)))"
        return FunctionRows((("x", element), ("n", t.INT4)), list_sql=sql, scalar=False)

    def _relation_list(self, arguments: list[TypedSql], query: str) -> str:
        oid = coerce(arguments[0], t.REGCLASS, self.names).sql
        return "(" + query.format(oid=oid, db=self.names.database) + ")"

    def _set_pg_partition_ancestors(self, arguments: list[TypedSql], _node: ParseNode, _as_table: bool) -> FunctionRows:
        query = "SELECT list(_a.ancestor ORDER BY _a.depth) FROM hg.partition_ancestor _a WHERE _a.relid = {oid} AND _a.dbid = {db}"
        return FunctionRows((("relid", t.REGCLASS),), list_sql=self._relation_list(arguments, query))

    def _set_pg_partition_tree(self, arguments: list[TypedSql], _node: ParseNode, _as_table: bool) -> FunctionRows:
        query = (
            "SELECT list(struct_pack(relid := _a.relid, parentrelid := _i.inhparent, isleaf := _c.relkind <> 'p', level := _a.depth)"
            " ORDER BY _a.depth, _a.relid) FROM hg.partition_ancestor _a JOIN hg.pg_class _c ON _c.oid = _a.relid AND _c.dbid = _a.dbid"
            " LEFT JOIN hg.pg_inherits _i ON _i.inhrelid = _a.relid AND _i.dbid = _a.dbid WHERE _a.ancestor = {oid} AND _a.dbid = {db}"
        )
        columns = (("relid", t.REGCLASS), ("parentrelid", t.REGCLASS), ("isleaf", t.BOOL), ("level", t.INT4))
        return FunctionRows(columns, list_sql=self._relation_list(arguments, query), scalar=False)

    def _set_pg_get_publication_tables(self, arguments: list[TypedSql], node: pb.FuncCall, _as_table: bool) -> FunctionRows:
        if len(arguments) != 1:
            raise no_function("pg_get_publication_tables", arguments, node.location)
        argument = arguments[0]
        name = coerce(argument, t.TEXT, self.names)
        if argument.literal is not None:
            sql = "SELECT 1 FROM hg.pg_publication WHERE dbid = ? AND pubname = ?"
            if one(self.cursor, sql, [self.context.database, argument.literal]) is None:
                raise PostgresError("42704", f'publication "{argument.literal}" does not exist')
        columns = (("relid", t.OID), ("attrs", t.INT2VECTOR), ("qual", t.PG_NODE_TREE))
        where = f"_g.pubname = {name.sql} AND _g.dbid = {self.names.database}"
        return FunctionRows(
            columns,
            table_sql=f"SELECT _g.relid AS c1, _g.attrs AS c2, _g.qual AS c3 FROM hg.publication_table _g WHERE {where}",
            scalar=False,
        )

    def _set_pg_options_to_table(self, arguments: list[TypedSql], _node: ParseNode, _as_table: bool) -> FunctionRows:
        options = coerce(arguments[0], t.TEXT_ARRAY, self.names).sql
        name = "split_part(v, '=', 1)"
        value = f"CASE WHEN contains(v, '=') THEN substr(v, length({name}) + 2) END"
        sql = f"list_transform({options}, lambda v: struct_pack(option_name := {name}, option_value := {value}))"
        return FunctionRows((("option_name", t.TEXT), ("option_value", t.TEXT)), list_sql=sql, scalar=False)

    def _set_aclexplode(self, arguments: list[TypedSql], _node: ParseNode, _as_table: bool) -> FunctionRows:
        """One row per privilege of an acl: grantor, grantee (0: public), the privilege's name."""
        listed = coerce(arguments[0], t.by_name("_aclitem").oid, self.names).sql
        cases = " ".join(f"WHEN '{letter}' THEN '{word}'" for letter, word in _PRIVILEGES.items())
        letters = "string_split(replace(split_part(split_part(v, '=', 2), '/', 1), '*', ''), '')"
        each = (
            f"list_transform({letters}, lambda p: struct_pack(grantor := split_part(v, '/', 2), grantee := split_part(v, '=', 1),"
            f" privilege_type := CASE p {cases} END, is_grantable := false))"
        )
        sql = f"flatten(list_transform({listed}, lambda v: {each}))"
        columns = (("grantor", t.TEXT), ("grantee", t.TEXT), ("privilege_type", t.TEXT), ("is_grantable", t.BOOL))
        role = "coalesce((SELECT _r.oid FROM hg.pg_authid _r WHERE _r.rolname = {0}), CAST(0 AS UINTEGER))"
        inner = self.alias("x")
        unnested = f"(SELECT {', '.join(f'struct_extract(unnest({sql}), {quote(name)}) AS {name}' for name, _ in columns)}) {inner}"
        table = (
            f"SELECT {role.format(inner + '.grantor')} AS c1, {role.format(inner + '.grantee')} AS c2, {inner}.privilege_type AS c3,"
            f" {inner}.is_grantable AS c4 FROM {unnested}"
        )
        named = (("grantor", t.OID), ("grantee", t.OID), ("privilege_type", t.TEXT), ("is_grantable", t.BOOL))
        return FunctionRows(named, table_sql=table, list_sql="", scalar=False)


def result_rows(callee: Any, values: list[Any], keywords: Iterable[str | None], procedure: Procedure) -> list[tuple[object, ...]]:
    """Calls a function of the caller's; a scalar result is a row of one column, a single tuple is a row."""
    positional = [value for value, keyword in zip(values, keywords, strict=True) if keyword is None]
    named = {keyword: value for value, keyword in zip(values, keywords, strict=True) if keyword is not None}
    result = callee(*positional, **named)
    if procedure.is_set:
        return [tuple(row) if isinstance(row, list | tuple) else (row,) for row in result]
    if procedure.outputs:
        return [tuple(result)]
    return [(result,)]


def _unnested(found: FunctionRows) -> str:
    if found.scalar:
        return f"unnest({found.list_sql}) AS c1"
    return ", ".join(
        f"struct_extract(unnest({found.list_sql}), {quote(name)}) AS c{place}" for place, (name, _) in enumerate(found.columns, 1)
    )
