"""The main thread's wait for signals and for requests to stop the node.

The kernel delivers a signal to any thread of the process. Python runs its handler in the main thread. But if another thread received the
signal, Python does not wake the main thread from a wait for a lock: the handler would run up to an hour later. So the main thread waits
for a descriptor to which Python writes from the thread that receives the signal (signal.set_wakeup_fd). Called by `node`.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket


class SignalWait:
    """A wait of the main thread, which also creates it. Any thread may call `wake`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def wait(self) -> None:
        """Return after a signal or a `wake`. Signal handlers have run by then."""
        select.select([self._reader], [], [])
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def wake(self) -> None:
        """End the current wait, or the next one."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it wakes up anyway; closed: the node has stopped
            self._writer.send(b"\0")

    def close(self) -> None:
        """Close the descriptors."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()
