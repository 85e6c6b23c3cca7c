"""Servers that tests start end with their run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.object_store import await_start


def test_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("what it has said")
    with subprocess.Popen(["sleep", "60"]) as server:
        with pytest.raises(AssertionError, match="does not answer") as error:
            await_start(server, lambda: False, log, seconds=0.1)
        assert server.poll() is not None
    assert error.value.__notes__ == ["what it has said"]
