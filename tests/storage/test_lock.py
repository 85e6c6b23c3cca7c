"""Who waits for whom: the rows of `lock`'s table, each with threads that wait."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.conftest import until

from headgate.catalog.hold import Hold
from headgate.catalog.unique import CatalogKey
from headgate.errors import PostgresError
from headgate.storage.lock import TableLocks
from headgate.storage.statistics import Statistics

TABLE, INDEX = (5, 16384), 16390


def keys(*values: int) -> dict[int, set[int]]:
    return {INDEX: set(values)}


@pytest.fixture
def locks() -> TableLocks:
    return TableLocks(Statistics())


def begun(locks: TableLocks, owner: int, ask: Callable[[], object]) -> Future[object]:
    """`ask` in a thread of its own, once it waits."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(ask)
    pool.shutdown(wait=False)
    until(lambda: owner in locks._waiting or future.done(), f"{owner} does not wait", seconds=10)
    assert not future.done()
    return future


def test_the_lock_waits_for_its_holder(locks: TableLocks) -> None:
    locks.acquire(TABLE, 1)
    second = begun(locks, 2, lambda: locks.acquire(TABLE, 2))
    locks.release(1)
    second.result(10)


def test_the_lock_waits_for_those_with_a_claim(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    second = begun(locks, 2, lambda: locks.acquire(TABLE, 2))
    locks.release(1)
    second.result(10)


def test_who_has_a_claim_itself_gets_the_lock_beside_other_claims(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    assert locks.claim(TABLE, 2, keys(2))
    locks.acquire(TABLE, 2)


def test_who_adds_no_key_gets_the_lock_beside_claims(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    locks.acquire(TABLE, 2, beside_claims=True)


def test_a_claim_waits_for_those_that_have_claimed_one_of_its_keys(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1, 2))
    assert locks.claim(TABLE, 2, keys(3))
    third = begun(locks, 3, lambda: locks.claim(TABLE, 3, keys(2, 4)))
    locks.release(1)
    assert third.result(10)


def test_a_table_without_keys_is_claimed_by_all(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, {})
    assert locks.claim(TABLE, 2, {})


def test_there_is_no_claim_where_somebody_holds_the_lock(locks: TableLocks) -> None:
    locks.acquire(TABLE, 1)
    assert not locks.claim(TABLE, 2, keys(1))
    assert not locks.claim(TABLE, 1, keys(1))


def test_there_is_no_claim_where_somebody_waits_for_the_lock(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    waiting = begun(locks, 2, lambda: locks.acquire(TABLE, 2))
    assert not locks.claim(TABLE, 3, keys(3))
    assert locks.claim(TABLE, 1, keys(4)), "who is waited for goes on"
    locks.release(1)
    waiting.result(10)


def test_there_is_no_second_claim_of_a_key(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    assert not locks.claim(TABLE, 1, keys(1, 2))


def test_a_wait_ends_after_lock_timeout(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    with pytest.raises(PostgresError, match="canceling statement due to lock timeout"):
        locks.acquire(TABLE, 2, lock_timeout=0)


def test_a_circle_of_a_lock_and_a_claim_is_a_deadlock(locks: TableLocks) -> None:
    other = (5, 16400)
    assert locks.claim(TABLE, 1, keys(1))
    locks.acquire(other, 2)
    waiting = begun(locks, 1, lambda: locks.acquire(other, 1))
    with pytest.raises(PostgresError, match="deadlock detected") as raised:
        locks.claim(TABLE, 2, keys(1))
    assert raised.value.detail == (
        "Transaction 2 waits for ShareLock on transaction 1; blocked by transaction 1.\n"
        "Transaction 1 waits for ExclusiveLock on relation 16400; blocked by transaction 2."
    )
    locks.release(2)
    waiting.result(10)


def name(value: str) -> CatalogKey:
    return CatalogKey(5, "pg_namespace_nspname_index", (value,))


def test_a_key_of_a_catalog_waits_for_who_has_it(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1)
    locks.claim_catalog(name("n"), 1)
    locks.claim_catalog(name("m"), 2)
    second = begun(locks, 2, lambda: locks.claim_catalog(name("n"), 2))
    locks.release(1)
    second.result(10)
    third = begun(locks, 3, lambda: locks.claim_catalog(name("n"), 3))
    locks.release(2)
    third.result(10)


def test_a_circle_of_a_lock_and_a_key_of_a_catalog_is_a_deadlock(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1)
    locks.acquire(TABLE, 2)
    waiting = begun(locks, 1, lambda: locks.acquire(TABLE, 1))
    with pytest.raises(PostgresError, match="deadlock detected") as raised:
        locks.claim_catalog(name("n"), 2)
    assert raised.value.detail == (
        "Transaction 2 waits for ShareLock on transaction 1; blocked by transaction 1.\n"
        "Transaction 1 waits for ExclusiveLock on relation 16384; blocked by transaction 2."
    )
    locks.release(2)
    waiting.result(10)


def test_those_who_use_an_object_do_not_wait_for_each_other(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    locks.claim_catalog(name("n"), 2, hold=Hold.USE)
    locks.claim_catalog(name("n"), 3, hold=Hold.CHANGE)
    other = begun(locks, 4, lambda: locks.claim_catalog(name("n"), 4, hold=Hold.CHANGE))
    locks.release(3)
    other.result(10)


def test_who_drops_an_object_waits_for_all_who_use_it(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    locks.claim_catalog(name("n"), 2, hold=Hold.USE)
    dropping = begun(locks, 3, lambda: locks.claim_catalog(name("n"), 3))
    locks.release(1)
    assert 3 in locks._waiting
    locks.release(2)
    dropping.result(10)
    using = begun(locks, 4, lambda: locks.claim_catalog(name("n"), 4, hold=Hold.USE))
    locks.release(3)
    using.result(10)


def test_who_uses_an_object_keeps_what_more_it_has_of_it(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1)
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    other = begun(locks, 2, lambda: locks.claim_catalog(name("n"), 2, hold=Hold.USE))
    locks.release(1)
    other.result(10)
    assert locks._holders == {name("n"): {2: Hold.USE}}


def test_two_users_who_both_want_to_drop_are_a_deadlock(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    locks.claim_catalog(name("n"), 2, hold=Hold.USE)
    first = begun(locks, 1, lambda: locks.claim_catalog(name("n"), 1))
    with pytest.raises(PostgresError) as raised:
        locks.claim_catalog(name("n"), 2)
    assert raised.value.sqlstate == "40P01"
    locks.release(2)
    first.result(10)


def test_who_wants_a_table_and_its_row_has_neither_before_both(locks: TableLocks) -> None:
    """Otherwise one who uses the table and then writes to it would wait for who waits for him."""
    locks.claim_catalog(name("t"), 1, hold=Hold.USE)
    dropping = begun(locks, 2, lambda: locks.acquire(TABLE, 2, row=(name("t"), Hold.ALONE)))
    locks.acquire(TABLE, 1)
    locks.release(1)
    dropping.result(10)
    assert locks._holders == {name("t"): {2: Hold.ALONE}}


def test_who_wants_several_tables_has_none_before_all(locks: TableLocks) -> None:
    """Otherwise one who writes to the second and then to the first would wait for who waits for him."""
    first, second = TABLE, (5, 16400)
    locks.acquire(second, 1)
    altering = begun(locks, 2, lambda: locks.acquire_all([first, second], 2, {name("r"): Hold.ALONE}))
    locks.acquire(first, 1)
    assert locks._holders == {}
    locks.release(1)
    altering.result(10)
    assert locks._owner == {first: 2, second: 2}
    assert locks._holders == {name("r"): {2: Hold.ALONE}}
