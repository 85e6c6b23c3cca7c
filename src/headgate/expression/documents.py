"""Functions of jsonb on its text form, value by value, as jsonb_op.c, jsonb_util.c and jsonfuncs.c do them.

Called by `compile_document` inside Arrow functions. A jsonb is the text that jsonb_out prints; it is loaded as dict, list, str,
`Number`, bool or None (JSON's null; SQL's NULL never comes in, and is None only as a result). Texts that occur again and again,
the constants first of all, are loaded once.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from headgate.errors import PostgresError
from headgate.types import array, document, numeric, order
from headgate.types.document import Number, print_value

_INTEGER = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+\Z")
_loaded = functools.lru_cache(maxsize=256)(document.load)
_INT_MAX = 2**31 - 1


def _load(text: str) -> Any:
    """The value; not to be changed. Long texts are not kept."""
    return _loaded(text) if len(text) < 4096 else document.load(text)


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _text_of(value: Any) -> str | None:
    """What ->> gives: strings bare, JSON's null as NULL."""
    if value is None:
        return None
    return value if isinstance(value, str) and not isinstance(value, Number) else print_value(value)


_MISSING = object()


def _field(text: str, key: str) -> Any:
    value = _load(text)
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _element(text: str, index: int) -> Any:
    value = _load(text)
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
    value = _load(text)
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
    if not isinstance(value, list) or not _INTEGER.match(step):
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
    return _name(_load(text))


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
    value = _load(text)
    if isinstance(value, list):
        return len(value)
    raise PostgresError("22023", f"cannot get array length of a {'non-array' if isinstance(value, dict) else 'scalar'}")


def compare(left: str, right: str) -> int:
    """jsonb_cmp: -1, 0 or 1."""
    one, other = order.of_document(left), order.of_document(right)
    return (one > other) - (one < other)


def _same(left: Any, right: Any) -> bool:
    """Equality of two scalars: numbers by value."""
    if isinstance(left, Number) and isinstance(right, Number):
        return left == right or order.of_numeric(left) == order.of_numeric(right)
    return type(left) is type(right) and bool(left == right)


def _holds(value: Any, part: Any) -> bool:
    """JsonbDeepContains, below the top."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(key in value and _holds(value[key], each) for key, each in part.items())
    if isinstance(part, list):
        return isinstance(value, list) and all(any(_holds(each, wanted) for each in value) for wanted in part)
    return _is_scalar(value) and _same(value, part)


def contains(text: str, part: str) -> bool:
    """jsonb @> jsonb: an array holds a scalar too."""
    value, wanted = _load(text), _load(part)
    if isinstance(value, list) and _is_scalar(wanted):
        return any(_is_scalar(each) and _same(each, wanted) for each in value)
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
    return _has(_load(text), key)


def exists_any(text: str, keys: str) -> bool:
    """jsonb ?| text[]; NULLs are passed over."""
    value = _load(text)
    return any(_has(value, key) for key in array.parts(keys)[1] if key is not None)


def exists_all(text: str, keys: str) -> bool:
    """jsonb ?& text[]."""
    value = _load(text)
    return all(_has(value, key) for key in array.parts(keys)[1] if key is not None)


def concatenate(left: str, right: str) -> str:
    """jsonb || jsonb: objects merge, all else becomes an array."""
    one, other = _load(left), _load(right)
    if isinstance(one, dict) and isinstance(other, dict):
        return print_value({**one, **other})
    return print_value([*(one if isinstance(one, list) else [one]), *(other if isinstance(other, list) else [other])])


def _deletable(text: str) -> Any:
    value = _load(text)
    if _is_scalar(value):
        raise PostgresError("22023", "cannot delete from scalar")
    return value


def delete(text: str, key: str) -> str:
    """jsonb - text: the key of an object, or the equal strings of an array."""
    return _without(_deletable(text), {key})


def _without(value: Any, keys: set[str]) -> str:
    if isinstance(value, dict):
        return print_value({key: each for key, each in value.items() if key not in keys})
    return print_value([each for each in value if not (isinstance(each, str) and not isinstance(each, Number) and each in keys)])


def delete_element(text: str, index: int) -> str:
    """jsonb - integer."""
    value = _load(text)
    if _is_scalar(value):
        raise PostgresError("22023", "cannot delete from scalar")
    if isinstance(value, dict):
        raise PostgresError("22023", "cannot delete from object using integer index")
    place = index + len(value) if index < 0 else index
    return print_value([each for number, each in enumerate(value) if number != place])


def delete_all(text: str, keys: str) -> str:
    """jsonb - text[]."""
    shape, found = array.parts(keys)
    if len(shape.lengths) > 1:
        raise PostgresError("2202E", "wrong number of array subscripts")
    return _without(_deletable(text), {key for key in found if key is not None})


def _path(path: str) -> list[str | None]:
    shape, steps = array.parts(path)
    if len(shape.lengths) > 1:
        raise PostgresError("2202E", "wrong number of array subscripts")
    return list(steps)


def _index(step: str, place: int, size: int) -> int:
    """The place in an array that a step names; negative ones count from the end, and stay negative before the first."""
    if not _INTEGER.match(step):
        raise PostgresError("22P02", f'path element at position {place} is not an integer: "{step}"')
    index = int(step)
    if not -_INT_MAX - 1 <= index <= _INT_MAX:
        raise PostgresError("22P02", f'path element at position {place} is not an integer: "{step}"')
    return index + size if index < 0 else index


def _step_of(steps: list[str | None], place: int) -> str:
    step = steps[place]
    if step is None:
        raise PostgresError("22004", f"path element at position {place + 1} is null")
    return step


def delete_path(text: str, path: str) -> str:
    """jsonb #- text[]."""
    value, steps = _load(text), _path(path)
    if _is_scalar(value):
        raise PostgresError("22023", "cannot delete path in scalar")
    if not steps or not value:
        return text
    return print_value(_deleted(value, steps, 0))


