"""Aggregates that collect the values of a group in an order: string_agg, array_agg, json_agg and similar (manual, 9.21)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression import node as n
from headgate.expression.duckdb import json as duckdb_json
from headgate.expression.duckdb.value import Env as DuckdbEnv
from headgate.expression.duckdb.value import element_of, refuse
from headgate.expression.functions import aggregate
from headgate.expression.functions import range as ranges
from headgate.expression.functions.json import json_building
from headgate.expression.implementation.aggregate.aggregate import AggregateImplementation, DuckdbCall
from headgate.expression.spark import row_value
from headgate.expression.spark.aggregate_call import AggregateCall, texts_of
from headgate.expression.spark.value import BYTES, TEXT, Env, Make, Value, settle
from headgate.expression.spark.vectorised import call, of_lists
from headgate.types import registry

_ODD_ELEMENT = r"""\A\z|[\x09-\x0d "\\{},]|\A(?i:null)\z"""


def _of_collected(group: AggregateCall, function: Callable[..., str | None], *prefix: object, items: Sequence[Make] | None = None) -> Value:
    """Return a text built from the collected values, or NULL for a group without rows."""
    makes = [group.item(place) for place in range(len(group.values))] if items is None else items
    rows = group.rows(makes)

    def make(env: Env) -> Column:
        collected = rows(env)
        non_empty = F.when(F.size(collected) > 0, collected)
        return of_lists(function, *prefix)(*(texts_of(non_empty, place) for place in range(len(makes))))

    return Value(TEXT, settle(Value(TEXT, make, fallible=True)))


def _string(group: AggregateCall) -> Value:
    """Return string_agg. NULL values are skipped. Each value except the first is preceded by its own delimiter."""
    value, delimiter = group.values[0].make, group.values[1]
    octets = group.values[0].rep == BYTES
    if delimiter.constant is not None and not octets:
        texts = group.texts(value, lambda env: F.isnotnull(value(env)))
        return Value(group.values[0].rep, lambda env: _between(texts(env), "", str(delimiter.constant), ""))
    rows = group.rows([value, delimiter.make], lambda env: F.isnotnull(value(env)))

    def make(env: Env) -> Column:
        collected = rows(env)
        empty = F.lit(b"") if octets else F.lit("")
        parts = F.transform(
            collected, lambda row, index: F.when(index == 0, row["v0"]).otherwise(F.concat(F.coalesce(row["v1"], empty), row["v0"]))
        )
        text = F.aggregate(parts, empty, _concat) if octets else F.array_join(parts, "")
        return F.when(F.size(collected) > 0, text)

    return Value(group.values[0].rep, make)


def _concat(whole: Column, part: Column) -> Column:
    return F.concat(whole, part)


def _array(group: AggregateCall) -> Value:
    if registry.by_oid(group.kinds[0].oid).is_array:
        return _of_collected(group, aggregate.stacked)
    item = group.item()
    texts = group.texts(lambda env: _quote(item(env)))
    return Value(TEXT, lambda env: _between(texts(env), "{", ",", "}"))


def _between(texts: Column, opening: str, between: str, closing: str) -> Column:
    """Join the texts, or return NULL if there are none."""
    text = F.array_join(texts, between)
    return F.when(F.size(texts) > 0, F.concat(F.lit(opening), text, F.lit(closing)) if opening else text)


def _quote(item: Column) -> Column:
    """Return an element as array_out prints it (`types.array.quoted`)."""
    escaped = F.replace(F.replace(item, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    odd = item.rlike(_ODD_ELEMENT)
    return F.when(F.isnull(item), "NULL").when(odd, F.concat(F.lit('"'), escaped, F.lit('"'))).otherwise(item)


def _documents(group: AggregateCall) -> tuple[list[Value], tuple[int, ...]]:
    """Return the arguments in the form that the json functions expect, and their types."""
    items = [row_value.document(value, kind) for value, kind in zip(group.values, group.kinds, strict=True)]
    return items, tuple(json_building.writable(argument_kind.oid) for argument_kind in group.kinds)


def _of_printed_items(function: Callable[..., str], opening: str, closing: str) -> Callable[[AggregateCall], Value]:
    """Return the form of an aggregate whose items are printed row by row and then joined."""

    def builder(group: AggregateCall) -> Value:
        items, oids = _documents(group)
        texts = group.texts(settle(call(function, TEXT, items, prefix=oids, strict=False)))
        return Value(TEXT, lambda env: _between(texts(env), opening, ", ", closing))

    return builder


def _json_list(group: AggregateCall) -> Value:
    items, oids = _documents(group)
    texts = group.texts(settle(call(aggregate.json_item, TEXT, items, prefix=oids, strict=False)))

    def make(env: Env) -> Column:
        text = _between(texts(env), "", "", "")
        begin = F.when(text.startswith(aggregate.NEW_LINE), len(aggregate.NEW_LINE) + 1).otherwise(len(aggregate.COMMA) + 1)
        return F.concat(F.lit("["), F.substring(text, begin, F.lit(2**31 - 1)), F.lit("]"))

    return Value(TEXT, make)


def _jsonb_pairs(group: AggregateCall) -> Value:
    items, oids = _documents(group)
    return _of_collected(group, aggregate.jsonb_pairs, *oids, items=[settle(item) for item in items])


def _duckdb_string(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
    value, delimiter = node.args
    is_constant = isinstance(delimiter, n.Const)
    if value.type.oid != registry.TEXT or (node.distinct and not is_constant):
        return None
    if not isinstance(delimiter, (n.Const, n.Param)):
        raise refuse("string_agg with a delimiter that is not a constant", node)
    delimiter_sql = args[1] if isinstance(delimiter, n.Const) and delimiter.value is not None else f"coalesce({args[1]}, '')"
    return DuckdbCall("string_agg", f"{args[0]}, {delimiter_sql}")


def _duckdb_array(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
    return DuckdbCall("list", args[0]) if element_of(node.args[0].type.oid) is None else None


def _duckdb_json(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
    if node.distinct:
        return None
    return DuckdbCall("string_agg", f"{duckdb_json.value(node.args[0], args[0], env)}, ', '", "('[' || {} || ']')")


def _ranges(function: Callable[..., str | None], results: Mapping[int, int]) -> Callable[[AggregateCall], Value]:
    """Return the form of an aggregate of ranges or multiranges. `results` are the types of its result that differ from the argument's."""

    def build(group: AggregateCall) -> Value:
        oid = group.kinds[0].oid
        return _of_collected(group, function, oid, results.get(oid, oid))

    return build


def _gathering(
    spark: Callable[[AggregateCall], Value], duckdb: Callable[[n.Aggregate, Sequence[str], DuckdbEnv], DuckdbCall | None] | None = None
) -> AggregateImplementation:
    return AggregateImplementation(spark, duckdb=duckdb, gathers=True)


AGGREGATES = {
    "string_agg": _gathering(_string, _duckdb_string),
    "array_agg": _gathering(_array, _duckdb_array),
    "json_agg": _gathering(_json_list, _duckdb_json),
    "jsonb_agg": _gathering(_of_printed_items(aggregate.jsonb_item, "[", "]")),
    "json_object_agg": _gathering(_of_printed_items(aggregate.json_pair, "{ ", " }")),
    "jsonb_object_agg": _gathering(_jsonb_pairs),
    "range_agg": _gathering(_ranges(ranges.range_agg, registry.MULTIRANGES)),
    "range_intersect_agg": _gathering(_ranges(ranges.range_intersect_agg, {})),
}
