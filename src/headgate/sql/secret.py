"""Hides passwords and keys in the text of statements and errors, for the log and pg_stat_statements.

`hidden` tokenizes a statement with PostgreSQL's own scanner, so that a password is hidden in any notation: E'…', U&'…', $$…$$, after
comments, in a connection string or URI. Called by the server's log. Invariant: a text that cannot be scanned, or is too large, is hidden
from the first position that could be a password. Hiding too much does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.sql import grammar

HIDDEN = "<hidden>"
_SCANNED = 64 << 10
"""The most characters of a statement to tokenize: each token is an object, and the interpreter's lock is held while they are created."""
_SHOWN = 1 << 20
"""The number of characters to which a statement is cut."""
_SEARCHED, _LONGEST_WORD = 64 << 10, 32
"""The characters searched for a word at once, and those of the longest word: a search holds the interpreter's lock."""
_SUSPECT = re.compile(r"password|secret|token|access.?key|connection|://|\b(?:role|user|group)\b", re.IGNORECASE)
"""A text without any of these contains no secret."""
_IN_SUSPECT = ("password", "secret", "token", "access", "connect", "://", "role", "user", "group")
"""Parts of these words in casefolded text, which are quick to search. They avoid the letter i, whose variants folding keeps and IGNORECASE
matches."""
_IN_URI = re.compile(rb"://[^/\s]*@")
"""Matches a string with a password but without the word."""
_NAMED_SO = re.compile(rb"password|secret|token|access.?key", re.IGNORECASE)
"""Matches names of settings and options whose values are hidden. Spark hides by the same words (spark.redaction.regex)."""
_SETTING = re.compile(rb"'[\w.]*(?:password|secret|token|access.?key)[\w.]*'", re.IGNORECASE)
"""Matches a string that is such a name."""
_FIRST = re.compile(r"['$]|password|secret|token|access.?key|connection", re.IGNORECASE)
_NEAR = re.compile(r' (?:at or near|after) "(?:(?:[EeBbXxNn]|[Uu]&)?[\'$]).*', re.DOTALL)
_NEAR_ANYTHING = re.compile(r' (?:at or near|after) ".*', re.DOTALL)
_CONNECTION = "invalid connection string syntax: "
_COMMENTS = {pb.SQL_COMMENT, pb.C_COMMENT}
_STRINGS = {pb.SCONST, pb.USCONST, pb.BCONST, pb.XCONST}
_BETWEEN = {pb.NCHAR, pb.TO, pb.EQUALS_GREATER, pb.COLON_EQUALS, *map(ord, "=(.,")}
"""Tokens allowed between the word password and the password. After a dot a name continues; the comma is that of set_config."""
_WORDS = {pb.IDENT, pb.ICONST, pb.FCONST}
_ROLES = {pb.ROLE, pb.USER, pb.GROUP_P}
_NO_SECRETS = {pb.NULL_P, pb.DEFAULT, pb.SET, pb.LIMIT, pb.PASSWORD}
"""Words after an announcing word that are not secrets: PASSWORD NULL, TO DEFAULT, CONNECTION LIMIT. A role may be called my_secret."""


def hidden(statement: str) -> str:
    """Return the statement with its passwords hidden, cut to `_SHOWN` characters."""
    if len(statement) > _SHOWN:
        return hidden(statement[:_SHOWN]) + "..."
    shown, end_of_last = [], 0
    for start, end in _places(statement):
        shown += [statement[end_of_last:start], HIDDEN]
        end_of_last = end
    return "".join([*shown, statement[end_of_last:]])


def hidden_error(message: str, statement: str = "", position: int | None = None) -> str:
    """Hide the quoted string in an error message, or a word that `hidden` would hide in the statement (`position` from 1)."""
    if message.startswith(_CONNECTION):
        return _CONNECTION + HIDDEN
    near = _NEAR
    if position is not None and _NEAR_ANYTHING.search(message):
        near = _NEAR_ANYTHING if any(start < position <= end for start, end in _places(statement[:_SHOWN])) else _NEAR
    return near.sub(f' at or near "{HIDDEN}"', message)


