"""dbt and Debezium's embedded engine give the same results with a PostgreSQL and with a node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clients import installation
from tests.clients.conftest import Table
from tests.conftest import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MODELS = {
    "models/staged.sql": "{{ config(materialized='view') }} SELECT id, customer, amount, day FROM {{ ref('orders') }} WHERE amount > 0",
    "models/totals.sql": "{{ config(materialized='table') }} SELECT customer, sum(amount) AS total, count(*) AS orders FROM {{ ref('staged') }} GROUP BY customer",
    "models/kept.sql": """{{ config(materialized='incremental', unique_key='id') }}
        SELECT id, amount FROM {{ ref('staged') }} {% if is_incremental() %} WHERE id >= (SELECT max(id) FROM {{ this }}) {% endif %}""",
    "models/merged.sql": """{{ config(materialized='incremental', unique_key='customer', incremental_strategy='merge') }}
        SELECT customer, max(day) AS last FROM {{ ref('staged') }} GROUP BY customer""",
    "snapshots/history.sql": """{% snapshot history %}
        {{ config(strategy='check', unique_key='customer', check_cols=['total'], target_schema='analytics', hard_deletes='invalidate') }}
        SELECT customer, total FROM {{ ref('totals') }} {% endsnapshot %}""",
    "models/schema.yml": """version: 2
models:
  - name: totals
    description: what each customer has paid
    columns:
      - name: customer
        data_tests: [unique, not_null]
  - name: kept
    columns:
      - name: id
        data_tests: [unique, {accepted_values: {arguments: {values: [1, 2, 4, 5], quote: false}}}]
""",
    "seeds/orders.csv": "id,customer,amount,day\n1,ann,10,2024-02-29\n2,bob,5,2024-03-01\n3,ann,-1,2024-03-02\n4,ann,7,2024-03-03\n",
    "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nmodels: {shop: {+persist_docs: {relation: true}}}\nflags: {send_anonymous_usage_stats: false}\n",
}


def dbt(folder: Path, *arguments: str) -> str:
    """Run a dbt command, which must succeed, and return its output."""
    program = installation.python("programs").with_name("dbt")
    command = [program, "--no-use-colors", *arguments, "--project-dir", folder, "--profiles-dir", folder]
    completed = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=installation.environment(DO_NOT_TRACK="1"), timeout=600
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_dbt_builds_and_tests_models_extends_incremental_ones_and_keeps_history(table: Table, tmp_path: Path) -> None:
    output = f"{{type: postgres, host: 127.0.0.1, port: {table.server.port}, user: postgres, password: x, dbname: {table.database}, schema: analytics, threads: 2}}"
    for name, text in {**MODELS, "profiles.yml": f"shop: {{target: dev, outputs: {{dev: {output}}}}}\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    dbt(tmp_path, "debug")
    assert "PASS=10" in dbt(tmp_path, "build")
    assert table.sql("SELECT * FROM analytics.totals ORDER BY customer") == "ann|17|2\nbob|5|1"
    assert table.sql("SELECT obj_description('analytics.totals'::regclass)") == "what each customer has paid"
    with (tmp_path / "seeds" / "orders.csv").open("a") as seeds:
        seeds.write("5,bob,3,2024-03-04\n")
    assert "PASS=10" in dbt(tmp_path, "build")
    assert table.sql("SELECT * FROM analytics.kept ORDER BY id") == "1|10\n2|5\n4|7\n5|3"
    assert table.sql("SELECT * FROM analytics.merged ORDER BY customer") == "ann|2024-03-03\nbob|2024-03-04"
    history = "SELECT customer, total, dbt_valid_to IS NULL FROM analytics.history ORDER BY customer, total"
    assert table.sql(history) == "ann|17|t\nbob|5|f\nbob|8|t"
    dbt(tmp_path, "docs", "generate")
    nodes = json.loads((tmp_path / "target" / "catalog.json").read_text())["nodes"]
    assert list(nodes["model.shop.totals"]["columns"]) == ["customer", "total", "orders"]


class Capture:
    """Successive runs of Debezium's engine for the publication `p`. Each run resumes after the changes of the preceding one."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table, self.folder, self.slot = table, folder, f"{table.database}_debezium"
        self.out = folder / "events"
        self.out.touch()
        properties = {
            "name": "engine", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "t", "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1", "database.port": str(table.server.port), "database.user": "postgres", "database.password": "none",
            "database.dbname": table.database, "slot.name": self.slot, "publication.name": "p", "publication.autocreate.mode": "disabled",
            "table.include.list": "public.items", "snapshot.mode": "initial", "decimal.handling.mode": "string", "poll.interval.ms": "100",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore", "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "0", "value.converter.schemas.enable": "false", "tombstones.on.delete": "false",
        }  # fmt: skip
        (folder / "properties").write_text(json.dumps(properties))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the engine inside the context. At the end it confirms its changes."""
        command = [installation.python("programs"), installation.PROGRAMS / "debezium_stream.py", self.folder / "properties", self.out]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder, env=installation.environment()
            )
        assert self.process.stdin is not None
        try:
            yield
            self.process.stdin.close()
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()

    def events(self) -> list[tuple[str, Any, Any]]:
        """Return the operations so far, each with its old row and its new row."""
        assert self.process.poll() is None, (self.folder / "log").read_text()[-6000:]
        all_events = [json.loads(line) for line in self.out.read_text().split("\n")[:-1]]  # the last line may be incomplete
        return [(event["op"], event["before"], event["after"]) for event in all_events]

    def active(self, state: str) -> None:
        """Wait until pg_replication_slots shows the slot as active (`t`) or inactive (`f`)."""
        query = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        until(lambda: self.table.sql(query) == state, f"the slot is not {state}", 120)


def test_debezium_takes_a_snapshot_streams_and_continues_where_it_stopped(table: Table, tmp_path: Path) -> None:
    table.sql("DROP TABLE items; CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(10,2), tags text[])")
    table.sql("INSERT INTO items VALUES (1, 'old', 1.50, '{a,NULL}'), (2, NULL, NULL, NULL); CREATE PUBLICATION p FOR TABLE items")
    capture = Capture(table, tmp_path)
    old = {"id": 1, "name": "old", "price": "1.50", "tags": ["a", None]}
    empty = {"id": 2, "name": None, "price": None, "tags": None}
    with capture.running():
        until(lambda: len(capture.events()) >= 2, "no snapshot", 120)
        capture.active("t")
        table.sql("UPDATE items SET name = 'new' WHERE id = 1")
        until(lambda: len(capture.events()) >= 3, "no update", 120)
        first = capture.events()
    assert sorted(first[:2], key=lambda event: event[2]["id"]) == [("r", None, old), ("r", None, empty)]
    assert first[2:] == [("u", None, {**old, "name": "new"})]
    capture.active("f")
    table.sql("INSERT INTO items VALUES (3, 'meanwhile', 0, '{}'); DELETE FROM items WHERE id = 2")
    with capture.running():
        until(lambda: capture.events()[-1][0] == "d", "no delete", 120)
        rest = [event for event in capture.events()[3:] if event != first[2]]  # the last event may be repeated
    assert [(op, after and after["id"], before and before["id"]) for op, before, after in rest] == [("c", 3, None), ("d", None, 2)]
    capture.active("f")
    table.sql(f"SELECT pg_drop_replication_slot('{capture.slot}')")
