"""Ranges and multiranges: operators, functions and constructors over their text forms (`functions.range`).

Comparisons go by the key of the operands' type, like those of arrays (`implementation.comparison`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression import node as n
from headgate.expression.functions import range as ranges
from headgate.expression.functions.range import Spans
from headgate.expression.implementation.implementation import Implementation, Raises, SparkForm, Table
from headgate.expression.spark.array_element import as_item, plain
from headgate.expression.spark.value import BOOL, TEXT, Value, rep_of
from headgate.expression.spark.vectorised import call, scalar
from headgate.types import registry

_PAIRS = ("range_{}", "range_{}_multirange", "multirange_{}_range", "multirange_{}_multirange")
"""Keys of a relation between two ranges, a range and a multirange, and so on."""


def _silent(form: SparkForm) -> Implementation:
    return Implementation(form, Raises.NEVER)


def _of_value(function: Callable[[int, str], bool]) -> SparkForm:
    """Return a test of one range or multirange, called with its type first."""
    return lambda node, args: call(function, BOOL, args, prefix=(n.operands(node)[0].type.oid,), raises=False)


def _subtype_bound(function: Callable[[int, str], str | None]) -> SparkForm:
    return lambda node, args: call(
        _read_bound, rep_of(node.type.oid), args, prefix=(function, n.operands(node)[0].type.oid, node.type.oid), raises=False
    )


def _read_bound(function: Callable[[int, str], str | None], oid: int, subtype: int, value: str) -> object:
    text = function(oid, value)
    return None if text is None else plain(subtype, text)


def _relation(test: Callable[[Spans, Spans], bool], *, swapped: bool = False) -> SparkForm:
    def build(node: n.Expression, args: Sequence[Value]) -> Value:
        left, right = (operand.type.oid for operand in n.operands(node))
        return call(_is_related, BOOL, args, prefix=(test, swapped, left, right), raises=False)

    return build


def _is_related(test: Callable[[Spans, Spans], bool], swapped: bool, left_oid: int, right_oid: int, left: str, right: str) -> bool:
    left_spans, right_spans = ranges.spans(left_oid, left), ranges.spans(right_oid, right)
    return test(right_spans, left_spans) if swapped else test(left_spans, right_spans)


def _has_element(place: int) -> SparkForm:
    """``range @> element`` and ``element <@ range``; the range is the operand at `place`."""

    def build(node: n.Expression, args: Sequence[Value]) -> Value:
        operands = n.operands(node)
        element = operands[1 - place].type
        prefix = (operands[place].type.oid, element.oid)
        return call(ranges.contains_element, BOOL, [args[place], as_item(args[1 - place], element)], prefix=prefix, raises=False)

    return build


def _combination(function: Callable[[Spans, Spans], Spans], *, raises: bool = False) -> Implementation:
    def build(node: n.Expression, args: Sequence[Value]) -> Value:
        return call(_combine, TEXT, args, prefix=(function, node.type.oid), raises=raises)

    return Implementation(build, Raises.ANY_TIME if raises else Raises.NEVER)


def _combine(function: Callable[[Spans, Spans], Spans], oid: int, left: str, right: str) -> str:
    return ranges.printed(oid, function(ranges.spans(oid, left), ranges.spans(oid, right)))


def _hull_of_multirange(oid: int, value: str) -> str:
    return ranges.printed(oid, ranges.hull(ranges.spans(registry.MULTIRANGES[oid], value)))


def _construct(node: n.Expression, args: Sequence[Value]) -> Value:
    """``int4range(1, 5)`` and ``int4range(1, 5, '[]')``."""
    operands = n.operands(node)
    bounds = [as_item(value, operand.type) for value, operand in zip(args[:2], operands[:2], strict=True)]
    return call(ranges.constructed, TEXT, [*bounds, *args[2:]], prefix=(node.type.oid,), strict=False, whole=True)


def _to_multirange(function: Callable[[int, str], str]) -> SparkForm:
    return lambda node, args: call(function, TEXT, args, prefix=(node.type.oid,))


_RELATIONS: dict[str, Callable[[Spans, Spans], bool]] = {
    "overlaps": ranges.overlap, "before": ranges.is_before, "overleft": ranges.does_not_extend_right,
    "overright": ranges.does_not_extend_left, "adjacent": ranges.is_adjacent,
}  # fmt: skip
IMPLEMENTATIONS: Table = {
    "range_constructor2": _construct,
    "range_constructor3": _construct,
    "multirange_constructor0": scalar(ranges.empty_multirange, TEXT, raises=False),
    "multirange_constructor1": _to_multirange(ranges.multirange_of),
    "multirange_constructor2": _to_multirange(ranges.multirange_of_array),
    **{f"{kind}_{name}": _silent(_subtype_bound(function))
       for kind in ("range", "multirange") for name, function in (("lower", ranges.lower), ("upper", ranges.upper))},
    **{f"{kind}_{name}": _silent(_of_value(function))
       for kind in ("range", "multirange")
       for name, function in (("empty", ranges.is_empty),
                              ("lower_inc", ranges.is_lower_inclusive), ("upper_inc", ranges.is_upper_inclusive),
                              ("lower_inf", ranges.is_lower_infinite), ("upper_inf", ranges.is_upper_infinite))},
    **{pair.format(name): _silent(_relation(test)) for name, test in _RELATIONS.items() for pair in _PAIRS},
    **{pair.format("after"): _silent(_relation(ranges.is_before, swapped=True)) for pair in _PAIRS},
    **{pair.format("contains"): _silent(_relation(ranges.contains)) for pair in _PAIRS},
    **{pair.format("contained_by"): _silent(_relation(ranges.contains, swapped=True)) for pair in _PAIRS},
    **{f"{kind}_contains_elem": _silent(_has_element(0)) for kind in ("range", "multirange")},
    **{f"elem_contained_by_{kind}": _silent(_has_element(1)) for kind in ("range", "multirange")},
    "range_union": _combination(ranges.range_union, raises=True),
    "range_minus": _combination(ranges.range_minus, raises=True),
    "range_merge": _combination(ranges.hull),
    "multirange_union": _combination(ranges.union),
    "multirange_minus": _combination(ranges.minus),
    **{f"{kind}_intersect": _combination(ranges.intersection) for kind in ("range", "multirange")},
    "range_merge_from_multirange": _silent(lambda node, args: call(_hull_of_multirange, TEXT, args, prefix=(node.type.oid,), raises=False)),
}  # fmt: skip
