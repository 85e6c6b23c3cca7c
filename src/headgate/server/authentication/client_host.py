"""The host name of a client: resolved from its address and confirmed by resolving that name (hba.c, check_hostname).

There is one for each connection. The name is resolved once, at its first use. Called by `hba`, for the log (log_hostname) and for
pg_stat_activity. Invariant: a name that does not resolve to the address matches nothing.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(eq=False)
class ClientHost:
    """The host of a client. `name` is the name to which the address resolves, or None."""

    address: str
    name: str | None = None
    _failure: str | None = None
    _confirmed: bool | None = None

    def look_up(self) -> str | None:
        """Return the name, which is not confirmed yet."""
        if self.name is None and self._failure is None:
            try:
                self.name = socket.getnameinfo((self.address, 0), socket.NI_NAMEREQD)[0]
            except OSError as error:
                self._failure = error.strerror or str(error)
        return self.name

    def is_called(self, pattern: str) -> bool:
        """Return whether the confirmed name equals the pattern, or ends with it if the pattern begins with a dot."""
        name = None if self._confirmed is False else self.look_up()
        if name is None:
            return False
        if pattern.startswith("."):
            if not (len(name) > len(pattern) and name.lower().endswith(pattern.lower())):
                return False
        elif name.lower() != pattern.lower():
            return False
        if self._confirmed is None:
            self._confirmed = self._leads_back(name)
        return self._confirmed

    def _leads_back(self, name: str) -> bool:
        try:
            return any(sockaddr[0] == self.address for *_, sockaddr in socket.getaddrinfo(name, None))
        except OSError as error:
            self._failure = error.strerror or str(error)
            return False

    @property
    def detail(self) -> str | None:
        """The result of the name resolution for the log; None if there was none."""
        if self.name is None:
            return None if self._failure is None else f"Could not resolve client IP address to a host name: {self._failure}."
        if self._failure is not None:
            return f'Could not translate client host name "{self.name}" to IP address: {self._failure}.'
        match self._confirmed:
            case True:
                result = "forward lookup matches"
            case False:
                result = "forward lookup does not match"
            case None:
                result = "forward lookup not checked"
        return f'Client IP address resolved to "{self.name}", {result}.'
