"""All base types that a node knows more about than their text, by OID. A new type is a module beside this one and a line here.

Used by `text`, `binary`, `storage`, `order`, `sortkey`, `comparable` and `hashing`, and by the compilers of expressions.
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
    """Return the description of a type or of a domain's base type. Others (arrays, enums) get that of a text without order."""
    return BASE_TYPES.get(registry.known().base(oid)[0], string.TEXT_LIKE)
