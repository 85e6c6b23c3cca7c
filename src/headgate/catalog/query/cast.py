"""Casts between PostgreSQL types in DuckDB SQL, the text form of every type, and the type of a common result.

Used by the writer of expressions. `CatalogNames` is what the reg… types need to print and read names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headgate.catalog.physical import duckdb_type
from headgate.catalog.query import literal
from headgate.catalog.query.value import NUMBERS, OIDS, REGISTERED, STRINGS, TEXTUAL, VECTORS, TypedSql, element_of, position
from headgate.errors import PostgresError
from headgate.types import registry as t
from headgate.types.registry import format_type
from headgate.types.text_column import TextSettings


@dataclass(frozen=True)
class CatalogNames:
    """`database` and `path` as SQL for macros; `resolve(text, type, position)` gives the oid that a name stands for.

    `sizes`: the name of a table of what relations take on disk: c1 database, c2 relation, c3 bytes of data, c4 bytes in all. `forms`: by
    which settings literals are read.
    """

    database: str
    path: str
    resolve: Callable[[str, int, int | None], int]
    parameter: Callable[[int, int], str | None]
    sizes: Callable[[], str]
    forms: TextSettings


def coerce(value: TypedSql, target: int, names: CatalogNames, *, explicit: bool = False, location: int = -1) -> TypedSql:
    """The value as type `target`; 42804 or 42846 if there is no such cast here."""
    if value.type == target or target in (t.ANY, t.ANYELEMENT, 5077):
        return _settle(value, names) if value.unknown and target != t.UNKNOWN else value
    if value.unknown:
        return _decide(value, target, names)
    at = location if location >= 0 else value.location
    sql = _cast(value, target, names, explicit=explicit)
    if sql is None:
        raise PostgresError("42846", f"cannot cast type {format_type(value.type)} to {format_type(target)}", position=position(at))
    zero = value.zero_based and element_of(target) is not None
    return replace(
        value,
        sql=sql,
        type=target,
        typmod=-1,
        literal=None,
        zero_based=zero or target in VECTORS,
        relation=0,
        attnum=0,
        fields=(),
        struct=(),
    )


_TEXT = re.compile("'((?:[^']|'')*)'")
"""A constant of DuckDB's that is text, as ``'t'::text`` and ``$1::text`` become."""


def _settle(value: TypedSql, names: CatalogNames) -> TypedSql:
    return _decide(value, t.TEXT, names)


def _decide(value: TypedSql, target: int, names: CatalogNames) -> TypedSql:
    """A literal or parameter of type unknown as what it is to be."""
    text = value.literal
    if value.parameter:
        text = names.parameter(value.parameter, target)
    if text is None:
        return TypedSql(f"CAST(NULL AS {duckdb_type(target)})", target, location=value.location)
    if target in REGISTERED:
        return TypedSql(f"CAST({names.resolve(text, target, position(value.location))} AS UINTEGER)", target, location=value.location)
    known = element_of(target)
    if known in REGISTERED:
        oids = [names.resolve(each or "", known, position(value.location)) for each in literal.read_array(text)]
        return TypedSql(f"CAST({oids} AS UINTEGER[])", target)
    sql = literal.sql(text, target, position(value.location), names.forms)
    return TypedSql(sql, target, location=value.location, zero_based=target in VECTORS)


def _cast(value: TypedSql, target: int, names: CatalogNames, *, explicit: bool) -> str | None:
    source, sql = value.type, value.sql
    if source in OIDS | {t.XID} and target in OIDS | {t.XID}:
        return sql
    if target in TEXTUAL or target in (t.JSON, t.JSONB, t.CSTRING, t.UUID, t.INET):
        return _to_text(value, target, names)
    if source in NUMBERS and target in NUMBERS:
        return (
            f"CAST({sql} AS DECIMAL(38,0))" if target == t.NUMERIC and source not in (t.FLOAT4, t.FLOAT8) else _number(sql, source, target)
        )
    if (source in NUMBERS and target in OIDS) or (source in OIDS and target in NUMBERS):
        return f"CAST({sql} AS {duckdb_type(target)})"
    if source == t.BOOL and target == t.INT4 and explicit:
        return f"CAST({sql} AS INTEGER)"
    if source == t.INT4 and target == t.BOOL and explicit:
        return f"({sql} <> 0)"
    if source in STRINGS and target in REGISTERED and (written := _TEXT.fullmatch(sql)):
        oid = names.resolve(written[1].replace("''", "'"), target, None)
        return f"CAST({oid} AS UINTEGER)"
    if source in STRINGS:
        return _from_text(sql, target, names)
    from_element, to_element = element_of(source), element_of(target)
    if from_element is not None and to_element is not None:
        if duckdb_type(from_element) == duckdb_type(to_element):
            return sql
        inner = _cast(TypedSql("x", from_element), to_element, names, explicit=explicit)
        return None if inner is None else f"list_transform({sql}, lambda x: {inner})"
    if duckdb_type(source) == duckdb_type(target) and (source in (t.XID, t.CID) or target in (t.XID, t.CID)):
        return sql
    times = (t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ)
    if source in times and target in times:
        return f"CAST({sql} AS {duckdb_type(target)})"
    return None


