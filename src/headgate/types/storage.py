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


def list_type(oid: int, modifier: int = -1) -> pa.ListType | None:
    """The Arrow type of an array as a list of its elements in stored form, as files may hold it (array_storage); None for what is none."""
    types = registry.known()
    oid, modifier = types.base(oid, modifier)
    found = types.find(oid)
    if found is None or not found.is_array or types.by_oid(found.element).delimiter != ",":
        return None
    return pa.list_(pa.field("element", arrow_type(found.element, modifier)))


def spark_type(oid: int, modifier: int = -1) -> DataType:
    """The Spark type of a column as the node holds it; the same choice as `arrow_type`."""
    return spark_type_of(arrow_type(oid, modifier))


def spark_type_of(held: pa.DataType) -> DataType:
    """The Spark type of what `arrow_type` and `list_type` give."""
    from pyspark.sql import types as spark  # the floor must import without Spark

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


def stored_as_text(oid: int, modifier: int = -1) -> bool:
    """Whether the stored form is PostgreSQL's text form, character for character."""
    return bool(arrow_type(oid, modifier) == pa.string())


_PSEUDO = frozenset({registry.UNKNOWN, registry.CSTRING})


def is_accepted(oid: int, types: registry.TypeRegistry | None = None) -> bool:
    """Return whether a node parses, checks and sends values of the type as PostgreSQL does. Only such types are those of columns."""
    known = types or registry.known()
    oid, _ = known.base(oid)
    found = known.find(oid)
    if found is not None and found.is_array:
        return is_accepted(found.element, known)
    if found is not None and found.kind is registry.TypeKind.COMPOSITE:
        return oid >= registry.FIRST_USER_OID and all(is_accepted(each.type_oid, known) for each in found.attributes)
    return (oid in BASE_TYPES and oid not in _PSEUDO) or (found is not None and found.kind is registry.TypeKind.ENUM)


def storable(oid: int, types: registry.TypeRegistry | None = None) -> bool:
    """Whether a column of a table can have this type: not a pseudo-type, and a type that is known."""
    found = (types or registry.known()).find(oid)
    return found is not None and found.kind is not registry.TypeKind.PSEUDO
