"""Encodings that a client may select: converts between a node's text, which is Unicode, and the client's bytes (manual, 24.3).

`find` returns an encoding by any of its names. `Encoding.encode` and `decode` convert one text; `types.encoded` converts whole columns.
Called by the check of `client_encoding`, by the server for all messages of a connection, by COPY and by the walsender.

Invariant: a text is converted as PostgreSQL converts it, or raises its error: 22021 for bytes that are invalid in the encoding, 22P05
for a character that the other encoding does not have. For all single-byte encodings, Python's codecs have PostgreSQL's tables. If they
differ for a multibyte encoding, `encoding_table` has the difference.
"""

from __future__ import annotations

import codecs
import functools
import re
from dataclasses import dataclass

from headgate import interruption
from headgate.errors import PostgresError
from headgate.settings.encoding_table import CHARACTER, of

PART = 1 << 20
"""The number of bytes that are decoded at once."""
CODECS = {
    "UTF8": "utf-8",
    "SQL_ASCII": "utf-8",
    "LATIN1": "iso8859-1",
    "LATIN2": "iso8859-2",
    "LATIN3": "iso8859-3",
    "LATIN4": "iso8859-4",
    "LATIN5": "iso8859-9",
    "LATIN6": "iso8859-10",
    "LATIN7": "iso8859-13",
    "LATIN8": "iso8859-14",
    "LATIN9": "iso8859-15",
    "LATIN10": "iso8859-16",
    "ISO_8859_5": "iso8859-5",
    "ISO_8859_6": "iso8859-6",
    "ISO_8859_7": "iso8859-7",
    "ISO_8859_8": "iso8859-8",
    "WIN866": "cp866",
    "WIN874": "cp874",
    "WIN1250": "cp1250",
    "WIN1251": "cp1251",
    "WIN1252": "cp1252",
    "WIN1253": "cp1253",
    "WIN1254": "cp1254",
    "WIN1255": "cp1255",
    "WIN1256": "cp1256",
    "WIN1257": "cp1257",
    "WIN1258": "cp1258",
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "EUC_JP": "euc_jp",
    "EUC_KR": "euc_kr",
    "EUC_CN": "gb2312",
    "SJIS": "cp932",
    "BIG5": "cp950",
    "GBK": "cp936",
    "GB18030": "gb18030",
    "UHC": "cp949",
    "JOHAB": "johab",
}
"""Python's codec, by PostgreSQL's name."""
NUMBERED = tuple(
    "SQL_ASCII EUC_JP EUC_CN EUC_KR EUC_TW EUC_JIS_2004 UTF8 MULE_INTERNAL LATIN1 LATIN2 LATIN3 LATIN4 LATIN5 LATIN6 LATIN7 LATIN8 LATIN9"
    " LATIN10 WIN1256 WIN1258 WIN866 WIN874 KOI8R WIN1251 WIN1252 ISO_8859_5 ISO_8859_6 ISO_8859_7 ISO_8859_8 WIN1250 WIN1253 WIN1254"
    " WIN1255 WIN1257 KOI8U SJIS BIG5 GBK UHC GB18030 JOHAB SHIFT_JIS_2004".split()
)
"""All encodings of PostgreSQL 15. The index of a name is its number (pg_enc)."""
_NOT_HERE = ("EUC_JIS_2004", "EUC_TW", "MULE_INTERNAL", "SHIFT_JIS_2004")
"""Encodings of PostgreSQL that a node does not convert."""
_ALIASES = {
    "abc": "WIN1258",
    "alt": "WIN866",
    "iso88591": "LATIN1",
    "iso88592": "LATIN2",
    "iso88593": "LATIN3",
    "iso88594": "LATIN4",
    "iso88599": "LATIN5",
    "iso885910": "LATIN6",
    "iso885913": "LATIN7",
    "iso885914": "LATIN8",
    "iso885915": "LATIN9",
    "iso885916": "LATIN10",
    "koi8": "KOI8R",
    "mskanji": "SJIS",
    "shiftjis": "SJIS",
    "tcvn": "WIN1258",
    "tcvn5712": "WIN1258",
    "unicode": "UTF8",
    "vscii": "WIN1258",
    "win": "WIN1251",
    "win932": "SJIS",
    "win936": "GBK",
    "win949": "UHC",
    "win950": "BIG5",
}
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
    names = {_bare(name): name for name in (*CODECS, *_NOT_HERE)}
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
