"""TLS for clients (manual, 19.9): the ssl_* settings, and the stream of one connection.

`Tls.load` reads certificates and settings for the node at startup and at each reload. `connection` runs a `TlsStream` over its socket. All
cryptography is OpenSSL's, through Python's ssl module. Invariants: an unusable file never replaces one in use. A private key that other
users can read is rejected.

The stream works in memory: it consumes all bytes received from the socket and returns all that is readable at once. So no readable data is
left inside it while the socket is polled, and output that is sent in pieces is encrypted once.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import PostgresError, Severity
from headgate.server.protocol.certificate import ClientCertificate, end_point

if TYPE_CHECKING:
    from headgate.settings.node import Settings

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_PLACE = re.compile(r"(?:\[[^]]*\] )?(.*) \(_ssl\.c:\d+\)")
"""The text of a Python error for which OpenSSL has given no reason."""
PIECE = 1 << 20
"""The number of bytes encrypted at once, so that a large result is not in memory twice."""
RECORD = 1 << 14
"""The most bytes in one TLS record."""


@dataclass(frozen=True)
class Tls:
    """The TLS configuration from one reading of the settings."""

    context: ssl.SSLContext
    end_point: bytes | None
    """The hash for channel binding; None if the certificate's signature algorithm has no hash."""
    verifies: bool
    """Whether there are root certificates to verify clients' certificates."""

    @classmethod
    def load(cls, settings: Settings, folder: Path) -> Tls:
        """Read the files; relative names are below `folder`. Raise F0000 with PostgreSQL's messages."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        certificate = _load_own(context, settings, folder)
        _limit(context, settings)
        verifies = _load_roots(context, settings, folder)
        return cls(context, end_point(certificate), verifies)


def _load_own(context: ssl.SSLContext, settings: Settings, folder: Path) -> bytes:
    """Load the certificate and the key. Return the certificate in DER."""
    name, key = settings.text("ssl_cert_file"), settings.text("ssl_key_file")
    failure = f'could not load server certificate file "{name}"'
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    try:
        text = (folder / name).read_text(encoding="ascii", errors="replace")
        if begin not in text:
            raise _failure(f"{failure}: no start line")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(folder / name)  # distinguishes a bad certificate from a bad key
    except OSError as error:
        raise _failure(f"{failure}: {reason(error)}") from error
    _check_key(key, folder / key)
    try:
        context.load_cert_chain(folder / name, folder / key, _no_passphrase)
    except _PassphraseNeeded as error:
        raise _failure(f'private key file "{key}" cannot be loaded because it requires a passphrase', _LOCKED) from error
    except OSError as error:
        raise _failure(f'could not load private key file "{key}": {reason(error)}') from error
    return ssl.PEM_cert_to_DER_cert(begin + text.partition(begin)[2].partition(end)[0] + end)


_LOCKED = 'A node asks nobody for one ("ssl_passphrase_command" is not supported): keep the key without a passphrase'


class _PassphraseNeeded(Exception):
    pass


def _no_passphrase() -> str:
    raise _PassphraseNeeded


def _check_key(name: str, path: Path) -> None:
    """Raise F0000 for a key that other users can read (check_ssl_key_file_permissions)."""
    try:
        status = path.stat()
    except OSError as error:
        raise _failure(f'could not access private key file "{name}": {error.strerror}') from error
    if not stat.S_ISREG(status.st_mode):
        raise _failure(f'private key file "{name}" is not a regular file')
    if status.st_uid not in {os.geteuid(), 0}:
        raise _failure(f'private key file "{name}" must be owned by the database user or root')
    is_exposed = status.st_uid == os.geteuid() and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if is_exposed or (status.st_uid == 0 and status.st_mode & (stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO)):
        raise _failure(
            f'private key file "{name}" has group or world access',
            "File must have permissions u=rw (0600) or less if owned by the database user, or permissions u=rw,g=r (0640) or less "
            "if owned by root.",
        )


def _limit(context: ssl.SSLContext, settings: Settings) -> None:
    """Set the protocol versions and ciphers."""
    low, high = settings.text("ssl_min_protocol_version"), settings.text("ssl_max_protocol_version")
    if high and list(_VERSIONS).index(low) > list(_VERSIONS).index(high):
        raise _failure(
            "could not set SSL protocol version range", '"ssl_min_protocol_version" cannot be higher than "ssl_max_protocol_version"'
        )
    context.minimum_version = _VERSIONS[low]
    if high:
        context.maximum_version = _VERSIONS[high]
    try:
        context.set_ciphers(settings.text("ssl_ciphers"))
    except ssl.SSLError as error:
        raise _failure("could not set the cipher list (no valid ciphers available)") from error
    if settings.flag("ssl_prefer_server_ciphers"):
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def _load_roots(context: ssl.SSLContext, settings: Settings, folder: Path) -> bool:
    """Load the root certificates and revocation lists for clients' certificates. Return whether there are any roots."""
    roots, revoked, directory = (settings.text(name) for name in ("ssl_ca_file", "ssl_crl_file", "ssl_crl_dir"))
    if roots:
        try:
            context.load_verify_locations(folder / roots)
        except OSError as error:
            raise _failure(f'could not load root certificate file "{roots}": {reason(error)}') from error
        context.verify_mode = ssl.CERT_OPTIONAL
    if revoked or directory:
        try:
            context.load_verify_locations(folder / revoked if revoked else None, folder / directory if directory else None)
        except OSError as error:
            source = f'file "{revoked}"' if revoked else f'directory "{directory}"'
            raise _failure(f"could not load SSL certificate revocation list {source}: {reason(error)}") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    return bool(roots)


