"""A whole node, controlled by the command line, serves real clients with real Spark and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import NodeServer, Server, until


def children(pid: int) -> set[int]:
    """Return the living child processes of a process."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            pids.add(int(stat.parent.name))
    return pids


def gone(pids: set[int]) -> bool:
    return until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), f"{pids} live on", seconds=20)


@pytest.mark.slow
def test_node_serves_restarts_and_leaves_no_process_behind(spare_node: Callable[..., Server]) -> None:
    node = spare_node()
    assert isinstance(node, NodeServer)
    assert node.psql("postgres", "SHOW server_version").startswith("15.18 (headgate ")
    assert node.psql("postgres", "SHOW port") == str(node.port)
    assert "incubator" not in node.log()
    pid = node.pid
    java = children(pid)
    assert java
    node.kill()
    assert gone(java)
    node.start()
    pid, java = node.pid, children(node.pid)
    with (node.data / "headgate.conf").open("a") as conf:
        conf.write("work_mem = 9MB\n")
    node.headgate("reload")
    until(lambda: node.psql("postgres", "SHOW work_mem") == "9MB", "the new setting does not take effect", seconds=20)
    node.stop()
    assert gone(java | {pid})
    assert not (node.data / "headgate.pid").exists()
    # no library writes to the log when the interpreter ends
    assert node.log().rstrip().endswith("database system is shut down")
