"""bool, int2, int4, int8, oid, xid, cid, xid8, float4 and float8: boolin … float8send on whole columns.

`TYPES` describes them. Arrow's casts, which round correctly, read the usual values. Texts that they accept and PostgreSQL does not
(``0x1f`` as an integer, ``1e400`` as infinity) are found afterwards. Output is the shortest decimal that reads back, in PostgreSQL's
layout: with an exponent below 1e-4 and from 1e15 (float8) or 1e6 (float4) on.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import replace
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import buffers, registry, text_column
from headgate.types.base.base_type import BaseType, Hashing, Key, Reader, Receiver, Sender, Wire, Writer, fixed_rows, key_of_text, singly
from headgate.types.text_column import TextSettings

_INTEGERS = {
    registry.INT2: (pa.int16(), "smallint", 4),
    registry.INT4: (pa.int32(), "integer", 9),
    registry.INT8: (pa.int64(), "bigint", 18),
}
_FLOATS = {registry.FLOAT4: (pa.float32(), "real"), registry.FLOAT8: (pa.float64(), "double precision")}
_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan(?:\([0-9A-Za-z_]*\))?))[ \t\n\v\f\r]*\Z",
    re.IGNORECASE,
)
_UNSIGNED = re.compile(r"[ \t\n\v\f\r]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)(.*)\Z", re.DOTALL)


def read_bool(strings: pa.StringArray) -> pa.BooleanArray:
    """Read booleans as boolin: t, true, yes, on, 1 and their unique prefixes, in any case, with white space around."""
    short = pc.is_in(strings, value_set=pa.array(["t", "f", "true", "false", "1", "0"]))
    return text_column.read(strings, pc.if_else(pc.is_valid(strings), short, None), _bools, bool_of)


def _bools(strings: pa.StringArray) -> pa.BooleanArray:
    true = pc.is_in(strings, value_set=pa.array(["t", "true", "1"]))
    return pc.if_else(pc.is_valid(strings), true, pa.scalar(None, pa.bool_()))


def bool_of(text: str) -> bool:
    """Read one boolean. Raise 22P02."""
    word = text.strip(text_column.SPACE).lower()
    if word and ("true".startswith(word) or "yes".startswith(word) or word in ("on", "1")):
        return True
    if word and ("false".startswith(word) or "no".startswith(word) or word in ("of", "off", "0")):
        return False
    raise text_column.invalid_syntax("boolean", text)


def write_bool(values: pa.BooleanArray) -> pa.StringArray:
    """Print booleans as boolout: t or f."""
    return pc.if_else(values, "t", "f")


def read_integer(strings: pa.StringArray, oid: int) -> pa.Array:
    """Read integers as int2in, int4in or int8in. Raise 22P02 if a text is not an integer, 22003 if it does not fit."""
    target, name, digits = _INTEGERS[oid]
    result = text_column.attempt(strings, target)
    if result is not None and not _has_hex(strings):
        return result
    usual = text_column.matches(strings, rf"\A-?[0-9]{{1,{digits}}}\z")
    return text_column.read(strings, usual, lambda texts: pc.cast(texts, target), lambda text: integer_of(text, name, target.bit_width))


def _has_hex(strings: pa.StringArray) -> bool:
    """Return whether an x occurs anywhere in the buffer: Arrow reads 0x1f, PostgreSQL 15 does not."""
    data = strings.buffers()[2]
    if data is None:
        return False
    view = np.frombuffer(data, np.uint8)
    return bool(((view | 0x20) == ord("x")).any())


def integer_of(text: str, name: str, bits: int) -> int:
    """Read one integer of a type of `bits` bits."""
    match = _INTEGER.match(text)
    if not match:
        raise text_column.invalid_syntax(name, text)
    limit = 1 << bits - 1
    digits = match[1].lstrip("+-").lstrip("0")
    value = int(match[1]) if len(digits) <= 20 else 1 << 80
    if not -limit <= value < limit:
        raise PostgresError("22003", f'value "{text}" is out of range for type {name}')
    if match[2].strip(text_column.SPACE):
        raise text_column.invalid_syntax(name, text)
    return value


def read_oid(strings: pa.StringArray) -> pa.Int64Array:
    """Read OIDs as oidin: 32 bits unsigned. A negative number wraps around, as in strtoul."""
    usual = text_column.matches(strings, r"\A[0-9]{1,9}\z")
    return text_column.read(strings, usual, lambda texts: pc.cast(texts, pa.int64()), oid_of)


def oid_of(text: str) -> int:
    match = _INTEGER.match(text)
    if not match:
        raise text_column.invalid_syntax("oid", text)
    value = int(match[1]) if len(match[1]) <= 40 else 1 << 80
    beyond = PostgresError("22003", f'value "{text}" is out of range for type oid')
    if abs(value) >= 1 << 64:  # strtoul fails before the rest of the text is checked
        raise beyond
    if match[2].strip(text_column.SPACE):
        raise text_column.invalid_syntax("oid", text)
    if not -(1 << 31) <= value < 1 << 32:
        raise beyond
    return value & 0xFFFFFFFF


def read_unsigned(strings: pa.StringArray) -> pa.Int64Array:
    """Read values as xidin or cidin: the low 32 bits of strtoul's result, which is 0 for a text without a number."""
    usual = text_column.matches(strings, r"\A(0|[1-9][0-9]{0,8})\z")
    return text_column.read(strings, usual, lambda texts: pc.cast(texts, pa.int64()), lambda text: unsigned_of(text) & 0xFFFFFFFF)


