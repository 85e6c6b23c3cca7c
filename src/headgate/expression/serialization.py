"""Convert typed expressions to and from JSON, as the catalog stores a bound row filter, default or check together with its text.

Each node is ``{"node": class, field: value, …}``. A TypeRef is ``[oid, typmod, collation]``. Subqueries cannot be stored. The round trip
returns an equal tree. `load` raises XX001 for any other JSON, so that a damaged catalog is detected.
"""

from __future__ import annotations

import enum
import json
from dataclasses import fields
from typing import Any

from headgate.errors import PostgresError, not_supported
from headgate.expression import node

_CLASSES: dict[str, type[node.Expression]] = {
    name: member for name, member in vars(node).items() if isinstance(member, type) and issubclass(member, node.Expression)
}
_ENUMS: dict[str, type[enum.StrEnum]] = {"Form": node.Form, "BoolKind": node.BoolKind, "TestKind": node.TestKind}


def dump(expression: node.Expression) -> str:
    return json.dumps(_dump(expression), ensure_ascii=False, separators=(",", ":"))


def load(text: str) -> node.Expression:
    """Return the expression that `dump` wrote."""
    try:
        loaded = _load(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise PostgresError("XX001", "stored expression is damaged") from error
    if not isinstance(loaded, node.Expression):
        raise PostgresError("XX001", "stored expression is damaged")
    return loaded


def _dump(value: object) -> object:
    if isinstance(value, node.SubLink):
        raise not_supported("an expression with a subquery cannot be stored")
    if isinstance(value, node.Expression):
        return {"node": type(value).__name__, **{field.name: _dump(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, node.TypeRef):
        return {"type": [value.oid, value.typmod, value.collation]}
    if isinstance(value, tuple):
        return [_dump(item) for item in value]
    if isinstance(value, enum.StrEnum):
        return {"enum": type(value).__name__, "value": value.value}
    return value


def _load(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_load(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "node" in value:
        return _CLASSES[value["node"]](**{name: _load(item) for name, item in value.items() if name != "node"})
    if "enum" in value:
        return _ENUMS[value["enum"]](value["value"])
    return node.TypeRef(*value["type"])
