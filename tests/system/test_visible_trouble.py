"""For each fault, `headgate status --json` reports the cause within 30 seconds, and is healthy again after the cause is removed.

A fault is a generator. It causes the fault before its `yield` and removes the cause after it. Its decorator says what status must report. All
faults share one PostgreSQL that publishes and one node. Each has its own database on both, with a subscription `s` of table `t` that streams
through a proxy. A few run with the suite, on its servers, and check only the problems of their own database.

With ``HEADGATE_FAULTS=file``, the problems and their times are appended to the file as rows of the table in docs/monitoring.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import HEADGATE, PG_BIN, NodeServer, PostgresServer, Server, until
from tests.disk import Disk
from tests.object_store import ObjectStore
from tests.session import Session
from tests.subscriber.conftest import READY
from tests.system.proxy import Proxy

from headgate.cli.demo.servers import free_port

SECONDS = 30.0
"""The time within which status must report a fault."""
LONGEST = 75.0
"""The time within which status must be healthy again. A rejection is remembered for 30 s, and PostgreSQL takes some seconds to start."""
NODE = {
    "max_connections": "20",
    "superuser_reserved_connections": "3",
    "max_wal_senders": "3",
    "max_replication_slots": "10",
    "max_logical_replication_workers": "5",
    "max_sync_workers_per_subscription": "2",
    "wal_retrieve_retry_interval": "1s",
    "file_retention": "0",
}
"""Settings with small pools, so that tests can exhaust them."""
PUBLISHER = {"max_wal_senders": "8", "max_replication_slots": "12", "wal_keep_size": "0"}
TABLE = "CREATE TABLE {} (id int PRIMARY KEY, v text)"


def reported_problems(node: Server) -> list[str]:
    """Return the problems that `headgate status --json` reports."""
    completed = subprocess.run([*HEADGATE, "status", "-D", str(node.data), "--json"], capture_output=True, text=True, timeout=60)
    report = json.loads(completed.stdout)
    problems = [f"{problem['subject']}: {problem['message']}" for problem in report.get("problems", [])] or (
        [] if report["running"] else ["no node runs"]
    )
    assert report["healthy"] == (not problems)
    return problems


class Scene:
    """A database that publishes table `t` as `p`, one that subscribes to it as `s`, and the proxy between them."""

    def __init__(self, postgres: Server, node: Server, *, whole: bool) -> None:
        self.postgres, self.node, self.whole = postgres, node, whole
        self.there, self.here = postgres.new_database(), node.new_database()
        self.reader = f"reader_{self.there}"
        self.slot = f"slot_{self.there}"
        self.proxy = Proxy(postgres.port)
        self.stack = contextlib.ExitStack()
        self.publisher, self.subscriber = Session(postgres.conninfo(self.there)), Session(node.conninfo(self.here))
        self.publisher.sql(
            f"CREATE ROLE {self.reader} LOGIN REPLICATION PASSWORD 'right'; {TABLE.format('t')};"
            f" INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 10) i; GRANT SELECT ON t TO {self.reader}; CREATE PUBLICATION p FOR TABLE t"
        )
        self.subscriber.sql(TABLE.format("t"))
        self.subscriber.sql(
            f"CREATE SUBSCRIPTION s CONNECTION '{self.conninfo()}' PUBLICATION p WITH (slot_name = '{self.slot}', streaming = on)"
        )
        until(lambda: self.subscriber.sql(READY) == "t", "the table is not ready", 60)

    def conninfo(self, **more: str) -> str:
        """Return the subscription's connection string."""
        return self.postgres.conninfo(self.there, **{"user": self.reader, "port": str(self.proxy.port), "password": "right"} | more)

    def administrator(self, sql: str) -> str:
        """Run a statement in another database of the publisher."""
        return self.postgres.psql("postgres", sql)

    def reconnect(self) -> None:
        """Terminate the walsender, so that the subscription has to connect again."""
        self.administrator(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{self.slot}'")

    def insert(self, row: int = 100, table: str = "t") -> None:
        """Insert a row at the publisher."""
        self.publisher.sql(f"INSERT INTO {table} VALUES ({row}, '{row}')")

    def add_table(self, definition: str = TABLE, *, granted: bool = True, here: str = TABLE) -> None:
        """Add a table `u` of 10 rows to the subscription. Its copy starts."""
        self.publisher.sql(f"{definition.format('u')}; INSERT INTO u SELECT i, i::text FROM generate_series(1, 10) i")
        if granted:
            self.publisher.sql(f"GRANT SELECT ON u TO {self.reader}")
        self.publisher.sql("ALTER PUBLICATION p ADD TABLE u")
        self.subscriber.sql(f"{here.format('u')}; ALTER SUBSCRIPTION s REFRESH PUBLICATION")

    def set_on_node(self, name: str, value: str | None) -> None:
        """Change a setting by a reload of the node. None resets it."""
        self.subscriber.sql(f"ALTER SYSTEM {f'RESET {name}' if value is None else f'SET {name} = {value!r}'}")
        self.subscriber.sql("SELECT pg_reload_conf()")

    def folder(self) -> Path:
        """Return the node's folder of table `t`."""
        key = self.subscriber.sql(
            "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text || '/' || 't'::regclass::oid"
        )
        return self.node.data / "base" / key

    def data_file(self) -> Path:
        """Return the largest data file of table `t` that the visible version names."""
        self.subscriber.sql("SELECT count(*) FROM t")
        return max(self.folder().glob("part-*.parquet"), key=lambda path: path.stat().st_size)

    def problems(self) -> list[str]:
        """Return the problems of this database, or with `whole` of all databases."""
        problems = reported_problems(self.node)
        return problems if self.whole else [text for text in problems if f'"{self.here}"' in text]

    def close(self) -> None:
        """Drop the subscriptions, the slot, the databases and the role."""
        self.stack.close()
        self.proxy.stalled, self.proxy.rate = False, None
        with contextlib.suppress(psycopg.Error):
            self.subscriber.sql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
        for subscription in self.subscriber.sql(
            "SELECT subname FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).split():
            self.subscriber.sql(
                f"ALTER SUBSCRIPTION {subscription} DISABLE; ALTER SUBSCRIPTION {subscription} SET (slot_name = NONE); DROP SUBSCRIPTION {subscription}"
            )
        self.subscriber.close()
        self.publisher.close()
        self.proxy.__exit__()
        slots = f"FROM pg_replication_slots WHERE database = '{self.there}'"
        self.administrator(f"SELECT pg_terminate_backend(active_pid) {slots} AND active")
        until(
            lambda: (
                self.administrator(f"SELECT count(pg_drop_replication_slot(slot_name)) {slots} AND NOT active; SELECT count(*) {slots}")[-1]
                == "0"
            )
        )
        self.administrator(f"DROP DATABASE {self.there} WITH (FORCE)")
        self.administrator(f"DROP ROLE IF EXISTS {self.reader}")


@dataclass(frozen=True)
class Fault:
    """A fault, and the pattern of the problem that status must report."""

    run: Callable[[Scene], Generator[None]]
    pattern: str
    quick: bool


FAULTS: list[Fault] = []


def fault(pattern: str, *, quick: bool = False) -> Callable[[Callable[[Scene], Generator[None]]], Callable[[Scene], Generator[None]]]:
    def register(run: Callable[[Scene], Generator[None]]) -> Callable[[Scene], Generator[None]]:
        FAULTS.append(Fault(run, pattern, quick))
        return run

    return register


# ---- the publisher and its connection ----------------------------------------------------------------------------------


@fault("retrying after an error: could not connect to the publisher")
def publisher_is_stopped(scene: Scene) -> Generator[None]:
    scene.publisher.close()
    scene.postgres.stop()
    yield
    scene.postgres.start()


@fault("retrying after an error: could not connect to the publisher")
def publisher_crashes(scene: Scene) -> Generator[None]:
    scene.publisher.close()
    scene.postgres.kill()
    yield
    until(lambda: _starts(scene.postgres), "the publisher does not start", 60)


def _starts(server: Server) -> bool:
    with contextlib.suppress(subprocess.CalledProcessError):
        server.start()
        return True
    return False


@fault("retrying after an error: could not connect to the publisher", quick=True)
def connection_is_cut(scene: Scene) -> Generator[None]:
    scene.proxy.target = free_port()
    scene.proxy.cut()
    yield
    scene.proxy.target = scene.postgres.port


@fault("its publisher has said nothing for")
def connection_is_half_open(scene: Scene) -> Generator[None]:
    scene.proxy.stalled = True
    yield
    scene.proxy.stalled = False


@fault("bytes of log behind its publisher")
def connection_is_slow(scene: Scene) -> Generator[None]:
    scene.proxy.rate = 20_000
    scene.publisher.sql(
        "INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(1000, 1999) i; INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(2000, 4999) i"
    )
    yield
    scene.proxy.rate = None


@fault('could not connect to the publisher.*could not translate host name "nowhere.invalid"')
def host_name_is_wrong(scene: Scene) -> Generator[None]:
    scene.subscriber.sql(f"ALTER SUBSCRIPTION s CONNECTION '{scene.conninfo(host='nowhere.invalid')}'")
    yield
    scene.subscriber.sql(f"ALTER SUBSCRIPTION s CONNECTION '{scene.conninfo()}'")


@fault("could not connect to the publisher.*server does not support SSL")
def tls_is_refused(scene: Scene) -> Generator[None]:
    scene.subscriber.sql(f"ALTER SUBSCRIPTION s CONNECTION '{scene.conninfo(sslmode='require')}'")
    yield
    scene.subscriber.sql(f"ALTER SUBSCRIPTION s CONNECTION '{scene.conninfo()}'")


@fault("password authentication failed")
def password_is_wrong(scene: Scene) -> Generator[None]:
    with _access(scene, f"host {scene.there} {scene.reader} all scram-sha-256"):
        scene.publisher.sql(f"ALTER ROLE {scene.reader} PASSWORD 'another'")
        scene.reconnect()
        yield
        scene.publisher.sql(f"ALTER ROLE {scene.reader} PASSWORD 'right'")
        until(lambda: not scene.problems(), "the problem does not disappear", LONGEST)


@fault("pg_hba.conf rejects")
def access_rules_reject_the_node(scene: Scene) -> Generator[None]:
    with _access(scene, f"host {scene.there} {scene.reader} all reject"):
        scene.reconnect()
        yield


@contextlib.contextmanager
def _access(scene: Scene, line: str) -> Iterator[None]:
    """Insert a line before the others of the publisher's pg_hba.conf."""
    path = scene.postgres.data / "pg_hba.conf"
    rules_before = path.read_text()
    path.write_text(f"{line}\n{rules_before}")
    scene.publisher.sql("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        path.write_text(rules_before)
        scene.publisher.sql("SELECT pg_reload_conf()")


@fault('role "reader_.*" does not exist')
def role_is_dropped(scene: Scene) -> Generator[None]:
    scene.publisher.sql(f"REVOKE ALL ON t FROM {scene.reader}; DROP ROLE {scene.reader}")
    scene.reconnect()
    yield
    scene.publisher.sql(f"CREATE ROLE {scene.reader} LOGIN REPLICATION PASSWORD 'right'; GRANT SELECT ON t TO {scene.reader}")


@fault("is not permitted to log in")
def role_cannot_log_in(scene: Scene) -> Generator[None]:
    scene.publisher.sql(f"ALTER ROLE {scene.reader} NOLOGIN")
    scene.reconnect()
    yield
    scene.publisher.sql(f"ALTER ROLE {scene.reader} LOGIN")


@fault("must be superuser or replication role")
def role_lacks_the_attribute_replication(scene: Scene) -> Generator[None]:
    scene.publisher.sql(f"ALTER ROLE {scene.reader} NOREPLICATION")
    scene.reconnect()
    yield
    scene.publisher.sql(f"ALTER ROLE {scene.reader} REPLICATION")


@fault("permission denied for table u", quick=True)
def role_cannot_read_a_table(scene: Scene) -> Generator[None]:
    scene.add_table(granted=False)
    yield
    scene.publisher.sql(f"GRANT SELECT ON u TO {scene.reader}")


@fault("affected by row-level security policy")
def table_has_row_level_security(scene: Scene) -> Generator[None]:
    scene.publisher.sql(f"ALTER ROLE {scene.reader} SET row_security = off")
    scene.add_table(f"{TABLE}; ALTER TABLE u ENABLE ROW LEVEL SECURITY")
    yield
    scene.publisher.sql(f"ALTER ROLE {scene.reader} BYPASSRLS")


@fault("is not currently accepting connections")
def database_accepts_no_connections(scene: Scene) -> Generator[None]:
    scene.publisher.close()
    scene.administrator(f"ALTER DATABASE {scene.there} ALLOW_CONNECTIONS false")
    scene.reconnect()
    yield
    scene.administrator(f"ALTER DATABASE {scene.there} ALLOW_CONNECTIONS true")


@fault('publication "p" does not exist')
def publication_is_dropped(scene: Scene) -> Generator[None]:
    scene.publisher.sql("DROP PUBLICATION p")
    scene.insert()
    yield
    scene.publisher.sql("CREATE PUBLICATION p FOR TABLE t")
    scene.subscriber.sql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s; TRUNCATE t")
    scene.reconnect()
    until(lambda: scene.administrator(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "f")
    scene.publisher.sql(f"SELECT pg_drop_replication_slot('{scene.slot}')")
    scene.subscriber.sql(f"CREATE SUBSCRIPTION s CONNECTION '{scene.conninfo()}' PUBLICATION p WITH (slot_name = '{scene.slot}')")


@fault("there is no publication q on the publisher")
def publication_does_not_exist_yet(scene: Scene) -> Generator[None]:
    scene.subscriber.sql(f"CREATE SUBSCRIPTION other CONNECTION '{scene.conninfo()}' PUBLICATION q WITH (slot_name = '{scene.slot}_q')")
    yield
    scene.publisher.sql("CREATE PUBLICATION q FOR TABLE t")
    scene.subscriber.sql("ALTER SUBSCRIPTION other REFRESH PUBLICATION WITH (copy_data = false)")


@fault("it has no tables")
def publication_has_no_tables(scene: Scene) -> Generator[None]:
    scene.publisher.sql("CREATE PUBLICATION q")
    scene.subscriber.sql(f"CREATE SUBSCRIPTION other CONNECTION '{scene.conninfo()}' PUBLICATION q WITH (slot_name = '{scene.slot}_q')")
    yield
    scene.subscriber.sql("DROP SUBSCRIPTION other")


@fault("replication slot .* does not exist")
def slot_is_dropped(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    until(lambda: scene.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "f")
    scene.publisher.sql(f"SELECT pg_drop_replication_slot('{scene.slot}')")
    scene.subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    yield
    scene.publisher.sql(f"SELECT pg_create_logical_replication_slot('{scene.slot}', 'pgoutput')")


@fault("(can no longer get changes|cannot read) from (logical )?replication slot")
def slot_is_invalidated(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    until(lambda: scene.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "f")
    scene.publisher.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf()")
    for _ in range(4):
        scene.publisher.sql("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 100000)); SELECT pg_switch_wal()")
    lost = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{scene.slot}'"
    until(lambda: scene.publisher.sql("CHECKPOINT") == "" and scene.publisher.sql(lost) == "lost", "the slot is not lost")
    scene.subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    yield
    scene.publisher.sql("ALTER SYSTEM RESET max_slot_wal_keep_size; SELECT pg_reload_conf()")
    scene.subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    until(lambda: scene.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "f")
    scene.publisher.sql(f"SELECT pg_drop_replication_slot('{scene.slot}')")
    scene.publisher.sql(f"SELECT pg_create_logical_replication_slot('{scene.slot}', 'pgoutput')")
    scene.subscriber.sql("ALTER SUBSCRIPTION s ENABLE")


@fault("is active for PID")
def slot_is_used_by_another_client(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    until(lambda: scene.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "f")
    command = ["-d", scene.postgres.conninfo(scene.there), "--slot", scene.slot, "--start", "-f", "/dev/null"]
    options = ["-o", "proto_version=1", "-o", "publication_names=p"]
    reader = subprocess.Popen([PG_BIN / "pg_recvlogical", *command, *options], stderr=subprocess.DEVNULL)
    scene.stack.callback(reader.wait)
    scene.stack.callback(reader.kill)
    until(lambda: scene.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "t")
    scene.subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    yield
    reader.kill()


@fault("requires wal_level >= logical")
def wal_level_is_not_logical(scene: Scene) -> Generator[None]:
    replica_server = PostgresServer(Path(tempfile.mkdtemp("", "headgate-test-")), wal_level="replica")
    replica_server.create()
    replica_server.start()
    scene.stack.callback(shutil.rmtree, replica_server.folder, ignore_errors=True)
    scene.stack.callback(lambda: replica_server.stop("immediate"))
    options = "connect = false, slot_name = 'other'"
    scene.subscriber.sql(
        f"CREATE SUBSCRIPTION other CONNECTION '{replica_server.conninfo()}' PUBLICATION p WITH ({options}); ALTER SUBSCRIPTION other ENABLE"
    )
    yield
    replica_server.psql("postgres", "ALTER SYSTEM SET wal_level = logical")
    replica_server.restart()
    replica_server.psql(
        "postgres", f"{TABLE.format('t')}; CREATE PUBLICATION p FOR TABLE t; SELECT pg_create_logical_replication_slot('other', 'pgoutput')"
    )
    scene.subscriber.sql("ALTER SUBSCRIPTION other REFRESH PUBLICATION WITH (copy_data = false)")


@fault("all replication slots are in use")
def slots_of_the_publisher_are_exhausted(scene: Scene) -> Generator[None]:
    slot_names = []
    with contextlib.suppress(psycopg.Error):
        for number in range(60):
            scene.publisher.sql(f"SELECT pg_create_logical_replication_slot('full_{number}', 'pgoutput')")
            slot_names.append(f"full_{number}")
    scene.add_table()
    yield
    for name in slot_names:
        scene.publisher.sql(f"SELECT pg_drop_replication_slot('{name}')")


@fault("exceeds max_wal_senders")
def walsenders_of_the_publisher_are_exhausted(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    until(lambda: scene.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{scene.slot}'") == "f")
    with _connections(scene.postgres.conninfo(scene.there, replication="database")):
        scene.subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
        yield


@contextlib.contextmanager
def _connections(conninfo: str) -> Iterator[int]:
    """Open as many connections as a server accepts."""
    opened: list[psycopg.Connection[Any]] = []
    try:
        with contextlib.suppress(psycopg.OperationalError):
            while len(opened) < 100:
                opened.append(psycopg.connect(conninfo, autocommit=True))
        yield len(opened)
    finally:
        for connection in opened:
            connection.close()


# ---- rows and tables ---------------------------------------------------------------------------------------------------


@fault("duplicate key value violates unique constraint", quick=True)
def row_exists_already(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("INSERT INTO t VALUES (100, 'in the way')")
    scene.insert()
    yield
    scene.subscriber.sql("DELETE FROM t WHERE id = 100")


@fault("disabled: duplicate key value")
def error_disables_the_subscription(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("ALTER SUBSCRIPTION s SET (disable_on_error = true); INSERT INTO t VALUES (100, 'in the way')")
    scene.insert()
    yield
    scene.subscriber.sql("DELETE FROM t WHERE id = 100; ALTER SUBSCRIPTION s ENABLE")


@fault("violates check constraint")
def row_violates_a_constraint(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("ALTER TABLE t ADD CONSTRAINT small CHECK (id < 50)")
    scene.insert()
    yield
    scene.subscriber.sql("ALTER TABLE t DROP CONSTRAINT small")


@fault("is missing replicated column", quick=True)
def column_is_missing(scene: Scene) -> Generator[None]:
    scene.publisher.sql("ALTER TABLE t ADD COLUMN w int; INSERT INTO t VALUES (100, 'x', 1)")
    yield
    scene.subscriber.sql("ALTER TABLE t ADD COLUMN w int")


@fault("invalid input syntax for type integer")
def value_does_not_fit_the_type(scene: Scene) -> Generator[None]:
    scene.add_table(here="CREATE TABLE {} (id int PRIMARY KEY, v int)")
    until(lambda: scene.subscriber.sql(READY) == "t", "the table is not ready")
    scene.publisher.sql("INSERT INTO u VALUES (100, 'no number')")
    yield
    scene.subscriber.sql("ALTER TABLE u DROP COLUMN v; ALTER TABLE u ADD COLUMN v text")


@fault("changes of tables are left out: public.u")
def table_is_not_in_the_subscription(scene: Scene) -> Generator[None]:
    scene.subscriber.sql(TABLE.format("u"))
    scene.publisher.sql(
        f"{TABLE.format('u')}; GRANT SELECT ON u TO {scene.reader}; ALTER PUBLICATION p ADD TABLE u; INSERT INTO u VALUES (1, 'x')"
    )
    yield
    scene.subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")


@fault('replication target relation "public.u" does not exist|changes of tables are left out')
def table_is_missing(scene: Scene) -> Generator[None]:
    scene.add_table()
    until(lambda: scene.subscriber.sql(READY) == "t", "the table is not ready")
    scene.subscriber.sql("DROP TABLE u")
    scene.insert(table="u")
    yield
    scene.subscriber.sql(f"{TABLE.format('u')}; ALTER SUBSCRIPTION s REFRESH PUBLICATION")


@fault("permission denied for table t")
def owner_cannot_write(scene: Scene) -> Generator[None]:
    with _owner(scene) as owner:
        scene.subscriber.sql(f"ALTER ROLE {owner} NOSUPERUSER")
        scene.insert()
        yield
        scene.subscriber.sql(f"GRANT ALL ON t TO {owner}")
        until(lambda: not scene.problems(), "the problem does not disappear", LONGEST)


@fault("is not permitted to log in")
def owner_cannot_log_in(scene: Scene) -> Generator[None]:
    with _owner(scene) as owner:
        scene.subscriber.sql(f"ALTER ROLE {owner} NOLOGIN")
        scene.reconnect()
        yield
        scene.subscriber.sql(f"ALTER ROLE {owner} LOGIN")
        until(lambda: not scene.problems(), "the problem does not disappear", LONGEST)


@contextlib.contextmanager
def _owner(scene: Scene) -> Iterator[str]:
    """Let a new role own the subscription."""
    name = f"owner_{scene.here}"
    scene.subscriber.sql(f"CREATE ROLE {name} SUPERUSER LOGIN; ALTER SUBSCRIPTION s OWNER TO {name}")
    yield name
    scene.subscriber.sql(f"ALTER SUBSCRIPTION s OWNER TO postgres; REVOKE ALL ON t FROM {name}; DROP ROLE {name}")


# ---- locks, pools, disks -----------------------------------------------------------------------------------------------


@fault("bytes of log behind its publisher")
def table_is_locked(scene: Scene) -> Generator[None]:
    with _locked(scene, "t"):
        scene.insert()
        yield


@fault("the copy of table public.u has not moved")
def copy_waits_for_a_lock(scene: Scene) -> Generator[None]:
    scene.subscriber.sql(TABLE.format("u"))
    with _locked(scene, "u"):
        scene.add_table(here="SELECT '{}'")
        yield


@contextlib.contextmanager
def _locked(scene: Scene, table: str) -> Iterator[None]:
    with contextlib.closing(Session(scene.node.conninfo(scene.here))) as holder:
        holder.sql(f"BEGIN; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        yield
        holder.sql("COMMIT")


@fault("the copy of table public.u has not moved")
def copy_waits_for_a_transaction_of_the_publisher(scene: Scene) -> Generator[None]:
    with contextlib.closing(Session(scene.postgres.conninfo(scene.there))) as holder:
        holder.sql("BEGIN; SELECT txid_current()")
        scene.add_table()
        yield
        holder.sql("COMMIT")


@fault("bytes of log behind its publisher")
def segments_reach_their_limit(scene: Scene) -> Generator[None]:
    scene.set_on_node("segment_disk_limit", "1MB")
    with _locked(scene, "t"):
        scene.publisher.sql("INSERT INTO t SELECT i, repeat(md5(i::text), 30) FROM generate_series(1000, 9999) i")
        yield
    scene.set_on_node("segment_disk_limit", None)


@fault("out of logical replication workers: . of 5 in use")
def workers_are_exhausted(scene: Scene) -> Generator[None]:
    for number in range(5):
        options = f"slot_name = '{scene.slot}_{number}', copy_data = false"
        scene.subscriber.sql(f"CREATE SUBSCRIPTION s{number} CONNECTION '{scene.conninfo()}' PUBLICATION p WITH ({options})")
    yield
    for number in range(5):
        scene.subscriber.sql(f"DROP SUBSCRIPTION s{number}")


@fault("out of table syncs of a subscription: 0 of 0 in use")
def table_syncs_are_exhausted(scene: Scene) -> Generator[None]:
    scene.set_on_node("max_sync_workers_per_subscription", "0")
    scene.add_table()
    yield
    scene.set_on_node("max_sync_workers_per_subscription", None)


@fault("out of connections: .* of 20 in use")
def connections_are_exhausted(scene: Scene) -> Generator[None]:
    with _connections(scene.node.conninfo(scene.here)):
        yield


@fault("out of walsenders: 3 of 3 in use")
def walsenders_are_exhausted(scene: Scene) -> Generator[None]:
    with _connections(scene.node.conninfo(scene.here, replication="database")):
        yield


@fault("out of replication slots: .* of 10 in use")
def slots_are_exhausted(scene: Scene) -> Generator[None]:
    slot_names = []
    with contextlib.suppress(psycopg.Error):
        for number in range(60):
            scene.subscriber.sql(f"SELECT pg_create_logical_replication_slot('full_{number}', 'pgoutput')")
            slot_names.append(f"full_{number}")
    yield
    for name in slot_names:
        scene.subscriber.sql(f"SELECT pg_drop_replication_slot('{name}')")


@fault('replication slot "late": its log is lost')
def slot_of_the_node_is_invalidated(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("SELECT pg_create_logical_replication_slot('late', 'pgoutput')")
    scene.set_on_node("max_slot_wal_keep_size", "1MB")
    scene.subscriber.sql(f"{TABLE.format('w')}; INSERT INTO w SELECT i, md5(i::text) || md5((-i)::text) FROM generate_series(1, 60000) i")
    scene.subscriber.sql("CHECKPOINT")
    yield
    scene.set_on_node("max_slot_wal_keep_size", None)
    scene.subscriber.sql("SELECT pg_drop_replication_slot('late')")


@fault('disk of ".*": 0 MB are free')
def disk_is_full(scene: Scene) -> Generator[None]:
    disk = Disk.__new__(Disk)
    disk.folder = scene.node.data
    disk.fill()
    yield
    disk.free()


@fault("retrying after an error: .*(File exists|Not a directory)")
def segments_cannot_be_written(scene: Scene) -> Generator[None]:
    folder = scene.node.data / "pg_replication"
    folder.mkdir(exist_ok=True)
    folder.rename(folder.with_name("pg_replication.away"))
    folder.write_text("")
    scene.publisher.sql(
        "INSERT INTO t SELECT i, repeat(md5(i::text), 30) FROM generate_series(1000, 19999) i"
    )  # more than is kept in memory
    yield
    folder.unlink()
    folder.with_name("pg_replication.away").rename(folder)


# ---- tables that cannot be read ----------------------------------------------------------------------------------------


@fault('table "public.t" of database ".*": it cannot be read: file ".*" is missing')
def data_file_is_missing(scene: Scene) -> Generator[None]:
    path = scene.data_file()
    path.rename(path.with_suffix(".away"))
    yield
    path.with_suffix(".away").rename(path)


@fault('table "public.t" of database ".*": it cannot be read: file ".*" has .* bytes, not')
def data_file_is_truncated(scene: Scene) -> Generator[None]:
    path = scene.data_file()
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    yield
    path.write_bytes(content)


@fault('table "public.t" of database ".*": it cannot be read: file ".*" is damaged')
def data_file_is_damaged(scene: Scene) -> Generator[None]:
    scene.subscriber.sql("INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1000000, 1030000) i")
    path = max(scene.folder().glob("part-*.parquet"), key=lambda path: path.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    with contextlib.suppress(psycopg.Error):
        scene.subscriber.sql("SELECT count(*), max(v), sum(id) FROM t")
    yield
    path.write_bytes(content)


@fault('table "public.t" of database ".*": it cannot be read: there is no file')
def log_of_a_table_is_missing(scene: Scene) -> Generator[None]:
    folder = scene.folder() / "_delta_log"
    folder.rename(folder.with_name("away"))
    yield
    folder.with_name("away").rename(folder)


@fault('table "public.t" of database ".*": it cannot be read: .*')
def log_of_a_table_is_damaged(scene: Scene) -> Generator[None]:
    path = max((scene.folder() / "_delta_log").glob("*.json"))
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    yield
    path.write_bytes(content)


@fault("data location: it cannot be read")
def data_location_is_missing(scene: Scene) -> Generator[None]:
    base = scene.node.data / "base"
    base.rename(base.with_name("away"))
    yield
    base.with_name("away").rename(base)


@fault('adopting table "public.t".*: .*was altered by another writer')
def another_writer_alters_a_table(scene: Scene) -> Generator[None]:
    log = scene.folder() / "_delta_log"
    newest = max(int(path.stem) for path in log.glob("*.json"))
    actions = [json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    metadata_before = [action for action in actions if "metaData" in action][-1]
    schema = json.loads(metadata_before["metaData"]["schemaString"])
    schema["fields"].append({"name": "other", "type": "integer", "nullable": True, "metadata": {}})
    metadata_after = {"metaData": {**metadata_before["metaData"], "schemaString": json.dumps(schema)}}
    (log / f"{newest + 1:020}.json").write_text(json.dumps(metadata_after) + "\n")
    yield
    (log / f"{newest + 2:020}.json").write_text(json.dumps(metadata_before) + "\n")


# ---- the node ----------------------------------------------------------------------------------------------------------


@fault("no node runs|it is shutting down")
def node_is_stopped(scene: Scene) -> Generator[None]:
    scene.node.stop()
    yield
    scene.node.start()


@fault("no node runs")
def node_is_killed(scene: Scene) -> Generator[None]:
    scene.node.kill()
    yield
    scene.node.start()


@fault("running Java virtual machine: it has not answered for")
def java_does_not_respond(scene: Scene) -> Generator[None]:
    [java] = [
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if "(java)" in (text := _read(stat)) and int(text.rsplit(")", 1)[1].split()[1]) == scene.node.pid
    ]
    os.kill(java, signal.SIGSTOP)
    yield
    os.kill(java, signal.SIGCONT)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@fault('background thread "metrics": it rests after')
def port_of_the_metrics_is_in_use(scene: Scene) -> Generator[None]:
    assert isinstance(scene.node, NodeServer)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scene.subscriber.close()
        scene.node.renewed(**{**NODE, "metrics_port": str(listener.getsockname()[1])})
        yield


# ---- the test ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers(_session_farm: Any) -> Iterator[tuple[Server, Server]]:
    """A PostgreSQL and a node for the faults. The node's directory is a separate disk."""
    postgres = _session_farm.make(PostgresServer, **PUBLISHER)
    node = NodeServer(Path(tempfile.mkdtemp(" node", "headgate-test-")), **NODE)
    _session_farm.servers.append(node)
    disk = Disk(node.data, 500)
    node.create()
    node.start()
    yield postgres, node
    if node.running:
        node.stop("immediate")
    disk.end()


def _check(scene: Scene, fault: Fault) -> None:
    until(lambda: not scene.problems(), "the node is not healthy before the fault", 60)
    steps = fault.run(scene)
    next(steps)
    caused = time.monotonic()
    problems_seen: list[str] = []

    def find_problem() -> str | None:
        problems_seen[:] = scene.problems()
        return next((text for text in problems_seen if re.search(fault.pattern, text, re.DOTALL)), None)

    try:
        problem = until(find_problem, f"status does not report {fault.pattern!r}", SECONDS)
        reported_at = time.monotonic()
    except AssertionError:
        raise AssertionError(f"status does not report {fault.pattern!r}: {problems_seen}") from None
    finally:
        next(steps, None)
    fixed_at = time.monotonic()
    try:
        until(lambda: not scene.problems(), "the node does not become healthy again", LONGEST)
    except AssertionError:
        raise AssertionError(f"the node does not become healthy again: {scene.problems()}") from None
    healthy_at = time.monotonic()
    if path := os.environ.get("HEADGATE_FAULTS"):
        name = fault.run.__name__.replace("_", " ")
        with Path(path).open("a") as file:
            file.write(
                f"| {name} | {' '.join(str(problem).split())[:300]} | {reported_at - caused:.0f} s | {healthy_at - fixed_at:.0f} s |\n"
            )


@pytest.mark.slow
@pytest.mark.on_disk
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.run.__name__)
def test_status_reports_the_fault_until_it_is_fixed(servers: tuple[Server, Server], fault: Fault) -> None:
    with contextlib.closing(Scene(*servers, whole=True)) as scene:
        _check(scene, fault)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_status_reports_an_unreachable_object_store_until_it_is_back(own_node: Callable[..., Server], object_store: ObjectStore) -> None:
    with Proxy(object_store.port) as line:
        place = {name: value.replace(f":{object_store.port}", f":{line.port}") for name, value in object_store.settings().items()}
        node = own_node(**place)
        node.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        until(lambda: not reported_problems(node), "the node is not healthy", 60)
        line.target = free_port()
        line.cut()
        until(lambda: any("data location" in text for text in reported_problems(node)), "status does not report the object store", SECONDS)
        line.target = object_store.port
        until(lambda: not reported_problems(node), "the node does not become healthy again", LONGEST)
        assert node.psql("postgres", "SELECT count(*) FROM t") == "1"


@pytest.mark.on_disk
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.quick], ids=lambda fault: fault.run.__name__)
def test_status_reports_the_fault_of_one_subscription(postgres: Server, node: Server, fault: Fault) -> None:
    with contextlib.closing(Scene(postgres, node, whole=False)) as scene:
        _check(scene, fault)
