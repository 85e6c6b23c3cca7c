"""Metrics: the numbers are those of pg_stat_*, whatever names say, and the port cannot be used against the node."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain
from tests.conftest import Server, until

from headgate.cli.demo.servers import free_port
from headgate.server.monitoring import metrics_port as scraping
from headgate.server.monitoring.metrics_port import Scrape

OPEN = {"Accept": "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"}
Samples = dict[tuple[str, ...], float]


def get(port: int, path: str = "/metrics", headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Status, content type, body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("GET", path, headers=headers or {})
        answer = client.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()


def scraped(port: int) -> Samples:
    """The samples by name and label values, in the order of the labels' names."""
    status, kind, body = get(port, headers=OPEN)
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    families = text_string_to_metric_families(body)
    return {(s.name, *(value for _, value in sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_the_numbers_are_those_of_the_servers(postgres: Server, spare_node) -> None:
    port = free_port()
    node = spare_node(metrics_port=str(port))
    publisher, here = postgres.new_database(), node.new_database()
    for server, database in ((postgres, publisher), (node, here)):
        server.psql(database, 'CREATE TABLE "odd ""\\ name" (id int PRIMARY KEY, v text); CREATE TABLE late (id int PRIMARY KEY)')
    postgres.psql(
        publisher, """INSERT INTO "odd ""\\ name" SELECT i, i FROM generate_series(1, 100) i; CREATE PUBLICATION p FOR ALL TABLES"""
    )
    node.psql(here, f"CREATE SUBSCRIPTION s_{here} CONNECTION '{postgres.conninfo(publisher)}' PUBLICATION p")
    node.psql(here, """CREATE PUBLICATION few FOR TABLE "odd ""\\ name" WHERE (id > 110)""")
    until(lambda: node.psql(here, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "t")
    node.psql(here, f"SELECT pg_create_logical_replication_slot('slot_{here}', 'pgoutput')")  # behind the copy, which is not judged
    postgres.psql(
        publisher,
        """INSERT INTO "odd ""\\ name" SELECT i, i FROM generate_series(101, 120) i; UPDATE "odd ""\\ name" SET v = 'x' WHERE id <= 5""",
    )
    node.psql(here, """DELETE FROM "odd ""\\ name" WHERE id = 50""")
    postgres.psql(publisher, """DELETE FROM "odd ""\\ name" WHERE id = 50""")
    until(lambda: scraped(port)["headgate_subscription_skipped_rows_total", here, f"s_{here}"] == 1)
    options = "'proto_version', '1', 'publication_names', 'few'"
    node.psql(here, f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('slot_{here}', NULL, NULL, {options})")
    time.sleep(scraping.FRESH)  # a scrape may be as old
    found = scraped(port)
    table, subscription = (here, f"s_{here}", 'public.odd "\\ name'), (here, f"s_{here}")

    def told(sql: str) -> float:
        return float(node.psql(here, sql))

    until(lambda: postgres.psql(publisher, "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables") == "126")
    assert found["headgate_table_copied_rows_total", *table] + found["headgate_table_applied_rows_total", *table] == 125
    assert found["headgate_table_skipped_rows_total", *table] == 1
    assert found["headgate_table_state", here, "ready", *table[1:]] == 1
    assert found["headgate_subscription_applied_rows_total", *subscription] == 25
    assert found["headgate_subscription_tables", here, "ready", subscription[1]] == 2
    assert (
        found["headgate_subscription_state", here, "streaming", subscription[1]]
        == found["headgate_subscription_connected", *subscription]
        == 1
    )
    assert found["headgate_subscription_lag_seconds", *subscription] < 10
    stages = {key[2] for key in found if key[0] == "headgate_subscription_stage_seconds_total" and key[3] == subscription[1]}
    assert stages == {"decode", "merge", "commit", "copy"}
    assert found["headgate_publication_judged_rows_total", here, "few"] == 26
    assert found["headgate_publication_kept_rows_total", here, "few"] == 10
    assert found["headgate_publication_dropped_rows_total", here, "few"] == 16
    slots = "FROM pg_stat_replication_slots WHERE slot_name = 'slot_" + here + "'"
    assert found["headgate_slot_sent_bytes_total", here, f"slot_{here}"] == told(f"SELECT total_bytes {slots}")
    assert found["headgate_slot_sent_transactions_total", here, f"slot_{here}"] == told(f"SELECT total_txns {slots}")
    assert found["headgate_slot_pinned_bytes", here, f"slot_{here}"] == told(
        f"SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots WHERE slot_name = 'slot_{here}'"
    )
    assert found["headgate_slot_wal_status", here, f"slot_{here}", "reserved"] == 1
    rollbacks = told("SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    assert found["headgate_transactions_total", here, "rollback"] == rollbacks
    assert found["headgate_heap_used_bytes",] < found["headgate_heap_max_bytes",]
    assert found["headgate_data_files",] >= 2
    snapshot = json.loads(node.headgate("status", "--json").stdout)
    assert found["headgate_healthy",] == snapshot["healthy"]
    assert sum(value for (name, *_), value in found.items() if name == "headgate_problems") == len(snapshot["problems"])
    _, kind, body = get(port)
    assert kind.startswith("text/plain")
    assert len(list(plain(body))) > 50
    assert "dbname=" not in body
    node.psql(here, f"DROP SUBSCRIPTION s_{here}")
    node.psql(here, f"SELECT pg_drop_replication_slot('slot_{here}')")


@pytest.mark.slow
def test_as_many_tables_as_are_wanted_have_metrics(postgres: Server, spare_node) -> None:
    port = free_port()
    node = spare_node(metrics_port=str(port), metrics_tables="2")
    publisher, here = postgres.new_database(), node.new_database()
    postgres.psql(publisher, "".join(f"CREATE TABLE t{i} (id int PRIMARY KEY);" for i in range(4)) + "CREATE PUBLICATION p FOR ALL TABLES")
    node.psql(here, f"CREATE SUBSCRIPTION m_{here} CONNECTION '{postgres.conninfo(publisher)}' PUBLICATION p WITH (create_tables = true)")
    until(lambda: node.psql(here, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'") == "4")
    time.sleep(scraping.FRESH)
    found = scraped(port)
    assert sum(name == "headgate_table_state" for name, *_ in found) == 2
    assert found["headgate_tables_without_metrics",] >= 2
    assert found["headgate_subscription_tables", here, "ready", f"m_{here}"] == 4
    node.psql(here, f"DROP SUBSCRIPTION m_{here}")


# ---- an enemy on the port -------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[Scrape, list[float]]]:
    """The port alone, with the moments at which something was gathered."""
    gathered: list[float] = []

    def gather() -> scraping.Render:
        gathered.append(time.monotonic())
        return lambda _: ("text/plain", b"x" * (8 << 20))

    scrape = Scrape(["127.0.0.1"], free_port(), gather)
    scrape.start()
    until(lambda: not refused(scrape.port))
    yield scrape, gathered
    scrape.stop()


def refused(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_who_says_nothing_or_reads_nothing_keeps_nobody_out(served) -> None:
    scrape, gathered = served
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", scrape.port))) for _ in range(scraping.MOST * 4)]
        for each in idle[: scraping.MOST]:
            with contextlib.suppress(OSError):
                each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")  # and never reads
        assert get(scrape.port)[0] == 200
        assert len(scrape._clients) <= scraping.MOST
        assert threading.active_count() == before
    assert len(gathered) == 1


def test_what_is_no_request_is_refused(served) -> None:
    scrape, _ = served
    assert get(scrape.port, "/")[0] == 404
    for said, answer in (
        (b"GET /metrics " + b"x" * scraping.REQUEST_BYTES, b"431"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=\r;x\xff\r\n\r\n", b"200"),
    ):
        with socket.create_connection(("127.0.0.1", scrape.port)) as client:
            client.sendall(said)
            assert answer in client.recv(100)
    assert scrape.health().failures == 0


def test_a_connection_ends_in_time_and_metrics_are_gathered_now_and_then(served, monkeypatch) -> None:
    scrape, gathered = served
    monkeypatch.setattr(scraping, "SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", scrape.port), timeout=20) as client:
        client.sendall(b"GET /met")
        assert client.recv(100) == b""
    until(lambda: get(scrape.port)[0] == 200 and len(gathered) == 2)
    assert gathered[1] - gathered[0] >= scraping.FRESH


def test_every_metric_is_described_and_what_the_rules_and_the_dashboard_ask_for_is_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    described = (docs / "monitoring.md").read_text()
    source = (Path(scraping.__file__).parent / "metrics.py").read_text()
    names = set(re.findall(r'_(?:gauge|counter)[(,]\s*"(\w+)"', source))
    assert len(names) > 45
    short = {name for name in names if f"`{name}" not in described}
    assert {name.rsplit("_", 1)[0] + "_…" for name in short} <= {f"{name}_…" for name in ("subscription_applied", "subscription_copied")}
    asked = set(
        re.findall(r"headgate_(\w+?)(?:_total)?(?=[{\[\s/)])", described.split("## Alerts")[1] + (docs / "grafana.json").read_text())
    )
    assert asked <= names | {"build_info"}
