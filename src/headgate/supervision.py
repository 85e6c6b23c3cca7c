"""Background threads that are restarted after an error, and the reasons why background work does not succeed.

`Supervised` runs `work` in its own thread. `Periodic` calls `look` every few seconds. The listener, the launcher, the checkpointer and the
watches of the log and of the JVM are such threads. Apply workers and table syncs are not: the launcher restarts them. Sessions end with
their clients.

    running     `work` runs
    pausing     `work` has raised an error, which is in the log with its traceback. It starts again after a pause. The pause doubles from
                `FIRST_PAUSE` to `LONGEST_PAUSE` seconds, and is reset after `work` has run for `CALM` seconds.
    ended       `work` has returned, as it does after `stop`

Invariant: `work` can be restarted after an error at any point. If a thread that is not supervised ends with an error, the error is logged
too (`log_uncaught`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger("headgate.server")

Subject = str | tuple[int, int]
"""A name, or the oids of a database and of a table in it."""
FIRST_PAUSE, LONGEST_PAUSE, CALM = 0.1, 30.0, 60.0


@dataclass(frozen=True)
class Health:
    """The state of a supervised thread: its `failures` since the node's start, and the last `error` during a pause."""

    name: str
    running: bool
    failures: int
    error: str | None


class Obstacles:
    """The reasons why background work does not succeed, by the kind of work and its table or object.

    Code that logs a WARNING and continues notes an obstacle. `headgate status` shows it until a later attempt succeeds. All methods are
    thread-safe.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Subject], str] = {}

    def note(self, work: str, subject: Subject, text: str) -> None:
        self._texts[work, subject] = text

    def clear(self, work: str, subject: Subject) -> None:
        """Note that an attempt has succeeded."""
        self._texts.pop((work, subject), None)

    def all(self) -> list[tuple[str, Subject, str]]:
        return [(*key, text) for key, text in self._texts.copy().items()]


class Supervised:
    """A background thread that is restarted after an error, as the module describes."""

    def __init__(self, name: str, work: Callable[[], None], patience: float | None = None) -> None:
        """`patience`: the number of seconds that `stop` waits for the end of the work; None: no limit."""
        self.name = name
        self._patience = patience
        self._work = work
        self.stopping = threading.Event()
        self._failures = 0
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Set `stopping`, for which the work may wait, and wait for the end of the work. It does not start again."""
        self.stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._patience)

    def health(self) -> Health:
        alive = self._thread.is_alive()
        return Health(self.name, alive and self._error is None, self._failures, self._error)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                self._error = None
                self._work()
            except Exception as error:  # noqa: BLE001 (the work is restarted after any error)
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
        super().__init__(name, self._look_periodically, patience)
        self._seconds = seconds

    def look(self) -> None:
        """Do the work once. Subclasses implement it."""
        raise NotImplementedError

    def _look_periodically(self) -> None:
        while not self.stopping.wait(self._seconds):
            self.look()


def log_uncaught() -> None:
    """Log the error of any thread that ends with one from now on."""

    def log(uncaught: threading.ExceptHookArgs) -> None:
        if uncaught.exc_value is not None:
            name = "" if uncaught.thread is None else uncaught.thread.name
            error = (uncaught.exc_type, uncaught.exc_value, uncaught.exc_traceback)
            _log.error('thread "%s" ended with an unexpected error', name, exc_info=error)

    threading.excepthook = log
