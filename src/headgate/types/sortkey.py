"""The order and equality of stored columns: whether the stored form compares as PostgreSQL's values do, and keys in bulk if not.

Called if rows are looked up, joined, sorted or grouped by columns of any type: by the change pipeline, unique keys, ORDER BY. `order`
computes the keys of single values.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import order
from headgate.types import registry as r
from headgate.types.base.base_types import base_type


def comparable(oid: int, types: r.TypeRegistry) -> bool:
    """Return whether the order of the type is known here."""
    try:
        order.key_of(oid, types)
    except PostgresError:
        return False
    return True


def exact(oid: int, types: r.TypeRegistry) -> bool:
    """Return whether equal values have equal text forms. Those of numeric, interval, jsonb, char(n) and floats do not."""
    oid, _ = types.base(oid)
    pg_type = types.find(oid)
    if pg_type is not None and pg_type.is_array:
        return exact(pg_type.element, types)
    if pg_type is not None and pg_type.kind is r.TypeKind.COMPOSITE:
        return all(exact(attribute.type_oid, types) for attribute in pg_type.attributes)
    return base_type(oid).one_text


def keys(texts: pa.StringArray, oid: int, types: r.TypeRegistry) -> pa.BinaryArray:
    """Return bytes that compare as the values do. NULL stays NULL."""
    key = order.key_of(oid, types)
    coded = texts.dictionary_encode()
    return pa.array([key(text) for text in coded.dictionary.to_pylist()], pa.binary()).take(coded.indices)
