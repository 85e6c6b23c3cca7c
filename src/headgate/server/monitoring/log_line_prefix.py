"""The values of the escapes in log_line_prefix, for each thread that writes to the log (manual, 20.8.3).

A connection's thread has its own `ClientSpeaker` from accept to its end (`begin`), a worker's thread a `Speaker` with the process ID that
pg_stat_activity shows. All other threads use the node's `Speaker`. Called by `startup`, which fills in the fields, by `node_parts`, and by
`log` for each line.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_STARTED = time.time()
_own = threading.local()
_counting = threading.Lock()


@dataclass(eq=False)
class Speaker:
    """The node itself, or one of its background threads."""

    pid: int = field(default_factory=os.getpid)
    started: float = _STARTED
    lines: int = 0

    @property
    def kind(self) -> str:
        """The value of pg_stat_activity.backend_type."""
        name = threading.current_thread().name
        if name.startswith("logical replication"):
            return "logical replication launcher" if name.endswith("launcher") else "logical replication worker"
        return "checkpointer" if name == "checkpointer" else "postmaster"

    def count(self) -> int:
        """Return the number of the next log line (%l)."""
        with _counting:
            self.lines += 1
            return self.lines


@dataclass(eq=False)
class ClientSpeaker(Speaker):
    """The connection of a client. `user` and `database` are None until they are known."""

    started: float = field(default_factory=time.time)
    host: str = "[local]"
    port: int = -1
    user: str | None = None
    database: str | None = None
    walsender: bool | None = None
    """None until the startup packet has been read."""
    tag: str = ""
    application_name: Callable[[], str] = str
    xid: Callable[[], int] = int
    """Returns the ID of the transaction, 0 for none."""

    @property
    def kind(self) -> str:
        """The value of pg_stat_activity.backend_type."""
        return "not initialized" if self.walsender is None else "walsender" if self.walsender else "client backend"

    @property
    def place(self) -> str:
        return self.host if self.port < 0 else f"{self.host}({self.port})"


_node = Speaker()


def begin(speaker: Speaker) -> None:
    """Use this speaker for the log lines of the current thread."""
    _own.speaker = speaker


def end() -> None:
    """Use the node's speaker again."""
    _own.speaker = _node


def current() -> Speaker:
    speaker: Speaker = getattr(_own, "speaker", _node)
    return speaker
