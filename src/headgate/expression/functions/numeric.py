"""Functions of numeric on its text, on single values, for values and operations that Spark's decimals do not support.

Called inside Arrow functions on Spark's workers. A number is a `Decimal` whose exponent is its display scale. NaN and the
infinities are Decimal's own. Rules from numeric.c: select_div_scale, rounding half away from zero, NaN = NaN and greatest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

from headgate.errors import PostgresError
from headgate.storage.spark.failure import field_overflow
from headgate.types import registry
from headgate.types.base import number

EXACT = Context(prec=400_000, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
_MAX_WHOLE = 131_072
_MAX_SCALE = 16_383
_ZERO = PostgresError("22012", "division by zero")


def read(text: str) -> Decimal:
    """Parse PostgreSQL's normal text."""
    return Decimal(text)


def write(value: Decimal) -> str:
    """Return PostgreSQL's text. Raise 22003 if numeric cannot represent the value."""
    if value.is_nan():
        return "NaN"
    if value.is_infinite():
        return "Infinity" if value > 0 else "-Infinity"
    if value and value.adjusted() >= _MAX_WHOLE:
        raise PostgresError("22003", "value overflows numeric format")
    if not value:
        value = value.copy_abs()
    if scale_of(value) > _MAX_SCALE:
        value = value.quantize(Decimal(1).scaleb(-_MAX_SCALE), context=EXACT)
    return format(value, "f")


