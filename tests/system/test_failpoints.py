"""A fault at a durable step of a node leaves all or nothing of a transaction. Faults strike before or after the step, twice in a row.

The faults are an error, a full disk, a wait and a kill. The work is repeated until it succeeds, as clients and apply workers do. Afterwards
every change is there once, two tables of one transaction agree at every moment, no lock is held, the node serves, and a restart changes
nothing. A start takes longer than most cases, so one restart checks SCENES of them, each in its own database.

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
"""Seconds; two starts and two first queries behind them fit in on a machine that has much else to do."""

LATER = 7000000
"""The key of rows that come behind the restart."""
SCENES = 12
"""So many cases share a restart."""

Rows = list[tuple[Any, ...]]


class Scene:
    """A database of a node and one of a PostgreSQL, and what is done there."""

    def __init__(self, node: NodeServer, publisher: Server) -> None:
        self.node, self.publisher = node, publisher
        self.lake, self.source = node.new_database(), publisher.new_database()
        self.conf = node.data / "headgate.conf"
        self.before = self.conf.read_text()
        self.starts = 0
        self.armed = ""
        """The faults that are to come."""
        self.is_subscribed = False
        self.agrees = True
        """Whether the two tables must hold the same keys at every moment; not while each is copied by itself."""
        for server, database in ((node, self.lake), (publisher, self.source)):
            server.psql(database, TABLES + "INSERT INTO a SELECT i, 'x' FROM generate_series(1, 20) i; INSERT INTO b SELECT * FROM a")

    # ---- faults -----------------------------------------------------------------------------------------
    def arm(self, text: str) -> None:
        """Has faults come; an empty text for none."""
        self.armed = text
        self.conf.write_text(f"{self.before}headgate.failpoints = '{text}'\n")
        os.kill(self.node.pid, signal.SIGHUP)
        until(
            lambda: self.ask("SELECT coalesce(current_setting('headgate.failpoints', true), '')") == [(text,)], "the node does not reload"
        )

    def has_struck(self, where: str) -> bool:
        """Whether a fault has happened."""
        return f'failpoint "{where}"' in self.node.log()

    # ---- what is done -----------------------------------------------------------------------------------
    def ask(self, *statements: str) -> Rows:
        """The rows of the last statement of each, over a connection of its own."""
        with psycopg.connect(self.node.conninfo(self.lake, connect_timeout="10"), autocommit=True) as session:
            session.execute("SET lock_timeout = '20s'")
            rows: Rows = []
            for sql in statements:
                result = session.execute(sql.encode())
                while result.nextset():
                    pass
                rows += result.fetchall() if result.description else []
            return rows

    def insist(self, sql: str, done: str, says: Callable[[str], Any] | None = None) -> None:
        """Says something until it is so."""

        def tried() -> bool:
            with contextlib.suppress(psycopg.Error):
                if self.ask(done) != [(True,)]:
                    (says or self.ask)(sql)
            return self.holds(done)

        until(tried, f"never so: {done}\n{self.node.log()[-3000:]}", PATIENCE)

    def holds(self, condition: str) -> bool:
        """Whether it is so, and what must be so at every moment; starts a node that was killed."""
        if not self.is_alive():
            self.starts += 1
            if self.starts == 2:
                self.conf.write_text(self.before)
            with contextlib.suppress(AssertionError):  # it may be killed again while it starts
                self.node.start()
        try:
            *agree, met = self.ask(*([AGREE] if self.agrees else []), condition)
            assert agree in ([], [(True,)]), "one table has what the other has not"
            return met == (True,)
        except psycopg.Error:
            return False

    # ---- the end ----------------------------------------------------------------------------------------
    def check(self) -> None:
        """No lock is left, and all can be written."""
        self.arm("")
        self.ask("SET lock_timeout = '5s'; BEGIN; LOCK TABLE a, b IN ACCESS EXCLUSIVE MODE; COMMIT")
        self.ask("INSERT INTO a VALUES (1000, 'w'); DELETE FROM a WHERE id = 1000")
        until(lambda: self.holds("SELECT count(*) = 0 FROM pg_locks WHERE NOT granted"), "somebody waits")

    def contents(self) -> Rows:
        """The rows of both tables."""
        return self.ask(f"SELECT 'a', * FROM a WHERE id <> {LATER} UNION ALL SELECT 'b', * FROM b WHERE id <> {LATER} ORDER BY 1, 2")

    def rest(self) -> None:
        """Nothing of it passes a step any more: the faults are for the next scene."""
        if self.is_subscribed:
            self.ask("ALTER SUBSCRIPTION s DISABLE")
            used = "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()"
            until(lambda: self.publisher.psql(self.source, used) == "0", "the worker does not end", PATIENCE)

    def go_on(self) -> None:
        """The subscription brings what is new."""
        if not self.is_subscribed:
            return
        self.ask("ALTER SUBSCRIPTION s ENABLE")
        for table in self.publisher.psql(self.source, "SELECT tablename FROM pg_publication_tables").split():
            self.publisher.psql(self.source, f"INSERT INTO {table} VALUES ({LATER}, 'later')")
            query = f"SELECT count(*) FROM {table} WHERE id = {LATER}"
            until(lambda query=query: self.ask(query) == [(1,)], f"no change arrives for {table}", PATIENCE)

    def leave(self) -> None:
        """Drops the subscription, with its slot."""
        self.ask("DROP SUBSCRIPTION IF EXISTS s")

    def is_alive(self) -> bool:
        """Whether the node's process is there."""
        try:
            os.kill(self.node.pid, 0)
        except (ProcessLookupError, FileNotFoundError):  # a start that is killed takes its file with it
            return False
        return True


