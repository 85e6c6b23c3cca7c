"""A Spark cluster for tests: a standalone master and workers, in separate processes without this checkout's environment.

The executors use only the files that the node sends: variables that would let them find the node's Python are not set.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from tests.conftest import free_port, until

SPARK_HOME = Path(pyspark.__file__).parent
SECRET = "secret-of-the-cluster"


class SparkCluster:
    """The processes of the cluster. `master`: the value for `spark_master`."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "2g") -> None:
        self.folder, self.cores, self.memory = folder, cores, memory
        self.port, self.web = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        try:
            self._begin(workers)
        except BaseException:
            self.end()  # it does not belong to a fixture yet
            raise

    def _begin(self, workers: int) -> None:
        address = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.web))
        self._master = self._start("master", "master.Master", *address)
        until(self._said, f"no master:\n{self.log('master')}", 60)
        for _ in range(workers):
            self.add_worker()

    def come_back(self, workers: int = 2) -> None:
        """Start the master again at the same address. It does not know the applications of the previous one."""
        self._begin(workers)

    def add_worker(self) -> None:
        """Start a worker, and wait until it is registered with the master."""
        number = len(self.workers)
        folder = self.folder / f"worker{number}"
        options = (
            "--cores",
            str(self.cores),
            "--memory",
            self.memory,
            "--work-dir",
            str(folder),
            "--webui-port",
            "0",
            "--host",
            "127.0.0.1",
        )
        self.workers.append(self._start(f"worker{number}", "worker.Worker", *options, self.master))
        alive = sum(worker.poll() is None for worker in self.workers)
        until(lambda: (self._said() or {}).get("aliveworkers", 0) >= alive, f"no worker:\n{self.log(f'worker{number}')}", 60)

    def _start(self, name: str, role: str, *options: str) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        interpreter = Path(sys.base_prefix) / "bin"
        environment = {
            "PATH": f"{interpreter}:{Path(shutil.which('java') or '').parent}:/usr/bin:/bin",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
        } | ({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {})
        with (self.folder / f"{name}.log").open("wb") as log_file:
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *options]
            return subprocess.Popen(command, stdout=log_file, stderr=log_file, env=environment, cwd=self.folder, start_new_session=True)

    def _said(self) -> dict[str, Any] | None:
        assert self._master.poll() is None, self.log("master")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, ValueError):  # its pages are added one by one; until this one exists, another page answers
            return None

    def log(self, name: str) -> str:
        """Return the log of a process."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def executors(self) -> list[int]:
        """The process ids of executors that run."""
        return _executors(self.folder)

    def at_work(self) -> list[int]:
        """Return the executors that run a task now, according to their logs."""
        return [executor for executor in self.executors() if _is_at_work(executor)]

    def lose(self) -> None:
        """Kill all processes: the master, the workers and their executors."""
        for process in [*self.workers, self._master]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for executor in self.executors():
            os.kill(executor, signal.SIGKILL)

    def end(self) -> None:
        """Kill all processes, and remove the files that executors have unpacked (400 MB each)."""
        self.lose()
        shutil.rmtree(self.folder, ignore_errors=True)


class ClusterInJava:
    """A master and a worker with one core, inside the Java of a running session: only executors are processes. They start in a second.

    `workers=0`: only a master, whose applications have no executor.
    """

    def __init__(self, spark: SparkSession, folder: Path, workers: int = 1) -> None:
        self.folder = folder
        jvm: Any = spark._jvm
        settings, nothing = jvm.org.apache.spark.SparkConf(False), jvm.scala.Option.empty()
        start = jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint
        master = start("127.0.0.1", 0, 0, settings)._1()
        self.master = str(master.address().toSparkURL())
        masters = spark.sparkContext._gateway.new_array(jvm.String, 1)  # type: ignore[union-attr]
        masters[0] = self.master
        start = jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint
        numbers = range(1, workers + 1)
        self._ends = [start("127.0.0.1", 0, 0, 1, 1024, masters, str(folder), jvm.scala.Some(n), settings, nothing) for n in numbers]
        self._ends.append(master)

    def executors(self) -> list[int]:
        """The process ids of executors that run."""
        return _executors(self.folder)

    def finished_tasks(self) -> int:
        """Return the number of tasks that executors have finished, according to their logs."""
        return sum(log.read_text().count("Finished task") for log in self.folder.glob("app-*/*/stderr"))

    def end(self) -> None:
        """End both and the remaining executors, and remove the files that these have unpacked."""
        for end in self._ends:
            end.shutdown()
            end.awaitTermination()
        for executor in self.executors():
            os.kill(executor, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_at_work(executor: int) -> bool:
    try:
        stderr_text = Path(f"/proc/{executor}/cwd/stderr").read_text(errors="replace")
    except OSError:
        return False
    return stderr_text.count(": Running task ") > stderr_text.count(": Finished task ") + stderr_text.count(": Exception in task ")


def _executors(folder: Path) -> list[int]:
    """Return the executors whose working directories are below a folder."""
    pids = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command_line, place = cmdline.read_bytes().split(b"\0"), (cmdline.parent / "cwd").readlink()
        except OSError:
            continue
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in command_line and place.is_relative_to(folder):
            pids.append(int(cmdline.parent.name))
    return sorted(pids)
