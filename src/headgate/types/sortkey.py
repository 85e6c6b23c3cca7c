"""The order and equality of stored columns: when the stored form itself compares as PostgreSQL's values do, and keys in bulk when not.

Called where rows are looked up, joined, sorted or grouped by columns of any type: the change pipeline, unique keys, ORDER BY. The keys
of single values are `order`'s.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import order
from headgate.types import registry as r
from headgate.types.base.base_types import base_type


def comparable(oid: int, types: r.TypeRegistry) -> bool:
    """Whether the type has an order that is known here."""
    try:
        order.key_of(oid, types)
    except PostgresError:
        return False
    return True


def exact(oid: int, types: r.TypeRegistry) -> bool:
    """Whether equal values have equal text forms (those of numeric, interval, jsonb, char(n) and floats have not)."""
    oid, _ = types.base(oid)
    found = types.find(oid)
    if found is not None and found.is_array:
        return exact(found.element, types)
    if found is not None and found.kind is r.TypeKind.COMPOSITE:
        return all(exact(each.type_oid, types) for each in found.attributes)
    return base_type(oid).one_text


def keys(texts: pa.StringArray, oid: int, types: r.TypeRegistry) -> pa.BinaryArray:
    """Bytes that compare as the values do; NULL stays NULL."""
    key = order.key_of(oid, types)
    coded = texts.dictionary_encode()
    return pa.array([key(each) for each in coded.dictionary.to_pylist()], pa.binary()).take(coded.indices)
