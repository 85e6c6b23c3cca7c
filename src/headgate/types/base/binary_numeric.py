"""The binary form of numeric on whole columns: base-10000 digits to decimal128 or text and back.

`TYPES` describes numeric, with the functions of `numeric`. A value is int16 ndigits, int16 weight, uint16 sign, uint16 dscale, then ndigits
int16 digits; digit i counts 10000^(weight - i). The usual values are summed digit by digit over the whole column: in int64 if 18 decimal
digits suffice, else in four limbs of 32 bits. NaN, infinities, values that must be rounded and very long ones are read one by one.
"""

from __future__ import annotations

import functools
import struct
from decimal import ROUND_DOWN, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import buffers, registry, typmod
from headgate.types.base import numeric
from headgate.types.base.base_type import BaseType, Hashing
from headgate.types.buffers import Bytes, Mask, Numbers

_NEGATIVE, _NAN, _PLUS_INFINITY, _MINUS_INFINITY = 0x4000, 0xC000, 0xD000, 0xF000
_SPECIAL = {_NAN: "NaN", _PLUS_INFINITY: "Infinity", _MINUS_INFINITY: "-Infinity"}
_BASE = 10000
_WIDE_DIGITS = 38
_NARROW_DIGITS = 18
Words = npt.NDArray[np.int64]


def read(data: Bytes, starts: Numbers, sizes: Numbers, mask: Mask | None, modifier: int) -> pa.Array:
    """Read a column as numeric_recv with the modifier, into stored form. Raise 22P03 for malformed digits."""
    head = _head(data, starts, sizes, mask)
    parts = typmod.decimal_parts(modifier)
    if parts is not None:
        result, usual = _decimals(data, starts, head, parts[1], mask)
        fits = pc.less(pc.abs(result), pa.scalar(Decimal(10) ** (parts[0] - parts[1]), pa.decimal256(76, parts[1])))
        usual &= np.asarray(pc.fill_null(fits, True).to_numpy(zero_copy_only=False), np.bool_) if parts[0] < _WIDE_DIGITS else True
        result = pc.cast(pc.if_else(pa.array(usual), result, pa.scalar(None, result.type)), pa.decimal128(*parts))
    elif modifier >= 0:
        result, usual = pa.nulls(len(starts), pa.string()), np.zeros(len(starts), np.bool_)
    else:
        result, usual = _texts(data, starts, head, mask)
    odd = ~usual if mask is None else ~usual & mask
    if not odd.any():
        return result
    values = [_value(data[start : start + size].tobytes(), modifier) for start, size in zip(starts[odd], sizes[odd], strict=True)]
    if parts is not None:
        return pc.replace_with_mask(result, pa.array(odd), pa.array([numeric.storable(value, *parts) for value in values], result.type))
    return pc.replace_with_mask(result, pa.array(odd), pa.array([numeric.print_value(value) for value in values], pa.string()))


def _head(data: Bytes, starts: Numbers, sizes: Numbers, mask: Mask | None) -> Words:
    """Return ndigits, weight, sign and dscale of each value as four columns; zeros for NULL."""
    short = sizes < 8 if mask is None else (sizes < 8) & mask
    if short.any():
        raise PostgresError("08P01", "insufficient data left in message")
    head = np.zeros((len(starts), 4), np.int64)
    rows = slice(None) if mask is None else mask
    words = buffers.rows_at(data, starts[rows], 8).view(">u2").astype(np.int64)
    words[:, 1] = (words[:, 1] ^ 0x8000) - 0x8000
    head[rows] = words
    if (head[:, 0] * 2 + 8 != np.where(head[:, 0] | (sizes > 0), sizes, 8)).any():
        raise PostgresError("22P03", 'invalid length in external "numeric" value')
    if not np.isin(head[:, 2], [0, _NEGATIVE, _NAN, _PLUS_INFINITY, _MINUS_INFINITY]).all():
        raise PostgresError("22P03", 'invalid sign in external "numeric" value')
    return head


def digits_of(data: Bytes, starts: Numbers, counts: Numbers) -> Words:
    """Return the digits of each value as a row of a matrix, with zeros after its last digit. `counts`: the numbers of digits."""
    width = int(counts.max(initial=0))
    digits = np.zeros((len(counts), max(width, 1)), np.int64)
    for index in range(width):
        rows = np.flatnonzero(counts > index)
        positions = starts[rows] + 8 + 2 * index
        digits[rows, index] = (data[positions].astype(np.int64) << 8) | data[positions + 1]
    return digits


