"""PostgreSQL's functions in DuckDB SQL: scalar functions and aggregates by signature, chosen as PostgreSQL chooses (manual, 10.3).

A signature is written ``name(type, type=default) -> type: template``. In a template, {0} {1} … are the arguments, {db} the database's
oid, {p} the search path, {sizes} what relations take on disk, and {*} all arguments with commas. What needs the session or the tree (current_user, has_…_privilege,
regclass lookups, set-returning functions) is the writer's.
"""

# ruff: noqa: E501 (one definition a line)

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import pyarrow.parquet as pq

from headgate.catalog import physical
from headgate.catalog.query.cast import CatalogNames, coerce, implicit, output
from headgate.catalog.query.value import TypedSql, element_of, no_function
from headgate.errors import not_supported
from headgate.types import registry as t

_SCALARS = r"""
format_type(oid, int4) -> text: hg.format_type({0}, {1}, {db}, {p})
pg_get_expr(text, oid, bool=false) -> text: hg.expression_out({0}, {db}, {p})
pg_get_userbyid(oid) -> name: hg.userbyid({0})
pg_table_is_visible(oid) -> bool: hg.table_is_visible({0}, {db}, {p})
pg_type_is_visible(oid) -> bool: hg.type_is_visible({0}, {db}, {p})
pg_function_is_visible(oid) -> bool: hg.function_is_visible({0}, {db}, {p})
pg_operator_is_visible(oid) -> bool: hg.operator_is_visible({0}, {db}, {p})
pg_collation_is_visible(oid) -> bool: hg.collation_is_visible({0}, {db}, {p})
pg_opclass_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_opfamily_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_conversion_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_ts_config_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_ts_dict_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_ts_parser_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_ts_template_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_statistics_obj_is_visible(oid) -> bool: ({0} IS NOT NULL)
pg_get_indexdef(oid) -> text: hg.indexdef({0}, 0, false, {db}, {p})
pg_get_indexdef(oid, int4, bool) -> text: hg.indexdef({0}, {1}, {2}, {db}, {p})
pg_get_constraintdef(oid, bool=false) -> text: hg.constraintdef({0}, {1}, {db}, {p})
pg_get_partkeydef(oid) -> text: hg.partition_key({0}, {db})
pg_get_partition_constraintdef(oid) -> text: hg.partition_constraint({0}, {db})
pg_partition_root(regclass) -> regclass: hg.partition_root({0}, {db})
pg_get_viewdef(oid, bool=false) -> text: hg.viewdef({0}, {1}, {db}, {p})
pg_get_viewdef(oid, int4) -> text: hg.viewdef({0}, true, {db}, {p})
pg_get_ruledef(oid, bool=false) -> text: CAST(NULL AS VARCHAR)
pg_get_triggerdef(oid, bool=false) -> text: CAST(NULL AS VARCHAR)
pg_get_statisticsobjdef(oid) -> text: CAST(NULL AS VARCHAR)
pg_get_statisticsobjdef_columns(oid) -> text: CAST(NULL AS VARCHAR)
pg_get_function_arguments(oid) -> text: hg.function_arguments({0}, {db}, {p})
pg_get_function_identity_arguments(oid) -> text: hg.function_arguments({0}, {db}, {p})
pg_get_function_result(oid) -> text: hg.function_result({0}, {db}, {p})
pg_get_function_sqlbody(oid) -> text: CAST(NULL AS VARCHAR)
pg_get_functiondef(oid) -> text: CAST(NULL AS VARCHAR)
pg_get_function_arg_default(oid, int4) -> text: CAST(NULL AS VARCHAR)
pg_get_serial_sequence(text, text) -> text: hg.serial_sequence(<regclass 0>, {1}, {db})
pg_get_replica_identity_index(regclass) -> regclass: hg.replica_index({0}, {db})
pg_relation_is_publishable(regclass) -> bool: hg.is_publishable({0}, {db})
pg_encoding_to_char(int4) -> name: hg.encoding_name({0})
pg_char_to_encoding(name) -> int4: CASE upper({0}) WHEN 'UTF8' THEN 6 WHEN 'SQL_ASCII' THEN 0 ELSE -1 END
col_description(oid, int4) -> text: hg.description({0}, 1259, {1}, {db})
obj_description(oid, name) -> text: hg.description({0}, (SELECT _o.oid FROM hg.pg_class _o WHERE _o.relname = {1} AND _o.dbid = 0), 0, {db})
obj_description(oid) -> text: hg.any_description({0}, {db})
shobj_description(oid, name) -> text: hg.shared_description({0}, (SELECT _o.oid FROM hg.pg_class _o WHERE _o.relname = {1} AND _o.dbid = 0))
quote_ident(text) -> text: hg.quote_ident({0})
quote_literal(text) -> text: hg.quote_literal({0})
quote_nullable(text) -> text: coalesce(hg.quote_literal({0}), 'NULL')
acldefault(char, oid) -> _aclitem: hg.acl_default({0}, hg.userbyid({1}))
pg_wal_lsn_diff(pg_lsn, pg_lsn) -> numeric: CAST(CAST({0} AS HUGEINT) - CAST({1} AS HUGEINT) AS DECIMAL(38,0))
pg_walfile_name(pg_lsn) -> text: printf('00000001%08X%08X', CAST({0} >> 32 AS BIGINT), CAST(({0} & 4294967295) >> 24 AS BIGINT))
get_byte(bytea, int4) -> int4: CAST('0x' || substr(hex({0}), 2 * {1} + 1, 2) AS INTEGER)
int2send(int2) -> bytea: unhex(printf('%04X', CAST({0} AS INTEGER) & 65535))
int4send(int4) -> bytea: unhex(printf('%08X', CAST({0} AS BIGINT) & 4294967295))
int8send(int8) -> bytea: unhex(printf('%016X', CAST((CAST({0} AS HUGEINT) + 18446744073709551616) % 18446744073709551616 AS UBIGINT)))
octet_length(bytea) -> int4: CAST(octet_length({0}) AS INTEGER)
length(bytea) -> int4: CAST(octet_length({0}) AS INTEGER)
encode(bytea, text) -> text: hg.encode({0}, lower({1}))
convert_from(bytea, name) -> text: CASE WHEN lower(replace({1}, '-', '')) IN ('utf8', 'unicode') THEN decode({0}) ELSE error('unrecognized encoding: "' || {1} || '"') END
substr(bytea, int4) -> bytea: hg.bytes_from({0}, {1}, octet_length({0}))
substr(bytea, int4, int4) -> bytea: hg.bytes_from({0}, {1}, {1} + {2} - 1)
substring(bytea, int4) -> bytea: hg.bytes_from({0}, {1}, octet_length({0}))
substring(bytea, int4, int4) -> bytea: hg.bytes_from({0}, {1}, {1} + {2} - 1)
getdatabaseencoding() -> name: 'UTF8'
pg_is_in_recovery() -> bool: false
pg_is_other_temp_schema(oid) -> bool: false
pg_trigger_depth() -> int4: 0
pg_jit_available() -> bool: false
pg_relation_is_updatable(regclass, bool) -> int4: 28
pg_column_is_updatable(regclass, int2, bool) -> bool: true
pg_relation_size(regclass, text='main') -> int8: hg.bytes_of({0}, {db}, (SELECT sum(_s.c3) FROM {sizes} _s WHERE {1} = 'main' AND _s.c1 = {db} AND _s.c2 = {0}))
pg_table_size(regclass) -> int8: hg.bytes_of({0}, {db}, (SELECT sum(_s.c4) FROM {sizes} _s WHERE _s.c1 = {db} AND _s.c2 = {0}))
pg_indexes_size(regclass) -> int8: hg.bytes_of({0}, {db}, 0)
pg_total_relation_size(regclass) -> int8: hg.bytes_of({0}, {db}, (SELECT sum(_s.c4) FROM {sizes} _s WHERE _s.c1 = {db} AND _s.c2 = {0}))
pg_database_size(name) -> int8: (SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE _s.c1 = (SELECT _d.oid FROM hg.pg_database _d WHERE _d.datname = {0}))
pg_database_size(oid) -> int8: (SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE _s.c1 = {0})
pg_tablespace_size(oid) -> int8: (SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE {0} = 1663)
pg_tablespace_location(oid) -> text: CASE WHEN {0} IS NOT NULL THEN '' END
pg_relation_filenode(regclass) -> oid: {0}
pg_relation_filepath(regclass) -> text: (SELECT 'base/' || CAST({db} AS VARCHAR) || '/' || CAST(_c.oid AS VARCHAR) FROM hg.pg_class _c WHERE _c.oid = {0} AND _c.dbid IN (0, {db}) AND _c.relkind IN ('r', 'i', 'S', 't', 'm'))
pg_stat_get_numscans(oid) -> int8: CAST(0 AS BIGINT)
pg_size_pretty(int8) -> text: hg.size_pretty({0})
pg_size_pretty(numeric) -> text: hg.size_pretty(CAST({0} AS BIGINT))
pg_char_max_length(oid, int4) -> int4: CASE WHEN {1} = -1 THEN NULL WHEN {0} IN (1042, 1043) THEN {1} - 4 WHEN {0} IN (1560, 1562) THEN {1} END
_pg_char_max_length(oid, int4) -> int4: CASE WHEN {1} = -1 THEN NULL WHEN {0} IN (1042, 1043) THEN {1} - 4 WHEN {0} IN (1560, 1562) THEN {1} END
_pg_char_octet_length(oid, int4) -> int4: CASE WHEN {0} IN (25, 1042, 1043) THEN CASE WHEN {1} = -1 THEN 1073741824 ELSE ({1} - 4) * 4 END END
_pg_numeric_precision(oid, int4) -> int4: CASE {0} WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 1700 THEN CASE WHEN {1} <> -1 THEN (({1} - 4) >> 16) & 65535 END WHEN 700 THEN 24 WHEN 701 THEN 53 END
_pg_numeric_precision_radix(oid, int4) -> int4: CASE WHEN {0} IN (21, 23, 20, 700, 701) THEN 2 WHEN {0} = 1700 THEN 10 END
_pg_numeric_scale(oid, int4) -> int4: CASE WHEN {0} IN (21, 23, 20) THEN 0 WHEN {0} = 1700 AND {1} <> -1 THEN ({1} - 4) & 65535 END
_pg_datetime_precision(oid, int4) -> int4: CASE WHEN {0} = 1082 THEN 0 WHEN {0} IN (1083, 1114, 1184, 1266) THEN CASE WHEN {1} < 0 THEN 6 ELSE {1} END WHEN {0} = 1186 THEN CASE WHEN {1} < 0 OR {1} & 65535 = 65535 THEN 6 ELSE {1} & 65535 END END
_pg_interval_type(oid, int4) -> text: CAST(NULL AS VARCHAR)
_pg_index_position(oid, int2) -> int4: (SELECT CAST(list_position(_i.indkey, {1}) AS INTEGER) FROM hg.pg_index _i WHERE _i.indexrelid = {0} AND _i.dbid IN (0, {db}))
array_to_string(anyarray, text) -> text: array_to_string(list_filter(<texts 0>, lambda x: x IS NOT NULL), {1})
array_to_string(anyarray, text, text) -> text: array_to_string(list_transform(<texts 0>, lambda x: coalesce(x, {2})), {1})
array_length(anyarray, int4) -> int4: CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) END
array_upper(anyarray, int4) -> int4: CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER)<minus one 0> END
array_lower(anyarray, int4) -> int4: CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1<minus one 0> END
array_ndims(anyarray) -> int4: CASE WHEN len({0}) > 0 THEN 1 END
array_remove(_text, text) -> _text: list_filter({0}, lambda x: x IS DISTINCT FROM {1})
array_append(_text, text) -> _text: list_append(coalesce({0}, CAST([] AS VARCHAR[])), {1})
array_prepend(text, _text) -> _text: list_prepend({0}, coalesce({1}, CAST([] AS VARCHAR[])))
array_cat(_text, _text) -> _text: CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE list_concat({0}, {1}) END
cardinality(anyarray) -> int4: CAST(len({0}) AS INTEGER)
array_position(anyarray, any) -> int4: CAST(list_position({0}, {1}) AS INTEGER)<minus one 0>
string_to_array(text, text) -> _text: CASE WHEN {1} = '' THEN CASE WHEN {0} = '' THEN [] ELSE [{0}] END WHEN {0} = '' THEN [] ELSE string_split({0}, {1}) END
upper(text) -> text: upper({0})
lower(text) -> text: lower({0})
length(text) -> int4: CAST(length({0}) AS INTEGER)
char_length(text) -> int4: CAST(length({0}) AS INTEGER)
octet_length(text) -> int4: CAST(strlen({0}) AS INTEGER)
btrim(text, text=' ') -> text: trim({0}, {1})
ltrim(text, text=' ') -> text: ltrim({0}, {1})
rtrim(text, text=' ') -> text: rtrim({0}, {1})
substr(text, int4) -> text: substr({0}, {1})
substr(text, int4, int4) -> text: substr({0}, {1}, {2})
substring(text, int4) -> text: substr({0}, {1})
substring(text, int4, int4) -> text: substr({0}, {1}, {2})
substring(text, text) -> text: nullif(regexp_extract({0}, {1}), '')
replace(text, text, text) -> text: replace({0}, {1}, {2})
translate(text, text, text) -> text: translate({0}, {1}, {2})
split_part(text, text, int4) -> text: split_part({0}, {1}, {2})
position(text, text) -> int4: CAST(instr({0}, {1}) AS INTEGER)
strpos(text, text) -> int4: CAST(instr({0}, {1}) AS INTEGER)
starts_with(text, text) -> bool: starts_with({0}, {1})
left(text, int4) -> text: left({0}, {1})
right(text, int4) -> text: right({0}, {1})
repeat(text, int4) -> text: repeat({0}, hg.fitting({1}, strlen({0}) * CAST({1} AS BIGINT), 1073741819))
reverse(text) -> text: reverse({0})
lpad(text, int4, text=' ') -> text: lpad({0}, hg.fitting({1}, {1}, 268435454), {2})
rpad(text, int4, text=' ') -> text: rpad({0}, hg.fitting({1}, {1}, 268435454), {2})
initcap(text) -> text: <missing>
md5(text) -> text: md5({0})
ascii(text) -> int4: ascii({0})
chr(int4) -> text: chr({0})
regexp_replace(text, text, text) -> text: regexp_replace({0}, {1}, {2}, 's')
regexp_replace(text, text, text, text) -> text: regexp_replace({0}, {1}, {2}, 's' || {3})
to_hex(int4) -> text: printf('%x', {0})
to_hex(int8) -> text: printf('%x', {0})
abs(int4) -> int4: abs({0})
abs(int8) -> int8: abs({0})
abs(numeric) -> numeric: abs({0})
abs(float8) -> float8: abs({0})
mod(int4, int4) -> int4: ({0} % {1})
mod(int8, int8) -> int8: ({0} % {1})
floor(float8) -> float8: floor({0})
ceil(float8) -> float8: ceil({0})
ceiling(float8) -> float8: ceil({0})
sqrt(float8) -> float8: sqrt({0})
power(float8, float8) -> float8: pow({0}, {1})
sign(float8) -> float8: CAST(sign({0}) AS DOUBLE)
random() -> float8: random()
pi() -> float8: pi()
gen_random_uuid() -> uuid: CAST(uuid() AS VARCHAR)
pg_typeof(any) -> regtype: <type 0>
json_build_object(any, any) -> json: json_object({*})
row_to_json(any) -> json: <missing>
to_json(any) -> json: to_json({0})
jsonb_build_object(any, any) -> jsonb: json_object({*})
date_trunc(text, timestamptz) -> timestamptz: date_trunc({0}, {1})
date_trunc(text, timestamp) -> timestamp: date_trunc({0}, {1})
age(timestamptz) -> interval: (current_date - {0})
pg_xact_commit_timestamp(xid) -> timestamptz: CAST(NULL AS TIMESTAMP)
pg_index_has_property(regclass, text) -> bool: CAST(NULL AS BOOLEAN)
pg_index_column_has_property(regclass, int4, text) -> bool: CASE {2} WHEN 'asc' THEN true WHEN 'desc' THEN false WHEN 'orderable' THEN true WHEN 'nulls_first' THEN false WHEN 'nulls_last' THEN true END
pg_indexam_has_property(oid, text) -> bool: CASE {1} WHEN 'can_order' THEN {0} = 403 WHEN 'can_unique' THEN {0} = 403 WHEN 'can_multi_col' THEN true ELSE false END
row_number() -> int8: row_number()
rank() -> int8: rank()
dense_rank() -> int8: dense_rank()
lag(anyelement) -> anyelement: lag({0})
lead(anyelement) -> anyelement: lead({0})
first_value(anyelement) -> anyelement: first_value({0})
last_value(anyelement) -> anyelement: last_value({0})
"""