class Restart:
    """Kills a node behind so many scenes, and looks whether its next start changes one of them."""

    def __init__(self) -> None:
        self.scenes: list[tuple[str, Scene, Rows]] = []
        """What each has struck, and what its tables hold."""

    def await_for(self, scene: Scene, fault: str) -> None:
        """Looks at a scene with the next restart."""
        scene.rest()
        self.scenes.append((fault, scene, scene.contents()))
        if len(self.scenes) == SCENES:
            self.changes_nothing()

    def changes_nothing(self) -> None:
        """The restart."""
        scenes, self.scenes = self.scenes, []
        if not scenes:
            return
        node = scenes[0][1].node
        node.kill()
        node.start()
        for fault, scene, rows_before in scenes:
            scene.go_on()
            assert scene.contents() == rows_before, f"a start behind {fault} changes the tables"
            check(node, scene.lake)
            scene.leave()


@pytest.fixture(scope="module")
def restart() -> Iterator[Restart]:
    restart_check = Restart()
    yield restart_check
    restart_check.changes_nothing()


def commit(scene: Scene) -> None:
    """Two tables in one transaction."""
    change = "INSERT INTO a VALUES (21, 'n'); UPDATE b SET v = 'c' WHERE id = 1; INSERT INTO b VALUES (21, 'n'); DELETE FROM a WHERE id = 2"
    done = "SELECT (SELECT count(*) FROM a WHERE id = 21) = 1 AND (SELECT v FROM b WHERE id = 1) = 'c'"
    scene.insist(f"BEGIN; {change}; DELETE FROM b WHERE id = 2; COMMIT", done)


def chunks(scene: Scene) -> None:
    """A statement whose rows are written in chunks, and what it returns."""
    rows = "SELECT i, 'chunk' FROM generate_series(11, 40) i ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING *"
    changes = f"BEGIN; INSERT INTO a {rows}; INSERT INTO b {rows}; COMMIT"
    scene.insist(f"SET headgate.small_write_rows = 7; {changes}", "SELECT count(*) = 30 FROM a WHERE v = 'chunk'")


def definition(scene: Scene) -> None:
    """What writes the catalog alone."""
    role = f"{scene.lake}_role"
    scene.insist(f"CREATE ROLE {role}", f"SELECT count(*) = 1 FROM pg_roles WHERE rolname = '{role}'")


