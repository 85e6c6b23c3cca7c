"""Casts in DuckDB, and the text form of every type.

Called by `compiler` for cast nodes, and by `call` for functions that convert values of any type to text. A cast through a function of
pg_cast is selected by its source and target types.
"""

from __future__ import annotations

import functools
import itertools
import re

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import literal
from headgate.expression.duckdb.value import (
    FLOATS,
    MAX_DIGITS,
    OIDS,
    REGISTERED,
    STRINGS,
    Env,
    base_of,
    duckdb_type,
    element_of,
    quote,
    raised,
    refuse,
    scale,
)
from headgate.types import registry as t
from headgate.types.registry import format_type
from headgate.types.text import text as texts
from headgate.types.text_column import TextSettings

_INTEGRAL = frozenset({*t.INTEGERS, *OIDS, t.XID, t.CID})
_SIGNED = raised("0A000", "the text of a negative interval inside of an expression is not supported here", t.TEXT)
_TIMES = frozenset({t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ})


@functools.cache
def functions() -> frozenset[int]:
    """Return the functions that implement casts. One function may implement several: i2toi4 also casts to oid."""
    return frozenset(cast_row.function for cast_row in builtin.builtins().casts.values())


def by_function(node: n.FuncExpr, args: list[str], env: Env) -> str:
    """Compile a cast through a function of pg_cast. If source and target are the same type, it applies a modifier."""
    arg = node.args[0]
    source, target = base_of(arg.type.oid), base_of(node.type.oid)
    if source == target:
        return _apply_modifier(args[0], target, node)
    if {source, target} <= {t.TIMESTAMP, t.TIMESTAMPTZ, t.DATE} and t.TIMESTAMPTZ in (source, target) and not env.in_utc:
        raise refuse("a cast that depends on TimeZone", node)
    if target == t.REGCLASS:
        return _from_text(arg, args[0], target, env)
    converted = _convert(args[0], source, target)
    if converted is None:
        raise refuse(f"a cast from {format_type(source)} to {format_type(target)}", node)
    return converted


def _apply_modifier(sql: str, target: int, node: n.FuncExpr) -> str:
    modifier = node.type.typmod
    if isinstance(node.args[0], n.Const) and node.args[0].value is None:
        return sql
    explicit = len(node.args) < 3 or (isinstance(node.args[2], n.Const) and node.args[2].value == "t")
    if target == t.NUMERIC and modifier >= 4 and (modifier - 4) >> 16 <= MAX_DIGITS and (modifier - 4) & 0x7FF < MAX_DIGITS:
        return f"CAST({sql} AS DECIMAL({(modifier - 4) >> 16},{(modifier - 4) & 0x7FF}))"
    if target == t.VARCHAR and explicit and modifier >= 4:
        return f"left({sql}, {modifier - 4})"
    if target == t.BPCHAR and explicit and modifier >= 4:
        return f"rpad(left({sql}, {modifier - 4}), {modifier - 4}, ' ')"
    raise refuse(f"a modifier of type {format_type(target)}", node)


def _convert(sql: str, source: int, target: int) -> str | None:
    """Convert a value between two types. Return None if the conversion is not implemented here."""
    if source in STRINGS and target in STRINGS:
        if target == t.CHAR:
            return f"left({sql}, 1)"
        if target == t.NAME:
            sql = f"rtrim({sql}, ' ')" if source == t.BPCHAR else sql
            return f"CASE WHEN strlen({sql}) > 63 THEN {raised('0A000', 'a name this long is not supported here', t.NAME)} ELSE {sql} END"
        return f"rtrim({sql}, ' ')" if source == t.BPCHAR else sql
    if target in OIDS and source in t.INTEGERS:
        return f"CAST(CAST({sql} AS BIGINT) & 4294967295 AS UINTEGER)" if source != t.INT8 else f"CAST({sql} AS UINTEGER)"
    if source in OIDS and target == t.INT4:
        return f"CAST(CASE WHEN {sql} > 2147483647 THEN CAST({sql} AS BIGINT) - 4294967296 ELSE {sql} END AS INTEGER)"
    if source in _INTEGRAL and target in _INTEGRAL:
        return sql if duckdb_type(source) == duckdb_type(target) else f"CAST({sql} AS {duckdb_type(target)})"
    if source in t.INTEGERS and target == t.NUMERIC:
        return f"CAST({sql} AS DECIMAL({MAX_DIGITS},0))"
    if (source, target) == (t.FLOAT8, t.FLOAT4):
        short = f"CAST({sql} AS FLOAT)"
        over, under = (raised("22003", f"value out of range: {problem}", t.FLOAT4) for problem in ("overflow", "underflow"))
        return f"CASE WHEN isinf({short}) AND NOT isinf({sql}) THEN {over} WHEN {short} = 0 AND {sql} <> 0 THEN {under} ELSE {short} END"
    if (source in (*t.INTEGERS, *FLOATS, t.NUMERIC) and target in (*t.INTEGERS, *FLOATS)) or (source in _TIMES and target in _TIMES):
        return f"CAST({sql} AS {duckdb_type(target)})"
    if (source, target) == (t.BOOL, t.INT4):
        return f"CAST({sql} AS INTEGER)"
    if (source, target) == (t.INT4, t.BOOL):
        return f"({sql} <> 0)"
    if source == t.BOOL and target in STRINGS:
        return f"CASE WHEN {sql} THEN 'true' WHEN NOT {sql} THEN 'false' END"
    return None


