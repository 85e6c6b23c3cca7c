"""The addresses of the machine's network interfaces, for ``samehost`` and ``samenet`` in pg_hba.conf.

Python has no getifaddrs; so it is called in the C library. Called by `hba`.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterator

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class _Entry(ctypes.Structure):
    pass


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
]


def interfaces() -> list[Interface]:
    """Each address with its network, as they are now; none where the system does not tell."""
    library = ctypes.CDLL(None)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)):
        return []
    try:
        return list(_all(first))
    finally:
        library.freeifaddrs(first)


def _all(entry: ctypes._Pointer[_Entry]) -> Iterator[Interface]:
    while True:
        try:
            found = entry.contents
        except ValueError:  # the last one's pointer to the next
            return
        address, netmask = _address(found.address), _address(found.netmask)
        if address is not None and netmask is not None:
            ones = int(netmask).bit_count()
            yield ipaddress.ip_interface(f"{address}/{ones}")
        entry = found.next


def _address(place: int | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in a sockaddr; None for other families."""
    if not place:
        return None
    (family,) = struct.unpack("=H", ctypes.string_at(place, 2))
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(ctypes.string_at(place + 4, 4))
    if family == socket.AF_INET6:
        return ipaddress.IPv6Address(ctypes.string_at(place + 8, 16))
    return None
