"""REPLICA IDENTITY: the columns by which an UPDATE or DELETE identifies its row to subscribers (manual, 31.1).

The letters are those of pg_class.relreplident and of pgoutput's Relation message.
"""

from __future__ import annotations

import enum


class ReplicaIdentity(enum.StrEnum):
    """pg_class.relreplident."""

    DEFAULT = "d"
    """The primary key, if there is one."""
    INDEX = "i"
    """The index that USING INDEX names."""
    FULL = "f"
    """The whole old row."""
    NOTHING = "n"
