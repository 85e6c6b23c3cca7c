"""CommittedKeys returns the keys of the catalog that a running transaction cannot have seen."""

from __future__ import annotations

from headgate.catalog.hold import Hold
from headgate.catalog.unique import CatalogKey
from headgate.storage.engine import Engine
from headgate.storage.transaction.running import CommittedKeys

DATABASE = 5


def key(name: str) -> CatalogKey:
    return CatalogKey(DATABASE, "pg_namespace_nspname_index", (name,))


def test_key_is_new_to_a_transaction_with_an_earlier_snapshot() -> None:
    keys = CommittedKeys()
    keys.note({key("n"): Hold.ALONE}, 3, oldest=2)
    assert keys.since(key("n"), 2)
    assert not keys.since(key("n"), 3)
    assert not keys.since(key("other"), 0)


def test_key_committed_again_is_as_new_as_its_last_commit() -> None:
    keys = CommittedKeys()
    keys.note({key("n"): Hold.ALONE}, 3, oldest=2)
    keys.note({key("m"): Hold.ALONE}, 4, oldest=2)
    keys.note({key("n"): Hold.ALONE}, 5, oldest=4)
    assert keys.since(key("n"), 4)
    assert [claimed for claimed, _ in keys._made] == [key("n")]


def test_keys_that_all_running_transactions_see_are_dropped(engine: Engine) -> None:
    def commit_key(name: str) -> None:
        transaction = engine.begin(DATABASE)
        transaction.catalog.claim(key(name))
        transaction.cursor.execute("UPDATE hg.counter SET value = value WHERE name = 'format'")
        transaction.commit()

    commit_key("n")
    running = engine.begin(DATABASE)
    for name in ("m", "o", "p"):
        commit_key(name)
    assert [claimed for claimed, _ in engine.running.committed_keys._made] == [key("m"), key("o"), key("p")]
    running.rollback()
    commit_key("q")
    commit_key("r")
    assert [claimed for claimed, _ in engine.running.committed_keys._made] == [key("r")]


def test_use_is_new_to_a_transaction_that_drops_the_object_and_not_to_other_users() -> None:
    keys = CommittedKeys()
    keys.note({key("n"): Hold.USE}, 3, oldest=2)
    assert [keys.since(key("n"), 2, hold) for hold in Hold] == [False, False, True]
    keys.note({key("n"): Hold.CHANGE}, 4, oldest=2)
    assert [keys.since(key("n"), 3, hold) for hold in Hold] == [False, True, True]
    keys.note({key("n"): Hold.ALONE}, 5, oldest=2)
    assert [keys.since(key("n"), 4, hold) for hold in Hold] == [True, True, True]


def test_thousands_of_uses_of_one_object_are_one_entry() -> None:
    keys = CommittedKeys()
    for number in range(1, 5001):
        keys.note({key("n"): Hold.USE}, number, oldest=0)
    assert keys._made == {(key("n"), Hold.USE): 5000}