def unsigned_of(text: str) -> int:
    """Convert as C's strtoul(text, NULL, 0): 64 bits. Text after the number is ignored; a number that is too large is the maximum."""
    match = _UNSIGNED.match(text)
    if match is None:
        return 0
    sign, hexadecimal, octal, plain = match.groups()
    value = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(plain[:40])
    if value >= 1 << 64:
        return (1 << 64) - 1
    return -value % (1 << 64) if sign == "-" else value


def read_xid8(strings: pa.StringArray) -> pa.StringArray:
    """Read values as xid8in."""
    usual = text_column.matches(strings, r"\A(0|[1-9][0-9]{0,18})\z")
    return text_column.read_normal(strings, usual, lambda text: str(unsigned_of(text)))


def read_float(strings: pa.StringArray, oid: int) -> pa.Array:
    """Read floats as float4in or float8in. A value that overflows, or underflows to zero, is 22003, never infinity or 0."""
    target, _ = _FLOATS[oid]
    result = text_column.attempt(strings, target)
    if result is None:
        usual = text_column.matches(strings, r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z")
    else:
        usual = pc.is_valid(strings)
    suspect = pc.or_(pc.is_inf(result), pc.equal(result, pa.scalar(0, target))) if result is not None else usual
    suspect = pc.and_(pc.fill_null(suspect, False), text_column.matches(strings, r"\A[^eE]*[1-9].*[eE][+-]?[0-9]{2}|[0-9]{37}"))
    usual = pc.and_not(usual, pc.fill_null(suspect, False))
    return text_column.read(strings, usual, lambda texts: pc.cast(texts, target), lambda text: float_of(text, oid))


def float_of(text: str, oid: int) -> float:
    """Read one float4 or float8."""
    target, name = _FLOATS[oid]
    match = _FLOAT.match(text)
    if not match:
        raise text_column.invalid_syntax(name, text)
    number = match[1].lower()
    if "x" in number:
        value = _from_hexadecimal(number)
    elif "n" in number:
        return float("nan") if "nan" in number else float(number)
    else:
        value = float(number) if oid == registry.FLOAT8 else pc.cast(pa.array([number]), target)[0].as_py()
    if math.isinf(value) or (value == 0 and re.search("[1-9a-f]", re.split("[ep]", number.replace("0x", ""))[0])):
        raise PostgresError("22003", f'"{match[1]}" is out of range for type {name}')
    return float(value)


def _from_hexadecimal(number: str) -> float:
    try:
        return float.fromhex(number)
    except OverflowError:
        return math.inf


def write_integer(values: pa.Array) -> pa.StringArray:
    """Print integers as int2out … oidout."""
    return pc.cast(values, pa.string())


def write_float(values: pa.Array, oid: int, extra_digits: int) -> pa.StringArray:
    """Print floats as float4out or float8out: the shortest exact text for `extra_digits` > 0, else rounded to at most 6 or 15 digits."""
    short = oid == registry.FLOAT4
    if extra_digits <= 0:
        return pa.array(
            [None if value is None else _rounded_text(value, extra_digits, short=short) for value in values.to_pylist()], pa.string()
        )
    size = pc.abs(values)
    odd = pc.or_(pc.less(size, 1e-4), pc.invert(pc.less(size, 1e6 if short else 1e14)))
    odd = pc.and_(odd, pc.not_equal(values, pa.scalar(0, values.type)))
    shown = pc.cast(values, pa.string())
    if not short:  # Arrow prints exponents from 1e10 on
        large = pc.fill_null(pc.and_not(pc.greater_equal(size, 1e10), odd), False)
        whole = pc.and_(large, pc.equal(pc.trunc(values), values))
        if pc.any(whole, min_count=0).as_py():
            shown = pc.if_else(whole, pc.cast(pc.cast(pc.if_else(whole, values, 0.0), pa.int64()), pa.string()), shown)
        odd = pc.or_(odd, pc.and_not(large, whole))
    return text_column.write(values, odd, shown, lambda value: shortest(value.as_py(), short=short))


def double_text(value: float, extra_digits: int) -> str:
    """Print one value as float8out."""
    if extra_digits > 0 and 1e-4 <= abs(value) < 1e15:  # here Python's text is PostgreSQL's, except for a fraction of .0
        return repr(value).removesuffix(".0")
    return shortest(value, short=False) if extra_digits > 0 else _rounded_text(value, extra_digits, short=False)


def _rounded_text(value: float, extra_digits: int, *, short: bool) -> str:
    digits = max((6 if short else 15) + extra_digits, 1)
    return _layout(f"{value:.{digits}g}")


def shortest(value: float, *, short: bool) -> str:
    """Print the shortest decimal that reads back to `value`, as PostgreSQL does.

    PostgreSQL's Ryu does not use a decimal that lies exactly between two floats, because readers need not round to even. Python and Arrow
    do use it. Such values exist only from 2^53 (float4: 2^24) on.
    """
    if not math.isfinite(value):
        return _layout(str(value))
    kind: type[np.floating] = np.float32 if short else np.float64
    digits = np.format_float_scientific(kind(value), unique=True, trim="-")
    if abs(value) >= (1 << 24 if short else 1 << 53):
        digits = _inside(digits, kind(value), kind)
    mantissa, _, exponent = digits.partition("e")
    power = int(exponent)
    if -4 <= power < (6 if short else 15):
        return f"{Decimal(digits):f}"
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"


def _inside(digits: str, value: np.floating, kind: type[np.floating]) -> str:
    """Lengthen `digits` until they are strictly closer to `value` than to its neighbours."""
    exact = Decimal(float(value))
    length = len(digits.partition("e")[0].replace("-", "").replace(".", ""))
    while True:
        shown = Decimal(digits)
        with np.errstate(over="ignore"):
            neighbour = np.nextafter(value, kind("inf") if shown > exact else kind("-inf"))
        if np.isinf(neighbour) or shown == exact or abs(shown - exact) < abs(Decimal(float(neighbour)) - shown):
            return digits
        digits = f"{exact:.{length}e}"
        length += 1


def _layout(text: str) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def received(code: str, stored: pa.DataType) -> Receiver:
    """Return the receive function of a type whose binary form is a number, with NumPy's name of that form."""
    kind = np.dtype(code)
    plain = pa.uint8() if stored == pa.bool_() else stored

    def receive(wire: Wire, _modifier: int) -> pa.Array:
        values = wire.rows(kind.itemsize).view(kind).ravel().astype(plain.to_pandas_dtype())
        array = numbers(values, wire.mask, plain)
        return pc.not_equal(array, pa.scalar(0, pa.uint8())) if stored == pa.bool_() else array

    return receive


def numbers(values: npt.NDArray[np.generic], mask: buffers.Mask | None, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array over a NumPy array. Values are NULL where `mask` is false."""
    return pa.Array.from_buffers(kind, len(values), [buffers.validity(mask), pa.py_buffer(np.ascontiguousarray(values))])


def sent(code: str) -> Sender:
    def send(values: pa.Array, _encoding: Encoding) -> pa.LargeBinaryArray:
        mask = buffers.valid(values)
        plain = values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values
        held = np.asarray((plain.fill_null(0) if mask is not None else plain).to_numpy(zero_copy_only=False))
        return fixed_rows(bytes_of(held, code), mask)

    return send


def bytes_of(values: npt.NDArray[np.generic], code: str) -> buffers.Bytes:
    """Return the binary form of numbers, one row each."""
    kind = np.dtype(code)
    return values.astype(kind).view(np.uint8).reshape(len(values), kind.itemsize)


def _integer_key(text: str) -> bytes:
    return struct.pack(">Q", int(text) + (1 << 63))


def double_key(value: float) -> bytes:
    """Return the key of a double. -0 equals 0; NaN equals itself and is the greatest."""
    if math.isnan(value):
        return b"\xff" * 8
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    return struct.pack(">Q", bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63))


def _key_of_single(text: str) -> bytes:
    value = float(text)
    return double_key(value if math.isinf(value) else struct.unpack(">f", struct.pack(">f", value))[0])


def _number(
    code: str, stored: pa.DataType, read: Reader, write: Writer, key: Key, hashing: Hashing | None, *, in_order: bool = True
) -> BaseType:
    """Describe a type whose binary form is a number."""
    return BaseType(
        read=read,
        write=write,
        receive=received(code, stored),
        send=sent(code),
        stored=stored,
        key=key,
        in_order=in_order,
        hashing=hashing,
        code=code,
    )


def _integer(oid: int, code: str, hashing: Hashing) -> BaseType:
    stored, _, _ = _INTEGERS[oid]
    return _number(code, stored, lambda strings, _typmod, _settings: read_integer(strings, oid), _write_integer, _integer_key, hashing)


def _unsigned_type(read: Reader, hashing: Hashing | None = None) -> BaseType:
    """Describe oid, xid or cid. xid and cid have no order in PostgreSQL, but equality, which distinguishes rows."""
    return _number(">u4", pa.int64(), read, _write_integer, _integer_key, hashing, in_order=hashing is not None)


def _write_integer(values: pa.Array, _settings: TextSettings) -> pa.StringArray:
    return write_integer(values)


def _floating_point(oid: int, code: str, key: Key) -> BaseType:
    stored, _ = _FLOATS[oid]
    plain = _number(
        code,
        stored,
        lambda strings, _typmod, _settings: read_float(strings, oid),
        lambda values, settings: write_float(values, oid, settings.extra_float_digits),
        key,
        Hashing.DOUBLE,
    )
    return replace(plain, restyled=_rounds, one_text=False)


def _rounds(settings: TextSettings) -> bool:
    return settings.extra_float_digits <= 0


TYPES = {
    registry.BOOL: _number(
        "u1",
        pa.bool_(),
        lambda strings, _typmod, _settings: read_bool(strings),
        lambda values, _settings: write_bool(values),
        key_of_text,
        Hashing.WORD,
    ),
    registry.INT2: _integer(registry.INT2, ">i2", Hashing.WORD),
    registry.INT4: _integer(registry.INT4, ">i4", Hashing.WORD),
    registry.INT8: _integer(registry.INT8, ">i8", Hashing.LONG),
    registry.OID: _unsigned_type(lambda strings, _typmod, _settings: read_oid(strings), Hashing.WORD),
    registry.XID: _unsigned_type(lambda strings, _typmod, _settings: read_unsigned(strings)),
    registry.CID: _unsigned_type(lambda strings, _typmod, _settings: read_unsigned(strings)),
    registry.XID8: replace(
        singly(
            lambda strings, _typmod, _settings: read_xid8(strings),
            lambda raw: str(struct.unpack(">Q", raw)[0]),
            lambda text: struct.pack(">Q", int(text)),
            lambda text: struct.pack(">Q", int(text)),
        ),
        hashing=Hashing.LONG,
    ),
    registry.FLOAT4: _floating_point(registry.FLOAT4, ">f4", _key_of_single),
    registry.FLOAT8: _floating_point(registry.FLOAT8, ">f8", lambda text: double_key(float(text))),
}
