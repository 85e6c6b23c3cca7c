"""The interface through which the interpreter of PL/pgSQL uses the session in which a function runs.

`commands.function.host` implements `Host`, and `commands.function.variable_type` implements `Types`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import PostgresError
from headgate.expression.node import TypeRef
from headgate.plpgsql import tree
from headgate.plpgsql.scope import Row, Scope, Value
from headgate.plpgsql.tree import Names, Sql
from headgate.sql.parser import ParseNode


@dataclass
class Rows:
    """The result of a query: names and types of its columns, and an iterator over its rows as texts."""

    columns: tuple[tuple[str, TypeRef], ...]
    rows: Iterator[Sequence[str | None]]

    def values(self, row: Sequence[str | None]) -> list[Value]:
        return [Value(kind, text) for (_, kind), text in zip(self.columns, row, strict=True)]


@dataclass
class Outcome:
    """The result of a statement: its rows, if it returns rows, and the number of processed rows."""

    rows: Rows | None
    processed: int | None
    query: ParseNode | None = None
    """The query that returns the rows."""
    sets_found: bool = True
    """Whether FOUND becomes true or false. Utility commands, such as CREATE TABLE AS, leave it as it is."""


class Types(Protocol):
    """The types of variables, and the rows and arrays that variables hold."""

    def declared(self, text: str, scope: Scope) -> TypeRef:
        """Return the type that a text names. An empty text names RECORD."""

    def is_row(self, kind: TypeRef) -> bool:
        """Return whether a type is a row type."""

    def is_array(self, kind: TypeRef) -> bool:
        """Return whether a type is an array type."""

    def fields(self, kind: TypeRef) -> Sequence[tuple[str, TypeRef]]:
        """Return the fields of a row type."""

    def row_of(self, value: Value) -> Row | None:
        """Return the fields of a value of a row type, or None for NULL."""

    def value_of(self, row: Row) -> Value:
        """Return a row as a value."""

    def elements(self, value: Value, slice_dimensions: int) -> Sequence[Value]:
        """Return the elements of an array, of all its dimensions, or its slices with that many dimensions."""


class Host(Protocol):
    """The session in which the interpreter runs."""

    @property
    def types(self) -> Types:
        """The types that the function can name."""

    def evaluate(self, sql: Sql, scope: Scope) -> Value:
        """Return the value of an expression."""

    def run(self, sql: Sql, scope: Scope) -> Outcome:
        """Run a statement. Names in it may refer to variables."""

    def run_text(self, text: str, parameters: Sequence[Value]) -> Outcome:
        """Run the text of a statement (EXECUTE)."""

    def reading(self, outcome: Outcome) -> AbstractContextManager[None]:
        """Keep the tables of a query in use, so that the statements in the context cannot alter them."""

    def cast(self, value: Value, target: TypeRef) -> Value:
        """Return a value coerced to the type of a variable by an assignment cast."""

    def shown(self, value: Value) -> str | None:
        """Return a value's text for a message, in the session's DateStyle and IntervalStyle."""

    def with_part(self, value: Value, assignment: tree.Assign, new: Value, scope: Scope) -> Value:
        """Return an array in which the element or slice that an assignment names is replaced."""

    def subtransaction(self) -> AbstractContextManager[None]:
        """Run a subtransaction, which is rolled back if an error is raised inside."""

    def end_transaction(self, *, commits: bool, chain: bool) -> None:
        """Commit or roll back the transaction of a procedure."""

    def check(self) -> None:
        """Raise 57014 if the client has requested a cancel, or another pending interrupt."""

    def forget_cancel(self, error: PostgresError) -> None:
        """Discard the cancel request that raised the error, if one did."""

    def say(self, level: str, sqlstate: str, message: str, detail: str | None, hint: str | None) -> None:
        """Send the message of RAISE to the client."""

    def open(self, name: str | None, query: Sql | str, scope: Scope, parameters: Sequence[Value], scroll: bool | None) -> str:
        """Open a cursor for a query, or for the text of one, and return its name. None: make a name."""

    def fetch(self, name: str, direction: int, count: int, *, is_move: bool) -> tuple[Rows, int]:
        """Move a cursor. Return the rows, and their number. MOVE returns no rows."""

    def close(self, name: str) -> None:
        """Close a cursor."""

    def outputs(self, sql: Sql, scope: Scope) -> Sequence[Names]:
        """Return the variables that receive the OUT and INOUT parameters of CALL. Raise 42601 if such an argument is not a variable."""

    def variables(self, sql: Sql, scope: Scope) -> Sequence[tuple[str, Value]]:
        """Return the variables that a statement refers to, with their values."""

    def setting(self, name: str) -> str:
        """Return the value of a setting of PL/pgSQL, or an empty text if it is not set."""

    @property
    def callers(self) -> list[Callable[[], str]]:
        """Functions that return the lines of context of the functions and statements that run, the outermost first."""
