"""Binary forms of types of functions and catalogs that are otherwise handled as text: void and vectors.

Called by `binary`. Drivers that request all results in binary need them: asyncpg for ``SELECT pg_notify(…)``, ADBC for catalogs.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable

from headgate.types import registry
from headgate.types.base.base_type import BaseType, received_singly, sent_singly
from headgate.types.base.string import TEXT_LIKE
from headgate.types.text import array


def _type(receive: Callable[[bytes], str], send: Callable[[str], bytes]) -> BaseType:
    return dataclasses.replace(TEXT_LIKE, receive=received_singly(receive, TEXT_LIKE.read), send=sent_singly(send), in_bulk=False)


def _vector(element: int, code: str) -> BaseType:
    """Describe numbers separated by spaces; in binary a one-dimensional array with subscripts from 0, also if it is empty."""

    def receive(raw: bytes) -> str:
        shape, element_oid, items = array.take_apart(raw)
        if element_oid != element or len(shape.lengths) > 1 or any(lower != 0 for lower in shape.lowers):
            raise ValueError("no vector")
        if None in items:
            raise ValueError("NULL")
        return " ".join(str(struct.unpack(code, item)[0]) for item in items if item is not None)

    def send(text: str) -> bytes:
        numbers = text.split()
        return array.put_together(array.Shape([len(numbers)], [0]), element, [struct.pack(code, int(value)) for value in numbers])

    return _type(receive, send)


SYSTEM_TYPES = {
    registry.VOID: _type(lambda _raw: "", lambda _text: b""),
    registry.INT2VECTOR: _vector(registry.INT2, ">h"),
    registry.OIDVECTOR: _vector(registry.OID, ">I"),
}
