"""Finds the texts of a column that are already in PostgreSQL's normal form, without a Python loop over values.

Called by the modules of types that are stored as text (`network`, `array`, `json_text`, `interval`). They keep such texts and pass the
others to their input functions. Normal form is what the output functions print. Invariant: the input function accepts a text that is
reported as normal here, and the output function prints it unchanged. A text that is not reported may still be normal.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import interruption
from headgate.errors import PostgresError
from headgate.types import buffers, text_column
from headgate.types.buffers import Bytes, Mask, Numbers

_QUOTE, _BACKSLASH, _COLON, _CLOSE = b'"\\:}'
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = r"[1-9a-f][0-9a-f]{0,3}"
MAC = r"\A[0-9a-f]{2}(?::[0-9a-f]{2}){5}\z"
MAC8 = r"\A[0-9a-f]{2}(?::[0-9a-f]{2}){7}\z"
LSN = r"\A(?:0|[1-9A-F][0-9A-F]{0,7})/(?:0|[1-9A-F][0-9A-F]{0,7})\z"
_ESCAPE = r'\\(?:["\\bfnrt]|u00(?:0[1-7bef]|1[0-9a-f]))'
"""The escapes that jsonb prints."""
_NUMBER = r"\A(?:-?[1-9][0-9]{0,99}(?:\.[0-9]{1,100})?|0(?:\.[0-9]{1,100})?|-0\.0{0,99}[1-9][0-9]{0,99})\z"
_LEAST, _MOST = np.frombuffer(b"-9", np.uint8)
"""The characters of numbers, and the slash, lie between them."""
_EXPONENT = np.isin(np.arange(256), np.frombuffer(b"eE+", np.uint8))
_PIECE = 4096
LONG = 1 << 20
"""The length in bytes from which a text takes so long that other threads must run and a cancel must be noticed meanwhile."""
_FIRST = np.isin(np.arange(256), np.frombuffer(b'{["', np.uint8))


def inet(strings: pa.StringArray) -> pa.BooleanArray:
    """Match IPv4 addresses, and IPv6 addresses without `::` or without a further group of 0 beside it."""
    v4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}(?:/(?:[12]?[0-9]|3[01]))?"
    bits = r"(?:/(?:[1-9]?[0-9]|1[01][0-9]|12[0-7]))?"
    sides = [rf"{_groups(left)}::{_groups(right)}" for left in range(1, 7) for right in range(7 - left)]
    return text_column.matches(strings, rf"\A(?:{v4}|(?:{_groups(8)}|{'|'.join(sides)}|::1?){bits})\z")


def cidr(strings: pa.StringArray) -> pa.BooleanArray:
    """Match IPv4 networks, and IPv6 networks that end in `::` and fix whole groups before it."""
    v6 = [rf"{_groups(left)}::/(?:{_numbers(16 * left, 128)})" for left in range(1, 7)]
    return text_column.matches(strings, rf"\A(?:{_networks()}|{'|'.join(v6)})\z")


def _groups(count: int) -> str:
    return ":".join([_GROUP] * count)


def _numbers(first: int, last: int, step: int = 1) -> str:
    return "|".join(map(str, range(first, last + 1, step)))


@functools.cache
def _networks() -> str:
    """Return the pattern of IPv4 networks in which the bits after the mask are 0."""
    patterns = []
    for bits in range(33):
        whole, part = divmod(bits, 8)
        octets = [_OCTET] * whole + ([f"(?:{_numbers(0, 255, 1 << 8 - part)})"] if part else [])
        patterns.append(r"\.".join(octets + ["0"] * (4 - len(octets))) + f"/{bits}")
    return "|".join(patterns)


def interval(strings: pa.StringArray) -> pa.BooleanArray:
    """Match intervals in style postgres whose fields are in range regardless of the others."""
    shaped = text_column.matches(strings, _interval_pattern())
    no_time = pc.and_(pc.ends_with(strings, "00:00:00"), pc.not_equal(strings, "00:00:00"))
    return pc.and_not(shaped, no_time)


@functools.cache
def _interval_pattern() -> str:
    """Build the pattern. After a negative field a positive one has a `+`; years and months have the same sign."""
    time = r"(?:[0-9]{2}|[1-9][0-9]{2,7}):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{0,5}[1-9])?"

    def field(index: int, negative: bool, years: int) -> str:
        plus = r"\+" if negative else ""
        if index == 3:
            return f"(?:{plus}{time}|-{time})"
        unit, most = (("year", "[1-9][0-9]{1,6}"), ("mon", "1[01]"), ("day", "[1-9][0-9]{1,7}"))[index]
        alternatives = [field(index + 1, negative, years)]
        for sign, start in ((1, rf"{plus}(?:1 {unit}|(?:[2-9]|{most}) {unit}s)"), (-1, rf"-(?:[1-9]|{most}) {unit}s")):
            if index != 1 or years in (0, sign):
                rest = field(index + 1, sign < 0, sign if index == 0 else 0)
                alternatives.append(rf"{start}(?: {rest})?")
        return f"(?:{'|'.join(alternatives)})"

    return rf"\A{field(0, False, 0)}\z"


def in_pieces(judge: Callable[[pa.StringArray], Mask], strings: pa.StringArray) -> Mask:
    """Apply `judge` to pieces that fit into the processor's cache."""
    masks = [np.zeros(0, np.bool_)]  # for no strings
    for start in range(0, len(strings), _PIECE):
        interruption.check()
        masks.append(judge(strings.slice(start, _PIECE)))
    return np.concatenate(masks)


