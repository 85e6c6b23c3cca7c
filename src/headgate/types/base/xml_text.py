"""xml, stored as text: xml_in … xml_send on whole columns, as in xml.c with xmloption content. `TYPES` describes it.

Python's expat checks whether a text is well-formed, without namespaces, as PostgreSQL does with libxml2. Nothing outside the text is read.
expat's message becomes the DETAIL. Each different text is read separately.
"""

from __future__ import annotations

import re
from xml.parsers import expat

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import registry, text_column
from headgate.types.base import string
from headgate.types.base.base_type import BaseType, text_received, text_sent
from headgate.types.text_column import TextSettings

_SPACE = r"[ \t\r\n]"
_DECLARED = re.compile(r"<\?xml(?![\w:.\-\u00b7])")
_VALUE = r"""(?:'[^'\u0080-\U0010ffff]*'|"[^"\u0080-\U0010ffff]*")"""
_DECLARATION = re.compile(
    rf"<\?xml{_SPACE}+version{_SPACE}*={_SPACE}*(?P<version>{_VALUE})(?:{_SPACE}+encoding{_SPACE}*={_SPACE}*{_VALUE})?"
    rf"""(?:{_SPACE}+standalone{_SPACE}*={_SPACE}*(?P<standalone>'yes'|"yes"|'no'|"no"))?{_SPACE}*\?>"""
)
_BEFORE_DOCTYPE = re.compile(rf"(?:{_SPACE}|<!--(?:(?!--).)*-->|<\?.*?\?>)*<!DOCTYPE", re.DOTALL)
_WRAP = "<x>", "</x>"


def normal(text: str) -> str:
    """Read one value as xml_in and print it as xml_out: without an encoding and without a redundant declaration. Raise 2200N."""
    declaration = _DECLARATION.match(text)
    if declaration is None:
        if _DECLARED.match(text):
            raise PostgresError("2200N", "invalid XML content: invalid XML declaration")
        _check(text)
        return text
    rest = text[declaration.end() :]
    _check(rest)
    version, standalone = declaration["version"][1:-1], (declaration["standalone"] or "")[1:-1]
    if version == "1.0" and not standalone:
        return rest.removeprefix("\n")
    shown = f' standalone="{standalone}"' if standalone else ""
    return f'<?xml version="{version}"{shown}?>{rest}'


def _check(text: str) -> None:
    """Raise 2200N unless the text is well-formed: as a document if it has a DOCTYPE, else as the content of an element."""
    try:
        if _BEFORE_DOCTYPE.match(text):
            expat.ParserCreate("UTF-8").Parse(text.encode(), True)
        elif text:
            _check_content(text)
    except expat.ExpatError as error:
        raise PostgresError("2200N", "invalid XML content", detail=f"line {error.lineno}: {expat.ErrorString(error.code)}") from None


def _check_content(text: str) -> None:
    parser = expat.ParserCreate("UTF-8")
    depth = 0

    def start(_name: str, _attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1
        if not depth and parser.CurrentByteIndex < size:
            raise PostgresError("2200N", "invalid XML content", detail=f"line {parser.CurrentLineNumber}: mismatched tag")

    size = len((_WRAP[0] + text).encode())
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.Parse(f"{_WRAP[0]}{text}{_WRAP[1]}".encode(), True)


def _read(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return text_column.read_normal(string.read_text(strings), pa.array([False] * len(strings)), normal)


TYPES: dict[int, BaseType] = {registry.XML: BaseType(read=_read, receive=text_received(_read), send=text_sent, in_bulk=False)}
