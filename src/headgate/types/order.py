"""How values order: for each type, bytes that compare as the type's btree operator class compares the values.

`key_of` gives the function from PostgreSQL's text form of one value to its key; two keys are equal exactly where PostgreSQL's ``=``
says so. Called by the comparison of types that are stored as text (arrays, jsonb, inet, interval, …), by containment and search
in arrays, and by ORDER BY, GROUP BY, DISTINCT and UNIQUE over such columns. Types of one btree family share one space of keys
(smallint and bigint, real and double precision, date and timestamp), so that cross-type comparison works too.
"""

from __future__ import annotations

import functools
import math
import re
import socket
import struct
from collections.abc import Callable
from decimal import Decimal

from headgate.errors import not_supported
from headgate.lsn import Lsn
from headgate.types import registry
from headgate.types.datetime import calendar, interval, time_of_day
from headgate.types.text import array, json_text

Key = Callable[[str], bytes]
_MOMENT = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-]\d\d(?::\d\d){0,2})?)?( BC)?\Z")
_WIDE = 1 << 127


def key_of(oid: int, types: registry.TypeRegistry | None = None) -> Key:
    """The key function of a type; 0A000 for a type without one (json, xml, point, …)."""
    known = types or registry.known()
    key = _KEYS.get(oid)
    if key is not None:
        return key
    found = known.find(oid)
    if found is not None and found.kind is registry.TypeKind.ENUM:
        places = {label: struct.pack(">I", place) for place, label in enumerate(found.labels)}
        return places.__getitem__
    if found is not None and found.kind is registry.TypeKind.DOMAIN:
        return key_of(found.base, known)
    if found is not None and found.is_array:
        element = key_of(found.element, known)
        delimiter = known.by_oid(found.element).delimiter
        return lambda text: of_array(*array.parts(text, delimiter), element)
    raise not_supported(f"comparison of type {known.format_type(oid)} is not supported: its order is not known here")


def remembered(oid: int) -> Key:
    """The key function of a type of the registry in force, which remembers the keys of a few values."""
    return _builtin_key(oid) if oid < registry.FIRST_USER_OID else _user_key(oid, registry.known())


@functools.cache
def _builtin_key(oid: int) -> Key:
    return functools.lru_cache(maxsize=512)(key_of(oid, registry.builtin()))


@functools.lru_cache(maxsize=64)
def _user_key(oid: int, types: registry.TypeRegistry) -> Key:
    return functools.lru_cache(maxsize=512)(key_of(oid, types))


def of_array(shape: array.Shape, items: tuple[str | None, ...], element: Key) -> bytes:
    """array_cmp: the elements first (NULL last), then how many, the dimensions, the lower bounds."""
    parts = [b"\x02" if item is None else b"\x01" + ended(element(item)) for item in items]
    bounds = [*shape.lengths, *shape.lowers]
    return b"".join(parts) + b"\x00" + struct.pack(f">B{len(bounds)}Q", len(shape.lengths), *(each + (1 << 63) for each in bounds))


def ended(key: bytes) -> bytes:
    """A key of any length inside a longer one, so that a prefix sorts first."""
    return key.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _whole(value: int) -> bytes:
    return (value + _WIDE).to_bytes(16, "big")


def _integer(text: str) -> bytes:
    return struct.pack(">Q", int(text) + (1 << 63))


def of_double(value: float) -> bytes:
    """-0 equals 0; NaN equals itself and is the greatest."""
    if math.isnan(value):
        return b"\xff" * 8
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    return struct.pack(">Q", bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63))


def _double(text: str) -> bytes:
    return of_double(float(text))


def _single(text: str) -> bytes:
    value = float(text)
    return of_double(value if value in (float("inf"), float("-inf")) else struct.unpack(">f", struct.pack(">f", value))[0])


def of_numeric(text: str) -> bytes:
    """-Infinity, negative, zero, positive, Infinity, NaN; equal for 1.0 and 1.00."""
    value = Decimal(text)
    if value.is_nan():
        return b"\x09"
    if value.is_infinite():
        return b"\x08" if value > 0 else b"\x01"
    if not value:
        return b"\x05"
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0").encode()
    body = struct.pack(">I", value.adjusted() + 0x40000000) + digits
    return b"\x07" + body if value > 0 else b"\x03" + bytes(255 - each for each in body) + b"\xff"


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _padded(text: str) -> bytes:
    return _text(text.rstrip(" "))