def _number(sql: str, source: int, target: int) -> str:
    if source in (t.FLOAT4, t.FLOAT8) and target == t.NUMERIC:
        return f"CAST({sql} AS DECIMAL(38,10))"
    return f"CAST({sql} AS {duckdb_type(target)})"


def _to_text(value: TypedSql, target: int, names: CatalogNames) -> str:
    inner = f"CASE WHEN {value.sql} THEN 'true' WHEN NOT {value.sql} THEN 'false' END" if value.type == t.BOOL else output(value, names)
    if target == t.CHAR:
        return f"left({inner}, 1)"
    return inner


def _written(*names: str) -> str:
    """A list of the ways in which a name may be written, with its schema where that is given."""
    quoted = [f"'\"' || replace({name}, '\"', '\"\"') || '\"'" for name in names]
    ways = [" || '.' || ".join(way) for way in itertools.product(*zip(names, quoted, strict=True))]
    return f"[{', '.join(ways)}]"


def _from_text(sql: str, target: int, names: CatalogNames) -> str | None:
    if target in STRINGS:
        return sql
    if target == t.PG_LSN:
        return f"hg.lsn_in({sql})"
    if target == t.REGCLASS:
        return (
            f"(SELECT arg_min(_c.oid, coalesce(list_position({names.path}, _c.relnamespace), 0)) FROM hg.pg_class _c"
            f" JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, {names.database})"
            f" WHERE _c.dbid IN (0, {names.database})"
            f" AND ((list_contains({_written('_c.relname')}, {sql}) AND list_contains({names.path}, _c.relnamespace))"
            f" OR list_contains({_written('_n.nspname', '_c.relname')}, {sql})))"
        )
    if target == t.REGTYPE:
        return f"(SELECT min(_t.oid) FROM hg.type_text _t WHERE _t.plain = {sql})"
    if (
        target in STRINGS
        or target in OIDS
        or target in NUMBERS
        or target in (t.BOOL, t.TIMESTAMP, t.TIMESTAMPTZ, t.DATE, t.INTERVAL, t.XID)
    ):
        return f"CAST({sql} AS {duckdb_type(target)})"
    element = element_of(target)
    if element is not None:
        cut = f"string_split(trim({sql}, '{{}}'), ',')"
        return f"CAST(CASE WHEN {sql} = '{{}}' THEN [] ELSE {cut} END AS {duckdb_type(element)}[])"
    return None


def output(value: TypedSql, names: CatalogNames) -> str:
    """SQL of the text that the type's output function gives (NULL for NULL). timestamptz comes out in UTC."""
    kind, sql = value.type, value.sql
    if kind in REGISTERED:
        return _registered(kind, sql, names)
    if kind in STRINGS or kind == t.UNKNOWN:
        return sql
    plain = {
        t.BOOL: f"hg.bool_out({sql})",
        t.PG_LSN: f"hg.lsn_out({sql})",
        t.FLOAT4: f"hg.float_out(CAST({sql} AS VARCHAR))",
        t.FLOAT8: f"hg.float_out(CAST({sql} AS VARCHAR))",
        t.INTERVAL: f"hg.interval_out({sql})",
        t.TIMESTAMPTZ: f"(CAST({sql} AS VARCHAR) || '+00')",
        t.BYTEA: f"('\\x' || lower(hex({sql})))",
        t.INT2VECTOR: f"array_to_string({sql}, ' ')",
        t.OIDVECTOR: f"array_to_string({sql}, ' ')",
        t.VOID: f"CASE WHEN {sql} IS NULL THEN '' ELSE '' END",
    }.get(kind)
    if plain is not None:
        return plain
    element = element_of(kind)
    if element is not None:
        inner = output(TypedSql("x", element), names)
        listed = sql if inner == "x" else f"list_transform({sql}, lambda x: {inner})"
        if element in REGISTERED:  # their names are looked up, and DuckDB has no subquery inside of a lambda
            each = output(TypedSql("_l.x", element), names)
            rows = f"(SELECT unnest({sql}) AS x, generate_subscripts({sql}, 1) AS i) _l"
            listed = f"CASE WHEN {sql} IS NOT NULL THEN (SELECT coalesce(list({each} ORDER BY _l.i), []) FROM {rows}) END"
        return f"hg.array_out({listed})"
    if value.fields or value.struct:
        return _row(value, names)
    return f"CAST({sql} AS VARCHAR)"


