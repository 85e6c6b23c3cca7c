"""The tree of a PL/pgSQL function (manual, 43): `compiler` makes it and `interpreter` runs it.

Lines count from 1 within the body, as error contexts show them. SQL texts are as the function's author wrote them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class Sql:
    """A text of SQL: an expression (`is_statement` False, as after SELECT) or a whole statement."""

    text: str
    is_statement: bool = False
    assignment: str | None = None
    """The text of the assignment that the expression belongs to. Errors cite it."""


Names = tuple[str, ...]
"""A variable, or a field of a record: ``("new", "a")``."""


@dataclass(frozen=True)
class Declaration:
    """A variable of a DECLARE section. `type` is the text of its type, empty for RECORD. `alias` is the name that it is an alias for."""

    name: str
    type: str
    line: int
    default: Sql | None = None
    constant: bool = False
    not_null: bool = False
    alias: str | None = None
    cursor: Cursor | None = None


@dataclass(frozen=True)
class Cursor:
    """The query of a bound cursor, with the names and types of its arguments."""

    query: Sql
    arguments: tuple[tuple[str, str], ...]
    scroll: bool | None = None


@dataclass(frozen=True)
class Statement:
    """Any statement."""

    line: int


@dataclass(frozen=True)
class Handler:
    """WHEN … THEN of an EXCEPTION part; conditions are names, or SQLSTATEs of five characters."""

    conditions: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Block(Statement):
    """[<<label>>] DECLARE … BEGIN … EXCEPTION … END."""

    label: str | None
    declarations: tuple[Declaration, ...]
    body: tuple[Statement, ...]
    handlers: tuple[Handler, ...] = ()


@dataclass(frozen=True)
class Subscript:
    """``[upper]``, or ``[lower:upper]`` of a slice, whose bounds may be absent."""

    lower: Sql | None
    upper: Sql | None
    is_slice: bool


@dataclass(frozen=True)
class Assign(Statement):
    """``target := value``. `subscripts`: those of the target if it is an element or a slice of an array. `text`: the whole assignment."""

    target: Names
    subscripts: tuple[Subscript, ...]
    value: Sql
    text: str


@dataclass(frozen=True)
class If(Statement):
    """IF with its ELSIFs as further branches."""

    branches: tuple[tuple[Sql, tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Case(Statement):
    """CASE. `operand` is None in the searched form. In the simple form, the conditions refer to the operand's value as `variable`."""

    operand: Sql | None
    variable: str
    branches: tuple[tuple[Sql, tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...] | None


@dataclass(frozen=True)
class Loop(Statement):
    """LOOP, or WHILE if there is a condition."""

    label: str | None
    condition: Sql | None
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class ForInteger(Statement):
    """FOR i IN [REVERSE] a..b [BY c]."""

    label: str | None
    variable: str
    lower: Sql
    upper: Sql
    step: Sql | None
    reverse: bool
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class ForQuery(Statement):
    """FOR … IN query. With EXECUTE, `dynamic` is true and `parameters` are the USING values.

    `cursor` names a bound cursor. `query` then contains its arguments.
    """

    label: str | None
    targets: tuple[Names, ...]
    query: Sql | None
    dynamic: bool
    parameters: tuple[Sql, ...]
    cursor: str | None
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class ForEach(Statement):
    """FOREACH … [SLICE n] IN ARRAY."""

    label: str | None
    targets: tuple[Names, ...]
    slice: int
    array: Sql
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Exit(Statement):
    """EXIT or CONTINUE [label] [WHEN condition]."""

    is_exit: bool
    label: str | None
    condition: Sql | None


@dataclass(frozen=True)
class Return(Statement):
    """RETURN [value]."""

    value: Sql | None


@dataclass(frozen=True)
class ReturnNext(Statement):
    """RETURN NEXT [value]."""

    value: Sql | None


@dataclass(frozen=True)
class ReturnQuery(Statement):
    """RETURN QUERY [EXECUTE]."""

    query: Sql
    dynamic: bool
    parameters: tuple[Sql, ...]


@dataclass(frozen=True)
class Raise(Statement):
    """RAISE. `level` is the log level's name, `condition` a name or a SQLSTATE. Without any option, it raises the handled error again."""

    level: str
    condition: str | None
    message: str | None
    parameters: tuple[Sql, ...]
    options: tuple[tuple[str, Sql], ...]


@dataclass(frozen=True)
class Assert(Statement):
    """ASSERT condition [, message]."""

    condition: Sql
    message: Sql | None


@dataclass(frozen=True)
class Perform(Statement):
    """PERFORM: a SELECT whose rows are discarded."""

    query: Sql


@dataclass(frozen=True)
class Execute(Statement):
    """An SQL statement, or EXECUTE of a text (`dynamic`), with INTO and USING."""

    query: Sql
    dynamic: bool
    parameters: tuple[Sql, ...] = ()
    into: tuple[Names, ...] | None = None
    strict: bool = False


@dataclass(frozen=True)
class Call(Statement):
    """CALL of a procedure, DO."""

    query: Sql


class Diagnostic(enum.StrEnum):
    """An item of GET DIAGNOSTICS, by libpg_query's name."""

    ROW_COUNT = "ROW_COUNT"
    CONTEXT = "PG_CONTEXT"
    ERROR_CONTEXT = "PG_EXCEPTION_CONTEXT"
    DETAIL = "PG_EXCEPTION_DETAIL"
    HINT = "PG_EXCEPTION_HINT"
    SQLSTATE = "RETURNED_SQLSTATE"
    COLUMN = "COLUMN_NAME"
    CONSTRAINT = "CONSTRAINT_NAME"
    DATATYPE = "PG_DATATYPE_NAME"
    MESSAGE = "MESSAGE_TEXT"
    TABLE = "TABLE_NAME"
    SCHEMA = "SCHEMA_NAME"


@dataclass(frozen=True)
class GetDiagnostics(Statement):
    """GET [STACKED] DIAGNOSTICS."""

    stacked: bool
    items: tuple[tuple[Diagnostic, Names], ...]


@dataclass(frozen=True)
class Open(Statement):
    """OPEN of a bound cursor (`arguments`), or of a query for an unbound one."""

    cursor: str
    query: Sql | None
    dynamic: bool
    parameters: tuple[Sql, ...]
    arguments: Sql | None
    scroll: bool | None


@dataclass(frozen=True)
class Fetch(Statement):
    """FETCH or MOVE. `direction` as libpg_query numbers it: 0 forward, 1 backward, 2 absolute, 3 relative."""

    cursor: str
    targets: tuple[Names, ...]
    direction: int
    count: int
    count_of: Sql | None
    is_move: bool


@dataclass(frozen=True)
class Close(Statement):
    """CLOSE."""

    cursor: str


@dataclass(frozen=True)
class EndTransaction(Statement):
    """COMMIT or ROLLBACK of a procedure."""

    commits: bool
    chain: bool


@dataclass(frozen=True)
class Function:
    """A function's body, with the values of its ``#`` options, or None for those of the session."""

    block: Block
    variable_conflict: str | None = None
    """``error``, ``use_variable`` or ``use_column``."""
    print_strict_params: str | None = None
