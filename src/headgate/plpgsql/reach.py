"""What a function can see and change: whether it may be run for many rows, one after the other, before any of them is written.

Called by `commands.trigger.firing`.

    what stands in the function                               looks at rows only
    assignments, IF, CASE, loops, RAISE, RETURN, blocks       yes
    an expression with a subquery                             no
    an expression that calls what is not built in             no
    INSERT of one row of plain values                         no, but its rows may be written together (`inserts`)
    other SQL statements, PERFORM, EXECUTE, cursors, CALL     no
    EXCEPTION (a subtransaction)                              no
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.plpgsql import tree
from headgate.plpgsql.tree import Sql
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, unwrap, walk

_ACTING = (
    tree.ForQuery, tree.ReturnQuery, tree.Perform, tree.Call, tree.Open, tree.Fetch, tree.Close, tree.EndTransaction,
)  # fmt: skip


def inserts(function: tree.Function) -> list[pb.InsertStmt] | None:
    """Return the INSERTs of a function that does nothing else but look at its variables; None if it does anything else.

    Such a statement inserts one row of values, which are plain expressions.
    """
    found: list[pb.InsertStmt] = []
    for part in _parts(function.block):
        if isinstance(part, tree.Execute):
            statement = None if part.dynamic or part.into is not None else _plain_insert(part.query.text)
            if statement is None:
                return None
            found.append(statement)
        elif (
            isinstance(part, _ACTING) or _is_guarded(part) or (isinstance(part, Sql) and not part.is_statement and not _is_plain(part.text))
        ):
            return None
    return found


def texts(function: tree.Function) -> list[str] | None:
    """Return the expressions of a function that only computes, so that it needs no session; None if it does more.

    It has no statements of SQL, sends no messages that a client sees, and declares no types by those of tables.
    """
    found: list[str] = []
    for part in _parts(function.block):
        if isinstance(part, (tree.Execute, *_ACTING)) or (isinstance(part, Sql) and part.is_statement):
            return None
        if isinstance(part, tree.Raise) and part.level not in ("ERROR", "LOG", "DEBUG"):
            return None
        if isinstance(part, tree.Declaration) and "%" in part.type:
            return None
        if isinstance(part, Sql):
            found.append(part.text)
    return None if any(is_session_needed(text) for text in found) else found


def calls(text: str) -> set[tuple[str, ...]]:
    """Return the names of the functions that an expression calls and that are not built in."""
    found = {tuple(names.strings(part.funcname)) for part in _nodes(text) if part.DESCRIPTOR.name == "FuncCall"}
    return {parts for parts in found if parts[-1] not in builtin.builtins().functions_named}


def is_session_needed(text: str) -> bool:
    """Return whether an expression has a subquery, or asks for the session, the moment or a value that changes."""
    for part in _nodes(text):
        if part.DESCRIPTOR.name in ("SubLink", "SQLValueFunction", "RangeVar"):
            return True
        if part.DESCRIPTOR.name == "FuncCall":
            name = names.strings(part.funcname)[-1]
            known = builtin.builtins().functions_named.get(name, ())
            if name in _OF_SESSION or any(each.volatility == "v" for each in known):
                return True
    return False


_OF_SESSION = frozenset({
    "now", "transaction_timestamp", "statement_timestamp", "current_setting", "current_schema", "current_schemas", "current_database",
    "pg_backend_pid", "txid_current", "pg_current_xact_id", "age", "pg_trigger_depth", "inet_client_addr", "inet_server_addr", "version",
})  # fmt: skip


def _nodes(text: str) -> Iterator[ParseNode]:
    try:
        [statement] = parse(f"SELECT {text}")
    except (PostgresError, ValueError):
        return
    yield from walk(statement.node)


def _plain_insert(text: str) -> pb.InsertStmt | None:
    try:
        [statement] = parse(text)
    except (PostgresError, ValueError):
        return None
    if statement.kind != "InsertStmt" or any(
        statement.node.HasField(each) for each in ("with_clause", "on_conflict_clause", "returning_clause")
    ):
        return None
    return statement.node if row_of(statement.node) is not None and not _acts(statement.node) else None


def row_of(node: pb.InsertStmt) -> list[pb.Node] | None:
    """Return the values of the one row that an INSERT names, by VALUES or by a SELECT without FROM; None if it is another INSERT."""
    select = unwrap(node.select_stmt) if node.HasField("select_stmt") else None
    if select is None or select.DESCRIPTOR.name != "SelectStmt":
        return None
    if len(select.values_lists) == 1 and {each.name for each, _ in select.ListFields()} <= {"values_lists", "limit_option", "op"}:
        return list(unwrap(select.values_lists[0]).items)
    if select.target_list and {each.name for each, _ in select.ListFields()} <= {"target_list", "limit_option", "op"}:
        return [unwrap(each).val for each in select.target_list]
    return None


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
    return statement.kind == "SelectStmt" and not statement.node.from_clause and not _acts(statement.node)


def _acts(node: ParseNode) -> bool:
    """Whether a subquery, a function that is not built in, or a volatile one stands in a statement."""
    for part in walk(node):
        if part.DESCRIPTOR.name == "SubLink":
            return True
        if part.DESCRIPTOR.name == "FuncCall":
            known = builtin.builtins().functions_named.get(names.strings(part.funcname)[-1], ())
            if not known or any(each.volatility == "v" for each in known):
                return True
    return False