def _decimals(data: Bytes, starts: Numbers, head: Words, scale: int, mask: Mask | None) -> tuple[pa.Array, Mask]:
    """Return values as decimal128(38, scale), and which of them were usual. The others are NULL or meaningless."""
    digits, weight, sign, dscale = head.T
    below = -(-scale // 4)
    usual = (sign <= _NEGATIVE) & (dscale <= scale) & (4 * (weight + 1 + below) <= _WIDE_DIGITS)
    usual &= weight - digits + 1 >= -below
    if mask is not None:
        usual &= mask
    top = int(weight[usual].max(initial=-1))
    wide = 4 * (top + 1 + below) > _NARROW_DIGITS
    limbs = np.zeros((4 if wide else 1, len(starts)), np.int64)
    for power in range(top, -below - 1, -1):
        index = weight - power
        has = usual & (index >= 0) & (index < digits)
        position = np.where(has, starts + 8 + 2 * index, 0)
        digit = np.where(has, data[position].astype(np.int64) << 8 | data[np.where(has, position + 1, 0)], 0)
        if (digit >= _BASE).any():
            raise PostgresError("22P03", 'invalid digit in external "numeric" value')
        _shift_in(limbs, digit)
    _divide(limbs, 10 ** (4 * below - scale))
    return _assemble(limbs, sign == _NEGATIVE, scale, usual), usual


def _shift_in(limbs: Words, digit: Words) -> None:
    """Append a digit to the values in place. One row is a plain int64; four are 32 bits each, lowest first."""
    if len(limbs) == 1:
        limbs[0] = limbs[0] * _BASE + digit
        return
    carry = digit
    for limb in limbs:
        total = limb * _BASE + carry
        limb[:] = total & 0xFFFFFFFF
        carry = total >> 32


def _divide(limbs: Words, divisor: int) -> Words:
    if len(limbs) == 1:
        rest: Words = limbs[0] % divisor
        limbs[0] //= divisor
        return rest
    rest = np.zeros(limbs.shape[1], np.int64)
    for limb in limbs[::-1]:
        total = rest << 32 | limb
        limb[:] = total // divisor
        rest = total % divisor
    return rest


def _assemble(limbs: Words, negative: Mask, scale: int, mask: Mask) -> pa.Array:
    """Return a decimal128(38, scale) array for magnitudes and signs (two's complement, little endian)."""
    words = np.zeros((limbs.shape[1], 2), np.uint64)
    if len(limbs) == 1:
        signed = np.where(negative, -limbs[0], limbs[0])
        words[:, 0], words[:, 1] = signed.view(np.uint64), (signed >> 63).view(np.uint64)
    else:
        low = (limbs[0] | limbs[1] << 32).view(np.uint64)
        high = (limbs[2] | limbs[3] << 32).view(np.uint64)
        words[:, 0] = np.where(negative, ~low + np.uint64(1), low)
        words[:, 1] = np.where(negative, ~high + (low == 0).astype(np.uint64), high)
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(words), [buffers.validity(mask), pa.py_buffer(words)])


def _texts(data: Bytes, starts: Numbers, head: Words, mask: Mask | None) -> tuple[pa.StringArray, Mask]:
    """Return numeric without modifier as text, converted per display scale, and which values were usual."""
    scales = np.unique(head[:, 3] if mask is None else head[mask, 3])
    shown, usual = pa.nulls(len(starts), pa.string()), np.zeros(len(starts), np.bool_)
    for scale in scales[scales <= _WIDE_DIGITS - 4][:16]:
        rows = np.flatnonzero(head[:, 3] == scale)
        present = None if mask is None else mask[rows]
        decimals, is_usual = _decimals(data, starts[rows], head[rows], int(scale), present)
        converted = np.zeros(len(starts), np.bool_)
        converted[rows[is_usual]] = True
        usual |= converted
        shown = pc.replace_with_mask(shown, pa.array(converted), numeric.write_numeric(decimals.filter(pa.array(is_usual))))
    return shown, usual


def _value(raw: bytes, modifier: int) -> Decimal | str:
    """Read one value, without the bulk path's limits."""
    digits, weight, sign, dscale = struct.unpack_from(">HhHH", raw)
    if sign in _SPECIAL:
        return numeric.special_value(_SPECIAL[sign], modifier)
    words = struct.unpack_from(f">{digits}H", raw, 8)
    if any(word >= _BASE for word in words):
        raise PostgresError("22P03", 'invalid digit in external "numeric" value')
    if dscale > 0x3FFF:
        raise PostgresError("22P03", 'invalid scale in external "numeric" value')
    plain = Decimal("".join(f"{word:04}" for word in words) or "0")
    shifted = numeric.EXACT.scaleb(plain, 4 * (weight - digits + 1)) if plain else plain
    exact = shifted.quantize(Decimal((0, (1,), -dscale)), ROUND_DOWN, numeric.EXACT)
    return numeric.apply(exact.copy_negate() if sign == _NEGATIVE else exact, modifier)


