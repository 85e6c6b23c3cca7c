"""The lease of a data location in an object store: one node writes there at a time, also where two have the same catalog.

A local folder has its node's pid file; an object store is reached from many machines, and a node that is paused or cut off does not know
that another has taken its place. So the location bears a lease, the file `headgate.lease`, that its holder writes anew every RENEW_SECONDS,
each time on condition that it is as he has left it.

    free         no lease, one that its holder gave back, or one whose process this machine knows to be gone: taken at once
    held         it changes within LEASE_SECONDS: 55006, the node does not start
    left         it does not: taken, by the same condition. The holder may live still, and is fenced

Clocks are not compared: who waits for a lease measures by his own how long it stays as it is. The holder counts from the beginning of the
request that renewed it last, and writes nothing once LEASE_SECONDS - MARGIN have passed (`check`, before each request that writes or
removes). What he had under way then (a request that waits to be sent again) meets the fence: who has taken a lease that was
left first writes an empty version into each table (`engine.recover`), and the other's, which has that number, is refused by the store.

Who finds that another holds his lease ends at once (`on_lost`), and undoes nothing: what he has staged may be the other's now. Traced: A is
stopped at 10:00:00. B sees its lease unchanged from 10:00:05 to 10:00:20, takes it, writes version 8 of t, which is empty, and begins.
A goes on at 10:01:00 with version 8 of t: `check` says that 45 s have passed. If it was behind `check` already, its PUT is refused.
Its next renewal is refused too, and it ends.

Made by `engine`, started before anything is written.
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
    """Who holds a lease: `boot` names the machine as it has been since its start, `begun` the process of this `pid`."""

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
        """This process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return cls(node, str(uuid.uuid4()), socket.gethostname(), boot, os.getpid(), _begun(os.getpid()))

    @property
    def is_gone(self) -> bool:
        """Whether it is known that the holder writes no more."""
        if self.released:
            return True
        same = (
            self.boot == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() and self.host == socket.gethostname()
        )
        return same and (self.pid == os.getpid() or _begun(self.pid) != self.begun)


def _begun(pid: int) -> int:
    """When a process of this machine began, in the kernel's ticks; 0 where there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


class Lease:
    """The lease of one location, for one process; any thread may call `check`."""

    def __init__(self, location: UPath, node: str, on_lost: Callable[[str], None]) -> None:
        self._path = location / FILE
        self._location = location
        self._store = object_store.of(location)
        self._mine = Holder.here(node)
        self._tag = ""
        self._until = 0.0
        self._lost = ""
        self.failure: str | None = None
        """Why it could not be renewed when that was tried last."""
        self._on_lost = on_lost
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> bool:
        """Takes the lease, and renews it from now on; whether its last holder may still live.

        55006 where another holds it, 0A000 where the store enforces no conditions.
        """
        while True:
            begun = time.monotonic()
            found = self._read()
            if found is None:
                taken, left = self._write(None, begun), False
            else:
                tag, holder = found
                left = not holder.is_gone
                if left:
                    self._wait(tag, holder)
                    begun = time.monotonic()
                taken = self._write(tag, begun)
            if taken:
                break
        self._check_conditions()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return left

    def check(self) -> None:
        """58030 where the lease may be another's: nothing may be written or removed."""
        if self._lost or time.monotonic() >= self._until:
            reason = self._lost or f"It was last renewed more than {LEASE_SECONDS - MARGIN:.0f} seconds ago."
            raise PostgresError("58030", f'node does not hold the lease of data location "{self._location}"', detail=reason)

    def release(self) -> None:
        """Gives the lease back."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(RENEW_SECONDS)
        if not self._lost and self._tag:
            self._mine = replace(self._mine, released=True)
            self._write(self._tag, 0.0)

    def _wait(self, tag: str, holder: Holder) -> None:
        """Waits until a lease has been left; 55006 where it is renewed."""
        _log.info(
            'waiting whether the lease of data location "%s" is renewed by node %s on host "%s"', self._location, holder.node, holder.host
        )
        until = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < until:
            time.sleep(_POLL)
            found = self._read()
            if found is None or found[0] != tag:
                raise PostgresError(
                    "55006",
                    f'data location "{self._location}" is being used by another node',
                    detail=f'The node with system identifier {holder.node} (PID {holder.pid} on host "{holder.host}") holds its lease.',
                    hint="Stop the other node, or let data_location name another prefix.",
                )

    def _renew(self) -> None:
        while not self._stopping.wait(RENEW_SECONDS):
            try:
                begun = time.monotonic()
                self._mine = replace(self._mine, renewals=self._mine.renewals + 1)
                if not self._write(self._tag, begun):
                    found = self._read()
                    whose = "It is gone." if found is None else f'It is held by PID {found[1].pid} on host "{found[1].host}".'
                    self._lost = whose
                    self._on_lost(f'node has lost the lease of data location "{self._location}": {whose}')
                    return
                self.failure = None
            except Exception as error:  # noqa: BLE001 (no answer: as long as the lease lasts it is tried again, and `check` knows when it ends)
                _log.warning('could not renew the lease of data location "%s": %s', self._location, error)
                self.failure = str(error)

    def _read(self) -> tuple[str, Holder] | None:
        """The lease and the tag of its content; the tag is the older of the two where it changes meanwhile."""
        try:
            tag = self._store.tag(self._path)
            return tag, Holder(**json.loads(self._path.fs.cat_file(self._path.path)))
        except FileNotFoundError:
            return None

    def _write(self, before: str | None, begun: float) -> bool:
        """Writes the lease in place of the one with this tag, or of none; False where another has been there."""
        content = json.dumps(asdict(self._mine)).encode()
        try:
            self._tag = self._store.put_if(self._path, content, before)
        except FileNotFoundError:
            return False
        except FileExistsError:
            # a request that was not answered in time has been carried out all the same: the same one, sent again, or the renewal before
            found = self._read()
            if found is None or found[1].process != self._mine.process:
                return False
            self._tag, held = found
            if held != self._mine:  # who waits for it has seen that one for a while: it must change
                return self._write(self._tag, begun)
        self._until = begun + LEASE_SECONDS - MARGIN
        return True

    def _check_conditions(self) -> None:
        """0A000 where the store writes a file that must not be there over one that is: neither a lease nor a version would be one there."""
        with contextlib.suppress(FileExistsError):
            self._store.put_if(self._path, json.dumps(asdict(self._mine)).encode(), None)
            raise PostgresError(
                "0A000",
                f'object store of data location "{self._location}" does not enforce conditional writes',
                detail=f'It has written "{FILE}", on condition that it is not there, over the one that was.',
                hint="Tables would lose commits in it. Use a store that enforces them.",
            )
