"""Passwords as pg_authid.rolpassword keeps them: SCRAM-SHA-256 verifiers and md5 hashes (crypt.c, scram-common.c, saslprep.c).

Called by CREATE and ALTER ROLE, by initdb and by authentication. What must hold: what a client may send as its password and what is kept of
it are the same bytes: both go through SASLprep (RFC 4013), and where that refuses them, both are taken as they are. Nothing here is ever
logged.
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
    """What a text is; the values are those of password_encryption."""

    MD5 = "md5"
    SCRAM = "scram-sha-256"
    PLAIN = "plain"


@dataclass(frozen=True)
class Verifier:
    """What the server keeps of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def parse(cls, text: str) -> Verifier | None:
        """Reads pg_authid.rolpassword; None if it is no SCRAM verifier."""
        found = _VERIFIER.match(text)
        if not found:
            return None
        try:
            read = cls(int(found[1]), *(base64.b64decode(part, validate=True) for part in found.groups()[1:]))
        except binascii.Error:
            return None
        return read if len(read.stored_key) == len(read.server_key) == 32 else None

    @classmethod
    def of_password(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
        """The verifier that PostgreSQL would store for the password."""
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))

    def __str__(self) -> str:
        salt, stored, server = (base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"


def kind(text: str) -> PasswordKind:
    """Whether the text is what is kept of a password, or a password (get_password_type)."""
    if _MD5.match(text):
        return PasswordKind.MD5
    return PasswordKind.PLAIN if Verifier.parse(text) is None else PasswordKind.SCRAM


def stored(given: str, role: str, encryption: str = PasswordKind.SCRAM) -> str:
    """What is kept of a new password; of what is no password but was kept of one elsewhere, itself."""
    if kind(given) is not PasswordKind.PLAIN:
        return given
    if encryption == PasswordKind.MD5:
        return md5(given, role)
    return str(Verifier.of_password(given, os.urandom(16)))


def matches(password: str, kept: str, role: str) -> bool:
    """Whether a password in clear text is the one that is kept."""
    verifier = Verifier.parse(kept)
    if verifier is not None:
        try:
            made = Verifier.of_password(password, verifier.salt, verifier.iterations)
        except (ValueError, OverflowError):  # a number of iterations that there cannot be
            return False
        return hmac.compare_digest(made.stored_key, verifier.stored_key)
    return hmac.compare_digest(md5(password, role).encode(), kept.encode())


def md5(password: str, role: str) -> str:
    """PostgreSQL's md5 form of a password."""
    return "md5" + hashlib.md5(_bytes(password) + role.encode(), usedforsecurity=False).hexdigest()


def prepared(password: str) -> bytes:
    """The bytes that SCRAM takes of a password: SASLprep's, or its own where that refuses it."""
    found = password if password.isascii() else _saslprep(password)
    return _bytes(password if found is None else found)


def _bytes(text: str) -> bytes:
    """What is no UTF-8 was read with `surrogateescape`."""
    return text.encode("utf-8", "surrogateescape")


def _saslprep(text: str) -> str | None:
    """RFC 4013 as PostgreSQL has it, which looks for prohibited characters before it normalizes; None for what it refuses."""
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if stringprep.in_table_c12(char) or not stringprep.in_table_b1(char)
    )
    if not mapped or any(map(_prohibited, mapped)) or not _one_direction(mapped):
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


def _prohibited(char: str) -> bool:
    return any(table(char) for table in _PROHIBITED)


def _one_direction(text: str) -> bool:
    """Whether text from right to left is that as a whole (RFC 3454, 6)."""
    if not any(map(stringprep.in_table_d1, text)):
        return True
    return stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]) and not any(map(stringprep.in_table_d2, text))
