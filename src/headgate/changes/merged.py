"""What a merge did: how it was written, how many rows changed, what was skipped, and the conflict that stopped it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from headgate.lsn import Lsn


class MergeStrategy(enum.Enum):
    """How a batch is written."""

    APPEND = "append"
    POSITIONS = "positions"


@dataclass(frozen=True)
class KeyConflict:
    """A change that makes a row whose key is there already. `key`: one row, the key's columns as stored."""

    commit_lsn: Lsn
    key: pa.Table


@dataclass(frozen=True)
class Merged:
    """What a merge did: `changes` rows changed, `missing` changes skipped because their row is not there.

    `skipped`: these changes, as they were in the frame (batches of the driver only).
    """

    changes: int
    missing: int = 0
    conflict: KeyConflict | None = None
    strategy: MergeStrategy | None = None
    checked: bool = False
    skipped: pa.Table | None = None
