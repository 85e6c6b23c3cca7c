"""Passwords and keys in the text of statements: what the log and pg_stat_statements show of a statement, and of an error about it.

`hidden` takes a statement apart with PostgreSQL's own scanner, so that a password is hidden however it is written: E'…', U&'…', $$…$$,
behind comments, in a connection string or URI. Called by the server's log. What must hold: of text that cannot be scanned, or is too large
for it, nothing is shown from the first place on that could be a password; what is hidden needlessly does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.sql import grammar

HIDDEN = "<hidden>"
_SCANNED = 64 << 10
"""Characters of a statement that is taken apart: each token is an object, and the interpreter's lock is held while they are made."""
_SHOWN = 1 << 20
"""Characters of a statement beyond which it is cut."""
_SEARCHED, _LONGEST_WORD = 64 << 10, 32
"""Characters in which a word is looked for at once, and of the longest word: a search holds the interpreter's lock."""
_SUSPECT = re.compile(r"password|secret|token|access.?key|connection|://|\b(?:role|user|group)\b", re.IGNORECASE)
"""Text without any of these has nothing to hide."""
_IN_SUSPECT = ("password", "secret", "token", "access", "connect", "://", "role", "user", "group")
"""What folded text has if it has any of these: quick to look for. No i, of which folding leaves some that IGNORECASE takes."""
_IN_URI = re.compile(rb"://[^/\s]*@")
"""What makes a string one that has a password in it, without the word."""
_NAMED_SO = re.compile(rb"password|secret|token|access.?key", re.IGNORECASE)
"""Names of settings and options whose values are hidden; Spark hides by the same words (spark.redaction.regex)."""
_SETTING = re.compile(rb"'[\w.]*(?:password|secret|token|access.?key)[\w.]*'", re.IGNORECASE)
"""A string that is such a name."""
_FIRST = re.compile(r"['$]|password|secret|token|access.?key|connection", re.IGNORECASE)
_NEAR = re.compile(r' (?:at or near|after) "(?:(?:[EeBbXxNn]|[Uu]&)?[\'$]).*', re.DOTALL)
_NEAR_ANYTHING = re.compile(r' (?:at or near|after) ".*', re.DOTALL)
_CONNECTION = "invalid connection string syntax: "
_COMMENTS = {pb.SQL_COMMENT, pb.C_COMMENT}
_STRINGS = {pb.SCONST, pb.USCONST, pb.BCONST, pb.XCONST}
_BETWEEN = {pb.NCHAR, pb.TO, pb.EQUALS_GREATER, pb.COLON_EQUALS, *map(ord, "=(.,")}
"""What may stand between the word password and the password: behind a dot a name goes on, a comma is that of set_config."""
_WORDS = {pb.IDENT, pb.ICONST, pb.FCONST}
_ROLES = {pb.ROLE, pb.USER, pb.GROUP_P}
_NO_SECRETS = {pb.NULL_P, pb.DEFAULT, pb.SET, pb.LIMIT, pb.PASSWORD}
"""Words behind one that announces a secret which are none: PASSWORD NULL, TO DEFAULT, CONNECTION LIMIT; a role may be called my_secret."""


def hidden(statement: str) -> str:
    """The statement with its passwords hidden; what is longer than `_SHOWN` is cut."""
    if len(statement) > _SHOWN:
        return hidden(statement[:_SHOWN]) + "..."
    shown, at = [], 0
    for start, end in _places(statement):
        shown += [statement[at:start], HIDDEN]
        at = end
    return "".join([*shown, statement[at:]])


def hidden_error(message: str, statement: str = "", position: int | None = None) -> str:
    """An error's message without the string at which it stopped, or the word that `hidden` hides in the statement (`position` from 1)."""
    if message.startswith(_CONNECTION):
        return _CONNECTION + HIDDEN
    near = _NEAR
    if position is not None and _NEAR_ANYTHING.search(message):
        near = _NEAR_ANYTHING if any(start < position <= end for start, end in _places(statement[:_SHOWN])) else _NEAR
    return near.sub(f' at or near "{HIDDEN}"', message)


