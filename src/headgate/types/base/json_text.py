"""json (validated, stored unchanged) and jsonb (PostgreSQL's normal form), stored as text: json_in … jsonb_send on whole columns.

`TYPES` describes them. jsonb's normal form: the last of equal keys, keys ordered by length and then bytes, numbers as numeric prints them,
one blank after colon and comma. Texts in normal form are kept unchanged (`normal_form`). The others are read by Python's JSON scanner,
which accepts PostgreSQL's grammar and also NaN and Infinity, which are rejected here.
"""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import interruption
from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import registry, text_column
from headgate.types.base import json_error, numeric, string
from headgate.types.base.base_type import BaseType, Wire, ended, key_of_text, text_received, text_sent
from headgate.types.encoded import encoded
from headgate.types.normal_form import LONG, documents, in_pieces
from headgate.types.text_column import PLAIN, TextSettings

_ESCAPE = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_AT_ONCE = 4096
"""The number of items that are printed between two checks for a cancel."""
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(strings: pa.StringArray) -> pa.StringArray:
    """Read json as json_in. Raise 22P02 if it is not JSON."""
    return _read(strings, checked)


def read_jsonb(strings: pa.StringArray) -> pa.StringArray:
    """Read jsonb as jsonb_in into normal form. Single integers and true, false, null are already normal."""
    return _read(strings, normal)


def _read(strings: pa.StringArray, scalar: Callable[[str], str]) -> pa.StringArray:
    plain = text_column.matches(strings, r"\A(-?[1-9][0-9]{0,100}|0|true|false|null)\z")
    usual = (
        plain
        if pc.all(plain, min_count=0).as_py()
        else pc.or_kleene(plain, pa.array(in_pieces(lambda piece: documents(piece, scalar), strings)))
    )
    return text_column.read(strings, usual, lambda texts: texts, scalar)


def checked(text: str) -> str:
    """Validate one json text and return it unchanged."""
    load(text, escapes=False)
    return text


def normal(text: str) -> str:
    value = load(text)
    try:
        return print_value(value)
    except PostgresError as error:
        raise json_error.explained(text, escapes=True) or error from None


def _refuse(_: str) -> NoReturn:
    raise ValueError("constant")


Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool | None"
"""A loaded JSON text. A number is a `Number`."""


class Number(str):
    """A number of a JSON text, as written there."""

    __slots__ = ()


def _number(text: str) -> Number:
    """Return a number of a long text. Python's scanner holds the interpreter's lock except while it calls a Python function like this."""
    interruption.check()
    return Number(text)


def load(text: str, *, escapes: bool = True) -> Json:
    """Return the value of a JSON text. The last of equal keys wins. Raise 22P02.

    `escapes`: whether an error in an escape is described as for jsonb, which decodes them, or as for json.
    """
    hook = Number if len(text) <= LONG else _number
    try:
        value: Json = json.loads(text, parse_float=hook, parse_int=hook, parse_constant=_refuse, object_pairs_hook=dict)
        return value
    except ValueError:
        raise json_error.explained(text, escapes=escapes) or PostgresError("22P02", "invalid input syntax for type json") from None
    except RecursionError:
        raise PostgresError("54001", "stack depth limit exceeded") from None


def print_value(value: object) -> str:
    """Print a result of `load` as jsonb_out: keys in order, numbers as numeric prints them."""
    if isinstance(value, dict | list):
        interruption.check()  # printing millions of them takes a while
    if isinstance(value, dict):
        pairs = sorted(
            ((key.encode("utf-8", "surrogatepass"), key, item) for key, item in value.items()), key=lambda pair: (len(pair[0]), pair[0])
        )
        return "{" + ", ".join(f"{quoted(key)}: {print_value(item)}" for _, key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_print_items(value)) + "]"
    if isinstance(value, Number):
        return numeric.print_value(numeric.value_of(value))
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return str(value)
    return quoted(value) if isinstance(value, str) else "null" if value is None else "true" if value else "false"


def _print_items(items: list[object]) -> Iterator[str]:
    for index, item in enumerate(items):
        if index % _AT_ONCE == _AT_ONCE - 1:
            interruption.check()
        yield print_value(item)


def quoted(text: str) -> str:
    """Print a string as json and jsonb do. Raise 22P05 or 22P02 for characters that text cannot contain."""
    if "\0" in text:
        raise PostgresError("22P05", "unsupported Unicode escape sequence", detail="\\u0000 cannot be converted to text.")
    if _SURROGATE.search(text):
        detail = "Unicode low surrogate must follow a high surrogate."
        raise PostgresError("22P02", "invalid input syntax for type json", detail=detail)
    return '"' + _SPECIAL.sub(lambda match: _ESCAPE.get(match[0], f"\\u{ord(match[0]):04x}"), text) + '"'


def _read_json(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return read_json(string.read_text(strings))


def _read_jsonb(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return read_jsonb(string.read_text(strings))


def _receive_jsonb(wire: Wire, modifier: int) -> pa.StringArray:
    """Receive jsonb as jsonb_recv: a version byte, which is 1, then the text."""
    present = slice(None) if wire.mask is None else wire.mask
    if (wire.sizes[present] < 1).any():
        raise PostgresError("08P01", "insufficient data left in message")
    versions = wire.data[wire.starts[present]]
    if (versions != 1).any():
        raise PostgresError("XX000", f"unsupported jsonb version number {int(versions[versions != 1][0])}")
    version = (wire.sizes > 0).astype(np.int64)  # a NULL has no version byte, and may be at the end of the data
    texts = dataclasses.replace(wire, starts=wire.starts + version, sizes=wire.sizes - version)
    return _read_jsonb(texts.texts(), modifier, PLAIN)


def _send_jsonb(values: pa.Array, encoding: Encoding) -> pa.LargeBinaryArray:
    version, nothing = pa.scalar(b"\x01", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(version, encoded(values, encoding).cast(pa.large_binary()), nothing)


_NULL, _STRING, _NUMBER, _BOOL, _ARRAY, _OBJECT = b"\x00", b"\x01", b"\x02", b"\x03", b"\x10", b"\x11"


def document_key(text: str) -> bytes:
    """Return the key of a document (compareJsonbContainers): object > array > boolean > number > string > null.

    A longer container is greater. A single scalar is an array of one element that sorts before real arrays of one. So an empty array is
    less than it.
    """
    value = load(text)
    if isinstance(value, dict | list):
        return _node(value)
    return _ARRAY + struct.pack(">IB", 1, 0) + _node(value)


def _node(value: Json) -> bytes:
    if isinstance(value, dict):
        pairs = b"".join(ended(key_of_text(key)) + _node(item) for key, item in value.items())
        return _OBJECT + struct.pack(">I", len(value)) + pairs
    if isinstance(value, list):
        return _ARRAY + struct.pack(">IB", len(value), 1) + b"".join(map(_node, value))
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _BOOL + bytes([value])
    if isinstance(value, Number):
        return _NUMBER + ended(numeric.numeric_key(value))
    return _STRING + ended(key_of_text(value))


TYPES = {
    registry.JSON: BaseType(read=_read_json, receive=text_received(_read_json), send=text_sent),
    registry.JSONB: BaseType(read=_read_jsonb, receive=_receive_jsonb, send=_send_jsonb, key=document_key, one_text=False),
}
