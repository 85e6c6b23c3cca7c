"""How a column of a PostgreSQL type is stored: the Arrow type, the Spark type, and so the Delta type. See docs/types.md.

Called by every floor that holds columns. A type is stored as a number, date or timestamp where the values fit exactly, and
as PostgreSQL's text form everywhere else. Values that a number, date or timestamp cannot hold (NaN in numeric(10,2),
an infinite date) are refused when they are read (`headgate.types.text.text`), never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.types import registry
from headgate.types.base.base_types import BASE_TYPES

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NAME_BYTES = 63
"""PostgreSQL cuts names at so many bytes."""


def own_name(word: str) -> str:
    """The name of a column that a frame has beside those of a table: longer than PostgreSQL's names, so that no user's column has it."""
    return word.ljust(NAME_BYTES + 1, "_")


NO_COLUMN = own_name("_none")
"""The column of rows of which no column is given: Arrow counts no rows without one."""


def arrow_type(oid: int, modifier: int = -1) -> pa.DataType:
    """The Arrow type in which values of the type are held.

    >>> arrow_type(registry.NUMERIC, typmod.numeric(10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    oid, modifier = registry.known().base(oid, modifier)
    described = BASE_TYPES.get(oid)
    if described is None:
        return pa.string()
    return (described.modified(modifier) if described.modified else None) or described.stored


def spark_type(oid: int, modifier: int = -1) -> DataType:
    """The Spark type of a stored column; the same choice as `arrow_type`."""
    from pyspark.sql import types as spark  # the floor must import without Spark

    held = arrow_type(oid, modifier)
    if pa.types.is_decimal(held):
        return spark.DecimalType(held.precision, held.scale)
    stored: dict[pa.DataType, DataType] = {
        pa.bool_(): spark.BooleanType(),
        pa.int16(): spark.ShortType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.binary(): spark.BinaryType(),
        pa.date32(): spark.DateType(),
        pa.timestamp("us"): spark.TimestampNTZType(),
        pa.timestamp("us", tz="UTC"): spark.TimestampType(),
    }
    return stored.get(held, spark.StringType())


def stored_as_text(oid: int, modifier: int = -1) -> bool:
    """Whether the stored form is PostgreSQL's text form, character for character."""
    return bool(arrow_type(oid, modifier) == pa.string())


def storable(oid: int, types: registry.TypeRegistry | None = None) -> bool:
    """Whether a column of a table can have this type: not a pseudo-type, and a type that is known."""
    found = (types or registry.known()).find(oid)
    return found is not None and found.kind is not registry.TypeKind.PSEUDO
