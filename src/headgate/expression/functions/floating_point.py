"""Functions of double precision whose last digit depends on the C library, on single values with PostgreSQL's errors (float.c).

Python's `math` calls the same C library as a PostgreSQL server on the machine. Java's functions differ in the last digit. Called
through `vectorised` from `implementation.number.floating_point`. Every function returns NaN for NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import numpy as np

from headgate.errors import PostgresError

T = TypeVar("T", float, Decimal)
_RADIANS = 0.0174532925199432957692
_INFINITY = float("inf")


def _overflow() -> PostgresError:
    return PostgresError("22003", "value out of range: overflow")


def _underflow() -> PostgresError:
    return PostgresError("22003", "value out of range: underflow")


def _outside() -> PostgresError:
    return PostgresError("22003", "input is out of range")


def to_single(text: str) -> str:
    """Return the text of the float4 nearest to a double (dtof)."""
    value = float(text)
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    if math.isinf(single) and not math.isinf(value):
        raise _overflow()
    if single == 0 and value != 0:
        raise _underflow()
    return repr(single)


def power(base: float, exponent: float) -> float:
    """Return a power (dpow)."""
    if math.isnan(base) or math.isnan(exponent):
        return 1.0 if exponent == 0 or base == 1 else math.nan
    if base == 0 and exponent < 0:
        raise PostgresError("2201F", "zero raised to a negative power is undefined")
    if base < 0 and math.isfinite(exponent) and math.floor(exponent) != exponent:
        raise PostgresError("2201F", "a negative number raised to a non-integer power yields a complex result")
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        raise _overflow() from None
    if result == 0 and base != 0 and math.isfinite(base) and math.isfinite(exponent):
        raise _underflow()
    return result


def exponential(value: float) -> float:
    """Return the exponential (dexp)."""
    try:
        result = math.exp(value)
    except OverflowError:
        raise _overflow() from None
    if result == 0 and math.isfinite(value):
        raise _underflow()
    return result


def logarithm(function: Callable[[float], float], value: float) -> float:
    """Return a logarithm: `function` of a positive number (dlog1, dlog10)."""
    if value == 0:
        raise PostgresError("2201E", "cannot take logarithm of zero")
    if value < 0:
        raise PostgresError("2201E", "cannot take logarithm of a negative number")
    return function(value)


def degrees(value: float) -> float:
    """Convert radians to degrees (degrees)."""
    result = value / _RADIANS
    if math.isinf(result) and not math.isinf(value):
        raise _overflow()
    return result


def radians(value: float) -> float:
    """Convert degrees to radians (radians)."""
    result = value * _RADIANS
    if result == 0 and value != 0:
        raise _underflow()
    return result


def periodic(function: Callable[[float], float], value: float) -> float:
    """Return `function` of a finite angle (dsin, dcos, dtan)."""
    if math.isinf(value):
        raise _outside()
    return function(value)


def cotangent(value: float) -> float:
    """Return the cotangent (dcot)."""
    return _ratio(1.0, periodic(math.tan, value))


def _ratio(dividend: float, divisor: float) -> float:
    """Divide as C does: division by zero gives infinity."""
    if divisor == 0:
        return math.nan if dividend == 0 else math.copysign(_INFINITY, dividend) * math.copysign(1.0, divisor)
    return dividend / divisor


def within_one(function: Callable[[float], float], value: float) -> float:
    """Return `function` of a number from -1 to 1 (dasin, dacos)."""
    if value < -1 or value > 1:
        raise _outside()
    return function(value)


def hyperbolic_sine(value: float) -> float:
    """Return the hyperbolic sine (dsinh), which is infinite on overflow."""
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(_INFINITY, value)


def hyperbolic_cosine(value: float) -> float:
    """Return the hyperbolic cosine (dcosh), which is infinite on overflow."""
    try:
        return math.cosh(value)
    except OverflowError:
        return _INFINITY


def area_cosine(value: float) -> float:
    """Return the inverse hyperbolic cosine (dacosh)."""
    if value < 1:
        raise _outside()
    return math.acosh(value)


def area_tangent(value: float) -> float:
    """Return the inverse hyperbolic tangent (datanh)."""
    if abs(value) == 1:
        return math.copysign(_INFINITY, value)
    return within_one(math.atanh, value)


# ---- in degrees: scaled so that the values at multiples of 30 and 45 are exact ----------------------------------------------------

_SIN_30 = math.sin(30.0 * _RADIANS)
_ONE_MINUS_COS_60 = 1.0 - math.cos(60.0 * _RADIANS)
_ASIN_HALF, _ACOS_HALF, _ATAN_ONE = math.asin(0.5), math.acos(0.5), math.atan(1.0)


def _sine_to_30(value: float) -> float:
    return (math.sin(value * _RADIANS) / _SIN_30) / 2.0


def _cosine_to_60(value: float) -> float:
    return 1.0 - ((1.0 - math.cos(value * _RADIANS)) / _ONE_MINUS_COS_60) / 2.0


def _sine_to_90(value: float) -> float:
    return _sine_to_30(value) if value <= 30.0 else _cosine_to_60(90.0 - value)


def _cosine_to_90(value: float) -> float:
    return _cosine_to_60(value) if value <= 60.0 else _sine_to_30(90.0 - value)


_TAN_45 = _sine_to_90(45.0) / _cosine_to_90(45.0)
_COT_45 = _cosine_to_90(45.0) / _sine_to_90(45.0)


def _fold_angle(value: float) -> tuple[float, int, int, int]:
    """Return (the angle within the first quadrant, the signs of sine, cosine and tangent)."""
    if math.isinf(value):
        raise _outside()
    sine_sign = cosine_sign = tangent_sign = 1
    angle = math.fmod(value, 360.0)
    if angle < 0:
        angle, sine_sign, tangent_sign = -angle, -sine_sign, -tangent_sign
    if angle > 180.0:
        angle, sine_sign, tangent_sign = 360.0 - angle, -sine_sign, -tangent_sign
    if angle > 90.0:
        angle, cosine_sign, tangent_sign = 180.0 - angle, -cosine_sign, -tangent_sign
    return angle, sine_sign, cosine_sign, tangent_sign


def sine_degrees(value: float) -> float:
    """Return the sine of degrees (dsind)."""
    angle, sign, _, _ = _fold_angle(value)
    return sign * _sine_to_90(angle)


def cosine_degrees(value: float) -> float:
    """Return the cosine of degrees (dcosd)."""
    angle, _, sign, _ = _fold_angle(value)
    return sign * _cosine_to_90(angle)


def tangent_degrees(value: float) -> float:
    """Return the tangent of degrees (dtand)."""
    angle, _, _, sign = _fold_angle(value)
    return sign * (_ratio(_sine_to_90(angle), _cosine_to_90(angle)) / _TAN_45) or 0.0


def cotangent_degrees(value: float) -> float:
    """Return the cotangent of degrees (dcotd)."""
    angle, _, _, sign = _fold_angle(value)
    return sign * (_ratio(_cosine_to_90(angle), _sine_to_90(angle)) / _COT_45) or 0.0


def _asin_quarter(value: float) -> float:
    return (math.asin(value) / _ASIN_HALF) * 30.0 if value <= 0.5 else 90.0 - (math.acos(value) / _ACOS_HALF) * 60.0


def _acos_quarter(value: float) -> float:
    return 90.0 - (math.asin(value) / _ASIN_HALF) * 30.0 if value <= 0.5 else (math.acos(value) / _ACOS_HALF) * 60.0


def arc_sine_degrees(value: float) -> float:
    """Return the arc sine in degrees (dasind)."""
    return within_one(lambda ratio: _asin_quarter(ratio) if ratio >= 0 else -_asin_quarter(-ratio), value)


def arc_cosine_degrees(value: float) -> float:
    """Return the arc cosine in degrees (dacosd)."""
    return within_one(lambda ratio: _acos_quarter(ratio) if ratio >= 0 else 90.0 + _asin_quarter(-ratio), value)


def arc_tangent_degrees(value: float) -> float:
    """Return the arc tangent in degrees (datand)."""
    return (math.atan(value) / _ATAN_ONE) * 45.0


def arc_tangent_2_degrees(y: float, x: float) -> float:
    """Return the arc tangent of y/x in degrees (datan2d)."""
    return (math.atan2(y, x) / _ATAN_ONE) * 45.0


def outer_bucket(operand: T, low: T, high: T, count: int) -> int | None:
    """Return the bucket of width_bucket below or above the bounds, or None for an operand between them. Raise 2201G for bad bounds."""
    if count <= 0:
        raise PostgresError("2201G", "count must be greater than zero")
    if any(number != number for number in (operand, low, high)):  # noqa: PLR0124 (NaN alone; `math` would make a double of a Decimal)
        raise PostgresError("2201G", "operand, lower bound, and upper bound cannot be NaN")
    if _INFINITY in (abs(low), abs(high)):
        raise PostgresError("2201G", "lower and upper bounds must be finite")
    if low == high:
        raise PostgresError("2201G", "lower bound cannot equal upper bound")
    if operand < low if low < high else operand > low:
        return 0
    if operand >= high if low < high else operand <= high:
        if count == 2**31 - 1:
            raise PostgresError("22003", "integer out of range")
        return count + 1
    return None


def bucket(operand: float, low: float, high: float, count: int) -> int:
    """Return width_bucket(double precision, double precision, double precision, int)."""
    outer = outer_bucket(operand, low, high, count)
    if outer is not None:
        return outer
    # PostgreSQL's cast to int returns the smallest int if the product or the difference overflows.
    share = count * (operand - low) / (high - low) + 1
    return int(share) if -(2**31) - 1 < share < 2**31 else -(2**31)


def in_range(operation: Callable[[int, int], int], bits: int, name: str, a: int, b: int) -> int:
    """Return gcd(a, b) or lcm(a, b) of integers with this number of bits besides the sign."""
    value = operation(a, b)
    if value >= 1 << bits:
        raise PostgresError("22003", f"{name} out of range")
    return value
