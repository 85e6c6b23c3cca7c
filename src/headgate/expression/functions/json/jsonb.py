"""Functions of jsonb on its text form, value by value, as jsonb_op.c, jsonb_util.c and jsonfuncs.c do them.

Called by `implementation.json` and `functions.set_returning` inside Arrow functions; what makes another jsonb of one stands in
`jsonb_modification`. A jsonb is the text that jsonb_out prints; it is loaded as dict, list, str, `Number`, bool or None (JSON's null; SQL's
NULL never comes in, and is None only as a result). Texts that occur again and again, the constants first of all, are loaded once.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from headgate.errors import PostgresError
from headgate.types.base import json_text, numeric
from headgate.types.base.json_text import Number, print_value
from headgate.types.text import array

INTEGER = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+\Z")
"""What strtol takes as the place of an element."""
_loaded = functools.lru_cache(maxsize=256)(json_text.load)


def load(text: str) -> Any:
    """The value; not to be changed. Long texts are not kept."""
    return _loaded(text) if len(text) < 4096 else json_text.load(text)


def is_scalar(value: Any) -> bool:
    """Whether the value is neither an object nor an array."""
    return not isinstance(value, dict | list)


def _text_of(value: Any) -> str | None:
    """What ->> gives: strings bare, JSON's null as NULL."""
    if value is None:
        return None
    return value if isinstance(value, str) and not isinstance(value, Number) else print_value(value)


_MISSING = object()


def _field(text: str, key: str) -> Any:
    value = load(text)
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _element(text: str, index: int) -> Any:
    value = load(text)
    items = value if isinstance(value, list) else [] if isinstance(value, dict) else [value]  # a scalar is an array of one here
    return items[index] if -len(items) <= index < len(items) else _MISSING


def field(text: str, key: str) -> str | None:
    """jsonb -> text."""
    found = _field(text, key)
    return None if found is _MISSING else print_value(found)


def field_text(text: str, key: str) -> str | None:
    """jsonb ->> text."""
    found = _field(text, key)
    return None if found is _MISSING else _text_of(found)


def element(text: str, index: int) -> str | None:
    """jsonb -> integer; negative counts from the end."""
    found = _element(text, index)
    return None if found is _MISSING else print_value(found)


def element_text(text: str, index: int) -> str | None:
    """jsonb ->> integer."""
    found = _element(text, index)
    return None if found is _MISSING else _text_of(found)


def _at_path(text: str, path: str) -> Any:
    steps = array.parts(path)[1]
    value = load(text)
    for step in steps:
        if step is None:
            return _MISSING
        value = _step(value, step)
        if value is _MISSING:
            return _MISSING
    return value


def _step(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step, _MISSING)
    if not isinstance(value, list) or not INTEGER.match(step):
        return _MISSING
    index = int(step)
    return value[index] if -len(value) <= index < len(value) else _MISSING


def at_path(text: str, path: str) -> str | None:
    """jsonb #> text[]."""
    found = _at_path(text, path)
    return None if found is _MISSING else print_value(found)


def at_path_text(text: str, path: str) -> str | None:
    """jsonb #>> text[]."""
    found = _at_path(text, path)
    return None if found is _MISSING else _text_of(found)


def typeof(text: str) -> str:
    """jsonb_typeof."""
    return _name(load(text))


def _name(value: Any) -> str:
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, Number):
        return "number"
    if isinstance(value, bool):
        return "boolean"
    return "null" if value is None else "string"


def array_length(text: str) -> int:
    """jsonb_array_length."""
    value = load(text)
    if isinstance(value, list):
        return len(value)
    raise PostgresError("22023", f"cannot get array length of a {'non-array' if isinstance(value, dict) else 'scalar'}")


def compare(left: str, right: str) -> int:
    """jsonb_cmp: -1, 0 or 1."""
    one, other = json_text.document_key(left), json_text.document_key(right)
    return (one > other) - (one < other)


def _same(left: Any, right: Any) -> bool:
    """Equality of two scalars: numbers by value."""
    if isinstance(left, Number) and isinstance(right, Number):
        return left == right or numeric.numeric_key(left) == numeric.numeric_key(right)
    return type(left) is type(right) and bool(left == right)


