"""All implementations by key. Read by the compilers for Spark (`spark.call`), DuckDB (`duckdb.call`) and Arrow (`columnwise`).

What must hold: a key stands in one table.
"""

from __future__ import annotations

from headgate.expression.implementation import (
    array,
    bytea,
    catalog,
    comparison,
    enum_type,
    floating_point,
    integer,
    json,
    money,
    network,
    number_cast,
    numeric,
    regex,
    string,
    system,
    text,
)
from headgate.expression.implementation.datetime import extract, formatting, time_of_day, time_zone, timestamp
from headgate.expression.implementation.implementation import Implementation, Table
from headgate.expression.spark import cast

TABLES: tuple[Table, ...] = (
    comparison.IMPLEMENTATIONS, integer.IMPLEMENTATIONS, floating_point.IMPLEMENTATIONS, numeric.IMPLEMENTATIONS, text.IMPLEMENTATIONS,
    regex.IMPLEMENTATIONS, time_of_day.IMPLEMENTATIONS, extract.IMPLEMENTATIONS, timestamp.IMPLEMENTATIONS, time_zone.IMPLEMENTATIONS,
    formatting.IMPLEMENTATIONS, cast.IMPLEMENTATIONS, number_cast.IMPLEMENTATIONS, string.IMPLEMENTATIONS, array.IMPLEMENTATIONS,
    json.IMPLEMENTATIONS, money.IMPLEMENTATIONS, network.IMPLEMENTATIONS, bytea.IMPLEMENTATIONS, system.IMPLEMENTATIONS,
    enum_type.IMPLEMENTATIONS, catalog.IMPLEMENTATIONS,
)  # fmt: skip
IMPLEMENTATIONS = {
    key: each if isinstance(each, Implementation) else Implementation(each) for table in TABLES for key, each in table.items()
}
