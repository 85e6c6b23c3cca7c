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


def proportional(pid: int) -> int:
    """PSS of one process in bytes, 0 if it is gone. The process waits while it is read, if it asks for memory itself."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def anonymous(pid: int) -> int:
    """Memory of one process that is no file's, in bytes, 0 if it is gone. Processes that share pages count them each."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "RssAnon:")


def _kilobytes(file: Path, name: str) -> int:
    try:
        for line in file.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


GROWTH = 1.02
"""How much larger the anonymous memory must be than at the last reading of PSS for the next one."""


class Peak:
    """Samples the tree's memory every half second between enter and exit; `bytes` is the largest sum seen. `alone`: without children.

    PSS is read when the anonymous memory has grown, and not each time: statements of a process whose PSS is read twice a second wait longer
    (worst wait beside hostile sessions 2.3 s instead of 0.8 s).
    """

    def __init__(self, pid: int, *, alone: bool = False) -> None:
        self.pid, self.alone, self.bytes = pid, alone, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        largest = 0
        while not self._stop.wait(0.5):
            processes = [self.pid] if self.alone else tree(self.pid)
            sampled = sum(map(anonymous, processes))
            if sampled > GROWTH * largest:
                largest = sampled
                self.bytes = max(self.bytes, sum(map(proportional, processes)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
