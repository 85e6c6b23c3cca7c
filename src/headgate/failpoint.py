"""The durable steps of a node, at which tests inject faults: an error, a kill, a delay, a full disk.

Each action after which a crash must find complete data runs inside `step`. A step has two places, before and behind the action::

    with step(Step.VERSION):          # "version before"
        table.commit_version(…)
                                      # "version behind"

Faults are injected only by the setting ``headgate.failpoints`` of headgate.conf, which `arm` receives at startup and at each reload. It is
for tests and not documented for users. Its value is a list of ``<step> <place>=<action>``, separated by commas:

    entry before=error            the step raises XX000 the first two times (twice, because recovery from a fault must survive another one)
    intent before=enospc          as `error`, with the OSError of a full disk
    version behind=kill           SIGKILL of the node's process
    segment behind=sleep          a delay of half a second the first two times

Behind a commit of the catalog only kill and sleep are allowed: the code after it works in memory and cannot fail.

Invariant: everything that outlives the process is written inside a step. tests/repo/test_steps.py checks this for calls of fsync, commits
of Delta versions and feedback. Called from all floors; all functions are thread-safe.
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
    """A durable step. Each comment describes the data that is durable after the step."""

    SEGMENT = "segment"
    """Messages of a publisher's transactions in the files of the spool."""
    PREPARED_SEGMENT = "prepared segment"
    """The messages of a transaction that a publisher has prepared."""
    STAGED = "staged"
    """Data files, change files and deletion vectors of a statement."""
    SYNC = "sync"
    """fsync of these files before the intent, and of a version's file before the entry."""
    INTENT = "intent"
    VERSION = "version"
    """The commit file of one table."""
    ENTRY = "entry"
    """The entry of the log and the catalog rows of a transaction, also for a commit of another writer."""
    DEFINITION = "definition"
    """The catalog rows of a transaction that wrote no table."""
    TAKEN_BACK = "taken back"
    """The inverse of a version whose transaction failed."""
    PREPARED = "prepared"
    """PREPARE TRANSACTION: entry, actions and catalog statements."""
    PREPARED_END = "prepared end"
    """COMMIT PREPARED and ROLLBACK PREPARED: the entry."""
    SLOT = "slot"
    """The creation, removal or position of a slot."""
    SYNCHRONIZATION = "synchronization"
    """The state of a subscription's table."""
    COPY_RANGE = "copy range"
    """The files of one range of an initial copy."""
    FEEDBACK = "feedback"
    """The confirmed LSNs have been sent to the publisher."""
    COMPACTION = "compaction"
    CLEANING = "cleaning"
    """The removal of files and versions that are no longer needed."""
    DELTA_CHECKPOINT = "delta checkpoint"
    """A Delta checkpoint of a table's log."""
    CHECKPOINT = "checkpoint"
    """A checkpoint of the catalog's file."""
    LOG_TABLE = "log table"
    """The log's entries in the Delta table `_headgate/log`."""
    COUNTER = "counter"
    """Catalog counters that are not transactional: oids, sequences, errors of a subscription, origins."""


class FaultAction(enum.StrEnum):
    """The fault to inject."""

    ERROR = "error"
    KILL = "kill"
    SLEEP = "sleep"
    ENOSPC = "enospc"


FAILING = frozenset({FaultAction.ERROR, FaultAction.ENOSPC})
COMMITS = frozenset({
    Step.ENTRY, Step.DEFINITION, Step.PREPARED, Step.PREPARED_END, Step.SLOT, Step.SYNCHRONIZATION, Step.COUNTER, Step.CHECKPOINT,
})  # fmt: skip
"""Steps that end with a commit of the catalog."""
PLACES = ("before", "behind")
TIMES = 2
SLEEP_SECONDS = 0.5

_armed: dict[tuple[str, str], list[FaultAction]] = {}
_lock = threading.Lock()


def arm(text: str) -> None:
    """Replace all pending faults by those of the setting's text. Raise 22023 if it is invalid."""
    faults: dict[tuple[str, str], list[FaultAction]] = {}
    for failpoint in filter(None, (part.strip() for part in text.split(","))):
        where, _, action = failpoint.partition("=")
        name, _, place = where.strip().rpartition(" ")
        if name not in [str(step) for step in Step] or place not in PLACES or action.strip() not in [str(one) for one in FaultAction]:
            raise PostgresError("22023", f'invalid failpoint "{failpoint}"')
        if FaultAction(action.strip()) in FAILING and place == "behind" and Step(name) in COMMITS:
            raise PostgresError("22023", f'nothing can fail behind the step "{name}"')
        faults[name, place] = [FaultAction(action.strip())] * TIMES
    with _lock:
        _armed.clear()
        _armed.update(faults)


@contextlib.contextmanager
def step(of: Step) -> Iterator[None]:
    """Run an action that makes data durable inside the context."""
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
