"""What tests of the files of tables share."""

from __future__ import annotations

import pytest

from headgate.storage import feed, write
from headgate.storage.delta import delta_table, foreign_writer


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store too a look for versions of other writers finds what is there, however soon it comes after another."""
    monkeypatch.setattr(foreign_writer, "STORE_LOOK_SECONDS", 0.0)


@pytest.fixture(params=["driver", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes and reads: the driver, as where rows are few, or jobs of Spark."""
    if request.param == "spark":
        monkeypatch.setattr(write, "SMALL_ROWS", -1)
        monkeypatch.setattr(write, "SMALL_BYTES", -1)
        monkeypatch.setattr(feed, "SMALL_BYTES", -1)
        monkeypatch.setattr(delta_table, "RESIDENT_ROWS", -1)
    return str(request.param)
