"""Finds how one type is coerced to another: PostgreSQL's coercion pathways (find_coercion_pathway; manual, 10.4).

They come from pg_cast and the additional rules of find_coercion_pathway. Called by `coercion`, which makes the node, and by `signature`
and `overload_resolution`, which only test. `Reach` is the context of a coercion: implicit in expressions, assignment to a column,
explicit cast.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headgate.expression import builtin
from headgate.expression.binding.context import BindContext


class Reach(enum.IntEnum):
    """The context of a coercion (CoercionContext), which limits the casts that are allowed."""

    IMPLICIT = 0
    ASSIGNMENT = 1
    EXPLICIT = 2


_NEEDS = {"i": Reach.IMPLICIT, "a": Reach.ASSIGNMENT, "e": Reach.EXPLICIT}


@dataclass(frozen=True)
class Path:
    """A coercion between two types: by 'relabel', 'function' (its oid), 'io' or 'array' (the element's function, 0 none, -1 io)."""

    how: str
    function: int = 0


def find_path(source: int, target: int, reach: Reach, context: BindContext) -> Path | None:
    """find_coercion_pathway: return the coercion from `source` to `target` that `reach` allows, or None."""
    source, target = context.base_type(source), context.base_type(target)
    if source == target:
        return Path("relabel")
    cast = builtin.builtins().casts.get((source, target))
    if cast is not None:
        if reach < _NEEDS[cast.context]:
            return None
        return {"f": Path("function", cast.function), "b": Path("relabel"), "i": Path("io")}[cast.method]
    from_type, to_type = context.types.find(source), context.types.find(target)
    if from_type is None or to_type is None:
        return None
    if (from_type.is_array or from_type.is_vector) and to_type.is_array:
        element = find_path(from_type.element, to_type.element, reach, context)
        if element is not None and element.how != "array":
            return Path("array", -1 if element.how == "io" else element.function)
        return None
    if reach >= Reach.ASSIGNMENT and to_type.category == "S":
        return Path("io")
    if reach >= Reach.EXPLICIT and from_type.category == "S":
        return Path("io")
    return None
