"""Locks and claims wait according to the table in `lock`. Each test starts threads that wait."""

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
    """Call `ask` in a separate thread, and return when it waits."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(ask)
    pool.shutdown(wait=False)
    until(lambda: owner in locks._waiting or future.done(), f"{owner} does not wait", seconds=10)
    assert not future.done()
    return future


def test_lock_waits_for_its_holder(locks: TableLocks) -> None:
    locks.acquire(TABLE, 1)
    second = begun(locks, 2, lambda: locks.acquire(TABLE, 2))
    locks.release(1)
    second.result(10)


def test_lock_waits_for_claims_of_other_transactions(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    second = begun(locks, 2, lambda: locks.acquire(TABLE, 2))
    locks.release(1)
    second.result(10)


def test_transaction_with_a_claim_gets_the_lock_despite_other_claims(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    assert locks.claim(TABLE, 2, keys(2))
    locks.acquire(TABLE, 2)


@pytest.mark.parametrize("has_lock", [False, True])
def test_lock_alone_waits_for_other_claims_although_the_transaction_has_a_claim_or_the_lock(locks: TableLocks, has_lock: bool) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    assert locks.claim(TABLE, 2, keys(2))
    if has_lock:
        locks.acquire(TABLE, 2, beside_claims=True)
    altering = begun(locks, 2, lambda: locks.acquire_all([TABLE], 2, {}))
    locks.release(1)
    altering.result(10)


def test_lock_beside_claims_is_acquired_by_a_transaction_that_adds_no_key(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    locks.acquire(TABLE, 2, beside_claims=True)


def test_claim_waits_for_transactions_that_have_claimed_one_of_its_keys(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1, 2))
    assert locks.claim(TABLE, 2, keys(3))
    third = begun(locks, 3, lambda: locks.claim(TABLE, 3, keys(2, 4)))
    locks.release(1)
    assert third.result(10)


def test_table_without_keys_can_be_claimed_by_several_transactions(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, {})
    assert locks.claim(TABLE, 2, {})


def test_claim_fails_while_the_lock_is_held(locks: TableLocks) -> None:
    locks.acquire(TABLE, 1)
    assert not locks.claim(TABLE, 2, keys(1))
    assert not locks.claim(TABLE, 1, keys(1))


def test_claim_fails_while_another_transaction_waits_for_the_lock(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    waiting = begun(locks, 2, lambda: locks.acquire(TABLE, 2))
    assert not locks.claim(TABLE, 3, keys(3))
    assert locks.claim(TABLE, 1, keys(4)), "the transaction that is waited for can claim more keys"
    locks.release(1)
    waiting.result(10)


def test_key_cannot_be_claimed_twice(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    assert not locks.claim(TABLE, 1, keys(1, 2))


def test_wait_ends_after_lock_timeout(locks: TableLocks) -> None:
    assert locks.claim(TABLE, 1, keys(1))
    with pytest.raises(PostgresError, match="canceling statement due to lock timeout"):
        locks.acquire(TABLE, 2, lock_timeout=0)


def test_cycle_of_a_lock_and_a_claim_is_a_deadlock(locks: TableLocks) -> None:
    other_table = (5, 16400)
    assert locks.claim(TABLE, 1, keys(1))
    locks.acquire(other_table, 2)
    waiting = begun(locks, 1, lambda: locks.acquire(other_table, 1))
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


def test_catalog_key_waits_for_its_holder(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1)
    locks.claim_catalog(name("n"), 1)
    locks.claim_catalog(name("m"), 2)
    second = begun(locks, 2, lambda: locks.claim_catalog(name("n"), 2))
    locks.release(1)
    second.result(10)
    third = begun(locks, 3, lambda: locks.claim_catalog(name("n"), 3))
    locks.release(2)
    third.result(10)


def test_cycle_of_a_lock_and_a_catalog_key_is_a_deadlock(locks: TableLocks) -> None:
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


def test_users_of_an_object_do_not_wait_for_each_other(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    locks.claim_catalog(name("n"), 2, hold=Hold.USE)
    locks.claim_catalog(name("n"), 3, hold=Hold.CHANGE)
    other_change = begun(locks, 4, lambda: locks.claim_catalog(name("n"), 4, hold=Hold.CHANGE))
    locks.release(3)
    other_change.result(10)


def test_drop_waits_for_all_users_of_the_object(locks: TableLocks) -> None:
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


def test_using_an_object_keeps_a_stronger_hold(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1)
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    other_use = begun(locks, 2, lambda: locks.claim_catalog(name("n"), 2, hold=Hold.USE))
    locks.release(1)
    other_use.result(10)
    assert locks._holders == {name("n"): {2: Hold.USE}}


def test_two_users_who_both_drop_the_object_are_a_deadlock(locks: TableLocks) -> None:
    locks.claim_catalog(name("n"), 1, hold=Hold.USE)
    locks.claim_catalog(name("n"), 2, hold=Hold.USE)
    first = begun(locks, 1, lambda: locks.claim_catalog(name("n"), 1))
    with pytest.raises(PostgresError) as raised:
        locks.claim_catalog(name("n"), 2)
    assert raised.value.sqlstate == "40P01"
    locks.release(2)
    first.result(10)


def test_table_and_its_catalog_row_are_acquired_together(locks: TableLocks) -> None:
    """Otherwise a user of the table that then writes to it would be in a deadlock with the waiting transaction."""
    locks.claim_catalog(name("t"), 1, hold=Hold.USE)
    dropping = begun(locks, 2, lambda: locks.acquire(TABLE, 2, row=(name("t"), Hold.ALONE)))
    locks.acquire(TABLE, 1)
    locks.release(1)
    dropping.result(10)
    assert locks._holders == {name("t"): {2: Hold.ALONE}}


def test_several_tables_are_acquired_together(locks: TableLocks) -> None:
    """Otherwise a transaction that writes to the second and then to the first would be in a deadlock with it."""
    first, second = TABLE, (5, 16400)
    locks.acquire(second, 1)
    altering = begun(locks, 2, lambda: locks.acquire_all([first, second], 2, {name("r"): Hold.ALONE}))
    locks.acquire(first, 1)
    assert locks._holders == {}
    locks.release(1)
    altering.result(10)
    assert locks._owner == {first: 2, second: 2}
    assert locks._holders == {name("r"): {2: Hold.ALONE}}
