"""The location of the tables and tasks of the suite's nodes, which ``--on`` selects. The tests are the same.

    disk        the default of a node
    tasks       Spark's tasks process every batch (`small_batch_rows = 0`)
    s3          each node's tables are at a separate prefix of the run's object store
    gs, azure   the same with a storage that has the protocol of Google's or Azure's
    cluster     the tasks of all nodes run on one standalone cluster of two workers, for every batch; the tables are on a local disk

Called by `conftest`. `settings` returns the settings of one node, or of one engine of a test without a node. A test that sets the location of
its tables itself keeps it. A test that reads their files as local files is marked `on_disk`, and skipped elsewhere. A test that requires tasks
in the node's own Java is marked `one_java`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.storage.location import data_location

if TYPE_CHECKING:
    from tests.object_store import ObjectStore
    from tests.spark_cluster import SparkCluster

    from headgate.storage.location.data_location import DataPath


class Place(Enum):
    """The values of ``--on``."""

    DISK = "disk"
    TASKS = "tasks"
    S3 = "s3"
    GS = "gs"
    AZURE = "azure"
    CLUSTER = "cluster"

    @property
    def is_store(self) -> bool:
        """Whether the tables are in an object store."""
        return self in (Place.S3, Place.GS, Place.AZURE)

    @property
    def patience(self) -> int:
        """The factor for the timeouts of tests. Each batch is several Spark jobs, and a job on a cluster takes a second."""
        return {Place.TASKS: 5, Place.CLUSTER: 10}.get(self, 1)


class Surroundings:
    """The servers that the selected place needs. They are started when the first node needs them."""

    def __init__(self, place: Place, store: Callable[[], ObjectStore], folder: Callable[[], Path]) -> None:
        self.place, self._store, self._folder = place, store, folder
        self._cluster: SparkCluster | None = None

    def settings(self) -> dict[str, str]:
        """Return the settings of one more node, as headgate.conf has them."""
        if self.place.is_store:
            return self._store().settings()
        if self.place is Place.CLUSTER:
            return {**self.spark_settings(), "small_batch_rows": "0"}
        return {"small_batch_rows": "0"} if self.place is Place.TASKS else {}

    def path(self, named: str) -> DataPath:
        """Return the location of a table, from the path that a node returns for it."""
        return data_location.at(named, bare(self._store().settings() if self.place.is_store else {}))

    def spark_settings(self) -> dict[str, str]:
        """Return those settings with which the Spark session of tests without a node is started."""
        if self.place.is_store:
            return self._store().settings()
        if self.place is not Place.CLUSTER:
            return {}
        return {
            "spark.master": f"'{self._started().master}'",
            "spark.driver.host": "'127.0.0.1'",
            "spark.cores.max": "'1'",  # several nodes run at the same time, and each is an application
            "spark.executor.memory": "'1g'",
        }

    def _started(self) -> SparkCluster:
        if self._cluster is None:
            from tests.spark_cluster import SparkCluster

            # more cores and memory than there are: an application that waits for a core that another one has would wait for ever
            self._cluster = SparkCluster(self._folder(), cores=8, memory="12g")
        return self._cluster

    def end(self) -> None:
        """End the servers that were started."""
        if self._cluster is not None:
            self._cluster.end()


def bare(settings: dict[str, str]) -> dict[str, str]:
    """Return settings without the quotes that a configuration file has."""
    return {name: value.strip("'") for name, value in settings.items()}
