"""A fault at a durable step of a node leaves all or nothing of a transaction. Each fault occurs before or after the step, twice in a row.

The faults are an error, a full disk, a wait and a kill. The work is repeated until it succeeds, as clients and apply workers do. Afterwards
every change is stored once, two tables of one transaction agree at every moment, no lock is held, the node accepts statements, and a
restart changes nothing. A start takes longer than most cases, so one restart checks SCENES of them, each in its own database.

Two cases run with the suite, all with `make test-all`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.conftest import NodeServer, Server, check, until

from headgate.failpoint import COMMITS, FAILING, PLACES, FaultAction, Step
from headgate.storage.delta.delta_checkpoint import EVERY
from headgate.subscriber.synchronization.initial_copy import PARALLEL_SIZE

TABLES = "CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text);"
AGREE = "SELECT (SELECT array_agg(id::int8 ORDER BY id) FROM a) IS NOT DISTINCT FROM (SELECT array_agg(id::int8 ORDER BY id) FROM b)"
PATIENCE = 240.0
"""Timeout in seconds. It is enough for two starts, each with a first query, on a busy machine."""

LATER = 7000000
"""The key of rows that are inserted after the restart."""
SCENES = 12
"""The number of cases that share a restart."""

Rows = list[tuple[Any, ...]]


class Scene:
    """A database of a node and one of PostgreSQL, on which the work of one case is done."""

    def __init__(self, node: NodeServer, publisher: Server) -> None:
        self.node, self.publisher = node, publisher
        self.lake, self.source = node.new_database(), publisher.new_database()
        self.conf = node.data / "headgate.conf"
        self.before = self.conf.read_text()
        self.starts = 0
        self.armed = ""
        """The failpoints that are set."""
        self.is_subscribed = False
        self.agrees = True
        """Whether the two tables must have the same keys at every moment. They need not while they are copied separately."""
        for server, database in ((node, self.lake), (publisher, self.source)):
            server.psql(database, TABLES + "INSERT INTO a SELECT i, 'x' FROM generate_series(1, 20) i; INSERT INTO b SELECT * FROM a")

    # ---- faults -----------------------------------------------------------------------------------------
    def arm(self, text: str) -> None:
        """Set failpoints, and wait until the node has read them. An empty text removes them."""
        self.armed = text
        self.conf.write_text(f"{self.before}headgate.failpoints = '{text}'\n")
        os.kill(self.node.pid, signal.SIGHUP)
        until(
            lambda: self.ask("SELECT coalesce(current_setting('headgate.failpoints', true), '')") == [(text,)], "the node does not reload"
        )

    def has_struck(self, where: str) -> bool:
        """Return whether a fault has occurred."""
        return f'failpoint "{where}"' in self.node.log()

    # ---- statements -------------------------------------------------------------------------------------
    def ask(self, *statements: str) -> Rows:
        """Run statements in a new connection. Return the rows of the last result of each."""
        with psycopg.connect(self.node.conninfo(self.lake, connect_timeout="10"), autocommit=True) as session:
            session.execute("SET lock_timeout = '20s'")
            rows: Rows = []
            for sql in statements:
                result = session.execute(sql.encode())
                while result.nextset():
                    pass
                rows += result.fetchall() if result.description else []
            return rows

    def insist(self, sql: str, done: str, execute: Callable[[str], Any] | None = None) -> None:
        """Run a statement repeatedly until the query `done` returns true."""

        def succeeds() -> bool:
            with contextlib.suppress(psycopg.Error):
                if self.ask(done) != [(True,)]:
                    (execute or self.ask)(sql)
            return self.holds(done)

        until(succeeds, f"not true: {done}\n{self.node.log()[-3000:]}", PATIENCE)

    def holds(self, condition: str) -> bool:
        """Return whether the condition is true. Check that both tables agree. If the node was killed, start it first."""
        if not self.is_alive():
            self.starts += 1
            if self.starts == 2:
                self.conf.write_text(self.before)
            with contextlib.suppress(AssertionError):  # the failpoint may kill it again while it starts
                self.node.start()
        try:
            *agree, met = self.ask(*([AGREE] if self.agrees else []), condition)
            assert agree in ([], [(True,)]), "the two tables have different keys"
            return met == (True,)
        except psycopg.Error:
            return False

    # ---- the end ----------------------------------------------------------------------------------------
    def check(self) -> None:
        """Check that no lock is left, and that both tables can be written."""
        self.arm("")
        self.ask("SET lock_timeout = '5s'; BEGIN; LOCK TABLE a, b IN ACCESS EXCLUSIVE MODE; COMMIT")
        self.ask("INSERT INTO a VALUES (1000, 'w'); DELETE FROM a WHERE id = 1000")
        until(lambda: self.holds("SELECT count(*) = 0 FROM pg_locks WHERE NOT granted"), "a session waits for a lock")

    def contents(self) -> Rows:
        """Return the rows of both tables, without those inserted after the restart."""
        return self.ask(f"SELECT 'a', * FROM a WHERE id <> {LATER} UNION ALL SELECT 'b', * FROM b WHERE id <> {LATER} ORDER BY 1, 2")

    def pause(self) -> None:
        """Stop the subscription, so that it does not reach the failpoints of the next scene."""
        if self.is_subscribed:
            self.ask("ALTER SUBSCRIPTION s DISABLE")
            used = "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()"
            until(lambda: self.publisher.psql(self.source, used) == "0", "the worker does not end", PATIENCE)

    def resume(self) -> None:
        """Resume the subscription, and check that it applies new changes."""
        if not self.is_subscribed:
            return
        self.ask("ALTER SUBSCRIPTION s ENABLE")
        for table in self.publisher.psql(self.source, "SELECT tablename FROM pg_publication_tables").split():
            self.publisher.psql(self.source, f"INSERT INTO {table} VALUES ({LATER}, 'later')")
            query = f"SELECT count(*) FROM {table} WHERE id = {LATER}"
            until(lambda query=query: self.ask(query) == [(1,)], f"no change arrives for {table}", PATIENCE)

    def drop_subscription(self) -> None:
        """Drop the subscription and its slot."""
        self.ask("DROP SUBSCRIPTION IF EXISTS s")

    def is_alive(self) -> bool:
        """Return whether the node's process runs."""
        try:
            os.kill(self.node.pid, 0)
        except (ProcessLookupError, FileNotFoundError):  # a start that is killed removes its pid file
            return False
        return True


