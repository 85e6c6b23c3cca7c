"""Fixtures that the tests of table files share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headgate.errors import PostgresError
from headgate.storage import feed, write
from headgate.storage.delta import delta_table, foreign_writer
from headgate.storage.location import data_location
from headgate.storage.location.lease import Lease


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store too a look for versions of other writers finds what is there, however soon it comes after another."""
    monkeypatch.setattr(foreign_writer, "STORE_LOOK_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _leases_are_given_back() -> Iterator[None]:
    """No engine that a test made goes on renewing its lease: those requests were counted as a later test's."""
    leases, take = [], Lease.take

    def noted(lease: Lease) -> bool:
        leases.append(lease)
        return take(lease)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lease, "take", noted)
        yield
    for lease in leases:
        with contextlib.suppress(PostgresError, OSError):  # the test may have taken its store away
            lease.release()
        data_location.guard(lease._location, lambda: None)  # one file system serves the engines of all tests


@pytest.fixture(params=["driver", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes and reads: the driver, as where rows are few, or jobs of Spark."""
    if request.param == "spark":
        monkeypatch.setattr(write, "SMALL_ROWS", -1)
        monkeypatch.setattr(write, "SMALL_BYTES", -1)
        monkeypatch.setattr(feed, "SMALL_BYTES", -1)
        monkeypatch.setattr(delta_table, "RESIDENT_ROWS", -1)
    return str(request.param)
