"""What tests of the files of tables share."""

from __future__ import annotations

import pytest

from headgate.storage import feed, write
from headgate.storage.delta import delta_table


@pytest.fixture(params=["driver", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes and reads: the driver, as where rows are few, or jobs of Spark."""
    if request.param == "spark":
        monkeypatch.setattr(write, "SMALL_ROWS", -1)
        monkeypatch.setattr(write, "SMALL_BYTES", -1)
        monkeypatch.setattr(feed, "SMALL_BYTES", -1)
        monkeypatch.setattr(delta_table, "RESIDENT_ROWS", -1)
    return str(request.param)
