"""Every base type that a node knows more of than its text, by oid. A new type is a module beside this one and a line here.

Asked by the floor's own entries (`text`, `binary`, `storage`, `order`, `sortkey`, `comparable`, `hashing`) and by compilers of expressions.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.types import registry
from headgate.types.base import (
    binary_numeric,
    bit,
    datetime,
    geometric,
    json_text,
    jsonpath,
    log_position,
    money,
    multirange,
    network,
    number,
    range_type,
    string,
    tsquery,
    tsvector,
    xml_text,
)
from headgate.types.base.base_type import BaseType

BASE_TYPES: Mapping[int, BaseType] = {
    **number.TYPES,
    **binary_numeric.TYPES,
    **string.TYPES,
    **datetime.TYPES,
    **network.TYPES,
    **bit.TYPES,
    **json_text.TYPES,
    **jsonpath.TYPES,
    **log_position.TYPES,
    **money.TYPES,
    **range_type.TYPES,
    **multirange.TYPES,
    **geometric.TYPES,
    **tsvector.TYPES,
    **tsquery.TYPES,
    **xml_text.TYPES,
}


def base_type(oid: int) -> BaseType:
    """The description of a type, of a domain's base type; that of a text without order for arrays, enums and types without one."""
    return BASE_TYPES.get(registry.known().base(oid)[0], string.TEXT_LIKE)
