"""Notifies walsenders when the node's log grows: one thread waits on the log and calls the registered functions.

Created by the node. A walsender registers its channel's `interrupt` while it streams.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.storage.transaction.log import TransactionLog


class LogWatch(Supervised):
    """The thread that waits on the log. After `start`, any thread may use `watching`."""

    def __init__(self, log: TransactionLog) -> None:
        super().__init__("log watch", self._watch, patience=5)
        self._log = log
        self._lock = threading.Lock()
        self._wakers: dict[int, Callable[[], None]] = {}

    def stop(self) -> None:
        """End the thread, even if it waits for the log."""
        self.stopping.set()
        self._log.wake()
        super().stop()

    @contextlib.contextmanager
    def watching(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` whenever the log grows, inside the context."""
        with self._lock:
            self._wakers[id(wake)] = wake
        try:
            yield
        finally:
            with self._lock:
                self._wakers.pop(id(wake), None)

    def _watch(self) -> None:
        seen = self._log.end
        while not self.stopping.is_set():
            if self._log.wait(seen, 1.0):
                seen = self._log.end
                with self._lock:
                    wakers = list(self._wakers.values())
                for wake in wakers:
                    wake()
