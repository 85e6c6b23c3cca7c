"""The advisory lock functions: pg_advisory_lock and the related ones (manual, 9.27.10).

Each takes one bigint or two integers. The two key spaces do not overlap, even if the numbers are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headgate.storage.lock import AdvisoryKey

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_LOW = 0xFFFFFFFF


def _acquire(session: ClientSession, key: int, second: int | None = None, *, shared: bool = False, transactional: bool = False) -> None:
    """Wait for a lock and acquire it."""
    transaction = session.begin_statement()
    session.advisory.acquire(_key(session, key, second), transaction.xid, session.patience(), shared=shared, transactional=transactional)


def _try_acquire(session: ClientSession, key: int, second: int | None = None, *, shared: bool = False, transactional: bool = False) -> bool:
    """Acquire a lock if it is available. Return whether it was."""
    session.begin_statement()
    return session.advisory.try_acquire(_key(session, key, second), shared=shared, transactional=transactional)


def _release(session: ClientSession, key: int, second: int | None = None, *, shared: bool = False) -> bool:
    """Release a session-level lock once. Return false with a warning if the session does not hold it."""
    is_released = session.advisory.release(_key(session, key, second), shared=shared)
    if not is_released:
        session.notices.warning(f"you don't own a lock of type {'ShareLock' if shared else 'ExclusiveLock'}")
    return is_released


def _key(session: ClientSession, key: int, second: int | None) -> AdvisoryKey:
    database = session.context.database
    if second is None:
        return AdvisoryKey(database, key >> 32 & _LOW, key & _LOW, 1)
    return AdvisoryKey(database, key & _LOW, second & _LOW, 2)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "pg_advisory_lock": _acquire,
    "pg_advisory_lock_shared": partial(_acquire, shared=True),
    "pg_advisory_xact_lock": partial(_acquire, transactional=True),
    "pg_advisory_xact_lock_shared": partial(_acquire, shared=True, transactional=True),
    "pg_try_advisory_lock": _try_acquire,
    "pg_try_advisory_lock_shared": partial(_try_acquire, shared=True),
    "pg_try_advisory_xact_lock": partial(_try_acquire, transactional=True),
    "pg_try_advisory_xact_lock_shared": partial(_try_acquire, shared=True, transactional=True),
    "pg_advisory_unlock": _release,
    "pg_advisory_unlock_shared": partial(_release, shared=True),
    "pg_advisory_unlock_all": lambda session: session.advisory.release_session_level(),
}
"""The functions by name."""