class Restart:
    """A restart of the node after SCENES scenes. It checks that the start does not change their tables."""

    def __init__(self) -> None:
        self.scenes: list[tuple[str, Scene, Rows]] = []
        """The fault, the scene and the rows of its tables."""

    def add(self, scene: Scene, fault: str) -> None:
        """Check a scene at the next restart."""
        scene.pause()
        self.scenes.append((fault, scene, scene.contents()))
        if len(self.scenes) == SCENES:
            self.check_scenes()

    def check_scenes(self) -> None:
        """Restart the node and check all scenes."""
        scenes, self.scenes = self.scenes, []
        if not scenes:
            return
        node = scenes[0][1].node
        node.kill()
        node.start()
        for fault, scene, rows_before in scenes:
            scene.resume()
            assert scene.contents() == rows_before, f"the start after {fault} changes the tables"
            check(node, scene.lake)
            scene.drop_subscription()


@pytest.fixture(scope="module")
def restart() -> Iterator[Restart]:
    restart_check = Restart()
    yield restart_check
    restart_check.check_scenes()


def commit(scene: Scene) -> None:
    """Write two tables in one transaction."""
    change = "INSERT INTO a VALUES (21, 'n'); UPDATE b SET v = 'c' WHERE id = 1; INSERT INTO b VALUES (21, 'n'); DELETE FROM a WHERE id = 2"
    done = "SELECT (SELECT count(*) FROM a WHERE id = 21) = 1 AND (SELECT v FROM b WHERE id = 1) = 'c'"
    scene.insist(f"BEGIN; {change}; DELETE FROM b WHERE id = 2; COMMIT", done)


def chunks(scene: Scene) -> None:
    """Run a statement whose rows are written in chunks, with RETURNING."""
    rows = "SELECT i, 'chunk' FROM generate_series(11, 40) i ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING *"
    changes = f"BEGIN; INSERT INTO a {rows}; INSERT INTO b {rows}; COMMIT"
    scene.insist(f"SET headgate.small_write_rows = 7; {changes}", "SELECT count(*) = 30 FROM a WHERE v = 'chunk'")


