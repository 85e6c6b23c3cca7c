"""The number of requests to an object store is as docs/object-storage.md states, and does not grow with a table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import sync_wrapper
from tests.object_store import ObjectStore
from tests.place import bare
from tests.storage.tables import DATABASE, INT8, TEXT, change, made, relation, rows
from tests.storage.test_recovery import again

from headgate.catalog.catalog import Catalog
from headgate.storage.cleaning import Cleaner
from headgate.storage.engine import Engine
from headgate.storage.location import file_cache

A = relation(27000, "a", id=INT8, v=TEXT)
LIST, GET, PUT, DELETE = "list_objects_v2", "get_object", "put_object", "delete_objects"


@pytest.fixture
def remote(spark: Any, catalog_file: Path, tmp_path: Path, object_store: ObjectStore) -> Iterator[Engine]:
    """The storage of a node whose tables are in an object store, with a table."""
    shutil.copy(catalog_file, tmp_path / "catalog.duckdb")
    catalog = Catalog.open(tmp_path / "catalog.duckdb")
    engine = Engine(bare(object_store.settings()), catalog, tmp_path, session=spark)
    made(engine, A, (1, "x"))
    yield engine
    catalog.close()


@pytest.fixture
def requests(remote: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[str]]:
    """Record the requests to the store inside the context."""
    client, request_log = type(remote.base.fs), []
    send = client._call_s3

    async def counted(store: Any, method: str, *arguments: Any, **named: Any) -> Any:
        request_log.append(method)
        return await send(store, method, *arguments, **named)

    monkeypatch.setattr(client, "_call_s3", counted)
    monkeypatch.setattr(client, "call_s3", sync_wrapper(counted))

    def during(work: Callable[[], Any]) -> list[str]:
        request_log.clear()
        work()
        return list(request_log)

    return during


def insert(engine: Engine, number: int) -> None:
    writer = engine.begin(DATABASE)
    writer.append(A, rows(A, (number, "x")))
    writer.commit()


def update(engine: Engine, number: int) -> None:
    writer = engine.begin(DATABASE)
    change(writer, A, f"id = {number}", v="'y'")
    writer.commit()


def test_commit_requests_what_it_writes_and_checks_once_for_another_version(
    remote: Engine, requests: Callable[[Callable[[], Any]], list[str]]
) -> None:
    assert requests(lambda: insert(remote, 2)) == [GET, PUT, PUT]
    assert requests(lambda: update(remote, 1)) == [GET, PUT, PUT, PUT], "a file that was never written is removed"
    for number in range(3, 12):
        insert(remote, number)
    assert requests(lambda: insert(remote, 12)) == [GET, PUT, PUT]


def test_cleaning_sends_no_more_requests_after_a_table_has_grown(
    remote: Engine, requests: Callable[[Callable[[], Any]], list[str]]
) -> None:
    cleaner = Cleaner(remote)
    cleaner.clean(remote.log.end, 3600)
    quiet = requests(lambda: cleaner.clean(remote.log.end, 3600))
    assert quiet == [LIST] * 3, "the other files, the times of the versions, and the versions"
    for _number in range(2, 12):
        update(remote, 1)
    assert requests(lambda: cleaner.clean(remote.log.end, 3600)) == quiet
    old = requests(lambda: cleaner.clean(remote.log.end, 0))
    assert old.count(DELETE) == 1
    assert set(old) == {LIST, DELETE}, "the versions are in the cache"


def test_start_requests_the_versions_of_no_table(remote: Engine, requests: Callable[[Callable[[], Any]], list[str]]) -> None:
    made(remote, relation(27001, "b", id=INT8), (1,))
    for number in range(2, 12):
        insert(remote, number)
    remote.recover()
    remote.stop()  # otherwise its lease thread would send requests too
    file_cache.open_cache(remote.base.fs, remote.data_dir / "other", 1 << 28)  # an empty cache, as after a start
    started: list[Engine] = []
    start_requests = requests(lambda: started.append(again(remote))) + requests(started[0].recover)
    assert start_requests.count(GET) <= 3, "the owner's mark and the lease"