def _row(value: TypedSql, names: CatalogNames) -> str:
    parts = [each for _, each in value.fields] or [
        TypedSql(f"struct_extract({value.sql}, {_q(name)})", kind) for name, kind in value.struct
    ]
    shown = " || ',' || ".join(f"coalesce({_field(output(each, names))}, '')" for each in parts)
    return f"('(' || {shown} || ')')"


def _field(sql: str) -> str:
    needs = f"regexp_matches({sql}, '[(),\"\\\\\\s]') OR {sql} = ''"
    return f"CASE WHEN {needs} THEN '\"' || replace(replace({sql}, '\\', '\\\\'), '\"', '\"\"') || '\"' ELSE {sql} END"


def _q(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _registered(kind: int, sql: str, names: CatalogNames) -> str:
    arguments = f"{sql}, {names.database}, {names.path}"
    constant = re.fullmatch(r"CAST\((\d+) AS UINTEGER\)", sql)
    if kind == t.REGTYPE and constant and int(constant[1]) < t.FIRST_USER_OID:
        return _q(format_type(int(constant[1])))
    if kind == t.REGCLASS:
        return f"hg.regclass_out({arguments})"
    if kind == t.REGTYPE:
        return f"hg.format_type({sql}, NULL, {names.database}, {names.path})"
    if kind in (t.REGPROC, 2202):
        return f"hg.regproc_out({arguments})"
    if kind == t.REGROLE:
        return f"hg.regrole_out({sql})"
    if kind == t.REGNAMESPACE:
        return f"hg.regnamespace_out({sql}, {names.database})"
    if kind in (2203, 2204):
        return f"hg.regoper_out({sql})"
    if kind == 4191:
        return f"hg.regcollation_out({sql})"
    return f"CAST({sql} AS VARCHAR)"


def implicit(source: int, target: int) -> int | None:
    """How far an implicit cast is (0 none needed), None if there is none: for choosing a function."""
    if source == target or target in (t.ANY, t.ANYELEMENT):
        return 0 if source == target else 5
    if source == t.UNKNOWN:
        return 1
    if source in NUMBERS and target in NUMBERS:
        distance = NUMBERS.index(target) - NUMBERS.index(source)
        return 1 + distance if distance > 0 else None
    if source in TEXTUAL and target in TEXTUAL:
        return 1 if target == t.TEXT else 2
    if (source in OIDS and target in OIDS) or (source in (t.INT2, t.INT4, t.INT8) and target in OIDS):
        return 2
    if source in OIDS and target == t.INT8:
        return 3
    if source in STRINGS and target in STRINGS:
        return 3
    if target in (t.ANYARRAY, 5078):
        return 3 if element_of(source) is not None else None
    if element_of(source) is not None and element_of(target) is not None:
        inner = implicit(element_of(source) or 0, element_of(target) or 0)
        return None if inner is None else inner + 1
    if source in (t.DATE, t.TIMESTAMP) and target in (t.TIMESTAMP, t.TIMESTAMPTZ):
        return 2
    return None


def common(values: Sequence[TypedSql], context: str) -> int:
    """The type of a result that may be any of the values (CASE, UNION, ARRAY …; manual, 10.5); 42804 if they do not fit."""
    known = [value for value in values if not value.unknown]
    if not known:
        return t.TEXT
    chosen = known[0].type
    for value in known[1:]:
        if value.type == chosen:
            continue
        if implicit(chosen, value.type) is not None and implicit(value.type, chosen) is None:
            chosen = value.type
        elif implicit(value.type, chosen) is None and implicit(chosen, value.type) is None:
            raise PostgresError(
                "42804",
                f"{context} types {format_type(chosen)} and {format_type(value.type)} cannot be matched",
                position=position(value.location),
            )
        elif chosen in TEXTUAL and value.type == t.TEXT:
            chosen = t.TEXT
    return chosen