def _deleted(value: Any, steps: list[str | None], place: int) -> Any:
    if _is_scalar(value):
        return value
    step, last = _step_of(steps, place), place + 1 == len(steps)
    if isinstance(value, dict):
        if step not in value:
            return value
        if last:
            return {key: each for key, each in value.items() if key != step}
        return {key: _deleted(each, steps, place + 1) if key == step else each for key, each in value.items()}
    index = _index(step, place + 1, len(value))
    if not 0 <= index < len(value):
        return value
    if last:
        return value[:index] + value[index + 1 :]
    return [_deleted(each, steps, place + 1) if number == index else each for number, each in enumerate(value)]


def replaced(text: str, path: str, new: str, create: bool = True) -> str:
    """jsonb_set."""
    value, steps = _load(text), _path(path)
    if _is_scalar(value):
        raise PostgresError("22023", "cannot set path in scalar")
    if (not value and not create) or not steps:
        return text
    return print_value(_replaced(value, steps, 0, _load(new), create))


def _replaced(value: Any, steps: list[str | None], place: int, new: Any, create: bool) -> Any:
    if _is_scalar(value):
        return value
    step, last = _step_of(steps, place), place + 1 == len(steps)
    if isinstance(value, dict):
        if step not in value:
            return {**value, step: new} if last and create else value
        inner = new if last else _replaced(value[step], steps, place + 1, new, create)
        return {**value, step: inner}
    index = _index(step, place + 1, len(value))
    if 0 <= index < len(value):
        inner = new if last else _replaced(value[index], steps, place + 1, new, create)
        return [*value[:index], inner, *value[index + 1 :]]
    if not (last and create):
        return value
    return [new, *value] if index < 0 else [*value, new]


def inserted(text: str, path: str, new: str, after: bool = False) -> str:
    """jsonb_insert."""
    value, steps = _load(text), _path(path)
    if _is_scalar(value):
        raise PostgresError("22023", "cannot set path in scalar")
    if not steps:
        return text
    return print_value(_inserted(value, steps, 0, _load(new), after))


