"""The bodies of functions, parsed once and cached: PL/pgSQL as a tree, SQL as statements.

Called to check a function when it is created, and when it is called. A tree is cached for a function while no type changes. What its texts
mean is cached for the definitions and the search path by which their names are resolved.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb

from headgate.catalog.function import PLPGSQL, UserFunction
from headgate.commands.function.host import SessionHost
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.node import TypeRef
from headgate.plpgsql import compiler, reach, tree
from headgate.plpgsql.scope import Scope
from headgate.sql.parser import parse
from headgate.types import registry

MOST_KEPT = 500
"""Maximum number of cached bodies."""
MOST_CHARACTERS = 2 << 20
"""Maximum length of the texts of all cached bodies together. Those of the last function stay, however long it is."""
_MODES = {"i": "IN", "o": "OUT", "b": "INOUT", "v": "IN", "t": "OUT"}
"""The argument modes for the parser. Without a catalog, it rejects VARIADIC because it cannot know that a type is an array."""


@dataclass(frozen=True)
class Body:
    """A function in PL/pgSQL, with what has been taken apart of its texts."""

    function: tree.Function
    prepared: Prepared
    inserts: list[pb.InsertStmt] | None
    """The INSERTs of a function that may be called for many rows at once (`reach.inserts`)."""
    uses: reach.Uses | None
    """The relations that a function reads and changes, if they are known (`reach.uses`)."""


_kept: OrderedDict[object, Body] = OrderedDict()
_lengths: dict[object, int] = {}
_lock = threading.Lock()


def of(function: UserFunction, session: Session, caller: Hashable = None) -> Body:
    """Return the tree of a PL/pgSQL function. `caller`: the table and transition tables of the trigger that calls it, if any."""
    of_tree = (id(session.parts.catalog), function, caller, session.parts.catalog.type_changes)
    context, catalog = session.context, session.begin_statement().catalog
    of_names = (*of_tree, catalog.shown, context.user, tuple(context.search_path), context.temp_schema)
    with _lock:
        for key in (of_names, of_tree):
            if key in _kept:
                _kept.move_to_end(key)
        cached, same_tree = _kept.get(of_names), _kept.get(of_tree)
    if cached is not None:
        return cached
    if same_tree is None:
        compiled = _compiled(function, session)
        same_tree = Body(compiled, Prepared(), reach.inserts(compiled), reach.uses(compiled))
    function_body = replace(same_tree, prepared=Prepared(same_tree.function.variable_conflict))
    _keep({of_tree: same_tree, of_names: function_body}, len(function.body))
    return function_body


def _keep(bodies: Mapping[object, Body], length: int) -> None:
    """Cache the bodies of one function. The least recently used ones are evicted."""
    with _lock:
        for key, body in bodies.items():
            _kept[key], _lengths[key] = body, length
        characters = sum(_lengths.values())
        while len(_kept) > MOST_KEPT or (characters > MOST_CHARACTERS and len(_kept) > len(bodies)):
            evicted, _ = _kept.popitem(last=False)
            characters -= _lengths.pop(evicted)


def _compiled(function: UserFunction, session: Session) -> tree.Function:
    host, scope = SessionHost(session, Prepared()), Scope()

    def is_row(text: str) -> bool:
        try:
            return host.types.is_row(host.types.declared(text, scope))
        except PostgresError:
            return text.lower().rstrip().endswith("%rowtype")

    arguments = [
        compiler.Argument(
            _MODES[argument.mode], argument.name, host.types.is_row(TypeRef(argument.type_oid)), argument.type_oid == registry.REFCURSOR
        )
        for argument in function.arguments
    ]
    return compiler.compiled(function.body, function.name, arguments, _result(function, host), is_row)


def _result(function: UserFunction, host: SessionHost) -> str:
    if function.kind == "p":
        return ""
    if function.result in (registry.TRIGGER, registry.VOID):
        return "trigger" if function.result == registry.TRIGGER else "void"
    kind = "record" if len(function.outputs) > 1 or host.types.is_row(TypeRef(function.result)) else "text"
    return f"SETOF {kind}" if function.is_set else kind


def check(function: UserFunction, session: Session) -> None:
    """Raise 42601 or a similar error for an invalid body (the validators of the languages)."""
    if function.language == PLPGSQL:
        _compiled(function, session)
        return
    if function.result == registry.TRIGGER:
        raise PostgresError("42P13", "SQL functions cannot return type trigger")
    try:
        parse(function.body)
    except PostgresError as error:
        raise error.within(f'SQL function "{function.name}"') from error
