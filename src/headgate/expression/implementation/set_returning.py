"""The implementations of PostgreSQL's set-returning functions: unnest, generate_series, jsonb_each and similar (manual, 9.25).

`SETS` holds them by PostgreSQL's key, including those that read the catalogs. Spark explodes an array of rows that a function on single
values returns (`spark.set_returning`). In a query on the system catalogs, a set is a list, which DuckDB unnests, or a query
(`duckdb.set_returning`).

    rows         returns the rows of one call, as texts, from its arguments as texts (`functions.set_returning`), for Spark
    columns      (name, type) of the rows' columns if they have names of their own; otherwise there is one column, named by the alias
    in_zone      `rows` receives the name of the session's time zone before the arguments
    duckdb       builds the set in DuckDB's SQL
    from_only    the set cannot be a list: it must be in FROM; if a SELECT list names its columns, it is moved there
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headgate.catalog import procedure
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb.value import Env as DuckdbEnv
from headgate.expression.duckdb.value import duckdb_type, quote, refuse, zero_based
from headgate.expression.functions import set_returning as functions
from headgate.expression.functions.json import jsonb
from headgate.expression.functions.regex.functions import regexp_matches, regexp_split_to_table
from headgate.expression.functions.set_returning import Rows
from headgate.types import registry as t
from headgate.types.base import multirange

_PRIVILEGES = {
    "r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "D": "TRUNCATE", "x": "REFERENCES", "t": "TRIGGER", "X": "EXECUTE",
    "U": "USAGE", "C": "CREATE", "T": "TEMPORARY", "c": "CONNECT",
}  # fmt: skip


@dataclass(frozen=True)
class CatalogRows:
    """A set in DuckDB's SQL: `list_sql` is a list of values or of structs, or `table_sql` is a query with columns c1, c2, ….

    `in_order` means that the rows of the query come sorted by their first column.
    """

    list_sql: str = ""
    table_sql: str = ""
    in_order: bool = False


DuckdbForm = Callable[[n.FuncExpr, Sequence[str], DuckdbEnv, bool], CatalogRows]
"""(the call, the SQL of its arguments, the environment, whether the call is in FROM) → the set."""


@dataclass(frozen=True)
class SetImplementation:
    """The forms of one set-returning function. The module docstring describes the fields."""

    rows: Callable[..., Rows] | None = None
    columns: tuple[tuple[str, int], ...] = ()
    in_zone: bool = False
    duckdb: DuckdbForm | None = None
    from_only: bool = False


def _duckdb_series(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    kind = node.args[0].type.oid
    if len(args) > 2 and isinstance(node.args[2], n.Const) and node.args[2].value == "0":
        raise PostgresError("22023", "step size cannot equal zero")
    if kind in (t.TIMESTAMP, t.TIMESTAMPTZ) and env.in_utc:
        return CatalogRows(list_sql=f"generate_series({', '.join(args)})", in_order=True)
    if kind not in t.INTEGERS:
        raise refuse(f"generate_series over {t.format_type(kind)}", node)
    bounds = ", ".join(f"CAST({arg} AS BIGINT)" for arg in args)
    if in_from and all(isinstance(arg, n.Const) for arg in node.args):
        sql = f"SELECT CAST(_g.v AS {duckdb_type(kind)}) AS c1 FROM generate_series({bounds}) _g(v)"
        return CatalogRows(table_sql=sql, in_order=True)
    return CatalogRows(list_sql=f"CAST(generate_series({bounds}) AS {duckdb_type(kind)}[])", in_order=True)


def _duckdb_subscripts(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    shift = 1 if zero_based(node.args[0], env) else 0
    sql = f"CAST(generate_series({1 - shift}, len({args[0]}) - {shift}) AS INTEGER[])"
    return CatalogRows(list_sql=f"CASE WHEN {args[1]} = 1 THEN {sql} END")


def _duckdb_expanded(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    sql = f"list_transform({args[0]}, lambda v, i: {{'x': v, 'n': CAST(i AS INTEGER)}})"
    return CatalogRows(list_sql=sql)


def _duckdb_ancestors(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    ancestors = "SELECT list(_a.ancestor ORDER BY _a.depth) FROM hg.partition_ancestor _a"
    return CatalogRows(list_sql=f"({ancestors} WHERE _a.relid = {args[0]} AND _a.dbid = {env.database})")


def _duckdb_tree(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    fields = "{'relid': _a.relid, 'parentrelid': _i.inhparent, 'isleaf': _c.relkind <> 'p', 'level': _a.depth}"
    tree = (
        f"SELECT list({fields} ORDER BY _a.depth, _a.relid) FROM hg.partition_ancestor _a"
        " JOIN hg.pg_class _c ON _c.oid = _a.relid AND _c.dbid = _a.dbid"
        " LEFT JOIN hg.pg_inherits _i ON _i.inhrelid = _a.relid AND _i.dbid = _a.dbid"
    )
    return CatalogRows(list_sql=f"({tree} WHERE _a.ancestor = {args[0]} AND _a.dbid = {env.database})")


_LISTS_ALWAYS = 16
"""The PostgreSQL release from which `attrs` also lists the published columns of tables without a column list."""
_LISTED = (
    "coalesce(_g.attrs, (SELECT list(CAST(_a.attnum AS SMALLINT) ORDER BY _a.attnum) FROM hg.pg_attribute _a WHERE _a.dbid = _g.dbid"
    " AND _a.attrelid = _g.relid AND _a.attnum > 0 AND NOT _a.attisdropped AND (_a.attgenerated = '' OR _p.pubgencols = 's')))"
)


def _duckdb_publication_tables(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    if node.function == procedure.PUBLICATION_TABLES:
        return _tables_of_several(args[0], env)
    where = f"_g.pubname = {args[0]} AND _g.dbid = {env.database}"
    if env.announced >= _LISTS_ALWAYS:
        where += " AND _p.dbid = _g.dbid AND _p.pubname = _g.pubname"
        sql = f"SELECT _g.relid AS c1, {_LISTED} AS c2, _g.qual AS c3 FROM hg.publication_table _g, hg.pg_publication _p WHERE {where}"
        return CatalogRows(table_sql=sql)
    sql = f"SELECT _g.relid AS c1, _g.attrs AS c2, _g.qual AS c3 FROM hg.publication_table _g WHERE {where}"
    return CatalogRows(table_sql=sql)


def _tables_of_several(names: str, env: DuckdbEnv) -> CatalogRows:
    """Return the form of PostgreSQL 16, over an array of publication names. Partitions whose ancestor is published are omitted."""
    above = (
        "SELECT 1 FROM hg.publication_table _o JOIN hg.partition_ancestor _a ON _a.ancestor = _o.relid AND _a.dbid = _o.dbid"
        f" WHERE _a.relid = _g.relid AND _a.depth > 0 AND _o.dbid = {env.database} AND list_contains({names}, _o.pubname)"
    )
    sql = (
        f"SELECT _p.oid AS c1, _g.relid AS c2, {_LISTED} AS c3, _g.qual AS c4 FROM hg.publication_table _g"
        " JOIN hg.pg_publication _p ON _p.dbid = _g.dbid AND _p.pubname = _g.pubname"
        f" WHERE _g.dbid = {env.database} AND list_contains({names}, _g.pubname) AND NOT EXISTS ({above})"
    )
    return CatalogRows(table_sql=sql)


def _duckdb_options(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    name = "split_part(v, '=', 1)"
    value = f"CASE WHEN contains(v, '=') THEN substr(v, length({name}) + 2) END"
    sql = f"list_transform({args[0]}, lambda v: {{'option_name': {name}, 'option_value': {value}}})"
    return CatalogRows(list_sql=sql)


def _duckdb_privileges(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    """Return one row per privilege of an acl: grantor, grantee (0 for PUBLIC), the privilege's name, whether with grant option."""
    items = f"list_transform({args[0]}, lambda v: replace(v, '\"', ''))"
    cases = " ".join(f"WHEN {quote(letter)} THEN {quote(word)}" for letter, word in _PRIVILEGES.items())
    letters = "split_part(split_part(v, '=', 2), '/', 1)"
    privileges = (
        f"list_transform(regexp_extract_all({letters}, '[a-zA-Z]\\*?'), lambda p: {{'grantor': split_part(v, '/', 2),"
        f" 'grantee': split_part(v, '=', 1), 'privilege_type': CASE p[1] {cases} END, 'is_grantable': contains(p, '*')}})"
    )
    role = "coalesce((SELECT _r.oid FROM hg.pg_authid _r WHERE _r.rolname = _x.p.{0}), CAST(0 AS UINTEGER))"
    table = (
        f"SELECT {role.format('grantor')} AS c1, {role.format('grantee')} AS c2, _x.p.privilege_type AS c3, _x.p.is_grantable AS c4"
        f" FROM (SELECT unnest(flatten(list_transform({items}, lambda v: {privileges}))) AS p) _x"
    )
    if in_from:
        return CatalogRows(table_sql=table)
    fields = ", ".join(f"'{name}': _y.c{number}" for number, (name, _) in enumerate(node.type.fields, 1))
    return CatalogRows(list_sql=f"(SELECT list({{{fields}}}) FROM ({table}) _y)")