def _failure(message: str, detail: str | None = None) -> PostgresError:
    return PostgresError("F0000", message, detail=detail, severity=Severity.FATAL)


def reason(error: OSError) -> str:
    """Return OpenSSL's reason for an error, or the operating system's."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    match = _PLACE.fullmatch(str(error))
    return match[1] if match else error.strerror or str(error)


class TlsStream:
    """The TLS stream of one connection. `opened` decrypts bytes from the socket, `sealed` encrypts bytes for it."""

    def __init__(self, tls: Tls) -> None:
        self.settings = tls
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = tls.context.wrap_bio(self._in, self._out, server_side=True)
        self.ended = False
        """Whether the client has announced the end of its data."""

    def handshake(self, data: bytes) -> tuple[bool, bytes, ssl.SSLError | None]:
        """Continue the handshake. Return whether it is complete, the bytes to send (an alert, too), and its error."""
        self._in.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._out.read(), None
        except ssl.SSLError as error:
            return False, self._out.read(), error
        return True, self._out.read(), None

    def opened(self, data: bytes) -> bytes:
        """Decrypt received bytes and return all that is readable. Raise ssl.SSLError for invalid data."""
        self._in.write(data)
        parts = []
        try:
            while not self.ended:
                part = self._object.read(RECORD)
                self.ended = not part
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)

    def sealed(self, data: bytes | memoryview) -> Iterator[bytes]:
        unsent = memoryview(data).cast("B")
        while unsent:
            unsent = unsent[self._object.write(unsent[:PIECE]) :]
            yield self._out.read()

    def farewell(self) -> bytes:
        """Return the bytes that announce the end of the data to the client."""
        with contextlib.suppress(ssl.SSLError):  # does not wait for the client's close_notify
            self._object.unwrap()
        return self._out.read()

    @property
    def version(self) -> str:
        """The protocol version, such as "TLSv1.3"."""
        return self._object.version() or ""

    @property
    def cipher(self) -> tuple[str, int]:
        name, _, bits = self._object.cipher() or ("", "", 0)
        return name, bits

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's certificate, verified by OpenSSL, or None."""
        return ClientCertificate.of(self._object.getpeercert())
