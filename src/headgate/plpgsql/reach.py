"""What a function can see and change: whether it may be run for many rows, one after the other, before any of them is written.

Called by `commands.trigger.firing`.

    what stands in the function                               looks at rows only
    assignments, IF, CASE, loops, RAISE, RETURN, blocks       yes
    an expression with a subquery                             no
    an expression that calls what is not built in             no
    SQL statements, PERFORM, EXECUTE, cursors, CALL           no
    EXCEPTION (a subtransaction)                              no
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.plpgsql import tree
from headgate.plpgsql.tree import Sql
from headgate.sql import names
from headgate.sql.parser import parse, walk

_ACTING = (
    tree.ForQuery, tree.ReturnQuery, tree.Perform, tree.Execute, tree.Call, tree.Open, tree.Fetch, tree.Close, tree.EndTransaction,
)  # fmt: skip


def of_rows_only(function: tree.Function) -> bool:
    """Whether nothing in it reads or writes anything but its variables."""
    return all(not isinstance(each, _ACTING) and not _is_guarded(each) for each in _parts(function.block)) and all(
        _is_plain(each.text) for each in _parts(function.block) if isinstance(each, Sql)
    )


def _is_guarded(part: object) -> bool:
    return isinstance(part, tree.Block) and bool(part.handlers)


def _parts(part: object) -> Iterator[object]:
    """Everything in a tree."""
    yield part
    if isinstance(part, tuple):
        for each in part:
            yield from _parts(each)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, tuple) or dataclasses.is_dataclass(value):
                yield from _parts(value)


def _is_plain(text: str) -> bool:
    """Whether an expression has no subquery and calls built-in functions alone, none that acts."""
    try:
        [statement] = parse(f"SELECT {text}")
    except PostgresError:
        return False
    if statement.kind != "SelectStmt" or statement.node.from_clause:
        return False
    for node in walk(statement.node):
        if node.DESCRIPTOR.name == "SubLink":
            return False
        if node.DESCRIPTOR.name == "FuncCall":
            parts = names.strings(node.funcname)
            known = builtin.builtins().functions_named.get(parts[-1], ())
            if not known or any(each.volatility == "v" for each in known):
                return False
    return True