def documents(strings: pa.StringArray, check: Callable[[str], str]) -> Mask:
    """Return which JSON texts `check` returns unchanged.

    Values are checked by their shapes: a shape is the text with all strings except keys emptied and all numbers in jsonb's own form
    replaced by 0. A column has few different shapes, and a text is in normal form if its shape is. Texts with other escapes or numbers, and
    those longer than `LONG`, are reported as not normal.
    """
    long = pc.greater(pc.binary_length(strings), LONG)
    if pc.any(long).as_py():
        strings = pc.if_else(long, pa.scalar("", pa.string()), strings)
    data, offsets = buffers.packed(strings)
    usual = np.diff(offsets) >= 2
    usual[usual] = _FIRST[data[offsets[:-1][usual]]]
    if len(data) and int(data.min()) < 0x20:
        usual &= ~_mask(text_column.matches(strings, r"[\x00-\x1f]"))
    if (data == _BACKSLASH).any():
        strings = pc.replace_substring_regex(strings, _ESCAPE, "\x01")
        usual &= ~_mask(text_column.matches(strings, r"\\"))
    quotes = np.diff(_count_quotes(*buffers.packed(strings)))
    usual &= quotes % 2 == 0
    if not usual.all():
        strings = pc.if_else(pa.array(usual), strings, pa.scalar("", pa.string()))
    shapes, odd = _shapes(*buffers.packed(strings))
    usual[odd] = False
    coded = shapes.dictionary_encode()
    known = np.array([_is_unchanged(text, check) for text in coded.dictionary.to_pylist()], np.bool_)
    return usual & known[np.asarray(coded.indices)] if len(known) else usual


def _is_unchanged(text: str, check: Callable[[str], str]) -> bool:
    try:
        return check(text) == text
    except PostgresError:
        return False


def _count_quotes(data: Bytes, offsets: Numbers) -> Numbers:
    return np.searchsorted(np.flatnonzero(data == _QUOTE), offsets)


