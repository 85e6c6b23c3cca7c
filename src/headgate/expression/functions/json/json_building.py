"""Values of any type as json and jsonb: to_json, to_jsonb, json_build_object and their like, value by value (json.c, jsonb.c).

Called by `implementation.json` inside Arrow functions. A value comes as the text of its type's output function together with the
type's oid, which says how it is written: a number bare, a boolean as a word, json as it is, an array as an array, all else quoted.
jsonb_object alone takes names and values from arrays of text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headgate.errors import PostgresError, not_supported
from headgate.types import registry
from headgate.types.base import json_text
from headgate.types.base.json_text import print_value, quoted
from headgate.types.text import array, record

_NUMBERS = frozenset({registry.INT2, registry.INT4, registry.INT8, registry.FLOAT4, registry.FLOAT8, registry.NUMERIC})
_DOCUMENTS = frozenset({registry.JSON, registry.JSONB})
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


def writable(oid: int) -> int:
    """The oid, if values of the type can be written here; 0A000 for what depends on the session's time zone."""
    if _is_zoned(oid):
        raise not_supported("a timestamp with time zone in json is not supported: its text depends on the session's time zone")
    return oid


def _is_zoned(oid: int) -> bool:
    """Whether a value of the type is, or has within it, a timestamp with time zone."""
    known = registry.known()
    oid, _ = known.base(oid)
    found = known.find(oid)
    if found is None or oid == registry.TIMESTAMPTZ:
        return oid == registry.TIMESTAMPTZ
    return (found.is_array and _is_zoned(found.element)) or any(_is_zoned(each.type_oid) for each in found.attributes)


def key_text(oid: int, key: str) -> str:
    """The name of an object's field, quoted. 22023 for a key that is no scalar."""
    if _element(oid) or oid in _DOCUMENTS or _attributes(oid):
        raise PostgresError("22023", "key value must be scalar, not array, composite, or json")
    return quoted(("true" if key == "t" else "false") if oid == registry.BOOL else key)


def _scalar(oid: int, item: str) -> str:
    """One value that is no array, as json."""
    if attributes := _attributes(oid):
        fields = record.parse(item, len(attributes))
        return row(tuple(each.name for each in attributes), tuple(each.type_oid for each in attributes), *fields)
    oid, _ = registry.known().base(oid)
    if oid == registry.BOOL:
        return "true" if item == "t" else "false"
    if oid in _NUMBERS and _JSON_NUMBER.match(item):
        return item
    if oid in _DOCUMENTS or oid == registry.RECORD:  # a row comes as its json
        return item
    if oid == registry.TIMESTAMP:
        return f'"{item.replace(" ", "T", 1)}"'
    return quoted(item)


def _element(oid: int) -> int:
    known = registry.known()
    found = known.find(known.base(oid)[0])
    return found.element if found is not None and found.is_array else 0


def _attributes(oid: int) -> tuple[registry.Attribute, ...]:
    """The attributes of a composite type."""
    if oid < registry.FIRST_USER_OID:
        return ()
    known = registry.known()
    found = known.find(known.base(oid)[0])
    return () if found is None else found.attributes


def to_json(oid: int, item: str | None) -> str:
    """to_json: NULL as null; in an array no blanks."""
    if item is None:
        return "null"
    element = _element(oid)
    return _nested(oid, item, element, ",") if element else _scalar(oid, item)


def _nested(oid: int, item: str, element: int, separator: str) -> str:
    shape, items = array.parts(item, registry.by_oid(element).delimiter)
    if not items:
        return "[]"
    level = ["null" if each is None else _scalar(element, each) for each in items]
    for length in reversed(shape.lengths):
        level = ["[" + separator.join(level[place : place + length]) + "]" for place in range(0, len(level), length)]
    return level[0]


