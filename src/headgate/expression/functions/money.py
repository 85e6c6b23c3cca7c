"""Functions and operators of money on its text form, on single values, as in cash.c."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

from headgate.errors import PostgresError
from headgate.types.base.money import LEAST, MOST, amount_of, printed
from headgate.types.base.numeric import EXACT

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_GROUPS = ("", "thousand", "million", "billion", "trillion", "quadrillion")


def _in_range(cents: int, kind: str = "money") -> str:
    if not LEAST <= cents <= MOST:
        raise PostgresError("22003", f"{kind} out of range")
    return printed(cents)


def added(sign: int, left: str, right: str) -> str:
    """Return money ± money."""
    return _in_range(amount_of(left) + sign * amount_of(right))


def times(amount: str, factor: float) -> str:
    """Return money * double precision, rounded to the nearest cent, halves to even."""
    return _round(amount_of(amount) * factor)


def over(amount: str, divisor: float) -> str:
    """Return money / double precision."""
    if divisor == 0:
        raise _division_by_zero()
    return _round(amount_of(amount) / divisor)


def times_whole(amount: str, factor: int) -> str:
    """Return money * bigint."""
    return _in_range(amount_of(amount) * factor)


def over_whole(amount: str, divisor: int) -> str:
    """Return money / bigint, truncated to a cent."""
    cents = amount_of(amount)
    if divisor == 0:
        raise _division_by_zero()
    if cents == LEAST and divisor == -1:
        raise PostgresError(
            "22P01",
            "floating-point exception",
            detail="An invalid floating-point operation was signaled. This probably means an out-of-range result or an invalid operation, "
            "such as division by zero.",
        )
    whole = abs(cents) // abs(divisor)
    return printed(whole if (cents < 0) == (divisor < 0) else -whole)


def ratio(left: str, right: str) -> float:
    """Return money / money."""
    divisor = amount_of(right)
    if divisor == 0:
        raise _division_by_zero()
    return float(amount_of(left)) / float(divisor)


def _round(cents: float) -> str:
    if not math.isfinite(cents):
        raise PostgresError("22003", "money out of range")
    return _in_range(round(cents))


def _division_by_zero() -> PostgresError:
    return PostgresError("22012", "division by zero")


def of_integer(value: int) -> str:
    return _in_range(value * 100, "bigint")


def of_numeric(text: str) -> str:
    """Cast numeric to money, rounded half away from zero."""
    value = Decimal(text)
    if not value.is_finite():
        raise PostgresError("0A000", f"cannot convert {'NaN' if value.is_nan() else 'infinity'} to bigint")
    return _in_range(int(EXACT.multiply(value, Decimal(100)).to_integral_value(ROUND_HALF_UP, EXACT)), "bigint")


def to_numeric(amount: str) -> str:
    """Cast money to numeric, with two fraction digits."""
    return amount.replace("$", "").replace(",", "")


def summed(total: str) -> str:
    """Return the amount for a sum in cents."""
    return _in_range(int(total))


def words(amount: str) -> str:
    """Return the amount in words (cash_words)."""
    whole, rest = divmod(abs(amount_of(amount)), 100)
    said = "minus " if amount.startswith("-") else ""
    for place in range(len(_GROUPS) - 1, 0, -1):
        group = whole // 1000**place % 1000
        said += f"{_number_words(group)} {_GROUPS[place]} " if group else ""
    said += _number_words(whole % 1000) if whole % 1000 else ""
    if whole == 0:
        said += "zero"
    said += (" dollar and " if whole == 1 else " dollars and ") + _number_words(rest) + (" cent" if rest == 1 else " cents")
    return said[0].upper() + said[1:]


def _number_words(value: int) -> str:
    if value <= 20:
        return _SMALL[value]
    hundreds, below = divmod(value, 100)
    if not below:
        return f"{_SMALL[hundreds]} hundred"
    if value % 10 == 0 and below > 10:
        last = _TENS[below // 10]
    elif below < 20:
        last = f"and {_SMALL[below]}" if hundreds else _SMALL[below]
    else:
        last = f"{_TENS[below // 10]} {_SMALL[below % 10]}"
    return f"{_SMALL[hundreds]} hundred {last}" if hundreds else last