def _char(text: str) -> bytes:
    return bytes([int(text[1:], 8)]) if len(text) == 4 else _text(text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _moment(text: str) -> bytes:
    """date, timestamp and timestamptz as microseconds; the infinities at the ends."""
    if text.endswith("infinity"):
        return _whole(-(1 << 126) if text.startswith("-") else 1 << 126)
    found = _MOMENT.match(text)
    assert found is not None, "not a date in normal form"
    year = 1 - int(found[1]) if found[9] else int(found[1])
    micros = calendar.days_of(year, int(found[2]), int(found[3])) * calendar.DAY
    if found[4]:
        seconds = (int(found[4]) * 60 + int(found[5])) * 60 + int(found[6])
        micros += seconds * 1_000_000 + int((found[7] or "0").ljust(6, "0"))
    return _whole(micros - _east(found[8]) * 1_000_000)


def _east(offset: str | None) -> int:
    """Seconds east of ``+05:30``, ``-04:56:02``."""
    if not offset:
        return 0
    hours, minutes, seconds = (int(each) for each in (offset[1:] + ":0:0").split(":")[:3])
    total = (hours * 60 + minutes) * 60 + seconds
    return -total if offset[0] == "-" else total


def _timetz(text: str) -> bytes:
    """timetz_cmp: by the instant, then by the zone, westward greater."""
    micros, east = time_of_day.parts_of(text)
    return struct.pack(">QQ", micros - east * 1_000_000 + (1 << 62), -east + (1 << 62))


def of_interval(text: str) -> bytes:
    """interval_cmp: a month counts as 30 days, a day as 24 hours."""
    return _whole(interval.interval_of(text).compared)


def of_address(text: str) -> bytes:
    """network_cmp: family, the network's bits, the length of the mask, the whole address."""
    host, _, length = text.partition("/")
    six = ":" in host
    packed = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, host)
    size = len(packed) * 8
    bits = int(length) if length else size
    network = int.from_bytes(packed, "big") >> size - bits << size - bits
    return bytes([six]) + network.to_bytes(len(packed), "big") + bytes([bits]) + packed


def _lsn(text: str) -> bytes:
    return struct.pack(">Q", int(Lsn.parse(text)))


_NULL, _STRING, _NUMBER, _BOOL, _ARRAY, _OBJECT = b"\x00", b"\x01", b"\x02", b"\x03", b"\x10", b"\x11"


def of_document(text: str) -> bytes:
    """compareJsonbContainers: object > array > boolean > number > string > null, the longer container first of all greater.

    A scalar on its own is an array of one element that sorts before true arrays of one: so an empty array is less than it.
    """
    value = json_text.load(text)
    if isinstance(value, dict | list):
        return _node(value)
    return _ARRAY + struct.pack(">IB", 1, 0) + _node(value)


def _node(value: object) -> bytes:
    if isinstance(value, dict):
        pairs = b"".join(ended(_text(key)) + _node(each) for key, each in value.items())
        return _OBJECT + struct.pack(">I", len(value)) + pairs
    if isinstance(value, list):
        return _ARRAY + struct.pack(">IB", len(value), 1) + b"".join(map(_node, value))
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _BOOL + bytes([value])
    if isinstance(value, json_text.Number):
        return _NUMBER + ended(of_numeric(value))
    assert isinstance(value, str)
    return _STRING + ended(_text(value))


_KEYS: dict[int, Key] = {
    registry.BOOL: _text,
    **dict.fromkeys((registry.INT2, registry.INT4, registry.INT8, registry.OID, registry.XID, registry.CID), _integer),
    registry.FLOAT4: _single,
    registry.FLOAT8: _double,
    registry.NUMERIC: functools.lru_cache(maxsize=64)(of_numeric),
    **dict.fromkeys((registry.TEXT, registry.VARCHAR, registry.NAME, registry.UUID, registry.TIME, registry.UNKNOWN), _text),
    **dict.fromkeys((registry.MACADDR, registry.MACADDR8, registry.BIT, registry.VARBIT), _text),
    registry.CHAR: _char,
    registry.BPCHAR: _padded,
    registry.BYTEA: _bytes,
    **dict.fromkeys((registry.DATE, registry.TIMESTAMP, registry.TIMESTAMPTZ), _moment),
    registry.TIMETZ: _timetz,
    registry.INTERVAL: of_interval,
    registry.INET: of_address,
    registry.CIDR: of_address,
    registry.PG_LSN: _lsn,
    registry.JSONB: of_document,
}