def definition(scene: Scene) -> None:
    """Run a statement that writes only the catalog."""
    role = f"{scene.lake}_role"
    scene.insist(f"CREATE ROLE {role}", f"SELECT count(*) = 1 FROM pg_roles WHERE rolname = '{role}'")


def alteration(scene: Scene) -> None:
    """Change the type of a column, which rewrites the files of the table."""
    done = "SELECT atttypid = 'int8'::regtype FROM pg_attribute WHERE attrelid = 'a'::regclass AND attname = 'id'"
    scene.insist("ALTER TABLE a ALTER id TYPE int8", done)


def prepare(scene: Scene) -> None:
    """Run PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED."""
    rows = "INSERT INTO a VALUES ({0}, 'p'); INSERT INTO b VALUES ({0}, 'p')"
    is_prepared = f"SELECT count(*) = 1 FROM pg_prepared_xacts WHERE gid = '{{0}}' AND database = '{scene.lake}'"
    is_finished = is_prepared.replace("= 1 ", "= 0 ")
    for number, end in ((31, "COMMIT PREPARED"), (32, "ROLLBACK PREPARED")):
        gid = f"{scene.lake}_{number}"
        scene.insist(f"BEGIN; {rows.format(number)}; PREPARE TRANSACTION '{gid}'", is_prepared.format(gid))
        scene.insist(f"{end} '{gid}'", is_finished.format(gid))
    assert scene.ask("SELECT id FROM a WHERE id > 30") == [(31,)]