def alteration(scene: Scene) -> None:
    """A column with another type: the table's files are written anew."""
    done = "SELECT atttypid = 'int8'::regtype FROM pg_attribute WHERE attrelid = 'a'::regclass AND attname = 'id'"
    scene.insist("ALTER TABLE a ALTER id TYPE int8", done)


def prepare(scene: Scene) -> None:
    """PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED."""
    rows = "INSERT INTO a VALUES ({0}, 'p'); INSERT INTO b VALUES ({0}, 'p')"
    is_prepared = f"SELECT count(*) = 1 FROM pg_prepared_xacts WHERE gid = '{{0}}' AND database = '{scene.lake}'"
    is_finished = is_prepared.replace("= 1 ", "= 0 ")
    for number, end in ((31, "COMMIT PREPARED"), (32, "ROLLBACK PREPARED")):
        gid = f"{scene.lake}_{number}"
        scene.insist(f"BEGIN; {rows.format(number)}; PREPARE TRANSACTION '{gid}'", is_prepared.format(gid))
        scene.insist(f"{end} '{gid}'", is_finished.format(gid))
    assert scene.ask("SELECT id FROM a WHERE id > 30") == [(31,)]


def slot(scene: Scene) -> None:
    """A slot that is made, read and dropped: it gives what was written once."""
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
    """So many small commits that their files are put together."""
    for number in range(100, 136):
        row = f"({number}, 'small')"
        scene.insist(
            f"BEGIN; INSERT INTO a VALUES {row}; INSERT INTO b VALUES {row}; COMMIT", f"SELECT count(*) = 1 FROM a WHERE id = {number}"
        )


def cleaning(scene: Scene) -> None:
    """What nobody needs any more goes at a checkpoint."""
    commit(scene)
    for _ in range(4):
        with contextlib.suppress(psycopg.Error):
            scene.ask("CHECKPOINT")
        until(lambda: scene.holds("SELECT true"), "the node does not come back", PATIENCE)


def many_versions(scene: Scene) -> None:
    """So many commits that a table's Delta log is put together."""
    scene.agrees = False
    remaining = [*range(100, 110 + EVERY)]
    while remaining:
        with contextlib.suppress(psycopg.Error), psycopg.connect(scene.node.conninfo(scene.lake), autocommit=True) as session:
            while remaining:
                session.execute("INSERT INTO a VALUES (%s, 'version') ON CONFLICT DO NOTHING", (remaining[0],))
                remaining.pop(0)
        until(lambda: scene.holds("SELECT true"), "the node does not come back", PATIENCE)
    for _ in range(4):
        with contextlib.suppress(psycopg.Error):
            scene.ask("CHECKPOINT")
        until(lambda: scene.holds("SELECT true"), "the node does not come back", PATIENCE)
    assert scene.ask("SELECT count(*) FROM a WHERE v = 'version'") == [(10 + EVERY,)]


def counter(scene: Scene) -> None:
    """A sequence never gives a number twice."""
    scene.insist("CREATE SEQUENCE q", "SELECT count(*) = 1 FROM pg_class WHERE relname = 'q'")
    numbers: list[int] = []
    for _ in range(4):
        with contextlib.suppress(psycopg.Error):
            numbers += [row[0] for row in scene.ask("SELECT nextval('q') FROM generate_series(1, 40)")]
        until(lambda: scene.holds("SELECT true"), "the node does not come back", PATIENCE)
    assert len(numbers) == len(set(numbers)) >= 80


def subscription(scene: Scene) -> None:
    """A first copy, changes, a transaction too large for memory, and one in two phases."""
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
    until(lambda: scene.holds("SELECT true") and publisher.psql(scene.source, confirmed) == "t", "the slot stays behind", PATIENCE)


MIRROR = """CREATE FUNCTION mirror() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN INSERT INTO public.b VALUES (NEW.id, NEW.v); RETURN NEW; END IF;
    IF TG_OP = 'UPDATE' THEN UPDATE public.b SET v = NEW.v WHERE id = NEW.id; RETURN NEW; END IF;
    DELETE FROM public.b WHERE id = OLD.id; RETURN OLD;
END $$;
CREATE TRIGGER mirror AFTER INSERT OR UPDATE OR DELETE ON a FOR EACH ROW EXECUTE FUNCTION mirror();
ALTER TABLE a ENABLE ALWAYS TRIGGER mirror"""
"""The table b follows the table a."""


