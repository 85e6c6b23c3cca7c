"""Text forms of json (checked, kept as it is) and jsonb (PostgreSQL's normal form); both are stored as text.

Called by `text`. jsonb's normal form: the last of equal keys, keys by length and then bytes, numbers as numeric prints them,
one blank behind colon and comma. Texts that are in it are taken as they are (`normal_form`); for the others, Python's own JSON
scanner reads the same grammar as PostgreSQL's except NaN and Infinity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import text_column
from headgate.types.normal_form import documents, in_pieces
from headgate.types.text import json_error, numeric

_ESCAPE = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(strings: pa.StringArray) -> pa.StringArray:
    """json_in: 22P02 for what is no JSON."""
    return _read(strings, checked)


def read_jsonb(strings: pa.StringArray) -> pa.StringArray:
    """jsonb_in: the normal form; numbers alone and true, false, null are normal already."""
    return _read(strings, normal)


def _read(strings: pa.StringArray, scalar: Callable[[str], str]) -> pa.StringArray:
    plain = text_column.matches(strings, r"\A(-?[1-9][0-9]{0,100}|0|true|false|null)\z")
    usual = (
        plain
        if pc.all(plain, min_count=0).as_py()
        else pc.or_kleene(plain, pa.array(in_pieces(lambda piece: documents(piece, scalar), strings)))
    )
    return text_column.read(strings, usual, lambda each: each, scalar)


def checked(text: str) -> str:
    """One json text, as it is."""
    load(text, escapes=False)
    return text


def normal(text: str) -> str:
    """One jsonb in normal form."""
    value = load(text)
    try:
        return print_value(value)
    except PostgresError as error:
        raise json_error.explained(text, escapes=True) or error from None


def _refuse(_: str) -> NoReturn:
    raise ValueError("constant")


class Number(str):
    """A number of a JSON text, as it is written there."""

    __slots__ = ()


def load(text: str, *, escapes: bool = True) -> Any:
    """The value of a JSON text: dict, list, str, `Number`, bool or None; the last of equal keys wins. 22P02.

    `escapes`: whether an error in one is described as for jsonb, which reads them, or as for json.
    """
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_refuse, object_pairs_hook=dict)
    except ValueError:
        raise json_error.explained(text, escapes=escapes) or PostgresError("22P02", "invalid input syntax for type json") from None
    except RecursionError:
        raise PostgresError("54001", "stack depth limit exceeded") from None


def print_value(value: object) -> str:
    """jsonb_out of a value that `load` gave: keys in their order, numbers as numeric prints them."""
    if isinstance(value, dict):
        pairs = sorted(
            ((key.encode("utf-8", "surrogatepass"), key, each) for key, each in value.items()), key=lambda pair: (len(pair[0]), pair[0])
        )
        return "{" + ", ".join(f"{quoted(key)}: {print_value(each)}" for _, key, each in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(print_value, value)) + "]"
    if isinstance(value, Number):
        return numeric.print_value(numeric.value_of(value))
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return str(value)
    return quoted(value) if isinstance(value, str) else "null" if value is None else "true" if value else "false"


def quoted(text: str) -> str:
    """A string as jsonb and json print it. 22P05 and 22P02 for what no text can hold."""
    if "\0" in text:
        raise PostgresError("22P05", "unsupported Unicode escape sequence", detail="\\u0000 cannot be converted to text.")
    if _SURROGATE.search(text):
        detail = "Unicode low surrogate must follow a high surrogate."
        raise PostgresError("22P02", "invalid input syntax for type json", detail=detail)
    return '"' + _SPECIAL.sub(lambda found: _ESCAPE.get(found[0], f"\\u{ord(found[0]):04x}"), text) + '"'
