"""Wakes a thread that waits on a socket: a file descriptor that becomes readable.

One `Waker` per thread that waits. `wake` may be called from any thread and any number of times; `stop` wakes for good.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Waker:
    """An eventfd with a flag; `told` is called by `stop`, in the thread of whoever stops."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self._told = told
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self.stopped = False
        """Whether `stop` was called: the thread should end what it does."""

    def fileno(self) -> int:
        """For select and poll."""
        return self._fd

    def wake(self) -> None:
        """Ends the present wait, or the next one."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def stop(self) -> None:
        """Asks the thread to end."""
        self.stopped = True
        self.wake()
        self._told()

    def clear(self) -> None:
        """Takes note of the wake-ups so far."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Gives the descriptor back."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