def _shapes(data: Bytes, offsets: Numbers) -> tuple[pa.StringArray, Numbers]:
    """Return the shapes, and which texts have other numbers. Each text starts with a brace or quote and has an even number of quotes."""
    quotes = np.flatnonzero(data == _QUOTE)
    opened, closed = quotes[0::2], quotes[1::2]
    emptied = data[np.minimum(closed + 1, len(data) - 1)] != _COLON
    digits = np.zeros(len(data) + 2, np.bool_)
    np.less_equal(data - _LEAST, _MOST - _LEAST, out=digits[1:-1])
    turns = np.flatnonzero(digits[1:] != digits[:-1])
    outside = np.searchsorted(quotes, turns[0::2]) % 2 == 0
    starts, ends = turns[0::2][outside], turns[1::2][outside]
    numbers = buffers.strings(*buffers.gather(data, starts, ends - starts), None, pa.string())
    odd = starts[~_mask(text_column.matches(numbers, _NUMBER)) | _EXPONENT[data[starts - 1]]]
    shape = data.copy()
    shape[starts] = ord("0")
    cut = np.concatenate([starts, opened[emptied]]) + 1
    order = np.argsort(cut, kind="stable")
    cut, resumed = cut[order], np.concatenate([ends, closed[emptied]])[order]
    begins, stops = np.append(0, resumed), np.append(cut, len(data))
    shape_bytes, _ = buffers.gather(shape, begins, stops - begins)
    removed = buffers.offsets_of(resumed - cut)[np.searchsorted(cut, offsets)]
    return buffers.strings(shape_bytes, offsets - removed, None, pa.string()), np.searchsorted(offsets, odd, "right") - 1


def arrays(strings: pa.StringArray, delimiter: str, convert: Callable[[pa.StringArray], pa.StringArray]) -> Mask:
    """Return which arrays are one-dimensional, without escapes, with elements as `convert` prints them, quoted if necessary."""
    mark = re.escape(delimiter)
    element = rf'(?:[^{{}}"\\ \t-\r{mark}]+|"[^"\\]*")'
    usual = _mask(text_column.matches(strings, rf"\A\{{(?:{element}(?:{mark}{element})*)?\}}\z"))
    data, offsets = buffers.packed(strings if usual.all() else pc.if_else(pa.array(usual), strings, pa.scalar("{}", pa.string())))
    interruption.check()
    items, quoted, starts = _elements(data, offsets, ord(delimiter))
    interruption.check()
    if not len(items):
        return usual
    null = np.zeros(len(items), np.bool_)
    words = np.flatnonzero(~quoted & _mask(pc.equal(pc.binary_length(items), 4)))
    candidates = items.take(pa.array(words))
    null[words] = _mask(pc.equal(candidates, "NULL"))
    needed = null.copy()
    needed[words] = _mask(pc.equal(pc.ascii_upper(candidates), "NULL"))
    must = text_column.matches(items.filter(pa.array(quoted)), rf"\A\z|\A(?i:null)\z|[{{}} \t-\r{mark}]")
    is_normal = needed == null
    is_normal[quoted] = _mask(must)
    values = pc.if_else(pa.array(null), pa.scalar(None, pa.string()), items) if null.any() else items
    try:
        is_normal &= _mask(pc.fill_null(pc.equal(convert(values), values), True))
    except PostgresError:
        return np.zeros(len(strings), np.bool_)
    usual[np.searchsorted(offsets, starts[~is_normal], "right") - 1] = False
    return usual


def _elements(data: Bytes, offsets: Numbers, delimiter: int) -> tuple[pa.StringArray, Mask, Numbers]:
    """Return the elements of arrays without their quotes, which of them are quoted, and their starts."""
    borders = data == delimiter
    quote = data == _QUOTE
    if quote.any():
        borders &= np.bitwise_xor.accumulate(quote) == 0
    borders[offsets[:-1]] = borders[offsets[1:] - 1] = True
    positions = np.flatnonzero(borders)
    starts, sizes = positions[:-1] + 1, np.diff(positions) - 1
    is_element = (sizes > 0) & (data[positions[:-1]] != _CLOSE)
    starts, sizes = starts[is_element], sizes[is_element]
    quoted = quote[starts]
    items = buffers.strings(*buffers.gather(data, starts + quoted, sizes - 2 * quoted), None, pa.string())
    return items, quoted, starts


def _mask(values: pa.BooleanArray) -> Mask:
    """Convert to a mask; NULL is False."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
