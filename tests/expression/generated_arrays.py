"""The array family of generated expressions: arrays of integers, text and numerics, with any dimensions and lower bounds."""

from __future__ import annotations

from tests.expression.generated_containers import ARRAYS as INTEGERS
from tests.expression.generated_containers import NUMERICS, TEXTS
from tests.expression.grammar import Family, Kind

ARRAYS = Family(
    kinds=(
        Kind("ints", (("ai", "int4[]"), ("aj", "int4[]")), "int4[]"),
        Kind("texts", (("at", "text[]"),), "text[]"),
        Kind("nums", (("an", "numeric[]"),), "numeric[]"),
        Kind("floats", (("af", "float8[]"),), "float8[]"),
        Kind("days", (("ad", "date[]"),), "date[]"),
    ),
    values={
        "int4[]": INTEGERS,
        "text[]": TEXTS,
        "numeric[]": NUMERICS,
        "float8[]": ("{}", "{0,-0}", "{NaN,1}", "{Infinity,-Infinity}", "{1e308,NULL}", "{0.1,0.1}"),
        "date[]": ("{}", "{2024-02-29}", '{"0044-03-15 BC",infinity}', "{1970-01-01,NULL}"),
    },
    rules={
        "ints": (
            "({ints} || {ints})", "({ints} || {integer}::int4)", "({integer}::int4 || {ints})", "array_append({ints}, {integer}::int4)",
            "array_prepend({small}::int4, {ints})", "array_remove({ints}, {small}::int4)", "array_replace({ints}, {small}::int4, {integer}::int4)",
            "array_positions({ints}, {small}::int4)", "({ints})[{small}:{small}]", "({ints})[:{small}]", "({ints})[{small}:][{small}:{small}]",
            "trim_array({ints}, {small})", "ARRAY[{integer}::int4, {small}::int4]", "ARRAY[{ints}, {ints}]", "coalesce({ints}, {ints})",
            "array_cat({ints}, {ints})", "nullif({ints}, {ints})", "({nums})::int4[]", "CASE WHEN {boolean} THEN {ints} ELSE {ints} END",
            "greatest({ints}, {ints})", "array_fill({small}::int4, ARRAY[2, 1])", "({string})::int4[]",
        ),
        "texts": (
            "({texts} || {texts})", "({texts} || {string}::text)", "array_remove({texts}, {string}::text)", "string_to_array({string}, {string})",
            "string_to_array({string}, {string}, {string})", "({ints})::text[]", "array_append({texts}, {string}::text)",
            "ARRAY[{string}::text, {string}::text, NULL]", "({texts})[{small}:{small}]", "regexp_split_to_array({string}, {regex})",
            "({texts})::varchar(1)[]::text[]", "array_replace({texts}, {string}::text, {string}::text)",
        ),
        "nums": (
            "({ints})::numeric[]", "({nums})::numeric(6,1)[]", "({nums} || {numeric})", "ARRAY[{numeric}, {integer}]", "({nums} || {nums})",
            "array_remove({nums}, {numeric})", "({floats})::numeric[]",
        ),
        "floats": ("({nums})::float8[]", "({floats} || {float})", "array_remove({floats}, {float})", "ARRAY[{float}::float8, {integer}]"),
        "days": ("({days} || {day})", "ARRAY[{day}, {day}]", "array_remove({days}, {day})"),
        "integer": (
            "({ints})[{small}]", "({ints})[{small}][{small}]", "array_length({ints}, {small})", "array_lower({ints}, {small})",
            "array_upper({texts}, {small})", "array_ndims({ints})", "cardinality({texts})", "array_position({ints}, {integer}::int4)",
            "array_position({ints}, {small}::int4, {small})", "cardinality({nums})", "array_position({texts}, {string}::text)",
        ),
        "numeric": ("({nums})[{small}]",),
        "float": ("({floats})[{small}]",),
        "day": ("({days})[{small}]",),
        "string": (
            "({texts})[{small}]", "array_dims({ints})", "array_to_string({texts}, {string})", "array_to_string({ints}, ',', '*')",
            "({ints})::text", "({texts})::text", "array_to_string({texts}, ',', {string})", "({floats})::text", "({days})::text",
        ),
        "boolean": (
            "({ints} {op} {ints})", "({texts} {op} {texts})", "({nums} {op} {nums})", "({floats} {op} {floats})", "({ints} && {ints})",
            "({ints} @> {ints})", "({ints} <@ {ints})", "({texts} @> {texts})", "({nums} && {nums})", "({integer}::int4 = ANY ({ints}))",
            "({integer}::int4 {op} ALL ({ints}))", "({string}::text = ANY ({texts}))", "({string}::text <> ALL ({texts}))", "({days} {op} {days})",
            "({numeric} = ANY ({nums}))", "({float}::float8 {op} ANY ({floats}))", "({ints} IS DISTINCT FROM {ints})", "({ints} IS NULL)",
            "({day} = ANY ({days}))", "({texts} IN ({texts}, '{{a}}'))", "(({ints}, {integer}) {order} ({ints}, {integer}))", "({floats} @> {floats})",
        ),
    },
)  # fmt: skip
