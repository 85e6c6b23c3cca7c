"""Convert rows of Python values to an Arrow table that DuckDB can scan, by PostgreSQL's column types."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa

from headgate.catalog.physical import duckdb_type
from headgate.catalog.system_view import SystemColumn
from headgate.types import registry

_ARROW = {
    "BOOLEAN": pa.bool_(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "UINTEGER": pa.uint32(), "UBIGINT": pa.uint64(), "TIMESTAMP": pa.timestamp("us"), "DATE": pa.date32(), "INTERVAL": pa.duration("us"),
    "VARCHAR": pa.string(), "DECIMAL(38,10)": pa.float64(), "TIME": pa.time64("us"),
    "BLOB": pa.binary(),
}  # fmt: skip


def arrow_table(columns: Sequence[SystemColumn], rows: Sequence[Sequence[object]]) -> pa.Table:
    """Return the rows as columns c1, c2, … in the types in which DuckDB computes them."""
    arrays = []
    for index, column in enumerate(columns):
        kind = arrow_type(column.type_oid)
        arrays.append(pa.array([_as_stored(row[index], kind) for row in rows], kind))
    return pa.table(arrays, names=[f"c{number}" for number in range(1, len(columns) + 1)])


def arrow_type(type_oid: int) -> pa.DataType:
    """Return the Arrow type that DuckDB reads as `duckdb_type`. numeric is text, because it may have more digits than DuckDB's decimals."""
    if type_oid == registry.NUMERIC:
        return pa.string()
    kind = duckdb_type(type_oid)
    if kind.endswith("[]"):
        return pa.list_(_ARROW[kind.removesuffix("[]")])
    return _ARROW[kind]


def _as_stored(value: object, kind: pa.DataType) -> object:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else str(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_as_stored(item, kind.value_type) for item in value]
    return value
