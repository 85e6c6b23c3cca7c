"""The functions of the layer above that check the unique indexes of tables to which changes are applied.

Made by `server.subscriber_host` from `commands.constraint.uniqueness`. Called by `table_writer`, `leaf_constraints` and the initial copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.catalog.relation.relation import Index, Relation
from headgate.storage.transaction.transaction import Transaction


@dataclass(frozen=True)
class UniqueChecks:
    """The functions that raise 23505 for the keys of unique indexes."""

    rows: Callable[[Transaction, Relation, Sequence[Index], pa.Table, pa.Table], None]
    """Checks new rows against indexes, before they are written. The last table has the positions of the rows that they replace."""
    table: Callable[[Transaction, Relation, Index], None]
    """Checks a whole table. Used for batches that are written before their rows can be checked."""
