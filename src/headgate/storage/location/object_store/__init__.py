"""The object stores in which a node can keep its tables: selection by `data_location`, and access.

`data_location` gets its paths and files here, `lease` and `data_location` make conditional writes, and `spark_session` gets the settings of
Java's file system. The differences between the stores are in implementations of `store.Store`, one module each: `s3`, `google`, `azure`.
Invariant: a client is imported only when a path of its store is made, so that a node on local disk does not pay for it.
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
    """Return the object store that data_location names, None for a local folder. Raise 22023 for an unknown store."""
    location = settings.get("data_location", "")
    scheme, separator, place = location.partition("://")
    if not separator:
        return None
    for store in STORES:
        if scheme == store.scheme and store.is_place(place):
            return store
    examples = " or ".join(f'"{store.example}"' for store in STORES)
    raise PostgresError(
        "22023",
        f'invalid value for parameter "data_location": "{location}"',
        detail=_REFUSED.get(scheme),
        hint=f"It names a folder, or a prefix of an object store: {examples}.",
    )


def of(path: UPath) -> Store:
    return next(store for store in STORES if store.scheme == path.protocol)
