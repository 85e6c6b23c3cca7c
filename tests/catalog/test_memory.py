"""The catalog's memory is limited, and a query that needs more fails with 53200."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.catalog.catalog import _OPTIONS, Catalog
from headgate.catalog.physical import rows
from headgate.errors import PostgresError

MANY = "SELECT length(string_agg(repeat(p.proname, 100) || i, '')) FROM hg.pg_proc p, range(100) b(i)"


def test_query_without_enough_memory_fails_with_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.catalog.catalog._OPTIONS", {**_OPTIONS, "memory_limit": "40MB", "max_temp_directory_size": "0KB"})
    catalog = Catalog.create(tmp_path / "catalog.duckdb")
    cursor = catalog.cursor()
    with pytest.raises(PostgresError, match="out of memory") as caught:
        rows(cursor, MANY)
    assert caught.value.sqlstate == "53200"
    assert rows(cursor, "SELECT count(*) > 1000 FROM hg.pg_proc") == [(True,)]
    cursor.close()
    catalog.close()
