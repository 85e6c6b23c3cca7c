"""Text forms of inet, cidr, macaddr, macaddr8, bit, varbit and pg_lsn; all are stored as text.

Called by `text`. Texts in normal form are taken as they are (`normal_form`); the others are read one by one, each different text once.
Addresses are printed by inet_ntop, of which PostgreSQL carries a copy.
"""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.types import normal_form, registry, text_column, typmod

_MAC = re.compile(
    r"\s*(?:([0-9a-f]{1,2})([:-])([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})"
    r"|([0-9a-f]{6})[:-]([0-9a-f]{6})|([0-9a-f]{4})([.-])([0-9a-f]{4})\11([0-9a-f]{4})|([0-9a-f]{12}))\s*\Z",
    re.IGNORECASE,
)
_MAC8 = re.compile(r"\s*([0-9a-f]{2})(?:([:.-]?)[0-9a-f]{2})*\s*\Z", re.IGNORECASE)


def read_address(strings: pa.StringArray, oid: int) -> pa.StringArray:
    """The input functions of inet, cidr, macaddr and macaddr8."""
    match oid:
        case registry.INET:
            return _read(strings, normal_form.inet(strings), lambda text: inet_of(text, is_cidr=False))
        case registry.CIDR:
            return _read(strings, normal_form.cidr(strings), lambda text: inet_of(text, is_cidr=True))
        case registry.MACADDR:
            return _read(strings, text_column.matches(strings, normal_form.MAC), macaddr_of)
        case _:
            return _read(strings, text_column.matches(strings, normal_form.MAC8), macaddr8_of)


def read_bits(strings: pa.StringArray, oid: int, modifier: int) -> pa.StringArray:
    """bit_in, varbit_in and the modifier."""
    usual = text_column.matches(strings, r"\A[01]*\z")
    limit = typmod.length(oid, modifier)
    if limit is not None:
        sizes = pc.binary_length(strings)
        usual = pc.and_(usual, pc.equal(sizes, limit) if oid == registry.BIT else pc.less_equal(sizes, limit))
    return _read(strings, usual, lambda text: bits_of(text, oid, modifier))


def read_lsn(strings: pa.StringArray) -> pa.StringArray:
    """pg_lsn_in."""
    return _read(strings, text_column.matches(strings, normal_form.LSN), lsn_of)


def _read(strings: pa.StringArray, usual: pa.BooleanArray, scalar: Callable[[str], str]) -> pa.StringArray:
    return text_column.read(strings, usual, lambda each: each, functools.cache(scalar))


def inet_of(text: str, *, is_cidr: bool) -> str:
    """inet_in and cidr_in: ``10.0.0.1``, ``10/8``, ``::1/64``. 22P02."""
    name = "cidr" if is_cidr else "inet"
    host, slash, bits_text = text.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed, bits = _packed(host, bits_text if slash else None, family, is_cidr=is_cidr, error=text_column.invalid_syntax(name, text))
    number = int.from_bytes(packed, "big")
    size = len(packed) * 8
    if is_cidr and number & ((1 << size - bits) - 1):
        raise PostgresError("22P02", f'invalid cidr value: "{text}"', detail="Value has bits set to right of mask.")
    return print_inet(packed, bits, is_cidr=is_cidr)


def print_inet(packed: bytes, bits: int, *, is_cidr: bool) -> str:
    """inet_out, cidr_out."""
    shown = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    return f"{shown}/{bits}" if is_cidr or bits != len(packed) * 8 else shown


def _packed(host: str, bits_text: str | None, family: int, *, is_cidr: bool, error: PostgresError) -> tuple[bytes, int]:
    if bits_text is not None and not re.fullmatch(r"0|[1-9][0-9]{0,2}", bits_text):
        raise error
    if family == socket.AF_INET6:
        try:
            packed = socket.inet_pton(family, host)
        except (OSError, UnicodeError, ValueError):
            raise error from None
        bits = 128 if bits_text is None else int(bits_text)
        if bits > 128:
            raise error
        return packed, bits
    parts = host.split(".")
    if not 1 <= len(parts) <= 4 or any(not re.fullmatch(r"[0-9]{1,10}", part) or int(part) > 255 for part in parts):
        raise error
    packed = bytes(int(part) for part in parts).ljust(4, b"\0")
    if bits_text is None:
        if len(parts) < 4 and not is_cidr:
            raise error
        classful = 32 if packed[0] >= 240 else 8 if packed[0] >= 224 else 24 if packed[0] >= 192 else 16 if packed[0] >= 128 else 8
        bits = 32 if len(parts) == 4 else max(classful, len(parts) * 8)
    else:
        bits = int(bits_text)
    if bits > 32:
        raise error
    return packed, bits


def macaddr_of(text: str) -> str:
    """macaddr_in: seven spellings. 22P02."""
    found = _MAC.match(text)
    if not found:
        raise text_column.invalid_syntax("macaddr", text)
    groups = [each for place, each in enumerate(found.groups()) if each and place not in (1, 10)]
    digits = "".join(each.zfill(2) for each in groups).lower()
    return ":".join(digits[place : place + 2] for place in range(0, 12, 2))


def macaddr8_of(text: str) -> str:
    """macaddr8_in: eight bytes, or six with ff:fe put in their middle. 22P02."""
    digits = re.sub(r"[:.\s-]", "", text).lower()
    if not _MAC8.match(text) or len(digits) not in (12, 16):
        raise text_column.invalid_syntax("macaddr8", text)
    if len(digits) == 12:
        digits = digits[:6] + "fffe" + digits[6:]
    return ":".join(digits[place : place + 2] for place in range(0, 16, 2))


def bits_of(text: str, oid: int, modifier: int) -> str:
    """bit_in, varbit_in: binary digits, or hexadecimal ones behind an X. 22P02, 22026, 22001."""
    digits = text
    if text[:1] in ("b", "B"):
        digits = text[1:]
    elif text[:1] in ("x", "X"):
        bad = re.search(r"[^0-9a-fA-F]", text[1:])
        if bad:
            raise PostgresError("22P02", f'"{bad[0]}" is not a valid hexadecimal digit')
        digits = "".join(f"{int(digit, 16):04b}" for digit in text[1:])
    wrong = re.search("[^01]", digits)
    if wrong:
        raise PostgresError("22P02", f'"{wrong[0]}" is not a valid binary digit')
    limit = typmod.length(oid, modifier)
    if oid == registry.BIT and limit is not None and len(digits) != limit:
        raise PostgresError("22026", f"bit string length {len(digits)} does not match type bit({limit})")
    if oid == registry.VARBIT and limit is not None and len(digits) > limit:
        raise PostgresError("22001", f"bit string too long for type bit varying({limit})")
    return digits


def lsn_of(text: str) -> str:
    """pg_lsn_in. 22P02."""
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text):
        raise text_column.invalid_syntax("pg_lsn", text)
    return str(Lsn.parse(text))
