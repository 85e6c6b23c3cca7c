"""money, stored as text: cash_in … cash_send on whole columns, as in cash.c with lc_monetary C. `TYPES` describes it.

An amount is a 64-bit number of cents; its text is ``-$1,234.56``. `expression.functions.money` has the functions and operators.
"""

from __future__ import annotations

import re
import struct

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import registry, text_column
from headgate.types.base.base_type import singly, whole_key

_NORMAL = r"\A-?\$(?:0|[1-9][0-9]{0,2}(?:,[0-9]{3}){0,4})\.[0-9]{2}\z"
"""The output of cash_out with up to 15 digits before the point. It also matches -$0.00, which is not normal."""
_BLANK = r"[ \t\n\v\f\r]*+"
_INPUT = re.compile(
    rf"{_BLANK}\$?{_BLANK}(?P<sign>[-+(]?){_BLANK}\$?{_BLANK}(?P<whole>[0-9,]*+)"
    r"(?:\.(?P<fraction>(?:,*+[0-9]){0,2}),*+(?P<rest>[0-9]*+))?(?P<end>[ \t\n\v\f\r)+$-]*+)\Z"
)
"""Separators may be anywhere, as in cash_in, which reads digits up to the second after the point, then rounds by the next."""
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def cents_of(text: str) -> int:
    """Read an amount in cents as cash_in. Raise 22P02 or 22003."""
    match = _INPUT.match(text)
    if match is None:
        raise text_column.invalid_syntax("money", text)
    digits = (match["whole"] + (match["fraction"] or "").ljust(2 + (match["fraction"] or "").count(","), "0")).replace(",", "")
    cents = int(digits) if len(digits) < 40 else MOST + 2
    cents += (match["rest"] or "0")[0] >= "5"
    amount = -cents if match["sign"] in ("-", "(") or "-" in match["end"] else cents
    if not LEAST <= amount <= MOST:
        raise PostgresError("22003", f'value "{text}" is out of range for type money')
    return amount


def printed(cents: int) -> str:
    """Print an amount as cash_out."""
    whole, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}${whole:,}.{rest:02}"


def amount_of(text: str) -> int:
    """Return the cents of a stored text. It is in normal form, unless it was stored by a version that treated money as any text."""
    return int(text.translate(_MARKS)) if text[-3:-2] == "." and text.lstrip("-")[0] == "$" else cents_of(text)


_MARKS = str.maketrans("", "", "$,.")


def _read(strings: pa.StringArray, _modifier: int, _settings: text_column.TextSettings) -> pa.StringArray:
    usual = pc.and_(text_column.matches(strings, _NORMAL), pc.not_equal(strings, "-$0.00"))
    return text_column.read_normal(strings, usual, lambda text: printed(cents_of(text)))


def _receive(raw: bytes) -> str:
    (cents,) = struct.unpack(">q", raw)
    return printed(cents)


def _send(text: str) -> bytes:
    return struct.pack(">q", amount_of(text))


def _key(text: str) -> bytes:
    return whole_key(amount_of(text))


TYPES = {registry.MONEY: singly(_read, _receive, _send, _key)}
