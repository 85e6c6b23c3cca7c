"""A share of a core for a process and its children, by the kernel's control groups: machines of one size on one that has few cores.

Used by `cluster` for executors, which otherwise compete for the cores that the publisher, the driver and the store need as well, so that
more of them can only be slower. Takes the right to make control groups (root, mostly); `possible` says whether there is.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PERIOD = 100_000
"""Microseconds in which a share is given."""
_FIRST, _SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""Where version 1 of control groups has that of processors, and where version 2 has all."""


def possible() -> bool:
    """Whether this process may make control groups that limit processors."""
    return os.access(_root(), os.W_OK) and (_root() == _FIRST or "cpu" in (_SECOND / "cgroup.subtree_control").read_text().split())


def _root() -> Path:
    return _FIRST if (_FIRST / "cpu.cfs_quota_us").exists() else _SECOND


class CpuQuota:
    """A control group; without a limit until `limit`."""

    def __init__(self, name: str) -> None:
        self._folder = _root() / f"headgate-bench-{os.getpid()}-{name}"
        self._folder.mkdir()

    def add(self, pid: int) -> None:
        """Puts a process into it, with what it starts from now on."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def limit(self, share: float | None) -> None:
        """Gives all of its processes together this share of a core; None: whatever they take."""
        if _root() == _FIRST:
            (self._folder / "cpu.cfs_quota_us").write_text(str(-1 if share is None else int(share * PERIOD)))
        else:
            (self._folder / "cpu.max").write_text("max" if share is None else f"{int(share * PERIOD)} {PERIOD}")

    def end(self) -> None:
        """Removes it, when its processes have ended."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
