"""Encodings that a client may select: converts between a node's text, which is Unicode, and the client's bytes (manual, 24.3).

`find` returns an encoding by any of its names. `Encoding.encode` and `decode` convert one text; `types.encoded` converts whole columns.
Called by the check of `client_encoding`, by the server for all messages of a connection, by COPY and by the walsender.

Invariant: a text is converted as PostgreSQL converts it, or raises its error: 22021 for bytes that are invalid in the encoding, 22P05
for a character that the other encoding does not have. For all single-byte encodings, Python's codecs have PostgreSQL's tables. If they
differ for a multibyte encoding, `encoding_table` has the difference.
"""

from __future__ import annotations

import codecs
import csv
import functools
import re
from dataclasses import dataclass
from importlib import resources

from headgate import interruption
from headgate.errors import PostgresError
from headgate.settings.encoding_table import CHARACTER, of

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
            table = of(self.name, CODECS[self.name])
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
        table = of(self.name, CODECS[self.name])
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
        table = of(self.name, CODECS[self.name])
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
