"""Coverage plugin that saves the measured lines of each process every two seconds (`[tool.coverage.run]` of pyproject.toml).

Coverage saves them when a process exits. Tests kill nodes, and Spark ends its Python workers with a signal: their lines would be lost.
Coverage calls `coverage_init` when it starts in a process, also in a forked one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from coverage import Coverage
from coverage.plugin_support import Plugins

INTERVAL_SECONDS = 2.0


def coverage_init(registry: Plugins, options: Mapping[str, str]) -> None:
    threading.Thread(target=_save_repeatedly, name="coverage saver", daemon=True).start()


def _save_repeatedly() -> None:
    while True:
        time.sleep(INTERVAL_SECONDS)
        if coverage := Coverage.current():
            coverage.save()