def relabelled(node: n.Relabel, sql: str, env: Env) -> str:
    """Compile a cast between types that have the same representation in PostgreSQL."""
    source, target = base_of(node.arg.type.oid), base_of(node.type.oid)
    if target in REGISTERED and isinstance(node.arg, n.Const) and node.arg.type.oid in STRINGS:
        return literal.constant(n.Const(type=node.type, value=node.arg.value, location=node.arg.location), env)
    if isinstance(node.arg, n.Const) and node.arg.value is not None and source == t.INT4 and target in OIDS:
        return f"CAST({int(node.arg.value) & 0xFFFFFFFF} AS UINTEGER)"
    if source == t.BPCHAR and target != t.BPCHAR:
        return f"rtrim({sql}, ' ')"
    if duckdb_type(source) == duckdb_type(target) and (source == target or duckdb_type(source) != "VARCHAR" or {source, target} <= STRINGS):
        return sql
    converted = _convert(sql, source, target)
    if converted is None:
        raise refuse(f"a cast from {format_type(source)} to {format_type(target)}", node)
    return converted


def through_text(node: n.CoerceViaIO, sql: str, env: Env) -> str:
    """Compile a cast through the output function of one type and the input function of the other."""
    source, target = base_of(node.arg.type.oid), base_of(node.type.oid)
    if source in STRINGS or source in (t.JSON, t.JSONB, t.XML):
        inner = node.arg
        while isinstance(inner, (n.Relabel, n.Param)):
            inner = env.parameter(inner) if isinstance(inner, n.Param) else inner.arg
        if isinstance(inner, n.Const) and inner.type.oid in (t.TEXT, t.UNKNOWN, t.VARCHAR):
            return _read(inner, node.type, env)
        return _from_text(node.arg, sql, target, env)
    if target not in STRINGS:
        raise refuse(f"a cast from {format_type(source)} to {format_type(target)}", node)
    printed = text(node.arg, sql, env)
    return f"left({printed}, 1)" if target == t.CHAR else printed


def _read(constant: n.Const, target: n.TypeRef, env: Env) -> str:
    """Read a constant text as another type. An invalid text raises its error when the expression is evaluated."""
    text = constant.value
    try:
        if text is not None and base_of(target.oid) not in STRINGS and base_of(target.oid) not in REGISTERED:
            text = texts.normal_form(text, base_of(target.oid), target.typmod)
    except PostgresError as error:
        return raised(error.sqlstate, error.message, target.oid)
    return literal.constant(n.Const(type=target, value=text, location=constant.location), env)


def elementwise(node: n.ArrayCoerce, sql: str, env: Env) -> str:
    """Compile a cast of an array, element by element."""
    source, target = element_of(node.arg.type.oid), element_of(node.type.oid)
    if source is None or target is None or node.type.typmod >= 0:
        raise refuse(f"a cast to {format_type(node.type.oid)}", node)
    element = n.ColumnRef(type=n.TypeRef(source), name="x", attnum=1, key="x")
    to = n.TypeRef(target)
    if node.function == -1 and source in REGISTERED:
        if target not in STRINGS or target in (t.CHAR, t.NAME):
            raise refuse(f"a cast to {format_type(node.type.oid)}", node)
        return element_texts(source, sql, env)
    if node.function == -1:
        inner = through_text(n.CoerceViaIO(type=to, arg=element, form=node.form), "x", env)
    elif node.function == 0:
        inner = relabelled(n.Relabel(type=to, arg=element, form=node.form), "x", env)
    else:
        call = n.FuncExpr(type=n.TypeRef(target, node.type.typmod), function=node.function, args=(element,))
        inner = by_function(call, ["x"], env)
    return sql if inner == "x" else f"list_transform({sql}, lambda x: {inner})"


