"""Repair the write-ahead log of the catalog file (``catalog.duckdb.wal``) after a power failure.

DuckDB syncs the log at each commit and ignores an incomplete end. But if the file system had extended the file and not yet written the
data, the end consists of zeros. DuckDB then finds an entry with a wrong checksum and does not open the file. `cut` removes such an end.
No commit in it was acknowledged. Damage that is followed by other data is not repaired and remains an error. Called by
`catalog.Catalog.open`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_PLACE = re.compile(r"entry at byte position (\d+)")
_ZEROS = 8
"""Minimum number of zeros at the end that cannot belong to an entry, because an entry ends with its data."""


def cut(database: Path, error: Exception) -> Path | None:
    """Truncate the log at the position in DuckDB's error, if it ends in zeros. Return a copy of the original, or None if not truncated."""
    match = _PLACE.search(str(error))
    log = database.with_name(database.name + ".wal")
    if match is None or not log.exists():
        return None
    place, content = int(match[1]), log.read_bytes()
    if not 0 < place < len(content) or content[-_ZEROS:].strip(b"\0"):
        return None
    copy = log.with_name(log.name + ".damaged")
    shutil.copy(log, copy)
    with log.open("r+b") as file:
        file.truncate(place)
        os.fsync(file.fileno())
    return copy
