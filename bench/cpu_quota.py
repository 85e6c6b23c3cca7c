"""Limit a process and its children to a share of a core, by the kernel's control groups.

Used by `cluster` for executors. Without a limit, executors compete for the cores with the publisher, the driver and the store, so that
more executors are slower. It needs the right to create control groups, which usually only root has. `possible` tests for it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PERIOD = 100_000
"""Microseconds of the kernel's accounting period (cpu.cfs_period_us)."""
_FIRST, _SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""The CPU controller of control groups version 1, and the root of version 2."""


def possible() -> bool:
    """Return whether this process may create control groups that limit CPU."""
    return os.access(_root(), os.W_OK) and (_root() == _FIRST or "cpu" in (_SECOND / "cgroup.subtree_control").read_text().split())


def _root() -> Path:
    return _FIRST if (_FIRST / "cpu.cfs_quota_us").exists() else _SECOND


class CpuQuota:
    """A control group. It does not have a limit until `limit` is called."""

    def __init__(self, name: str) -> None:
        self._folder = _root() / f"headgate-bench-{os.getpid()}-{name}"
        self._folder.mkdir()

    def add(self, pid: int) -> None:
        """Move a process into the group. Processes that it starts later are in the group too."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def limit(self, share: float | None) -> None:
        """Limit all processes of the group together to this share of a core. None removes the limit."""
        if _root() == _FIRST:
            (self._folder / "cpu.cfs_quota_us").write_text(str(-1 if share is None else int(share * PERIOD)))
        else:
            (self._folder / "cpu.max").write_text("max" if share is None else f"{int(share * PERIOD)} {PERIOD}")

    def end(self) -> None:
        """Remove the group. Its processes must have ended."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
