"""The durable steps of a node, and what a test has happen at them: an error, a kill, a wait, a full disk.

What a crash must find whole passes through `step`, which has a place before and one behind what is done::

    with step(Step.VERSION):          # "version before"
        table.commit_version(…)
                                      # "version behind"

Nothing happens there unless `arm` was told so: with the setting ``headgate.failpoints`` of headgate.conf, read at the start and with each
reload; it is for tests and appears in no documentation for users. Its text is a list of ``<step> <place>=<action>``, separated by commas:

    entry before=error            the first two times the step raises XX000 (twice in a row: what follows a fault must bear another)
    intent before=enospc          as `error`, with the OSError that a full disk is
    version behind=kill           SIGKILL of the node's process
    segment behind=sleep          the first two times half a second passes; nothing fails

Behind a commit of the catalog nothing can fail: what follows is done in memory. So there a test can only kill or wait.

Invariant: everything that writes what outlives the process does so inside of a step; tests/repo/test_steps.py
looks at what is synchronized, at commits of Delta versions and at feedback.
Called from all floors; any thread may call anything.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator

from headgate.errors import PostgresError

_log = logging.getLogger("headgate")


class Step(enum.StrEnum):
    """What is durable behind it."""

    SEGMENT = "segment"
    """Frames of a publisher's transactions in the files of the spool."""
    PREPARED_SEGMENT = "prepared segment"
    """The frames of a transaction that a publisher has prepared."""
    STAGED = "staged"
    """Data, change and vector files of a statement."""
    SYNC = "sync"
    """The same before the intent, and a version's file before the entry, synchronized."""
    INTENT = "intent"
    VERSION = "version"
    """The commit file of one table."""
    ENTRY = "entry"
    """The log's entry with what the transaction wrote into the catalog; also of what another writer has committed."""
    DEFINITION = "definition"
    """What a transaction wrote into the catalog that wrote no table."""
    TAKEN_BACK = "taken back"
    """The inverse of a version whose transaction failed."""
    PREPARED = "prepared"
    """PREPARE TRANSACTION: entry, actions and catalog statements."""
    PREPARED_END = "prepared end"
    """COMMIT PREPARED and ROLLBACK PREPARED: the entry."""
    SLOT = "slot"
    """A slot made, dropped, or its position."""
    SYNCHRONIZATION = "synchronization"
    """The state of a subscription's table."""
    COPY_RANGE = "copy range"
    """One range of a first copy, in files."""
    FEEDBACK = "feedback"
    """The publisher is told what is durable here."""
    COMPACTION = "compaction"
    CLEANING = "cleaning"
    """Files and versions that nobody needs are removed."""
    DELTA_CHECKPOINT = "delta checkpoint"
    """The log of a table put together, for who begins to read it."""
    CHECKPOINT = "checkpoint"
    """The catalog's own log goes into its file."""
    LOG_TABLE = "log table"
    """The log's entries in the Delta table beside the tables."""
    COUNTER = "counter"
    """What the catalog counts outside of transactions: oids, sequences, errors of a subscription, origins."""


class FaultAction(enum.StrEnum):
    """What happens."""

    ERROR = "error"
    KILL = "kill"
    SLEEP = "sleep"
    ENOSPC = "enospc"


FAILING = frozenset({FaultAction.ERROR, FaultAction.ENOSPC})
COMMITS = frozenset({
    Step.ENTRY, Step.DEFINITION, Step.PREPARED, Step.PREPARED_END, Step.SLOT, Step.SYNCHRONIZATION, Step.COUNTER, Step.CHECKPOINT,
})  # fmt: skip
"""Steps that are a commit of the catalog, and the last that is done."""
PLACES = ("before", "behind")
TIMES = 2
SLEEP_SECONDS = 0.5

_armed: dict[tuple[str, str], list[FaultAction]] = {}
_lock = threading.Lock()


def arm(text: str) -> None:
    """Takes the setting's text; what was armed before and has not happened is forgotten. 22023 for what is none."""
    found: dict[tuple[str, str], list[FaultAction]] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        where, _, action = each.partition("=")
        name, _, place = where.strip().rpartition(" ")
        if name not in [str(step) for step in Step] or place not in PLACES or action.strip() not in [str(one) for one in FaultAction]:
            raise PostgresError("22023", f'invalid failpoint "{each}"')
        if FaultAction(action.strip()) in FAILING and place == "behind" and Step(name) in COMMITS:
            raise PostgresError("22023", f'nothing can fail behind the step "{name}"')
        found[name, place] = [FaultAction(action.strip())] * TIMES
    with _lock:
        _armed.clear()
        _armed.update(found)


@contextlib.contextmanager
def step(of: Step) -> Iterator[None]:
    """Around what makes something durable."""
    if _armed:
        _reach(of, "before")
    yield
    if _armed:
        _reach(of, "behind")


def _reach(of: Step, place: str) -> None:
    with _lock:
        left = _armed.get((str(of), place))
        if not left:
            return
        action = left.pop()
    _log.warning('failpoint "%s %s": %s', of, place, action)
    match action:
        case FaultAction.ERROR:
            raise PostgresError("XX000", f'failpoint "{of} {place}"')
        case FaultAction.ENOSPC:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"failpoint {of} {place}")
        case FaultAction.SLEEP:
            time.sleep(SLEEP_SECONDS)
        case FaultAction.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