_AGGREGATES = """
count(any) -> int8: count({0})
sum(int2) -> int8: CAST(sum({0}) AS BIGINT)
sum(int4) -> int8: CAST(sum({0}) AS BIGINT)
sum(int8) -> numeric: CAST(sum({0}) AS DECIMAL(38,0))
sum(numeric) -> numeric: sum({0})
sum(float4) -> float4: CAST(sum({0}) AS FLOAT)
sum(float8) -> float8: sum({0})
avg(float8) -> float8: avg({0})
min(anyelement) -> anyelement: min({0})
max(anyelement) -> anyelement: max({0})
bool_and(bool) -> bool: bool_and({0})
bool_or(bool) -> bool: bool_or({0})
every(bool) -> bool: bool_and({0})
string_agg(text, text) -> text: string_agg({0}, {1})
array_agg(any) -> anyarray: list({0})
json_agg(any) -> json: to_json(list({0}))
jsonb_agg(any) -> jsonb: to_json(list({0}))
json_object_agg(any, any) -> json: json_group_object({0}, {1})
bit_and(int4) -> int4: bit_and({0})
bit_or(int4) -> int4: bit_or({0})
"""


@dataclass(frozen=True)
class Signature:
    """One function. `defaults`: SQL of the arguments that may be left out, from the right."""

    name: str
    arguments: tuple[int, ...]
    defaults: tuple[str, ...]
    result: int
    template: str