def _inserted(value: Any, steps: list[str | None], place: int, new: Any, after: bool) -> Any:
    if _is_scalar(value):
        return value
    step, last = _step_of(steps, place), place + 1 == len(steps)
    if isinstance(value, dict):
        if step in value and last:
            hint = "Try using the function jsonb_set to replace key value."
            raise PostgresError("22023", "cannot replace existing key", hint=hint)
        if step not in value:
            return {**value, step: new} if last else value
        return {**value, step: _inserted(value[step], steps, place + 1, new, after)}
    index = _index(step, place + 1, len(value))
    if not last:
        if not 0 <= index < len(value):
            return value
        return [*value[:index], _inserted(value[index], steps, place + 1, new, after), *value[index + 1 :]]
    if index < 0:
        return [new, *value]
    if index >= len(value):
        return [*value, new]
    cut = index + 1 if after else index
    return [*value[:cut], new, *value[cut:]]


def set_lax(
    text: str | None, path: str | None, new: str | None, create: bool | None = True, treatment: str | None = "use_json_null"
) -> str | None:
    """jsonb_set_lax: what a NULL as the new value means is told by `treatment`."""
    if text is None or path is None or create is None:
        return None
    if treatment is None:
        raise PostgresError("22004", 'null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"')
    if new is not None:
        return replaced(text, path, new, create)
    match treatment:
        case "raise_exception":
            detail = 'Exception was raised because null_value_treatment is "raise_exception".'
            hint = "To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed."
            raise PostgresError("22004", "JSON value must not be null", detail=detail, hint=hint)
        case "use_json_null":
            return replaced(text, path, "null", create)
        case "delete_key":
            return delete_path(text, path)
        case "return_target":
            return text
        case _:
            raise PostgresError(
                "22023", 'null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"'
            )


def strip_nulls(text: str) -> str:
    """jsonb_strip_nulls: fields that are null, at all depths; never elements of arrays."""
    return print_value(_stripped(_load(text)))


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(each) for key, each in value.items() if each is not None}
    return [_stripped(each) for each in value] if isinstance(value, list) else value


def pretty(text: str) -> str:
    """jsonb_pretty: four blanks a level."""
    return _pretty(_load(text), "\n")


def _pretty(value: Any, line: str) -> str:
    inner = line + "    "
    if isinstance(value, dict):
        pairs = (f"{inner}{document.quoted(key)}: {_pretty(each, inner)}" for key, each in value.items())
        return "{" + ",".join(pairs) + f"{line}}}"
    if isinstance(value, list):
        return "[" + ",".join(f"{inner}{_pretty(each, inner)}" for each in value) + f"{line}]"
    return print_value(value)


def _scalar_of(text: str, wanted: str, target: str) -> Any:
    value = _load(text)
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


def from_json(text: str) -> str:
    """json as jsonb."""
    return document.normal(text)


def elements(text: str) -> list[str]:
    """jsonb_array_elements: the elements as jsonb."""
    return [print_value(each) for each in _items(text, "elements")]


def elements_text(text: str) -> list[str | None]:
    """jsonb_array_elements_text."""
    return [_text_of(each) for each in _items(text, "elements")]


def _items(text: str, what: str) -> list[Any]:
    value = _load(text)
    if isinstance(value, list):
        return value
    raise PostgresError("22023", f"cannot extract {what} from {'an object' if isinstance(value, dict) else 'a scalar'}")


def keys(text: str) -> list[str]:
    """jsonb_object_keys."""
    value = _load(text)
    if isinstance(value, dict):
        return list(value)
    raise PostgresError("22023", f"cannot call jsonb_object_keys on {'an array' if isinstance(value, list) else 'a scalar'}")


def pairs(function: str, text: str) -> list[tuple[str, str, str | None]]:
    """jsonb_each and jsonb_each_text together: (key, value as jsonb, value as text); `function` is named in the error."""
    value = _load(text)
    if isinstance(value, dict):
        return [(key, print_value(each), _text_of(each)) for key, each in value.items()]
    raise PostgresError("22023", f"cannot call {function} on a non-object")
