"""Cancel a running statement or terminate a session, from other threads.

Each session has one `Interrupts`. Other threads call `cancel` (CancelRequest, pg_cancel_backend, statement_timeout) and `terminate`
(pg_terminate_backend, shutdown). The session's own thread calls `check` periodically. Around work that blocks in Spark or DuckDB it uses
`cancelling` to say how to stop that work. A cancel outside a statement has no effect.

Neither engine remembers a stop request that arrives before its query has begun (DuckDB's `interrupt`, Spark's `cancelJobGroup`), and a
query is translated for a while before it begins. So the stop is repeated until the work has left `cancelling`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from headgate import interruption
from headgate.errors import PostgresError, Severity

BY_USER = ("57014", "canceling statement due to user request")
BY_TIMEOUT = ("57014", "canceling statement due to statement timeout")
AGAIN_SECONDS = 0.05
"""The interval in seconds at which work that has not stopped yet is stopped again."""
BY_ADMINISTRATOR = ("57P01", "terminating connection due to administrator command")


class Interrupts:
    """The pending cancel and termination requests of a session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._running = False
        self._cause: tuple[str, str] | None = None
        self._end: tuple[str, str] | None = None
        self._stops: list[Callable[[], None]] = []
        self._in_java: float | None = None
        self._timer: threading.Timer | None = None

    @property
    def terminated(self) -> bool:
        return self._end is not None

    @property
    def computing(self) -> float | None:
        """The time (seconds, monotonic) since which the running statement has work done in the JVM, or None."""
        return self._in_java if self._running else None

    # ---- from other threads -----------------------------------------------------------------------------
    def cancel(self, cause: tuple[str, str] = BY_USER, *, computing: float | None = None) -> None:
        """Cancel the running statement, if any. With `computing`, only if it is the one that has had work done in the JVM since then."""
        with self._lock:
            if not self._running or self._cause is not None or computing not in (None, self._in_java):
                return
            self._cause = cause
        self._stop()

    def terminate(self, cause: tuple[str, str] = BY_ADMINISTRATOR) -> None:
        """Terminate the session at its next `check`."""
        with self._lock:
            if self._end is not None:
                return
            self._end = cause
        self._stop()

    def _stop(self) -> None:
        self._wake.set()
        if self._call_stops():
            with contextlib.suppress(RuntimeError):  # no more threads can start; the stop was called once
                threading.Thread(target=self._insist, name="cancel", daemon=True).start()

    def _call_stops(self) -> bool:
        """Call the stop functions. Return whether there were any. The lock is held so that no stop reaches the work that comes next."""
        with self._lock:
            if self._cause is None and self._end is None:
                return False
            for stop in self._stops:
                with contextlib.suppress(Exception):
                    stop()
            return bool(self._stops)

    def _insist(self) -> None:
        while self._call_stops():
            time.sleep(AGAIN_SECONDS)

    # ---- from the session's thread ----------------------------------------------------------------------
    @contextlib.contextmanager
    def statement(self, timeout_ms: int) -> Iterator[None]:
        """Run a statement inside the context. `timeout_ms`: statement_timeout in ms, 0 = none."""
        with self._lock:
            outer, self._running = self._running, True
            if not outer:
                self._cause = None
                if self._end is None:
                    self._wake.clear()
        if not outer:
            self.time(timeout_ms)
        try:
            yield
        finally:
            if not outer:
                self.time(0)
            with self._lock:
                self._running = outer
                if not outer:
                    self._cause = None

    def time(self, timeout_ms: int) -> None:
        """Restart the statement timeout. Each statement of a simple query has its own."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(timeout_ms / 1000, self.cancel, [BY_TIMEOUT]) if timeout_ms > 0 else None
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def check(self) -> None:
        """Raise 57014 if the statement was cancelled, FATAL 57P01 if the session is to terminate."""
        if self._end is not None:
            raise PostgresError(*self._end, severity=Severity.FATAL)
        if self._cause is not None:
            raise PostgresError(*self._cause)

    def pending(self) -> PostgresError | None:
        """Return the error that `check` would raise, or None."""
        return interruption.pending(self.check)

    def forget_cancel(self, error: PostgresError | None = None) -> None:
        """Discard a cancel request, because the statement continues. With `error`, only if the request has raised it."""
        with self._lock:
            if error is not None and (self._cause is None or self._cause[0] != error.sqlstate):
                return
            self._cause = None
            if self._end is None:
                self._wake.clear()

    @contextlib.contextmanager
    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> Iterator[None]:
        """Call `stop` at a cancel inside the context, from another thread and until the work has left. `in_java`: it uses JVM memory."""
        before = self._in_java
        with self._lock:
            self._stops.append(stop)
            if in_java and before is None:
                self._in_java = time.monotonic()
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)
                self._in_java = before

    def sleep(self, seconds: float) -> None:
        """Wait for pg_sleep. Raise the error of `check` as soon as there is one."""
        self.check()
        self._wake.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        self.check()
