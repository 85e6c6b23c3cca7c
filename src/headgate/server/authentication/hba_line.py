"""One line of pg_hba.conf: its fields, and PostgreSQL's errors for invalid ones (hba.c, parse_hba_line).

`hba` calls `parse` for each line. Invariant: a line with anything that a node does not know or support is invalid; it is never skipped.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field

from headgate.server.authentication.auth_file import AuthLine, Word

METHODS = frozenset({"trust", "reject", "password", "md5", "scram-sha-256", "cert"})
OTHER_METHODS = frozenset({"gss", "sspi", "ident", "peer", "ldap", "radius", "pam", "bsd"})
KINDS = ("local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc")
_MAPPED = "ident, peer, gssapi, sspi, and cert"
_OPTIONS_OF = {
    **dict.fromkeys(("pamservice", "pam_use_hostname"), "pam"),
    **dict.fromkeys(
        (
            "ldapserver ldapport ldaptls ldapscheme ldapbinddn ldapbindpasswd ldapsearchattribute ldapsearchfilter ldapbasedn ldapprefix"
            " ldapsuffix ldapurl"
        ).split(),
        "ldap",
    ),
    **dict.fromkeys(("krb_realm", "include_realm"), "gssapi and sspi"),
    **dict.fromkeys(("compat_realm", "upn_username"), "sspi"),
    **dict.fromkeys(("radiusservers", "radiusports", "radiussecrets", "radiusidentifiers"), "radius"),
}
"""The options of methods that a node does not support."""

_NUMBER = re.compile(r"\s*[+-]?[0-9]+")
"""A number that strtol converts completely."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class HbaLine:
    """One line. If there is no `address`, `host` is all, samehost, samenet or a name."""

    number: int
    text: str
    kind: str
    databases: tuple[Word, ...]
    users: tuple[Word, ...]
    host: Word | None
    address: Address | None
    netmask: Address | None
    method: str
    options: dict[str, str] = field(default_factory=dict)

    def covers(self, client: Address) -> bool:
        """Return whether a client's address is within address and netmask. The mask's bits may have gaps."""
        if self.address is None or self.netmask is None or client.version != self.address.version:
            return False
        return (int(client) ^ int(self.address)) & int(self.netmask) == 0


def shown(address: Address) -> str:
    """Return an address as the C library writes it: ``::ffff:10.0.0.1``."""
    return socket.inet_ntop(socket.AF_INET if address.version == 4 else socket.AF_INET6, address.packed)


class LineError(Exception):
    """An error in a line, with a hint."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def parse(line: AuthLine) -> HbaLine:
    """Parse a line. Raise LineError if it is invalid."""
    fields = _Fields(line.fields)
    kind = fields.single("connection type", "Specify exactly one connection type per line.").text
    if kind not in KINDS:
        raise LineError(f'invalid connection type "{kind}"')
    databases, users = fields.several("database"), fields.several("role")
    host, address, netmask = (None, None, None) if kind == "local" else _place(fields)
    method = _method(fields, kind)
    options = {"clientcert": "verify-full"} if method == "cert" else {}
    for word in fields.rest():
        name, value = _option(word.text, kind, method)
        options[name] = value
    return HbaLine(line.number, line.text, kind, databases, users, host, address, netmask, method, options)


class _Fields:
    """The fields of a line, which are consumed one by one."""

    def __init__(self, fields: tuple[tuple[Word, ...], ...]) -> None:
        self._left = list(fields)

    def several(self, field_name: str, missing: LineError | None = None) -> tuple[Word, ...]:
        if not self._left:
            raise missing or LineError(f"end-of-line before {field_name} specification")
        return self._left.pop(0)

    def single(self, field_name: str, hint: str | None, missing: LineError | None = None, *, name: str = "") -> Word:
        words = self.several(field_name, missing)
        if len(words) > 1:
            raise LineError(f"multiple values specified for {name or field_name}", hint)
        return words[0]

    def rest(self) -> list[Word]:
        return [word for words in self._left for word in words]


def _place(fields: _Fields) -> tuple[Word | None, Address | None, Address | None]:
    """Parse the address fields and return (host, address, netmask)."""
    word = fields.single("IP address", "Specify one address range per line.", name="host address")
    if any(word.keyword(text) for text in ("all", "samehost", "samenet")):
        return word, None, None
    text, slash, length = word.text.partition("/")
    address = _numeric(text, "address")
    if slash:
        if address is None:
            raise LineError(f'specifying both host name and CIDR mask is invalid: "{word.text}"')
        return None, address, _mask(address, length, word.text)
    if address is None:
        return Word(text, quoted=True), None, None
    hint = "Specify an address range in CIDR notation, or provide a separate netmask."
    mask_text = fields.single("netmask", None, LineError("end-of-line before netmask specification", hint)).text
    netmask = _numeric(mask_text, "mask")
    if netmask is None:
        raise LineError(f'invalid IP mask "{mask_text}": Name or service not known')
    if netmask.version != address.version:
        raise LineError("IP address and mask do not match")
    return None, address, netmask


def _numeric(text: str, field_name: str) -> Address | None:
    """Return the numeric address, as getaddrinfo reads it (10.1 is 10.0.0.1), or None if the text may be a name."""
    try:
        infos = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            return None
        raise LineError(f'invalid IP {field_name} "{text}": {error.strerror}') from error
    except (UnicodeError, OSError):
        return None
    return ipaddress.ip_address(str(infos[0][4][0]).partition("%")[0])


def _mask(address: Address, length: str, shown: str) -> Address:
    if not _NUMBER.fullmatch(length) or not 0 <= int(length) <= address.max_prefixlen:
        raise LineError(f'invalid CIDR mask in address "{shown}"')
    return ipaddress.ip_network((str(address), int(length)), strict=False).netmask


def _method(fields: _Fields, kind: str) -> str:
    missing = LineError("end-of-line before authentication method")
    method = fields.single("authentication type", "Specify exactly one authentication type per line.", missing).text
    if method in OTHER_METHODS:
        raise LineError(f'invalid authentication method "{method}": not supported by this build')
    if method not in METHODS:
        raise LineError(f'invalid authentication method "{method}"')
    if method == "cert" and kind != "hostssl":
        raise LineError("cert authentication is only supported on hostssl connections")
    return method


def _option(text: str, kind: str, method: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise LineError(f"authentication option not in name=value format: {text}")
    if name == "map":
        if method != "cert":
            raise LineError(f'authentication option "map" is only valid for authentication methods {_MAPPED}')
        return name, value
    if name in _OPTIONS_OF:
        raise LineError(f'authentication option "{name}" is only valid for authentication methods {_OPTIONS_OF[name]}')
    if name not in {"clientcert", "clientname"}:
        raise LineError(f'unrecognized authentication option name: "{name}"')
    if kind != "hostssl":
        raise LineError(f'{name} can only be configured for "hostssl" rows')
    if value not in ({"verify-ca", "verify-full"} if name == "clientcert" else {"CN", "DN"}):
        raise LineError(f'invalid value for {name}: "{value}"')
    if method == "cert" and value == "verify-ca":
        raise LineError('clientcert can only be set to "verify-full" when using "cert" authentication')
    return name, value
