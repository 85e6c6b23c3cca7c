"""Reads certificates: the hash of the node's own for SCRAM channel binding, and the names in a client's.

OpenSSL verifies certificates (`tls`). This module extracts only the parts that Python's ssl module does not provide. Called by `tls` and
`authentication`. Invariant: a name that cannot be determined exactly is None.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from typing import Any

_FIRST = 0xA0
_HASHES = {
    "2a864886f70d010104": "sha256",  # md5WithRSAEncryption: RFC 5929 has SHA-256 for MD5 and SHA-1
    "2a864886f70d010105": "sha256",  # sha1WithRSAEncryption
    "2a864886f70d01010b": "sha256",
    "2a864886f70d01010c": "sha384",
    "2a864886f70d01010d": "sha512",
    "2a864886f70d01010e": "sha224",
    "2a8648ce3d0401": "sha256",  # ecdsa-with-SHA1
    "2a8648ce3d040301": "sha224",
    "2a8648ce3d040302": "sha256",
    "2a8648ce3d040303": "sha384",
    "2a8648ce3d040304": "sha512",
    "2b0e03021a": "sha256",  # SHA-1, in the parameters of RSASSA-PSS
    "608648016503040201": "sha256",
    "608648016503040202": "sha384",
    "608648016503040203": "sha512",
    "608648016503040204": "sha224",
}
"""The hash of each signature algorithm, by its object identifier in DER."""
_PSS = "2a864886f70d01010a"
_SPECIAL = frozenset(',+"\\<>;')

Name = tuple[tuple[tuple[str, str], ...], ...]


def end_point(certificate: bytes) -> bytes | None:
    """Return tls-server-end-point (RFC 5929) of a certificate in DER, or None if its signature has no separate hash (Ed25519)."""
    _, whole, _ = _element(certificate)
    _, _, rest = _element(whole)  # skips the signed part
    _, algorithm, _ = _element(rest)
    _, oid, parameters = _element(algorithm)
    name = _pss_hash(parameters) if oid.hex() == _PSS else _HASHES.get(oid.hex())
    return None if name is None else hashlib.new(name, certificate).digest()


def _pss_hash(parameters: bytes) -> str | None:
    _, fields, _ = _element(parameters)
    if fields[:1] != bytes([_FIRST]):
        return "sha256"  # the default is SHA-1
    _, explicit, _ = _element(fields)
    _, algorithm, _ = _element(explicit)
    _, oid, _ = _element(algorithm)
    return _HASHES.get(oid.hex())


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Split DER data into the tag and the contents of its first element, and the bytes after it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    return tag, data[start : start + length], data[start + length :]


@dataclass(frozen=True)
class ClientCertificate:
    """A client's certificate that OpenSSL has verified."""

    subject: Name
    issuer: Name
    serial: int

    @classmethod
    def of(cls, peer_certificate: Any) -> ClientCertificate | None:
        """Convert the result of `SSLObject.getpeercert`; None if there is no certificate."""
        return (
            cls(peer_certificate["subject"], peer_certificate["issuer"], int(peer_certificate["serialNumber"], 16))
            if peer_certificate
            else None
        )

    @property
    def common_name(self) -> str | None:
        """The first CN of the subject."""
        return next((value for part in self.subject for name, value in part if name == "commonName"), None)

    @property
    def distinguished_name(self) -> str | None:
        """The subject in the format of RFC 2253; None if an attribute has no short name."""
        parts = [[(_short(name), value) for name, value in part] for part in reversed(self.subject)]
        if any(name is None for part in parts for name, _ in part):
            return None
        return ",".join("+".join(f"{name}={_escape(value, ascii_only=True)}" for name, value in part) for part in parts)


def shown(name: Name) -> str:
    """Return a name as pg_stat_ssl shows it: ``/O=Example/CN=ann``."""
    return "".join(f"/{_short(attribute) or attribute}={_escape(value, ascii_only=False)}" for part in name for attribute, value in part)


def _short(attribute: str) -> str | None:
    """Return OpenSSL's short name of an attribute that Python calls by its long name, or None."""
    try:
        return str(ssl._ASN1Object.fromname(attribute).shortname)  # the only access to OpenSSL's table
    except ValueError:
        return None


def _escape(value: str, *, ascii_only: bool) -> str:
    """Escape a value as in RFC 2253 (ASN1_STRFLGS_RFC2253)."""
    last = len(value) - 1
    parts = []
    for index, char in enumerate(value):
        code = ord(char)
        if char in _SPECIAL or (char == " " and index in {0, last}) or (char == "#" and index == 0):
            parts.append("\\" + char)
        elif code < 0x20 or code == 0x7F or (ascii_only and code > 0x7F):
            parts.append("".join(f"\\{byte:02X}" for byte in char.encode()))
        else:
            parts.append(char)
    return "".join(parts)
