"""Synchronous replication: COMMIT waits until the standbys that synchronous_standby_names lists have confirmed (manual, 27.2.8).

`Standbys` is the node's. A session calls `wait` when its transaction has committed here; walsenders call `changed` when they hear from
their clients. A standby is a walsender by its application_name: of a subscription, its name.

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
from headgate.walsender.host import Activity, Interrupts
from headgate.walsender.statistics import Senders, SenderState, SenderStatistics

_DETAIL = "The transaction has already committed locally, but might not have been replicated to the standby."
_POSITIONS = {"remote_write": "write", "on": "flush", "remote_apply": "apply"}
_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([A-Za-z_\x80-\U0010ffff][\w$]*|\*)|(\d+)|([(),]))')


@dataclass(frozen=True)
class StandbyNames:
    """The setting: how many of the names, by their order (`first`) or any."""

    count: int
    names: tuple[str, ...]
    first: bool = True

    def priority(self, name: str) -> int:
        """The place of an application_name in the list, from 1; 0 if it is not in it."""
        for place, wanted in enumerate(self.names, 1):
            if wanted == "*" or wanted.lower() == name.lower():
                return place
        return 0


@functools.lru_cache(maxsize=16)
def parse(text: str) -> StandbyNames | None:
    r"""The value of synchronous_standby_names; None where it is empty or malformed (then nobody waits).

    >>> parse("ANY 2 (a, \"b c\", *)")
    StandbyNames(count=2, names=('a', 'b c', '*'), first=False)
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        kind = ("name", "name", "number", "mark")[(found.lastindex or 1) - 1]
        value = found[1].replace('""', '"') if found.lastindex == 1 else found[found.lastindex or 0]
        tokens.append(("quoted" if found.lastindex == 1 else kind, value))
        at = found.end()
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
    """Who waits for whom."""

    def __init__(self, senders: Senders, names: Callable[[], str], activity: Activity) -> None:
        """`names` gives the setting as it is now."""
        self._senders = senders
        self._names = names
        self._activity = activity
        self._heard = threading.Condition()
        senders.heard = self.changed

    def changed(self) -> None:
        """A standby has confirmed something, came or went, or the setting was read again."""
        with self._heard:
            self._heard.notify_all()

    def wait(self, position: Lsn, level: str, interrupts: Interrupts, notices: Notices) -> None:
        """Waits until `position` is confirmed as synchronous_commit (`level`) asks; a cancel ends the wait with a warning."""
        which = _POSITIONS.get(level)
        if which is None or not self._names().strip():
            return
        while not self._confirmed(position, which):
            pending = interrupts.pending()
            if pending is not None:
                self._give_up(pending, notices)
                interrupts.forget_cancel()
                return
            with self._heard:
                self._heard.wait(0.1)

    @staticmethod
    def _give_up(pending: PostgresError, notices: Notices) -> None:
        if pending.severity in (Severity.FATAL, Severity.PANIC):
            said = "canceling the wait for synchronous replication and terminating connection due to administrator command"
            notices.warning(said, sqlstate="57P01", detail=_DETAIL)
        else:
            notices.warning("canceling wait for synchronous replication due to user request", detail=_DETAIL)

    def _confirmed(self, position: Lsn, which: str) -> bool:
        wanted = parse(self._names())
        if wanted is None:
            return True
        candidates = self._candidates(wanted)
        if len(candidates) < wanted.count:
            return False
        reached = [int(getattr(sender, which)) for _, sender in candidates]
        if wanted.first:
            return min(reached[: wanted.count]) >= position
        return sorted(reached, reverse=True)[wanted.count - 1] >= position

    def _candidates(self, wanted: StandbyNames) -> list[tuple[int, SenderStatistics]]:
        """The listed standbys that stream, in the order of their priority."""
        found = []
        for sender in self._senders.all():
            priority = self._priority(wanted, sender)
            if priority and sender.state in (SenderState.STREAMING, SenderState.STOPPING) and sender.flush:
                found.append((priority, sender))
        return sorted(found, key=lambda one: (one[0], one[1].pid))

    def _priority(self, wanted: StandbyNames, sender: SenderStatistics) -> int:
        backend = self._activity.find(sender.pid)
        return 0 if backend is None else wanted.priority(backend.application_name)

    def state(self, pid: int) -> tuple[int, str]:
        """(sync_priority, sync_state) of a walsender for pg_stat_replication."""
        wanted = parse(self._names())
        sender = next((one for one in self._senders.all() if one.pid == pid), None)
        priority = self._priority(wanted, sender) if wanted is not None and sender is not None else 0
        if wanted is None or sender is None or not priority or not sender.flush:
            return (0, "async")
        candidates = [one.pid for _, one in self._candidates(wanted)]
        if not wanted.first:
            return (1, "quorum" if pid in candidates else "potential")
        return (priority, "sync" if pid in candidates[: wanted.count] else "potential")
