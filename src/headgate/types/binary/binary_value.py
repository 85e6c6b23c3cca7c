"""The binary forms of the types that are stored as text, one value at a time: times, intervals, addresses, bits, arrays.

Called by `binary` for what it has no bulk way for. `receive` gives the text form, `send` takes it; both by PostgreSQL's
…_recv and …_send functions.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError, not_supported
from headgate.types import registry as r
from headgate.types.datetime import interval, time_of_day
from headgate.types.text import array, network

if TYPE_CHECKING:
    from headgate.types.binary.binary import Kinds


def receive(raw: bytes, oid: int, kinds: Kinds) -> str:
    """The text form of one value. 0A000 for a type without a binary form here, 22P03 for malformed bytes."""
    types = kinds.types
    found = types.find(oid)
    if found is not None and found.is_array:
        return _receive_array(raw, found, kinds)
    reader = _RECEIVE.get(oid)
    if reader is None:
        raise not_supported(f"binary form of type {types.format_type(oid)} is not supported")
    try:
        return reader(raw)
    except (struct.error, IndexError, ValueError) as error:
        raise PostgresError("22P03", "incorrect binary data format") from error


def send(text: str, oid: int, kinds: Kinds) -> bytes:
    """The binary form of one value in normal text form."""
    types = kinds.types
    found = types.find(oid)
    if found is not None and found.is_array:
        shape, items = array.parse(text, types.by_oid(found.element).delimiter)
        return array.put_together(shape, found.element, _send_items(items, found.element, kinds))
    writer = _SEND.get(oid)
    if writer is None:
        raise not_supported(f"binary form of type {types.format_type(oid)} is not supported")
    return writer(text)


def _receive_array(raw: bytes, found: r.PgType, kinds: Kinds) -> str:
    from headgate.types.binary import binary
    from headgate.types.text import text  # an array's elements are read by the module that calls this one

    try:
        shape, element, items = array.take_apart(raw)
    except (struct.error, ValueError) as error:
        raise PostgresError("22P03", "incorrect binary data format") from error
    if element != found.element:
        raise PostgresError("42804", "wrong element type")
    lengths = np.array([-1 if item is None else len(item) for item in items], np.int32)
    starts = np.cumsum(np.maximum(lengths, 0), dtype=np.int64) - np.maximum(lengths, 0)
    data = np.frombuffer(b"".join(item for item in items if item is not None), np.uint8)
    types = kinds.types
    typed = binary.read_binary(data, starts, lengths, element, registry=types, encoding=kinds.encoding)
    values = text.write_text(typed, element, registry=types)
    return array.print_array(shape, values.to_pylist(), types.by_oid(element).delimiter)


def _send_items(items: list[str | None], element: int, kinds: Kinds) -> list[bytes | None]:
    from headgate.types.binary import binary
    from headgate.types.text import text

    values = text.read_text(pa.array(items, pa.string()), element, registry=kinds.types)
    sent: list[bytes | None] = binary.write_binary(values, element, registry=kinds.types, encoding=kinds.encoding).to_pylist()
    return sent


def _receive_lsn(raw: bytes) -> str:
    high, low = struct.unpack(">II", raw)
    return f"{high:X}/{low:X}"


def _send_lsn(text: str) -> bytes:
    high, _, low = text.partition("/")
    return struct.pack(">II", int(high, 16), int(low, 16))


def _receive_inet(raw: bytes) -> str:
    family, bits, is_cidr, size = struct.unpack_from(">BBBB", raw)
    if (family, size) not in ((2, 4), (3, 16)) or len(raw) != 4 + size or bits > size * 8:
        raise ValueError("address")
    return network.print_inet(raw[4:], bits, is_cidr=bool(is_cidr))


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


def _receive_bits(raw: bytes) -> str:
    (count,) = struct.unpack_from(">i", raw)
    if len(raw) != 4 + (count + 7) // 8:
        raise ValueError("bits")
    return "".join(f"{byte:08b}" for byte in raw[4:])[:count]


def _send_bits(text: str) -> bytes:
    padded = text.ljust((len(text) + 7) // 8 * 8, "0")
    return struct.pack(">i", len(text)) + bytes(int(padded[place : place + 8], 2) for place in range(0, len(padded), 8))


def _receive_char(raw: bytes) -> str:
    (byte,) = struct.unpack("B", raw)
    return f"\\{byte:03o}" if byte > 127 else chr(byte) if byte else ""


def send_char(text: str) -> bytes:
    """charsend."""
    return bytes([int(text[1:], 8)]) if len(text) == 4 else text.encode() or b"\0"


_RECEIVE: dict[int, Callable[[bytes], str]] = {
    r.TIME: time_of_day.receive_time,
    r.TIMETZ: time_of_day.receive_timetz,
    r.INTERVAL: interval.receive,
    r.PG_LSN: _receive_lsn,
    r.INET: _receive_inet,
    r.CIDR: _receive_inet,
    r.MACADDR: _receive_macaddr,
    r.MACADDR8: _receive_macaddr,
    r.BIT: _receive_bits,
    r.VARBIT: _receive_bits,
    r.CHAR: _receive_char,
}
_SEND: dict[int, Callable[[str], bytes]] = {
    r.TIME: time_of_day.send_time,
    r.TIMETZ: time_of_day.send_timetz,
    r.INTERVAL: interval.send,
    r.PG_LSN: _send_lsn,
    r.INET: _send_inet(0),
    r.CIDR: _send_inet(1),
    r.MACADDR: _send_macaddr,
    r.MACADDR8: _send_macaddr,
    r.BIT: _send_bits,
    r.VARBIT: _send_bits,
    r.CHAR: send_char,
}
