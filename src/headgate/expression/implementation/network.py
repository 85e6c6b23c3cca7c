"""inet, cidr, macaddr, macaddr8, bit and bit varying: operators and functions over their text forms."""

from __future__ import annotations

import operator

from headgate.expression.functions import bit_string, bytea, network, ordering
from headgate.expression.implementation import comparison
from headgate.expression.implementation.implementation import Implementation, Table
from headgate.expression.spark.value import BOOL, INT4, INT8, TEXT
from headgate.expression.spark.vectorised import scalar
from headgate.types import registry

IMPLEMENTATIONS: Table = {
    **comparison.of_texts("network", registry.INET),
    "network_larger": scalar(ordering.extreme, TEXT, prefix=(registry.INET, True), raises=False),
    "network_smaller": scalar(ordering.extreme, TEXT, prefix=(registry.INET, False), raises=False),
    "network_sub": scalar(network.is_inside, BOOL, prefix=(True,), raises=False),
    "network_subeq": scalar(network.is_inside, BOOL, prefix=(False,), raises=False),
    "network_sup": scalar(network.is_inside, BOOL, prefix=(True,), flipped=True, raises=False),
    "network_supeq": scalar(network.is_inside, BOOL, prefix=(False,), flipped=True, raises=False),
    "network_overlap": scalar(network.overlap, BOOL, raises=False),
    "network_family": scalar(network.family, INT4, raises=False),
    "network_masklen": scalar(network.masklen, INT4, raises=False),
    "network_host": Implementation(scalar(network.host, TEXT, raises=False), duckdb="split_part({0}, '/', 1)"),
    "network_show": scalar(network.shown, TEXT, raises=False),
    "network_network": scalar(network.network, TEXT, raises=False),
    "network_broadcast": scalar(network.broadcast, TEXT, raises=False),
    "network_netmask": scalar(network.netmask, TEXT, raises=False),
    "network_hostmask": scalar(network.hostmask, TEXT, raises=False),
    "inet_abbrev": scalar(network.abbreviated, TEXT, raises=False),
    "cidr_abbrev": scalar(network.abbreviated_cidr, TEXT, raises=False),
    "inet_set_masklen": scalar(network.set_masklen, TEXT),
    "cidr_set_masklen": scalar(network.set_masklen_cidr, TEXT),
    "inet_to_cidr": scalar(network.network, TEXT, raises=False),
    "inet_same_family": scalar(network.same_family, BOOL, raises=False),
    "inet_merge": scalar(network.merge, TEXT),
    "inetpl": scalar(network.plus, TEXT),
    "int8pl_inet/20,869": scalar(network.plus, TEXT, flipped=True),
    "inetmi_int8": scalar(network.minus, TEXT),
    "inetmi": scalar(network.difference, INT8),
    "inetand": scalar(network.bitwise, TEXT, prefix=(operator.and_, "AND")),
    "inetor": scalar(network.bitwise, TEXT, prefix=(operator.or_, "OR")),
    "inetnot": scalar(network.bit_not, TEXT, raises=False),
    **{f"macaddr{size}_{name}": form
       for size in ("", "8")
       for name, form in (("not", scalar(network.mac_not, TEXT, raises=False)),
                          ("and", scalar(network.mac_bitwise, TEXT, prefix=(operator.and_,), raises=False)),
                          ("or", scalar(network.mac_bitwise, TEXT, prefix=(operator.or_,), raises=False)),
                          ("trunc", scalar(network.mac_truncated, TEXT, raises=False)))},
    "macaddr8_set7bit": scalar(network.mac_set_seventh_bit, TEXT, raises=False),
    "macaddrtomacaddr8": scalar(network.mac_wider, TEXT, raises=False),
    "macaddr8tomacaddr": scalar(network.mac_narrower, TEXT),
    "bit_and": scalar(bit_string.bitwise, TEXT, prefix=(operator.and_, "AND")),
    "bit_or": scalar(bit_string.bitwise, TEXT, prefix=(operator.or_, "OR")),
    "bitxor": scalar(bit_string.bitwise, TEXT, prefix=(operator.xor, "XOR")),
    "bitnot": scalar(bit_string.bit_not, TEXT, raises=False),
    "bitshiftleft": scalar(bit_string.shift_left, TEXT, raises=False),
    "bitshiftright": scalar(bit_string.shift_right, TEXT, raises=False),
    "bitcat": scalar(operator.add, TEXT, raises=False),
    "bit_bit_count": scalar(bit_string.count_set, INT8, raises=False),
    "bitlength": scalar(len, INT4, raises=False),
    "bit_length/1560": scalar(len, INT4, raises=False),
    "bitoctetlength": scalar(bit_string.octets, INT4, raises=False),
    "bitsubstr": scalar(bit_string.substring, TEXT),
    "bitsubstr_no_len": scalar(bit_string.substring_from, TEXT, raises=False),
    "bitoverlay": scalar(bytea.overlay, TEXT),
    "bitoverlay_no_len": scalar(bytea.overlay_whole, TEXT),
    "bitposition": scalar(bit_string.position, INT4, raises=False),
    "bitgetbit": scalar(bit_string.get_bit, INT4),
    "bitsetbit": scalar(bit_string.set_bit, TEXT),
    "bit": scalar(bit_string.to_length, TEXT),
    "varbit": scalar(bit_string.to_limit, TEXT),
    "bitfromint4": scalar(bit_string.of_integer, TEXT, prefix=(32,)),
    "bitfromint8": scalar(bit_string.of_integer, TEXT, prefix=(64,)),
    "bittoint4": scalar(bit_string.to_integer, INT4, prefix=(32,)),
    "bittoint8": scalar(bit_string.to_integer, INT8, prefix=(64,)),
}  # fmt: skip
