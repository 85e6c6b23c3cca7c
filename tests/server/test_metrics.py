"""Metrics have the numbers of pg_stat_*, for objects with any names, and their port cannot be used to harm the node."""

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
from headgate.server.report import metrics_port as scraping
from headgate.server.report.metrics_port import Scrape

OPEN = {"Accept": "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"}
Samples = dict[tuple[str, ...], float]


def get(port: int, path: str = "/metrics", headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Return status, content type and body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("GET", path, headers=headers or {})
        answer = client.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()


def scraped(port: int) -> Samples:
    """Return the samples by name and label values, in the order of the labels' names."""
    status, kind, body = get(port, headers=OPEN)
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    families = text_string_to_metric_families(body)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.slow
def test_metrics_have_the_numbers_of_the_servers(postgres: Server, spare_node) -> None:
    port = free_port()
    node = spare_node(metrics_port=str(port))
    publisher, subscribing = postgres.new_database(), node.new_database()
    for server, database in ((postgres, publisher), (node, subscribing)):
        server.psql(database, 'CREATE TABLE "odd ""\\ name" (id int PRIMARY KEY, v text); CREATE TABLE late (id int PRIMARY KEY)')
    postgres.psql(
        publisher, """INSERT INTO "odd ""\\ name" SELECT i, i FROM generate_series(1, 100) i; CREATE PUBLICATION p FOR ALL TABLES"""
    )
    node.psql(subscribing, f"CREATE SUBSCRIPTION s_{subscribing} CONNECTION '{postgres.conninfo(publisher)}' PUBLICATION p")
    node.psql(subscribing, """CREATE PUBLICATION few FOR TABLE "odd ""\\ name" WHERE (id > 110)""")
    until(lambda: node.psql(subscribing, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "t")
    node.psql(
        subscribing, f"SELECT pg_create_logical_replication_slot('slot_{subscribing}', 'pgoutput')"
    )  # after the copy, which the filter's counters do not include
    postgres.psql(
        publisher,
        """INSERT INTO "odd ""\\ name" SELECT i, i FROM generate_series(101, 120) i; UPDATE "odd ""\\ name" SET v = 'x' WHERE id <= 5""",
    )
    node.psql(subscribing, """DELETE FROM "odd ""\\ name" WHERE id = 50""")
    postgres.psql(publisher, """DELETE FROM "odd ""\\ name" WHERE id = 50""")
    until(lambda: scraped(port)["headgate_subscription_skipped_rows_total", subscribing, f"s_{subscribing}"] == 1)
    options = "'proto_version', '1', 'publication_names', 'few'"
    node.psql(subscribing, f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('slot_{subscribing}', NULL, NULL, {options})")
    sample = ("headgate_publication_judged_rows_total", subscribing, "few")
    samples = until(lambda: samples if (samples := scraped(port))[sample] else None, "the publication's rows are not counted")
    table, subscription = (subscribing, f"s_{subscribing}", 'public.odd "\\ name'), (subscribing, f"s_{subscribing}")

    def told(sql: str) -> float:
        return float(node.psql(subscribing, sql))

    until(lambda: postgres.psql(publisher, "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables") == "126")
    assert samples["headgate_table_copied_rows_total", *table] + samples["headgate_table_applied_rows_total", *table] == 125
    assert samples["headgate_table_skipped_rows_total", *table] == 1
    assert samples["headgate_table_state", subscribing, "ready", *table[1:]] == 1
    assert samples["headgate_subscription_applied_rows_total", *subscription] == 25
    assert samples["headgate_subscription_tables", subscribing, "ready", subscription[1]] == 2
    assert (
        samples["headgate_subscription_state", subscribing, "streaming", subscription[1]]
        == samples["headgate_subscription_connected", *subscription]
        == 1
    )
    assert samples["headgate_subscription_lag_seconds", *subscription] < 10
    stages = {key[2] for key in samples if key[0] == "headgate_subscription_stage_seconds_total" and key[3] == subscription[1]}
    assert stages == {"decode", "merge", "commit", "copy"}
    assert samples[sample] == 26
    assert samples["headgate_publication_kept_rows_total", subscribing, "few"] == 10
    assert samples["headgate_publication_dropped_rows_total", subscribing, "few"] == 16
    slots = "FROM pg_stat_replication_slots WHERE slot_name = 'slot_" + subscribing + "'"
    assert samples["headgate_slot_sent_bytes_total", subscribing, f"slot_{subscribing}"] == told(f"SELECT total_bytes {slots}")
    assert samples["headgate_slot_sent_transactions_total", subscribing, f"slot_{subscribing}"] == told(f"SELECT total_txns {slots}")
    assert samples["headgate_slot_pinned_bytes", subscribing, f"slot_{subscribing}"] == told(
        f"SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots WHERE slot_name = 'slot_{subscribing}'"
    )
    assert samples["headgate_slot_wal_status", subscribing, f"slot_{subscribing}", "reserved"] == 1
    rollbacks = told("SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    assert samples["headgate_transactions_total", subscribing, "rollback"] == rollbacks
    assert samples["headgate_heap_used_bytes",] < samples["headgate_heap_max_bytes",]
    assert samples["headgate_data_files",] >= 2
    snapshot = json.loads(node.headgate("status", "--json").stdout)
    assert samples["headgate_healthy",] == snapshot["healthy"]
    assert sum(value for (name, *_), value in samples.items() if name == "headgate_problems") == len(snapshot["problems"])
    _, kind, body = get(port)
    assert kind.startswith("text/plain")
    assert len(list(plain(body))) > 50
    assert "dbname=" not in body
    node.psql(subscribing, f"DROP SUBSCRIPTION s_{subscribing}")
    node.psql(subscribing, f"SELECT pg_drop_replication_slot('slot_{subscribing}')")


@pytest.mark.slow
def test_metrics_tables_limits_the_tables_with_metrics(postgres: Server, spare_node) -> None:
    port = free_port()
    node = spare_node(metrics_port=str(port), metrics_tables="2")
    publisher, subscribing = postgres.new_database(), node.new_database()
    postgres.psql(
        publisher, "".join(f"CREATE TABLE t{number} (id int PRIMARY KEY);" for number in range(4)) + "CREATE PUBLICATION p FOR ALL TABLES"
    )
    node.psql(
        subscribing,
        f"CREATE SUBSCRIPTION m_{subscribing} CONNECTION '{postgres.conninfo(publisher)}' PUBLICATION p WITH (create_tables = true)",
    )
    until(lambda: node.psql(subscribing, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'") == "4")
    ready = ("headgate_subscription_tables", subscribing, "ready", f"m_{subscribing}")
    samples = until(lambda: samples if (samples := scraped(port)).get(ready) == 4 else None, "the tables are not counted")
    assert sum(name == "headgate_table_state" for name, *_ in samples) == 2
    assert samples["headgate_tables_without_metrics",] >= 2
    node.psql(subscribing, f"DROP SUBSCRIPTION m_{subscribing}")


# ---- an enemy on the port -------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[Scrape, list[float]]]:
    """The metrics port without a node, and the times at which metrics were collected."""
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


@pytest.mark.slow
def test_silent_clients_of_the_port_block_no_other_client(served) -> None:
    scrape, gathered = served
    threads_before = threading.active_count()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", scrape.port))) for _ in range(scraping.MOST * 4)]
        for client in idle[: scraping.MOST]:
            with contextlib.suppress(OSError):
                client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")  # and never read the response
        assert get(scrape.port)[0] == 200
        assert len(scrape._clients) <= scraping.MOST
        assert threading.active_count() == threads_before
    assert len(gathered) == 1


def test_invalid_request_is_rejected(served) -> None:
    scrape, _ = served
    assert get(scrape.port, "/")[0] == 404
    for request, answer in (
        (b"GET /metrics " + b"x" * scraping.REQUEST_BYTES, b"431"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=\r;x\xff\r\n\r\n", b"200"),
    ):
        with socket.create_connection(("127.0.0.1", scrape.port)) as client:
            client.sendall(request)
            assert answer in client.recv(100)
    assert scrape.health().failures == 0


def test_idle_connection_is_closed_and_metrics_are_cached(served, monkeypatch) -> None:
    scrape, gathered = served
    with monkeypatch.context() as patch:
        patch.setattr(scraping, "SECONDS", 0.5)  # the time counts from the accept
        with socket.create_connection(("127.0.0.1", scrape.port), timeout=20) as client:
            client.sendall(b"GET /met")
            assert client.recv(100) == b""
    until(lambda: get(scrape.port)[0] == 200 and len(gathered) == 2)
    assert gathered[1] - gathered[0] >= scraping.FRESH


def test_every_metric_is_documented_and_alerts_and_dashboard_use_existing_ones() -> None:
    docs = Path(__file__).parents[2] / "docs"
    described = (docs / "monitoring.md").read_text()
    source = (Path(scraping.__file__).parent / "metrics.py").read_text()
    names = set(re.findall(r'_(?:gauge|counter)[(,]\s*"(\w+)"', source))
    assert len(names) > 45
    short = {name for name in names if f"`{name}" not in described}
    assert {name.rsplit("_", 1)[0] + "_…" for name in short} <= {f"{name}_…" for name in ("subscription_applied", "subscription_copied")}
    used = set(
        re.findall(r"headgate_(\w+?)(?:_total)?(?=[{\[\s/)])", described.split("## Alerts")[1] + (docs / "grafana.json").read_text())
    )
    assert used <= names | {"build_info"}