def triggered(scene: Scene) -> None:
    """Applied changes of a table whose trigger writes a second table, which is published in turn."""
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
    until(lambda: scene.holds("SELECT true") and publisher.psql(scene.source, confirmed) == "t", "the slot stays behind", PATIENCE)
    rows = [tuple(line.split("|")) for line in publisher.psql(scene.source, "SELECT id, v FROM a ORDER BY id").split("\n")]
    for table in "ab":
        assert scene.ask(f"SELECT id::text, v FROM {table} ORDER BY {table}.id") == rows
    kinds = scene.ask(f"SELECT chr(get_byte(data, 0)) FROM pg_logical_slot_peek_binary_changes('{slot}', {options})")
    assert "".join(kind for (kind,) in kinds) == "BORIIUUDC"  # one transaction, with each change once
    scene.ask(f"SELECT pg_drop_replication_slot('{slot}')")


def mirrored(scene: Scene) -> None:
    """Clients' statements for a table whose trigger writes a second table."""
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
"""Rows of both tables after the statements of `mirrored`."""


def subscription_by_tasks(scene: Scene) -> None:
    """The same; Spark's tasks decode and write each batch."""
    subscription(scene)


def parallel_copy(scene: Scene) -> None:
    """The first copy of a table so large that ranges of it are read side by side."""
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
    """Tables of a subscription that are asked to be synchronized again: one is copied, one made equal by what differs."""
    publisher, name, faults = scene.publisher, f"{scene.lake}_s", scene.armed
    scene.arm("")
    publisher.psql(scene.source, "CREATE PUBLICATION p FOR TABLE a, b; INSERT INTO a SELECT i, 'x' FROM generate_series(2001, 3980) i")
    publisher.psql(scene.source, "INSERT INTO b SELECT * FROM a WHERE id > 20")
    scene.agrees = False
    scene.ask("TRUNCATE a, b")
    _subscribe(scene, f"slot_name = '{name}'", name)
    ours = "subid = (SELECT oid FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    settled = f"SELECT count(*) = 2 FROM pg_stat_subscription_rel WHERE srsubstate = 'r' AND resync IS NULL AND {ours}"
    until(lambda: scene.holds(settled), "the copies do not end", PATIENCE)
    scene.ask(
        "DELETE FROM a WHERE id < 2500; INSERT INTO a VALUES (9000, 'here'); DELETE FROM b WHERE id > 3500; UPDATE b SET v = 'here' WHERE id < 9"
    )
    scene.arm(faults)
    for table, function in (("a", "resync"), ("b", "reconcile")):
        is_requested = f"SELECT count(*) > 0 FROM pg_stat_subscription_rel WHERE relname = '{table}' AND resync IS NOT NULL AND {ours}"
        scene.insist(f"SELECT headgate.{function}('s', '{table}')", is_requested)
        publisher.psql(scene.source, f"INSERT INTO {table} VALUES (8000, 'later')")
    until(lambda: scene.holds(settled), f"the tables are not settled\n{scene.node.log()[-3000:]}", PATIENCE)
    until(lambda: scene.holds("SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) = 4002"), "changes do not arrive", PATIENCE)
    assert scene.ask(AGREE) == [(True,)]
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%sync%' AND database = current_database()"
    until(lambda: scene.holds("SELECT true") and publisher.psql(scene.source, slots) == "0", "a slot is left", PATIENCE)