def _guard(sql: str, pattern: str, converted: str, oid: int) -> str:
    message = f'invalid input syntax for type {format_type(oid)}: "'
    error = raised("22P02", message, oid, f"{sql} || '\"'")
    return f"CASE WHEN {sql} IS NULL THEN NULL WHEN regexp_full_match({sql}, {quote(pattern)}) THEN {converted} ELSE {error} END"


def _from_text(arg: n.Expression, sql: str, target: int, env: Env) -> str:
    """Read a text that is computed by the query as another type."""
    if target in STRINGS:
        return f"left({sql}, 1)" if target == t.CHAR else sql
    if target == t.REGCLASS:
        return _class_of_text(sql, env)
    if target == t.REGTYPE:
        found = f"(SELECT min(_t.oid) FROM hg.type_text _t WHERE _t.plain = {sql})"
        unknown = raised("0A000", 'the type name "', target, f"{sql} || '\" is not supported in a query on system catalogs'")
        return f"CASE WHEN {sql} IS NOT NULL THEN coalesce({found}, {unknown}) END"
    space = r"[ \t\n\r\f\v]*"
    trimmed = rf"trim({sql}, ' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13))"
    if target in t.INTEGERS:
        return _guard(sql, rf"{space}[+-]?[0-9]+{space}", f"CAST({trimmed} AS {duckdb_type(target)})", target)
    if target in OIDS | {t.XID, t.CID}:
        return _guard(sql, rf"{space}[0-9]+{space}", f"CAST({trimmed} AS UINTEGER)", target)
    if target in FLOATS:
        return _guard(
            sql, rf"{space}[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{{1,2}})?{space}", f"CAST({trimmed} AS {duckdb_type(target)})", target
        )
    if target == t.PG_LSN:
        return _guard(sql, "[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", f"hg.lsn_in({sql})", target)
    if target == t.BOOL:
        words = f"lower({trimmed})"
        return _guard(
            f"{words}",
            "(t|tr|tru|true|y|ye|yes|on|1|f|fa|fal|fals|false|n|no|of|off|0)",
            f"(left({words}, 1) IN ('t', 'y', '1') OR {words} = 'on')",
            target,
        )
    raise refuse(f"a cast from {format_type(arg.type.oid)} to {format_type(target)}", arg)


def _class_of_text(sql: str, env: Env) -> str:
    """Return SQL of the oid of the relation that a text names. It raises 3F000 or 42P01 if there is none."""
    name = f"(CASE WHEN contains({sql}, '\"') THEN {sql} ELSE lower({sql}) END)"
    found = (
        f"(SELECT arg_min(_c.oid, coalesce(list_position({env.path}, _c.relnamespace), 0)) FROM hg.pg_class _c"
        f" JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, {env.database})"
        f" WHERE _c.dbid IN (0, {env.database})"
        f" AND ((list_contains({_spellings('_c.relname')}, {name}) AND list_contains({env.path}, _c.relnamespace))"
        f" OR list_contains({_spellings('_n.nspname', '_c.relname')}, {name})))"
    )
    schema = f"split_part({name}, '.', 1)"
    known = f"EXISTS (SELECT 1 FROM hg.pg_namespace _n WHERE _n.dbid IN (0, {env.database}) AND _n.nspname = {schema})"
    no_schema = raised("3F000", 'schema "', t.REGCLASS, f"{schema} || '\" does not exist'")
    missing = raised("42P01", 'relation "', t.REGCLASS, f"replace({name}, '\"', '') || '\" does not exist'")
    of_schema = f"contains({name}, '.') AND NOT contains({name}, '\"')"
    failure = f"CASE WHEN {of_schema} AND NOT {known} THEN {no_schema} ELSE {missing} END"
    return f"CASE WHEN {sql} IS NOT NULL THEN coalesce({found}, {failure}) END"


def _spellings(*names: str) -> str:
    """Return a list of the ways to write a name, quoted or not, with its schema if that is passed."""
    quoted = [f"'\"' || replace({name}, '\"', '\"\"') || '\"'" for name in names]
    ways = [" || '.' || ".join(way) for way in itertools.product(*zip(names, quoted, strict=True))]
    return f"[{', '.join(ways)}]"


# ---- text forms ------------------------------------------------------------------------------------------------------------


def text(node: n.Expression, sql: str, env: Env) -> str:
    """Return SQL of the text that the output function of an expression's type prints, NULL for NULL."""
    if node.type.oid == t.RECORD or n.record_fields(node):
        return _record(node, sql, env)
    if base_of(node.type.oid) == t.NUMERIC and scale(node, env) is None and not isinstance(node, n.ColumnRef):
        raise refuse("a numeric value whose scale is not known", node)
    return output(base_of(node.type.oid), sql, env)


