"""Passwords as pg_authid.rolpassword stores them: SCRAM-SHA-256 verifiers and md5 hashes (crypt.c, scram-common.c, saslprep.c).

Called by CREATE and ALTER ROLE, by initdb and by authentication. Invariant: the password that a client sends and the stored one are
converted to the same bytes. Both go through SASLprep (RFC 4013). If SASLprep refuses a password, its bytes are used unchanged. Passwords
are never logged.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import os
import re
import stringprep
import unicodedata
from dataclasses import dataclass

ITERATIONS = 4096
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d+):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)\Z")
_MD5 = re.compile(r"md5[0-9a-f]{32}\Z")


class PasswordKind(enum.StrEnum):
    """The kind of a password text. The values are those of password_encryption."""

    MD5 = "md5"
    SCRAM = "scram-sha-256"
    PLAIN = "plain"


@dataclass(frozen=True)
class Verifier:
    """A SCRAM verifier, which the server stores instead of the password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def parse(cls, text: str) -> Verifier | None:
        """Parse pg_authid.rolpassword. Return None if it is not a SCRAM verifier."""
        match = _VERIFIER.match(text)
        if not match:
            return None
        try:
            verifier = cls(int(match[1]), *(base64.b64decode(part, validate=True) for part in match.groups()[1:]))
        except binascii.Error:
            return None
        return verifier if len(verifier.stored_key) == len(verifier.server_key) == 32 else None

    @classmethod
    def of_password(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
        """Return the verifier that PostgreSQL would store for the password."""
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))

    def __str__(self) -> str:
        salt, stored, server = (base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"


def kind(text: str) -> PasswordKind:
    """Return whether the text is a stored form of a password, or a password (get_password_type)."""
    if _MD5.match(text):
        return PasswordKind.MD5
    return PasswordKind.PLAIN if Verifier.parse(text) is None else PasswordKind.SCRAM


def stored(password: str, role: str, encryption: str = PasswordKind.SCRAM) -> str:
    """Return the stored form of a new password. A text that is already a stored form is returned unchanged."""
    if kind(password) is not PasswordKind.PLAIN:
        return password
    if encryption == PasswordKind.MD5:
        return md5(password, role)
    return str(Verifier.of_password(password, os.urandom(16)))


def matches(password: str, stored_password: str, role: str) -> bool:
    """Return whether a clear-text password matches the stored one."""
    verifier = Verifier.parse(stored_password)
    if verifier is not None:
        try:
            candidate = Verifier.of_password(password, verifier.salt, verifier.iterations)
        except (ValueError, OverflowError):  # invalid number of iterations
            return False
        return hmac.compare_digest(candidate.stored_key, verifier.stored_key)
    return hmac.compare_digest(md5(password, role).encode(), stored_password.encode())


def md5(password: str, role: str) -> str:
    """Return PostgreSQL's md5 form of a password."""
    return "md5" + hashlib.md5(_bytes(password) + role.encode(), usedforsecurity=False).hexdigest()


def prepared(password: str) -> bytes:
    """Return the bytes of a password for SCRAM: those of SASLprep, or its own if SASLprep refuses it."""
    normalized = password if password.isascii() else _saslprep(password)
    return _bytes(password if normalized is None else normalized)


def _bytes(text: str) -> bytes:
    """Encode a text. Bytes that are not UTF-8 were decoded with `surrogateescape`."""
    return text.encode("utf-8", "surrogateescape")


def _saslprep(text: str) -> str | None:
    """Apply RFC 4013 as PostgreSQL does, which checks for prohibited characters before it normalizes. Return None if it is refused."""
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if stringprep.in_table_c12(char) or not stringprep.in_table_b1(char)
    )
    if not mapped or any(map(_is_prohibited, mapped)) or not _one_direction(mapped):
        return None
    return unicodedata.normalize("NFKC", mapped)


_PROHIBITED = (
    stringprep.in_table_a1,  # not assigned in Unicode 3.2
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _is_prohibited(char: str) -> bool:
    return any(table(char) for table in _PROHIBITED)


def _one_direction(text: str) -> bool:
    """Return whether right-to-left text is right-to-left as a whole (RFC 3454, 6)."""
    if not any(map(stringprep.in_table_d1, text)):
        return True
    return stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]) and not any(map(stringprep.in_table_d2, text))