def _places(statement: str) -> Iterator[tuple[int, int]]:
    """Where in a statement secrets stand, in its order: the first character of each, and the one behind it."""
    if not _is_suspect(statement):
        return
    encoded = statement.encode(errors="replace")
    try:
        tokens = None if len(statement) > _SCANNED or b"\0" in encoded else grammar.scan(statement).tokens
    except Exception:  # noqa: BLE001 - whatever it is, the text is not taken apart
        tokens = None
    if tokens is None:
        yield from _from_suspect(statement)
        return
    for token in _secrets(encoded, (token for token in tokens if token.token not in _COMMENTS)):
        yield len(encoded[: token.start].decode()), len(encoded[: token.end].decode())


def _is_suspect(statement: str) -> bool:
    """Return whether a statement may have something to hide."""
    for start in range(0, len(statement), _SEARCHED):
        end = start + _SEARCHED + _LONGEST_WORD
        part = statement[start:end].casefold()
        if any(word in part for word in _IN_SUSPECT) and _SUSPECT.search(statement, start, end):
            return True
    return False


def _from_suspect(statement: str) -> Iterator[tuple[int, int]]:
    """All of a text that cannot be taken apart, from its first quote on, or from the first word that announces a secret."""
    for start in range(0, len(statement), _SEARCHED):
        found = _FIRST.search(statement, start, start + _SEARCHED + _LONGEST_WORD)
        if found is not None:
            yield found.start() if found[0] in "'$" else found.end(), len(statement)
            return


@dataclass
class _Place:
    """Where in a statement the scan is."""

    words: list[int] = field(default_factory=list)
    """The first two."""
    password: bool = False
    """Whether a password may come next."""
    connection: bool = False
    name: bytes = b""
    """The name at which the scan is, as far as it goes: words with dots between them."""
    dot: bool = False
    """Whether the last token was a dot, behind which a name goes on."""
    open: bool = False
    """Behind UNTIL or SET strings are shown."""
    given: bool = False
    """Whether a string has come where a secret was announced."""
    sets: bool = False
    """Whether the value of a setting comes, once its name has come."""

    @property
    def secret(self) -> bool:
        """Whether a string that comes next is hidden."""
        return self.password or self.connection or (self.of_role and not self.open)

    def announces(self, kind: int) -> bool:
        """Whether a secret should stand where a token stands that is no string: its quotes were forgotten, or it needs none."""
        if kind in _BETWEEN or kind in _NO_SECRETS or len(self.words) < 2 or (self.given and kind not in _WORDS):
            return False
        return (self.password and (self.of_role or self.sets)) or (self.connection and self.words[1] == pb.SUBSCRIPTION)

    @property
    def of_role(self) -> bool:
        """Whether it makes or changes a role."""
        return len(self.words) == 2 and self.words[0] in {pb.CREATE, pb.ALTER} and self.words[1] in _ROLES


def _secrets(text: bytes, tokens: Iterable[pb.ScanToken]) -> Iterator[pb.ScanToken]:
    place = _Place()
    for token in tokens:
        kind, word = token.token, text[token.start : token.end]
        in_name = place.dot or kind == ord(".")
        place.name, place.dot = place.name + word if in_name else word, kind == ord(".")
        if kind in _STRINGS and _NAMED_SO.search(word) and not _SETTING.fullmatch(word):
            # Behind a quote too many what was within quotes is without, so that nothing that follows is what it seems.
            yield pb.ScanToken(start=token.start, end=len(text))
            return
        if kind == ord(";"):
            place = _Place()
            continue
        if kind not in _STRINGS and not in_name and place.announces(kind):
            yield pb.ScanToken(start=token.start, end=len(text))  # it may have any characters
            return
        if len(place.words) < 2:
            place.words.append(kind)
        if kind in _STRINGS and (place.secret or _IN_URI.search(word)):
            place.given = True
            yield token
        elif kind in _STRINGS and _SETTING.fullmatch(word):
            place.password = True
        elif kind == pb.PASSWORD or ((kind == pb.IDENT or b"." in place.name) and _NAMED_SO.search(place.name)):
            place.password, place.connection, place.open, place.given = True, False, False, False
        elif kind not in _BETWEEN:
            place.password = False
            place.connection, place.given = kind == pb.CONNECTION, False
            place.open = place.open or kind in {pb.UNTIL, pb.SET}
            place.sets = place.sets or (kind == pb.SET and place.words[0] in {pb.SET, pb.ALTER})
