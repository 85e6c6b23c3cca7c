"""SCRAM-SHA-256 and md5 as a server asks for them (manual, 55.3 SASL Authentication; RFC 5802, RFC 7677).

`ScramServer` runs the server's side of one exchange against a verifier in the form of pg_authid.rolpassword,
``SCRAM-SHA-256$4096:salt$StoredKey:ServerKey``; for an unknown role against an invented one, so that an attacker cannot
tell the two apart. Called by authentication. Nothing here is ever logged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re

from headgate.catalog.security.password import ITERATIONS, Verifier
from headgate.errors import PostgresError, Severity

MECHANISM = "SCRAM-SHA-256"
PLUS = "SCRAM-SHA-256-PLUS"
BINDING = "tls-server-end-point"
_CLIENT_FIRST = re.compile(r"([ny]|p=[^,]*),(a=[^,]*)?,((?:m=[^,]*,)?n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)\Z", re.S)
_CLIENT_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,(?!p=)[^,]*)*),p=([A-Za-z0-9+/=]+)\Z")


def md5_answer_matches(answer: str, stored: str, salt: bytes) -> bool:
    """Whether a client's answer to AuthenticationMD5Password is right."""
    expected = "md5" + hashlib.md5(stored[3:].encode() + salt, usedforsecurity=False).hexdigest()
    return hmac.compare_digest(expected.encode(), answer.encode(errors="surrogateescape"))


class ScramServer:
    """One exchange: `first` takes the client's first message, `final` its last; both give what is sent back."""

    def __init__(self, stored: str | None, role: str, node_secret: bytes, end_point: bytes | None = None, *, plus: bool = False) -> None:
        """`end_point`: what a channel is bound to, where the server offers that; `plus`: whether the client has chosen it."""
        self._end_point = end_point
        self._plus = plus
        verifier = Verifier.parse(stored) if stored is not None else None
        self.doomed = verifier is None
        """Whether no password is right."""
        if verifier is None:
            salt = hmac.digest(node_secret, role.encode(), "sha256")[:16]
            verifier = Verifier(ITERATIONS, salt, bytes(32), bytes(32))
        self._verifier = verifier
        self._client_first = ""
        self._server_first = ""
        self._nonce = ""
        self._header = ""

    def first(self, data: bytes) -> bytes:
        """The server-first-message."""
        found = _CLIENT_FIRST.match(_ascii(data))
        if not found:
            raise PostgresError("08P01", "malformed SCRAM message", detail="Message is not in the expected form.")
        self._check_binding(found[1])
        if found[2]:
            raise PostgresError("0A000", "client uses authorization identity, but it is not supported")
        self._header = f"{found[1]},,"
        self._client_first = found[3]
        self._nonce = found[5] + base64.b64encode(os.urandom(18)).decode()
        salt = base64.b64encode(self._verifier.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        return self._server_first.encode()

    def _check_binding(self, flag: str) -> None:
        """Refuses a flag that does not fit the mechanism, and a client that was told of no channel binding although there is some."""
        chosen = (
            ("SCRAM-SHA-256-PLUS, but", "does not include") if self._plus else ("SCRAM-SHA-256 without channel binding, but", "includes")
        )
        if self._plus != flag.startswith("p="):
            detail = f"The client selected {chosen[0]} the SCRAM message {chosen[1]} channel binding data."
            raise PostgresError("08P01", "malformed SCRAM message", detail=detail)
        if flag == "y" and self._end_point is not None:
            raise PostgresError(
                "28000",
                "SCRAM channel binding negotiation error",
                detail="The client supports SCRAM channel binding but thinks the server does not.  "
                "However, this server does support channel binding.",
                severity=Severity.FATAL,
            )
        if self._plus and flag != f"p={BINDING}":
            raise PostgresError("08P01", f'unsupported SCRAM channel-binding type "{_sanitised(flag[2:])}"')

    def final(self, data: bytes) -> bytes | None:
        """The server-final-message; None when the password is wrong."""
        found = _CLIENT_FINAL.match(_ascii(data))
        if not found:
            raise PostgresError("08P01", "malformed SCRAM message", detail="Message is not in the expected form.")
        bound = self._header.encode() + (self._end_point or b"" if self._plus else b"")
        if not hmac.compare_digest(found[2], base64.b64encode(bound).decode()):
            if self._plus:
                raise PostgresError("28000", "SCRAM channel binding check failed", severity=Severity.FATAL)
            raise PostgresError("08P01", "unexpected SCRAM channel-binding attribute in client-final-message")
        if found[3] != self._nonce:
            raise PostgresError("08P01", "invalid SCRAM response", detail="Nonce does not match.")
        signed = f"{self._client_first},{self._server_first},{found[1]}".encode()
        signature = hmac.digest(self._verifier.stored_key, signed, "sha256")
        try:
            proof = base64.b64decode(found[4], validate=True)
        except binascii.Error:
            proof = b""
        if len(proof) != len(signature):
            raise PostgresError("08P01", "malformed SCRAM message", detail="Malformed proof in client-final-message.")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if self.doomed or not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, signed, "sha256"))


def _sanitised(text: str) -> str:
    return "".join(char if 0x21 <= ord(char) <= 0x7E else "?" for char in text[:30])


def _ascii(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PostgresError("08P01", "malformed SCRAM message") from error
