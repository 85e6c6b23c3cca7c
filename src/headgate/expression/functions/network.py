"""Functions of inet, cidr, macaddr and macaddr8 on their text forms, on single values, as in network.c and mac.c.

Called by `implementation.network` inside Arrow functions. An inet is what inet_out prints, with the mask only if it is shorter than the
address. A cidr always has it.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.types.base import network as address


@dataclass(frozen=True)
class Address:
    """An address as a number of `size` bits (32 or 128), of which the first `bits` belong to the network."""

    number: int
    size: int
    bits: int

    @property
    def mask(self) -> int:
        """The network's bits."""
        return (1 << self.size) - (1 << self.size - self.bits)

    @property
    def packed(self) -> bytes:
        return self.number.to_bytes(self.size // 8, "big")


@functools.lru_cache(maxsize=512)
def _read(text: str) -> Address:
    host, _, length = text.partition("/")
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    size = len(packed) * 8
    return Address(int.from_bytes(packed, "big"), size, int(length) if length else size)


def _inet(number: int, size: int, bits: int) -> str:
    return address.print_inet(number.to_bytes(size // 8, "big"), bits, is_cidr=False)


def _cidr(number: int, size: int, bits: int) -> str:
    return address.print_inet(number.to_bytes(size // 8, "big"), bits, is_cidr=True)


def is_inside(strictly: bool, inner: str, outer: str) -> bool:
    """Return inet << inet if `strictly`, else inet <<= inet."""
    inner_address, outer_address = _read(inner), _read(outer)
    if inner_address.size != outer_address.size or (
        inner_address.bits <= outer_address.bits if strictly else inner_address.bits < outer_address.bits
    ):
        return False
    return inner_address.number & outer_address.mask == outer_address.number & outer_address.mask


def overlap(left: str, right: str) -> bool:
    """Return inet && inet."""
    return is_inside(False, left, right) or is_inside(False, right, left)


def family(text: str) -> int:
    """Return the address family, 4 or 6."""
    return 4 if _read(text).size == 32 else 6


def masklen(text: str) -> int:
    """Return the length of the mask."""
    return _read(text).bits


def host(text: str) -> str:
    """Return the address without its mask."""
    return text.partition("/")[0]


def shown(text: str) -> str:
    """Return text(inet), which always has the mask."""
    return text if "/" in text else f"{text}/{_read(text).bits}"


def network(text: str) -> str:
    """Return the network part, as cidr."""
    parsed = _read(text)
    return _cidr(parsed.number & parsed.mask, parsed.size, parsed.bits)


def broadcast(text: str) -> str:
    parsed = _read(text)
    return _inet(parsed.number | (1 << parsed.size - parsed.bits) - 1, parsed.size, parsed.bits)


def netmask(text: str) -> str:
    """Return the mask as an address."""
    parsed = _read(text)
    return _inet(parsed.mask, parsed.size, parsed.size)


def hostmask(text: str) -> str:
    """Return the inverted mask as an address."""
    parsed = _read(text)
    return _inet((1 << parsed.size - parsed.bits) - 1, parsed.size, parsed.size)


def abbreviated(text: str) -> str:
    """Return abbrev(inet)."""
    return text


def abbreviated_cidr(text: str) -> str:
    """Return abbrev(cidr): an IPv4 network without its trailing zero bytes."""
    address = _read(text)
    if address.size == 32:
        byte_count = max((address.bits + 7) // 8, 1)
        shown_bytes = ".".join(str(byte) for byte in address.packed[:byte_count]) if address.bits else "0"
        return f"{shown_bytes}/{address.bits}"
    return f"{_short_six(address)}/{address.bits}"


def _short_six(address: Address) -> str:
    """Return the words that the mask covers, with the longest run of zero words as ``::`` (pg_inet_cidr_ntop)."""
    if not address.bits:
        return "::"
    raw = address.packed
    words = max((address.bits + 15) // 16, 2)
    start, size = _zeros(raw, words)
    old = size != words and start == 0 and (
        size == 6 or (size == 5 and raw[10:12] == b"\xff\xff") or (size == 7 and raw[14] != 0 and raw[15] != 1)
    )  # fmt: skip
    out = ""
    for place in range(words):
        high, low = raw[2 * place : 2 * place + 2]
        if size and start <= place < start + size:
            out += ":" * ((place == start) + (place == words - 1))
        elif old and place > 5:
            out += f"{':' if place == 6 else '.'}{high}"
            out += f".{low}" if place != 7 or address.bits > 120 else ""
        else:
            out += f"{':' if out else ''}{high * 256 + low:x}"
    return out


def _zeros(raw: bytes, words: int) -> tuple[int, int]:
    """Return (first word, length) of the omitted run of zero words. As in PostgreSQL, a shorter later run adds to the count."""
    start = size = run_start = run = 0
    for place in range(words):
        if raw[2 * place : 2 * place + 2] == b"\0\0":
            run_start = run_start if run else place
            run += 1
        elif run > size:
            start, size, run = run_start, run, 0
    return (run_start, run) if run > size else (start, size)


def set_masklen(text: str, bits: int) -> str:
    """Return the address with another mask. -1 stands for the whole address."""
    parsed = _read(text)
    return _inet(parsed.number, parsed.size, _mask_length(parsed, bits))


def set_masklen_cidr(text: str, bits: int) -> str:
    """Return a cidr with another mask. The bits beyond the mask become zero."""
    parsed = _read(text)
    length = _mask_length(parsed, bits)
    return _cidr(parsed.number >> parsed.size - length << parsed.size - length, parsed.size, length)


def _mask_length(address: Address, bits: int) -> int:
    length = address.size if bits == -1 else bits
    if not 0 <= length <= address.size:
        raise PostgresError("22023", f"invalid mask length: {length}")
    return length


def same_family(left: str, right: str) -> bool:
    """Return whether both are IPv4 or both IPv6 (inet_same_family)."""
    return _read(left).size == _read(right).size


def merge(left: str, right: str) -> str:
    """Return the smallest network that contains both (inet_merge)."""
    left_address, right_address = _both(left, right, "cannot merge addresses from different families")
    bits = min(left_address.bits, right_address.bits, left_address.size - (left_address.number ^ right_address.number).bit_length())
    return _cidr(left_address.number >> left_address.size - bits << left_address.size - bits, left_address.size, bits)


def _both(left: str, right: str, message: str) -> tuple[Address, Address]:
    left_address, right_address = _read(left), _read(right)
    if left_address.size != right_address.size:
        raise PostgresError("22023", message)
    return left_address, right_address


def plus(text: str, count: int) -> str:
    """Return inet + bigint."""
    parsed = _read(text)
    number = parsed.number + count
    if not 0 <= number < 1 << parsed.size:
        raise PostgresError("22003", "result is out of range")
    return _inet(number, parsed.size, parsed.bits)


def minus(text: str, count: int) -> str:
    """Return inet - bigint. The negative of the least bigint overflows to itself."""
    return plus(text, count if count == -(1 << 63) else -count)


def difference(left: str, right: str) -> int:
    """Return inet - inet."""
    left_address, right_address = _both(left, right, "cannot subtract inet values of different sizes")
    result = left_address.number - right_address.number
    if left_address.size == 128:  # 16 bytes, whose first bit is the sign
        result = (result + (1 << 127)) % (1 << 128) - (1 << 127)
    if not -(1 << 63) <= result < 1 << 63:
        raise PostgresError("22003", "result is out of range")
    return result


def bitwise(operation: Callable[[int, int], int], name: str, left: str, right: str) -> str:
    """Return inet & inet or inet | inet."""
    left_address, right_address = _both(left, right, f"cannot {name} inet values of different sizes")
    number = operation(left_address.number, right_address.number)
    return _inet(number, left_address.size, max(left_address.bits, right_address.bits))


def bit_not(text: str) -> str:
    """Return ~ inet."""
    parsed = _read(text)
    return _inet(~parsed.number & (1 << parsed.size) - 1, parsed.size, parsed.bits)


def _mac(digits: bytes) -> str:
    return digits.hex(":")


def _mac_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def mac_not(text: str) -> str:
    """Return ~ macaddr."""
    return _mac(bytes(255 - byte for byte in _mac_bytes(text)))


def mac_bitwise(combine: Callable[[int, int], int], left: str, right: str) -> str:
    """Return macaddr & macaddr, or macaddr | macaddr."""
    return _mac(bytes(map(combine, _mac_bytes(left), _mac_bytes(right))))


def mac_truncated(text: str) -> str:
    """Set the bytes after the first three to zero (trunc)."""
    octets = _mac_bytes(text)
    return _mac(octets[:3] + bytes(len(octets) - 3))


def mac_wider(text: str) -> str:
    """Cast macaddr to macaddr8."""
    octets = _mac_bytes(text)
    return _mac(octets[:3] + b"\xff\xfe" + octets[3:])


def mac_narrower(text: str) -> str:
    """Cast macaddr8 to macaddr."""
    octets = _mac_bytes(text)
    if octets[3:5] != b"\xff\xfe":
        raise PostgresError(
            "22003",
            "macaddr8 data out of range to convert to macaddr",
            hint="Only addresses that have FF and FE as values in the 4th and 5th bytes from the left, for example "
            "xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from macaddr8 to macaddr.",
        )
    return _mac(octets[:3] + octets[5:])


def mac_set_seventh_bit(text: str) -> str:
    """Set the seventh bit of a macaddr8 (macaddr8_set7bit)."""
    octets = _mac_bytes(text)
    return _mac(bytes([octets[0] | 2]) + octets[1:])
