"""All implementations by key. Read by the compilers for Spark (`spark.call`), DuckDB (`duckdb.call`) and Arrow (`columnwise`).

Aggregates, window functions and set-returning functions, whose forms are not calls over arguments, are in `AGGREGATES`, by name, and in
`window_function.WINDOW_FUNCTIONS` and `set_returning.SETS`, by key.

Invariant: a key is in only one table.
"""

from __future__ import annotations

from headgate.expression import builtin
from headgate.expression.implementation import array, catalog, comparison, enum_type, json, network, range_type, system
from headgate.expression.implementation.aggregate import collection, ordered_set, reduction, total
from headgate.expression.implementation.aggregate.aggregate import AggregateImplementation
from headgate.expression.implementation.character import bytea, regex, string, text
from headgate.expression.implementation.datetime import extract, formatting, time_of_day, time_zone, timestamp
from headgate.expression.implementation.implementation import Implementation, Table
from headgate.expression.implementation.number import floating_point, integer, money, number_cast, numeric
from headgate.expression.spark import cast

TABLES: tuple[Table, ...] = (
    comparison.IMPLEMENTATIONS, integer.IMPLEMENTATIONS, floating_point.IMPLEMENTATIONS, numeric.IMPLEMENTATIONS, text.IMPLEMENTATIONS,
    regex.IMPLEMENTATIONS, time_of_day.IMPLEMENTATIONS, extract.IMPLEMENTATIONS, timestamp.IMPLEMENTATIONS, time_zone.IMPLEMENTATIONS,
    formatting.IMPLEMENTATIONS, cast.IMPLEMENTATIONS, number_cast.IMPLEMENTATIONS, string.IMPLEMENTATIONS, array.IMPLEMENTATIONS,
    json.IMPLEMENTATIONS, money.IMPLEMENTATIONS, network.IMPLEMENTATIONS, bytea.IMPLEMENTATIONS, system.IMPLEMENTATIONS,
    enum_type.IMPLEMENTATIONS, catalog.IMPLEMENTATIONS, range_type.IMPLEMENTATIONS,
)  # fmt: skip
IMPLEMENTATIONS = {
    key: entry if isinstance(entry, Implementation) else Implementation(entry) for table in TABLES for key, entry in table.items()
}

AGGREGATE_TABLES = (total.AGGREGATES, reduction.AGGREGATES, collection.AGGREGATES, ordered_set.AGGREGATES)
AGGREGATES: dict[str, AggregateImplementation] = {name: entry for table in AGGREGATE_TABLES for name, entry in table.items()}


def gathers(function: int) -> bool:
    """Return whether an aggregate, by its oid, keeps the rows in their input order."""
    implementation = AGGREGATES.get(builtin.function(function).name)
    return implementation is not None and implementation.gathers
