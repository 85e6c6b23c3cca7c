"""Range and multirange operators and functions on single values in text form (manual, 9.20).

Called by `implementation.range_type` for each row. Both kinds of value are read into a `Spans`: a tuple of spans in ascending order that
neither overlap nor adjoin. An empty range has no span, any other range has one. A span lies between two *cuts*. A cut is a position in the
order of the subtype, just before or just after a value, so the brackets need no rule of their own:

    bound       cut                     bound      cut
    [5  or  5)  just before 5           (5  or 5]  just after 5
    (,          before every value      ,)         after every value

Stored ranges of a discrete subtype are canonical, `[a,b)`, so comparing their cuts is exact as well. If two bounds are equal but
have different texts (1.0 and 1.00), each function takes the text that PostgreSQL's function of the same name takes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import order, registry, text_cache
from headgate.types.base import multirange, range_type
from headgate.types.base.range_type import Bounds
from headgate.types.text import array
from headgate.types.text_column import PLAIN

Place = tuple[int, bytes, bool]
"""(-1 before every value, 1 after every value, else 0; the value's key; whether the cut is after that value)."""
_FLAGS = {"[]": (True, True), "[)": (True, False), "(]": (False, True), "()": (False, False)}
_QUOTED = re.compile(r'[\s,()\[\]"\\]')


class Cut(NamedTuple):
    """A position in the order of a subtype, and the text of its bound. The text is empty for an infinite bound."""

    place: Place
    text: str

    @property
    def is_infinite(self) -> bool:
        return self.place[0] != 0

    @property
    def is_after(self) -> bool:
        """Whether the cut is just after the value of its bound."""
        return self.place[2]


class Span(NamedTuple):
    """All values between two cuts."""

    lower: Cut
    upper: Cut


Spans = tuple[Span, ...]
_LOWEST, _HIGHEST = Cut((-1, b"", False), ""), Cut((1, b"", False), "")
_place = attrgetter("place")


def spans(oid: int, value: str) -> Spans:
    """Return the spans of a range or multirange in normal text form."""
    return _spans(value, oid)


@text_cache.cached(1024)
def _spans(value: str, oid: int) -> Spans:
    subtype = registry.SUBTYPES.get(oid)
    if subtype is not None:
        nonempty = _span(subtype, value)
        return () if nonempty is None else (nonempty,)
    subtype = registry.SUBTYPES[registry.RANGES[oid]]
    return tuple(span for text in multirange.split(value) if (span := _span(subtype, text)) is not None)


def _span(subtype: int, text: str) -> Span | None:
    parts = range_type.split(text)
    if parts is None:
        return None
    opening, lower, upper, closing = parts
    key = order.remembered(subtype)
    return Span(
        _LOWEST if lower is None else Cut((0, key(lower), opening == "("), lower),
        _HIGHEST if upper is None else Cut((0, key(upper), closing == "]"), upper),
    )


def printed(oid: int, value: Spans) -> str:
    texts = [_print_span(span) for span in value]
    if oid in registry.SUBTYPES:
        return texts[0] if texts else "empty"
    return "{" + ",".join(texts) + "}"


def _print_span(span: Span) -> str:
    lower, upper = span
    opening = "(" if lower.is_infinite or lower.is_after else "["
    closing = "]" if upper.is_after and not upper.is_infinite else ")"
    return f"{opening}{_quote_bound(lower.text)},{_quote_bound(upper.text)}{closing}"


def _quote_bound(text: str) -> str:
    return f'"{text}"' if _QUOTED.search(text) else text


# ---- constructors --------------------------------------------------------------------------------------------------


def constructed(oid: int, lower: pa.StringArray, upper: pa.StringArray, flags: pa.StringArray | None = None) -> pa.StringArray:
    """Return a column of ranges from columns of bounds (NULL: infinite) and of flags. 22000, 42601."""
    kind = range_type.RANGES[oid]
    inclusive = [(True, False)] * len(lower) if flags is None else [_inclusive(text) for text in flags.to_pylist()]
    low, high = (kind.subtype.read(texts, -1, PLAIN) for texts in (lower, upper))
    return kind.printed(kind.normal(Bounds.of(low, high, inclusive)), PLAIN)


def _inclusive(flags: str | None) -> tuple[bool, bool]:
    if flags is None:
        raise PostgresError("22000", "range constructor flags argument must not be null")
    if flags not in _FLAGS:
        raise PostgresError("42601", "invalid range bound flags", hint='Valid values are "[]", "[)", "(]", and "()".')
    return _FLAGS[flags]


def empty_multirange() -> str:
    return "{}"


def multirange_of(oid: int, value: str) -> str:
    """Return the multirange, of type `oid`, of one range."""
    return printed(oid, spans(registry.RANGES[oid], value))


def multirange_of_array(oid: int, value: str) -> str:
    """Return the multirange, of type `oid`, of an array of ranges. 21000 for several dimensions, 22004 for a NULL element."""
    shape, items = array.parts(value)
    if len(shape.lengths) > 1:
        raise PostgresError("21000", "multiranges cannot be constructed from multidimensional arrays")
    if None in items:
        raise PostgresError("22004", "multirange values cannot contain null members")
    return printed(oid, _merge([span for item in items if item is not None for span in spans(registry.RANGES[oid], item)]))


# ---- aggregates ------------------------------------------------------------------------------------------------------


def range_agg(oid: int, result: int, items: Sequence[str | None]) -> str | None:
    """Return the multirange, of type `result`, of the ranges or multiranges of a group. None if all of them are NULL."""
    present = [spans(oid, item) for item in items if item is not None]
    return printed(result, _merge([span for span_list in present for span in span_list])) if present else None


def range_intersect_agg(oid: int, result: int, items: Sequence[str | None]) -> str | None:
    """Return the intersection of the values of a group. None if all of them are NULL."""
    present = [spans(oid, item) for item in items if item is not None]
    return printed(result, functools.reduce(intersection, present)) if present else None


# ---- parts ---------------------------------------------------------------------------------------------------------


def lower(oid: int, value: str) -> str | None:
    """Return the text of the lower bound. None if it is infinite or the value is empty."""
    span_list = spans(oid, value)
    return span_list[0].lower.text or None if span_list else None


def upper(oid: int, value: str) -> str | None:
    """Return the text of the upper bound. None if it is infinite or the value is empty."""
    span_list = spans(oid, value)
    return span_list[-1].upper.text or None if span_list else None


def is_empty(oid: int, value: str) -> bool:
    """Return whether the value has no element."""
    return not spans(oid, value)


def is_lower_inclusive(oid: int, value: str) -> bool:
    """Return whether the lower bound is finite and belongs to the value."""
    parts = spans(oid, value)
    return bool(parts) and not parts[0].lower.is_infinite and not parts[0].lower.is_after


def is_upper_inclusive(oid: int, value: str) -> bool:
    """Return whether the upper bound is finite and belongs to the value."""
    parts = spans(oid, value)
    return bool(parts) and not parts[-1].upper.is_infinite and parts[-1].upper.is_after


def is_lower_infinite(oid: int, value: str) -> bool:
    parts = spans(oid, value)
    return bool(parts) and parts[0].lower.is_infinite


def is_upper_infinite(oid: int, value: str) -> bool:
    parts = spans(oid, value)
    return bool(parts) and parts[-1].upper.is_infinite


# ---- relations: a value that is empty is in none of them but containment ------------------------------------------------


def contains(left: Spans, right: Spans) -> bool:
    """Return whether each value of `right` is in `left`. An empty `right` is contained in everything."""
    return all(any(one.lower.place <= other.lower.place and other.upper.place <= one.upper.place for one in left) for other in right)


def contains_element(oid: int, subtype: int, value: str, element: str) -> bool:
    key = order.remembered(subtype)(element)
    return any(span.lower.place <= (0, key, False) and (0, key, True) <= span.upper.place for span in spans(oid, value))


def overlap(left: Spans, right: Spans) -> bool:
    """Return whether the values have an element in common."""
    return any(_overlap(span, other_span) for span in left for other_span in right)


def _overlap(left: Span, right: Span) -> bool:
    return left.lower.place < right.upper.place and right.lower.place < left.upper.place


def is_before(left: Spans, right: Spans) -> bool:
    """Return whether all of `left` is below all of `right`."""
    return bool(left and right) and left[-1].upper.place <= right[0].lower.place


def does_not_extend_right(left: Spans, right: Spans) -> bool:
    """Return whether `left` has no element above `right`."""
    return bool(left and right) and left[-1].upper.place <= right[-1].upper.place


def does_not_extend_left(left: Spans, right: Spans) -> bool:
    """Return whether `left` has no element below `right`."""
    return bool(left and right) and left[0].lower.place >= right[0].lower.place


def is_adjacent(left: Spans, right: Spans) -> bool:
    """Return whether one value ends at the cut at which the other begins."""
    if not left or not right:
        return False
    return left[-1].upper.place == right[0].lower.place or right[-1].upper.place == left[0].lower.place


# ---- results that are ranges -----------------------------------------------------------------------------------------


def hull(left: Spans, right: Spans = ()) -> Spans:
    """Return the smallest range that contains both values."""
    return _hull([*left, *right])


def _hull(parts: Sequence[Span]) -> Spans:
    if not parts:
        return ()
    # of equal bounds PostgreSQL takes the last one
    return (Span(min(reversed([part.lower for part in parts]), key=_place), max(reversed([part.upper for part in parts]), key=_place)),)


def range_union(left: Spans, right: Spans) -> Spans:
    """Return the union of two ranges. 22000 if it has a gap."""
    if left and right and not overlap(left, right) and not is_adjacent(left, right):
        raise PostgresError("22000", "result of range union would not be contiguous")
    return hull(left, right)


def range_minus(left: Spans, right: Spans) -> Spans:
    """Return the elements of one range that are not in another. 22000 if there is a gap between them."""
    rest = minus(left, right)
    if len(rest) > 1:
        raise PostgresError("22000", "result of range difference would not be contiguous")
    return rest


def union(left: Spans, right: Spans) -> Spans:
    return _merge([*left, *right])


def _merge(parts: Sequence[Span]) -> Spans:
    done: list[Span] = []
    for span in sorted(parts, key=lambda part: (part.lower.place, part.upper.place)):
        if done and span.lower.place <= done[-1].upper.place:
            done[-1:] = _hull([done[-1], span])
        else:
            done.append(span)
    return tuple(done)


def intersection(left: Spans, right: Spans) -> Spans:
    return tuple(
        Span(max(span.lower, other_span.lower, key=_place), min(span.upper, other_span.upper, key=_place))
        for span in left
        for other_span in right
        if _overlap(span, other_span)
    )


def minus(left: Spans, right: Spans) -> Spans:
    """Return the elements of `left` that are not in `right`."""
    rest: list[Span] = []
    for span in left:
        begin = span.lower
        for removed_span in right:
            if _overlap(Span(begin, span.upper), removed_span):
                if begin.place < removed_span.lower.place:
                    rest.append(Span(begin, removed_span.lower))
                begin = removed_span.upper
                if begin.place >= span.upper.place:
                    break
        if begin.place < span.upper.place:
            rest.append(Span(begin, span.upper))
    return tuple(rest)
