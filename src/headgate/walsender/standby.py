"""Synchronous replication: COMMIT waits until the standbys in synchronous_standby_names have confirmed it (manual, 27.2.8).

The node has one `Standbys`. A session calls `wait` after its transaction has committed here. Walsenders call `changed` after a message of
their client. A standby is identified by its walsender's application_name, which is the subscription's name.

    synchronous_standby_names     meaning
    s1, s2  or  FIRST 1 (s1, s2)  the first one that streams
    FIRST 2 (s1, s2, s3)          the first two that stream, in the order of the list
    ANY 2 (s1, s2, s3)            any two
    *                             any name

    synchronous_commit            waits for
    off, local                    nothing
    remote_write                  write position
    on                            flush position
    remote_apply                  apply position

Unlike PostgreSQL, other sessions see the transaction while its own session waits.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import Notices, PostgresError, Severity
from headgate.lsn import Lsn
from headgate.walsender.statistics import Senders, SenderState, SenderStatistics

_DETAIL = "The transaction has already committed locally, but might not have been replicated to the standby."
_POSITIONS = {"remote_write": "write", "on": "flush", "remote_apply": "apply"}
_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([A-Za-z_\x80-\U0010ffff][\w$]*|\*)|(\d+)|([(),]))')


@dataclass(frozen=True)
class StandbyNames:
    """The value of the setting: the number of standbys, in the order of the names (`first`) or any of them."""

    count: int
    names: tuple[str, ...]
    first: bool = True

    def priority(self, name: str) -> int:
        """Return the position of an application_name in the list, from 1, or 0 if it is not in the list."""
        for position, listed in enumerate(self.names, 1):
            if listed == "*" or listed.lower() == name.lower():
                return position
        return 0


@functools.lru_cache(maxsize=16)
def parse(text: str) -> StandbyNames | None:
    r"""Parse synchronous_standby_names. Return None if it is empty or malformed, in which case COMMIT does not wait.

    >>> parse("ANY 2 (a, \"b c\", *)")
    StandbyNames(count=2, names=('a', 'b c', '*'), first=False)
    """
    tokens: list[tuple[str, str]] = []
    index = 0
    while index < len(text.rstrip()):
        match = _TOKEN.match(text, index)
        if match is None:
            return None
        kind = ("name", "name", "number", "mark")[(match.lastindex or 1) - 1]
        value = match[1].replace('""', '"') if match.lastindex == 1 else match[match.lastindex or 0]
        tokens.append(("quoted" if match.lastindex == 1 else kind, value))
        index = match.end()
    return _names(tokens)


def _names(tokens: list[tuple[str, str]]) -> StandbyNames | None:
    first, count = True, 1
    if len(tokens) > 2 and tokens[0][0] == "name" and tokens[0][1].upper() in ("FIRST", "ANY") and tokens[1][0] == "number":
        first = tokens[0][1].upper() == "FIRST"
        tokens = tokens[1:]
    if len(tokens) > 2 and tokens[0][0] == "number" and tokens[1] == ("mark", "(") and tokens[-1] == ("mark", ")"):
        count = int(tokens[0][1])
        tokens = tokens[2:-1]
    names = tokens[::2]
    if (
        not names
        or len(tokens) % 2 == 0
        or any(kind == "mark" for kind, _ in names)
        or any(token != ("mark", ",") for token in tokens[1::2])
    ):
        return None
    return StandbyNames(count, tuple(value for _, value in names), first) if count > 0 else None


class Standbys:
    """The synchronous standbys of a node and the commits that wait for them."""

    def __init__(self, senders: Senders, names: Callable[[], str], application_name: Callable[[int], str | None]) -> None:
        """`names` returns the current value of the setting. `application_name` returns that of the backend with a pid."""
        self._senders = senders
        self._names = names
        self._application_name = application_name
        self._heard = threading.Condition()
        senders.on_change = self.changed

    def changed(self) -> None:
        """Wake the waiting commits: a standby has confirmed something, connected or disconnected, or the setting was reloaded."""
        with self._heard:
            self._heard.notify_all()

    def wait(self, position: Lsn, level: str, pending: Callable[[], PostgresError | None], notices: Notices) -> bool:
        """Wait until `position` is confirmed as synchronous_commit (`level`) requires.

        Return False if a request that `pending` returns has ended the wait, with a warning.
        """
        attribute = _POSITIONS.get(level)
        if attribute is None or not self._names().strip():
            return True
        while not self._is_confirmed(position, attribute):
            request = pending()
            if request is not None:
                self._give_up(request, notices)
                return False
            with self._heard:
                self._heard.wait(0.1)
        return True

    @staticmethod
    def _give_up(pending: PostgresError, notices: Notices) -> None:
        if pending.severity in (Severity.FATAL, Severity.PANIC):
            message = "canceling the wait for synchronous replication and terminating connection due to administrator command"
            notices.warning(message, sqlstate="57P01", detail=_DETAIL)
        else:
            notices.warning("canceling wait for synchronous replication due to user request", detail=_DETAIL)

    def _is_confirmed(self, position: Lsn, attribute: str) -> bool:
        standby_names = parse(self._names())
        if standby_names is None:
            return True
        candidates = self._candidates(standby_names)
        if len(candidates) < standby_names.count:
            return False
        reached = [int(getattr(sender, attribute)) for _, sender in candidates]
        if standby_names.first:
            return min(reached[: standby_names.count]) >= position
        return sorted(reached, reverse=True)[standby_names.count - 1] >= position

    def _candidates(self, standby_names: StandbyNames) -> list[tuple[int, SenderStatistics]]:
        """Return the listed standbys that are streaming, ordered by priority."""
        candidates = []
        for sender in self._senders.all():
            priority = self._priority(standby_names, sender)
            if priority and sender.state in (SenderState.STREAMING, SenderState.STOPPING) and sender.flush:
                candidates.append((priority, sender))
        return sorted(candidates, key=lambda candidate: (candidate[0], candidate[1].pid))

    def _priority(self, standby_names: StandbyNames, sender: SenderStatistics) -> int:
        name = self._application_name(sender.pid)
        return 0 if name is None else standby_names.priority(name)

    def state(self, pid: int) -> tuple[int, str]:
        """Return (sync_priority, sync_state) of a walsender for pg_stat_replication."""
        standby_names = parse(self._names())
        sender = next((candidate for candidate in self._senders.all() if candidate.pid == pid), None)
        priority = self._priority(standby_names, sender) if standby_names is not None and sender is not None else 0
        if standby_names is None or sender is None or not priority or not sender.flush:
            return (0, "async")
        candidates = [candidate.pid for _, candidate in self._candidates(standby_names)]
        if not standby_names.first:
            return (1, "quorum" if pid in candidates else "potential")
        return (priority, "sync" if pid in candidates[: standby_names.count] else "potential")
