"""Aggregates that gather the values of a group, in an order: string_agg, array_agg, json_agg and their like, percentiles, mode.

Called by `aggregate`. The rows of a group become one array of structs, sorted by Spark itself: for each item of ORDER BY its
rank among NULLs and its key (see `comparison.equal_keys`), then the keys of DISTINCT, then the arguments as text.
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
from headgate.types import registry
from headgate.types.text import array
from headgate.types.text.json_text import load, print_value

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
        """Of neighbours with equal arguments the first."""
        first = len(self.order)
        places = range(first, first + len(self.values))

        def differs(row: Column, index: Column) -> Column:
            before = F.get(rows, index - 1)
            made = F.lit(False)
            for place in places:
                made = made | ~row[f"k{place}"].eqNullSafe(before[f"k{place}"])
            return (index == 0) | made

        return F.filter(rows, differs)

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
    rows = group.rows([value, delimiter.make], lambda env: F.isnotnull(value(env)))
    octets = group.values[0].rep == BYTES

    def make(env: Env) -> Column:
        found = rows(env)
        if delimiter.constant is not None and not octets:
            shown = F.array_join(_texts(found), delimiter.constant)
        else:
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
    return _gathered(group, listed)


def listed(items: list[str | None]) -> str:
    """array_agg of scalars."""
    return arrays.written(items)


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


def json_list(oid: int, items: list[str | None]) -> str:
    """json_agg: structured values begin a new line."""
    between = ", \n " if registry.builtin().find(oid) is None or registry.by_oid(oid).is_array or oid == registry.RECORD else ", "
    shown = [json_building.to_json(oid, each) for each in items]
    parts = [shown[0], *((", " if raw is None else between) + each for each, raw in zip(shown[1:], items[1:], strict=True))]
    return "[" + "".join(parts) + "]"


def jsonb_list(oid: int, items: list[str | None]) -> str:
    """jsonb_agg."""
    return print_value([None if each is None else load(json_building.to_json(oid, each)) for each in items])


def json_pairs(key: int, oid: int, keys: list[str | None], items: list[str | None]) -> str:
    """json_object_agg."""
    if None in keys:
        raise PostgresError("22023", "field name must not be null")
    pairs = zip(keys, items, strict=True)
    shown = (f"{json_building.key_text(key, name or '')} : {json_building.to_json(oid, item)}" for name, item in pairs)
    return "{ " + ", ".join(shown) + " }"


def jsonb_pairs(key: int, oid: int, keys: list[str | None], items: list[str | None]) -> str:
    """jsonb_object_agg."""
    if None in keys:
        raise PostgresError("22023", "field name must not be null")
    names = (load(json_building.key_text(key, name or "")) for name in keys)
    return print_value({name: load(json_building.to_json(oid, item)) for name, item in zip(names, items, strict=True)})


def _documents(function: Callable[..., str]) -> Callable[[_Group], Value]:
    def builder(group: _Group) -> Value:
        items = [settle(row_value.document(value, kind)) for value, kind in zip(group.values, group.kinds, strict=True)]
        return _gathered(group, function, *(json_building.writable(each.oid) for each in group.kinds), items=items)

    return builder


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
    "json_agg": _documents(json_list),
    "jsonb_agg": _documents(jsonb_list),
    "json_object_agg": _documents(json_pairs),
    "jsonb_object_agg": _documents(jsonb_pairs),
    "percentile_cont": lambda group: _percentile(group, continuous=True),
    "percentile_disc": lambda group: _percentile(group, continuous=False),
    "mode": _mode,
}
ORDERED_SETS = frozenset({"percentile_cont", "percentile_disc", "mode"})
