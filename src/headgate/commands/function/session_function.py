"""Call a function that needs a session for each of many rows: it reads tables, writes, or sends messages.

`row_call` creates the objects when a statement is bound. Spark's tasks have no session, so `commands.query.row_by_row` evaluates the
expressions that call such a function in the driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog.function import UserFunction
from headgate.commands.function import call
from headgate.commands.session import Session
from headgate.plpgsql.scope import Row, Value, type_of
from headgate.types import registry
from headgate.types.text import record


class SessionFunction:
    """A function that needs a session."""

    needs_session = True

    def __init__(self, function: UserFunction, session: Session) -> None:
        self._function, self._session = function, session

    def of_row(self, row: Sequence[str | None]) -> str | None:
        function = self._function
        if function.strict and None in row:
            return None
        execution = call.run(function, [Value(type_of(oid), text) for oid, text in zip(function.types, row, strict=True)], self._session)
        if function.result == registry.VOID:
            return ""
        if function.outputs:
            texts = [value.text for value in execution.rows[0]] if execution.rows else []
            return record.print_record(texts) if len(texts) > 1 else next(iter(texts), None)
        result = execution.result
        if isinstance(result, Row):
            result = execution.host.types.value_of(result)
        return None if result is None else result.text
