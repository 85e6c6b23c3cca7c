"""The modes in which a transaction holds an object of the catalog (its row's key, `unique.row_key`) or a name (`unique.CatalogKey`).

    USE      any number of transactions may use an object: the objects that they create refer to it (a table to its schema, a view to its
             tables, a privilege to its role). No transaction can drop or rename it meanwhile.
    CHANGE   one transaction changes a property that does not affect users of the object: its comment, its partitions
    ALONE    one transaction drops the object, renames it or changes what its users rely on. Names are always held in this mode.

A hold lasts until the transaction ends. The modes are PostgreSQL's AccessShareLock, ShareUpdateExclusiveLock and AccessExclusiveLock on
objects. Conflicting holds wait for each other (`storage.lock`). After acquiring a hold, a transaction checks whether a conflicting one was
committed since it read the catalog (`storage.transaction.running`).

Commands that have a catalog cursor but not its transaction call `use`. The cursor of a transaction has a method for it
(`storage.transaction.recorded_catalog`). Other cursors do not hold objects.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from headgate.types.registry import FIRST_USER_OID

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor

PUBLIC = 2200
"""Objects with lower oids are system objects and cannot be dropped, except the schema public."""


class Hold(enum.IntEnum):
    """The mode of a hold, described in the module docstring. A greater mode includes the smaller ones."""

    USE = 1
    CHANGE = 2
    ALONE = 3

    def conflicts(self, other: Hold) -> bool:
        """Return whether two transactions cannot hold one object in these modes at the same time."""
        return self + other > Hold.ALONE


CONFLICTING = {hold: tuple(candidate for candidate in Hold if hold.conflicts(candidate)) for hold in Hold}


def is_pinned(catalog: str, oid: int) -> bool:
    """Return whether an object is a system object, which cannot be dropped."""
    return oid < FIRST_USER_OID and (catalog, oid) != ("pg_namespace", PUBLIC)


def use(cursor: CatalogCursor, catalog: str, oid: int) -> None:
    """Keep others from dropping or renaming an object until the cursor's transaction ends (`TransactionCatalog.use_object`)."""
    if cursor.use is not None:
        cursor.use(catalog, oid)
