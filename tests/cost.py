"""The cost of a run of the tests: the CPU seconds of the machine, and the files that took longest.

Called by `conftest` at the end of a run. Servers, Spark's Java and its workers are not children of pytest, so the CPU time is that of all
processes of the machine. Run the tests alone to compare two commits.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SLOWEST = 10


def cpu_seconds() -> float:
    """Return the CPU time of all processes since the machine was started, user and system, in seconds."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system = (int(field) for field in fields[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def slowest_files(reports: Iterable[pytest.TestReport]) -> Iterator[tuple[str, float]]:
    """Return the files whose tests took longest, with the seconds of their set-ups, calls and teardowns."""
    seconds = Counter[str]()
    for report in reports:
        seconds[report.location[0]] += report.duration  # type: ignore[assignment]
    yield from seconds.most_common(SLOWEST)
