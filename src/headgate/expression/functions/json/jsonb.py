"""Functions of jsonb on its text form, one value at a time, as in jsonb_op.c, jsonb_util.c and jsonfuncs.c.

Called by `implementation.json` and `functions.set_returning` inside Arrow functions. Functions that return a modified jsonb are in
`jsonb_modification`. A jsonb is the text that jsonb_out prints. It is loaded as dict, list, str, `Number`, bool or None (JSON's null; SQL's
NULL is never an argument, and is None only as a result). Repeated texts, mainly constants, are loaded once.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable

from headgate.errors import PostgresError
from headgate.types import text_cache
from headgate.types.base import json_text, numeric
from headgate.types.base.json_text import Json, Number, print_value
from headgate.types.text import array

INTEGER = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+\Z")
"""Path elements that strtol accepts as an array index."""


@text_cache.cached(256)
def load(text: str) -> Json:
    """Return the loaded value, which must not be modified."""
    return json_text.load(text)


def is_scalar(value: Json) -> bool:
    """Return whether the value is neither an object nor an array."""
    return not isinstance(value, dict | list)


def text_of(value: Json) -> str | None:
    """Return the result of ->>: strings without quotes, JSON's null as NULL."""
    if value is None:
        return None
    return value if isinstance(value, str) and not isinstance(value, Number) else print_value(value)


class _Missing(enum.Enum):
    """The result of a path that leads nowhere. JSON's null is None."""

    MISSING = enum.auto()


_MISSING = _Missing.MISSING


def field(text: str, key: str) -> Json | _Missing:
    value = load(text)
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def element(text: str, index: int) -> Json | _Missing:
    """Return an element. A negative index counts from the end."""
    value = load(text)
    items = value if isinstance(value, list) else [] if isinstance(value, dict) else [value]  # a scalar is an array of one here
    return items[index] if -len(items) <= index < len(items) else _MISSING


def at_path(text: str, path: str) -> Json | _Missing:
    steps = array.parts(path)[1]
    value: Json | _Missing = load(text)
    for step in steps:
        if step is None or isinstance(value, _Missing):
            return _MISSING
        value = _step(value, step)
    return value


def _step(value: Json, step: str) -> Json | _Missing:
    if isinstance(value, dict):
        return value.get(step, _MISSING)
    if not isinstance(value, list) or not INTEGER.match(step):
        return _MISSING
    index = int(step)
    return value[index] if -len(value) <= index < len(value) else _MISSING


def part(get: Callable[..., Json | _Missing], show: Callable[[Json], str | None], text: str, place: str | int) -> str | None:
    """Return the part of a document that `get` finds: -> and #> show it with `print_value`, ->> and #>> with `text_of`."""
    value = get(text, place)
    return None if isinstance(value, _Missing) else show(value)


def typeof(text: str) -> str:
    """Return the type's name (jsonb_typeof)."""
    return _name(load(text))


def _name(value: Json) -> str:
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
    """Return the number of elements of an array (jsonb_array_length)."""
    value = load(text)
    if isinstance(value, list):
        return len(value)
    raise PostgresError("22023", f"cannot get array length of a {'non-array' if isinstance(value, dict) else 'scalar'}")


def _same(left: Json, right: Json) -> bool:
    """Return whether two scalars are equal. Numbers compare by value."""
    if isinstance(left, Number) and isinstance(right, Number):
        return left == right or numeric.numeric_key(left) == numeric.numeric_key(right)
    return type(left) is type(right) and bool(left == right)


def _holds(value: Json, part: Json) -> bool:
    """Return whether a value contains another, below the top level (JsonbDeepContains)."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(key in value and _holds(value[key], expected) for key, expected in part.items())
    if isinstance(part, list):
        return isinstance(value, list) and all(any(_holds(element, expected) for element in value) for expected in part)
    return is_scalar(value) and _same(value, part)


def contains(text: str, part: str) -> bool:
    """Return jsonb @> jsonb. At the top level, an array may contain a bare scalar."""
    value, expected = load(text), load(part)
    if isinstance(value, list) and is_scalar(expected):
        return any(is_scalar(element) and _same(element, expected) for element in value)
    return _holds(value, expected)


def _has(value: Json, key: str) -> bool:
    if isinstance(value, dict):
        return key in value
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and not isinstance(item, Number) and item == key for item in items)


def exists(text: str, key: str) -> bool:
    """Return jsonb ? text: whether it is a key of the object or a string of the array."""
    return _has(load(text), key)


def exist(quantifier: Callable[[Iterable[bool]], bool], text: str, keys: str) -> bool:
    """Return jsonb ?| text[] (`any`) or jsonb ?& text[] (`all`), ignoring NULLs."""
    value = load(text)
    return quantifier(_has(value, key) for key in array.parts(keys)[1] if key is not None)


def pretty(text: str) -> str:
    """Return the value indented by four blanks per level (jsonb_pretty)."""
    return _pretty(load(text), "\n")


def _pretty(value: Json, line: str) -> str:
    inner = line + "    "
    if isinstance(value, dict):
        pairs = (f"{inner}{json_text.quoted(key)}: {_pretty(item, inner)}" for key, item in value.items())
        return "{" + ",".join(pairs) + f"{line}}}"
    if isinstance(value, list):
        return "[" + ",".join(f"{inner}{_pretty(element, inner)}" for element in value) + f"{line}]"
    return print_value(value)


def _no_cast(value: Json, target: str) -> PostgresError:
    name = _name(value)
    return PostgresError("22023", f"cannot cast jsonb {'numeric' if name == 'number' else name} to type {target}")


def to_boolean(text: str) -> bool:
    value = load(text)
    if not isinstance(value, bool):
        raise _no_cast(value, "boolean")
    return value


def to_numeric(target: str, text: str) -> str:
    """Cast to numeric, also as the first step of casts to other numbers. `target` is the type's name for the error message."""
    value = load(text)
    if not isinstance(value, Number):
        raise _no_cast(value, target)
    return numeric.print_value(numeric.value_of(value))


def elements(text: str) -> list[str]:
    """Return the elements of an array as jsonb (jsonb_array_elements)."""
    return [print_value(element) for element in _items(text)]


def elements_text(text: str) -> list[str | None]:
    """Return the elements of an array as text (jsonb_array_elements_text)."""
    return [text_of(element) for element in _items(text)]


def _items(text: str) -> list[Json]:
    value = load(text)
    if isinstance(value, list):
        return value
    raise PostgresError("22023", f"cannot extract elements from {'an object' if isinstance(value, dict) else 'a scalar'}")


def keys(text: str) -> list[str]:
    """Return the keys of an object (jsonb_object_keys)."""
    value = load(text)
    if isinstance(value, dict):
        return list(value)
    raise PostgresError("22023", f"cannot call jsonb_object_keys on {'an array' if isinstance(value, list) else 'a scalar'}")


def pairs(function: str, text: str) -> list[tuple[str, str, str | None]]:
    """Return (key, value as jsonb, value as text) for jsonb_each and jsonb_each_text. `function` is named in the error."""
    value = load(text)
    if isinstance(value, dict):
        return [(key, print_value(item), text_of(item)) for key, item in value.items()]
    raise PostgresError("22023", f"cannot call {function} on a non-object")