def scale_of(value: Decimal) -> int:
    """Return the display scale."""
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def at_scale(value: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return the value rounded to a display scale."""
    return value.quantize(Decimal(1).scaleb(-scale), rounding=rounding, context=EXACT)


def _binary(special: Callable[[Decimal, Decimal], Decimal], finite: Callable[[Decimal, Decimal], Decimal]) -> Callable[[str, str], str]:
    def run(left: str, right: str) -> str:
        a, b = read(left), read(right)
        if a.is_nan() or b.is_nan():
            return "NaN"
        return write(finite(a, b) if a.is_finite() and b.is_finite() else special(a, b))

    return run


def _plus(a: Decimal, b: Decimal) -> Decimal:
    if a.is_infinite() and b.is_infinite() and a != b:
        return Decimal("NaN")
    return a if a.is_infinite() else b


def _times(a: Decimal, b: Decimal) -> Decimal:
    if not a or not b:
        return Decimal("NaN")
    return Decimal("Infinity") if (a > 0) == (b > 0) else Decimal("-Infinity")


def _over(a: Decimal, b: Decimal) -> Decimal:
    if a.is_infinite() and b.is_infinite():
        return Decimal("NaN")
    if a.is_infinite():
        if not b:
            raise _ZERO
        return _times(a, b)
    return Decimal(0)


def _rest(a: Decimal, b: Decimal) -> Decimal:
    if a.is_infinite():
        if not b:
            raise _ZERO
        return Decimal("NaN")
    return a


def _divide(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise _ZERO
    scale = _quotient_scale(a, b)
    return _quotient(a, b, scale)


def _quotient(a: Decimal, b: Decimal, scale: int) -> Decimal:
    """Return a / b rounded half away from zero to `scale` digits."""
    common = max(scale_of(a), scale_of(b))
    top, bottom = abs(int(a.scaleb(common, EXACT))) * 10**scale, abs(int(b.scaleb(common, EXACT)))
    whole, rest = divmod(top, bottom)
    if rest * 2 >= bottom:
        whole += 1
    sign = -1 if (a < 0) != (b < 0) else 1
    return Decimal(sign * whole).scaleb(-scale, EXACT)


def first_digits(value: Decimal) -> tuple[int, int]:
    """Return (weight, first digit) in base 10000."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(value.copy_abs().scaleb(-4 * weight, EXACT))


def _quotient_scale(a: Decimal, b: Decimal) -> int:
    """Return the scale of a quotient: at least 16 significant digits, and not less than either display scale (select_div_scale)."""
    (weight, first), (other_weight, other_first) = first_digits(a), first_digits(b)
    quotient_weight = weight - other_weight - (1 if first <= other_first else 0)
    return min(max(16 - quotient_weight * 4, scale_of(a), scale_of(b), 0), 1000)


def _whole_quotient(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise _ZERO
    common = max(scale_of(a), scale_of(b))
    whole = abs(int(a.scaleb(common, EXACT))) // abs(int(b.scaleb(common, EXACT)))
    return Decimal(-whole if (a < 0) != (b < 0) else whole)


def _modulo(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise _ZERO
    return at_scale(EXACT.remainder(a, b), max(scale_of(a), scale_of(b)))


def _product(a: Decimal, b: Decimal) -> Decimal:
    scale = min(scale_of(a) + scale_of(b), _MAX_SCALE)
    return at_scale(EXACT.multiply(a, b), scale)


add = _binary(_plus, lambda a, b: at_scale(EXACT.add(a, b), max(scale_of(a), scale_of(b))))
subtract = _binary(lambda a, b: _plus(a, -b), lambda a, b: at_scale(EXACT.subtract(a, b), max(scale_of(a), scale_of(b))))
multiply = _binary(_times, _product)
divide = _binary(_over, _divide)
truncated_quotient = _binary(_over, _whole_quotient)
modulo = _binary(_rest, _modulo)


def negate(text: str) -> str:
    """Return - numeric (numeric_uminus)."""
    return text if text == "NaN" else write(read(text).copy_negate())


def absolute(text: str) -> str:
    """Return the absolute value (numeric_abs)."""
    return text.removeprefix("-")


def sign(text: str) -> str:
    """Return the sign (numeric_sign)."""
    value = read(text)
    return "NaN" if value.is_nan() else str((value > 0) - (value < 0))


def ceiling(text: str) -> str:
    """Round up to an integer (numeric_ceil)."""
    return _whole(text, ROUND_CEILING)


def floor(text: str) -> str:
    """Round down to an integer (numeric_floor)."""
    return _whole(text, ROUND_FLOOR)


def _whole(text: str, rounding: str) -> str:
    value = read(text)
    return write(at_scale(value, 0, rounding)) if value.is_finite() else text


def round_to(text: str, scale: int) -> str:
    """Return round(numeric, int)."""
    return _cut(text, scale, ROUND_HALF_UP)


def truncate_to(text: str, scale: int) -> str:
    """Return trunc(numeric, int)."""
    return _cut(text, scale, ROUND_DOWN)


def _cut(text: str, scale: int, rounding: str) -> str:
    value = read(text)
    if not value.is_finite():
        return text
    scale = max(min(scale, _MAX_SCALE), -_MAX_WHOLE - 1)
    cut = at_scale(value, scale, rounding)
    return write(at_scale(cut, 0) if scale < 0 else cut)


def to_modifier(text: str, precision: int, scale: int) -> str:
    """Round the value to numeric(precision, scale). Raise 22003 if it overflows."""
    value = read(text)
    if value.is_nan():
        return text
    if value.is_infinite():
        raise PostgresError(
            "22003",
            "numeric field overflow",
            detail=f"A field with precision {precision}, scale {scale} cannot hold an infinite value.",
        )
    cut = at_scale(value, scale)
    if cut and cut.adjusted() >= precision - scale:
        raise field_overflow(precision, scale)
    return write(at_scale(cut, 0) if scale < 0 else cut)


def to_integer(text: str, bits: int) -> str:
    """Cast to an integer type, by the number of bits."""
    name = {16: "smallint", 32: "integer", 64: "bigint"}[bits]
    value = read(text)
    if value.is_nan():
        raise PostgresError("0A000", f"cannot convert NaN to {name}")
    if value.is_infinite():
        raise PostgresError("0A000", f"cannot convert infinity to {name}")
    whole = int(at_scale(value, 0))
    if not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        raise PostgresError("22003", f"{name} out of range")
    return str(whole)


def to_double(text: str) -> str:
    value = float(text)
    if (math.isinf(value) and "Inf" not in text) or (value == 0 and read(text)):
        raise PostgresError("22003", f'"{text}" is out of range for type double precision')
    return repr(value)


def to_single(text: str) -> str:
    """Cast to real, and return the text of the float4 that is nearest to the number itself."""
    return repr(number.float_of(text, registry.FLOAT4))


def from_double(value: float, digits: int) -> str:
    """Cast from double precision (15 digits) or real (6)."""
    if not math.isfinite(value):
        return number.shortest(value, short=False)
    exact = Decimal(f"%.{digits}g" % value)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    return write(at_scale(exact, max(0, -exponent)))


def square_root(text: str) -> str:
    """Return the square root (numeric_sqrt)."""
    value = read(text)
    if value.is_nan():
        return text
    if value < 0:
        raise PostgresError("2201F", "cannot take square root of a negative number")
    if value.is_infinite():
        return text
    weight = first_digits(value)[0]
    half = (weight + 1) * 4 // 2 - 1 if weight >= 0 else -((-(weight + 1) * 4) // 2) - 1
    scale = min(max(16 - half, scale_of(value), 0), 1000)
    return write(_root(value, scale))


def _root(value: Decimal, scale: int) -> Decimal:
    """Return the square root rounded half up to `scale` digits, from the integer root of the scaled square."""
    shifted = int(value.scaleb(2 * scale + 2, EXACT).to_integral_value(ROUND_DOWN))
    return Decimal((math.isqrt(shifted) + 5) // 10).scaleb(-scale, EXACT)


def square(text: str) -> str:
    """Return the exact square."""
    value = read(text)
    return write(_product(value, value)) if value.is_finite() else ("NaN" if value.is_nan() else "Infinity")


def spread(total: str, squares: str, count: int, *, sample: bool, root: bool) -> str | None:
    """Return the variance or (with `root`) standard deviation from the sum and the sum of squares, or NULL for too few values."""
    if count < (2 if sample else 1):
        return None
    value_sum, square_sum = read(total), read(squares)
    if not (value_sum.is_finite() and square_sum.is_finite()):
        return "NaN"
    numerator = EXACT.subtract(EXACT.multiply(square_sum, Decimal(count)), EXACT.multiply(value_sum, value_sum))
    if numerator <= 0:
        return "0"
    denominator = Decimal(count) * (count - 1 if sample else count)
    scale = _quotient_scale(numerator, denominator)
    if not root:
        return write(_quotient(numerator, denominator, scale))
    return write(_root(_quotient(numerator, denominator, scale), scale))


def total(sums: list[str | None], scale: int) -> str | None:
    """Return the exact sum of texts (a partial sum and odd values) with at least `scale` fraction digits, or None for no values."""
    values = [value_text for value_text in sums if value_text is not None]
    if not values:
        return None
    result = values[0]
    for value_text in values[1:]:
        result = add(result, value_text)
    value = read(result)
    return write(at_scale(value, max(scale, scale_of(value)))) if value.is_finite() else result