def array_to_json(oid: int, item: str, pretty: bool = False) -> str:
    """array_to_json; `pretty` breaks the lines between the outermost elements."""
    made = to_json(oid, item)
    if not pretty:
        return made
    shape, items = array.parts(item)
    if len(shape.lengths) != 1:
        rows = [] if not items else document_rows(oid, item)
        return "[" + ",\n ".join(rows) + "]"
    return "[" + ",\n ".join("null" if each is None else _scalar(_element(oid), each) for each in items) + "]"


def document_rows(oid: int, item: str) -> list[str]:
    """The outermost elements of an array of several dimensions, each as json."""
    shape, items = array.parts(item)
    inner = array.Shape(shape.lengths[1:], shape.lowers[1:])
    size = len(items) // shape.lengths[0]
    return [to_json(oid, array.print_array(inner, items[place : place + size], ",")) for place in range(0, len(items), size)]


def row(names: tuple[str, ...], oids: tuple[int, ...], *items: str | None) -> str:
    """row_to_json."""
    pairs = (f"{quoted(name)}:{to_json(oid, item)}" for name, oid, item in zip(names, oids, items, strict=True))
    return "{" + ",".join(pairs) + "}"


def to_jsonb(oid: int, item: str | None) -> str:
    """to_jsonb."""
    return print_value(_value(oid, item))


def _value(oid: int, item: str | None) -> Any:
    return None if item is None else json_text.load(to_json(oid, item))


def build_array(oids: tuple[int, ...], *items: str | None) -> str:
    """json_build_array."""
    return "[" + ", ".join(to_json(oid, item) for oid, item in zip(oids, items, strict=True)) + "]"


def build_array_binary(oids: tuple[int, ...], *items: str | None) -> str:
    """jsonb_build_array."""
    return print_value([_value(oid, item) for oid, item in zip(oids, items, strict=True)])


def _pairs(oids: Sequence[int], items: Sequence[str | None], message: str, hint: str | None) -> list[tuple[str, int, str | None]]:
    if len(items) % 2:
        raise PostgresError("22023", "argument list must have even number of elements")
    found = []
    for place in range(0, len(items), 2):
        key = items[place]
        if key is None:
            raise PostgresError("22023", message.format(place + 1), hint=hint)
        found.append((key_text(oids[place], key), oids[place + 1], items[place + 1]))
    return found


def build_object(oids: tuple[int, ...], *items: str | None) -> str:
    """json_build_object: keys as they come, blanks around the colons."""
    pairs = _pairs(oids, items, "argument {} cannot be null", "Object keys should be text.")
    return "{" + ", ".join(f"{key} : {to_json(oid, item)}" for key, oid, item in pairs) + "}"


def build_object_binary(oids: tuple[int, ...], *items: str | None) -> str:
    """jsonb_build_object."""
    pairs = _pairs(oids, items, "argument {}: key must not be null", None)
    return print_value({json_text.load(key): _value(oid, item) for key, oid, item in pairs})


def object_of(pairs: str) -> str:
    """jsonb_object(text[]): alternating keys and values, or rows of two."""
    shape, items = array.parts(pairs)
    deep = len(shape.lengths)
    if deep == 0:
        return "{}"
    if deep > 2:
        raise PostgresError("2202E", "wrong number of array subscripts")
    if deep == 1 and len(items) % 2:
        raise PostgresError("2202E", "array must have even number of elements")
    if deep == 2 and shape.lengths[1] != 2:
        raise PostgresError("2202E", "array must have two columns")
    return _object(items[::2], items[1::2])


def object_of_two(keys: str, values: str) -> str:
    """jsonb_object(text[], text[])."""
    one, other = array.parts(keys), array.parts(values)
    if len(one[0].lengths) > 1 or len(one[0].lengths) != len(other[0].lengths):
        raise PostgresError("2202E", "wrong number of array subscripts")
    if len(one[1]) != len(other[1]):
        raise PostgresError("2202E", "mismatched array dimensions")
    return _object(one[1], other[1])


def _object(keys: tuple[str | None, ...], values: tuple[str | None, ...]) -> str:
    if None in keys:
        raise PostgresError("22004", "null value not allowed for object key")
    return print_value({key: value for key, value in zip(keys, values, strict=True) if key is not None})
