"""Wakes a thread that waits on a socket, with a file descriptor that becomes readable.

Each waiting thread has its own `Waker`. Any thread may call `wake`, any number of times. `stop` wakes the thread permanently.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Waker:
    """An eventfd with a flag. `stop` calls `on_stop` in its own thread."""

    def __init__(self, on_stop: Callable[[], None] = lambda: None) -> None:
        self._on_stop = on_stop
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self.stopped = False
        """Whether `stop` was called: the thread should end its work."""

    def fileno(self) -> int:
        """Return the descriptor for select and poll."""
        return self._fd

    def wake(self) -> None:
        """End the current wait, or the next one."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def stop(self) -> None:
        """Request the thread to end."""
        self.stopped = True
        self.wake()
        self._on_stop()

    def clear(self) -> None:
        """Reset the wake-ups so far."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