@functools.cache
def signatures() -> tuple[dict[str, list[Signature]], dict[str, list[Signature]]]:
    """Scalar functions and aggregates by name."""
    return _read(_SCALARS), _read(_AGGREGATES)


def _read(text: str) -> dict[str, list[Signature]]:
    found: dict[str, list[Signature]] = {}
    for line in text.strip().splitlines():
        matched = re.match(r"(\w+)\((.*?)\) -> (\w+): (.*)\Z", line)
        assert matched is not None, line
        types, defaults = [], []
        for part in filter(None, matched[2].split(", ")):
            name, _, default = part.partition("=")
            types.append(t.by_name(name, "pg_catalog").oid)
            defaults += [default] if default else []
        result = t.by_name(matched[3], "pg_catalog").oid
        found.setdefault(matched[1], []).append(Signature(matched[1], tuple(types), tuple(defaults), result, matched[4]))
    return found


@functools.cache
def known_names() -> frozenset[str]:
    """Every function name of PostgreSQL 15."""
    return frozenset(pq.read_table(physical.DATA / "pg_proc.parquet", columns=["proname"]).column("proname").to_pylist())


def choose(candidates: list[Signature], arguments: list[TypedSql]) -> Signature | None:
    """The signature that needs the fewest and nearest casts."""
    best: tuple[int, Signature] | None = None
    for candidate in candidates:
        wanted = candidate.arguments
        if candidate.template.find("{*}") >= 0:
            wanted = wanted[:1] * len(arguments)
        if not len(wanted) - len(candidate.defaults) <= len(arguments) <= len(wanted):
            continue
        distances = [implicit(value.type, target) for value, target in zip(arguments, wanted, strict=False)]
        if None in distances:
            continue
        total = sum(distance or 0 for distance in distances)
        total -= sum(1 for value, target in zip(arguments, wanted, strict=False) if value.unknown and target == t.TEXT)
        if best is None or total < best[0]:
            best = (total, candidate)
    return None if best is None else best[1]