def slot(scene: Scene) -> None:
    """Create, read and drop a slot. It returns each change once."""
    name = f"{scene.lake}_slot"
    slot_exists = f"SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = '{name}'"
    scene.insist("CREATE PUBLICATION p FOR TABLE a", "SELECT count(*) = 1 FROM pg_publication")
    scene.insist(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')", slot_exists)
    commit(scene)
    options = "NULL, NULL, 'proto_version', '1', 'publication_names', 'p'"
    peeked = scene.ask(f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{name}', {options})")
    assert peeked == [(5,)]  # Begin, Relation, Insert, Delete, Commit
    read = f"SELECT count(*) = 0 FROM pg_logical_slot_peek_binary_changes('{name}', {options})"
    scene.insist(f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('{name}', {options})", read)
    scene.insist(f"SELECT pg_drop_replication_slot('{name}')", slot_exists.replace("= 1 ", "= 0 "))


def compaction(scene: Scene) -> None:
    """Commit so many small transactions that their files are compacted."""
    for number in range(100, 136):
        row = f"({number}, 'small')"
        scene.insist(
            f"BEGIN; INSERT INTO a VALUES {row}; INSERT INTO b VALUES {row}; COMMIT", f"SELECT count(*) = 1 FROM a WHERE id = {number}"
        )


def cleaning(scene: Scene) -> None:
    """Run checkpoints, which remove unused files."""
    commit(scene)
    for _ in range(4):
        with contextlib.suppress(psycopg.Error):
            scene.ask("CHECKPOINT")
        until(lambda: scene.holds("SELECT true"), "the node does not start again", PATIENCE)


def many_versions(scene: Scene) -> None:
    """Commit so often that Delta's log gets a checkpoint."""
    scene.agrees = False
    remaining = [*range(100, 110 + EVERY)]
    while remaining:
        with contextlib.suppress(psycopg.Error), psycopg.connect(scene.node.conninfo(scene.lake), autocommit=True) as session:
            while remaining:
                session.execute("INSERT INTO a VALUES (%s, 'version') ON CONFLICT DO NOTHING", (remaining[0],))
                remaining.pop(0)
        until(lambda: scene.holds("SELECT true"), "the node does not start again", PATIENCE)
    for _ in range(4):
        with contextlib.suppress(psycopg.Error):
            scene.ask("CHECKPOINT")
        until(lambda: scene.holds("SELECT true"), "the node does not start again", PATIENCE)
    assert scene.ask("SELECT count(*) FROM a WHERE v = 'version'") == [(10 + EVERY,)]


def counter(scene: Scene) -> None:
    """Call nextval of a sequence. It never returns a number twice."""
    scene.insist("CREATE SEQUENCE q", "SELECT count(*) = 1 FROM pg_class WHERE relname = 'q'")
    numbers: list[int] = []
    for _ in range(4):
        with contextlib.suppress(psycopg.Error):
            numbers += [row[0] for row in scene.ask("SELECT nextval('q') FROM generate_series(1, 40)")]
        until(lambda: scene.holds("SELECT true"), "the node does not start again", PATIENCE)
    assert len(numbers) == len(set(numbers)) >= 80


def subscription(scene: Scene) -> None:
    """Replicate an initial copy, changes, a transaction that does not fit into memory, and a prepared transaction."""
    publisher, name = scene.publisher, f"{scene.lake}_s"
    publisher.psql(scene.source, "CREATE TABLE big (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE a, b, big")
    scene.insist("CREATE TABLE big (id int PRIMARY KEY, v text)", "SELECT count(*) = 1 FROM pg_class WHERE relname = 'big'")
    scene.agrees = False
    scene.insist("TRUNCATE a, b", "SELECT count(*) = 0 FROM a")
    _subscribe(scene, f"slot_name = '{name}', two_phase = true", name)
    until(lambda: scene.holds("SELECT count(*) = 3 FROM pg_subscription_rel WHERE srsubstate = 'r'"), "the copies do not end", PATIENCE)
    scene.agrees = True
    publisher.psql(scene.source, "BEGIN; INSERT INTO a VALUES (41, 'n'); INSERT INTO b VALUES (41, 'n'); UPDATE a SET v = 'u'; COMMIT")
    publisher.psql(scene.source, "INSERT INTO big SELECT i, repeat(md5(i::text), 64) FROM generate_series(1, 6000) i")
    gid = f"{scene.source}_g"
    publisher.psql(scene.source, f"BEGIN; INSERT INTO a VALUES (42, 'p'); INSERT INTO b VALUES (42, 'p'); PREPARE TRANSACTION '{gid}'")
    publisher.psql(scene.source, f"COMMIT PREPARED '{gid}'; INSERT INTO big VALUES (0, 'end')")
    arrived = "SELECT (SELECT count(*) FROM big) = 6001 AND (SELECT count(*) FROM a WHERE v = 'u') = 21 AND (SELECT count(*) FROM b) = 22"
    until(lambda: scene.holds(arrived), f"the changes do not arrive\n{scene.node.log()[-3000:]}", PATIENCE)
    end = publisher.psql(scene.source, "SELECT pg_current_wal_lsn()")
    confirmed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{name}'"
    until(lambda: scene.holds("SELECT true") and publisher.psql(scene.source, confirmed) == "t", "the slot does not advance", PATIENCE)


MIRROR = """CREATE FUNCTION mirror() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN INSERT INTO public.b VALUES (NEW.id, NEW.v); RETURN NEW; END IF;
    IF TG_OP = 'UPDATE' THEN UPDATE public.b SET v = NEW.v WHERE id = NEW.id; RETURN NEW; END IF;
    DELETE FROM public.b WHERE id = OLD.id; RETURN OLD;
END $$;
CREATE TRIGGER mirror AFTER INSERT OR UPDATE OR DELETE ON a FOR EACH ROW EXECUTE FUNCTION mirror();
ALTER TABLE a ENABLE ALWAYS TRIGGER mirror"""
"""A trigger by which table b follows table a."""


def triggered(scene: Scene) -> None:
    """Apply changes of a table whose trigger writes a second table, which is published too."""
    publisher, name, faults = scene.publisher, f"{scene.lake}_s", scene.armed
    slot, options = f"{scene.lake}_second", "NULL, NULL, 'proto_version', '1', 'publication_names', 'second'"
    scene.arm("")
    publisher.psql(scene.source, "CREATE PUBLICATION p FOR TABLE a")
    scene.ask("TRUNCATE a, b", MIRROR, "CREATE PUBLICATION second FOR TABLE b")
    _subscribe(scene, f"slot_name = '{name}'", name)
    until(lambda: scene.holds("SELECT count(*) = 1 FROM pg_subscription_rel WHERE srsubstate = 'r'"), "the copy does not end", PATIENCE)
    scene.ask(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    scene.arm(faults)
    changes = "INSERT INTO a VALUES (41, 'n'), (42, 'n'); UPDATE a SET v = 'u' WHERE id < 3; DELETE FROM a WHERE id = 4"
    publisher.psql(scene.source, f"BEGIN; {changes}; COMMIT")
    end = publisher.psql(scene.source, "SELECT pg_current_wal_lsn()")
    until(lambda: scene.holds("SELECT count(*) = 1 FROM a WHERE id = 41"), f"no change arrives\n{scene.node.log()[-3000:]}", PATIENCE)
    confirmed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{name}'"
    until(lambda: scene.holds("SELECT true") and publisher.psql(scene.source, confirmed) == "t", "the slot does not advance", PATIENCE)
    rows = [tuple(line.split("|")) for line in publisher.psql(scene.source, "SELECT id, v FROM a ORDER BY id").split("\n")]
    for table in "ab":
        assert scene.ask(f"SELECT id::text, v FROM {table} ORDER BY {table}.id") == rows
    kinds = scene.ask(f"SELECT chr(get_byte(data, 0)) FROM pg_logical_slot_peek_binary_changes('{slot}', {options})")
    assert "".join(kind for (kind,) in kinds) == "BORIIUUDC"  # one transaction, with each change once
    scene.ask(f"SELECT pg_drop_replication_slot('{slot}')")


def mirrored(scene: Scene) -> None:
    """Run clients' statements on a table whose trigger writes a second table."""
    faults = scene.armed
    scene.arm("")
    scene.ask(MIRROR)
    scene.arm(faults)
    scene.insist("INSERT INTO a VALUES (41, 'n'), (42, 'n')", "SELECT count(*) = 2 FROM a WHERE v = 'n'")
    scene.insist("UPDATE a SET v = 'u' WHERE id < 3", "SELECT count(*) = 2 FROM a WHERE v = 'u'")
    scene.insist("DELETE FROM a WHERE id = 4", "SELECT count(*) = 0 FROM a WHERE id = 4")
    for table in "ab":
        assert scene.ask(f"SELECT id, v FROM {table} WHERE id IN (1, 2, 3, 4) OR id > 20 ORDER BY id") == MIRRORED


MIRRORED = [(1, "u"), (2, "u"), (3, "x"), (41, "n"), (42, "n")]
"""The rows of both tables after the statements of `mirrored`."""


def subscription_by_tasks(scene: Scene) -> None:
    """Run `subscription` with batches that Spark's tasks decode and write."""
    subscription(scene)


def parallel_copy(scene: Scene) -> None:
    """Copy a table that is so large that ranges of it are copied concurrently."""
    publisher, name = scene.publisher, f"{scene.lake}_s"
    rows = "SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 80000) i"
    publisher.psql(
        scene.source, f"CREATE TABLE big (id int PRIMARY KEY, v text); INSERT INTO big {rows}; CREATE PUBLICATION p FOR TABLE big"
    )
    assert int(publisher.psql(scene.source, "SELECT pg_relation_size('big')")) > PARALLEL_SIZE
    scene.insist("CREATE TABLE big (id int PRIMARY KEY, v text)", "SELECT count(*) = 1 FROM pg_class WHERE relname = 'big'")
    _subscribe(scene, f"slot_name = '{name}'", name)
    until(lambda: scene.holds("SELECT count(*) = 1 FROM pg_subscription_rel WHERE srsubstate = 'r'"), "the copy does not end", PATIENCE)
    assert scene.ask("SELECT count(*), count(DISTINCT id), min(length(v)), sum(id) FROM big") == [(80000, 80000, 640, 3200040000)]


def resynchronization(scene: Scene) -> None:
    """Request the synchronization of subscribed tables again: one table by resync, one by reconcile."""
    publisher, name, faults = scene.publisher, f"{scene.lake}_s", scene.armed
    scene.arm("")
    publisher.psql(scene.source, "CREATE PUBLICATION p FOR TABLE a, b; INSERT INTO a SELECT i, 'x' FROM generate_series(2001, 3980) i")
    publisher.psql(scene.source, "INSERT INTO b SELECT * FROM a WHERE id > 20")
    scene.agrees = False
    scene.ask("TRUNCATE a, b")
    _subscribe(scene, f"slot_name = '{name}'", name)
    is_local = "subid = (SELECT oid FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    is_synchronized = f"SELECT count(*) = 2 FROM pg_stat_subscription_rel WHERE srsubstate = 'r' AND resync IS NULL AND {is_local}"
    until(lambda: scene.holds(is_synchronized), "the copies do not end", PATIENCE)
    scene.ask(
        "DELETE FROM a WHERE id < 2500; INSERT INTO a VALUES (9000, 'here'); DELETE FROM b WHERE id > 3500; UPDATE b SET v = 'here' WHERE id < 9"
    )
    scene.arm(faults)
    for table, function in (("a", "resync"), ("b", "reconcile")):
        is_requested = f"SELECT count(*) > 0 FROM pg_stat_subscription_rel WHERE relname = '{table}' AND resync IS NOT NULL AND {is_local}"
        scene.insist(f"SELECT headgate.{function}('s', '{table}')", is_requested)
        publisher.psql(scene.source, f"INSERT INTO {table} VALUES (8000, 'later')")
    until(lambda: scene.holds(is_synchronized), f"the tables are not synchronized\n{scene.node.log()[-3000:]}", PATIENCE)
    until(lambda: scene.holds("SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) = 4002"), "changes do not arrive", PATIENCE)
    assert scene.ask(AGREE) == [(True,)]
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%sync%' AND database = current_database()"
    until(lambda: scene.holds("SELECT true") and publisher.psql(scene.source, slots) == "0", "a synchronization slot is left", PATIENCE)


def followed(scene: Scene) -> None:
    """Alter a publication with `reconcile`. Its PostgreSQL subscriber gets each row that the filter selects once."""
    receiver, database, name = scene.publisher, scene.source, f"{scene.lake}_f"
    scene.agrees = False
    receiver.psql(database, "TRUNCATE a")

    def query_receiver(query: str) -> str:
        """Return PostgreSQL's result of the query after the node is running again."""
        until(lambda: scene.holds("SELECT true"), "the node does not start again", PATIENCE)
        return receiver.psql(database, query)

    def subscribe() -> bool:
        with contextlib.suppress(Exception):
            scene.ask(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}' AND NOT active")
            receiver.psql(
                database,
                f"CREATE SUBSCRIPTION f CONNECTION '{scene.node.conninfo(scene.lake)}' PUBLICATION p WITH (slot_name = '{name}')",
            )
        return query_receiver("SELECT count(*) FROM pg_subscription WHERE subname = 'f'") == "1"

    filtered = "SELECT count(*) = 1 FROM pg_publication_tables WHERE rowfilter LIKE '%{}%'"
    scene.insist("CREATE PUBLICATION p FOR TABLE a WHERE (id > 10) WITH (reconcile = true)", filtered.format("10"))
    until(subscribe, "CREATE SUBSCRIPTION fails", PATIENCE)
    until(lambda: query_receiver("SELECT count(*) FROM a") == "10", "the copy does not end", PATIENCE)
    scene.insist("ALTER PUBLICATION p SET TABLE a WHERE (id > 5 AND id <> 15)", filtered.format("15"))
    scene.insist("INSERT INTO a VALUES (40, 'n')", "SELECT count(*) = 1 FROM a WHERE id = 40")
    scene.insist("DELETE FROM a WHERE id = 7", "SELECT count(*) = 0 FROM a WHERE id = 7")
    [(expected,)] = scene.ask("SELECT string_agg(id || v, ' ' ORDER BY id) FROM a WHERE id > 5 AND id <> 15")
    until(lambda: query_receiver("SELECT string_agg(id || v, ' ' ORDER BY id) FROM a") == expected, "the stream does not follow", PATIENCE)

    def drop() -> bool:
        with contextlib.suppress(Exception):
            receiver.psql(database, "DROP SUBSCRIPTION IF EXISTS f")
        return query_receiver("SELECT count(*) FROM pg_subscription WHERE subname = 'f'") == "0"

    until(drop, "DROP SUBSCRIPTION fails", PATIENCE)


def _subscribe(scene: Scene, options: str, slot_name: str) -> None:
    """Create a subscription to publication p."""
    scene.is_subscribed = True
    scene.insist(
        f"CREATE SUBSCRIPTION s CONNECTION '{scene.publisher.conninfo(scene.source)}' PUBLICATION p WITH ({options})",
        "SELECT count(*) = 1 FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
        execute=lambda sql: _create_subscription(scene, sql, slot_name),
    )


def _create_subscription(scene: Scene, sql: str, slot_name: str) -> None:
    """Run CREATE SUBSCRIPTION. A slot that a failed attempt has left is dropped first, as a user would do."""
    scene.publisher.psql(
        scene.source, f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot_name}' AND NOT active"
    )
    scene.ask(sql)


WORK: dict[Step, tuple[Callable[[Scene], None], ...]] = {
    Step.SEGMENT: (subscription,),
    Step.PREPARED_SEGMENT: (subscription,),
    Step.STAGED: (commit, chunks, subscription, subscription_by_tasks, resynchronization, triggered, mirrored),
    Step.SYNC: (commit, alteration, mirrored),
    Step.INTENT: (commit, subscription, triggered, mirrored),
    Step.VERSION: (commit, alteration, subscription, subscription_by_tasks, resynchronization, triggered, mirrored),
    Step.ENTRY: (commit, alteration, subscription, resynchronization, followed, triggered, mirrored),
    Step.DEFINITION: (definition, resynchronization),
    Step.TAKEN_BACK: (commit, mirrored),
    Step.PREPARED: (prepare, subscription),
    Step.PREPARED_END: (prepare,),
    Step.SLOT: (slot, followed),
    Step.SYNCHRONIZATION: (subscription, resynchronization),
    Step.COPY_RANGE: (parallel_copy, resynchronization),
    Step.FEEDBACK: (subscription, triggered),
    Step.COMPACTION: (compaction,),
    Step.CLEANING: (cleaning,),
    Step.DELTA_CHECKPOINT: (many_versions,),
    Step.CHECKPOINT: (cleaning,),
    Step.COUNTER: (counter,),
    Step.LOG_TABLE: (commit,),
}
"""The work that reaches each step."""
SETTINGS = {cleaning: {"file_retention": "0"}, subscription_by_tasks: {"small_batch_rows": "0"}}
FEW = {("version", "behind", "error", "commit"), ("version", "behind", "error", "mirrored")}
"""The cases of the suite. Other tests of the suite kill nodes."""


def faults() -> Iterator[Any]:
    """Yield each combination of step, place, action and work."""
    for step in Step:
        for place in PLACES:
            for action in FaultAction:
                if action in FAILING and place == "behind" and step in COMMITS:
                    continue
                for work in WORK[step]:
                    case = (str(step), place, str(action), work.__name__)
                    marks = [] if case in FEW else [pytest.mark.slow, pytest.mark.timeout(900)]
                    yield pytest.param(f"{step} {place}", action, work, id=" ".join(case), marks=marks)


@pytest.mark.parametrize(("where", "action", "work"), [*faults()])
def test_fault_at_a_durable_step_leaves_all_or_nothing(
    spare_node: Callable[..., Server], postgres: Server, restart: Restart, where: str, action: FaultAction, work: Callable[[Scene], None]
) -> None:
    node = spare_node(**SETTINGS.get(work, {}))
    assert isinstance(node, NodeServer)
    scene = Scene(node, postgres)
    node.logfile.write_text("")
    try:
        scene.arm(f"{where}={action}" + (", version behind=error" if where.startswith(Step.TAKEN_BACK) else ""))
        work(scene)
        # the log table is written in the background, half a second after the commit
        until(lambda: scene.has_struck(where), "the work does not reach the failpoint")
        scene.check()
        restart.add(scene, f"{where}={action} of {work.__name__}")
    except BaseException:
        with contextlib.suppress(Exception):
            scene.conf.write_text(scene.before)
            scene.holds("SELECT true")  # start the node for the next test
            scene.drop_subscription()
        raise
    finally:
        scene.conf.write_text(scene.before)
