"""Definitions of the catalog as JSON, by the names of their fields (`dataclasses.asdict`). The history of the catalog has this form.

`from_json` also reads what earlier versions wrote: a field that a later version has removed is ignored, a field that it has added has its
default.
Therefore a field must not be renamed, and a new one needs a default.
"""

from __future__ import annotations

from dataclasses import Field
from typing import Any, ClassVar, Protocol, TypeVar

Dumped = dict[str, Any]


class Dataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Dataclass)


def from_json(kind: type[T], value: Dumped) -> T:
    """Return a dataclass from its JSON form, converting lists to tuples."""
    fields = kind.__dataclass_fields__
    return kind(**{name: tuple(item) if isinstance(item, list) else item for name, item in value.items() if name in fields})
