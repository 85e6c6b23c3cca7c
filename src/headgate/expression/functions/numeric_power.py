"""Powers, exponentials and logarithms of numeric with PostgreSQL's result scales (numeric.c: exp_var, ln_var, log_var, power_var).

On single values in PostgreSQL's text, as in `numeric`. Called from `implementation.number.numeric`. numeric.c computes with about eight
digits more than it shows. Here the result is correctly rounded from enough digits, which is the same except for ties beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from headgate.errors import PostgresError
from headgate.expression.functions import floating_point
from headgate.expression.functions.numeric import EXACT, at_scale, divide, first_digits, read, scale_of, write

_SIGNIFICANT = 16
_MOST = 1000
_LIMIT = 2000  # NUMERIC_MAX_RESULT_SCALE
_LOG_E = 0.434294481903252
_OVERFLOW = "value overflows numeric format"


def _overflow() -> PostgresError:
    return PostgresError("22003", _OVERFLOW)


def _context(digits: int) -> Context:
    return Context(prec=max(digits, 1) + 12, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _clamp(scale: int, *least: int) -> int:
    return min(max(scale, *least, 0), _MOST)


def _round(value: Decimal, scale: int) -> Decimal:
    return at_scale(value, scale)


def _zero(scale: int) -> str:
    return write(Decimal(0).scaleb(-scale))


def _as_double(value: Decimal) -> float:
    """Convert to a double without an overflow error (numericvar_to_double_no_overflow)."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def exponential(text: str) -> str:
    """Return the exponential (numeric_exp)."""
    value = read(text)
    if value.is_nan():
        return text
    if value.is_infinite():
        return text if value > 0 else "0"
    weight = max(min(_as_double(value) * 0.434294481903252, _LIMIT), -_LIMIT)
    return write(_exp(value, _clamp(_SIGNIFICANT - int(weight), scale_of(value))))


def _exp(value: Decimal, scale: int) -> Decimal:
    """Return e^value at `scale` (exp_var)."""
    approximate = _as_double(value)
    if abs(approximate) >= _LIMIT * 3:
        if approximate > 0:
            raise _overflow()
        return Decimal(0).scaleb(-scale)
    digits = max(scale + int(approximate * _LOG_E) + 2, 1)
    return _round(_context(digits).exp(value), scale)


def logarithm(text: str) -> str:
    """Return the natural logarithm (numeric_ln)."""
    value = read(text)
    if value.is_nan():
        return text
    _check_logarithm(value)
    if value.is_infinite():
        return text
    weight = _logarithm_weight(value)
    scale = _clamp(_SIGNIFICANT - weight, scale_of(value))
    return write(_ln(value, scale))


def _check_logarithm(value: Decimal) -> None:
    if value < 0:
        raise PostgresError("2201E", "cannot take logarithm of a negative number")
    if not value:
        raise PostgresError("2201E", "cannot take logarithm of zero")


def _ln(value: Decimal, scale: int) -> Decimal:
    """Return the natural logarithm at `scale` (ln_var)."""
    return _round(_context(scale + max(_logarithm_weight(value), 0) + 2).ln(value), scale)


def _logarithm_weight(value: Decimal) -> int:
    """Return the approximate decimal weight of the logarithm (estimate_ln_dweight)."""
    if value <= 0:
        return 0
    if Decimal("0.9") <= value <= Decimal("1.1"):
        rest = EXACT.subtract(value, Decimal(1))
        if not rest:
            return 0
        weight, first = first_digits(rest)
        return weight * 4 + int(math.log10(first))
    weight, first = first_digits(value)
    weight *= 4
    shifted = value.copy_abs().scaleb(-(weight - 4), EXACT)
    if shifted.to_integral_value(ROUND_DOWN) != first * 10000 or shifted % 1:
        first, weight = int(shifted), weight - 4
    return int(math.log10(abs(math.log(first) + weight * 2.302585092994046)))


def logarithm_to(base_text: str, text: str) -> str:
    """Return the logarithm of the second argument to the base of the first (numeric_log)."""
    base, value = read(base_text), read(text)
    if base.is_nan() or value.is_nan():
        return "NaN"
    if base.is_infinite() or value.is_infinite():
        for number in (base, value):
            if number < 0:
                raise PostgresError("2201E", "cannot take logarithm of a negative number")
        _check_logarithm(base)
        _check_logarithm(value)
        if base.is_infinite():
            return "NaN" if value.is_infinite() else "0"
        return "Infinity"
    _check_logarithm(base)
    _check_logarithm(value)
    base_weight, weight = _logarithm_weight(base), _logarithm_weight(value)
    result_weight = weight - base_weight
    scale = _clamp(_SIGNIFICANT - result_weight, scale_of(base), scale_of(value))
    base_ln = _ln(base, max(scale + result_weight - base_weight + 8, 0))
    value_ln = _ln(value, max(scale + result_weight - weight + 8, 0))
    if not base_ln:
        raise PostgresError("22012", "division by zero")
    return write(_round(_context(scale + abs(result_weight) + 4).divide(value_ln, base_ln), scale))


def power(base_text: str, exponent_text: str) -> str:
    """Return a power (numeric_power)."""
    base, exponent = read(base_text), read(exponent_text)
    if not (base.is_finite() and exponent.is_finite()):
        return _special_power(base, exponent)
    _check_power(base, exponent)
    whole = _is_whole(exponent)
    if whole and -(2**31) <= exponent < 2**31:
        return write(_integer_power(base, int(exponent), _clamp(_SIGNIFICANT, scale_of(base))))
    if not base:
        return _zero(_SIGNIFICANT)
    negative = base < 0 and int(exponent) % 2 == 1
    return write(_real_power(base.copy_abs(), exponent, negative))


