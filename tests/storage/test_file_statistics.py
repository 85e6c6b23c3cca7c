"""The row count of a file comes from the statistics in its `add` action, also if those are unusual."""

from __future__ import annotations

import pytest

from headgate.storage.delta import file_action


@pytest.mark.parametrize(
    ("stats", "rows"),
    [
        ('{"numRecords":12,"minValues":{"numRecords":3}}', 12),
        ('{ "numRecords" : 12 }', 12),
        ('{"minValues":{"numRecords":3},"numRecords":12}', 12),
        ('{"minValues":{"numRecords":3}}', 0),
        ("", 0),
    ],
)
def test_rows_of_a_file(stats: str, rows: int) -> None:
    assert file_action.records({"path": "a", "stats": stats}) == rows
