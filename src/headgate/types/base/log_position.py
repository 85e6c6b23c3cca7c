"""pg_lsn, stored as text: pg_lsn_in … pg_lsn_send on whole columns. `TYPES` describes it."""

from __future__ import annotations

import re
import struct

import pyarrow as pa

from headgate.lsn import Lsn
from headgate.types import normal_form, registry, text_column
from headgate.types.base.base_type import singly


def read_lsn(strings: pa.StringArray, _modifier: int, _settings: text_column.TextSettings) -> pa.StringArray:
    return text_column.read_normal(strings, text_column.matches(strings, normal_form.LSN), lsn_of)


def lsn_of(text: str) -> str:
    """Read one LSN as pg_lsn_in. Raise 22P02."""
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text):
        raise text_column.invalid_syntax("pg_lsn", text)
    return str(Lsn.parse(text))


def _receive(raw: bytes) -> str:
    high, low = struct.unpack(">II", raw)
    return f"{high:X}/{low:X}"


def _send(text: str) -> bytes:
    high, _, low = text.partition("/")
    return struct.pack(">II", int(high, 16), int(low, 16))


def _key(text: str) -> bytes:
    return struct.pack(">Q", int(Lsn.parse(text)))


TYPES = {registry.PG_LSN: singly(read_lsn, _receive, _send, _key)}
