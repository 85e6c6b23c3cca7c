"""The stored form of each PostgreSQL type: its Arrow type, its Spark type, and so its Delta type. See docs/types.md.

Called by all layers that handle columns. A type is stored as a number, date or timestamp if its values fit exactly, and otherwise as
PostgreSQL's text form. Values that the stored type cannot hold (NaN in numeric(10,2)) are rejected when they are read
(`headgate.types.text.text`), never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.types import registry
from headgate.types.base.base_types import BASE_TYPES

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NAME_BYTES = 63
"""The number of bytes to which PostgreSQL truncates names."""


def own_name(word: str) -> str:
    """Return a name for an internal column of a frame. It is longer than PostgreSQL's names, so it cannot clash with a user's column."""
    return word.ljust(NAME_BYTES + 1, "_")


NO_COLUMN = own_name("_none")
"""The column of rows that have no column: Arrow cannot count rows without one."""


def arrow_type(oid: int, modifier: int = -1) -> pa.DataType:
    """Return the Arrow type of the type's stored form.

    >>> arrow_type(registry.NUMERIC, typmod.numeric(10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    oid, modifier = registry.known().base(oid, modifier)
    described = BASE_TYPES.get(oid)
    if described is None:
        return pa.string()
    return (described.modified(modifier) if described.modified else None) or described.stored


def list_type(oid: int, modifier: int = -1) -> pa.ListType | None:
    """Return the Arrow list type of an array with elements in stored form (array_storage), or None if it cannot be a list."""
    types = registry.known()
    oid, modifier = types.base(oid, modifier)
    array_type = types.find(oid)
    if array_type is None or not array_type.is_array or types.by_oid(array_type.element).delimiter != ",":
        return None
    return pa.list_(pa.field("element", arrow_type(array_type.element, modifier)))


def spark_type(oid: int, modifier: int = -1) -> DataType:
    """Return the Spark type of a column, equivalent to `arrow_type`."""
    return spark_type_of(arrow_type(oid, modifier))


def spark_type_of(held: pa.DataType) -> DataType:
    """Return the Spark type for a result of `arrow_type` or `list_type`."""
    from pyspark.sql import types as spark  # this layer must be importable without Spark

    if pa.types.is_list(held):
        return spark.ArrayType(spark_type_of(held.value_type))
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


def stored_as_text(oid: int, modifier: int) -> bool:
    """Return whether the stored form is exactly PostgreSQL's text form."""
    return bool(arrow_type(oid, modifier) == pa.string())


_PSEUDO = frozenset({registry.UNKNOWN, registry.CSTRING})


def is_accepted(oid: int, types: registry.TypeRegistry | None = None) -> bool:
    """Return whether a node parses, checks and sends values of the type as PostgreSQL does. Only such types are allowed for columns."""
    known = types or registry.known()
    oid, _ = known.base(oid)
    pg_type = known.find(oid)
    if pg_type is not None and pg_type.is_array:
        return is_accepted(pg_type.element, known)
    if pg_type is not None and pg_type.kind is registry.TypeKind.COMPOSITE:
        is_made = oid >= registry.FIRST_USER_OID and not pg_type.of_table
        return is_made and all(is_accepted(attribute.type_oid, known) for attribute in pg_type.attributes)
    return (oid in BASE_TYPES and oid not in _PSEUDO) or (pg_type is not None and pg_type.kind is registry.TypeKind.ENUM)


def storable(oid: int) -> bool:
    """Return whether a column of a table can have this type: it is known and not a pseudo-type."""
    pg_type = registry.known().find(oid)
    return pg_type is not None and pg_type.kind is not registry.TypeKind.PSEUDO
