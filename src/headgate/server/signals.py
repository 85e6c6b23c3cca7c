"""The main thread's wait for signals and for whoever asks the node to stop.

The kernel gives a signal to any thread of the process. Python runs its handler in the main thread, but does not wake that from a wait for
a lock when another thread got the signal: it was handled at the end of the wait, after up to an hour. So the main thread waits for a
descriptor, into which Python writes from whichever thread gets the signal (signal.set_wakeup_fd). Called by `node`.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket


class SignalWait:
    """Made and waited with by the main thread; any thread may `wake` it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def wait(self) -> None:
        """Returns after a signal or a `wake`; handlers have run by then."""
        select.select([self._reader], [], [])
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def wake(self) -> None:
        """Ends the present wait, or the next one."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it wakes anyway; closed: the node has stopped
            self._writer.send(b"\0")

    def close(self) -> None:
        """Gives the descriptors back."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()
