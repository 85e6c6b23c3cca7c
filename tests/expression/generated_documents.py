"""The json and jsonb family of generated expressions."""

from __future__ import annotations

from tests.expression.generated_containers import DOCUMENTS as VALUES
from tests.expression.generated_containers import PATHS
from tests.expression.grammar import Family, Kind

NASTY = (
    '{"a": 1, "a": 2}', '{"b": 1, "aa": 2, "b": {"a": null}}', '"a\\u00e9\\ud83d\\ude00"', '{"a": NaN}'.replace("NaN", '"NaN"'), "[1e400]",
    '  { "a" : [ 1 , 2 ] }  ', "-0", "1E+2", '{"": ""}', '"\\n\\t\\"\\\\"', "[true, false, null]", '{"t": true, "n": "12", "f": -1.5e-3}',
)  # fmt: skip
DOCUMENTS = Family(
    kinds=(
        Kind("doc", (("jb", "jsonb"), ("jc", "jsonb")), "jsonb"),
        Kind("json", (("js", "json"),), "json"),
        Kind("path", (("ap", "varchar(20)[]"),), "varchar(20)[]"),
        Kind("key", (("ke", "varchar(3)"),), "varchar(3)"),
    ),
    values={
        "jsonb": VALUES + NASTY,
        "json": VALUES + NASTY,
        "varchar(20)[]": PATHS,
        "varchar(3)": ("a", "b", "", "0", "a b", "é", "aa", "1", "-1", "t", "n"),
    },
    rules={
        "doc": (
            "({doc} -> {key}::text)", "({doc} -> {small}::int4)", "({doc} #> {path}::text[])", "({doc} || {doc})", "({doc} - {key}::text)",
            "({doc} - {small}::int4)", "({doc} - {path}::text[])", "({doc} #- {path}::text[])", "jsonb_set({doc}, {path}::text[], {doc})",
            "jsonb_set({doc}, {path}::text[], {doc}, {boolean})", "jsonb_insert({doc}, {path}::text[], {doc})", "jsonb_strip_nulls({doc})",
            "jsonb_insert({doc}, {path}::text[], {doc}, true)", "to_jsonb({nums})", "to_jsonb({string}::text)", "to_jsonb({integer})",
            "to_jsonb({boolean})", "to_jsonb({numeric})", "to_jsonb({moment})", "to_jsonb({texts})", "jsonb_build_array({doc}, {integer}, {string})",
            "jsonb_build_object({key}, {doc}, 'k', {integer})", "({json})::jsonb", "coalesce({doc}, {doc})", "({doc})[{key}]",
            "jsonb_object({texts})", "({string})::jsonb", "greatest({doc}, {doc})", "CASE WHEN {boolean} THEN {doc} END",
            "jsonb_set_lax({doc}, {path}::text[], {doc})", "nullif({doc}, '{{}}')",
        ),
        "json": (
            "({json} -> {key}::text)", "({json} -> {small}::int4)", "({json} #> {path}::text[])", "to_json({texts})", "to_json({string}::text)",
            "json_build_object({key}, {json}, 'k', {ints})", "json_build_array({integer}, {string}, {json})", "array_to_json({ints})",
            "json_strip_nulls({json})", "({doc})::json", "({string})::json", "coalesce({json}, {json})", "to_json({float})",
        ),
        "string": (
            "({doc} ->> {key}::text)", "({doc} ->> {small}::int4)", "({doc} #>> {path}::text[])", "jsonb_pretty({doc})", "jsonb_typeof({doc})",
            "({json} ->> {key}::text)", "({json} ->> {small}::int4)", "({json} #>> {path}::text[])", "json_typeof({json})", "({doc})::text",
            "({json})::text", "jsonb_extract_path_text({doc}, {key}, 'a')", "(({doc} -> {key}::text) ->> {key}::text)",
        ),
        "integer": ("jsonb_array_length({doc})", "json_array_length({json})", "({doc})::int4", "(({doc} ->> {key}::text))::int4", "({doc})::int8"),
        "numeric": ("({doc})::numeric", "({doc} -> {key}::text)::numeric", "(({json} ->> {key}::text))::numeric"),
        "float": ("({doc})::float8",),
        "boolean": (
            "({doc} {op} {doc})", "({doc} @> {doc})", "({doc} <@ {doc})", "({doc} ? {key}::text)", "({doc} ?| {path}::text[])",
            "({doc} ?& {path}::text[])", "({doc})::bool", "({doc} IS NOT DISTINCT FROM {doc})", "({doc} IS NULL)", "({doc} IN ({doc}, '1'))",
            "(({doc} ->> {key}::text) = {string}::text)", "(({doc} -> {key}::text) = {doc})", "(({doc} ->> {key}::text) IN ('1', 'a'))",
        ),
    },
)  # fmt: skip
