"""The functions that users made, as the binder finds them: the resolver that is in force for this thread.

A session puts its resolver in force together with its types, because stored expressions are bound in many places that do not have a
session; so does a worker for the rows that it applies. Without a resolver only built-in functions exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar

from postgast import pg_query_pb2 as pb

from headgate.expression.binding.context import BindContext
from headgate.expression.node import Expression

Resolver = Callable[[pb.FuncCall, Sequence[Expression], BindContext], Expression | None]
"""Takes a call, its bound arguments in the order written, and the context.

Returns None if a built-in function is meant, or if no user made a function of this name.
"""

_in_force: ContextVar[Resolver | None] = ContextVar("resolver of users' functions", default=None)


def use(resolver: Resolver | None) -> None:
    """Put a resolver in force for this thread."""
    _in_force.set(resolver)


@contextlib.contextmanager
def resolving(resolver: Resolver | None) -> Iterator[None]:
    """Put a resolver in force for the block."""
    token = _in_force.set(resolver)
    try:
        yield
    finally:
        _in_force.reset(token)


def resolve(node: pb.FuncCall, args: Sequence[Expression], context: BindContext) -> Expression | None:
    """Return the bound call of a function that a user made; None if the call means no such function."""
    resolver = _in_force.get()
    return None if resolver is None else resolver(node, args, context)
