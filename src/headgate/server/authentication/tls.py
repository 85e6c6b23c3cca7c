"""TLS for clients (manual, 19.9): what the ssl_* settings say, and one connection's stream.

`Tls.load` reads certificates and settings for the node, at the start and at each reload; `connection` runs a `TlsStream` over its socket.
All cryptography is OpenSSL's, through Python's ssl module. What must hold: a file that cannot be used never takes the place of one that is
in use; a private key that others can read is refused.

The stream works on memory: what comes from the socket goes in whole, and all that can be read of it comes out at once. So nothing waits
inside of it while the socket is polled, and what is sent in pieces is sealed once.
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
from headgate.server.authentication.certificate import ClientCertificate, end_point

if TYPE_CHECKING:
    from headgate.settings.node import Settings

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_PLACE = re.compile(r"(?:\[[^]]*\] )?(.*) \(_ssl\.c:\d+\)")
"""What Python says where OpenSSL has given no reason."""
PIECE = 1 << 20
"""Bytes that are sealed at once, so that a large result is not in memory twice."""
RECORD = 1 << 14
"""The most bytes that one TLS record has."""


@dataclass(frozen=True)
class Tls:
    """What one reading of the settings gave."""

    context: ssl.SSLContext
    end_point: bytes | None
    """What channel binding binds to; None where the certificate's signature has no hash."""
    verifies: bool
    """Whether there are roots by which clients' certificates are verified."""

    @classmethod
    def load(cls, settings: Settings, folder: Path) -> Tls:
        """Reads the files; relative names are below `folder`. F0000 in PostgreSQL's words."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        certificate = _load_own(context, settings, folder)
        _limit(context, settings)
        verifies = _load_roots(context, settings, folder)
        return cls(context, end_point(certificate), verifies)


def _load_own(context: ssl.SSLContext, settings: Settings, folder: Path) -> bytes:
    """Loads certificate and key; the certificate in DER."""
    named, key = settings.text("ssl_cert_file"), settings.text("ssl_key_file")
    what = f'could not load server certificate file "{named}"'
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    try:
        text = (folder / named).read_text(encoding="ascii", errors="replace")
        if begin not in text:
            raise _failed(f"{what}: no start line")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(folder / named)  # tells it from a key that is no key
    except OSError as error:
        raise _failed(f"{what}: {reason(error)}") from error
    _check_key(key, folder / key)
    try:
        context.load_cert_chain(folder / named, folder / key, _no_passphrase)
    except _PassphraseNeeded as error:
        raise _failed(f'private key file "{key}" cannot be loaded because it requires a passphrase', _LOCKED) from error
    except OSError as error:
        raise _failed(f'could not load private key file "{key}": {reason(error)}') from error
    return ssl.PEM_cert_to_DER_cert(begin + text.partition(begin)[2].partition(end)[0] + end)


_LOCKED = 'A node asks nobody for one ("ssl_passphrase_command" is not supported): keep the key without a passphrase'


class _PassphraseNeeded(Exception):
    pass


def _no_passphrase() -> str:
    raise _PassphraseNeeded


def _check_key(named: str, path: Path) -> None:
    """Refuses a key that others can read (check_ssl_key_file_permissions)."""
    try:
        found = path.stat()
    except OSError as error:
        raise _failed(f'could not access private key file "{named}": {error.strerror}') from error
    if not stat.S_ISREG(found.st_mode):
        raise _failed(f'private key file "{named}" is not a regular file')
    if found.st_uid not in {os.geteuid(), 0}:
        raise _failed(f'private key file "{named}" must be owned by the database user or root')
    own = found.st_uid == os.geteuid() and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if own or (found.st_uid == 0 and found.st_mode & (stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO)):
        raise _failed(
            f'private key file "{named}" has group or world access',
            "File must have permissions u=rw (0600) or less if owned by the database user, or permissions u=rw,g=r (0640) or less "
            "if owned by root.",
        )


def _limit(context: ssl.SSLContext, settings: Settings) -> None:
    """Versions and ciphers."""
    low, high = settings.text("ssl_min_protocol_version"), settings.text("ssl_max_protocol_version")
    if high and list(_VERSIONS).index(low) > list(_VERSIONS).index(high):
        raise _failed(
            "could not set SSL protocol version range", '"ssl_min_protocol_version" cannot be higher than "ssl_max_protocol_version"'
        )
    context.minimum_version = _VERSIONS[low]
    if high:
        context.maximum_version = _VERSIONS[high]
    try:
        context.set_ciphers(settings.text("ssl_ciphers"))
    except ssl.SSLError as error:
        raise _failed("could not set the cipher list (no valid ciphers available)") from error
    if settings.flag("ssl_prefer_server_ciphers"):
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def _load_roots(context: ssl.SSLContext, settings: Settings, folder: Path) -> bool:
    """The roots and revocation lists by which clients' certificates are verified; whether there are any roots."""
    roots, revoked, directory = (settings.text(name) for name in ("ssl_ca_file", "ssl_crl_file", "ssl_crl_dir"))
    if roots:
        try:
            context.load_verify_locations(folder / roots)
        except OSError as error:
            raise _failed(f'could not load root certificate file "{roots}": {reason(error)}') from error
        context.verify_mode = ssl.CERT_OPTIONAL
    if revoked or directory:
        try:
            context.load_verify_locations(folder / revoked if revoked else None, folder / directory if directory else None)
        except OSError as error:
            named = f'file "{revoked}"' if revoked else f'directory "{directory}"'
            raise _failed(f"could not load SSL certificate revocation list {named}: {reason(error)}") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    return bool(roots)


def _failed(message: str, detail: str | None = None) -> PostgresError:
    return PostgresError("F0000", message, detail=detail, severity=Severity.FATAL)


def reason(error: OSError) -> str:
    """OpenSSL's reason in its own words, or the system's."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    plain = _PLACE.fullmatch(str(error))
    return plain[1] if plain else error.strerror or str(error)


class TlsStream:
    """One connection's TLS: `opened` takes what came from the socket, `sealed` gives what goes to it."""

    def __init__(self, tls: Tls) -> None:
        self.settings = tls
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = tls.context.wrap_bio(self._in, self._out, server_side=True)
        self.ended = False
        """Whether the client has said that nothing more comes."""

    def handshake(self, data: bytes) -> tuple[bool, bytes, ssl.SSLError | None]:
        """Goes on with the handshake: whether it is done, what is to be sent (an alert too), and why it has failed."""
        self._in.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._out.read(), None
        except ssl.SSLError as error:
            return False, self._out.read(), error
        return True, self._out.read(), None

    def opened(self, data: bytes) -> bytes:
        """All that can be read by now; raises ssl.SSLError for what no client sends."""
        self._in.write(data)
        found = []
        try:
            while not self.ended:
                part = self._object.read(RECORD)
                self.ended = not part
                found.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(found)

    def sealed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """What is to be sent for this, piece by piece."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._object.write(rest[:PIECE]) :]
            yield self._out.read()

    def farewell(self) -> bytes:
        """What tells the client that nothing more comes."""
        with contextlib.suppress(ssl.SSLError):  # it does not wait for the client's own
            self._object.unwrap()
        return self._out.read()

    @property
    def version(self) -> str:
        """As "TLSv1.3"."""
        return self._object.version() or ""

    @property
    def cipher(self) -> tuple[str, int]:
        """Its name and its bits."""
        name, _, bits = self._object.cipher() or ("", "", 0)
        return name, bits

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's certificate, which has been verified."""
        return ClientCertificate.of(self._object.getpeercert())
