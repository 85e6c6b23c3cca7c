"""Determines what a function can read and change: whether it may run for many rows in a row, before any of them is written.

Called by `commands.trigger.access`.

    the function contains                                     reads only its rows
    assignments, IF, CASE, loops, RAISE, RETURN, blocks       yes
    an expression with a subquery                             no
    an expression that calls a function that is not built in  no
    INSERT of one row of plain values                         no, but its rows may be written together (`inserts`)
    SELECT INTO, PERFORM, a FOR loop over a query             no, but the tables that it reads are known (`uses`)
    INSERT, UPDATE, DELETE                                    no, but the tables that it reads and changes are known (`uses`)
    other SQL statements, EXECUTE, cursors, CALL              no
    EXCEPTION (a subtransaction)                              no
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.builtin import Function
from headgate.plpgsql import tree
from headgate.plpgsql.tree import Sql
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, unwrap, walk

_CHANGING = ("InsertStmt", "UpdateStmt", "DeleteStmt")
_ACTING = (
    tree.ForQuery, tree.ReturnQuery, tree.Perform, tree.Call, tree.Open, tree.Fetch, tree.Close, tree.EndTransaction,
)  # fmt: skip


def inserts(function: tree.Function) -> list[pb.InsertStmt] | None:
    """Return the INSERTs of a function that otherwise only reads its variables, or None if it does anything else.

    Each of them inserts one row of values, which are plain expressions.
    """
    statements: list[pb.InsertStmt] = []
    for part in _parts(function.block):
        if isinstance(part, tree.Execute):
            statement = None if part.dynamic or part.into is not None else _plain_insert(part.query.text)
            if statement is None:
                return None
            statements.append(statement)
        elif (
            isinstance(part, _ACTING) or _is_guarded(part) or (isinstance(part, Sql) and not part.is_statement and not is_plain(part.text))
        ):
            return None
    return statements


@dataclass(frozen=True)
class Uses:
    """The relations that a function names: those that it changes, and the others."""

    changed: Sequence[pb.RangeVar]
    read: Sequence[pb.RangeVar]


def uses(function: tree.Function) -> Uses | None:
    """Return the relations that a function uses, or None if it may do more than compute, query named relations and change their rows."""
    changed: list[pb.RangeVar] = []
    read: list[pb.RangeVar] = []
    for part in _parts(function.block):
        if isinstance(part, (tree.Call, tree.Open, tree.Fetch, tree.Close, tree.EndTransaction)) or _is_dynamic(part) or _is_guarded(part):
            return None
        if not isinstance(part, Sql):
            continue
        try:
            statements = parse(part.text if part.is_statement else f"SELECT {part.text}")
        except (PostgresError, ValueError):
            return None
        for statement in statements:
            node = statement.node
            if not (is_reading(node) or _is_changing(node)) or _calls_acting(node):
                return None
            target = [node.relation] if _is_changing(node) else []
            changed += target
            read += [part for part in walk(node) if isinstance(part, pb.RangeVar) and part not in target]
    return Uses(changed, read)


def _is_changing(node: ParseNode) -> bool:
    """Return whether a statement changes the rows of one relation, and of no other one in its WITH clause."""
    inside = sum(part.DESCRIPTOR.name in _CHANGING or part.DESCRIPTOR.name == "LockingClause" for part in walk(node))
    return node.DESCRIPTOR.name in _CHANGING and inside == 1


def texts(function: tree.Function) -> list[str] | None:
    """Return the expressions of a function that only computes, and so needs no session, or None if it does more.

    It has no SQL statements, sends no messages that a client sees, and declares no variables with the types of tables.
    """
    expressions: list[str] = []
    for part in _parts(function.block):
        if isinstance(part, (tree.Execute, *_ACTING)) or (isinstance(part, Sql) and part.is_statement):
            return None
        if isinstance(part, tree.Raise) and part.level not in ("ERROR", "LOG", "DEBUG"):
            return None
        if isinstance(part, tree.Declaration) and "%" in part.type:
            return None
        if isinstance(part, Sql):
            expressions.append(part.text)
    return None if any(is_session_needed(text) for text in expressions) else expressions


def _is_dynamic(part: object) -> bool:
    return isinstance(part, (tree.Execute, tree.ForQuery, tree.ReturnQuery, tree.Open)) and part.dynamic


def is_reading(node: ParseNode) -> bool:
    """Return whether a statement is a query without effects: it changes no rows, locks none and calls no volatile built-in function."""
    if node.DESCRIPTOR.name != "SelectStmt":
        return False
    writing = ("InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "LockingClause", "IntoClause")
    return not any(part.DESCRIPTOR.name in writing or _is_volatile(part) for part in walk(node))


def _is_volatile(part: ParseNode) -> bool:
    if part.DESCRIPTOR.name != "FuncCall":
        return False
    return any(function.volatility == "v" for function in _built_in(names.strings(part.funcname)))


def _built_in(parts: Sequence[str]) -> Sequence[Function]:
    """Return the built-in functions that a name denotes: none if the name has the schema of a user's function."""
    if len(parts) > 1 and parts[-2] not in ("pg_catalog", "headgate"):
        return ()
    return builtin.builtins().functions_named.get(parts[-1], ())


