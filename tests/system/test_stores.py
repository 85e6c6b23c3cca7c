"""A node keeps its tables in Google's or Azure's storage. Spark and Python write there, a second node is rejected, and no key is shown.

Google's server takes minutes to build (`google_storage`). Azure's is started if it is installed (`azure_storage`). So all tests are slow.
The tests of the data path run there with ``--on gs`` and ``--on azure``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.azure_storage import AzureStorage
from tests.conftest import NodeServer, Server, until
from tests.google_storage import GoogleStorage
from tests.system.test_object_store import command_lines, twin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(params=["google_storage", "azure_storage"])
def store(request: pytest.FixtureRequest) -> GoogleStorage | AzureStorage:
    storage: GoogleStorage | AzureStorage = request.getfixturevalue(request.param)
    return storage


def test_node_keeps_its_tables_in_a_store(own_node: Callable[..., Server], store: GoogleStorage | AzureStorage, postgres: Server) -> None:
    node = own_node(**store.settings())
    assert isinstance(node, NodeServer)
    source = postgres.new_database()
    postgres.psql(source, "CREATE TABLE p (id int PRIMARY KEY, v text); INSERT INTO p SELECT i, 'copied' FROM generate_series(1, 500) i")
    postgres.psql(source, "CREATE PUBLICATION pub FOR TABLE p")
    node.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 3000) i")
    node.psql("postgres", "UPDATE t SET v = 'y' WHERE id = 7; DELETE FROM t WHERE id = 8; UPDATE t SET v = 'z' WHERE id > 2990")
    node.psql("postgres", "CREATE TABLE p (id int PRIMARY KEY, v text)")
    node.psql("postgres", f"CREATE SUBSCRIPTION far CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")
    until(lambda: node.psql("postgres", "SELECT count(*) FROM p") == "500", "the table is not copied", 120)
    assert list((node.data / "base").iterdir()) == []

    refused = twin(node, own_node)
    with pytest.raises(AssertionError):
        refused.start()
    assert "is being used by another node" in refused.log()

    node.kill()
    node.start()
    query = "SELECT count(*), min(v), max(v) FROM t"
    assert node.psql("postgres", query) == "2999|x|z"
    postgres.psql(source, "UPDATE p SET v = 'streamed' WHERE id <= 10; DELETE FROM p WHERE id = 11")
    streamed = "SELECT count(*) FILTER (WHERE v = 'streamed'), count(*) FROM p"
    until(lambda: node.psql("postgres", streamed) == "10|499", "no change arrives", 60)
    node.psql("postgres", ";".join(f"INSERT INTO t VALUES ({number}, 'more')" for number in range(4000, 4110)))
    until(lambda: any("checkpoint.parquet" in name for name in names(node, store)), "Delta writes no checkpoint", 60)
    node.psql("postgres", "CHECKPOINT")
    node.headgate("check", "--online", "-U", "postgres")

    settings = node.psql("postgres", "SHOW ALL; SELECT * FROM pg_settings")
    assert all(store.secret not in text for text in (settings, node.log(), command_lines()))
    node.psql("postgres", "DROP SUBSCRIPTION far; DROP TABLE t")
    node.restart()
    assert node.psql("postgres", "SELECT count(*) FROM p") == "499"


def names(node: NodeServer, store: GoogleStorage | AzureStorage) -> list[str]:
    """Return the files below a node's location."""
    return list(store.files.find(node.conf["data_location"].strip("'").partition("://")[2]))


def test_store_that_does_not_enforce_conditional_writes_is_rejected_at_startup(
    own_node: Callable[..., Server], tmp_path: Path, google_storage: GoogleStorage
) -> None:
    careless = GoogleStorage(tmp_path, "-careless")
    try:
        node = own_node(start=False, **careless.settings())
        with pytest.raises(AssertionError):
            node.start()
        assert isinstance(node, NodeServer)
        assert "does not enforce conditional writes" in node.log()
    finally:
        careless.end()
