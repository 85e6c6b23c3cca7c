"""The output of psql for each statement of a regression file, to compare two servers statement by statement.

`pg_regress` runs a file with ``psql -a``. It repeats each line of the file that is not blank before it prints the results of the line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|\$([A-Za-z_]*)\$.*?\$\1\$|^\\[^\n]+|[;()]|\n|[^'\"$/;()\n\\-]+|.",
    re.DOTALL | re.MULTILINE,
)
_COPY = re.compile(r"copy .* from stdin", re.IGNORECASE)


class Answer(NamedTuple):
    """A statement with the lines that PostgreSQL and the node print for it, without blank lines."""

    line: int
    """The number of the statement's last line in the file."""
    statement: str
    expected: list[str]
    printed: list[str]

    @property
    def is_equal(self) -> bool:
        """Whether both servers print the same lines."""
        return self.expected == self.printed


def answers(script: str, expected: str, printed: str) -> list[Answer]:
    """Return the results of all statements of a file, and of psql's own commands."""
    lines, ends = script.split("\n"), _ends(script)
    outputs = [_by_line(lines, text.split("\n")) for text in (expected, printed)]
    found, start = [], 0
    for end in ends:
        sides = [[line for number in range(start, end + 1) for line in output.get(number, ())] for output in outputs]
        found.append(Answer(end + 1, "\n".join(lines[start : end + 1]).strip(), *sides))
        start = end + 1
    return found


def _ends(script: str) -> list[int]:
    """Return the numbers of the lines, from 0, on which statements end. Several statements on a line count as one."""
    ends: list[int] = []
    line = depth = 0
    for match in _TOKEN.finditer(script):
        token = match[0]
        depth += (token == "(") - (token == ")")
        if ((token == ";" and depth <= 0) or (token.startswith("\\") and len(token) > 1)) and (not ends or ends[-1] != line):
            ends.append(line)
        line += token.count("\n")
    return ends


def _by_line(script: list[str], output: list[str]) -> dict[int, list[str]]:
    """Return the lines that psql prints after each line of the script. It does not repeat the data lines of COPY."""
    repeated, in_copy = [], False
    for number, line in enumerate(script):
        if in_copy:
            in_copy = line != "\\."
        elif line.strip():
            repeated.append(number)
            in_copy = _COPY.match(line) is not None
    results: dict[int, list[str]] = {}
    at = 0
    for line in output:
        if not line.strip():
            continue
        if at < len(repeated) and line == script[repeated[at]]:
            at += 1
        else:
            results.setdefault(repeated[max(at - 1, 0)], []).append(line.rstrip())
    assert at == len(repeated), f"psql did not repeat line {repeated[at] + 1}: {script[repeated[at]]}"
    return results
