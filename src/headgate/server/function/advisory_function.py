"""The advisory lock functions: pg_advisory_lock and the related ones (manual, 9.27.10).

Each takes one bigint or two integers. The two key spaces do not overlap, even if the numbers are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.storage.lock import AdvisoryKey

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_LOW = 0xFFFFFFFF


class AdvisoryFunctions:
    """The advisory lock functions of one session."""

    session: ClientSession

    def fn_pg_advisory_lock(self, key: int, second: int | None = None) -> None:
        """Wait for a session-level lock and acquire it."""
        self._acquire(key, second)

    def fn_pg_advisory_lock_shared(self, key: int, second: int | None = None) -> None:
        """Wait for a shared session-level lock and acquire it."""
        self._acquire(key, second, shared=True)

    def fn_pg_advisory_xact_lock(self, key: int, second: int | None = None) -> None:
        """Wait for a transaction-level lock and acquire it."""
        self._acquire(key, second, transactional=True)

    def fn_pg_advisory_xact_lock_shared(self, key: int, second: int | None = None) -> None:
        """Wait for a shared transaction-level lock and acquire it."""
        self._acquire(key, second, shared=True, transactional=True)

    def fn_pg_try_advisory_lock(self, key: int, second: int | None = None) -> bool:
        """Acquire a session-level lock if it is available. Return whether it was."""
        return self._try_acquire(key, second)

    def fn_pg_try_advisory_lock_shared(self, key: int, second: int | None = None) -> bool:
        """Acquire a shared session-level lock if it is available. Return whether it was."""
        return self._try_acquire(key, second, shared=True)

    def fn_pg_try_advisory_xact_lock(self, key: int, second: int | None = None) -> bool:
        """Acquire a transaction-level lock if it is available. Return whether it was."""
        return self._try_acquire(key, second, transactional=True)

    def fn_pg_try_advisory_xact_lock_shared(self, key: int, second: int | None = None) -> bool:
        """Acquire a shared transaction-level lock if it is available. Return whether it was."""
        return self._try_acquire(key, second, shared=True, transactional=True)

    def fn_pg_advisory_unlock(self, key: int, second: int | None = None) -> bool:
        """Release a session-level lock once. Return false with a warning if the session does not hold it."""
        return self._release(key, second)

    def fn_pg_advisory_unlock_shared(self, key: int, second: int | None = None) -> bool:
        """Release a shared session-level lock once. Return false with a warning if the session does not hold it."""
        return self._release(key, second, shared=True)

    def fn_pg_advisory_unlock_all(self) -> None:
        """Release all session-level locks of the session."""
        self.session.advisory.release_session_level()

    def _acquire(self, key: int, second: int | None, *, shared: bool = False, transactional: bool = False) -> None:
        transaction = self.session.begin_statement()
        self.session.advisory.acquire(
            self._key(key, second), transaction.xid, self.session.patience(), shared=shared, transactional=transactional
        )

    def _try_acquire(self, key: int, second: int | None, *, shared: bool = False, transactional: bool = False) -> bool:
        self.session.begin_statement()
        return self.session.advisory.try_acquire(self._key(key, second), shared=shared, transactional=transactional)

    def _release(self, key: int, second: int | None, *, shared: bool = False) -> bool:
        is_released = self.session.advisory.release(self._key(key, second), shared=shared)
        if not is_released:
            self.session.notices.warning(f"you don't own a lock of type {'ShareLock' if shared else 'ExclusiveLock'}")
        return is_released

    def _key(self, key: int, second: int | None) -> AdvisoryKey:
        database = self.session.context.database
        if second is None:
            return AdvisoryKey(database, key >> 32 & _LOW, key & _LOW, 1)
        return AdvisoryKey(database, key & _LOW, second & _LOW, 2)
