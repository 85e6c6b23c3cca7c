"""Fixtures that the tests of table files share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headgate.errors import PostgresError
from headgate.storage import feed, write
from headgate.storage.delta import delta_table
from headgate.storage.location import data_location
from headgate.storage.location.lease import Lease
from headgate.storage.transaction import foreign_writer


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look for versions of other writers read an object store, even if the last look was recent."""
    monkeypatch.setattr(foreign_writer, "STORE_LOOK_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _leases_are_given_back() -> Iterator[None]:
    """Release the leases of a test's engines. Otherwise their renewals would be counted as requests of a later test."""
    leases, take = [], Lease.take

    def noted(lease: Lease) -> bool:
        leases.append(lease)
        return take(lease)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lease, "take", noted)
        yield
    for lease in leases:
        with contextlib.suppress(PostgresError, OSError):  # the test may have stopped its store
            lease.release()
        data_location.guard(lease._location, lambda: None)  # the engines of all tests share one file system


@pytest.fixture(params=["driver", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way to write and read: by the driver, as for few rows, or by Spark jobs."""
    if request.param == "spark":
        monkeypatch.setattr(write, "SMALL_ROWS", -1)
        monkeypatch.setattr(write, "SMALL_BYTES", -1)
        monkeypatch.setattr(feed, "SMALL_BYTES", -1)
        monkeypatch.setattr(delta_table, "RESIDENT_ROWS", -1)
    return str(request.param)
