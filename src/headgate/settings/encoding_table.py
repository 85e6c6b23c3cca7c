"""Multibyte encodings that differ between Python and PostgreSQL: Japanese, Korean and Chinese ones.

`encodings.json` has PostgreSQL's differences from Python's codecs (written by tools/dump_encodings.py). The combined table is built when
the encoding is first used. Called by `encoding`. Invariant: only bytes that are a character for PostgreSQL (`CHARACTER`) are read
as one.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice, product

from headgate import interruption

_DOUBLE = rb"[\x00-\x7f]|(?!\x8d\x20)[\x80-\xff][\x01-\xff]"
_EUC = rb"[\x00-\x7f]|[\xa1-\xfe]{2}"
CHARACTER = {
    "BIG5": _DOUBLE,
    "EUC_CN": _EUC,
    "EUC_JP": rb"[\x00-\x7f]|\x8e[\xa1-\xdf]|\x8f[\xa1-\xfe]{2}|[\xa1-\xfe]{2}",
    "EUC_KR": _EUC,
    "GB18030": rb"[\x00-\x7f]|[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]|[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "GBK": _DOUBLE,
    "JOHAB": rb"[\x00-\x7f]|\x8e[\xa1-\xfe]|\x8f[\xa1-\xfe]{2}|[\x80-\x8d\x90-\xff][\xa1-\xfe]",
    "SJIS": rb"[\x00-\x7f]|[\xa1-\xdf]|[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
    "UHC": _DOUBLE,
}
"""Patterns of one character in a multibyte encoding, whether or not Unicode has it (wchar.c, pg_*_verifychar)."""
_AT_ONCE = 1 << 16
"""The number of characters that are decoded between two checks for a cancel."""
_LONGEST = 3
"""The maximum number of bytes of a character in a table."""


class _Characters(dict[bytes, str]):
    """Characters by their bytes. ASCII bytes map to themselves."""

    def __missing__(self, raw: bytes) -> str:
        return raw.decode("ascii")


@dataclass(frozen=True)
class Table:
    """The bytes of each code point, the character of these bytes, and the pattern that splits bytes into characters."""

    codes: dict[int, bytes]
    characters: _Characters
    part: re.Pattern[bytes]

    def encode(self, text: str) -> bytes:
        """Return the text's bytes. Raise UnicodeEncodeError if a character has none."""
        return codecs.charmap_encode(text, "strict", self.codes)[0]

    def decode(self, data: bytes) -> str:
        """Return the text of bytes. Raise UnicodeDecodeError if they are invalid."""
        parts = self.part.findall(data)
        try:
            return "".join(map(self.characters.__getitem__, parts))
        except UnicodeDecodeError:
            place = self._undecodable(parts)
            raise UnicodeDecodeError("table", data, place, place + 1, "no character") from None

    def decode_parts(self, data: bytes) -> str:
        """Decode many bytes part by part, so that a cancel can interrupt it."""
        matches, decoded, at = self.part.finditer(data), [], 0
        while parts := [match[0] for match in islice(matches, _AT_ONCE)]:
            interruption.check()
            try:
                decoded.append("".join(map(self.characters.__getitem__, parts)))
            except UnicodeDecodeError:
                place = at + self._undecodable(parts)
                raise UnicodeDecodeError("table", data, place, place + 1, "no character") from None
            at += sum(map(len, parts))
        return "".join(decoded)

    def _undecodable(self, parts: list[bytes]) -> int:
        """Return the index of the first bytes that are not a character."""
        place = 0
        for part in parts:
            if not part.isascii() and part not in self.characters:
                break
            place += len(part)
        return place


@functools.cache
def of(name: str, codec: str) -> Table | None:
    """Return the table of an encoding that Python has as `codec`, or None if Python's codec equals PostgreSQL's."""
    differs = _differences().get(name)
    if differs is None:
        return None
    unwanted = {*_numbers(differs["not encoded"])}
    encoded = ((code, chr(code).encode(codec, "ignore")) for code in range(0x80, 0x10000) if code not in unwanted)
    whole = re.compile(CHARACTER[name], re.DOTALL)
    to_bytes = {code: raw for code, raw in encoded if not raw.isascii() and len(raw) <= _LONGEST and (len(raw) > 1 or whole.match(raw))}
    to_bytes |= {code: _raw(number) for code, number in _pairs(differs["encode"])}
    characters = _Characters(_decode_all(whole, codec))
    for number in _numbers(differs["not decoded"]):
        characters.pop(_raw(number), None)
    characters.update((_raw(number), chr(code)) for number, code in _pairs(differs["decode"]))
    part = re.compile(rb"[\x00-\x7f]+|" + CHARACTER[name] + rb"|.", re.DOTALL)
    return Table({code: bytes([code]) for code in range(0x80)} | to_bytes, characters, part)


def _decode_all(whole: re.Pattern[bytes], codec: str) -> Iterator[tuple[bytes, str]]:
    """Return Python's characters for all bytes that PostgreSQL accepts as one."""
    for size in range(1, _LONGEST + 1):
        leads = range(0x80, 0x100) if size < _LONGEST else (0x8F,)
        for bytes_of in product(leads, *[range(0x30, 0x100)] * (size - 1)):
            raw = bytes(bytes_of)
            with contextlib.suppress(UnicodeDecodeError):
                if whole.fullmatch(raw) and len(text := raw.decode(codec)) == 1:
                    yield raw, text


@functools.cache
def _differences() -> dict[str, dict[str, str]]:
    differences: dict[str, dict[str, str]] = json.loads((resources.files("headgate.settings") / "encodings.json").read_text("utf-8"))
    return differences


def _raw(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _numbers(text: str) -> Iterator[int]:
    """Read hexadecimal numbers and ranges: ``a2-a3 ac``."""
    for word in text.split():
        first, _, last = word.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    """Read ``2460:ada1+20``: 20 hexadecimal pairs, in which both sides count up."""
    for word in text.split():
        first, _, rest = word.partition(":")
        second, _, count = rest.partition("+")
        for step in range(int(count or 1)):
            yield int(first, 16) + step, int(second, 16) + step