def call(name: str, arguments: list[TypedSql], names: CatalogNames, location: int, *, aggregate: bool = False) -> TypedSql:
    """A call of a scalar function or an aggregate; 42883 if PostgreSQL has no such function, 0A000 if only a node has not."""
    found = choose(signatures()[aggregate].get(name, []), arguments)
    if found is None or found.template == "<missing>":
        if name in known_names():
            raise not_supported(
                f"function {name} is not supported in a query on system catalogs", position=location + 1 if location >= 0 else None
            )
        raise no_function(name, arguments, location)
    wanted = found.arguments if "{*}" not in found.template else found.arguments[:1] * len(arguments)
    given = [
        coerce(value, target, names) if target != t.ANYARRAY or value.unknown else value
        for value, target in zip(arguments, wanted, strict=False)
    ]
    sqls = [value.sql for value in given]
    missing = len(wanted) - len(given)
    if missing > 0:
        sqls += found.defaults[len(found.defaults) - missing :]
    sql = _fill(found.template, sqls, given, names)
    result = found.result
    if result == t.ANYELEMENT:
        result = given[0].type
    elif result == t.ANYARRAY:
        array = t.builtin().find(given[0].type)
        result = array.array if array is not None and array.array else t.TEXT_ARRAY
    return TypedSql(sql, result)


def _fill(template: str, sqls: list[str], given: list[TypedSql], names: CatalogNames) -> str:
    def special(matched: re.Match[str]) -> str:
        word, place = matched[1], int(matched[2])
        value = given[place]
        if word == "texts":
            element = element_of(value.type) or t.TEXT
            inner = output(TypedSql("x", element), names)
            return value.sql if inner == "x" else f"list_transform({value.sql}, lambda x: {inner})"
        if word == "minus one":
            return " - 1" if value.zero_based else ""
        if word == "type":
            return f"CAST({value.type} AS UINTEGER)"
        return coerce(TypedSql(value.sql, t.TEXT, literal=value.literal), t.REGCLASS, names).sql

    def filled(matched: re.Match[str]) -> str:
        if matched[1]:
            return special(matched)
        word = matched[3]
        if word.isdigit():
            return sqls[int(word)]
        return names.sizes() if word == "sizes" else {"*": ", ".join(sqls), "db": names.database, "p": names.path}[word]

    return re.sub(r"<(texts|minus one|type|regclass) (\d)>|\{(\d|\*|db|p|sizes)\}", filled, template)
