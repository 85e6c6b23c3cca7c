"""The order of values: bytes for each type that compare as the type's btree operator class compares the values.

`key_of` returns the function from PostgreSQL's text form of one value to its key. Two keys are equal exactly if PostgreSQL's ``=`` is true.
Called by comparisons of types that are stored as text (arrays, jsonb, inet, interval, …), by containment and search in arrays, and by
ORDER BY, GROUP BY, DISTINCT and UNIQUE over such columns. The types of one btree family share a key space (smallint and bigint, real and
double precision, date and timestamp), so that cross-type comparisons work, too.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from headgate.errors import not_supported
from headgate.types import registry, text_cache
from headgate.types.base.base_type import Key, ended
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.text import array, record


def key_of(oid: int, types: registry.TypeRegistry | None = None) -> Key:
    """Return the key function of a type. Raise 0A000 for a type without one (json, xml, point, …)."""
    known = types or registry.known()
    described = BASE_TYPES.get(oid)
    if described is not None and described.key is not None:
        return described.key
    pg_type = known.find(oid)
    if pg_type is not None and pg_type.kind is registry.TypeKind.ENUM:
        keys = {label: struct.pack(">I", index) for index, label in enumerate(pg_type.labels)}
        return keys.__getitem__
    if pg_type is not None and pg_type.kind is registry.TypeKind.DOMAIN:
        return key_of(pg_type.base, known)
    if pg_type is not None and pg_type.is_array:
        element = key_of(pg_type.element, known)
        delimiter = known.by_oid(pg_type.element).delimiter
        return lambda text: of_array(*array.parts(text, delimiter), element)
    if pg_type is not None and pg_type.kind is registry.TypeKind.COMPOSITE and pg_type.attributes:
        fields = [key_of(attribute.type_oid, known) for attribute in pg_type.attributes]
        return lambda text: of_record(record.parse(text, len(fields)), fields)
    raise not_supported(f"comparison of type {known.format_type(oid)} is not supported: its order is not known here")


def remembered(oid: int) -> Key:
    """Return the key function of an active type, with a cache of 512 values."""
    return _builtin_key(oid) if oid < registry.FIRST_USER_OID else _user_key(oid, registry.known())


@functools.cache
def _builtin_key(oid: int) -> Key:
    return text_cache.cached(512)(key_of(oid, registry.builtin()))


@functools.lru_cache(maxsize=64)
def _user_key(oid: int, types: registry.TypeRegistry) -> Key:
    return text_cache.cached(512)(key_of(oid, types))


def of_record(items: Sequence[str | None], keys: Sequence[Key]) -> bytes:
    """Return the key of a record (record_cmp): field by field, NULL last."""
    return b"".join(b"\x02" if item is None else b"\x01" + ended(key(item)) for item, key in zip(items, keys, strict=True))


def of_array(shape: array.Shape, items: tuple[str | None, ...], element: Key) -> bytes:
    """Return the key of an array (array_cmp): first the elements (NULL last), then their number, the dimensions, the lower bounds."""
    parts = [b"\x02" if item is None else b"\x01" + ended(element(item)) for item in items]
    bounds = [*shape.lengths, *shape.lowers]
    return b"".join(parts) + b"\x00" + struct.pack(f">B{len(bounds)}Q", len(shape.lengths), *(bound + (1 << 63) for bound in bounds))
