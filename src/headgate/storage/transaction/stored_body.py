"""Bodies of intents and prepared transactions in the catalog: pickled, and readable regardless of the version that wrote them.

Called by `intent` and `prepared`. A pickle names its classes by their modules, and a data directory outlives a module's name. A class that
has moved is found by the names in MOVED, whose entries are never removed.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

MOVED = {
    "headgate.catalog.partition": "headgate.catalog.relation.partition",
    "headgate.catalog.subscription_resync": "headgate.catalog.replication.subscription_resync",
    "headgate.storage.intent": "headgate.storage.transaction.intent",
    "headgate.storage.log": "headgate.storage.transaction.log",
}
"""The current modules of classes, by the names of their modules in older bodies."""


def dump(value: object) -> bytes:
    return pickle.dumps(value)


def load(body: bytes) -> Any:
    """Return the value of a body. Raise any exception if the bytes are not a body."""
    return _Unpickler(io.BytesIO(body)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        return super().find_class(MOVED.get(module_name, module_name), global_name)
