"""The result of a merge: the number of changed rows, the skipped changes, and the conflict that stopped it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.lsn import Lsn


@dataclass(frozen=True)
class KeyConflict:
    """A change that makes a row whose key already exists. `key`: one row, the key's columns as stored."""

    commit_lsn: Lsn
    key: pa.Table


@dataclass(frozen=True)
class Merged:
    """The result of a merge: `changes` rows were changed, `missing` changes were skipped because their row does not exist.

    `skipped`: these changes, as they were in the frame (batches of the driver only).
    """

    changes: int
    missing: int = 0
    conflict: KeyConflict | None = None
    checked: bool = False
    skipped: pa.Table | None = None
