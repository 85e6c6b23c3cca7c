"""Whose lines those in the log are: what the escapes of log_line_prefix stand for (manual, 20.8.3).

A connection's thread has a `Session` speaker from accept to its end (`begin`); every other thread speaks for the node. Called by `startup`,
which fills in what it learns, and by `log`, which asks at each line.
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
        """As pg_stat_activity.backend_type has it."""
        name = threading.current_thread().name
        if name.startswith("logical replication"):
            return "logical replication launcher" if name.endswith("launcher") else "logical replication worker"
        return "checkpointer" if name == "checkpointer" else "postmaster"

    def count(self) -> int:
        """The number of the next line (%l)."""
        with _counting:
            self.lines += 1
            return self.lines


@dataclass(eq=False)
class ClientSpeaker(Speaker):
    """A client's connection; `user` and `database` are None until they are known."""

    started: float = field(default_factory=time.time)
    host: str = "[local]"
    port: int = -1
    user: str | None = None
    database: str | None = None
    walsender: bool | None = None
    """None before the connection has said what it is."""
    tag: str = ""
    application_name: Callable[[], str] = str
    xid: Callable[[], int] = int
    """The number of the transaction, 0 for none."""

    @property
    def kind(self) -> str:
        """As pg_stat_activity.backend_type has it."""
        return "not initialized" if self.walsender is None else "walsender" if self.walsender else "client backend"

    @property
    def place(self) -> str:
        """Host and port."""
        return self.host if self.port < 0 else f"{self.host}({self.port})"


_node = Speaker()


def begin(speaker: ClientSpeaker) -> None:
    """From now on this thread's lines are that connection's."""
    _own.speaker = speaker


def current() -> Speaker:
    """Whose line this thread writes."""
    found: Speaker = getattr(_own, "speaker", _node)
    return found
