"""How a transaction holds an object of the catalog (its row's key, `unique.row_key`) or a name (`unique.CatalogKey`) until it ends.

    USE      any number of transactions may use an object: what they make names it (a table its schema, a view the tables that it reads,
             a right the role that has it). Nobody drops or renames it meanwhile.
    CHANGE   one transaction changes something of the object that those who use it do not look at: its comment, its partitions
    ALONE    one transaction drops the object, renames it or changes what its users rely on. Names are always held like this.

They are PostgreSQL's AccessShareLock, ShareUpdateExclusiveLock and AccessExclusiveLock on objects. Two holds that conflict wait for each
other (`storage.lock`), and who gets one looks whether another that conflicts with it was committed since it looked at the
catalog (`storage.transaction.committed_keys`).

Commands that have a cursor of the catalog and not its transaction use an object with `use`; the cursor of a transaction has such a method
(`storage.transaction.catalog_transaction`). Other cursors use nothing.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from headgate.types.registry import FIRST_USER_OID

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor

PUBLIC = 2200
"""Objects below are the system's and stay, but for the schema public."""


class Hold(enum.IntEnum):
    """See the module; one that is greater holds all that a smaller one does."""

    USE = 1
    CHANGE = 2
    ALONE = 3

    def conflicts(self, other: Hold) -> bool:
        """Whether two transactions cannot have these holds of one object at a time."""
        return self + other > Hold.ALONE


CONFLICTING = {hold: tuple(other for other in Hold if hold.conflicts(other)) for hold in Hold}


def is_pinned(catalog: str, oid: int) -> bool:
    """Whether an object is the system's, so that nobody can drop it."""
    return oid < FIRST_USER_OID and (catalog, oid) != ("pg_namespace", PUBLIC)


def use(cursor: CatalogCursor, catalog: str, oid: int) -> None:
    """Nobody drops or renames an object until the cursor's transaction ends (`Transaction.use_object`)."""
    if cursor.use is not None:
        cursor.use(catalog, oid)
