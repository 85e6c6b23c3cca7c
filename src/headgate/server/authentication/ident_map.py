r"""pg_ident.conf: maps the names in certificates to roles (manual, 21.2).

`IdentMap.read` reads PostgreSQL's format. Authentication calls `IdentMap.allows` if a line of pg_hba.conf has ``map=``. A system name that
begins with a slash is a regular expression, whose first group replaces ``\1`` in the role's name. Invariants: a file with any invalid line
is not used. A node without the file has no maps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.expression.functions.regex.matcher import MatchSubject
from headgate.expression.functions.regex.parser import parse
from headgate.expression.functions.regex.pattern import Pattern
from headgate.server.authentication import auth_file
from headgate.server.authentication.auth_file import AuthLine

_SHORT = "missing entry at end of line"
_log = logging.getLogger("headgate.server")


@dataclass(frozen=True)
class IdentLine:
    """One line. `pattern` is set if the system name is a regular expression."""

    number: int
    map: str
    system: str
    role: str
    pattern: Pattern | None


@dataclass(frozen=True)
class IdentMap:
    """The lines of one pg_ident.conf, and the log messages about it."""

    lines: tuple[IdentLine, ...] = ()
    complaints: tuple[PostgresError, ...] = ()

    @classmethod
    def read(cls, path: Path) -> IdentMap:
        if not path.exists():
            return cls()
        try:
            file_lines = auth_file.read(path, "usermap file")
        except PostgresError as error:
            return cls((), (error,))
        lines: list[IdentLine] = []
        complaints: list[PostgresError] = []
        for file_line in file_lines:
            try:
                lines.append(_parse(file_line))
            except _LineError as error:
                message, context = str(error), f'line {file_line.number} of configuration file "{path}"'
                if message == _SHORT:
                    message, context = f'missing entry in file "{path}" at end of line {file_line.number}', ""
                complaints.append(PostgresError("F0000", message, context=None if file_line.error else context, severity=Severity.LOG))
        return cls(tuple(lines), tuple(complaints))

    def allows(self, name: str, user: str, system: str) -> bool:
        """Return whether the authenticated `system` user may use the role `user`. Log it if not."""
        for line in self.lines:
            if line.map != name:
                continue
            if line.pattern is None:
                if (line.role, line.system) == (user, system):
                    return True
                continue
            role = _role(line, line.pattern, system)
            if role == user:
                return True
        _log.info('no match in usermap "%s" for user "%s" authenticated as "%s"', name, user, system)
        return False


class _LineError(Exception):
    pass


def mappings(path: Path) -> Iterator[tuple[int, IdentLine | None, str | None]]:
    """Yield number, parsed line and error of each line for pg_ident_file_mappings. Raise the file's error if it cannot be read."""
    for file_line in auth_file.read(path, "usermap file"):
        try:
            yield file_line.number, _parse(file_line), None
        except _LineError as error:
            yield file_line.number, None, str(error)


def _parse(line: AuthLine) -> IdentLine:
    if line.error is not None:
        raise _LineError(line.error)
    if any(len(words) > 1 for words in line.fields[:3]):
        raise _LineError("multiple values in ident field")
    if len(line.fields) < 3:
        raise _LineError(_SHORT)
    name, system, role = (words[0].text for words in line.fields[:3])
    pattern = None
    if system.startswith("/"):
        try:
            pattern = parse(system[1:])
        except PostgresError as error:
            reason = error.message.removeprefix("invalid regular expression: ")
            raise _LineError(f'invalid regular expression "{system[1:]}": {reason}') from error
    return IdentLine(line.number, name, system, role, pattern)


def _role(line: IdentLine, pattern: Pattern, system: str) -> str | None:
    spans = MatchSubject(pattern, system).find(0)
    if spans is None:
        return None
    if "\\1" not in line.role:
        return line.role
    group = spans[1] if len(spans) > 1 else None
    if group is None:
        text = 'regular expression "%s" has no subexpressions as requested by backreference in "%s"'
        _log.info(text, line.system[1:], line.role)
        return None
    return line.role.replace("\\1", system[group[0] : group[1]], 1)
