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
_SCANNED = 1 << 20
"""Bytes of a statement that is taken apart: each of its tokens is an object."""
_SUSPECT = re.compile(r"password|secret|token|access.?key|connection|://|\b(?:role|user|group)\b", re.IGNORECASE)
"""Text without any of these has nothing to hide."""
_IN_URI = re.compile(rb"://[^/\s]*@")
"""What makes a string one that has a password in it, without the word."""
_NAMED_SO = re.compile(rb"password|secret|token|access.?key", re.IGNORECASE)
"""Names of settings and options whose values are hidden; Spark hides by the same words (spark.redaction.regex)."""
_SETTING = re.compile(rb"'[\w.]*(?:password|secret|token|access.?key)[\w.]*'", re.IGNORECASE)
"""A string that is such a name."""
_FIRST = re.compile(r"['$]|password", re.IGNORECASE)
_NEAR = re.compile(r' (?:at or near|after) "(?:(?:[EeBbXxNn]|[Uu]&)?[\'$]).*', re.DOTALL)
_CONNECTION = "invalid connection string syntax: "
_COMMENTS = {pb.SQL_COMMENT, pb.C_COMMENT}
_STRINGS = {pb.SCONST, pb.USCONST, pb.BCONST, pb.XCONST}
_BETWEEN = {pb.NCHAR, pb.TO, pb.EQUALS_GREATER, pb.COLON_EQUALS, *map(ord, "=(.,")}
"""What may stand between the word password and the password: behind a dot a name goes on, a comma is that of set_config."""
_ROLES = {pb.ROLE, pb.USER, pb.GROUP_P}


def hidden(statement: str) -> str:
    """The statement with its passwords hidden."""
    if not _SUSPECT.search(statement):
        return statement
    if len(statement) > _SCANNED:
        return _until_suspect(statement)
    try:
        tokens = [token for token in grammar.scan(statement).tokens if token.token not in _COMMENTS]
        encoded = statement.encode()
    except Exception:  # noqa: BLE001 - whatever it is, the text is not taken apart
        return _until_suspect(statement)
    if b"\0" in encoded:
        return _until_suspect(statement)
    shown, at = [], 0
    for token in _secrets(encoded, tokens):
        shown += [encoded[at : token.start], HIDDEN.encode()]
        at = token.end
    return b"".join([*shown, encoded[at:]]).decode()


def hidden_error(message: str) -> str:
    """An error's message without the string at which it stopped."""
    if message.startswith(_CONNECTION):
        return _CONNECTION + HIDDEN
    return _NEAR.sub(f' at or near "{HIDDEN}"', message)


def _until_suspect(statement: str) -> str:
    """The text up to the first quote or the word password."""
    found = _FIRST.search(statement)
    if found is None:
        return statement
    end = found.start() if found[0] in "'$" else found.end()
    return f"{statement[:end]}{HIDDEN}"


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

    @property
    def secret(self) -> bool:
        """Whether a string that comes next is hidden."""
        return self.password or self.connection or (self.of_role and not self.open)

    @property
    def of_role(self) -> bool:
        """Whether it makes or changes a role."""
        return len(self.words) == 2 and self.words[0] in {pb.CREATE, pb.ALTER} and self.words[1] in _ROLES


def _secrets(text: bytes, tokens: Iterable[pb.ScanToken]) -> Iterator[pb.ScanToken]:
    place = _Place()
    for token in tokens:
        kind, word = token.token, text[token.start : token.end]
        place.name, place.dot = place.name + word if place.dot or kind == ord(".") else word, kind == ord(".")
        if kind in _STRINGS and _NAMED_SO.search(word) and not _SETTING.fullmatch(word):
            # Behind a quote too many what was within quotes is without, so that nothing that follows is what it seems.
            yield pb.ScanToken(start=token.start, end=len(text))
            return
        if kind == ord(";"):
            place = _Place()
        elif len(place.words) < 2:
            place.words.append(kind)
        elif kind in _STRINGS and (place.secret or _IN_URI.search(word)):
            yield token
        elif kind in _STRINGS and _SETTING.fullmatch(word):
            place.password = True
        elif kind == pb.PASSWORD or ((kind == pb.IDENT or b"." in place.name) and _NAMED_SO.search(place.name)):
            place.password, place.connection, place.open = True, False, False
        elif place.password and place.of_role and kind in {pb.IDENT, pb.ICONST, pb.FCONST}:
            yield token  # the quotes were forgotten
        elif kind not in _BETWEEN:
            place.password = False
            place.connection = kind == pb.CONNECTION
            place.open = place.open or kind in {pb.UNTIL, pb.SET}
