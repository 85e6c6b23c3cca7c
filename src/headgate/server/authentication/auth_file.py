"""The lines and words of pg_hba.conf, pg_ident.conf and the files that they name with ``@`` (manual, 21.1; hba.c, tokenize_auth_file).

`read` gives each line that is not empty, as fields of words; `hba` and `ident_map` say what they mean. What must hold: a line that names a
file which cannot be read is wrong as a whole, so that it lets nobody in, and keeps nobody out without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import PostgresError, Severity

_BLANK = " \t\r"
_DEEPEST = 10
"""How many files may name each other in turn."""


@dataclass(frozen=True)
class Word:
    """A word of a line; one that begins with a quote is never a keyword."""

    text: str
    quoted: bool

    def keyword(self, text: str) -> bool:
        """Whether it is that keyword."""
        return not self.quoted and self.text == text


@dataclass(frozen=True)
class AuthLine:
    """A line: its first number in the file, its text, its fields, and what is wrong with it."""

    number: int
    text: str
    fields: tuple[tuple[Word, ...], ...]
    error: str | None = None


def read(path: Path, what: str = "configuration file") -> list[AuthLine]:
    """The lines of a file; F0000 if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        message = f'could not open {what} "{path}": {error.strerror}'
        raise PostgresError("F0000", message, severity=Severity.LOG) from error
    return list(_lines(text, path, 0))


def _lines(text: str, path: Path, depth: int) -> Iterator[AuthLine]:
    for number, line in _joined(text):
        fields, error = _fields(line, path, depth)
        if fields or error:
            yield AuthLine(number, line, fields, error)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that continue them after a backslash, by the number of the first."""
    begun, number, parts = 1, 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.rstrip("\r")
        # a backslash that was behind the last one stands alone on its line and goes on as well
        if stripped.endswith("\\"):
            parts.append(stripped[:-1])
            continue
        yield begun, "".join([*parts, stripped])
        begun, parts = number + 1, []
    if parts:
        yield begun, "".join(parts)


def _fields(line: str, path: Path, depth: int) -> tuple[tuple[tuple[Word, ...], ...], str | None]:
    """The fields, and what is wrong: nothing behind that is looked at."""
    fields: list[tuple[Word, ...]] = []
    at, error = 0, None
    while at < len(line) and error is None:
        at, words, error = _field(line, at, path, depth)
        if words:
            fields.append(tuple(words))
    return tuple(fields), error


def _field(line: str, at: int, path: Path, depth: int) -> tuple[int, list[Word], str | None]:
    """Words with commas behind them and the last one: where it ends, the words, what is wrong."""
    words: list[Word] = []
    more = True
    while more:
        at, word, more = _word(line, at)
        if word is None:
            break
        if word.quoted or not word.text.startswith("@") or len(word.text) == 1:
            words.append(word)
            continue
        found, error = _included(word.text[1:], path, depth)
        words += found
        if error is not None:
            return at, words, error
    return at, words, None


def _word(line: str, at: int) -> tuple[int, Word | None, bool]:
    """Where the next word ends, the word (None at the line's end), and whether a comma follows it at once (next_token)."""
    while at < len(line) and line[at] in _BLANK + ",":
        at += 1
    found: list[str] = []
    quoting = doubled = begins = seen = comma = False
    while at < len(line) and (quoting or line[at] not in _BLANK):
        char = line[at]
        if char == "#" and not quoting:
            at = len(line)
            break
        at += 1
        if char == "," and not quoting:
            comma = True
            break
        if char != '"' or doubled:
            found.append(char)
        doubled = quoting and char == '"' and not doubled
        if char == '"':
            quoting, seen = not quoting, True
            begins = begins or not found
    return at, Word("".join(found), begins) if seen or found else None, comma


def _included(name: str, outer: Path, depth: int) -> tuple[list[Word], str | None]:
    """The words of a file that another names; what is wrong with it."""
    path = outer.parent / name
    trouble = f'could not open secondary authentication file "@{name}" as "{path}": '
    if depth == _DEEPEST:
        return [], trouble + "maximum nesting depth exceeded"
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        return [], f"{trouble}{error.strerror}"
    except ValueError:  # no file has a zero byte in its name
        return [], f"{trouble}No such file or directory"
    words: list[Word] = []
    for line in _lines(text, path, depth + 1):
        if line.error is not None:
            return words, line.error
        words += [word for field in line.fields for word in field]
    return words, None
