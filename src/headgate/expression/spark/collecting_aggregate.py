"""Aggregates that gather the values of a group, in an order: string_agg, array_agg, json_agg and their like, percentiles, mode.

Called by `aggregate`. The rows of a group become one array of structs, sorted by Spark itself: for each item of ORDER BY its
rank among NULLs and its key (see `comparison.equal_keys`), then the keys of DISTINCT, then the arguments as text.

Where nothing is sorted the texts are gathered bare, and what is joined of them (arrays of scalars, json) is written row by row before: each
list of a group's values beside it is one more time the group in Java's heap, which Spark does not account for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.errors import PostgresError
from headgate.expression.builtin import Function
from headgate.expression.functions import array as arrays
from headgate.expression.functions.json import json_building
from headgate.expression.node import Aggregate, Const, FuncExpr, TypeRef
from headgate.expression.spark import row_value
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import BYTES, DIGITS, FLOAT8, TEXT, Env, Value, arrow_function, fail, refuse, rep_of, settle
from headgate.expression.spark.vectorised import call
from headgate.types import registry
from headgate.types.base.json_text import load, print_value
from headgate.types.text import array

_ODD_ELEMENT = r"""\A\z|[\x09-\x0d "\\{},]|\A(?i:null)\z"""
_COMMA, _NEW_LINE = ", ", ", \n "
Make = Callable[[Env], Column]
Kept = Callable[[Make], Make]


@dataclass(frozen=True)
class Ordering:
    """An item of ORDER BY inside an aggregate: the value, its type, its direction."""

    value: Value
    kind: TypeRef
    descending: bool
    nulls_first: bool


def gathers(name: str) -> bool:
    """Whether `build` knows the aggregate."""
    return name in _BUILDERS


def build(found: Function, node: Aggregate, values: Sequence[Value], order: Sequence[Ordering], kept: Kept) -> Value:
    """The aggregate's Column for `DataFrame.agg`."""
    return _BUILDERS[found.name](_Group(found, node, values, order, kept))


class _Group:
    """The rows of a group for one aggregate call."""

    def __init__(self, found: Function, node: Aggregate, values: Sequence[Value], order: Sequence[Ordering], kept: Kept) -> None:
        self.found = found
        self.node = node
        self.values = values
        self.kinds = [each.type for each in node.args]
        self.order = list(order)
        self.kept = kept

    def _sorting(self) -> list[Ordering]:
        """ORDER BY, and behind it the arguments of DISTINCT, which PostgreSQL sorts to find equal ones."""
        if not self.node.distinct:
            return self.order
        return self.order + [Ordering(value, kind, False, False) for value, kind in zip(self.values, self.kinds, strict=True)]

    def rows(self, items: Sequence[Make], wanted: Make | None = None) -> Make:
        """The array of structs with fields v0, v1, … made by `items`; only rows where `wanted` holds."""
        sorting = self._sorting()
        down = bool(sorting) and sorting[0].descending
        mixed = any(each.descending != down for each in sorting)
        keys = [settle(equal_keys(each.value, each.kind)) for each in sorting]

        def struct(env: Env) -> Column:
            fields = []
            for place, (item, key) in enumerate(zip(sorting, keys, strict=True)):
                made = key(env)
                high, low = (F.lit(1), F.lit(0)) if item.nulls_first == (down if not mixed else False) else (F.lit(0), F.lit(1))
                fields += [F.when(F.isnull(made), high).otherwise(low).alias(f"n{place}"), made.alias(f"k{place}")]
            fields += [item(env).alias(f"v{place}") for place, item in enumerate(items)]
            whole = F.struct(*fields)
            return whole if wanted is None else F.when(wanted(env), whole)

        gathered = self.kept(struct)
        compare = _comparator(sorting)

        def make(env: Env) -> Column:
            found = env.over(F.collect_list(gathered(env)))
            if mixed:
                found = F.array_sort(found, compare)
            elif sorting:
                found = F.sort_array(found, asc=not down)
            return self._once(found) if self.node.distinct else found

        return make

    def _once(self, rows: Column) -> Column:
        """Of neighbours with equal arguments the first.

        Each row meets the one before it as an argument: Spark takes no lambda that holds the rows themselves where Python makes a key.
        """
        first = len(self.order)
        places = range(first, first + len(self.values))

        def differing(row: Column, before: Column) -> Column:
            made = F.isnull(before)
            for place in places:
                made = made | ~row[f"k{place}"].eqNullSafe(before[f"k{place}"])
            return F.when(made, row)

        return F.filter(F.zip_with(rows, F.concat(F.array(F.lit(None)), rows), differing), F.isnotnull)

    def texts(self, item: Make, wanted: Make | None = None) -> Make:
        """The array of the texts that `item` makes, which are not NULL where `wanted` holds."""
        if self._sorting():
            rows = self.rows([item], wanted)
            return lambda env: _texts(rows(env))
        bare = self.kept(item if wanted is None else lambda env: F.when(wanted(env), item(env)))
        return lambda env: env.over(F.collect_list(bare(env)))

    def item(self, place: int = 0) -> Make:
        """An argument as text."""
        return settle(as_item(self.values[place], self.kinds[place]))


def _comparator(sorting: Sequence[Ordering]) -> Callable[[Column, Column], Column]:
    def compare(left: Column, right: Column) -> Column:
        made: Any = None
        for place, item in enumerate(sorting):
            less, more = (F.lit(1), F.lit(-1)) if item.descending else (F.lit(-1), F.lit(1))
            for name, one, other in ((f"n{place}", F.lit(-1), F.lit(1)), (f"k{place}", less, more)):
                chain = F if made is None else made
                made = chain.when(left[name] < right[name], one).when(left[name] > right[name], other)
        column: Column = made.otherwise(F.lit(0))
        return column

    return compare


def _texts(rows: Column, place: int = 0) -> Column:
    return F.transform(rows, lambda row: row[f"v{place}"])


def _of_lists(function: Callable[..., str | None], *given: Any) -> Callable[..., Column]:
    """A Python function over lists of texts, one list (or more) a group; errors in-band."""

    def run(*columns: pa.Array) -> pa.Array:
        return pa.array([_one(function, given, row) for row in zip(*(each.to_pylist() for each in columns), strict=True)], pa.string())

    run.__name__ = function.__name__
    return arrow_function(run, StringType())


def _one(function: Callable[..., str | None], given: tuple[Any, ...], row: tuple[Any, ...]) -> str | None:
    try:
        return None if row[0] is None else function(*given, *row)
    except PostgresError as error:
        return fail(error)


def _gathered(group: _Group, function: Callable[..., str | None], *given: Any, items: Sequence[Make] | None = None) -> Value:
    """A text made of the gathered values; NULL for a group without rows."""
    makes = [group.item(place) for place in range(len(group.values))] if items is None else items
    rows = group.rows(makes)

    def make(env: Env) -> Column:
        found = rows(env)
        some = F.when(F.size(found) > 0, found)
        return _of_lists(function, *given)(*(_texts(some, place) for place in range(len(makes))))

    return Value(TEXT, settle(Value(TEXT, make, fallible=True)))


def _string(group: _Group) -> Value:
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


def _array(group: _Group) -> Value:
    if registry.by_oid(group.kinds[0].oid).is_array:
        return _gathered(group, stacked)
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


def stacked(items: list[str | None]) -> str:
    """array_agg of arrays."""
    if None in items:
        raise PostgresError("22004", "cannot accumulate null arrays")
    shapes = [array.parts(each or "{}")[0] for each in items]
    if any(not each.lengths for each in shapes):
        raise PostgresError("2202E", "cannot accumulate empty arrays")
    if any(list(each.lengths) != list(shapes[0].lengths) for each in shapes):
        raise PostgresError("2202E", "cannot accumulate arrays of different dimensionality")
    return arrays.nested(items)


def json_item(oid: int, item: str | None) -> str:
    """A value in json_agg: structured ones begin a new line, which the first of all has not."""
    structured = registry.builtin().find(oid) is None or registry.by_oid(oid).is_array or oid == registry.RECORD
    return (_NEW_LINE if structured and item is not None else _COMMA) + json_building.to_json(oid, item)


def jsonb_item(oid: int, item: str | None) -> str:
    """A value in jsonb_agg."""
    return print_value(None if item is None else load(json_building.to_json(oid, item)))


def json_pair(key: int, oid: int, name: str | None, item: str | None) -> str:
    """A field in json_object_agg."""
    if name is None:
        raise PostgresError("22023", "field name must not be null")
    return f"{json_building.key_text(key, name)} : {json_building.to_json(oid, item)}"


def jsonb_pairs(key: int, oid: int, keys: list[str | None], items: list[str | None]) -> str:
    """jsonb_object_agg."""
    if None in keys:
        raise PostgresError("22023", "field name must not be null")
    names = (load(json_building.key_text(key, name or "")) for name in keys)
    return print_value({name: load(json_building.to_json(oid, item)) for name, item in zip(names, items, strict=True)})


def _documents(group: _Group) -> tuple[list[Value], tuple[int, ...]]:
    """The arguments as json functions take them, and their types."""
    items = [row_value.document(value, kind) for value, kind in zip(group.values, group.kinds, strict=True)]
    return items, tuple(json_building.writable(each.oid) for each in group.kinds)


def _written(function: Callable[..., str], opening: str, between: str, closing: str) -> Callable[[_Group], Value]:
    """What is written row by row and joined."""

    def builder(group: _Group) -> Value:
        items, oids = _documents(group)
        texts = group.texts(settle(call(function, TEXT, items, given=oids, strict=False)))
        return Value(TEXT, lambda env: _between(texts(env), opening, between, closing))

    return builder


def _json_list(group: _Group) -> Value:
    items, oids = _documents(group)
    texts = group.texts(settle(call(json_item, TEXT, items, given=oids, strict=False)))

    def make(env: Env) -> Column:
        shown = _between(texts(env), "", "", "")
        begin = F.when(shown.startswith(_NEW_LINE), len(_NEW_LINE) + 1).otherwise(len(_COMMA) + 1)
        return F.concat(F.lit("["), F.substring(shown, begin, F.lit(2**31 - 1)), F.lit("]"))

    return Value(TEXT, make)


def _jsonb_pairs(group: _Group) -> Value:
    items, oids = _documents(group)
    return _gathered(group, jsonb_pairs, *oids, items=[settle(each) for each in items])


def _percentile(group: _Group, *, continuous: bool) -> Value:
    """percentile_cont over double precision and percentile_disc of any type: NULL values do not count."""
    written = group.node.args[0]
    while isinstance(written, FuncExpr) and len(written.args) == 1:
        written = written.args[0]
    if group.kinds[0].oid != registry.FLOAT8 or not isinstance(written, Const) or written.value is None:
        raise refuse(f"{group.found.name} with anything but one constant fraction")
    fraction = float(written.value)
    if not 0 <= fraction <= 1:
        raise PostgresError("22003", f"percentile value {fraction:g} is not between 0 and 1")
    wanted = group.order[0]
    if continuous and wanted.kind.oid != registry.FLOAT8:
        raise refuse("percentile_cont of intervals")
    value = settle(wanted.value)
    rows = group.rows([value], lambda env: F.isnotnull(value(env)))

    def make(env: Env) -> Column:
        found = rows(env)
        size = F.size(found)
        if not continuous:
            place = F.greatest(F.ceil(F.lit(fraction) * size).cast("int") - 1, F.lit(0))
            return F.get(_texts(found), place)
        position = F.lit(fraction) * (size - 1)
        low = F.floor(position).cast("int")
        below, above = F.get(_texts(found), low), F.get(_texts(found), F.ceil(position).cast("int"))
        exact = F.when(F.ceil(position) == low, below).otherwise(below + (position - low) * (above - below))
        return F.when(size > 0, exact)

    return Value(FLOAT8 if continuous else wanted.value.rep, make)


def _mode(group: _Group) -> Value:
    """mode(): the most frequent value, the first in the order among equals."""
    wanted = group.order[0]
    item, key = settle(as_item(wanted.value, wanted.kind)), settle(equal_keys(wanted.value, wanted.kind))
    rows = group.rows([item, key], lambda env: F.isnotnull(key(env)))
    oid = wanted.kind.oid
    rep = DIGITS if oid == registry.NUMERIC else rep_of(oid)
    if rep.name not in ("text", "digits", "int2", "int4", "int8", "bool", "float8"):
        raise refuse(f"mode of {registry.format_type(oid)}")

    def make(env: Env) -> Column:
        found = rows(env)
        shown = _of_lists(most_frequent)(
            _texts(found),
            F.transform(found, lambda row: F.hex(row["v1"].cast("binary")) if wanted.value.rep == BYTES else row["v1"].cast("string")),
        )
        return (
            shown
            if rep.name in ("text", "digits")
            else shown.cast({"int2": "smallint", "int4": "int", "int8": "bigint", "bool": "boolean", "float8": "double"}[rep.name])
        )

    return Value(rep, make)


def most_frequent(items: list[str], keys: list[str]) -> str | None:
    """The first item of the longest run of equal keys."""
    best, best_run, start = None, 0, 0
    for place in range(1, len(keys) + 1):
        if place == len(keys) or keys[place] != keys[start]:
            if place - start > best_run:
                best, best_run = items[start], place - start
            start = place
    return best


_BUILDERS: dict[str, Callable[[_Group], Value]] = {
    "string_agg": _string,
    "array_agg": _array,
    "json_agg": _json_list,
    "jsonb_agg": _written(jsonb_item, "[", ", ", "]"),
    "json_object_agg": _written(json_pair, "{ ", ", ", " }"),
    "jsonb_object_agg": _jsonb_pairs,
    "percentile_cont": lambda group: _percentile(group, continuous=True),
    "percentile_disc": lambda group: _percentile(group, continuous=False),
    "mode": _mode,
}
ORDERED_SETS = frozenset({"percentile_cont", "percentile_disc", "mode"})
