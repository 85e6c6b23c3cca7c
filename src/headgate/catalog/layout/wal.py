"""The write-ahead log of the catalog's file (``catalog.duckdb.wal``) after a power failure.

DuckDB synchronizes it at each commit and leaves an incomplete end out. But a file system that had made the file longer, and had not
written yet what was in it, leaves zeros: DuckDB then finds an entry whose checksum is wrong and does not open the file. `cut` leaves such
an end out; no commit in it was acknowledged. Damage that is followed by something is not that, and stays an error. Called by
`catalog.Catalog.open`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_PLACE = re.compile(r"entry at byte position (\d+)")
_ZEROS = 8
"""So many zeros at the end are no entry: an entry ends with its data."""


def cut(database: Path, error: Exception) -> Path | None:
    """Cuts the log where DuckDB's error says that it is wrong, if what follows ends in zeros; a copy of it as it was, None if not cut."""
    found = _PLACE.search(str(error))
    log = database.with_name(database.name + ".wal")
    if found is None or not log.exists():
        return None
    place, content = int(found[1]), log.read_bytes()
    if not 0 < place < len(content) or content[-_ZEROS:].strip(b"\0"):
        return None
    copy = log.with_name(log.name + ".damaged")
    shutil.copy(log, copy)
    with log.open("r+b") as file:
        file.truncate(place)
        os.fsync(file.fileno())
    return copy
