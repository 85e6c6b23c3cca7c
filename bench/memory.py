"""Peak memory of a node: the proportional set size of its whole process tree, sampled from /proc.

Used by `__main__` as a context manager around everything that is measured. PSS counts a page that n processes share
as 1/n each, so the sum over the tree is what the machine gives up for the node.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(stat.parent.name)] = int(text.rsplit(")", 1)[1].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def resident(pid: int) -> int:
    """PSS of one process in bytes, 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Peak:
    """Samples the tree's memory every half second between enter and exit; `bytes` is the largest sum seen. `alone`: without children."""

    def __init__(self, pid: int, *, alone: bool = False) -> None:
        self.pid, self.alone, self.bytes = pid, alone, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._stop.wait(0.5):
            self.bytes = max(self.bytes, sum(resident(pid) for pid in ([self.pid] if self.alone else tree(self.pid))))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
