"""The Spark cluster that runs a node's tasks: whether its master answers, whether the node's application lives, which executors it has.

Asked by the node before Spark starts and once it has, and by `server.cluster_watch` from then on. Only a standalone master (``spark://``)
has an address that can be asked; of YARN and Kubernetes it is known whether the application lives.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headgate.errors import PostgresError

_STANDALONE = "spark://"
_PORT = 7077
CONNECT_SECONDS = 5.0
SPREAD = "spark.sql.shuffle.partitions"
PARTITIONS = 2
"""Of what tasks exchange, for each core of the executors: one that takes longer is not waited for alone."""


@dataclass(frozen=True)
class Application:
    """The node's application: `executors` that it has now."""

    master: str
    alive: bool
    executors: int


def addresses(master: str) -> list[tuple[str, int]]:
    """Where a standalone master, or those of which one leads, listens; none for other clusters."""
    if not master.startswith(_STANDALONE):
        return []
    found = []
    for each in master.removeprefix(_STANDALONE).split(","):
        host, _, port = each.rpartition(":")
        found.append((host.strip("[]"), int(port)) if port.isdigit() else (each.strip("[]"), _PORT))
    return found


def answers(master: str) -> bool:
    """Whether a master takes connections; True where it cannot be asked."""
    known = addresses(master)
    return not known or any(_takes_connections(*each) for each in known)


def _takes_connections(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


def unreachable(master: str) -> PostgresError:
    """58000 for a master that does not answer."""
    return PostgresError(
        "58000",
        f'could not connect to Spark master "{master}"',
        hint="Start the cluster, or set spark_master to an address where one answers.",
    )


def application(session: SparkSession) -> Application:
    """How the node's application does."""
    context: Any = session.sparkContext
    java = context._jsc.sc()
    if java.isStopped():
        return Application(context.master, alive=False, executors=0)
    executors = len(java.statusTracker().getExecutorInfos()) - 1  # the driver is among them
    return Application(context.master, alive=True, executors=executors)


def pages(session: SparkSession) -> str | None:
    """The address of Spark's own pages; None where they are switched off. On a cluster or not."""
    found: str | None = session.sparkContext.uiWebUrl
    return found


def spread(session: SparkSession) -> None:
    """Has statements and batches from here on exchange rows in as many partitions as the executors that there are now have work for."""
    session.conf.set(SPREAD, str(PARTITIONS * session.sparkContext.defaultParallelism))
