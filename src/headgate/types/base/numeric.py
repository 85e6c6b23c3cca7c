"""numeric: numeric_in, numeric_out and numeric(p,s) on whole columns. `binary_numeric` has its binary form and describes the type.

numeric(p,s) that fits into decimal128 is stored as such. All other numeric is stored as PostgreSQL's own text, which keeps each value's
scale. Rounding is half away from zero, as in PostgreSQL.
"""

from __future__ import annotations

import re
import struct
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import text_column, typmod

_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*(?:([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE][ \t\n\v\f\r]*([+-]?[0-9]+))?"
    r"|([+-]?)(inf(?:inity)?|nan))[ \t\n\v\f\r]*\Z",
    re.IGNORECASE,
)
EXACT = Context(prec=200_000, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
_MAX_WEIGHT = 0x7FFF
_MAX_SCALE = 0x3FFF


def read_numeric(strings: pa.StringArray, modifier: int) -> pa.Array:
    """Read numeric as numeric_in: decimal128(p,s) if the type is stored so, else PostgreSQL's normal text."""
    parts = typmod.decimal_parts(modifier)
    if parts is not None:
        return _read_decimal(strings, *parts)
    if modifier >= 0:
        usual = pc.if_else(pc.is_valid(strings), pa.scalar(False), pa.scalar(None, pa.bool_()))
    else:
        usual = pc.and_(
            text_column.matches(strings, r"\A-?(0|[1-9][0-9]{0,999})(\.[0-9]{1,1000})?\z"),
            pc.invert(text_column.matches(strings, r"\A-[0.]+\z")),
        )
    return text_column.read(strings, usual, lambda texts: texts, lambda text: print_value(value_of(text, modifier)))


def read_as_text(strings: pa.StringArray, modifier: int) -> pa.StringArray:
    """Read as `read_numeric`, but always as text: for array elements, which may be NaN."""
    if modifier < 0:
        return read_numeric(strings, -1)
    return pa.array([None if text is None else print_value(value_of(text, modifier)) for text in strings.to_pylist()], pa.string())


def _read_decimal(strings: pa.StringArray, precision: int, scale: int) -> pa.Array:
    target = pa.decimal128(precision, scale)
    whole = precision - scale
    front = f"[0-9]{{1,{whole}}}" if whole else "0"
    # the cast alone is not sufficient: values too long for 128 bits overflow without an error
    usual = text_column.matches(strings, rf"\A[+-]?{front}(\.[0-9]{{0,{scale}}})?\z")
    modifier = typmod.numeric(precision, scale)

    def rest(text: str) -> Decimal:
        return storable(value_of(text, modifier), precision, scale)

    finest = 37 - whole  # one digit is reserved for the carry of rounding up
    wide = pa.decimal128(38, max(finest, 0))
    too_fine = pc.and_not(text_column.matches(strings, rf"\A[+-]?{front}\.[0-9]{{0,{finest}}}\z"), usual) if scale < finest else None
    if too_fine is None or not pc.any(too_fine, min_count=0).as_py():
        return text_column.read(strings, usual, lambda texts: pc.cast(texts, target), rest)
    rounded = pc.round(
        pc.cast(pc.if_else(too_fine, strings, pa.scalar(None, pa.string())), wide), ndigits=scale, round_mode="half_towards_infinity"
    )
    fits = pc.less_equal(pc.abs(rounded), pa.scalar(EXACT.subtract(Decimal(10) ** whole, Decimal((0, (1,), -scale))), wide))
    too_fine = pc.and_(too_fine, pc.fill_null(fits, False))

    def bulk(texts: pa.StringArray) -> pa.Array:
        exact = pc.cast(pc.if_else(too_fine, pa.scalar(None, pa.string()), texts), target)
        return pc.coalesce(exact, pc.cast(pc.if_else(too_fine, rounded, pa.scalar(None, wide)), target))

    return text_column.read(strings, pc.or_(usual, too_fine), bulk, rest)


def storable(value: Decimal | str, precision: int, scale: int) -> Decimal:
    """Return the value. Raise 0A000 for NaN, which Delta's decimal cannot hold. In PostgreSQL, too, no numeric(p,s) can hold infinity."""
    if isinstance(value, str):
        raise PostgresError(
            "0A000",
            f"cannot store {value} in a column of type numeric({precision},{scale})",
            detail="A decimal of Delta Lake has no such value.",
            hint="Declare the column as numeric without precision.",
        )
    return value


def value_of(text: str, modifier: int = -1) -> Decimal | str:
    """Read one numeric with its modifier: a Decimal whose exponent is minus the display scale, or NaN, Infinity, -Infinity."""
    match = _NUMBER.match(text)
    if not match:
        raise text_column.invalid_syntax("numeric", text)
    sign, whole, fraction, only_fraction, exponent, special_sign, special = match.groups()
    if special:
        if special.lower() == "nan":
            if special_sign:
                raise text_column.invalid_syntax("numeric", text)
            return "NaN"
        return special_value("-Infinity" if special_sign == "-" else "Infinity", modifier)
    if exponent is not None and (len(exponent.lstrip("+-0")) > 10 or abs(int(exponent)) >= 0x7FFFFFFF // 2):
        raise PostgresError("22003", "value overflows numeric format")
    fraction = fraction or only_fraction or ""
    power = int(exponent or 0) - len(fraction)
    value = EXACT.create_decimal(f"{sign}{whole or ''}{fraction or ''}" or "0").scaleb(0, EXACT)
    weight = (value.adjusted() + power) // 4 if value else 0
    if weight > _MAX_WEIGHT or -power > _MAX_SCALE:
        raise PostgresError("22003", "value overflows numeric format")
    if not value:
        return apply(Decimal((0, (0,), min(power, 0))), modifier)
    value = value.scaleb(power, EXACT)
    return apply(EXACT.quantize(value, Decimal(1)) if power > 0 else value, modifier)


def special_value(value: str, modifier: int) -> str:
    """Check NaN or an infinity with a modifier. Raise 22003 for an infinity in numeric(p,s)."""
    parts = typmod.numeric_parts(modifier)
    if parts and value != "NaN":
        raise _overflow(f"A field with precision {parts[0]}, scale {parts[1]} cannot hold an infinite value.")
    return value


def apply(value: Decimal, modifier: int) -> Decimal:
    """Round to the declared scale and check the precision (apply_typmod). The sign of zero is dropped."""
    parts = typmod.numeric_parts(modifier)
    if parts is None:
        return value or Decimal((0, (0,), min(int(value.as_tuple().exponent), 0)))
    precision, scale = parts
    value = EXACT.quantize(value, Decimal((0, (1,), -scale)))
    if value and value.adjusted() >= precision - scale:
        digits = precision - scale
        bound = f"10^{digits}" if digits else "1"
        raise _overflow(f"A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}.")
    if scale < 0:
        value = EXACT.quantize(value, Decimal(1))
    return value or Decimal((0, (0,), -max(scale, 0)))


def _overflow(detail: str) -> PostgresError:
    return PostgresError("22003", "numeric field overflow", detail=detail)


def print_value(value: Decimal | str) -> str:
    """Print a result of `value_of` as numeric_out."""
    return value if isinstance(value, str) else f"{value:f}"


def write_numeric(values: pa.Array) -> pa.StringArray:
    """Print as numeric_out: text as stored, a decimal with its column's scale."""
    if pa.types.is_string(values.type):
        return values
    shown = pc.cast(values, pa.string())
    if values.type.scale <= 6:
        return shown
    # Arrow prints small values as 1E-7
    odd = pc.match_substring(shown, "E")
    return text_column.write(values, odd, shown, lambda value: f"{value.as_py():f}")


def numeric_key(text: str) -> bytes:
    """Return the key by which numbers order: -Infinity, negative, zero, positive, Infinity, NaN. 1.0 and 1.00 have equal keys."""
    value = Decimal(text)
    if value.is_nan():
        return b"\x09"
    if value.is_infinite():
        return b"\x08" if value > 0 else b"\x01"
    if not value:
        return b"\x05"
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0").encode()
    body = struct.pack(">I", value.adjusted() + 0x40000000) + digits
    return b"\x07" + body if value > 0 else b"\x03" + bytes(255 - byte for byte in body) + b"\xff"
