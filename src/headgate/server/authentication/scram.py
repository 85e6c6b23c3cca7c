"""The server side of SCRAM-SHA-256 and md5 (manual, 55.3 SASL Authentication; RFC 5802, RFC 7677).

`ScramServer` runs one exchange against a verifier in the format of pg_authid.rolpassword,
``SCRAM-SHA-256$4096:salt$StoredKey:ServerKey``. For an unknown role it uses an invented verifier, so that an attacker cannot distinguish
the two. Called by authentication. Nothing here is ever logged.
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
    """Return whether a client's answer to AuthenticationMD5Password is correct."""
    expected = "md5" + hashlib.md5(stored[3:].encode() + salt, usedforsecurity=False).hexdigest()
    return hmac.compare_digest(expected.encode(), answer.encode(errors="surrogateescape"))


class ScramServer:
    """One exchange. `first` takes the client's first message, `final` its last. Both return the message to send."""

    def __init__(self, stored: str | None, role: str, node_secret: bytes, end_point: bytes | None, *, plus: bool) -> None:
        """`end_point`: the channel binding data, if the server offers channel binding. `plus`: whether the client has selected it."""
        self._end_point = end_point
        self._plus = plus
        verifier = Verifier.parse(stored) if stored is not None else None
        self.doomed = verifier is None
        """Whether no password can be correct."""
        if verifier is None:
            salt = hmac.digest(node_secret, role.encode(), "sha256")[:16]
            verifier = Verifier(ITERATIONS, salt, bytes(32), bytes(32))
        self._verifier = verifier
        self._client_first = ""
        self._server_first = ""
        self._nonce = ""
        self._header = ""

    def first(self, data: bytes) -> bytes:
        """Return the server-first-message. Raise 08P01, 0A000 or 28000 for an invalid client-first-message."""
        match = _CLIENT_FIRST.match(_ascii(data))
        if not match:
            raise PostgresError("08P01", "malformed SCRAM message", detail="Message is not in the expected form.")
        self._check_binding(match[1])
        if match[2]:
            raise PostgresError("0A000", "client uses authorization identity, but it is not supported")
        self._header = f"{match[1]},,"
        self._client_first = match[3]
        self._nonce = match[5] + base64.b64encode(os.urandom(18)).decode()
        salt = base64.b64encode(self._verifier.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        return self._server_first.encode()

    def _check_binding(self, flag: str) -> None:
        """Reject a flag that contradicts the mechanism, and a client that wrongly thinks the server does not support channel binding."""
        words = (
            ("SCRAM-SHA-256-PLUS, but", "does not include") if self._plus else ("SCRAM-SHA-256 without channel binding, but", "includes")
        )
        if self._plus != flag.startswith("p="):
            detail = f"The client selected {words[0]} the SCRAM message {words[1]} channel binding data."
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
            raise PostgresError("08P01", f'unsupported SCRAM channel-binding type "{_sanitise(flag[2:])}"')

    def final(self, data: bytes) -> bytes | None:
        """Return the server-final-message, or None if the password is wrong. Raise 08P01 or 28000 for an invalid message."""
        match = _CLIENT_FINAL.match(_ascii(data))
        if not match:
            raise PostgresError("08P01", "malformed SCRAM message", detail="Message is not in the expected form.")
        binding = self._header.encode() + (self._end_point or b"" if self._plus else b"")
        if not hmac.compare_digest(match[2], base64.b64encode(binding).decode()):
            if self._plus:
                raise PostgresError("28000", "SCRAM channel binding check failed", severity=Severity.FATAL)
            raise PostgresError("08P01", "unexpected SCRAM channel-binding attribute in client-final-message")
        if match[3] != self._nonce:
            raise PostgresError("08P01", "invalid SCRAM response", detail="Nonce does not match.")
        signed = f"{self._client_first},{self._server_first},{match[1]}".encode()
        signature = hmac.digest(self._verifier.stored_key, signed, "sha256")
        try:
            proof = base64.b64decode(match[4], validate=True)
        except binascii.Error:
            proof = b""
        if len(proof) != len(signature):
            raise PostgresError("08P01", "malformed SCRAM message", detail="Malformed proof in client-final-message.")
        client_key = bytes(proof_byte ^ signature_byte for proof_byte, signature_byte in zip(proof, signature, strict=True))
        if self.doomed or not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, signed, "sha256"))


def _sanitise(text: str) -> str:
    return "".join(char if 0x21 <= ord(char) <= 0x7E else "?" for char in text[:30])


def _ascii(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PostgresError("08P01", "malformed SCRAM message") from error
