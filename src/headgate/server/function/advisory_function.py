"""pg_advisory_lock and its like as functions of a session (manual, 9.27.10).

Each comes with one bigint or two integers, which are different locks even where the numbers are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.storage.lock import AdvisoryKey

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_LOW = 0xFFFFFFFF


class AdvisoryFunctions:
    """Those of one session."""

    session: ClientSession

    def fn_pg_advisory_lock(self, key: int, second: int | None = None) -> None:
        """Waits for the lock and takes it until it is given back."""
        self._take(key, second)

    def fn_pg_advisory_lock_shared(self, key: int, second: int | None = None) -> None:
        """The same, beside others that share it."""
        self._take(key, second, shared=True)

    def fn_pg_advisory_xact_lock(self, key: int, second: int | None = None) -> None:
        """Waits for the lock and takes it until the transaction ends."""
        self._take(key, second, transactional=True)

    def fn_pg_advisory_xact_lock_shared(self, key: int, second: int | None = None) -> None:
        """The same, beside others that share it."""
        self._take(key, second, shared=True, transactional=True)

    def fn_pg_try_advisory_lock(self, key: int, second: int | None = None) -> bool:
        """Takes the lock if that needs no wait."""
        return self._try(key, second)

    def fn_pg_try_advisory_lock_shared(self, key: int, second: int | None = None) -> bool:
        """The same, beside others that share it."""
        return self._try(key, second, shared=True)

    def fn_pg_try_advisory_xact_lock(self, key: int, second: int | None = None) -> bool:
        """Takes the lock until the transaction ends if that needs no wait."""
        return self._try(key, second, transactional=True)

    def fn_pg_try_advisory_xact_lock_shared(self, key: int, second: int | None = None) -> bool:
        """The same, beside others that share it."""
        return self._try(key, second, shared=True, transactional=True)

    def fn_pg_advisory_unlock(self, key: int, second: int | None = None) -> bool:
        """Gives the lock back, once."""
        return self._give_back(key, second)

    def fn_pg_advisory_unlock_shared(self, key: int, second: int | None = None) -> bool:
        """Gives the shared lock back, once."""
        return self._give_back(key, second, shared=True)

    def fn_pg_advisory_unlock_all(self) -> None:
        """Gives back whatever the session holds."""
        self.session.advisory.give_all_back()

    def _take(self, key: int, second: int | None, *, shared: bool = False, transactional: bool = False) -> None:
        transaction = self.session.begin_statement()
        self.session.advisory.take(
            self._key(key, second), transaction.xid, self.session.patience(), shared=shared, transactional=transactional
        )

    def _try(self, key: int, second: int | None, *, shared: bool = False, transactional: bool = False) -> bool:
        self.session.begin_statement()
        return self.session.advisory.try_to_take(self._key(key, second), shared=shared, transactional=transactional)

    def _give_back(self, key: int, second: int | None, *, shared: bool = False) -> bool:
        given = self.session.advisory.give_back(self._key(key, second), shared=shared)
        if not given:
            self.session.notices.warning(f"you don't own a lock of type {'ShareLock' if shared else 'ExclusiveLock'}")
        return given

    def _key(self, key: int, second: int | None) -> AdvisoryKey:
        database = self.session.context.database
        if second is None:
            return AdvisoryKey(database, key >> 32 & _LOW, key & _LOW, 1)
        return AdvisoryKey(database, key & _LOW, second & _LOW, 2)
