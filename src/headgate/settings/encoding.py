"""Encodings that a client may select: converts between a node's text, which is Unicode, and the client's bytes (manual, 24.3).

`find` returns an encoding by any of its names. `Encoding.encode` and `decode` convert one text; `types.encoded` converts whole columns.
Called by the check of `client_encoding`, by the server for all messages of a connection, by COPY and by the walsender.

Invariant: a text is converted as PostgreSQL converts it, or raises its error: 22021 for bytes that are invalid in the encoding, 22P05
for a character that the other encoding does not have. For all single-byte encodings, Python's codecs have PostgreSQL's tables. If they
differ for a multibyte encoding, `encodings.json` has PostgreSQL's differences (written by tools/dump_encodings.py), and a combined `Table`
is built when the encoding is first used. Only bytes that are a character for PostgreSQL (`CHARACTER`) are read as one.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice, product

from headgate import interruption
from headgate.errors import PostgresError

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
def table_of(name: str, codec: str) -> Table | None:
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


PART = 1 << 20
"""The number of bytes that are decoded at once."""


def _read_names() -> list[dict[str, str]]:
    """Return all encodings of PostgreSQL 15 in the order of their numbers (pg_enc)."""
    with (resources.files("headgate.settings") / "encodings.csv").open(encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


_NAMES = _read_names()
NUMBERED = tuple(row["name"] for row in _NAMES)
"""All encodings of PostgreSQL 15. The index of a name is its number (pg_enc)."""
CODECS = {row["name"]: row["codec"] for row in _NAMES if row["codec"]}
"""Python's codec, by PostgreSQL's name, of the encodings that a node converts."""
_ALIASES = {alias: row["name"] for row in _NAMES for alias in row["aliases"].split()}
_TRIPLE = {"EUC_CN": b"\x8e\x8f", "EUC_JP": b"\x8f", "EUC_KR": b"\x8f", "JOHAB": b"\x8f"}
"""Lead bytes of characters that have three bytes."""


def numbers() -> dict[str, int]:
    """Return the numbers of all encodings by each of their names, in lower case, with letters and digits only."""
    own = {re.sub("[^a-z0-9]", "", name.lower()): number for number, name in enumerate(NUMBERED)}
    return own | {alias: NUMBERED.index(name) for alias, name in _ALIASES.items()}


@dataclass(frozen=True)
class Encoding:
    """An encoding by PostgreSQL's name."""

    name: str

    @property
    def unicode(self) -> bool:
        """Whether nothing is converted: the text is sent as UTF-8."""
        return CODECS[self.name] == "utf-8"

    def encode(self, text: str) -> bytes:
        """Return the text's bytes. Raise 22P05 for a character that the encoding does not have."""
        if text.isascii():
            return text.encode("ascii")
        try:
            table = table_of(self.name, CODECS[self.name])
            return text.encode(CODECS[self.name]) if table is None else table.encode(text)
        except UnicodeEncodeError as error:
            raise self._untranslatable(text[error.start].encode("utf-8", "replace")) from None

    def decode(self, data: bytes) -> str:
        """Return the text of a client's bytes. Raise 22021 for invalid or zero bytes, 22P05 for a character that Unicode does not have."""
        if b"\0" in data:
            raise self._invalid(data, data.index(0))
        try:
            return self.decode_divided(data) if len(data) <= PART else self._decode_parts(data)
        except UnicodeDecodeError as error:
            raise self._undecodable(data, error.start) from None

    def _decode_parts(self, data: bytes) -> str:
        """Decode many bytes part by part, because decoding holds the interpreter's lock."""
        table = table_of(self.name, CODECS[self.name])
        if table is not None:
            return table.decode_parts(data)
        decoder, parts = codecs.getincrementaldecoder(CODECS[self.name])(), []
        for start in range(0, len(data), PART):
            interruption.check()
            try:
                parts.append(decoder.decode(data[start : start + PART], final=start + PART >= len(data)))
            except UnicodeDecodeError as error:
                end = min(start + PART, len(data))  # `error` counts from the bytes that the decoder has kept of the part before
                place = end - len(error.object) + error.start
                raise UnicodeDecodeError(error.encoding, data, place, place + error.end - error.start, error.reason) from None
        return "".join(parts)

    def decode_divided(self, data: bytes) -> str:
        """Decode several values that zero bytes separate. Raise UnicodeDecodeError, which has less detail than the errors of `decode`."""
        table = table_of(self.name, CODECS[self.name])
        return data.decode(CODECS[self.name]) if table is None else table.decode(data)

    def _undecodable(self, data: bytes, place: int) -> PostgresError:
        character = re.match(CHARACTER.get(self.name, rb"[\x01-\xff]"), data[place : place + 4], re.DOTALL)
        if self.unicode or character is None:
            return self._invalid(data, place)
        return PostgresError("22P05", _no_equivalent(character[0], self.name, "UTF8"))

    def _invalid(self, data: bytes, place: int) -> PostgresError:
        name = "UTF8" if self.unicode else self.name
        shown = _show(data[place : place + self._length(data, place)])
        return PostgresError("22021", f'invalid byte sequence for encoding "{name}": {shown}')

    def _length(self, data: bytes, place: int) -> int:
        """Return the number of bytes that the character at `place` should have (pg_encoding_mblen)."""
        lead = data[place]
        if self.unicode:
            return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4 if lead < 0xF8 else 1
        if lead < 0x80 or self.name not in CHARACTER or (self.name == "SJIS" and 0xA1 <= lead <= 0xDF):
            return 1
        if self.name == "GB18030" and data[place + 1 : place + 2].isdigit():
            return 4
        return 3 if lead in _TRIPLE.get(self.name, b"") else 2

    def _untranslatable(self, raw: bytes) -> PostgresError:
        return PostgresError("22P05", _no_equivalent(raw, "UTF8", self.name))


UTF8 = Encoding("UTF8")


def _show(data: bytes) -> str:
    return " ".join(f"0x{byte:02x}" for byte in data[:8])


def _no_equivalent(raw: bytes, source: str, target: str) -> str:
    return f'character with byte sequence {_show(raw)} in encoding "{source}" has no equivalent in encoding "{target}"'


@functools.cache
def _by_bare_name() -> dict[str, str]:
    names = {_bare(name): name for name in NUMBERED}
    windows = {_bare(name).replace("win", "windows"): name for name in CODECS if name.startswith("WIN")}
    more = {alias.replace("win", "windows"): name for alias, name in _ALIASES.items() if re.fullmatch(r"win\d+", alias)}
    return names | windows | more | _ALIASES


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def canonical_name(text: str) -> str | None:
    """Return PostgreSQL's name of an encoding, also if a node does not convert it, or None if there is none."""
    return _by_bare_name().get(_bare(text))


def find(name: str) -> Encoding | None:
    """Return the encoding of that name, or None if a node does not convert it."""
    canonical = canonical_name(name)
    return Encoding(canonical) if canonical in CODECS else None
