"""Functions that return a modified jsonb, on single values: ||, -, #-, jsonb_set, jsonb_insert, jsonb_strip_nulls (jsonfuncs.c).

Called by `implementation.json` inside Arrow functions, on texts as in `jsonb`. A loaded value is shared, so it is never modified in place.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import PostgresError
from headgate.expression.functions.json.jsonb import INTEGER, load
from headgate.types.base.json_text import Json, Number, print_value
from headgate.types.text import array

Container = dict[str, Json] | list[Json]
_INT_MAX = 2**31 - 1


def concatenate(left: str, right: str) -> str:
    """Return jsonb || jsonb. Objects are merged. Other values become an array."""
    left_value, right_value = load(left), load(right)
    if isinstance(left_value, dict) and isinstance(right_value, dict):
        return print_value({**left_value, **right_value})
    return print_value(
        [
            *(left_value if isinstance(left_value, list) else [left_value]),
            *(right_value if isinstance(right_value, list) else [right_value]),
        ]
    )


def _container(text: str, action: str = "delete from") -> Container:
    """Return an object or array. Raise 22023 for a scalar, in which the action is not possible."""
    value = load(text)
    if not isinstance(value, dict | list):
        raise PostgresError("22023", f"cannot {action} scalar")
    return value


def delete(text: str, key: str) -> str:
    """Return the object without this key, or the array without the strings equal to it (jsonb - text)."""
    return _without(_container(text), {key})


def _without(value: Container, keys: set[str]) -> str:
    if isinstance(value, dict):
        return print_value({key: member for key, member in value.items() if key not in keys})
    return print_value([item for item in value if not (isinstance(item, str) and not isinstance(item, Number) and item in keys)])


def delete_element(text: str, index: int) -> str:
    """Return the array without the element at this index (jsonb - integer)."""
    value = _container(text)
    if isinstance(value, dict):
        raise PostgresError("22023", "cannot delete from object using integer index")
    place = index + len(value) if index < 0 else index
    return print_value([item for number, item in enumerate(value) if number != place])


def delete_all(text: str, keys: str) -> str:
    """Return the object without these keys, or the array without these strings (jsonb - text[])."""
    shape, key_items = array.parts(keys)
    if len(shape.lengths) > 1:
        raise PostgresError("2202E", "wrong number of array subscripts")
    return _without(_container(text), {key for key in key_items if key is not None})


def _path(path: str) -> list[str | None]:
    shape, steps = array.parts(path)
    if len(shape.lengths) > 1:
        raise PostgresError("2202E", "wrong number of array subscripts")
    return list(steps)


def _index(step: str, place: int, size: int) -> int:
    """Return the index that a step of a path names. A negative one counts from the end, and remains negative if it is out of range."""
    index = int(step) if INTEGER.match(step) else None
    if index is None or not -_INT_MAX - 1 <= index <= _INT_MAX:
        raise PostgresError("22P02", f'path element at position {place} is not an integer: "{step}"')
    return index + size if index < 0 else index


def _step_of(steps: list[str | None], place: int) -> str:
    step = steps[place]
    if step is None:
        raise PostgresError("22004", f"path element at position {place + 1} is null")
    return step


def _changed(value: Json, steps: list[str | None], change: Callable[[Container, str, int], Json], place: int = 0) -> Json:
    """Return a value whose object or array at the end of a path is changed. A path that leads nowhere changes nothing.

    `change` gets the object or array, the last step, and the position of the step from 1.
    """
    if not isinstance(value, dict | list):
        return value
    step = _step_of(steps, place)
    if place + 1 == len(steps):
        return change(value, step, place + 1)
    if isinstance(value, dict):
        return {**value, step: _changed(value[step], steps, change, place + 1)} if step in value else value
    index = _index(step, place + 1, len(value))
    if not 0 <= index < len(value):
        return value
    return [*value[:index], _changed(value[index], steps, change, place + 1), *value[index + 1 :]]


def delete_path(text: str, path: str) -> str:
    """Return the value without what the path leads to (jsonb #- text[])."""
    steps, value = _path(path), _container(text, "delete path in")
    if not steps or not value:
        return text

    def delete(container: Container, step: str, position: int) -> Json:
        if isinstance(container, dict):
            return {key: item for key, item in container.items() if key != step}
        index = _index(step, position, len(container))
        return container[:index] + container[index + 1 :] if 0 <= index < len(container) else container

    return print_value(_changed(value, steps, delete))


def replaced(text: str, path: str, new: str, create: bool = True) -> str:
    """Return the value with what the path leads to replaced (jsonb_set)."""
    steps, value, item = _path(path), _container(text, "set path in"), load(new)
    if (not value and not create) or not steps:
        return text

    def replace(container: Container, step: str, position: int) -> Json:
        if isinstance(container, dict):
            return {**container, step: item} if step in container or create else container
        index = _index(step, position, len(container))
        if 0 <= index < len(container):
            return [*container[:index], item, *container[index + 1 :]]
        if not create:
            return container
        return [item, *container] if index < 0 else [*container, item]

    return print_value(_changed(value, steps, replace))


def inserted(text: str, path: str, new: str, after: bool = False) -> str:
    """Return the value with a new one inserted where the path leads (jsonb_insert)."""
    steps, value, item = _path(path), _container(text, "set path in"), load(new)
    if not steps:
        return text

    def insert(container: Container, step: str, position: int) -> Json:
        if isinstance(container, dict):
            if step in container:
                hint = "Try using the function jsonb_set to replace key value."
                raise PostgresError("22023", "cannot replace existing key", hint=hint)
            return {**container, step: item}
        index = _index(step, position, len(container))
        cut = max(index, 0) + (after and 0 <= index < len(container))
        return [*container[:cut], item, *container[cut:]]

    return print_value(_changed(value, steps, insert))


_TREATMENTS = 'null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"'


def set_lax(
    text: str | None, path: str | None, new: str | None, create: bool | None = True, treatment: str | None = "use_json_null"
) -> str | None:
    """Return jsonb_set_lax. `treatment` says what a NULL as the new value means."""
    if text is None or path is None or create is None:
        return None
    if treatment is None:
        raise PostgresError("22023", _TREATMENTS)
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
            raise PostgresError("22023", _TREATMENTS)


def strip_nulls(text: str) -> str:
    """Return the value without the fields that are null, at every depth. Array elements that are null remain (jsonb_strip_nulls)."""
    return print_value(_strip(load(text)))


def _strip(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _strip(item) for key, item in value.items() if item is not None}
    return [_strip(item) for item in value] if isinstance(value, list) else value
