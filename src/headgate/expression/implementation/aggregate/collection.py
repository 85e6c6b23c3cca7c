"""Aggregates that gather the values of a group, in an order: string_agg, array_agg, json_agg and their like (manual, 9.21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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


def _gathered(group: AggregateCall, function: Callable[..., str | None], *given: Any, items: Sequence[Make] | None = None) -> Value:
    """A text made of the gathered values; NULL for a group without rows."""
    makes = [group.item(place) for place in range(len(group.values))] if items is None else items
    rows = group.rows(makes)

    def make(env: Env) -> Column:
        found = rows(env)
        some = F.when(F.size(found) > 0, found)
        return of_lists(function, *given)(*(texts_of(some, place) for place in range(len(makes))))

    return Value(TEXT, settle(Value(TEXT, make, fallible=True)))


def _string(group: AggregateCall) -> Value:
    """string_agg: NULL values are left out; each value but the first has its own delimiter before it."""
    value, delimiter = group.values[0].make, group.values[1]
    octets = group.values[0].rep == BYTES
    if delimiter.constant is not None and not octets:
        texts = group.texts(value, lambda env: F.isnotnull(value(env)))
        return Value(group.values[0].rep, lambda env: _between(texts(env), "", str(delimiter.constant), ""))
    rows = group.rows([value, delimiter.make], lambda env: F.isnotnull(value(env)))

    def make(env: Env) -> Column:
        found = rows(env)
        nothing = F.lit(b"") if octets else F.lit("")
        parts = F.transform(
            found, lambda row, index: F.when(index == 0, row["v0"]).otherwise(F.concat(F.coalesce(row["v1"], nothing), row["v0"]))
        )
        shown = F.aggregate(parts, nothing, _joined) if octets else F.array_join(parts, "")
        return F.when(F.size(found) > 0, shown)

    return Value(group.values[0].rep, make)


def _joined(whole: Column, part: Column) -> Column:
    return F.concat(whole, part)


def _array(group: AggregateCall) -> Value:
    if registry.by_oid(group.kinds[0].oid).is_array:
        return _gathered(group, aggregate.stacked)
    item = group.item()
    texts = group.texts(lambda env: _quoted(item(env)))
    return Value(TEXT, lambda env: _between(texts(env), "{", ",", "}"))


def _between(texts: Column, opening: str, between: str, closing: str) -> Column:
    """The texts in one, NULL for none."""
    shown = F.array_join(texts, between)
    return F.when(F.size(texts) > 0, F.concat(F.lit(opening), shown, F.lit(closing)) if opening else shown)


def _quoted(item: Column) -> Column:
    """An element as array_out prints it (`types.array.quoted`)."""
    escaped = F.replace(F.replace(item, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    odd = item.rlike(_ODD_ELEMENT)
    return F.when(F.isnull(item), "NULL").when(odd, F.concat(F.lit('"'), escaped, F.lit('"'))).otherwise(item)


def _documents(group: AggregateCall) -> tuple[list[Value], tuple[int, ...]]:
    """The arguments as json functions take them, and their types."""
    items = [row_value.document(value, kind) for value, kind in zip(group.values, group.kinds, strict=True)]
    return items, tuple(json_building.writable(each.oid) for each in group.kinds)


def _written(function: Callable[..., str], opening: str, between: str, closing: str) -> Callable[[AggregateCall], Value]:
    """What is written row by row and joined."""

    def builder(group: AggregateCall) -> Value:
        items, oids = _documents(group)
        texts = group.texts(settle(call(function, TEXT, items, given=oids, strict=False)))
        return Value(TEXT, lambda env: _between(texts(env), opening, between, closing))

    return builder


def _json_list(group: AggregateCall) -> Value:
    items, oids = _documents(group)
    texts = group.texts(settle(call(aggregate.json_item, TEXT, items, given=oids, strict=False)))

    def make(env: Env) -> Column:
        shown = _between(texts(env), "", "", "")
        begin = F.when(shown.startswith(aggregate.NEW_LINE), len(aggregate.NEW_LINE) + 1).otherwise(len(aggregate.COMMA) + 1)
        return F.concat(F.lit("["), F.substring(shown, begin, F.lit(2**31 - 1)), F.lit("]"))

    return Value(TEXT, make)


def _jsonb_pairs(group: AggregateCall) -> Value:
    items, oids = _documents(group)
    return _gathered(group, aggregate.jsonb_pairs, *oids, items=[settle(each) for each in items])


def _duckdb_string(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
    value, delimiter = node.args
    constant = isinstance(delimiter, n.Const)
    if value.type.oid != registry.TEXT or (node.distinct and not constant):
        return None
    if not isinstance(delimiter, (n.Const, n.Param)):
        raise refuse("string_agg with a delimiter that is no constant", node)
    written = args[1] if isinstance(delimiter, n.Const) and delimiter.value is not None else f"coalesce({args[1]}, '')"
    return DuckdbCall("string_agg", f"{args[0]}, {written}")


def _duckdb_array(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
    return DuckdbCall("list", args[0]) if element_of(node.args[0].type.oid) is None else None


def _duckdb_json(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
    if node.distinct:
        return None
    return DuckdbCall("string_agg", f"{duckdb_json.value(node.args[0], args[0], env)}, ', '", "('[' || {} || ']')")


def _ranges(function: Callable[..., str | None]) -> Callable[[AggregateCall], Value]:
    def build(group: AggregateCall) -> Value:
        oid = group.kinds[0].oid
        multirange = registry.MULTIRANGES.get(oid, oid)
        return _gathered(group, function, oid, multirange if function is ranges.range_agg else oid)

    return build


def _gathering(
    spark: Callable[[AggregateCall], Value], duckdb: Callable[[n.Aggregate, Sequence[str], DuckdbEnv], DuckdbCall | None] | None = None
) -> AggregateImplementation:
    return AggregateImplementation(spark, duckdb=duckdb, gathers=True)


AGGREGATES = {
    "string_agg": _gathering(_string, _duckdb_string),
    "array_agg": _gathering(_array, _duckdb_array),
    "json_agg": _gathering(_json_list, _duckdb_json),
    "jsonb_agg": _gathering(_written(aggregate.jsonb_item, "[", ", ", "]")),
    "json_object_agg": _gathering(_written(aggregate.json_pair, "{ ", ", ", " }")),
    "jsonb_object_agg": _gathering(_jsonb_pairs),
    "range_agg": _gathering(_ranges(ranges.range_agg)),
    "range_intersect_agg": _gathering(_ranges(ranges.range_intersect_agg)),
}
