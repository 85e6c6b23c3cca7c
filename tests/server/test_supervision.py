"""A node continues after it has run out of descriptors or threads, and after a background thread has failed."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import HEADGATE, Server, until

from headgate.cli.pidfile import exists
from headgate.server import reinitialize
from headgate.storage.spark.internals.gateway import Address
from headgate.supervision import Periodic, Supervised

SPARE = 16


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def few_descriptors(pid: int, spare: int) -> Iterator[None]:
    """Limit the process to this number of additional file descriptors inside the context."""
    limits_before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) + spare, limits_before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits_before)


def status(node: Server) -> tuple[int, dict[str, Any]]:
    completed = subprocess.run([*HEADGATE, "status", "-D", str(node.data), "--json"], capture_output=True, text=True, timeout=60)
    return completed.returncode, json.loads(completed.stdout)


def exhaust(node: Server) -> list[psycopg.Connection[Any]]:
    """Open connections until the node cannot accept more."""
    sessions: list[psycopg.Connection[Any]] = []
    try:
        sessions.extend(psycopg.connect(node.conninfo(connect_timeout="2")) for _ in range(4 * SPARE))
    except psycopg.OperationalError:
        return sessions
    raise AssertionError("the node has descriptors for all")


@pytest.mark.slow
def test_node_without_descriptors_accepts_connections_again_when_some_are_free(own_node: Callable[..., Server]) -> None:
    node = own_node()
    with psycopg.connect(node.conninfo(), autocommit=True) as session:
        session.execute("SELECT 1")  # the first statement of a node loads modules, which needs descriptors
        with few_descriptors(node.pid, SPARE):
            sessions = exhaust(node)
            code, report = status(node)
            assert (code, report["running"], report["accepting"]) == (3, False, False)
            assert session.execute("SELECT 1").fetchone() == (1,)
            with few_descriptors(node.pid, 0):  # a status request without descriptors must not end the node
                os.kill(node.pid, signal.SIGUSR1)
                until(lambda: "could not write the node's status" in node.log(), "the status request is not logged")
            for connection in sessions:
                connection.close()
            until(lambda: status(node)[0] == 0, "the node does not accept connections although descriptors are free")
            assert status(node)[1]["running"] is True
        with psycopg.connect(node.conninfo()) as again:
            assert again.execute("SELECT 2").fetchone() == (2,)
    log = node.log()
    assert "Too many open files" in log
    assert "new connections are accepted again" in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_launcher_continues_after_it_could_not_start_a_worker(own_node: Callable[..., Server], cluster: Callable[..., Server]) -> None:
    publisher, node = cluster(), own_node()
    publisher.psql("postgres", "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    with psycopg.connect(node.conninfo(), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int PRIMARY KEY)")
        session.execute(f"CREATE SUBSCRIPTION s CONNECTION '{publisher.conninfo()}' PUBLICATION p WITH (enabled = false)".encode())
        with few_descriptors(node.pid, 0):
            session.execute("ALTER SUBSCRIPTION s ENABLE")
            until(lambda: "could not fork worker process: Too many open files" in node.log(), "the launcher did not try to start a worker")
        until(lambda: session.execute("TABLE t").fetchall() == [(1,)], "the subscription does not continue", seconds=60)


@pytest.mark.slow
def test_failed_start_of_a_worker_leaks_no_descriptor(own_node: Callable[..., Server]) -> None:
    node = own_node(wal_retrieve_retry_interval="50ms")
    unreachable = "host=127.0.0.1 port=1 dbname=postgres"

    def failures() -> int:
        return node.log().count("could not connect to the publisher")

    node.psql("postgres", f"CREATE SUBSCRIPTION s CONNECTION '{unreachable}' PUBLICATION p WITH (connect = false, slot_name = 's')")
    node.psql("postgres", "ALTER SUBSCRIPTION s ENABLE")
    until(lambda: failures() > 5, "the worker is not started again")
    descriptors_before, failures_before = descriptors(node.pid), failures()
    until(lambda: failures() > failures_before + 40, "the worker is not started again", seconds=60)
    assert descriptors(node.pid) <= descriptors_before + 5
    node.psql("postgres", "ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")


@pytest.mark.slow
def test_node_whose_directory_was_replaced_shuts_down(own_node: Callable[..., Server]) -> None:
    node = own_node()
    pid = node.pid
    node.data.rename(node.data.with_name("away"))
    until(lambda: not exists(pid), "the node is still running", seconds=30)
    assert "performing immediate shutdown because data directory lock file is invalid" in node.log()


def test_node_without_descriptors_does_not_take_java_for_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as java:
        address = Address("127.0.0.1", java.getsockname()[1], auth_token="")
        limits_before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits_before[1]))
        try:
            assert reinitialize.answers(address)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits_before)
    assert not reinitialize.answers(address)


def test_failed_work_is_logged_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []
    finished = threading.Event()

    def work() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise OSError(24, "Too many open files")
        finished.wait(10)

    thread = Supervised("patient", work, patience=10)
    with caplog.at_level(logging.ERROR):
        thread.start()
        until(lambda: len(runs) == 3, "the work is not restarted", seconds=10)
    assert (thread.health().running, thread.health().failures, thread.health().error) == (True, 2, None)
    records = [record for record in caplog.records if 'background thread "patient" failed' in record.getMessage()]
    assert [record.exc_info is not None for record in records] == [True, True]
    finished.set()
    thread.stop()
    assert not thread.health().running


def test_waiting_work_is_not_restarted_after_a_stop() -> None:
    runs: list[int] = []

    def work() -> None:
        runs.append(1)
        raise ValueError("never")

    thread = Supervised("hopeless", work, patience=10)
    thread.start()
    until(lambda: thread.health().error is not None, "the error is not reported", seconds=10)
    thread.stop()
    count = len(runs)
    assert not thread.health().running
    assert len(runs) == count


class Counting(Periodic):
    """A periodic check that fails when it is called the second time."""

    def __init__(self) -> None:
        super().__init__("counting", 0.001, patience=10)
        self.looks = 0

    def look(self) -> None:
        self.looks += 1
        if self.looks == 2:
            raise ValueError("the second look")


def test_periodic_thread_continues_after_a_failure_until_it_is_stopped() -> None:
    thread = Counting()
    thread.start()
    until(lambda: thread.looks >= 4, "the thread does not continue", seconds=10)
    assert (thread.health().running, thread.health().failures) == (True, 1)
    thread.stop()
    looks = thread.looks
    assert not thread.health().running
    assert thread.looks == looks
