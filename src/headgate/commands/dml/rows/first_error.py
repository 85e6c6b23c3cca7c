"""The error of the first row: rows are checked together, but PostgreSQL inserts them one by one and so reports the first that fails.

Called by `new_rows` and `routed_rows`. A check must change nothing, and must fail for some first rows exactly if one of these rows fails:
then the shortest beginning that fails ends with the row in question, whose error is the statement's. It is sought only after an error,
in as many checks as the number of rows has binary digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from headgate.errors import PostgresError

T = TypeVar("T")
_CANCELLED = "57"


def checked(rows: pa.Table, check: Callable[[pa.Table], T]) -> T:
    """``check(rows)``, or the error of the first row that fails."""
    try:
        return check(rows)
    except Exception as error:
        if _asked_to_stop(error):
            raise
        found = error
    passing, failing = 0, rows.num_rows
    while failing - passing > 1:
        middle = (passing + failing) // 2
        try:
            check(rows.slice(0, middle))
            passing = middle
        except Exception as error:
            if _asked_to_stop(error):
                raise
            failing, found = middle, error
    raise found


def _asked_to_stop(error: Exception) -> bool:
    return isinstance(error, PostgresError) and error.sqlstate.startswith(_CANCELLED)
