"""Functions of bit and bit varying on their text form, the binary digits, value by value (varbit.c)."""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import PostgresError

_INT_MAX = 2**31 - 1


def _same_size(left: str, right: str, word: str) -> None:
    if len(left) != len(right):
        raise PostgresError("22026", f"cannot {word} bit strings of different sizes")


def _of(number: int, size: int) -> str:
    return f"{number:0{size}b}" if size else ""


def _number(digits: str) -> int:
    return int(digits, 2) if digits else 0


def bitwise(operation: Callable[[int, int], int], name: str, left: str, right: str) -> str:
    """Return bit & bit, bit | bit or bit # bit."""
    _same_size(left, right, name)
    return _of(operation(_number(left), _number(right)), len(left))


def bit_not(digits: str) -> str:
    """Return ~ bit."""
    return digits.translate({48: 49, 49: 48})


def shift_left(digits: str, count: int) -> str:
    """Return bit << integer. A negative count shifts to the right."""
    if count < 0:
        return shift_right(digits, -max(count, -_INT_MAX))
    cut = min(count, len(digits))
    return digits[cut:] + "0" * cut


def shift_right(digits: str, count: int) -> str:
    """Return bit >> integer. A negative count shifts to the left."""
    if count < 0:
        return shift_left(digits, -max(count, -_INT_MAX))
    cut = min(count, len(digits))
    return "0" * cut + digits[: len(digits) - cut]


def count_set(digits: str) -> int:
    """Return the number of bits that are 1 (bit_count)."""
    return digits.count("1")


def octets(digits: str) -> int:
    """Return the number of bytes that the bits take (octet_length)."""
    return (len(digits) + 7) // 8


def substring(digits: str, start: int, count: int) -> str:
    """Return SUBSTRING … FROM … FOR."""
    if count < 0:
        raise PostgresError("22011", "negative substring length not allowed")
    return digits[max(start, 1) - 1 : max(start + count - 1, 0)]


def substring_from(digits: str, start: int) -> str:
    """Return substring(bit from start)."""
    return digits[max(start, 1) - 1 :]


def position(digits: str, part: str) -> int:
    """Return the position of a part, counted from 1, or 0 if it does not occur."""
    return digits.find(part) + 1 if digits and len(part) <= len(digits) else 0


def get_bit(digits: str, place: int) -> int:
    """Return a bit (get_bit), counted from 0 at the left."""
    if not 0 <= place < len(digits):
        raise PostgresError("2202E", f"bit index {place} out of valid range (0..{len(digits) - 1})")
    return int(digits[place])


def set_bit(digits: str, place: int, value: int) -> str:
    """Return the bits with one of them changed (set_bit)."""
    if not 0 <= place < len(digits):
        raise PostgresError("2202E", f"bit index {place} out of valid range (0..{len(digits) - 1})")
    if value not in (0, 1):
        raise PostgresError("22023", "new bit must be 0 or 1")
    return digits[:place] + str(value) + digits[place + 1 :]


def to_length(digits: str, size: int, explicit: bool) -> str:
    """Cast to bit(n): truncated or padded with zeros by an explicit cast, otherwise the length must match."""
    if size <= 0 or size == len(digits):
        return digits
    if not explicit:
        raise PostgresError("22026", f"bit string length {len(digits)} does not match type bit({size})")
    return digits[:size].ljust(size, "0")


def to_limit(digits: str, size: int, explicit: bool) -> str:
    """Cast to bit varying(n)."""
    if size <= 0 or len(digits) <= size:
        return digits
    if not explicit:
        raise PostgresError("22001", f"bit string too long for type bit varying({size})")
    return digits[:size]


def of_integer(width: int, value: int, size: int) -> str:
    """Cast integer to bit(n): the last n bits, with the sign extended. `width` is 32 or 64."""
    length = size if size > 0 else 1
    if length >= width:
        return ("1" if value < 0 else "0") * (length - width) + _of(value & (1 << width) - 1, width)
    return _of(value & (1 << length) - 1, length)


def to_integer(width: int, digits: str) -> int:
    """Cast bit to integer, as two's complement if all bits are used."""
    if len(digits) > width:
        raise PostgresError("22003", f"{'integer' if width == 32 else 'bigint'} out of range")
    number = _number(digits)
    return number - (1 << width) if number >> width - 1 else number
