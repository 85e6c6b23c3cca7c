"""The one error type of a node, with the fields of PostgreSQL's ErrorResponse and NoticeResponse.

Every floor raises `PostgresError`; the server writes its fields to the wire, the log prints them as PostgreSQL does.
Invariant: `message` starts in lower case, has no full stop and puts names in double quotes; `detail` and `hint`
are sentences; causes are chained with ``raise … from``; row values and passwords appear only where PostgreSQL's own
message has them (``Key (a)=(1) already exists.``).
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from typing import TypeVar

T = TypeVar("T")

_FULL = re.compile(r"(?:^|[\]:(] ?)(No space left on device|Disk quota exceeded)\b", re.MULTILINE)
_FILE = re.compile(r"\"(/[^\"\n]+)\"(?:: |[^\"\n]*\()$|(/\S+) \($")
"""The file that Java, Arrow or DuckDB name before they say so: ``"/a/b": No space…``, ``/a/b (No space…``."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Severity(enum.StrEnum):
    """Severity of a message to a client or of a line in the log (manual, 20.8.2)."""

    DEBUG = "DEBUG"
    LOG = "LOG"
    INFO = "INFO"
    NOTICE = "NOTICE"
    WARNING = "WARNING"
    ERROR = "ERROR"
    FATAL = "FATAL"
    PANIC = "PANIC"


@dataclass(eq=False)
class PostgresError(Exception):
    """An error with PostgreSQL's fields (manual, 55.8 Error and Notice Message Fields).

    `position` counts characters of the statement's text from 1. `context` is one line per level, innermost first.
    Instances can be pickled, so that a Spark task can raise them.
    """

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    position: int | None = None
    context: str | None = None
    severity: Severity = Severity.ERROR
    schema: str | None = None
    table: str | None = None
    column: str | None = None
    datatype: str | None = None
    constraint: str | None = None
    internal_position: int | None = None
    internal_query: str | None = None
    """The text of a statement of the server itself, such as one in a function, and a position in it like `position`."""
    log_detail: str | None = None
    """What the log says in place of `detail`; no client is told."""
    row: int | None = None
    """The index of the failing row among the rows that were checked together (`first_error`). It does not leave the process."""
    location: InitVar[int] = -1
    """The place of a node of the parse tree (a character offset, -1 if it has none), instead of `position`."""

    def __post_init__(self, location: int) -> None:
        super().__init__(self.message)
        if location >= 0:
            self.position = location + 1

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[PostgresError], tuple[object, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self) if field.name != "row")

    def within(self, context: str) -> PostgresError:
        """Add an outer line to the error's context, and return the error."""
        self.context = context if self.context is None else f"{self.context}\n{context}"
        return self


@contextlib.contextmanager
def without_position() -> Iterator[None]:
    """Remove the position from an error: PostgreSQL does not pass the statement's text to some commands."""
    try:
        yield
    except PostgresError as error:
        error.position = None
        raise


@dataclass(frozen=True)
class Notice:
    """A message that accompanies a command without failing it (NoticeResponse)."""

    severity: Severity
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    context: str | None = None


@dataclass
class Notices:
    """The notices of a running command. The session sends them before the command's tag.

    `callers`: functions that return the lines of context of the functions and statements that run, the outermost first.
    """

    said: list[Notice] = field(default_factory=list)
    callers: Sequence[Callable[[], str]] = ()

    def say(self, notice: Notice) -> None:
        """Add a notice, with the context in which it is raised."""
        context = "\n".join(filter(None, (line() for line in reversed(self.callers))))
        self.said.append(replace(notice, context=context) if context else notice)

    def notice(self, message: str, *, sqlstate: str = "00000", detail: str | None = None, hint: str | None = None) -> None:
        self.say(Notice(Severity.NOTICE, sqlstate, message, detail, hint))

    def warning(self, message: str, *, sqlstate: str = "01000", detail: str | None = None, hint: str | None = None) -> None:
        self.say(Notice(Severity.WARNING, sqlstate, message, detail, hint))

    def skip(self, error: PostgresError, *, allowed: bool, sqlstate: str = "00000") -> None:
        """Raise the error of an object that exists or does not exist. With IF [NOT] EXISTS (`allowed`), send its message as a NOTICE."""
        if not allowed:
            raise error
        self.notice(f"{error.message}, skipping", sqlstate=sqlstate)


def not_supported(message: str, *, detail: str | None = None, hint: str | None = None, location: int = -1) -> PostgresError:
    """Return an error 0A000: a node does not have the feature, whether PostgreSQL has it or not."""
    return PostgresError("0A000", message, detail=detail, hint=hint, location=location)


def existing(value: T | None, sqlstate: str, subject: str, *, location: int = -1) -> T:
    """Return a value that was looked up. Raise an error that `subject` does not exist if it is None."""
    if value is None:
        raise PostgresError(sqlstate, f"{subject} does not exist", location=location)
    return value


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its chain of causes, each once: an error to which context was added may be its own cause."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def disk_full(error: BaseException, path: object = "") -> PostgresError | None:
    """Return an error 53100 if an exception reports a full disk, otherwise None.

    It recognizes the exceptions of Python, Arrow, Java (through Py4J, Spark or Delta) and DuckDB. Callers check this first, so that a full
    disk is not reported as damage, or as a conflict, after which clients retry. `path`: the file, if the caller knows it.
    """
    for cause in causes(error):
        if isinstance(cause, PostgresError) and cause.sqlstate == "53100":
            return cause
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:
            return _no_room(path or cause.filename, os.strerror(cause.errno))
    full = None if isinstance(error, PostgresError) else _FULL.search(str(error))
    if full is None:
        return None
    file = _FILE.search(full.string[: full.start(1)])
    return _no_room(path or (file and (file[1] or file[2])), full[1])


def cannot_write(error: OSError, path: object) -> PostgresError:
    """Return the error for a file that cannot be written: 53100 if the disk is full, otherwise 58030."""
    return disk_full(error, path) or PostgresError("58030", f'could not write to file "{path}": {error.strerror}')


def _no_room(path: object, reason: str) -> PostgresError:
    where = f'file "{path}"' if path else "a file"
    return PostgresError("53100", f"could not write to {where}: {reason}", hint="Check free disk space.")
