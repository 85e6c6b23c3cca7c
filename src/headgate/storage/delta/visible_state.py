"""A table's visible state, read from Delta when it is first needed. Used by `engine` and `prepared`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headgate.storage.delta.table_state import TableState


class Visible:
    """One table's state: passed in, or loaded once. `known`: the version that will be loaded."""

    def __init__(self, load: Callable[[], TableState] | None = None, state: TableState | None = None, known: int = 0) -> None:
        self._load = load
        self._state = state
        self._known = known
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """Return the version, without loading anything."""
        return self._known if self._state is None else self._state.version

    @property
    def loaded_version(self) -> int | None:
        """Return the version if the state has been loaded, otherwise None."""
        return None if self._state is None else self._state.version

    @property
    def loaded(self) -> TableState | None:
        """Return the state if it has been loaded, otherwise None."""
        return self._state

    @property
    def state(self) -> TableState:
        """Return the state. The first call loads it, which may be a Spark job."""
        if self._state is None:
            with self._lock:
                if self._state is None:
                    assert self._load is not None
                    self._state = self._load()
        return self._state
