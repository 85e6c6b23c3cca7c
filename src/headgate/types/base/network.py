"""inet, cidr, macaddr and macaddr8, stored as text: inet_in … macaddr8_send on whole columns.

`TYPES` describes them. Texts in normal form are kept unchanged (`normal_form`). The others are read one by one, each different text once.
inet_ntop prints addresses; PostgreSQL has a copy of it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Callable

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import normal_form, registry, text_column
from headgate.types.base.base_type import BaseType, Key, key_of_text, singly

_MAC = re.compile(
    r"\s*(?:([0-9a-f]{1,2})([:-])([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})"
    r"|([0-9a-f]{6})[:-]([0-9a-f]{6})|([0-9a-f]{4})([.-])([0-9a-f]{4})\11([0-9a-f]{4})|([0-9a-f]{12}))\s*\Z",
    re.IGNORECASE,
)
_MAC8 = re.compile(r"\s*([0-9a-f]{2})(?:([:.-]?)[0-9a-f]{2})*\s*\Z", re.IGNORECASE)


def read_address(strings: pa.StringArray, oid: int) -> pa.StringArray:
    """Read a column as the input function of inet, cidr, macaddr or macaddr8."""
    match oid:
        case registry.INET:
            return text_column.read_normal(strings, normal_form.inet(strings), lambda text: inet_of(text, is_cidr=False))
        case registry.CIDR:
            return text_column.read_normal(strings, normal_form.cidr(strings), lambda text: inet_of(text, is_cidr=True))
        case registry.MACADDR:
            return text_column.read_normal(strings, text_column.matches(strings, normal_form.MAC), macaddr_of)
        case _:
            return text_column.read_normal(strings, text_column.matches(strings, normal_form.MAC8), macaddr8_of)


def inet_of(text: str, *, is_cidr: bool) -> str:
    """Read one address as inet_in or cidr_in: ``10.0.0.1``, ``10/8``, ``::1/64``. Raise 22P02."""
    name = "cidr" if is_cidr else "inet"
    host, slash, bits_text = text.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed, bits = _pack(host, bits_text if slash else None, family, is_cidr=is_cidr, error=text_column.invalid_syntax(name, text))
    number = int.from_bytes(packed, "big")
    size = len(packed) * 8
    if is_cidr and number & ((1 << size - bits) - 1):
        raise PostgresError("22P02", f'invalid cidr value: "{text}"', detail="Value has bits set to right of mask.")
    return print_inet(packed, bits, is_cidr=is_cidr)


def print_inet(packed: bytes, bits: int, *, is_cidr: bool) -> str:
    """Print an address as inet_out or cidr_out."""
    shown = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    return f"{shown}/{bits}" if is_cidr or bits != len(packed) * 8 else shown


def _pack(host: str, bits_text: str | None, family: int, *, is_cidr: bool, error: PostgresError) -> tuple[bytes, int]:
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
    """Read one address as macaddr_in, in one of seven formats. Raise 22P02."""
    match = _MAC.match(text)
    if not match:
        raise text_column.invalid_syntax("macaddr", text)
    groups = [group for index, group in enumerate(match.groups()) if group and index not in (1, 10)]
    digits = "".join(group.zfill(2) for group in groups).lower()
    return ":".join(digits[start : start + 2] for start in range(0, 12, 2))


def macaddr8_of(text: str) -> str:
    """Read one address as macaddr8_in: eight bytes, or six with ff:fe inserted in the middle. Raise 22P02."""
    digits = re.sub(r"[:.\s-]", "", text).lower()
    if not _MAC8.match(text) or len(digits) not in (12, 16):
        raise text_column.invalid_syntax("macaddr8", text)
    if len(digits) == 12:
        digits = digits[:6] + "fffe" + digits[6:]
    return ":".join(digits[start : start + 2] for start in range(0, 16, 2))


def _receive_inet(raw: bytes) -> str:
    family, bits, is_cidr, size = struct.unpack_from(">BBBB", raw)
    if (family, size) not in ((2, 4), (3, 16)) or len(raw) != 4 + size or bits > size * 8:
        raise ValueError("address")
    return print_inet(raw[4:], bits, is_cidr=bool(is_cidr))


def _send_inet(is_cidr: int) -> Callable[[str], bytes]:
    def send_one(text: str) -> bytes:
        host, _, bits = text.partition("/")
        packed = ipaddress.ip_address(host).packed
        return struct.pack(">BBBB", 2 if len(packed) == 4 else 3, int(bits or len(packed) * 8), is_cidr, len(packed)) + packed

    return send_one


def _receive_macaddr(raw: bytes) -> str:
    if len(raw) not in (6, 8):
        raise ValueError("macaddr")
    return raw.hex(":")


def _send_macaddr(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def address_key(text: str) -> bytes:
    """Return the key of an address (network_cmp): family, network bits, mask length, whole address."""
    host, _, length = text.partition("/")
    is_ipv6 = ":" in host
    packed = socket.inet_pton(socket.AF_INET6 if is_ipv6 else socket.AF_INET, host)
    size = len(packed) * 8
    bits = int(length) if length else size
    network = int.from_bytes(packed, "big") >> size - bits << size - bits
    return bytes([is_ipv6]) + network.to_bytes(len(packed), "big") + bytes([bits]) + packed


def _address(
    oid: int, receive: Callable[[bytes], str], send: Callable[[str], bytes], key: Key = key_of_text, *, in_order: bool = True
) -> BaseType:
    def read(strings: pa.StringArray, _modifier: int, _settings: text_column.TextSettings) -> pa.StringArray:
        return read_address(strings, oid)

    return singly(read, receive, send, key, in_order=in_order)


TYPES = {
    registry.INET: _address(registry.INET, _receive_inet, _send_inet(0), address_key, in_order=False),
    registry.CIDR: _address(registry.CIDR, _receive_inet, _send_inet(1), address_key, in_order=False),
    registry.MACADDR: _address(registry.MACADDR, _receive_macaddr, _send_macaddr),
    registry.MACADDR8: _address(registry.MACADDR8, _receive_macaddr, _send_macaddr),
}
