"""Bodies of intents and prepared transactions, as the catalog keeps them over a restart: pickled, and read whichever version wrote them.

Called by `intent` and `prepared`. A pickle names its classes by their modules, and a data directory lives longer than a module's name: a
class that has moved is found by the names in MOVED, which are never taken out.
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
"""Modules of classes in bodies that were written before: by the name that they had then."""


def dump(value: object) -> bytes:
    """The body of a value."""
    return pickle.dumps(value)


def load(body: bytes) -> Any:
    """The value of a body. Raises whatever its bytes say, where they are no body."""
    return _Unpickler(io.BytesIO(body)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        """The class, where it is now."""
        return super().find_class(MOVED.get(module_name, module_name), global_name)