def output(kind: int, sql: str, env: Env) -> str:
    """Return SQL of the text form of a value, by its type alone. Not for records."""
    if kind in REGISTERED:
        return _read_registered(kind, sql, env)
    if kind in STRINGS:
        return sql
    if not env.in_utc and texts.depends_on(kind, TextSettings(timezone=env.time_zone)):
        raise refuse("a text form that depends on TimeZone")
    plain = {
        t.BOOL: f"hg.bool_out({sql})",
        t.PG_LSN: f"hg.lsn_out({sql})",
        t.FLOAT8: f"hg.float_out({sql})",
        t.INTERVAL: f"CASE WHEN contains(CAST({sql} AS VARCHAR), '-') THEN {_SIGNED} ELSE hg.interval_out({sql}) END",
        t.TIMESTAMPTZ: f"(CAST({sql} AS VARCHAR) || CASE WHEN isfinite({sql}) THEN '+00' ELSE '' END)",
        t.BYTEA: f"('\\x' || lower(hex({sql})))",
        t.INT2VECTOR: f"array_to_string({sql}, ' ')",
        t.OIDVECTOR: f"array_to_string({sql}, ' ')",
        t.VOID: f"CASE WHEN ({sql}) IS NOT NULL THEN '' END",  # the function must still be called
    }.get(kind)
    if plain is not None:
        return plain
    if kind == t.FLOAT4:
        raise refuse("the text form of type real inside of an expression")
    element = element_of(kind)
    if element is not None:
        return f"hg.array_out({element_texts(element, sql, env)})"
    return sql if duckdb_type(kind) == "VARCHAR" else f"CAST({sql} AS VARCHAR)"


def element_texts(element: int, sql: str, env: Env) -> str:
    """Return the list of the text forms of an array's elements of this type."""
    if element in REGISTERED:  # their names are looked up by subqueries, which DuckDB does not allow in a lambda
        rows = f"(SELECT unnest({sql}) AS x, generate_subscripts({sql}, 1) AS i) _l"
        texts_sql = f"(SELECT coalesce(list({output(element, '_l.x', env)} ORDER BY _l.i), []) FROM {rows})"
        return f"CASE WHEN {sql} IS NOT NULL THEN {texts_sql} END"
    inner = output(element, "x", env)
    return sql if inner == "x" else f"list_transform({sql}, lambda x: {inner})"


def _record(node: n.Expression, sql: str, env: Env) -> str:
    fields = n.record_fields(node)
    if not fields:
        raise refuse("the text form of this record", node)
    if isinstance(node, n.ColumnRef) and node.attnum == 0:
        parts = [output(base_of(column.type.oid), env.column(column.key), env) for column in env.rows[node.key]]
    else:
        parts = [output(base_of(kind.oid), f"struct_extract({sql}, {quote(name)})", env) for name, kind in fields]
    items = " || ',' || ".join(f"coalesce({_field(part)}, '')" for part in parts) or "''"
    whole = f"('(' || {items} || ')')"
    if isinstance(node, n.RowExpr):
        return whole
    absent = " AND ".join(f"{part} IS NULL" for part in parts) if isinstance(node, n.ColumnRef) and node.attnum == 0 else f"{sql} IS NULL"
    return f"CASE WHEN NOT ({absent}) THEN {whole} END"


def _field(sql: str) -> str:
    needs = f"regexp_matches({sql}, '[(),\"\\\\\\s]') OR {sql} = ''"
    return f"CASE WHEN {needs} THEN '\"' || replace(replace({sql}, '\\', '\\\\'), '\"', '\"\"') || '\"' ELSE {sql} END"


def _read_registered(kind: int, sql: str, env: Env) -> str:
    arguments = f"{sql}, {env.database}, {env.path}"
    constant = re.fullmatch(r"CAST\((\d+) AS UINTEGER\)", sql)
    if kind == t.REGTYPE and constant and int(constant[1]) < t.FIRST_USER_OID:
        return quote(format_type(int(constant[1])))
    if kind == t.REGCLASS:
        return f"hg.regclass_out({arguments})"
    if kind == t.REGTYPE:
        return f"hg.format_type({sql}, NULL, {env.database}, {env.path})"
    if kind == t.REGPROC:
        return f"hg.regproc_out({arguments})"
    if kind == 2202:
        return f"hg.regprocedure_out({arguments})"
    if kind == t.REGROLE:
        return f"hg.regrole_out({sql})"
    if kind == t.REGNAMESPACE:
        return f"hg.regnamespace_out({sql}, {env.database})"
    if kind in (2203, 2204):
        return f"hg.regoper_out({sql})"
    if kind == 4191:
        return f"hg.regcollation_out({sql})"
    return f"CAST({sql} AS VARCHAR)"


__all__ = ["by_function", "elementwise", "functions", "output", "relabelled", "text", "through_text"]
