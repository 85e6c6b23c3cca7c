"""The values of a statement's parameters: Bind and EXECUTE check them, and Bind converts the binary ones to text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.types import registry
from headgate.types.binary import binary
from headgate.types.text import text as forms

if TYPE_CHECKING:
    from headgate.settings.encoding import Encoding
    from headgate.types.text_column import TextSettings

_UNCHECKED = frozenset({0, registry.UNKNOWN, registry.TEXT, registry.VARCHAR, registry.BPCHAR, registry.NAME, registry.CSTRING})


def check(text: str, type_oid: int, styles: TextSettings) -> None:
    """Raise the error of the type's input function for a parameter's text, if it is not valid."""
    if type_oid not in _UNCHECKED:
        forms.read_scalar(text, type_oid, -1, session=styles)


def text_of_binary(value: bytes, type_oid: int, encoding: Encoding) -> str:
    """Convert a parameter from its binary to its text format."""
    if type_oid in _UNCHECKED:
        return encoding.decode(value)
    import numpy as np

    starts, lengths = np.zeros(1, np.int64), np.array([len(value)], np.int32)
    typed = binary.read_binary(np.frombuffer(value, np.uint8), starts, lengths, type_oid, encoding=encoding)
    return str(forms.write_text(typed, type_oid)[0].as_py())
