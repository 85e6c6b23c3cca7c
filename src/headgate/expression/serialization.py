"""Typed expression ↔ JSON, as the catalog stores a bound row filter, default or check beside its text.

Each node is ``{"node": class, field: value, …}``; a TypeRef is ``[oid, typmod, collation]``. Subqueries cannot be stored. The
round trip gives an equal tree; `load` refuses what is not such JSON with XX001, so that a damaged catalog is noticed.
"""

from __future__ import annotations

import enum
import json
from dataclasses import fields
from typing import Any

from headgate.errors import PostgresError, not_supported
from headgate.expression import node

_CLASSES: dict[str, type[node.Expression]] = {
    name: each for name, each in vars(node).items() if isinstance(each, type) and issubclass(each, node.Expression)
}
_ENUMS: dict[str, type[enum.StrEnum]] = {"Form": node.Form, "BoolKind": node.BoolKind, "TestKind": node.TestKind}


def dump(expression: node.Expression) -> str:
    """The expression as one line of JSON."""
    return json.dumps(_dump(expression), ensure_ascii=False, separators=(",", ":"))


def load(text: str) -> node.Expression:
    """The expression that `dump` wrote."""
    try:
        loaded = _load(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise PostgresError("XX001", "stored expression is damaged") from error
    if not isinstance(loaded, node.Expression):
        raise PostgresError("XX001", "stored expression is damaged")
    return loaded


def _dump(value: Any) -> Any:
    if isinstance(value, node.SubLink):
        raise not_supported("an expression with a subquery cannot be stored")
    if isinstance(value, node.Expression):
        return {"node": type(value).__name__, **{each.name: _dump(getattr(value, each.name)) for each in fields(value)}}
    if isinstance(value, node.TypeRef):
        return {"type": [value.oid, value.typmod, value.collation]}
    if isinstance(value, tuple):
        return [_dump(each) for each in value]
    if isinstance(value, enum.StrEnum):
        return {"enum": type(value).__name__, "value": value.value}
    return value


def _load(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_load(each) for each in value)
    if not isinstance(value, dict):
        return value
    if "node" in value:
        return _CLASSES[value["node"]](**{name: _load(each) for name, each in value.items() if name != "node"})
    if "enum" in value:
        return _ENUMS[value["enum"]](value["value"])
    return node.TypeRef(*value["type"])
