"""The columns with which published changes are read as Arrow, before and after those of the table.

`publisher.change_range` returns the changes of a node with them, and `pyspark_headgate.postgresql` those of PostgreSQL.
"""

from __future__ import annotations

import pyarrow as pa

HEAD = (
    ("_op", pa.string()),
    ("_lsn", pa.int64()),
    ("_seq", pa.int64()),
    ("_xid", pa.int64()),
    ("_commit_time", pa.timestamp("us", "UTC")),
    ("_origin", pa.string()),
)
"""The columns before the table's own."""
OLD = "_old"
"""The column after them: the old row, as far as the replica identity provides it."""

Definition = tuple[tuple[str, int, int], ...]
"""The name, type and type modifier of each published column."""


def schema_of(row: list[pa.Field]) -> pa.Schema:
    return pa.schema([*(pa.field(name, kind) for name, kind in HEAD), *row, pa.field(OLD, pa.struct(row))])
