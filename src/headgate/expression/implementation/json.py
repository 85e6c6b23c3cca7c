"""json and jsonb: operators, functions and casts over their text forms (see `functions.json.jsonb`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression.duckdb import json as duckdb
from headgate.expression.functions import array, numeric
from headgate.expression.functions.json import json, json_building, jsonb, jsonb_modification
from headgate.expression.implementation import comparison
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table
from headgate.expression.node import Expression, FuncExpr
from headgate.expression.spark import row_value
from headgate.expression.spark.value import BOOL, DIGITS, FLOAT8, INT2, INT4, INT8, TEXT, Value, refuse
from headgate.expression.spark.vectorised import call, scalar
from headgate.types import registry
from headgate.types.base.json_text import print_value


def _to_integer(bits: int, target: str, text: str) -> int:
    return int(numeric.to_integer(jsonb.to_numeric(target, text), bits))


def _to_double(text: str) -> float:
    return float(numeric.to_double(jsonb.to_numeric("double precision", text)))


def _integer(bits: int, target: str) -> SparkForm:
    rep = {16: INT2, 32: INT4, 64: INT8}[bits]
    return scalar(_to_integer, rep, prefix=(bits, target))


def _part(get: Callable[..., object], show: Callable[..., str | None]) -> SparkForm:
    return scalar(jsonb.part, TEXT, prefix=(get, show), raises=False)


def _at(text: str, *steps: str | int) -> str | None:
    return jsonb.part(jsonb.at_path, print_value, text, array.written([str(step) for step in steps]))


def subscripted(document: Value, steps: Sequence[Value | None]) -> Value:
    """Compile ``jsonb['a']['b']``, which is #> with these steps."""
    return call(_at, TEXT, [document, *(step for step in steps if step is not None)], raises=False)


def _built(function: Callable[..., str]) -> SparkForm:
    """Return the form of a function of values of any types, which is called with their types first."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        assert isinstance(node, FuncExpr)
        if node.variadic:
            raise refuse("VARIADIC arguments of a function of any types")
        oids = tuple(json_building.writable(arg.type.oid) for arg in node.args)
        items = [row_value.document(value, arg.type) for value, arg in zip(args, node.args, strict=True)]
        return call(function, TEXT, items, prefix=(oids,), strict=False)

    return builder


def _of_any_type(function: Callable[..., str]) -> SparkForm:
    """Return the form of a strict function of one value of any type, and optionally a flag."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        assert isinstance(node, FuncExpr)
        kind = node.args[0].type
        return call(function, TEXT, [row_value.document(args[0], kind), *args[1:]], prefix=(json_building.writable(kind.oid),))

    return builder


IMPLEMENTATIONS: Table = {
    **comparison.of_texts("jsonb", registry.JSONB),
    "jsonb_object_field": _part(jsonb.field, print_value),
    "jsonb_object_field_text": _part(jsonb.field, jsonb.text_of),
    "jsonb_array_element": _part(jsonb.element, print_value),
    "jsonb_array_element_text": _part(jsonb.element, jsonb.text_of),
    "jsonb_extract_path": _part(jsonb.at_path, print_value),
    "jsonb_extract_path_text": _part(jsonb.at_path, jsonb.text_of),
    "jsonb_typeof": scalar(jsonb.typeof, TEXT, raises=False),
    "jsonb_array_length": scalar(jsonb.array_length, INT4),
    "jsonb_contains": scalar(jsonb.contains, BOOL, raises=False),
    "jsonb_contained": scalar(jsonb.contains, BOOL, flipped=True, raises=False),
    "jsonb_exists": scalar(jsonb.exists, BOOL, raises=False),
    "jsonb_exists_any": scalar(jsonb.exist, BOOL, prefix=(any,), raises=False),
    "jsonb_exists_all": scalar(jsonb.exist, BOOL, prefix=(all,), raises=False),
    "jsonb_concat": scalar(jsonb_modification.concatenate, TEXT),
    "jsonb_delete": scalar(jsonb_modification.delete, TEXT),
    "jsonb_delete_idx": scalar(jsonb_modification.delete_element, TEXT),
    "jsonb_delete_array": scalar(jsonb_modification.delete_all, TEXT),
    "jsonb_delete_path": scalar(jsonb_modification.delete_path, TEXT),
    "jsonb_set": scalar(jsonb_modification.replaced, TEXT),
    "jsonb_set_lax": scalar(jsonb_modification.set_lax, TEXT, strict=False),
    "jsonb_insert": scalar(jsonb_modification.inserted, TEXT),
    "jsonb_strip_nulls": scalar(jsonb_modification.strip_nulls, TEXT, raises=False),
    "jsonb_pretty": scalar(jsonb.pretty, TEXT, raises=False),
    "jsonb_object": scalar(json_building.object_of, TEXT),
    "jsonb_object_two_arg": scalar(json_building.object_of_two, TEXT),
    "jsonb_bool": scalar(jsonb.to_boolean, BOOL),
    "jsonb_numeric": scalar(jsonb.to_numeric, DIGITS, prefix=("numeric",)),
    "jsonb_int2": _integer(16, "smallint"),
    "jsonb_int4": _integer(32, "integer"),
    "jsonb_int8": _integer(64, "bigint"),
    "jsonb_float8": scalar(_to_double, FLOAT8),
    "to_json": Implementation(_of_any_type(json_building.to_json), duckdb=duckdb.single),
    "to_jsonb": _of_any_type(json_building.to_jsonb),
    "array_to_json": _of_any_type(json_building.array_to_json),
    "array_to_json_pretty": _of_any_type(json_building.array_to_json),
    "row_to_json": _of_any_type(json_building.to_json),
    "json_build_array": Implementation(_built(json_building.build_array), duckdb=duckdb.built_array),
    "json_build_array_noargs": Implementation(_built(json_building.build_array), duckdb="'[]'"),
    "jsonb_build_array": _built(json_building.build_array_binary),
    "jsonb_build_array_noargs": _built(json_building.build_array_binary),
    "json_build_object": Implementation(_built(json_building.build_object), duckdb=duckdb.built_object),
    "json_build_object_noargs": Implementation(_built(json_building.build_object), duckdb="'{}'"),
    "jsonb_build_object": _built(json_building.build_object_binary),
    "jsonb_build_object_noargs": _built(json_building.build_object_binary),
    "json_object_field": scalar(json.field, TEXT, raises=False),
    "json_object_field_text": scalar(json.bare_part, TEXT, prefix=(json.field,), raises=False),
    "json_array_element": scalar(json.element, TEXT, raises=False),
    "json_array_element_text": scalar(json.bare_part, TEXT, prefix=(json.element,), raises=False),
    "json_extract_path": scalar(json.at_path, TEXT, raises=False),
    "json_extract_path_text": scalar(json.bare_part, TEXT, prefix=(json.at_path,), raises=False),
    "json_typeof": scalar(json.typeof, TEXT, raises=False),
    "json_array_length": scalar(json.array_length, INT4),
    "json_strip_nulls": scalar(json.strip_nulls, TEXT, raises=False),
}
