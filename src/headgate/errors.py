"""The one error type of a node, with the fields of PostgreSQL's ErrorResponse and NoticeResponse.

Every floor raises `PostgresError`; the server writes its fields to the wire, the log prints them as PostgreSQL does.
Invariant: `message` starts in lower case, has no full stop and puts names in double quotes; `detail` and `hint`
are sentences; causes are chained with ``raise … from``; row values and passwords appear only where PostgreSQL's own
message has them (``Key (a)=(1) already exists.``).
"""

from __future__ import annotations

import enum
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[PostgresError], tuple[object, ...]]:
        return (
            type(self),
            (
                self.sqlstate,
                self.message,
                self.detail,
                self.hint,
                self.position,
                self.context,
                self.severity,
                self.schema,
                self.table,
                self.column,
                self.datatype,
                self.constraint,
                self.internal_position,
                self.internal_query,
                self.log_detail,
            ),
        )

    def within(self, context: str) -> PostgresError:
        """Adds an outer line to the error's context and returns the error itself."""
        self.context = context if self.context is None else f"{self.context}\n{context}"
        return self


@dataclass(frozen=True)
class Notice:
    """A message that accompanies a command without failing it (NoticeResponse)."""

    severity: Severity
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


@dataclass
class Notices:
    """Collects what a running command has to say; the session sends them before the command's tag."""

    said: list[Notice] = field(default_factory=list)

    def notice(self, message: str, *, sqlstate: str = "00000", detail: str | None = None, hint: str | None = None) -> None:
        """Says a NOTICE."""
        self.said.append(Notice(Severity.NOTICE, sqlstate, message, detail, hint))

    def warning(self, message: str, *, sqlstate: str = "01000", detail: str | None = None, hint: str | None = None) -> None:
        """Says a WARNING."""
        self.said.append(Notice(Severity.WARNING, sqlstate, message, detail, hint))


def not_supported(message: str, *, detail: str | None = None, hint: str | None = None, position: int | None = None) -> PostgresError:
    """An error 0A000: PostgreSQL has the feature and a node has not, or neither has."""
    return PostgresError("0A000", message, detail=detail, hint=hint, position=position)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, once each: an error to which a line of context was added may be its own cause."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def disk_full(error: BaseException, path: object = "") -> PostgresError | None:
    """53100 where an exception says that the disk has no room: of Python, Arrow, Java (by Py4J, Spark, Delta) or DuckDB; None otherwise.

    The one place that knows it: what reports it must call it neither a conflict, which clients repeat, nor damage. `path`: the file, for
    who knows it better.
    """
    for seen in causes(error):
        if isinstance(seen, PostgresError) and seen.sqlstate == "53100":
            return seen
        if isinstance(seen, OSError) and seen.errno in _NO_ROOM:
            return _no_room(path or seen.filename, os.strerror(seen.errno))
    found = None if isinstance(error, PostgresError) else _FULL.search(str(error))
    if found is None:
        return None
    named = _FILE.search(found.string[: found.start(1)])
    return _no_room(path or (named and (named[1] or named[2])), found[1])


def cannot_write(error: OSError, path: object) -> PostgresError:
    """A file that the operating system does not let be written: 53100 on a full disk, otherwise 58030."""
    return disk_full(error, path) or PostgresError("58030", f'could not write to file "{path}": {error.strerror}')


def _no_room(path: object, reason: str) -> PostgresError:
    where = f'file "{path}"' if path else "a file"
    return PostgresError("53100", f"could not write to {where}: {reason}", hint="Check free disk space.")
