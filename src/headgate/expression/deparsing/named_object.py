"""Constants that name objects ('t'::regclass, 'int4'::regtype, …) in texts for the catalog: the resolver that is in force for this thread.

A session puts its resolver in force together with its types, because expressions are stored by many commands. `deparse.StoredPrinter` and
the printer of views call it. Without a resolver, as in a worker, constants keep their names.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from headgate.expression.node import Const
from headgate.types import registry

Resolver = Callable[[Const], str]
"""Takes a constant and returns its text in the catalog. Raises an error if the object does not exist."""

NAMING = frozenset({registry.REGCLASS, registry.REGNAMESPACE, registry.REGPROC, registry.REGROLE, registry.REGTYPE})
"""The types of such constants."""

_in_force: ContextVar[Resolver | None] = ContextVar("resolver of constants that name objects", default=None)


def use(resolver: Resolver | None) -> None:
    """Put a resolver in force for this thread."""
    _in_force.set(resolver)


def stored_text(constant: Const) -> str:
    """Return the text of a constant in the catalog: a reference to a user's object (`registry.reference`), or else its name."""
    resolver = _in_force.get()
    return str(constant.value) if resolver is None or constant.type.oid not in NAMING else resolver(constant)
