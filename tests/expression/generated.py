"""The grammar of generated expressions, and its first family: numbers, text, dates and conditions. The other families have their own
modules.

A family adds columns to the single table, values of their types, and rules (see `grammar`). To add a family, write a `Family` in a module
``generated_….py`` and add it to `FAMILIES`.
"""

from __future__ import annotations

from tests.expression.generated_arrays import ARRAYS
from tests.expression.generated_bytea import OCTETS
from tests.expression.generated_datetimes import MOMENTS
from tests.expression.generated_documents import DOCUMENTS
from tests.expression.generated_edges import EDGES
from tests.expression.generated_text import TEXT
from tests.expression.grammar import Family, Grammar, Kind

VALUES: dict[str, tuple[str, ...]] = {
    "int2": ("0", "1", "-1", "7", "32767", "-32768", "100"),
    "int4": ("0", "1", "-1", "3", "2147483647", "-2147483648", "1000"),
    "int8": ("0", "1", "-1", "5", "9223372036854775807", "-9223372036854775808", "16777217"),
    "numeric": (
        "0",
        "1",
        "-1",
        "1.10",
        "1.1",
        "NaN",
        "Infinity",
        "0.000",
        "12345678901234567890123456789012345678901234.5678",
        "-2.5",
        "1e-20",
        "7",
    ),
    "numeric(10,2)": ("0", "1.10", "-1.10", "99999999.99", "-2.50", "0.01", "3.00"),
    "float8": ("0", "-0", "1.5", "-2.5", "NaN", "Infinity", "-Infinity", "1e308", "1e-308", "0.1"),
    "float4": ("0", "-0", "1.5", "NaN", "Infinity", "3.4e38", "0.1", "1e-45"),
    "text": ("", "a", "A", " a ", "abc", "a%b", "a_b", "a\\b", "é", "ß", "😀", "a\nb", "'", "ab  ", "1", "x,y,z", "ÀÉ", "e\u0301"),
    "varchar(5)": ("", "a", "ab ", "abcde", "é"),
    "char(4)": ("", "a", "ab", "abcd", "é"),
    "bool": ("t", "f"),
    "date": ("2024-02-29", "2023-12-31", "1970-01-01", "0001-01-01", "1999-12-31", "9999-12-31", "2021-01-03"),
    "timestamp": (
        "2024-02-29 23:59:59.999999",
        "1970-01-01 00:00:00",
        "2024-01-01 00:00:00",
        "1969-12-31 23:59:59.5",
        "2021-01-03 12:34:56.789",
    ),
    "timestamptz": ("2024-02-29 23:59:59.999999+00", "1970-01-01 00:00:00+00", "2024-03-10 07:30:00+00"),
}

