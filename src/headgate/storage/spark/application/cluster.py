"""The Spark cluster that runs a node's tasks: whether its master answers, whether the node's application is running, its executors.

Called by the node before and after Spark starts, and by `server.cluster_watch` from then on. Only a standalone master (``spark://``) has an
address to connect to. For YARN and Kubernetes, only the state of the application is known.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headgate.errors import PostgresError
from headgate.storage.spark.internals import task_status

_STANDALONE = "spark://"
_PORT = 7077
CONNECT_SECONDS = 5.0
SPREAD = "spark.sql.shuffle.partitions"
PARTITIONS = 2
"""Number of shuffle partitions for each core of the executors: more than one, so that a slow task does not delay the rest alone."""


@dataclass(frozen=True)
class Application:
    """The node's application, with its current number of executors."""

    master: str
    alive: bool
    executors: int


def addresses(master: str) -> list[tuple[str, int]]:
    """Return the addresses of a standalone master, or of several of which one leads. Empty for other clusters."""
    if not master.startswith(_STANDALONE):
        return []
    addresses = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        addresses.append((host.strip("[]"), int(port)) if port.isdigit() else (address.strip("[]"), _PORT))
    return addresses


def answers(master: str) -> bool:
    """Return whether a master accepts connections. True if it has no address to connect to."""
    targets = addresses(master)
    return not targets or any(_takes_connections(*target) for target in targets)


def _takes_connections(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


def unreachable(master: str) -> PostgresError:
    """Return 58000 for a master that does not answer."""
    return PostgresError(
        "58000",
        f'could not connect to Spark master "{master}"',
        hint="Start the cluster, or set spark_master to the address of a running cluster.",
    )


def application(session: SparkSession) -> Application:
    context = session.sparkContext
    is_alive = not task_status.is_stopped(context)
    executors = len(task_status.executor_tasks(context)) - 1 if is_alive else 0  # the driver is among them
    return Application(str(context.master), is_alive, executors)


def pages(session: SparkSession) -> str | None:
    """Return the address of Spark's web interface, on a cluster or not, or None if it is disabled."""
    url: str | None = session.sparkContext.uiWebUrl
    return url


def spread(session: SparkSession) -> None:
    """Shuffle rows from now on into as many partitions as the current executors can process."""
    session.conf.set(SPREAD, str(PARTITIONS * session.sparkContext.defaultParallelism))