def _holds(value: Any, part: Any) -> bool:
    """JsonbDeepContains, below the top."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(key in value and _holds(value[key], each) for key, each in part.items())
    if isinstance(part, list):
        return isinstance(value, list) and all(any(_holds(each, wanted) for each in value) for wanted in part)
    return is_scalar(value) and _same(value, part)


def contains(text: str, part: str) -> bool:
    """jsonb @> jsonb: an array holds a scalar too."""
    value, wanted = load(text), load(part)
    if isinstance(value, list) and is_scalar(wanted):
        return any(is_scalar(each) and _same(each, wanted) for each in value)
    return _holds(value, wanted)


def contained(part: str, text: str) -> bool:
    """jsonb <@ jsonb."""
    return contains(text, part)


def _has(value: Any, key: str) -> bool:
    if isinstance(value, dict):
        return key in value
    items = value if isinstance(value, list) else [value]
    return any(isinstance(each, str) and not isinstance(each, Number) and each == key for each in items)


def exists(text: str, key: str) -> bool:
    """jsonb ? text: a key of the object, or a string of the array."""
    return _has(load(text), key)


def exists_any(text: str, keys: str) -> bool:
    """jsonb ?| text[]; NULLs are passed over."""
    value = load(text)
    return any(_has(value, key) for key in array.parts(keys)[1] if key is not None)


def exists_all(text: str, keys: str) -> bool:
    """jsonb ?& text[]."""
    value = load(text)
    return all(_has(value, key) for key in array.parts(keys)[1] if key is not None)


def pretty(text: str) -> str:
    """jsonb_pretty: four blanks a level."""
    return _pretty(load(text), "\n")


def _pretty(value: Any, line: str) -> str:
    inner = line + "    "
    if isinstance(value, dict):
        pairs = (f"{inner}{json_text.quoted(key)}: {_pretty(each, inner)}" for key, each in value.items())
        return "{" + ",".join(pairs) + f"{line}}}"
    if isinstance(value, list):
        return "[" + ",".join(f"{inner}{_pretty(each, inner)}" for each in value) + f"{line}]"
    return print_value(value)


def _scalar_of(text: str, wanted: str, target: str) -> Any:
    value = load(text)
    name = _name(value)
    if name != wanted:
        shown = {"number": "numeric"}.get(name, name)
        raise PostgresError("22023", f"cannot cast jsonb {shown} to type {target}")
    return value


def to_boolean(text: str) -> bool:
    """jsonb::boolean."""
    return bool(_scalar_of(text, "boolean", "boolean"))


def to_numeric(target: str, text: str) -> str:
    """jsonb::numeric, and the first step of the casts to other numbers; `target` is the type's name for the message."""
    return numeric.print_value(numeric.value_of(_scalar_of(text, "number", target)))


def elements(text: str) -> list[str]:
    """jsonb_array_elements: the elements as jsonb."""
    return [print_value(each) for each in _items(text, "elements")]


def elements_text(text: str) -> list[str | None]:
    """jsonb_array_elements_text."""
    return [_text_of(each) for each in _items(text, "elements")]


def _items(text: str, what: str) -> list[Any]:
    value = load(text)
    if isinstance(value, list):
        return value
    raise PostgresError("22023", f"cannot extract {what} from {'an object' if isinstance(value, dict) else 'a scalar'}")


def keys(text: str) -> list[str]:
    """jsonb_object_keys."""
    value = load(text)
    if isinstance(value, dict):
        return list(value)
    raise PostgresError("22023", f"cannot call jsonb_object_keys on {'an array' if isinstance(value, list) else 'a scalar'}")


def pairs(function: str, text: str) -> list[tuple[str, str, str | None]]:
    """jsonb_each and jsonb_each_text together: (key, value as jsonb, value as text); `function` is named in the error."""
    value = load(text)
    if isinstance(value, dict):
        return [(key, print_value(each), _text_of(each)) for key, each in value.items()]
    raise PostgresError("22023", f"cannot call {function} on a non-object")
