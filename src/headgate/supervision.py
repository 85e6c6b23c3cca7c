"""Background threads that must not end before they are told to, and what keeps their work from succeeding.

`Supervised` runs `work` in a thread of its own, and `Periodic` a `look` every few seconds. The listener, the launcher, the checkpointer,
the watch of the log and that of the Java virtual machine are such threads. Apply workers and table syncs have the launcher, and sessions
end with their clients.

    running     `work` runs
    resting     it raised: the error is in the log with its traceback, and `work` starts again after a pause that doubles from
                `FIRST_PAUSE` to `LONGEST_PAUSE` seconds, and begins anew once it has run for `CALM` seconds
    ended       `work` has returned, as it does when it is told to stop

Invariant: `work` may be started again after an error at any place. A thread that is not supervised and ends with an error is in the
log too (`log_uncaught`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger("headgate.server")

Subject = str | tuple[int, int]
"""A name, or a table by the oids of its database and of itself."""
FIRST_PAUSE, LONGEST_PAUSE, CALM = 0.1, 30.0, 60.0


@dataclass(frozen=True)
class Health:
    """How a supervised thread does: `failures` since the node's start, the last `error` while it rests."""

    name: str
    running: bool
    failures: int
    error: str | None


class Obstacles:
    """What keeps background work from succeeding until a later attempt does: texts by the kind of work and by its table or object.

    A part notes an obstacle where it logs a WARNING and goes on; `headgate status` shows it. Any thread may call anything.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Subject], str] = {}

    def note(self, work: str, subject: Subject, text: str) -> None:
        """Note that an attempt has failed."""
        self._texts[work, subject] = text

    def clear(self, work: str, subject: Subject) -> None:
        """Note that an attempt has succeeded."""
        self._texts.pop((work, subject), None)

    def all(self) -> list[tuple[str, Subject, str]]:
        """Return work, subject and text of each."""
        return [(*key, text) for key, text in self._texts.copy().items()]


class Supervised:
    """See the module."""

    def __init__(self, name: str, work: Callable[[], None], patience: float | None = None) -> None:
        """`patience` is for how many seconds `stop` waits for the end of the work; None: until it has ended."""
        self.name = name
        self._patience = patience
        self._work = work
        self.stopping = threading.Event()
        self._failures = 0
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins the work."""
        self._thread.start()

    def stop(self) -> None:
        """Set `stopping`, on which the work may wait, and wait for the end of the work; it does not start again."""
        self.stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._patience)

    def health(self) -> Health:
        """How it does."""
        alive = self._thread.is_alive()
        return Health(self.name, alive and self._error is None, self._failures, self._error)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                self._error = None
                self._work()
            except Exception as error:  # noqa: BLE001 (whatever it is, the work goes on)
                if self.stopping.is_set():
                    return
                pause = FIRST_PAUSE if time.monotonic() - began >= CALM else pause
                self._failures += 1
                self._error = f"{type(error).__name__}: {error}"
                _log.exception('background thread "%s" failed; it starts again in %.1f s', self.name, pause)
            else:
                return
            if self.stopping.wait(pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE)


class Periodic(Supervised):
    """A supervised thread that calls `look` every `seconds`, first after the first `seconds`."""

    def __init__(self, name: str, seconds: float, patience: float) -> None:
        super().__init__(name, self._look_on, patience)
        self._seconds = seconds

    def look(self) -> None:
        """Do the work once; a subclass has it."""
        raise NotImplementedError

    def _look_on(self) -> None:
        while not self.stopping.wait(self._seconds):
            self.look()


def log_uncaught() -> None:
    """From now on a thread that ends with an error says so in the log."""

    def said(uncaught: threading.ExceptHookArgs) -> None:
        if uncaught.exc_value is not None:
            name = "" if uncaught.thread is None else uncaught.thread.name
            known = (uncaught.exc_type, uncaught.exc_value, uncaught.exc_traceback)
            _log.error('thread "%s" ended with an unexpected error', name, exc_info=known)

    threading.excepthook = said