def _duckdb_token_types(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    """Return the token types of pg_catalog.default, the only text search parser (wparser_def.c)."""
    rows = ", ".join(f"({number}, {quote(alias)}, {quote(text)})" for number, (alias, text) in enumerate(_TOKENS, 1))
    sql = f"SELECT * FROM (VALUES {rows}) _v(c1, c2, c3) WHERE {args[0]} = {_DEFAULT_PARSER}"
    return CatalogRows(table_sql=sql, in_order=True)


_DEFAULT_PARSER = 3722
_TOKENS = (
    ("asciiword", "Word, all ASCII"), ("word", "Word, all letters"), ("numword", "Word, letters and digits"), ("email", "Email address"),
    ("url", "URL"), ("host", "Host"), ("sfloat", "Scientific notation"), ("version", "Version number"),
    ("hword_numpart", "Hyphenated word part, letters and digits"), ("hword_part", "Hyphenated word part, all letters"),
    ("hword_asciipart", "Hyphenated word part, all ASCII"), ("blank", "Space symbols"), ("tag", "XML tag"), ("protocol", "Protocol head"),
    ("numhword", "Hyphenated word, letters and digits"), ("asciihword", "Hyphenated word, all ASCII"),
    ("hword", "Hyphenated word, all letters"), ("url_path", "URL path"), ("file", "File or path name"), ("float", "Decimal notation"),
    ("int", "Signed integer"), ("uint", "Unsigned integer"), ("entity", "XML entity"),
)  # fmt: skip


def _duckdb_none(node: n.FuncExpr, args: Sequence[str], env: DuckdbEnv, in_from: bool) -> CatalogRows:
    """Return no rows, for objects that a server could list but a node does not have, such as extensions that could be installed."""
    nulls = ", ".join(f"CAST(NULL AS {duckdb_type(kind.oid)}) AS c{number}" for number, (_, kind) in enumerate(node.type.fields, 1))
    return CatalogRows(table_sql=f"SELECT {nulls} WHERE false")


_UNNESTED = SetImplementation(functions.unnest, duckdb=lambda node, args, env, in_from: CatalogRows(list_sql=args[0]))
_SUBSCRIPTS = SetImplementation(functions.subscripts, duckdb=_duckdb_subscripts)
_WHOLE = SetImplementation(functions.series, duckdb=_duckdb_series)
_NUMERIC = SetImplementation(functions.numeric_series, duckdb=_duckdb_series)
_MATCHES, _PARTS = SetImplementation(regexp_matches), SetImplementation(regexp_split_to_table)
SETS = {
    "array_unnest": _UNNESTED,
    "multirange_unnest": SetImplementation(partial(functions.single, multirange.split)),
    "generate_subscripts": _SUBSCRIPTS,
    "generate_subscripts_nodir": _SUBSCRIPTS,
    "generate_series_int4": _WHOLE,
    "generate_series_step_int4": _WHOLE,
    "generate_series_int8": _WHOLE,
    "generate_series_step_int8": _WHOLE,
    "generate_series_numeric": _NUMERIC,
    "generate_series_step_numeric": _NUMERIC,
    "generate_series_timestamp": replace(_WHOLE, rows=functions.moment_series),
    "generate_series_timestamptz": replace(_WHOLE, rows=functions.instant_series, in_zone=True),
    "text_to_table": SetImplementation(functions.split),
    "text_to_table_null": SetImplementation(functions.split),
    "regexp_matches": _MATCHES,
    "regexp_matches_no_flags": _MATCHES,
    "regexp_split_to_table": _PARTS,
    "regexp_split_to_table_no_flags": _PARTS,
    "jsonb_array_elements": SetImplementation(partial(functions.single, jsonb.elements), (("value", t.JSONB),)),
    "jsonb_array_elements_text": SetImplementation(partial(functions.single, jsonb.elements_text), (("value", t.TEXT),)),
    "jsonb_object_keys": SetImplementation(partial(functions.single, jsonb.keys)),
    "jsonb_each": SetImplementation(functions.pairs, (("key", t.TEXT), ("value", t.JSONB))),
    "jsonb_each_text": SetImplementation(functions.pairs_text, (("key", t.TEXT), ("value", t.TEXT))),
    "json_array_elements": SetImplementation(functions.written_elements, (("value", t.JSON),)),
    "json_array_elements_text": SetImplementation(functions.written_elements_text, (("value", t.TEXT),)),
    "json_object_keys": SetImplementation(functions.written_keys),
    "json_each": SetImplementation(functions.written_pairs, (("key", t.TEXT), ("value", t.JSON))),
    "json_each_text": SetImplementation(functions.written_pairs_text, (("key", t.TEXT), ("value", t.TEXT))),
    "_pg_expandarray/2277": SetImplementation(duckdb=_duckdb_expanded),
    "pg_partition_ancestors": SetImplementation(columns=(("relid", t.REGCLASS),), duckdb=_duckdb_ancestors),
    "pg_partition_tree": SetImplementation(duckdb=_duckdb_tree),
    "pg_get_publication_tables": SetImplementation(duckdb=_duckdb_publication_tables, from_only=True),
    "pg_options_to_table": SetImplementation(duckdb=_duckdb_options),
    "aclexplode": SetImplementation(duckdb=_duckdb_privileges, from_only=True),
    "pg_available_extensions": SetImplementation(duckdb=_duckdb_none, from_only=True),
    "pg_available_extension_versions": SetImplementation(duckdb=_duckdb_none, from_only=True),
    "ts_token_type_byid": SetImplementation(duckdb=_duckdb_token_types, from_only=True),
}


def columns_of(call: n.Expression) -> list[tuple[str, n.TypeRef]]:
    """Return the names and types of the columns of a function in FROM. One column without a name is the alias's."""
    if call.type.fields:
        return list(call.type.fields)
    form = SETS.get(builtin.function(call.function).key) if isinstance(call, n.FuncExpr) else None
    named = () if form is None else form.columns
    return [(name, n.TypeRef(oid, -1, t.by_oid(oid).collation)) for name, oid in named] or [("", call.type)]