def followed(scene: Scene) -> None:
    """A publication is altered and its stream follows: a PostgreSQL that subscribes to it has what the filter selects, once."""
    receiver, database, name = scene.publisher, scene.source, f"{scene.lake}_f"
    scene.agrees = False
    receiver.psql(database, "TRUNCATE a")

    def there(query: str) -> str:
        """What the PostgreSQL answers; the node is up again by then."""
        until(lambda: scene.holds("SELECT true"), "the node does not come back", PATIENCE)
        return receiver.psql(database, query)

    def subscribed() -> bool:
        with contextlib.suppress(Exception):
            scene.ask(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}' AND NOT active")
            receiver.psql(
                database,
                f"CREATE SUBSCRIPTION f CONNECTION '{scene.node.conninfo(scene.lake)}' PUBLICATION p WITH (slot_name = '{name}')",
            )
        return there("SELECT count(*) FROM pg_subscription WHERE subname = 'f'") == "1"

    filtered = "SELECT count(*) = 1 FROM pg_publication_tables WHERE rowfilter LIKE '%{}%'"
    scene.insist("CREATE PUBLICATION p FOR TABLE a WHERE (id > 10) WITH (reconcile = true)", filtered.format("10"))
    until(subscribed, "CREATE SUBSCRIPTION fails", PATIENCE)
    until(lambda: there("SELECT count(*) FROM a") == "10", "the copy does not end", PATIENCE)
    scene.insist("ALTER PUBLICATION p SET TABLE a WHERE (id > 5 AND id <> 15)", filtered.format("15"))
    scene.insist("INSERT INTO a VALUES (40, 'n')", "SELECT count(*) = 1 FROM a WHERE id = 40")
    scene.insist("DELETE FROM a WHERE id = 7", "SELECT count(*) = 0 FROM a WHERE id = 7")
    [(expected,)] = scene.ask("SELECT string_agg(id || v, ' ' ORDER BY id) FROM a WHERE id > 5 AND id <> 15")
    until(lambda: there("SELECT string_agg(id || v, ' ' ORDER BY id) FROM a") == expected, "the stream does not follow", PATIENCE)

    def dropped() -> bool:
        with contextlib.suppress(Exception):
            receiver.psql(database, "DROP SUBSCRIPTION IF EXISTS f")
        return there("SELECT count(*) FROM pg_subscription WHERE subname = 'f'") == "0"

    until(dropped, "DROP SUBSCRIPTION fails", PATIENCE)


def _subscribe(scene: Scene, options: str, slot_name: str) -> None:
    """Subscribes to the publication p."""
    scene.is_subscribed = True
    scene.insist(
        f"CREATE SUBSCRIPTION s CONNECTION '{scene.publisher.conninfo(scene.source)}' PUBLICATION p WITH ({options})",
        "SELECT count(*) = 1 FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
        says=lambda sql: _subscribed(scene, sql, slot_name),
    )


def _subscribed(scene: Scene, sql: str, slot_name: str) -> None:
    """CREATE SUBSCRIPTION; the slot that a failed one has left is dropped first, as its user would."""
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
"""What passes through each step."""
SETTINGS = {cleaning: {"file_retention": "0"}, subscription_by_tasks: {"small_batch_rows": "0"}}
FEW = {("version", "behind", "error", "commit"), ("version", "behind", "error", "mirrored")}
"""Those of the suite: others of its tests kill nodes."""


def faults() -> Iterator[Any]:
    """Each step, place, action and work."""
    for step in Step:
        for place in PLACES:
            for action in FaultAction:
                if action in FAILING and place == "behind" and step in COMMITS:
                    continue
                for work in WORK[step]:
                    named = (str(step), place, str(action), work.__name__)
                    marks = [] if named in FEW else [pytest.mark.slow, pytest.mark.timeout(900)]
                    yield pytest.param(f"{step} {place}", action, work, id=" ".join(named), marks=marks)


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
        # the table of the log is written in the background, half a second behind the commit
        until(lambda: scene.has_struck(where), "the work does not reach the failpoint")
        scene.check()
        restart.await_for(scene, f"{where}={action} of {work.__name__}")
    except BaseException:
        with contextlib.suppress(Exception):
            scene.conf.write_text(scene.before)
            scene.holds("SELECT true")  # the next one finds it alive
            scene.leave()
        raise
    finally:
        scene.conf.write_text(scene.before)
