"""The lines and words of pg_hba.conf, pg_ident.conf and the files that they include with ``@`` (manual, 21.1; hba.c, tokenize_auth_file).

`read` returns the lines that are not empty, as fields of words; `hba` and `ident_map` interpret them. Invariant: a line that includes an
unreadable file is invalid as a whole. So it admits no client, and rejects none without an error message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import PostgresError, Severity

_BLANK = " \t\r"
_DEEPEST = 10
"""The maximum depth of included files."""


@dataclass(frozen=True)
class Word:
    """A word of a line. A word that begins with a quote is never a keyword."""

    text: str
    quoted: bool

    def keyword(self, text: str) -> bool:
        return not self.quoted and self.text == text


@dataclass(frozen=True)
class AuthLine:
    """A line: its first line number in the file, its text, its fields, and its error."""

    number: int
    text: str
    fields: tuple[tuple[Word, ...], ...]
    error: str | None = None


def read(path: Path, kind: str = "configuration file") -> list[AuthLine]:
    """Return the lines of a file. Raise F0000 if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        message = f'could not open {kind} "{path}": {error.strerror}'
        raise PostgresError("F0000", message, severity=Severity.LOG) from error
    return list(_lines(text, path, 0))


def _lines(text: str, path: Path, depth: int) -> Iterator[AuthLine]:
    for number, line in _join_lines(text):
        fields, error = _fields(line, path, depth)
        if fields or error:
            yield AuthLine(number, line, fields, error)


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end with a backslash with the next ones. Yield them with the number of the first."""
    first_number, number, parts = 1, 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.rstrip("\r")
        # a backslash alone on the line after a continued one continues it as well
        if stripped.endswith("\\"):
            parts.append(stripped[:-1])
            continue
        yield first_number, "".join([*parts, stripped])
        first_number, parts = number + 1, []
    if parts:
        yield first_number, "".join(parts)


def _fields(line: str, path: Path, depth: int) -> tuple[tuple[tuple[Word, ...], ...], str | None]:
    """Split a line into fields. Stop at the first error, and return it, too."""
    fields: list[tuple[Word, ...]] = []
    index, error = 0, None
    while index < len(line) and error is None:
        index, words, error = _field(line, index, path, depth)
        if words:
            fields.append(tuple(words))
    return tuple(fields), error


def _field(line: str, index: int, path: Path, depth: int) -> tuple[int, list[Word], str | None]:
    """Parse the comma-separated words of one field. Return the index after it, the words and the error."""
    words: list[Word] = []
    has_more = True
    while has_more:
        index, word, has_more = _word(line, index)
        if word is None:
            break
        if word.quoted or not word.text.startswith("@") or len(word.text) == 1:
            words.append(word)
            continue
        included, error = _read_included(word.text[1:], path, depth)
        words += included
        if error is not None:
            return index, words, error
    return index, words, None


def _word(line: str, index: int) -> tuple[int, Word | None, bool]:
    """Return the index after the next word, the word (None at the end of the line), and whether a comma follows directly (next_token)."""
    while index < len(line) and line[index] in _BLANK + ",":
        index += 1
    characters: list[str] = []
    quoting = doubled = is_quoted = seen = comma = False
    while index < len(line) and (quoting or line[index] not in _BLANK):
        char = line[index]
        if char == "#" and not quoting:
            index = len(line)
            break
        index += 1
        if char == "," and not quoting:
            comma = True
            break
        if char != '"' or doubled:
            characters.append(char)
        doubled = quoting and char == '"' and not doubled
        if char == '"':
            quoting, seen = not quoting, True
            is_quoted = is_quoted or not characters
    return index, Word("".join(characters), is_quoted) if seen or characters else None, comma


def _read_included(name: str, outer: Path, depth: int) -> tuple[list[Word], str | None]:
    """Return the words of an included file, and its error."""
    path = outer.parent / name
    message = f'could not open secondary authentication file "@{name}" as "{path}": '
    if depth == _DEEPEST:
        return [], message + "maximum nesting depth exceeded"
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        return [], f"{message}{error.strerror}"
    except ValueError:  # no file has a zero byte in its name
        return [], f"{message}No such file or directory"
    words: list[Word] = []
    for line in _lines(text, path, depth + 1):
        if line.error is not None:
            return words, line.error
        words += [word for field in line.fields for word in field]
    return words, None