def _is_whole(value: Decimal) -> bool:
    return value == value.to_integral_value(ROUND_DOWN)


def _check_power(base: Decimal, exponent: Decimal) -> None:
    if not base and exponent < 0:
        raise PostgresError("2201F", "zero raised to a negative power is undefined")
    if base < 0 and exponent.is_finite() and not _is_whole(exponent):
        raise PostgresError("2201F", "a negative number raised to a non-integer power yields a complex result")


def _special_power(base: Decimal, exponent: Decimal) -> str:
    """Return the power for NaN and infinities, as POSIX's pow does."""
    if base.is_nan():
        return "1" if exponent.is_finite() and not exponent else "NaN"
    if exponent.is_nan():
        return "1" if base.is_finite() and base == 1 else "NaN"
    _check_power(base, exponent)
    if base.is_finite() and base == 1:
        return "1"
    if exponent.is_finite() and not exponent:
        return "1"
    if base.is_finite() and not base:
        return "0"
    if exponent.is_infinite():
        if base.is_finite() and base.copy_abs() == 1:
            return "1"
        return "Infinity" if (base.is_infinite() or base.copy_abs() > 1) == (exponent > 0) else "0"
    if exponent < 0:
        return "0"
    return "Infinity" if base > 0 or not int(exponent) % 2 else "-Infinity"


def _integer_power(base: Decimal, exponent: int, scale: int) -> Decimal:
    """Return a power with an integer exponent (power_var_int)."""
    if exponent == 0:
        return Decimal(1).scaleb(0).quantize(Decimal(1).scaleb(-scale), context=EXACT)
    if exponent == 1:
        return _round(base, scale)
    if not base:
        return Decimal(0).scaleb(-scale)
    if exponent == 2:
        return _round(EXACT.multiply(base, base), scale)
    estimate = exponent * _decimal_weight(base)
    if exponent != -1:
        if estimate > 3 * 32767 * 4:
            raise _overflow()
        if estimate + 1 < -scale or estimate + 1 < -_MOST:
            return Decimal(0).scaleb(-scale)
    digits = max(1 + scale + int(estimate), 1) + int(math.log(abs(exponent))) + 8
    result = _context(digits).power(base, abs(exponent))
    if result and result.adjusted() >= 4 * 32768 and exponent > 0:
        raise _overflow()
    if exponent < 0:
        result = _context(digits).divide(Decimal(1), result)
    return _round(result, scale)


def _decimal_weight(value: Decimal) -> float:
    """Return log10 of the magnitude, from its first digits."""
    digits = "".join(map(str, value.as_tuple().digits))
    return math.log10(int(digits[:17])) + value.adjusted() + 1 - len(digits[:17])


def _real_power(base: Decimal, exponent: Decimal, negative: bool) -> Decimal:
    """Return the power for an exponent that is not an integer (power_var)."""
    weight = _logarithm_weight(base)
    rough = _round(EXACT.multiply(_ln(base, max(8 - weight, 0)), exponent), max(8 - weight, 0))
    estimate = _as_double(rough)
    if abs(estimate) > _LIMIT * 3.01:
        if estimate > 0:
            raise _overflow()
        return Decimal(0).scaleb(-_MOST)
    estimate *= _LOG_E
    scale = _clamp(_SIGNIFICANT - int(estimate), scale_of(base), scale_of(exponent))
    digits = max(scale + int(estimate), 0)
    local = max(digits - weight + 8, 0)
    product = _round(EXACT.multiply(_ln(base, local), exponent), local)
    result = _exp(product, scale)
    return result.copy_negate() if negative else result


def factorial(number: int) -> str:
    """Return a factorial (numeric_fac)."""
    if number < 0:
        raise PostgresError("22003", "factorial of a negative number is undefined")
    if number > 32177:
        raise _overflow()
    return str(Decimal(math.factorial(number)))


def of_integers(operation: Callable[[int, int], int], left: str, right: str) -> str:
    """Return the greatest common divisor (gcd) or the least common multiple (lcm) of two numerics, by that of their digits."""
    a, b = read(left), read(right)
    if not (a.is_finite() and b.is_finite()):
        return "NaN"
    scale = max(scale_of(a), scale_of(b))
    result = operation(int(a.scaleb(scale, EXACT)), int(b.scaleb(scale, EXACT)))
    return write(Decimal(result).scaleb(-scale, EXACT))


def least_scale(text: str) -> int | None:
    """Return the fraction digits that the value needs (min_scale), or NULL for NaN and infinities."""
    value = read(text)
    return max(0, -_exponent(value.normalize(EXACT))) if value.is_finite() else None


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def display_scale(text: str) -> int | None:
    """Return scale(numeric), or NULL for NaN and infinities."""
    value = read(text)
    return scale_of(value) if value.is_finite() else None


def trimmed(text: str) -> str:
    """Remove trailing zeros of the fraction (trim_scale)."""
    scale = least_scale(text)
    return text if scale is None else write(at_scale(read(text), scale))


def bucket(operand: str, low: str, high: str, count: int) -> int:
    """Return width_bucket(numeric, numeric, numeric, int)."""
    value, first, last = read(operand), read(low), read(high)
    outer = floating_point.outer_bucket(value, first, last, count)
    if outer is not None:
        return outer
    offset, width = EXACT.subtract(value, first).copy_abs(), EXACT.subtract(last, first).copy_abs()
    quotient = read(divide(write(EXACT.multiply(offset, Decimal(count))), write(width)))
    if quotient >= 2**31 - 1:  # only if the division has rounded up
        raise PostgresError("22003", "integer out of range")
    return int(quotient) + 1
