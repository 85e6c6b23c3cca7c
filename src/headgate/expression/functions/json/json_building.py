"""Convert values of any type to json and jsonb: to_json, to_jsonb, json_build_object and similar (json.c, jsonb.c).

Called by `implementation.json` inside Arrow functions. A value is the text of its type's output function, with the type's oid. The type
decides how the value is printed: a number bare, a boolean as a word, json unchanged, an array as an array, any other value quoted.
Only jsonb_object reads names and values from arrays of text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.errors import PostgresError, not_supported
from headgate.types import registry
from headgate.types.base import json_text
from headgate.types.base.json_text import print_value, quoted
from headgate.types.text import array, record

_DOCUMENTS = frozenset({registry.JSON, registry.JSONB})
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


def writable(oid: int) -> int:
    """Return the oid if values of the type can be written as json.

    Raise 0A000 for types that depend on the session's time zone, and for arrays of rows, whose text does not have the names of the fields.
    """
    if oid == registry.RECORD_ARRAY:
        raise not_supported("an array of rows in json is not supported")
    if _is_zoned(oid):
        raise not_supported("a timestamp with time zone in json is not supported: its text depends on the session's time zone")
    return oid


def _is_zoned(oid: int) -> bool:
    """Return whether a value of the type is, or contains, a timestamp with time zone."""
    types = registry.known()
    oid, _ = types.base(oid)
    kind = types.find(oid)
    if kind is None or oid == registry.TIMESTAMPTZ:
        return oid == registry.TIMESTAMPTZ
    return (kind.is_array and _is_zoned(kind.element)) or any(_is_zoned(attribute.type_oid) for attribute in kind.attributes)


def key_text(oid: int, key: str) -> str:
    """Return the quoted name of an object's field. Raise 22023 for a key that is not a scalar."""
    oid, _ = registry.known().base(oid)
    if is_structured(oid) or oid in _DOCUMENTS:
        raise PostgresError("22023", "key value must be scalar, not array, composite, or json")
    return quoted(("true" if key == "t" else "false") if oid == registry.BOOL else key)


def is_structured(oid: int) -> bool:
    """Return whether the type is an array or a row type."""
    return bool(_element(oid)) or oid == registry.RECORD or bool(_attributes(oid))


def _scalar(oid: int, item: str) -> str:
    if attributes := _attributes(oid):
        fields = record.parse(item, len(attributes))
        return row(tuple(attribute.name for attribute in attributes), tuple(attribute.type_oid for attribute in attributes), *fields)
    oid, _ = registry.known().base(oid)
    if oid == registry.BOOL:
        return "true" if item == "t" else "false"
    if oid in registry.NUMBERS and _JSON_NUMBER.match(item):
        return item
    if oid in _DOCUMENTS or oid == registry.RECORD:  # the text of a row is already json
        return item
    if oid == registry.TIMESTAMP:
        return f'"{item.replace(" ", "T", 1)}"'
    return quoted(item)


def _element(oid: int) -> int:
    types = registry.known()
    kind = types.find(types.base(oid)[0])
    return kind.element if kind is not None and kind.is_array else 0


def _attributes(oid: int) -> tuple[registry.Attribute, ...]:
    """Return the attributes of a composite type, or an empty tuple for other types."""
    if oid < registry.FIRST_USER_OID:
        return ()
    types = registry.known()
    kind = types.find(types.base(oid)[0])
    return () if kind is None else kind.attributes


def to_json(oid: int, item: str | None) -> str:
    """Convert a value to json (to_json). NULL becomes null. Arrays have no blanks."""
    if item is None:
        return "null"
    element = _element(oid)
    return _nest(item, element) if element else _scalar(oid, item)


def _nest(item: str, element: int) -> str:
    shape, items = array.parts(item, registry.by_oid(element).delimiter)
    if not items:
        return "[]"
    level = ["null" if element_text is None else _scalar(element, element_text) for element_text in items]
    for length in reversed(shape.lengths):
        level = ["[" + ",".join(level[start : start + length]) + "]" for start in range(0, len(level), length)]
    return level[0]


def array_to_json(oid: int, item: str, pretty: bool = False) -> str:
    """Convert an array to json (array_to_json). `pretty` adds line breaks between the outermost elements."""
    compact = to_json(oid, item)
    if not pretty:
        return compact
    shape, items = array.parts(item)
    if len(shape.lengths) != 1:
        rows = [] if not items else document_rows(oid, item)
        return "[" + ",\n ".join(rows) + "]"
    return "[" + ",\n ".join("null" if element_text is None else _scalar(_element(oid), element_text) for element_text in items) + "]"


