"""The functions by which EXECUTE and PREPARE run and describe the prepared statement, and FETCH runs the statement of a portal.

`extended_query` fills them in: it is above `utility`, which runs EXECUTE, PREPARE and FETCH.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.commands.result import CommandResult, CopyIn, CopyOut, Result
from headgate.server.protocol.portal import Portal, PreparedStatement
from headgate.sql.parser import Statement
from headgate.types.resultset import ResultSet


@dataclass(frozen=True)
class NestedStatements:
    """The functions.

    prepare          parse and describe a statement: its name, its text, the types of its parameters, its parse tree
    start_portal     run the statement of a bound portal until its result is available
    check_unchanged  raise 0A000 if the result's columns differ from those that were described
    start            run a statement until its result is available
    tag_of           return the command tag of a result without rows. The data of a COPY are transferred first
    """

    prepare: Callable[[str, str, tuple[int, ...], Statement | None], PreparedStatement]
    start_portal: Callable[[Portal, Statement], None]
    check_unchanged: Callable[[PreparedStatement, Statement, ResultSet], None]
    start: Callable[[Statement], Result | str]
    tag_of: Callable[[str | CommandResult | CopyIn | CopyOut], str]
