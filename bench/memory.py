"""Peak memory of a node: the proportional set size (PSS) of its process tree, sampled from /proc.

Used by the measurements as a context manager. PSS counts a page that n processes share as 1/n for each, so that the sum over the tree
counts each page once.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self


def tree(root: int) -> list[int]:
    """Return the process id and those of all its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # the process has ended
            continue
        parents[int(stat.parent.name)] = int(text.rsplit(")", 1)[1].split()[1])
    pids = [root]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids


def proportional(pid: int) -> int:
    """Return the PSS of a process in bytes, 0 if it has ended. Reading it blocks the process while it allocates memory."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def anonymous(pid: int) -> int:
    """Return the bytes of a process's memory that no file backs, 0 if it has ended. Shared pages count for each process."""
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
"""PSS is read again only after the anonymous memory has grown by this factor."""


class Peak:
    """The largest memory of a process tree, sampled every half second inside a `with` block.

    `bytes` is the maximum. With `alone`, children are not counted. PSS is read only if the anonymous memory has grown, because reading it
    twice a second makes the statements of the process wait (the worst wait beside hostile sessions was 2.3 s instead of 0.8 s).
    """

    def __init__(self, pid: int, *, alone: bool = False) -> None:
        self.pid, self.alone, self.bytes = pid, alone, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        largest = 0
        while not self._stop.wait(0.5):
            processes = [self.pid] if self.alone else tree(self.pid)
            size = sum(map(anonymous, processes))
            if size > GROWTH * largest:
                largest = size
                self.bytes = max(self.bytes, sum(map(proportional, processes)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