def calls(text: str) -> set[tuple[str, ...]]:
    """Return the names of the functions that an expression calls and that are not built in."""
    function_names = {tuple(names.strings(part.funcname)) for part in _nodes(text) if part.DESCRIPTOR.name == "FuncCall"}
    return {parts for parts in function_names if not _built_in(parts)}


def is_session_needed(text: str) -> bool:
    """Return whether an expression has a subquery, or depends on the session, on the current time, or on a volatile function."""
    for part in _nodes(text):
        if part.DESCRIPTOR.name in ("SubLink", "SQLValueFunction", "RangeVar"):
            return True
        if part.DESCRIPTOR.name == "FuncCall":
            parts = names.strings(part.funcname)
            if parts[-1] in _OF_SESSION or any(function.volatility == "v" for function in _built_in(parts)):
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
        statement.node.HasField(clause) for clause in ("with_clause", "on_conflict_clause", "returning_clause")
    ):
        return None
    return statement.node if row_of(statement.node) is not None and not _acts(statement.node) else None


def row_of(node: pb.InsertStmt) -> list[pb.Node] | None:
    """Return the values of the one row that an INSERT inserts, by VALUES or by a SELECT without FROM. Return None for another INSERT."""
    select = unwrap(node.select_stmt) if node.HasField("select_stmt") else None
    if select is None or select.DESCRIPTOR.name != "SelectStmt":
        return None
    if len(select.values_lists) == 1 and {field.name for field, _ in select.ListFields()} <= {"values_lists", "limit_option", "op"}:
        return list(unwrap(select.values_lists[0]).items)
    if select.target_list and {field.name for field, _ in select.ListFields()} <= {"target_list", "limit_option", "op"}:
        return [unwrap(target).val for target in select.target_list]
    return None


def _is_guarded(part: object) -> bool:
    return isinstance(part, tree.Block) and bool(part.handlers)


def _parts(part: object) -> Iterator[object]:
    yield part
    if isinstance(part, tuple):
        for item in part:
            yield from _parts(item)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, tuple) or dataclasses.is_dataclass(value):
                yield from _parts(value)


def is_plain(text: str) -> bool:
    """Return whether an expression has no subquery and calls only built-in functions that are not volatile."""
    try:
        [statement] = parse(f"SELECT {text}")
    except PostgresError:
        return False
    return statement.kind == "SelectStmt" and not statement.node.from_clause and not _acts(statement.node)


def _acts(node: ParseNode) -> bool:
    """Return whether a statement contains a subquery, a function that is not built in, or a volatile one."""
    return any(part.DESCRIPTOR.name == "SubLink" for part in walk(node)) or _calls_acting(node)


def _calls_acting(node: ParseNode) -> bool:
    """Return whether a statement calls a function that is not built in, or a volatile one."""
    for part in walk(node):
        if part.DESCRIPTOR.name == "FuncCall":
            functions = _built_in(names.strings(part.funcname))
            if not functions or any(function.volatility == "v" for function in functions):
                return True
    return False
