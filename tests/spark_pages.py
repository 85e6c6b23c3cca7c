"""Spark's own pages of a node, for state that cannot be observed otherwise.

Called by tests whose node has SETTINGS. ``headgate status`` shows the address of the pages.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.conftest import NodeServer

SETTINGS = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


class SparkPages:
    """The pages of a running node."""

    def __init__(self, node: NodeServer) -> None:
        self.address = json.loads(node.headgate("status", "--json").stdout)["spark"]["ui"]

    def kept(self) -> list[dict[str, Any]]:
        """Return the frames that Spark has persisted."""
        rows: list[dict[str, Any]] = self._answer("storage/rdd")
        return rows

    def groups_at_work(self) -> set[str]:
        """Return the groups of the jobs that have started and not ended."""
        return {job["jobGroup"] for job in self._answer("jobs?status=running") if "jobGroup" in job}

    def jobs(self) -> int:
        """Return how many jobs have started."""
        return len(self._answer("jobs"))

    def _answer(self, of: str) -> Any:
        [application] = self._read(f"{self.address}/api/v1/applications")
        return self._read(f"{self.address}/api/v1/applications/{application['id']}/{of}")

    @staticmethod
    def _read(page: str) -> Any:
        with urllib.request.urlopen(page, timeout=20) as response:
            return json.load(response)
