"""The addresses of the machine's network interfaces, for ``samehost`` and ``samenet`` in pg_hba.conf.

Python does not provide getifaddrs, so the C library's function is called. Called by `hba`.
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
    """Return each current address with its network; an empty list if the system does not report them."""
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
            interface = entry.contents
        except ValueError:  # the null pointer after the last entry
            return
        address, netmask = _address(interface.address), _address(interface.netmask)
        if address is not None and netmask is not None:
            ones = int(netmask).bit_count()
            yield ipaddress.ip_interface(f"{address}/{ones}")
        entry = interface.next


def _address(pointer: int | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in a sockaddr, or None for other families."""
    if not pointer:
        return None
    (family,) = struct.unpack("=H", ctypes.string_at(pointer, 2))
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(ctypes.string_at(pointer + 4, 4))
    if family == socket.AF_INET6:
        return ipaddress.IPv6Address(ctypes.string_at(pointer + 8, 16))
    return None