def write(array: pa.Array) -> pa.LargeBinaryArray:
    """Send decimals, or text as it is stored, as numeric_send."""
    if pa.types.is_string(array.type):
        return pa.array([None if text is None else send(text) for text in array.to_pylist()], pa.large_binary())
    mask = buffers.valid(array)
    scale = array.type.scale
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
    if mask is not None:
        words = np.where(mask[:, None], words, np.uint64(0))
    below = -(-scale // 4)
    groups = below + -(-(array.type.precision - scale) // 4)
    negative = words[:, 1] >> np.uint64(63) == 1
    low = np.where(negative, ~words[:, 0] + np.uint64(1), words[:, 0])
    high = np.where(negative, ~words[:, 1] + (words[:, 0] == 0).astype(np.uint64), words[:, 1])
    if array.type.precision + 3 <= _NARROW_DIGITS:
        limbs = low.view(np.int64)[None].copy()
    else:
        half = np.uint64(0xFFFFFFFF)
        shift = np.uint64(32)
        limbs = np.array([low & half, low >> shift, high & half, high >> shift]).view(np.int64)
    digits = np.zeros((len(array), groups + 1), np.int64)
    pad = 4 * below - scale  # the lowest group has fewer digits of the value if the scale is not a multiple of four
    digits[:, groups] = _divide(limbs, 10 ** (4 - pad)) * 10**pad if pad else _divide(limbs, _BASE)
    for column in range(groups - 1, -1, -1):
        digits[:, column] = _divide(limbs, _BASE)
    return _laid_out(digits, groups - below, negative, scale, mask)


def _laid_out(digits: Words, top: int, negative: Mask, scale: int, mask: Mask | None) -> pa.LargeBinaryArray:
    """Return the send format of digit rows. Column 0 counts 10000^top. Zero digits at both ends are omitted."""
    nonzero = digits != 0
    first = np.argmax(nonzero, axis=1)
    last = digits.shape[1] - 1 - np.argmax(nonzero[:, ::-1], axis=1)
    count = np.where(nonzero.any(axis=1), last - first + 1, 0)
    cells = np.empty((len(digits), 4 + digits.shape[1]), ">u2")
    cells[:, 0], cells[:, 2], cells[:, 3] = count, np.where(negative, _NEGATIVE, 0), scale
    cells[:, 1] = np.where(count > 0, top - first, 0).astype(np.uint16)
    cells[:, 4:] = digits
    columns = np.arange(digits.shape[1])
    keep = np.ones(cells.shape, np.bool_)
    keep[:, 4:] = (columns >= first[:, None]) & (columns < (first + count)[:, None])
    sizes = 8 + 2 * count
    if mask is not None:
        keep[~mask] = False
        sizes = np.where(mask, sizes, 0)
    return buffers.strings(cells[keep].view(np.uint8), buffers.offsets_of(sizes), mask, pa.large_binary())


def send(text: str) -> bytes:
    special = {name: code for code, name in _SPECIAL.items()}.get(text)
    if special is not None:
        return struct.pack(">HhHH", 0, 0, special, 0 if special == _NAN else 0x20)
    sign = _NEGATIVE if text.startswith("-") else 0
    whole, _, fraction = text.lstrip("-").partition(".")
    whole = whole.zfill(-(-len(whole) // 4) * 4)
    padded = whole + fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    words = [int(padded[start : start + 4]) for start in range(0, len(padded), 4)]
    weight = len(whole) // 4 - 1
    while words and words[0] == 0:
        words.pop(0)
        weight -= 1
    while words and words[-1] == 0:
        words.pop()
    if not words:
        sign = weight = 0
    return struct.pack(f">HhHH{len(words)}H", len(words), weight, sign, len(fraction), *words)


def _decimal(modifier: int) -> pa.DataType | None:
    parts = typmod.decimal_parts(modifier)
    return None if parts is None else pa.decimal128(*parts)


TYPES = {
    registry.NUMERIC: BaseType(
        read=lambda strings, modifier, _settings: numeric.read_numeric(strings, modifier),
        write=lambda values, _settings: numeric.write_numeric(values),
        receive=lambda wire, modifier: read(wire.data, wire.starts, wire.sizes, wire.mask, modifier),
        send=lambda values, _encoding: write(values),
        modified=_decimal,
        key=functools.lru_cache(maxsize=64)(numeric.numeric_key),
        one_text=False,
        hashing=Hashing.NUMERIC,
    )
}