def document_rows(oid: int, item: str) -> list[str]:
    """Return the outermost elements of a multidimensional array, each as json."""
    shape, items = array.parts(item)
    inner = array.Shape(shape.lengths[1:], shape.lowers[1:])
    size = len(items) // shape.lengths[0]
    return [to_json(oid, array.print_array(inner, items[start : start + size], ",")) for start in range(0, len(items), size)]


def row(names: tuple[str, ...], oids: tuple[int, ...], *items: str | None) -> str:
    """Convert a row to json (row_to_json)."""
    pairs = (f"{quoted(name)}:{to_json(oid, item)}" for name, oid, item in zip(names, oids, items, strict=True))
    return "{" + ",".join(pairs) + "}"


def to_jsonb(oid: int, item: str | None) -> str:
    """Convert a value to jsonb (to_jsonb)."""
    return print_value(_value(oid, item))


def _value(oid: int, item: str | None) -> object:
    return None if item is None else json_text.load(to_json(oid, item))


def build_array(oids: tuple[int, ...], *items: str | None) -> str:
    """Build a json array (json_build_array)."""
    return "[" + ", ".join(to_json(oid, item) for oid, item in zip(oids, items, strict=True)) + "]"


def build_array_binary(oids: tuple[int, ...], *items: str | None) -> str:
    """Build a jsonb array (jsonb_build_array)."""
    return print_value([_value(oid, item) for oid, item in zip(oids, items, strict=True)])


def _pairs(
    function: str, oids: Sequence[int], items: Sequence[str | None], message: str, null_hint: str | None
) -> list[tuple[str, int, str | None]]:
    if len(items) % 2:
        hint = f"The arguments of {function}() must consist of alternating keys and values."
        raise PostgresError("22023", "argument list must have even number of elements", hint=hint)
    pairs = []
    for index in range(0, len(items), 2):
        key = items[index]
        if key is None:
            raise PostgresError("22023", message.format(index + 1), hint=null_hint)
        pairs.append((key_text(oids[index], key), oids[index + 1], items[index + 1]))
    return pairs


def build_object(oids: tuple[int, ...], *items: str | None) -> str:
    """Build a json object (json_build_object): keys in argument order, blanks around the colons."""
    pairs = _pairs("json_build_object", oids, items, "argument {} cannot be null", "Object keys should be text.")
    return "{" + ", ".join(f"{key} : {to_json(oid, item)}" for key, oid, item in pairs) + "}"


def build_object_binary(oids: tuple[int, ...], *items: str | None) -> str:
    """Build a jsonb object (jsonb_build_object)."""
    pairs = _pairs("jsonb_build_object", oids, items, "argument {}: key must not be null", None)
    return print_value({json_text.load(key): _value(oid, item) for key, oid, item in pairs})


def object_of(pairs: str) -> str:
    """Build a jsonb object from alternating keys and values, or rows of two (jsonb_object(text[]))."""
    shape, items = array.parts(pairs)
    depth = len(shape.lengths)
    if depth == 0:
        return "{}"
    if depth > 2:
        raise PostgresError("2202E", "wrong number of array subscripts")
    if depth == 1 and len(items) % 2:
        raise PostgresError("2202E", "array must have even number of elements")
    if depth == 2 and shape.lengths[1] != 2:
        raise PostgresError("2202E", "array must have two columns")
    return _object(items[::2], items[1::2])


def object_of_two(keys: str, values: str) -> str:
    """Build a jsonb object from an array of keys and one of values (jsonb_object(text[], text[]))."""
    key_array, value_array = array.parts(keys), array.parts(values)
    if len(key_array[0].lengths) > 1 or len(key_array[0].lengths) != len(value_array[0].lengths):
        raise PostgresError("2202E", "wrong number of array subscripts")
    if len(key_array[1]) != len(value_array[1]):
        raise PostgresError("2202E", "mismatched array dimensions")
    return _object(key_array[1], value_array[1])


def _object(keys: tuple[str | None, ...], values: tuple[str | None, ...]) -> str:
    if None in keys:
        raise PostgresError("22004", "null value not allowed for object key")
    return print_value({key: value for key, value in zip(keys, values, strict=True) if key is not None})