RULES: dict[str, tuple[str, ...]] = {
    "integer": (
        "({integer} + {integer})", "({integer} - {integer})", "({integer} * {integer})", "({integer} / {integer})",
        "({integer} % {integer})", "(- {integer})", "abs({integer})", "length({string})", "coalesce({integer}, {integer})",
        "CASE WHEN {boolean} THEN {integer} ELSE {integer} END", "nullif({integer}, {integer})", "greatest({integer}, {integer})",
        "least({integer}, {integer}, {integer})", "({numeric})::int4", "({float})::int8", "({boolean})::int4", "position({string} in {string})",
        "({day} - {day})", "ascii({string})", "octet_length({string})", "({integer})::int8", "({integer} & {integer})", "({integer})::int2",
    ),
    "numeric": (
        "({numeric} + {numeric})", "({numeric} - {numeric})", "({numeric} * {numeric})", "({numeric} / {numeric})", "({numeric} % {numeric})",
        "abs({numeric})", "round({numeric})", "round({numeric}, 1)", "round({numeric}, -1)", "trunc({numeric}, 1)", "ceil({numeric})",
        "floor({numeric})", "({integer})::numeric", "({integer} * 1.5)", "coalesce({numeric}, {numeric})", "greatest({numeric}, {numeric})",
        "CASE WHEN {boolean} THEN {numeric} ELSE {numeric} END", "(({numeric})::numeric(6,2) * 1)", "({integer})::numeric(6,2)", "sign({numeric})", "extract(year from {day})",
        "extract(second from {moment})", "extract(epoch from {moment})", "extract(dow from {day})", "extract(week from {day})", "(- {numeric})",
        "({float})::numeric", "extract(decade from {day})", "extract(century from {moment})", "extract(isoyear from {day})", "mod({numeric}, {numeric})",
        "extract(millisecond from {moment})", "div({numeric}, {numeric})",
    ),
    "float": (
        "({float} + {float})", "({float} - {float})", "({float} * {float})", "({float} / {float})", "abs({float})", "(- {float})",
        "({integer})::float8", "({numeric})::float8", "floor({float})", "ceil({float})", "round({float})", "trunc({float})",
        "coalesce({float}, {float})", "greatest({float}, {float})", "sqrt({float})", "sign({float})", "({float})::float4",
        "date_part('year', {moment})",
    ),
    "string": (
        "({string} || {string})", "lower({string})", "upper({string})", "substring({string} from {small} for {small})", "left({string}, {small})",
        "right({string}, {small})", "trim({string})", "replace({string}, {string}, {string})", "repeat({string}, {small})", "reverse({string})",
        "coalesce({string}, {string})", "({integer})::text", "({numeric})::text", "({boolean})::text", "split_part({string}, ',', {small})",
        "lpad({string}, {small}, {string})", "rpad({string}, {small})", "CASE WHEN {boolean} THEN {string} END", "({string})::varchar(2)",
        "({string})::char(3)", "nullif({string}, {string})", "substring({string} from {small})", "ltrim({string}, 'a ')", "md5({string})",
        "btrim({string}, {string})", "greatest({string}::text, {string})", "overlay({string} placing {string} from {small})", "concat({string}, {integer}, {string})",
        "({day})::text", "({float})::text", "({moment})::text",
    ),
    "boolean": (
        "({integer} {op} {integer})", "({numeric} {op} {numeric})", "({float} {op} {float})", "({string} {op} {string})", "({day} {op} {day})",
        "({moment} {op} {moment})", "({boolean} AND {boolean})", "({boolean} OR {boolean})", "(NOT {boolean})", "({integer} IS NULL)",
        "({string} IS NOT NULL)", "({integer} IN (1, 2, NULL))", "({integer} NOT IN (1, -1, 7))", "({integer} BETWEEN {integer} AND {integer})",
        "({integer} IS DISTINCT FROM {integer})", "({numeric} IS NOT DISTINCT FROM {numeric})", "({boolean} IS TRUE)", "({boolean} IS NOT UNKNOWN)",
        "({string} LIKE 'a%')", "({string} LIKE '%b')", "({string} LIKE 'a_b')", "({string} NOT LIKE '%\\\\%%')", "({string} ILIKE 'A%')", "({integer} {op} {numeric})",
        "({integer} {op} {float})", "({numeric} {op} {float})", "(({integer}, {string}) {order} ({integer}, {string}))", "(({integer}, {day}) = ({integer}, {day}))",
        "({day} {op} {moment})", "({string} IN ('a', 'b', 'é'))", "starts_with({string}, {string})", "(z {op} '2024-02-29 23:59:59.999999+00')",
        "({integer} = ANY (ARRAY[1, 2, {integer}]))", "({integer} <> ALL ('{{1,2}}'))", "coalesce({boolean}, {boolean})", "({string} LIKE 'a!%%' ESCAPE '!')",
    ),
    "day": ("({day} + {small})", "({day} - {small})", "({moment})::date", "coalesce({day}, {day})", "greatest({day}, {day})"),
    "moment": (
        "({day})::timestamp", "date_trunc('hour', {moment})", "date_trunc('month', {moment})", "({moment} + interval '1 month 1 day 01:00:00')",
        "coalesce({moment}, {moment})", "({day} + interval '1 day')", "date_trunc('week', {moment})", "({moment})::timestamp(0)", "least({moment}, {moment})",
    ),
}  # fmt: skip

BASE = Family(
    kinds=(
        Kind("integer", (("s", "int2"), ("i", "int4"), ("l", "int8")), "int4"),
        Kind("numeric", (("n", "numeric"), ("p", "numeric(10,2)")), "numeric"),
        Kind("float", (("f", "float8"), ("g", "float4")), "float8"),
        Kind("string", (("t", "text"), ("v", "varchar(5)"), ("c", "char(4)")), "text"),
        Kind("boolean", (("b", "bool"),), "bool"),
        Kind("day", (("d", "date"),), "date"),
        Kind("moment", (("m", "timestamp"),), "timestamp"),
    ),
    values=VALUES,
    rules=RULES,
    choices={
        "op": ("=", "<>", "<", "<=", ">", ">="),
        "order": ("<", "<=", ">", ">="),
        "small": ("0", "1", "2", "3", "(-1)", "(-2)", "s", "12"),
    },
)
FAMILIES = (BASE, TEXT, MOMENTS, ARRAYS, DOCUMENTS, OCTETS, EDGES)
GRAMMAR = Grammar(FAMILIES)
COLUMNS = GRAMMAR.columns
