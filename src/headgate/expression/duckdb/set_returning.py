"""Functions that return sets, in DuckDB: as a list, which a query unnests, or as a query.

Called by `compiler` for those in a SELECT list, and by `commands.query.catalog.from_function` for those in FROM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.catalog import procedure
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb.value import INTEGERS, Env, duckdb_type, element_of, quote, refuse, zero_based
from headgate.types import registry as t

_PRIVILEGES = {
    "r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "D": "TRUNCATE", "x": "REFERENCES", "t": "TRIGGER", "X": "EXECUTE",
    "U": "USAGE", "C": "CREATE", "T": "TEMPORARY", "c": "CONNECT",
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """A set: `list_sql` a list of values (one column) or of structs, or `table_sql` a query with columns c1, c2, ….

    `in_order`: by a column, where the rows of a query come sorted.
    """

    columns: tuple[tuple[str, int], ...]
    list_sql: str = ""
    table_sql: str = ""
    scalar: bool = True
    in_order: bool = False


def unnested(node: n.FuncExpr, args: Sequence[str], env: Env) -> str:
    """A set in a SELECT list: a row for each of its values."""
    found = rows(node, args, env)
    if not found.list_sql:
        raise refuse(f"function {builtin.function(node.function).name} outside of FROM", node)
    return f"unnest({found.list_sql})"


def rows(node: n.FuncExpr, args: Sequence[str], env: Env, *, in_from: bool = False) -> Rows:
    """The set; `in_from`: it may be a query."""
    name = builtin.function(node.function).name
    builder = _BUILDERS.get(name)
    if builder is None:
        raise refuse(f"function {name}", node)
    return builder(node, args, env, in_from)


_QUERIES = frozenset({"aclexplode", "pg_get_publication_tables"})


def is_query(node: n.Expression) -> bool:
    """Whether a call is a set that no list can hold: it stands in FROM, where a SELECT list names its columns too."""
    return isinstance(node, n.FuncExpr) and builtin.function(node.function).name in _QUERIES


def _series(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    kind = node.args[0].type.oid
    if len(args) > 2 and isinstance(node.args[2], n.Const) and node.args[2].value == "0":
        raise PostgresError("22023", "step size cannot equal zero")
    columns = (("generate_series", kind),)
    if kind in (t.TIMESTAMP, t.TIMESTAMPTZ) and env.in_utc:
        return Rows(columns, list_sql=f"generate_series({', '.join(args)})", in_order=True)
    if kind not in INTEGERS:
        raise refuse(f"generate_series over {t.format_type(kind)}", node)
    bounds = ", ".join(f"CAST({each} AS BIGINT)" for each in args)
    if in_from and all(isinstance(each, n.Const) for each in node.args):
        sql = f"SELECT CAST(_g.v AS {duckdb_type(kind)}) AS c1 FROM generate_series({bounds}) _g(v)"
        return Rows(columns, table_sql=sql, in_order=True)
    return Rows(columns, list_sql=f"CAST(generate_series({bounds}) AS {duckdb_type(kind)}[])", in_order=True)


def _unnest(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    return Rows((("unnest", node.type.oid),), list_sql=args[0])


def _subscripts(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    shift = 1 if zero_based(node.args[0], env) else 0
    sql = f"CAST(generate_series({1 - shift}, len({args[0]}) - {shift}) AS INTEGER[])"
    return Rows((("generate_subscripts", t.INT4),), list_sql=f"CASE WHEN {args[1]} = 1 THEN {sql} END")


def _expanded(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    element = element_of(node.args[0].type.oid) or t.TEXT
    sql = f"list_transform({args[0]}, lambda v, i: {{'x': v, 'n': CAST(i AS INTEGER)}})"
    return Rows((("x", element), ("n", t.INT4)), list_sql=sql, scalar=False)


def _ancestors(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    found = "SELECT list(_a.ancestor ORDER BY _a.depth) FROM hg.partition_ancestor _a"
    return Rows((("relid", t.REGCLASS),), list_sql=f"({found} WHERE _a.relid = {args[0]} AND _a.dbid = {env.database})")


def _tree(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    fields = "{'relid': _a.relid, 'parentrelid': _i.inhparent, 'isleaf': _c.relkind <> 'p', 'level': _a.depth}"
    found = (
        f"SELECT list({fields} ORDER BY _a.depth, _a.relid) FROM hg.partition_ancestor _a"
        " JOIN hg.pg_class _c ON _c.oid = _a.relid AND _c.dbid = _a.dbid"
        " LEFT JOIN hg.pg_inherits _i ON _i.inhrelid = _a.relid AND _i.dbid = _a.dbid"
    )
    columns = (("relid", t.REGCLASS), ("parentrelid", t.REGCLASS), ("isleaf", t.BOOL), ("level", t.INT4))
    return Rows(columns, list_sql=f"({found} WHERE _a.ancestor = {args[0]} AND _a.dbid = {env.database})", scalar=False)


def _publication_tables(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    columns = (("relid", t.OID), ("attrs", t.INT2VECTOR), ("qual", t.PG_NODE_TREE))
    if node.function == procedure.PUBLICATION_TABLES:
        return _tables_of_several(args[0], env)
    where = f"_g.pubname = {args[0]} AND _g.dbid = {env.database}"
    sql = f"SELECT _g.relid AS c1, _g.attrs AS c2, _g.qual AS c3 FROM hg.publication_table _g WHERE {where}"
    return Rows(columns, table_sql=sql, scalar=False)


def _tables_of_several(names: str, env: Env) -> Rows:
    """The form of 16, over an array of names: a partition of which a table above is published by one of them is left out."""
    columns = (("pubid", t.OID), ("relid", t.OID), ("attrs", t.INT2VECTOR), ("qual", t.PG_NODE_TREE))
    above = (
        "SELECT 1 FROM hg.publication_table _o JOIN hg.partition_ancestor _a ON _a.ancestor = _o.relid AND _a.dbid = _o.dbid"
        f" WHERE _a.relid = _g.relid AND _a.depth > 0 AND _o.dbid = {env.database} AND list_contains({names}, _o.pubname)"
    )
    sql = (
        "SELECT _p.oid AS c1, _g.relid AS c2, _g.attrs AS c3, _g.qual AS c4 FROM hg.publication_table _g"
        " JOIN hg.pg_publication _p ON _p.dbid = _g.dbid AND _p.pubname = _g.pubname"
        f" WHERE _g.dbid = {env.database} AND list_contains({names}, _g.pubname) AND NOT EXISTS ({above})"
    )
    return Rows(columns, table_sql=sql, scalar=False)


def _options(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    name = "split_part(v, '=', 1)"
    value = f"CASE WHEN contains(v, '=') THEN substr(v, length({name}) + 2) END"
    sql = f"list_transform({args[0]}, lambda v: {{'option_name': {name}, 'option_value': {value}}})"
    return Rows((("option_name", t.TEXT), ("option_value", t.TEXT)), list_sql=sql, scalar=False)


def _privileges(node: n.FuncExpr, args: Sequence[str], env: Env, in_from: bool) -> Rows:
    """One row per privilege of an acl: grantor, grantee (0: public), the privilege's name, whether with grant option."""
    given = f"list_transform({args[0]}, lambda v: replace(v, '\"', ''))"
    cases = " ".join(f"WHEN {quote(letter)} THEN {quote(word)}" for letter, word in _PRIVILEGES.items())
    letters = "split_part(split_part(v, '=', 2), '/', 1)"
    each = (
        f"list_transform(regexp_extract_all({letters}, '[a-zA-Z]\\*?'), lambda p: {{'grantor': split_part(v, '/', 2),"
        f" 'grantee': split_part(v, '=', 1), 'privilege_type': CASE p[1] {cases} END, 'is_grantable': contains(p, '*')}})"
    )
    role = "coalesce((SELECT _r.oid FROM hg.pg_authid _r WHERE _r.rolname = _x.p.{0}), CAST(0 AS UINTEGER))"
    table = (
        f"SELECT {role.format('grantor')} AS c1, {role.format('grantee')} AS c2, _x.p.privilege_type AS c3, _x.p.is_grantable AS c4"
        f" FROM (SELECT unnest(flatten(list_transform({given}, lambda v: {each}))) AS p) _x"
    )
    columns = (("grantor", t.OID), ("grantee", t.OID), ("privilege_type", t.TEXT), ("is_grantable", t.BOOL))
    if in_from:
        return Rows(columns, table_sql=table, scalar=False)
    fields = ", ".join(f"'{name}': _y.c{place}" for place, (name, _) in enumerate(columns, 1))
    return Rows(columns, list_sql=f"(SELECT list({{{fields}}}) FROM ({table}) _y)", scalar=False)


_BUILDERS: dict[str, Callable[[n.FuncExpr, Sequence[str], Env, bool], Rows]] = {
    "generate_series": _series,
    "unnest": _unnest,
    "generate_subscripts": _subscripts,
    "_pg_expandarray": _expanded,
    "pg_partition_ancestors": _ancestors,
    "pg_partition_tree": _tree,
    "pg_get_publication_tables": _publication_tables,
    "pg_options_to_table": _options,
    "aclexplode": _privileges,
}
