"""Text forms of time and timetz, which are stored as text: time_in, timetz_in and their modifiers; their binary forms.

`base.datetime` describes the types. Texts in normal form are kept in bulk, the others are read by `decoder`.
"""

from __future__ import annotations

import re
import struct
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.types import registry, text_column, typmod
from headgate.types.datetime import calendar, decoder, time_zone, timestamp
from headgate.types.datetime.field import Flaw, Flawed
from headgate.types.text_column import TextSettings

_NORMAL = r"\A([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{0,5}[1-9])?"
_FORM = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(?:([+-])([0-9]{2})(?::([0-9]{2}))?(?::([0-9]{2}))?)?\Z")


def read_time(strings: pa.StringArray, oid: int, modifier: int, session: TextSettings) -> pa.StringArray:
    """Read times as time_in or timetz_in (by `oid`) into normal text. Raise 22007, 22008 or 22009."""
    zoned = r"[+-](0[0-9]|1[0-5])(:[0-5][0-9])?" if oid == registry.TIMETZ else ""
    usual = text_column.matches(strings, _NORMAL + zoned + r"\z")
    digits = typmod.fraction_digits(oid, modifier)
    if oid == registry.TIMETZ:
        usual = pc.and_not(usual, text_column.matches(strings, r"(-00|:00)\z|-00:00\z|[+-].*:00\z"))
        usual = pc.or_(usual, text_column.matches(strings, _NORMAL + r"\+00\z"))
    if digits is not None and digits < 6:
        usual = pc.and_not(usual, pc.match_substring(strings, "."))
    return text_column.read(strings, usual, lambda texts: texts, lambda text: time_of(text, oid, modifier, session))


def time_of(text: str, oid: int, modifier: int, session: TextSettings) -> str:
    name = "time with time zone" if oid == registry.TIMETZ else "time"
    try:
        parts = decoder.Decoder(session).read(text, time_only=True)
        if parts.special:
            raise Flawed(Flaw.FORMAT)
        micros = parts.clock
        if (
            parts.mask & decoder.ZONE
            and parts.named
            and parts.mask & decoder.DATE != decoder.DATE
            and parts.named.instants.size
            and not isinstance(parts.named, time_zone.Abbreviation)
        ):
            raise Flawed(Flaw.FORMAT)
        offset = _offset(parts, session)
    except Flawed as flawed:
        raise flawed.error(name, text) from None
    digits = typmod.fraction_digits(oid, modifier)
    if digits is not None and digits < 6:
        unit = 10 ** (6 - digits)
        micros = (micros + unit // 2) // unit * unit
    return timestamp.print_clock(micros) + (timestamp.print_offset(offset) if oid == registry.TIMETZ else "")


def _offset(parts: decoder.Parts, session: TextSettings) -> int:
    if parts.mask & decoder.ZONE and not parts.named:
        return parts.offset
    own = parts.named or time_zone.find(session.timezone)
    if parts.mask & decoder.DATE == decoder.DATE:
        local = parts.days * 86400 + parts.clock // 1_000_000
    else:
        today = int(time.time())
        local = (today + int(own.at(np.array([today]))[0])) // 86400 * 86400 + parts.clock // 1_000_000
    return int(own.of_local(np.array([local]))[0])


def receive_time(raw: bytes) -> str:
    """Read the format of time_recv: microseconds since midnight."""
    (micros,) = struct.unpack(">q", raw)
    if not 0 <= micros <= calendar.DAY:
        raise ValueError("time")
    return timestamp.print_clock(micros)


def receive_timetz(raw: bytes) -> str:
    """Read the format of timetz_recv: microseconds since midnight, seconds west."""
    micros, west = struct.unpack(">qi", raw)
    if not 0 <= micros <= calendar.DAY or abs(west) >= 16 * 3600:
        raise ValueError("timetz")
    return timestamp.print_clock(micros) + timestamp.print_offset(-west)


def parts_of(text: str) -> tuple[int, int]:
    """Return microseconds since midnight and seconds east of UTC of a time or timetz in normal form."""
    match = _FORM.match(text)
    if not match:
        raise text_column.invalid_syntax("time", text, "22007")
    seconds = (int(match[1]) * 60 + int(match[2])) * 60 + int(match[3])
    east = (int(match[6] or 0) * 60 + int(match[7] or 0)) * 60 + int(match[8] or 0)
    return seconds * 1_000_000 + int((match[4] or "0").ljust(6, "0")), -east if match[5] == "-" else east


def send_time(text: str) -> bytes:
    """Convert normal text to the format of time_send."""
    return struct.pack(">q", parts_of(text)[0])


def send_timetz(text: str) -> bytes:
    """Convert normal text to the format of timetz_send."""
    micros, east = parts_of(text)
    return struct.pack(">qi", micros, -east)
