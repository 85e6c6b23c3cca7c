"""How values order: for each type, bytes that compare as the type's btree operator class compares the values.

`key_of` gives the function from PostgreSQL's text form of one value to its key; two keys are equal exactly where PostgreSQL's ``=``
says so. Called by the comparison of types that are stored as text (arrays, jsonb, inet, interval, …), by containment and search
in arrays, and by ORDER BY, GROUP BY, DISTINCT and UNIQUE over such columns. Types of one btree family share one space of keys
(smallint and bigint, real and double precision, date and timestamp), so that cross-type comparison works too.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from headgate.errors import not_supported
from headgate.types import registry
from headgate.types.base.base_type import Key, ended
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.text import array, record


def key_of(oid: int, types: registry.TypeRegistry | None = None) -> Key:
    """The key function of a type; 0A000 for a type without one (json, xml, point, …)."""
    known = types or registry.known()
    described = BASE_TYPES.get(oid)
    if described is not None and described.key is not None:
        return described.key
    found = known.find(oid)
    if found is not None and found.kind is registry.TypeKind.ENUM:
        places = {label: struct.pack(">I", place) for place, label in enumerate(found.labels)}
        return places.__getitem__
    if found is not None and found.kind is registry.TypeKind.DOMAIN:
        return key_of(found.base, known)
    if found is not None and found.is_array:
        element = key_of(found.element, known)
        delimiter = known.by_oid(found.element).delimiter
        return lambda text: of_array(*array.parts(text, delimiter), element)
    if found is not None and found.kind is registry.TypeKind.COMPOSITE and found.attributes:
        fields = [key_of(each.type_oid, known) for each in found.attributes]
        return lambda text: of_record(record.parse(text, len(fields)), fields)
    raise not_supported(f"comparison of type {known.format_type(oid)} is not supported: its order is not known here")


def remembered(oid: int) -> Key:
    """The key function of a type of the registry in force, which remembers the keys of a few values."""
    return _builtin_key(oid) if oid < registry.FIRST_USER_OID else _user_key(oid, registry.known())


@functools.cache
def _builtin_key(oid: int) -> Key:
    return functools.lru_cache(maxsize=512)(key_of(oid, registry.builtin()))


@functools.lru_cache(maxsize=64)
def _user_key(oid: int, types: registry.TypeRegistry) -> Key:
    return functools.lru_cache(maxsize=512)(key_of(oid, types))


def of_record(items: Sequence[str | None], keys: Sequence[Key]) -> bytes:
    """record_cmp: field by field, NULL last."""
    return b"".join(b"\x02" if item is None else b"\x01" + ended(key(item)) for item, key in zip(items, keys, strict=True))


def of_array(shape: array.Shape, items: tuple[str | None, ...], element: Key) -> bytes:
    """array_cmp: the elements first (NULL last), then how many, the dimensions, the lower bounds."""
    parts = [b"\x02" if item is None else b"\x01" + ended(element(item)) for item in items]
    bounds = [*shape.lengths, *shape.lowers]
    return b"".join(parts) + b"\x00" + struct.pack(f">B{len(bounds)}Q", len(shape.lengths), *(each + (1 << 63) for each in bounds))
