"""The lease of a data location in an object store: only one node writes there at a time, even if two nodes have the same catalog.

A local folder is protected by its node's pid file. An object store is accessed from many machines, and a node that is paused or cut off
does not notice that another has replaced it. So the location has a lease, the file `headgate.lease`. Its holder rewrites it every
RENEW_SECONDS, each time on condition that it is unchanged since the last time.

    free         no lease, one that its holder released, or one whose process is known to be gone from this machine: acquired at once
    held         it changes within LEASE_SECONDS: 55006, the node does not start
    left         it does not change: acquired, by the same condition. The holder may still run, and is fenced

Clocks are not compared: a node that waits for a lease measures with its own clock how long it stays unchanged. The holder counts from the
start of the request that renewed it last, and writes nothing once LEASE_SECONDS - MARGIN have passed (`check`, before each request that
writes or removes). Its requests in progress at that time (such as one that waits for a retry) are stopped by the fence: a node that has
acquired a lease that was left first writes an empty version into each table (`engine.recover`). The store then rejects the former
holder's version, which has that number.

A holder that finds another's lease terminates at once (`on_lost`) and undoes nothing, because its staged files may be the other's now.
Traced: A is stopped at 10:00:00. B finds its lease unchanged from 10:00:05 to 10:00:20, acquires it, writes version 8 of t, which is empty,
and starts. A resumes at 10:01:00 with version 8 of t: `check` finds that 45 s have passed. If it was past `check` already, its PUT is
rejected. Its next renewal is rejected too, and it terminates.

Made by `engine`, and acquired before anything is written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import PostgresError
from headgate.storage.location import object_store

if TYPE_CHECKING:
    from upath import UPath

_log = logging.getLogger("headgate.storage")

FILE = "headgate.lease"
LEASE_SECONDS, RENEW_SECONDS, MARGIN = 15.0, 3.0, 3.0
_POLL = 0.5


@dataclass(frozen=True)
class Holder:
    """The holder of a lease. `boot` identifies the machine since its last boot, `begun` is the start time of the process `pid`."""

    node: str
    process: str
    host: str
    boot: str
    pid: int
    begun: int
    renewals: int = 0
    released: bool = False

    @classmethod
    def here(cls, node: str) -> Holder:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return cls(node, str(uuid.uuid4()), socket.gethostname(), boot, os.getpid(), _start_time(os.getpid()))

    @property
    def is_gone(self) -> bool:
        """Whether the holder is known not to write any more."""
        if self.released:
            return True
        is_same_machine = (
            self.boot == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() and self.host == socket.gethostname()
        )
        return is_same_machine and (self.pid == os.getpid() or _start_time(self.pid) != self.begun)


def _start_time(pid: int) -> int:
    """Return the start time of a process of this machine, in the kernel's ticks, or 0 if it does not exist."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


class Lease:
    """The lease of one location, for one process. `check` is thread-safe."""

    def __init__(self, location: UPath, node: str, on_lost: Callable[[str], None]) -> None:
        self._path = location / FILE
        self._location = location
        self._store = object_store.of(location)
        self._mine = Holder.here(node)
        self._tag = ""
        self._until = 0.0
        self._lost = ""
        self.failure: str | None = None
        """The reason why the last attempt to renew it failed."""
        self._on_lost = on_lost
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> bool:
        """Acquire the lease, and renew it from now on. Return whether its previous holder may still run.

        Raise 55006 if another node holds it, 0A000 if the store does not enforce conditions.
        """
        while True:
            begun = time.monotonic()
            lease = self._read()
            if lease is None:
                is_acquired, was_left = self._write(None, begun), False
            else:
                tag, holder = lease
                was_left = not holder.is_gone
                if was_left:
                    self._wait(tag, holder)
                    begun = time.monotonic()
                is_acquired = self._write(tag, begun)
            if is_acquired:
                break
        self._check_conditions()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return was_left

    def check(self) -> None:
        """Raise 58030 if another node may have the lease, so that nothing may be written or removed."""
        if self._lost or time.monotonic() >= self._until:
            reason = self._lost or f"It was last renewed more than {LEASE_SECONDS - MARGIN:.0f} seconds ago."
            raise PostgresError("58030", f'node does not hold the lease of data location "{self._location}"', detail=reason)

    def release(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(RENEW_SECONDS)
        if not self._lost and self._tag:
            self._mine = replace(self._mine, released=True)
            self._write(self._tag, 0.0)

    def _wait(self, tag: str, holder: Holder) -> None:
        """Wait until the lease counts as left. Raise 55006 if it is renewed."""
        _log.info(
            'waiting whether the lease of data location "%s" is renewed by node %s on host "%s"', self._location, holder.node, holder.host
        )
        until = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < until:
            time.sleep(_POLL)
            lease = self._read()
            if lease is None or lease[0] != tag:
                raise PostgresError(
                    "55006",
                    f'data location "{self._location}" is being used by another node',
                    detail=f'The node with system identifier {holder.node} (PID {holder.pid} on host "{holder.host}") holds its lease.',
                    hint="Stop the other node, or set data_location to another prefix.",
                )

    def _renew(self) -> None:
        while not self._stopping.wait(RENEW_SECONDS):
            try:
                begun = time.monotonic()
                self._mine = replace(self._mine, renewals=self._mine.renewals + 1)
                if not self._write(self._tag, begun):
                    lease = self._read()
                    reason = "It is gone." if lease is None else f'It is held by PID {lease[1].pid} on host "{lease[1].host}".'
                    self._lost = reason
                    self._on_lost(f'node has lost the lease of data location "{self._location}": {reason}')
                    return
                self.failure = None
            except Exception as error:  # noqa: BLE001 (no answer: it is retried until the lease expires, which `check` detects)
                _log.warning('could not renew the lease of data location "%s": %s', self._location, error)
                self.failure = str(error)

    def _read(self) -> tuple[str, Holder] | None:
        """Return the lease and the tag of its content, or None. If it changes meanwhile, the tag is the older one."""
        try:
            tag = self._store.tag(self._path)
            return tag, Holder(**json.loads(self._path.fs.cat_file(self._path.path)))
        except FileNotFoundError:
            return None

    def _write(self, before: str | None, begun: float) -> bool:
        """Write the lease if it has the tag `before`, or for None, if it does not exist. Return False if another process has written it."""
        content = json.dumps(asdict(self._mine)).encode()
        try:
            self._tag = self._store.put_if(self._path, content, before)
        except FileNotFoundError:
            return False
        except FileExistsError:
            # an earlier request without an answer was executed nevertheless: this one before its retry, or the previous renewal
            lease = self._read()
            if lease is None or lease[1].process != self._mine.process:
                return False
            self._tag, stored = lease
            if stored != self._mine:  # a node that waits for the lease has seen this content for a while, so it must change
                return self._write(self._tag, begun)
        self._until = begun + LEASE_SECONDS - MARGIN
        return True

    def _check_conditions(self) -> None:
        """Raise 0A000 if the store overwrites a file that must not exist: leases and versions would not be safe there."""
        with contextlib.suppress(FileExistsError):
            self._store.put_if(self._path, json.dumps(asdict(self._mine)).encode(), None)
            raise PostgresError(
                "0A000",
                f'object store of data location "{self._location}" does not enforce conditional writes',
                detail=f'It has written "{FILE}", on condition that it is not there, over the one that was.',
                hint="Tables would lose commits in it. Use a store that enforces them.",
            )
