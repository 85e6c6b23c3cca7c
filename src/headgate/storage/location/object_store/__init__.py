"""The object stores in which a node can keep its tables: which one `data_location` names, and how it is reached.

`data_location` makes paths of it and asks it for files, `lease` and `data_location` write on condition through it, `spark_session` gives
Java what its file system takes. What the stores do differently is behind `store.Store`, a module for each: `s3`, `google`, `azure`. What
must hold: a client is imported when a path of its store is made, never before, so that a node on local disk pays for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.errors import PostgresError
from headgate.storage.location.object_store.azure import AzureStorage
from headgate.storage.location.object_store.google import GoogleStorage
from headgate.storage.location.object_store.s3 import S3
from headgate.storage.location.object_store.store import Store

if TYPE_CHECKING:
    from upath import UPath

STORES: tuple[Store, ...] = (S3(), GoogleStorage(), AzureStorage())
_REFUSED = {
    "hdfs": "It has no write on condition that a file is as it was left, which the lease of a data location needs.",
}


def named(settings: Mapping[str, str]) -> Store | None:
    """The object store that data_location names; None where it is a local folder. 22023 where it is none that is known."""
    given = settings.get("data_location", "")
    scheme, separator, place = given.partition("://")
    if not separator:
        return None
    for store in STORES:
        if scheme == store.scheme and store.is_place(place):
            return store
    examples = " or ".join(f'"{store.example}"' for store in STORES)
    raise PostgresError(
        "22023",
        f'invalid value for parameter "data_location": "{given}"',
        detail=_REFUSED.get(scheme),
        hint=f"It names a folder, or a prefix of an object store: {examples}.",
    )


def of(path: UPath) -> Store:
    """The store in which a path is."""
    return next(store for store in STORES if store.scheme == path.protocol)
