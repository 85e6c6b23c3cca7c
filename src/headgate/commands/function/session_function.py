"""Call a function that needs a session for each of many rows: it reads tables, writes, or sends messages.

`row_call` creates the objects when a statement is bound. Inside the node, a call runs the function in the session. Spark's tasks have no
session. They look up the values that `row_values` computed before the statement was planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headgate.catalog.function import UserFunction
from headgate.commands.function import call
from headgate.commands.function.row_function import of_rows
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.plpgsql.scope import Row, Value, type_of
from headgate.sql.names import quote_ident
from headgate.types import registry

Arguments = tuple[str | None, ...]
Values = Mapping[Arguments, "str | PostgresError | None"]
"""The values of a function, or the errors that it raised, by the texts of its arguments."""


class SessionFunction:
    """A function that needs a session. `values`: the values that have been computed before the statement."""

    __name__ = "user_function"

    def __init__(self, function: UserFunction, session: Session, values: Values) -> None:
        self._function, self._values = function, values
        self._session: Session | None = session

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        """Return the values for rows of arguments; both are in the plain form of `expression.spark.vectorised`."""
        return of_rows(self._function, arrays, self._of_row)

    def _of_row(self, row: Arguments) -> str | None:
        if row in self._values:
            value = self._values[row]
            if isinstance(value, PostgresError):
                raise value
            return value
        if self._session is None:
            raise refusal(self._function)
        return value_of(self._function, row, self._session)


def value_of(function: UserFunction, row: Arguments, session: Session) -> str | None:
    """Call a function and return the text of its value."""
    if function.strict and None in row:
        return None
    execution = call.run(function, [Value(type_of(oid), text) for oid, text in zip(function.types, row, strict=True)], session)
    if function.result == registry.VOID:
        return ""
    if function.outputs:
        return execution.rows[0][0].text if execution.rows else None
    result = execution.result
    if isinstance(result, Row):
        result = execution.host.value_of(result)
    return None if result is None else result.text


def refusal(function: UserFunction, position: int | None = None) -> PostgresError:
    """Return 0A000 for a call for rows that cannot be determined before the statement runs."""
    return not_supported(
        f"calling the function {quote_ident(function.name)} for each row is not supported",
        detail="It does more than compute: it runs statements, sends messages, or needs the session.",
        hint="A node can call it in the SELECT list or the WHERE of a statement that reads tables, with arguments that are their columns.",
        position=position,
    )
