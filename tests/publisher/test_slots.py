"""Changes of slots by several backends at the same time. Other backends act where the catalog's row of the slot is written."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.replication import slot as stored
from headgate.catalog.replication.slot import Slot
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.publisher.slots import PLUGIN, Slots
from headgate.storage.transaction.log import EntryKind, TransactionLog

ME, OTHER = 1, 2


@pytest.fixture
def catalog(catalog_file: Path, tmp_path: Path) -> Iterator[Catalog]:
    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    catalog = Catalog.open(tmp_path / "catalog.duckdb")
    yield catalog
    catalog.close()


@pytest.fixture
def slots(catalog: Catalog) -> Slots:
    return Slots(catalog, TransactionLog(catalog), lambda: 10, lambda: "logical")


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Make a function of `catalog.replication.slot` call another function first."""

    def register(name: str, act: Callable[[], object]) -> None:
        write = getattr(stored, name)

        def wrapped(*arguments: object, **options: object) -> object:
            act()
            return write(*arguments, **options)

        monkeypatch.setattr(stored, name, wrapped)

    return register


def refused(sqlstate: str, act: Callable[[], object]) -> None:
    with pytest.raises(PostgresError) as error:
        act()
    assert error.value.sqlstate == sqlstate


def create(slots: Slots, pid: int = ME) -> None:
    slots.create("s", PLUGIN, 5, pid=pid)


def durable(catalog: Catalog) -> list[str]:
    cursor = catalog.cursor()
    names = [slot.name for slot in stored.all_slots(cursor)]
    cursor.close()
    return names


def test_slot_is_in_use_while_it_is_created(slots: Slots, catalog: Catalog, meanwhile: Callable[..., None]) -> None:
    meanwhile("create", lambda: refused("55006", lambda: slots.drop("s", OTHER)))
    create(slots)
    assert (slots.find("s") is not None, durable(catalog)) == (True, ["s"])


def test_slot_is_in_use_until_its_drop_is_durable(slots: Slots, catalog: Catalog, meanwhile: Callable[..., None]) -> None:
    create(slots)
    meanwhile("drop", lambda: refused("55006", lambda: slots.acquire("s", OTHER)))
    meanwhile("drop", lambda: refused("42710", lambda: create(slots, OTHER)))
    slots.drop("s", ME)
    assert (slots.find("s"), durable(catalog)) == (None, [])


def test_slot_is_usable_after_a_drop_that_failed(slots: Slots, meanwhile: Callable[..., None]) -> None:
    def fail() -> None:
        raise PostgresError("53100", "disk full")

    create(slots)
    meanwhile("drop", fail)
    refused("53100", lambda: slots.drop("s", ME))
    assert slots.acquire("s", OTHER).name == "s"


def test_older_position_that_is_written_later_is_ignored(slots: Slots, catalog: Catalog) -> None:
    create(slots)
    first = slots.get("s").confirmed_flush_lsn
    for position in (first + 16, first + 8):
        catalog.change(lambda cursor: stored.advance(cursor, "s", Lsn(position), Lsn(position)))  # noqa: B023
    cursor = catalog.cursor()
    slot = stored.lookup(cursor, "s")
    cursor.close()
    assert slot is not None
    assert (slot.restart_lsn, slot.confirmed_flush_lsn) == (first + 16, first + 16)


@pytest.fixture
def late_slots(catalog: Catalog) -> Slots:
    """Slots with one that a backend uses and that is further behind than 0 positions."""
    catalog.change(lambda cursor: stored.create(cursor, Slot("s", PLUGIN, 5, Lsn(1), Lsn(1))))
    slots = Slots(catalog, TransactionLog(catalog), lambda: 10, lambda: "logical")
    slots.acquire("s", ME)
    return slots


def test_client_that_reconnects_while_its_slot_is_invalidated_finds_it_lost(late_slots: Slots, meanwhile: Callable[..., None]) -> None:
    reconnected = []
    meanwhile("lose", lambda: reconnected.append(late_slots.acquire("s", OTHER)))
    late_slots.invalidate(0, lambda pid: late_slots.release("s", pid))
    assert [slot.lost for slot in reconnected] == [True]


def test_slot_that_catches_up_before_its_release_is_not_invalidated(late_slots: Slots) -> None:
    def catch_up(pid: int) -> None:
        late_slots.confirm("s", Lsn(2**40))
        late_slots.release("s", pid)

    late_slots.invalidate(0, catch_up)
    assert not late_slots.get("s").lost


def test_invalidation_that_cannot_be_stored_is_undone(late_slots: Slots, meanwhile: Callable[..., None]) -> None:
    def fail() -> None:
        raise PostgresError("53100", "disk full")

    meanwhile("lose", fail)
    refused("53100", lambda: late_slots.invalidate(0, lambda pid: late_slots.release("s", pid)))
    assert not late_slots.get("s").lost


def test_slot_that_moves_while_it_is_copied_keeps_the_log_for_the_copy(catalog: Catalog) -> None:
    catalog.change(lambda cursor: stored.create(cursor, Slot("s", PLUGIN, 5, Lsn(1), Lsn(1), created_lsn=Lsn(1))))
    oldest: list[Lsn] = []

    def move() -> None:
        slots.confirm("s", Lsn(9))
        oldest.append(slots.oldest())

    def limit() -> int:  # it is called in the middle of the copy
        if not moving.ident:
            moving.start()
        moving.join(0.1)
        return 10

    moving = threading.Thread(target=move)
    slots = Slots(catalog, TransactionLog(catalog), limit, lambda: "logical")
    copied = slots.copy("s", "c", pid=ME)
    moving.join()
    assert copied.restart_lsn >= oldest[0]
    assert (copied.created_lsn, slots.get("s").confirmed_flush_lsn) == (1, 9)


def test_temporary_slot_keeps_the_log_from_its_position_on(late_slots: Slots) -> None:
    late_slots.copy("s", "c", pid=ME, temporary=True)
    late_slots.release("s", ME)
    late_slots.drop("s", ME)
    late_slots.confirm("c", Lsn(9))
    assert late_slots.oldest() == 9


def test_commit_prepared_after_a_restart_is_judged_as_of_the_last_slot(catalog: Catalog, slots: Slots) -> None:
    create(slots)
    created = slots.get("s").created_lsn
    slots.drop("s", ME)
    entry = TransactionLog(catalog).place(700, 5, (), None, kind=EntryKind.COMMIT_PREPARED)
    assert entry.seen == created > INVALID