def _places(statement: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the secrets in a statement, in order: the first character, and the one after the last."""
    if not _is_suspect(statement):
        return
    encoded = statement.encode(errors="replace")
    try:
        tokens = None if len(statement) > _SCANNED or b"\0" in encoded else grammar.scan(statement).tokens
    except Exception:  # noqa: BLE001 - the text cannot be tokenized, whatever the reason
        tokens = None
    if tokens is None:
        yield from _from_suspect(statement)
        return
    for token in _secrets(encoded, (token for token in tokens if token.token not in _COMMENTS)):
        yield len(encoded[: token.start].decode()), len(encoded[: token.end].decode())


def _is_suspect(statement: str) -> bool:
    """Return whether a statement may contain a secret."""
    for start in range(0, len(statement), _SEARCHED):
        end = start + _SEARCHED + _LONGEST_WORD
        part = statement[start:end].casefold()
        if any(word in part for word in _IN_SUSPECT) and _SUSPECT.search(statement, start, end):
            return True
    return False


def _from_suspect(statement: str) -> Iterator[tuple[int, int]]:
    """Yield the range of a text that cannot be tokenized, from its first quote or the first word that announces a secret."""
    for start in range(0, len(statement), _SEARCHED):
        match = _FIRST.search(statement, start, start + _SEARCHED + _LONGEST_WORD)
        if match is not None:
            yield match.start() if match[0] in "'$" else match.end(), len(statement)
            return


@dataclass
class _Place:
    """The state of the scan at a token."""

    words: list[int] = field(default_factory=list)
    """The first two tokens."""
    password: bool = False
    """Whether a password may follow."""
    connection: bool = False
    name: bytes = b""
    """The current name as far as it has been scanned: words with dots between them."""
    dot: bool = False
    """Whether the last token was a dot, after which a name continues."""
    open: bool = False
    """Whether strings are shown, as after UNTIL or SET."""
    given: bool = False
    """Whether a string has followed the announcement of a secret."""
    sets: bool = False
    """Whether the value of a setting follows after its name."""

    @property
    def secret(self) -> bool:
        """Whether the next string is hidden."""
        return self.password or self.connection or (self.of_role and not self.open)

    def announces(self, kind: int) -> bool:
        """Return whether a non-string token is where a secret is expected: its quotes are missing, or it needs none."""
        if kind in _BETWEEN or kind in _NO_SECRETS or len(self.words) < 2 or (self.given and kind not in _WORDS):
            return False
        return (self.password and (self.of_role or self.sets)) or (self.connection and self.words[1] == pb.SUBSCRIPTION)

    @property
    def of_role(self) -> bool:
        """Whether the statement creates or alters a role."""
        return len(self.words) == 2 and self.words[0] in {pb.CREATE, pb.ALTER} and self.words[1] in _ROLES


def _secrets(text: bytes, tokens: Iterable[pb.ScanToken]) -> Iterator[pb.ScanToken]:
    state = _Place()
    for token in tokens:
        kind, word = token.token, text[token.start : token.end]
        in_name = state.dot or kind == ord(".")
        state.name, state.dot = state.name + word if in_name else word, kind == ord(".")
        if kind in _STRINGS and _NAMED_SO.search(word) and not _SETTING.fullmatch(word):
            # After a superfluous quote, strings and other text are swapped, so that the rest cannot be interpreted.
            yield pb.ScanToken(start=token.start, end=len(text))
            return
        if kind == ord(";"):
            state = _Place()
            continue
        if kind not in _STRINGS and not in_name and state.announces(kind):
            yield pb.ScanToken(start=token.start, end=len(text))  # it may contain any characters
            return
        if len(state.words) < 2:
            state.words.append(kind)
        if kind in _STRINGS and (state.secret or _IN_URI.search(word)):
            state.given = True
            yield token
        elif kind in _STRINGS and _SETTING.fullmatch(word):
            state.password = True
        elif kind == pb.PASSWORD or ((kind == pb.IDENT or b"." in state.name) and _NAMED_SO.search(state.name)):
            state.password, state.connection, state.open, state.given = True, False, False, False
        elif kind not in _BETWEEN:
            state.password = False
            state.connection, state.given = kind == pb.CONNECTION, False
            state.open = state.open or kind in {pb.UNTIL, pb.SET}
            state.sets = state.sets or (kind == pb.SET and state.words[0] in {pb.SET, pb.ALTER})
