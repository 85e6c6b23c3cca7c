"""inet, cidr, macaddr, macaddr8, bit and bit varying: operators and functions over their text forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression.functions import array as arrays
from headgate.expression.functions import bit_string as bits
from headgate.expression.functions import network as addresses
from headgate.expression.node import Expression
from headgate.expression.spark.value import BOOL, INT4, INT8, TEXT, Value
from headgate.expression.spark.vectorised import call, scalar

Builder = Callable[[Expression, Sequence[Value]], Value]


def _ordered(test: str, left: str, right: str) -> bool:
    return arrays.TESTS[test](addresses.key(left), addresses.key(right))


def _comparison(test: str) -> Builder:
    return lambda node, args: call(_ordered, BOOL, args, given=(test,), raises=False)


def _extreme(larger: bool, left: str, right: str) -> str:
    return left if (addresses.key(left) > addresses.key(right)) is larger else right


def _compared(left: str, right: str) -> int:
    one, other = addresses.key(left), addresses.key(right)
    return (one > other) - (one < other)


BUILDERS: dict[str, Builder] = {
    "network_eq": _comparison("="),
    "network_ne": _comparison("<>"),
    "network_lt": _comparison("<"),
    "network_le": _comparison("<="),
    "network_gt": _comparison(">"),
    "network_ge": _comparison(">="),
    "network_cmp": scalar(_compared, INT4, raises=False),
    "network_larger": lambda node, args: call(_extreme, TEXT, args, given=(True,), raises=False),
    "network_smaller": lambda node, args: call(_extreme, TEXT, args, given=(False,), raises=False),
    "network_sub": scalar(addresses.is_inside, BOOL, raises=False),
    "network_subeq": scalar(addresses.is_inside_or_equal, BOOL, raises=False),
    "network_sup": scalar(addresses.holds, BOOL, raises=False),
    "network_supeq": scalar(addresses.holds_or_equals, BOOL, raises=False),
    "network_overlap": scalar(addresses.overlap, BOOL, raises=False),
    "network_family": scalar(addresses.family, INT4, raises=False),
    "network_masklen": scalar(addresses.masklen, INT4, raises=False),
    "network_host": scalar(addresses.host, TEXT, raises=False),
    "network_show": scalar(addresses.shown, TEXT, raises=False),
    "network_network": scalar(addresses.network, TEXT, raises=False),
    "network_broadcast": scalar(addresses.broadcast, TEXT, raises=False),
    "network_netmask": scalar(addresses.netmask, TEXT, raises=False),
    "network_hostmask": scalar(addresses.hostmask, TEXT, raises=False),
    "inet_abbrev": scalar(addresses.abbreviated, TEXT, raises=False),
    "cidr_abbrev": scalar(addresses.abbreviated_cidr, TEXT, raises=False),
    "inet_set_masklen": scalar(addresses.set_masklen, TEXT),
    "cidr_set_masklen": scalar(addresses.set_masklen_cidr, TEXT),
    "inet_to_cidr": scalar(addresses.to_cidr, TEXT, raises=False),
    "inet_same_family": scalar(addresses.same_family, BOOL, raises=False),
    "inet_merge": scalar(addresses.merge, TEXT),
    "inetpl": scalar(addresses.plus, TEXT),
    "int8pl_inet/20,869": scalar(addresses.plus_reversed, TEXT),
    "inetmi_int8": scalar(addresses.minus, TEXT),
    "inetmi": scalar(addresses.difference, INT8),
    "inetand": scalar(addresses.bit_and, TEXT),
    "inetor": scalar(addresses.bit_or, TEXT),
    "inetnot": scalar(addresses.bit_not, TEXT, raises=False),
    **{f"macaddr{size}_{name}": scalar(function, TEXT, raises=False)
       for size in ("", "8")
       for name, function in (("not", addresses.mac_not), ("and", addresses.mac_and), ("or", addresses.mac_or),
                              ("trunc", addresses.mac_truncated))},
    "macaddr8_set7bit": scalar(addresses.mac_set_seventh_bit, TEXT, raises=False),
    "macaddrtomacaddr8": scalar(addresses.mac_wider, TEXT, raises=False),
    "macaddr8tomacaddr": scalar(addresses.mac_narrower, TEXT),
    "bit_and": scalar(bits.bit_and, TEXT),
    "bit_or": scalar(bits.bit_or, TEXT),
    "bitxor": scalar(bits.bit_xor, TEXT),
    "bitnot": scalar(bits.bit_not, TEXT, raises=False),
    "bitshiftleft": scalar(bits.shift_left, TEXT, raises=False),
    "bitshiftright": scalar(bits.shift_right, TEXT, raises=False),
    "bitcat": scalar(bits.concatenate, TEXT, raises=False),
    "bit_bit_count": scalar(bits.count_set, INT8, raises=False),
    "bitlength": scalar(len, INT4, raises=False),
    "bit_length/1560": scalar(len, INT4, raises=False),
    "bitoctetlength": scalar(bits.octets, INT4, raises=False),
    "bitsubstr": scalar(bits.substring, TEXT),
    "bitsubstr_no_len": scalar(bits.substring_from, TEXT, raises=False),
    "bitoverlay": scalar(bits.overlay, TEXT),
    "bitoverlay_no_len": scalar(bits.overlay_whole, TEXT),
    "bitposition": scalar(bits.position, INT4, raises=False),
    "bitgetbit": scalar(bits.get_bit, INT4),
    "bitsetbit": scalar(bits.set_bit, TEXT),
    "bit": scalar(bits.to_length, TEXT),
    "varbit": scalar(bits.to_limit, TEXT),
    "bitfromint4": lambda node, args: call(bits.of_integer, TEXT, args, given=(32,)),
    "bitfromint8": lambda node, args: call(bits.of_integer, TEXT, args, given=(64,)),
    "bittoint4": lambda node, args: call(bits.to_integer, INT4, args, given=(32,)),
    "bittoint8": lambda node, args: call(bits.to_integer, INT8, args, given=(64,)),
}  # fmt: skip
