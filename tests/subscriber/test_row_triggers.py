"""Triggers of a subscriber fire for applied and copied rows as those of a PostgreSQL subscriber do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from tests.conftest import Server, until
from tests.plpgsql.generated import ROWS, STATE, TABLES, Generator
from tests.subscriber.conftest import READY, Publisher, Subscriber

HERE = """
    CREATE TABLE log (n serial PRIMARY KEY, op text, id int, was text, now_is text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN INSERT INTO public.log (op, id, was) VALUES (TG_OP, OLD.id, OLD.v);
        ELSIF TG_OP = 'UPDATE' THEN INSERT INTO public.log (op, id, was, now_is) VALUES (TG_OP, NEW.id, OLD.v, NEW.v || length(NEW.big));
        ELSE INSERT INTO public.log (op, id, now_is) VALUES (TG_OP, NEW.id, NEW.v); END IF;
        RETURN NULL;
    END $$;
    CREATE FUNCTION mend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.v = 'skip' THEN RETURN NULL; END IF;
        NEW.v := upper(NEW.v); NEW.extra := coalesce(NEW.extra, 0) + 1;
        RETURN NEW;
    END $$;
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT FROM public.kept WHERE id = OLD.id) THEN RETURN NULL; END IF;
        RETURN OLD;
    END $$;
    CREATE TABLE kept (id int); INSERT INTO kept VALUES (3);
    CREATE TRIGGER a_mend BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION mend();
    CREATE TRIGGER b_keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep();
    CREATE TRIGGER c_note AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER d_never AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
    ALTER TABLE t ENABLE ALWAYS TRIGGER a_mend;
    ALTER TABLE t ENABLE REPLICA TRIGGER b_keep;
    ALTER TABLE t ENABLE REPLICA TRIGGER c_note"""
PARTITIONS = """
    CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (modulus 3, remainder 0);
    CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (modulus 3, remainder 1);
    CREATE TABLE t2 PARTITION OF t FOR VALUES WITH (modulus 3, remainder 2);
    CREATE TRIGGER e_own AFTER INSERT OR UPDATE OR DELETE ON t1 FOR EACH ROW EXECUTE FUNCTION note();
    ALTER TABLE t1 ENABLE REPLICA TRIGGER e_own"""
WORK = """
    INSERT INTO t VALUES (2, 'two'), (3, 'three'), (4, 'skip'), (5, NULL);
    BEGIN; UPDATE t SET v = 'again' WHERE id = 2; UPDATE t SET v = 'thrice' WHERE id = 2; UPDATE t SET id = 20 WHERE id = 2; COMMIT;
    UPDATE t SET v = 'unsent' WHERE id = 1;
    DELETE FROM t WHERE id IN (3, 5);
    INSERT INTO t SELECT g, 'many' || g FROM generate_series(100, 120) g;
    UPDATE t SET v = v || 'x' WHERE id > 100; UPDATE t SET v = 'skip' WHERE id = 100"""


@pytest.fixture
def mirror(postgres: Server, publisher: Publisher) -> Iterator[Publisher]:
    """A database of the PostgreSQL server that subscribes to the same publication.

    Its slot is created first, because the publisher is the same server.
    """
    database = Publisher(postgres)
    yield database
    database.sql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
    database.close()


def subscribe_both(publisher: Publisher, subscriber: Subscriber, mirror: Publisher) -> None:
    """Subscribe the node and the PostgreSQL database to the publication, and wait until their tables are copied."""
    publisher.sql(f"SELECT pg_create_logical_replication_slot('{publisher.name}_mirror', 'pgoutput')")
    subscriber.sql(publisher.subscription(""))
    options = f"slot_name = '{publisher.name}_mirror', create_slot = false"
    mirror.sql(f"CREATE SUBSCRIPTION s CONNECTION '{publisher.conninfo}' PUBLICATION p WITH ({options})")
    for database in (subscriber, mirror):
        until(lambda: database.sql(READY) == "t")  # noqa: B023


@pytest.mark.parametrize("identity", ["key", *[pytest.param(kind, marks=pytest.mark.slow) for kind in ("full", "partitions")]])
def test_triggers_see_and_change_the_rows_that_those_of_postgresql_do(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher, identity: str
) -> None:
    key = "" if identity == "full" else " PRIMARY KEY"
    partitioned = " PARTITION BY HASH (id)" if identity == "partitions" else ""
    publisher.sql(f"CREATE TABLE t (id int{key}, v text, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    if identity == "full":
        publisher.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    publisher.sql("INSERT INTO t VALUES (1, 'one', repeat('x', 9000)), (9, 'skip', ''); CREATE PUBLICATION p FOR ALL TABLES")
    for database in (subscriber, mirror):
        database.sql(f"CREATE TABLE t (id int{key}, v text, big text, extra int){partitioned}")
        database.sql(HERE)
        if partitioned:
            database.sql(PARTITIONS)
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql(WORK)
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    rows = "SELECT id, v, length(big), extra FROM t ORDER BY id, v"
    assert subscriber.sql(rows) == mirror.sql(rows)
    fired = "SELECT op, id, was, now_is FROM log ORDER BY n"
    assert subscriber.sql(fired) == mirror.sql(fired)


def test_triggers_run_as_the_owner_of_the_table_if_the_subscription_does_not_run_as_its_own(
    publisher: Publisher, subscriber: Subscriber
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (0)")
    role = f"writer_{subscriber.name}"
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY, role text, by_default text DEFAULT current_user)")
    subscriber.sql("""CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.role := current_user; RETURN NEW; END $$;
        CREATE TRIGGER n BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note(); ALTER TABLE t ENABLE ALWAYS TRIGGER n""")
    subscriber.sql(f"CREATE ROLE {role}; ALTER TABLE t OWNER TO {role}")
    subscriber.sql(publisher.subscription("run_as_owner = false"))
    until(lambda: subscriber.sql(READY) == "t")
    publisher.sql("INSERT INTO t VALUES (1)")
    publisher.wait_confirmed("s")
    subscriber.sql("ALTER SUBSCRIPTION s SET (run_as_owner = true)")
    publisher.sql("INSERT INTO t VALUES (2)")
    publisher.wait_confirmed("s")
    user = subscriber.sql("SELECT current_user")
    assert subscriber.sql("SELECT id, role = by_default, role FROM t ORDER BY id") == f"0|t|{role}\n1|t|{role}\n2|t|{user}"
    subscriber.sql(f"DROP TABLE t; DROP ROLE {role}")


def test_trigger_that_raises_stops_the_worker_with_its_context(publisher: Publisher, subscriber: Subscriber) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE most (n int); INSERT INTO most VALUES (10)")
    subscriber.sql("""CREATE FUNCTION check_most() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.id > (SELECT n FROM public.most) THEN RAISE EXCEPTION 'too large: %', NEW.id USING ERRCODE = '23514'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER c BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION check_most(); ALTER TABLE t ENABLE ALWAYS TRIGGER c""")
    subscriber.sql(publisher.subscription(""))
    until(lambda: subscriber.sql(READY) == "t")
    publisher.sql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (11)")
    error = subscriber.log.error("too large: 11")
    assert "PL/pgSQL function public.check_most() line 2 at RAISE" in error.context
    assert 'replication target relation "public.t"' in error.context
    assert subscriber.sql("SELECT id FROM t") == "1"
    subscriber.sql("UPDATE most SET n = 100")
    publisher.wait_confirmed("s")
    assert subscriber.sql("SELECT id FROM t ORDER BY id") == "1\n11"


READING = """
    CREATE TABLE mapping (id int PRIMARY KEY, name text); INSERT INTO mapping SELECT g, 'name ' || g FROM generate_series(0, 9) g;
    CREATE TABLE seen (n serial PRIMARY KEY, id int);
    CREATE FUNCTION map() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        SELECT m.name INTO NEW.v FROM public.mapping m WHERE m.id = NEW.id % 8 + 3; RETURN NEW;
    END $$;
    CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := (SELECT count(*) FROM public.own); RETURN NEW; END $$;
    CREATE FUNCTION count_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        NEW.v := (SELECT count(*) FROM public.seen); RETURN NEW;
    END $$;
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen (id) VALUES (NEW.id); RETURN NULL; END $$;
    CREATE TRIGGER a BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION map();
    CREATE TRIGGER a BEFORE INSERT OR UPDATE ON own FOR EACH ROW EXECUTE FUNCTION own();
    CREATE TRIGGER a BEFORE INSERT OR UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION count_seen();
    CREATE TRIGGER b AFTER INSERT OR UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION see();
    ALTER TABLE t ENABLE ALWAYS TRIGGER a; ALTER TABLE own ENABLE ALWAYS TRIGGER a;
    ALTER TABLE counted ENABLE ALWAYS TRIGGER a; ALTER TABLE counted ENABLE ALWAYS TRIGGER b"""
READ = ("t", "own", "counted")


@pytest.mark.slow
def test_triggers_that_query_tables_see_what_earlier_changes_have_written(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher
) -> None:
    tables = "; ".join(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in READ)
    publisher.sql(f"{tables}; CREATE PUBLICATION p FOR ALL TABLES")
    for database in (subscriber, mirror):
        database.sql(f"{tables}; {READING}")
    subscribe_both(publisher, subscriber, mirror)
    for name in READ:
        publisher.sql(f"INSERT INTO {name} SELECT g, 'x' FROM generate_series(1, 9) g; UPDATE {name} SET v = 'y' WHERE id > 7")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    for name in (*READ, "seen"):
        query = f"SELECT * FROM {name} ORDER BY 1"
        assert subscriber.sql(query) == mirror.sql(query)


CALLING = """
    CREATE TABLE mapping (id int PRIMARY KEY, name text); INSERT INTO mapping SELECT g, 'name ' || g FROM generate_series(0, 5) g;
    CREATE TABLE seen (n serial PRIMARY KEY, id int);
    CREATE FUNCTION is_mapped(x int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN
        RETURN EXISTS (SELECT FROM public.mapping WHERE id = x);
    END $$;
    CREATE FUNCTION named(x int) RETURNS text STABLE LANGUAGE sql AS 'SELECT max(name) FROM public.mapping WHERE id <= x';
    CREATE FUNCTION tells(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'x = %', x; RETURN x; END $$;
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen (id) VALUES (NEW.id); RETURN NULL; END $$;
    CREATE TABLE t (id int PRIMARY KEY, v text, extra text DEFAULT named(3), told int DEFAULT tells(7), CHECK (NOT is_mapped(id - 100)));
    CREATE TRIGGER a AFTER INSERT OR UPDATE ON t FOR EACH ROW WHEN (public.is_mapped(NEW.id) AND public.tells(NEW.id) > 1)
        EXECUTE FUNCTION see();
    ALTER TABLE t ENABLE REPLICA TRIGGER a"""


@pytest.mark.slow
def test_functions_that_read_tables_serve_conditions_defaults_and_checks_of_applied_rows(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR ALL TABLES; INSERT INTO t VALUES (0, 'copied')")
    for database in (subscriber, mirror):
        database.sql(CALLING)
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 9) g; UPDATE t SET v = 'y' WHERE id > 4")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    for query in ("SELECT * FROM t ORDER BY id", "SELECT * FROM seen ORDER BY n"):
        assert subscriber.sql(query) == mirror.sql(query)
    publisher.sql("INSERT INTO t VALUES (102, 'rejected')")
    subscriber.log.error('violates check constraint "t_id_check"')
    assert subscriber.sql("SELECT count(*) FROM t WHERE id > 100") == "0"
    for database in (subscriber, mirror):
        database.sql("DELETE FROM mapping WHERE id = 2")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == mirror.sql("SELECT * FROM t ORDER BY id")


LOOKING_UP = """
    CREATE FUNCTION look_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        SELECT c.name INTO NEW.customer FROM public.customers c WHERE c.id = NEW.customer_id; RETURN NEW;
    END $$;
    CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE public.customers SET orders = orders + 1 WHERE id = NEW.customer_id; RETURN NULL;
    END $$;
    CREATE TRIGGER a BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION look_up(); ALTER TABLE orders ENABLE ALWAYS TRIGGER a;
    CREATE TRIGGER b AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION total()"""
ORDERS = """
    BEGIN;
    INSERT INTO orders VALUES (1, 1); INSERT INTO customers VALUES (1, 'one'), (2, 'two'); INSERT INTO orders VALUES (2, 1), (3, 2);
    UPDATE customers SET name = 'uno' WHERE id = 1; INSERT INTO orders VALUES (4, 1); DELETE FROM customers WHERE id = 2;
    INSERT INTO notes VALUES (1); INSERT INTO orders VALUES (5, 2), (6, 1);
    COMMIT"""


@pytest.mark.slow
@pytest.mark.parametrize("writes", [False, True])
def test_triggers_see_the_changes_of_other_tables_that_came_before(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher, *, writes: bool
) -> None:
    publisher.sql("CREATE TABLE orders (id int PRIMARY KEY, customer_id int); CREATE TABLE customers (id int PRIMARY KEY, name text)")
    publisher.sql("CREATE TABLE notes (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    for database in (subscriber, mirror):
        database.sql("CREATE TABLE orders (id int PRIMARY KEY, customer_id int, customer text); CREATE TABLE notes (id int PRIMARY KEY)")
        database.sql(f"CREATE TABLE customers (id int PRIMARY KEY, name text, orders int NOT NULL DEFAULT 0); {LOOKING_UP}")
        if writes:
            database.sql("ALTER TABLE orders ENABLE REPLICA TRIGGER b")
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql(ORDERS)
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    for name in ("orders", "customers", "notes"):
        query = f"SELECT * FROM {name} ORDER BY id"
        assert subscriber.sql(query) == mirror.sql(query)


TRANSITIONS = """
    CREATE TABLE seen (n serial PRIMARY KEY, level text, op text, rows text);
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.seen (level, op, rows) SELECT TG_LEVEL, TG_OP, string_agg(id || v, ',' ORDER BY id) FROM arrived;
        RETURN NULL;
    EXCEPTION WHEN undefined_table THEN
        INSERT INTO public.seen (level, op, rows) VALUES (TG_LEVEL, TG_OP, 'there is no table');
        RETURN NULL;
    END $$;
    CREATE TRIGGER a AFTER INSERT ON t REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION see();
    CREATE TRIGGER b AFTER INSERT ON t REFERENCING NEW TABLE AS arrived FOR EACH ROW EXECUTE FUNCTION see();
    CREATE TRIGGER c AFTER UPDATE ON t REFERENCING NEW TABLE AS arrived FOR EACH ROW EXECUTE FUNCTION see();
    CREATE TRIGGER d AFTER UPDATE ON t REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION see();
    ALTER TABLE t ENABLE ALWAYS TRIGGER a; ALTER TABLE t ENABLE REPLICA TRIGGER b;
    ALTER TABLE t ENABLE ALWAYS TRIGGER c; ALTER TABLE t ENABLE ALWAYS TRIGGER d"""


@pytest.mark.slow
def test_initial_copy_has_transition_tables_and_applied_changes_have_none(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    publisher.sql("CREATE PUBLICATION p FOR TABLE t")
    for database in (subscriber, mirror):
        database.sql(f"CREATE TABLE t (id int PRIMARY KEY, v text); {TRANSITIONS}")
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql("INSERT INTO t VALUES (4, 'd'), (5, 'e'); UPDATE t SET v = 'x' WHERE id < 3")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    query = "SELECT level, op, rows FROM seen ORDER BY n"
    assert subscriber.sql(query) == mirror.sql(query)
    assert "STATEMENT|INSERT|1a,2b,3c" in mirror.sql(query)


DEFERRED = """
    CREATE TABLE seen (n serial PRIMARY KEY, id int, rows bigint);
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.seen (id, rows) VALUES (NEW.id, (SELECT count(*) FROM public.t));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER a AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();
    ALTER TABLE t ENABLE ALWAYS TRIGGER a"""


@pytest.mark.slow
def test_deferred_trigger_fires_at_the_end_of_an_applied_transaction(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE PUBLICATION p FOR TABLE t")
    for database in (subscriber, mirror):
        database.sql(f"CREATE TABLE t (id int PRIMARY KEY); {DEFERRED}")
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql("BEGIN; INSERT INTO t VALUES (3); INSERT INTO t VALUES (4); DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (5); COMMIT")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    query = "SELECT id, rows FROM seen ORDER BY n"
    assert subscriber.sql(query) == mirror.sql(query)
    assert mirror.sql(query) == "1|2\n2|2\n3|4\n4|4\n5|4"


@pytest.mark.slow
def test_listener_receives_the_notifications_of_triggers_when_the_applied_transaction_commits(
    publisher: Publisher, subscriber: Subscriber
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("""CREATE TABLE t (id int PRIMARY KEY);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_notify('rows', NEW.id::text);
        BEGIN PERFORM pg_notify('rows', 'undone'); RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN NOTIFY rows, 'caught'; END;
        RETURN NULL;
    END $$;
    CREATE TRIGGER c AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION tell(); ALTER TABLE t ENABLE REPLICA TRIGGER c""")
    with psycopg.connect(subscriber.conninfo, autocommit=True) as listener:
        listener.execute("LISTEN rows")
        subscriber.sql(publisher.subscription(""))
        until(lambda: subscriber.sql(READY) == "t")
        publisher.sql("BEGIN; INSERT INTO t VALUES (2); INSERT INTO t VALUES (3); COMMIT")
        heard = [notify.payload for notify in listener.notifies(timeout=60, stop_after=5)]
    assert heard == ["1", "caught", "2", "caught", "3"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 108))
def test_generated_triggers_do_for_applied_changes_what_those_of_postgresql_do(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher, seed: int
) -> None:
    generator = Generator(seed, raises=False, depth=1)
    statements = [generator.function() for _ in range(4)]
    for number in range(3):
        statements += generator.trigger(number)
    publisher.sql(f"CREATE TABLE t (id int PRIMARY KEY, v text, n int); {ROWS}; CREATE PUBLICATION p FOR TABLE t")
    for database in (subscriber, mirror):
        for statement in (TABLES, *statements):
            database.sql(statement)
    subscribe_both(publisher, subscriber, mirror)
    for _ in range(25):
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            publisher.sql(generator.change())
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name, 300)
    for query in STATE:
        assert subscriber.sql(query) == mirror.sql(query), statements


AUDITED = """
    CREATE TABLE audit (n int PRIMARY KEY, changes int); INSERT INTO audit VALUES (1, 0), (2, 0);
    CREATE FUNCTION count_changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE public.audit SET changes = changes + 1 WHERE n = NEW.id; RETURN NULL;
    END $$;
    CREATE TRIGGER c AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION count_changes(); ALTER TABLE t ENABLE ALWAYS TRIGGER c"""
INTERFERING = (
    "UPDATE audit SET changes = changes + 10 WHERE n = 1",
    "SELECT FROM audit WHERE n = 1 FOR UPDATE",
    "LOCK TABLE audit IN SHARE MODE",
    "ALTER TABLE audit ADD d int DEFAULT 4",
    "ALTER TABLE audit ALTER changes TYPE bigint",
    "ALTER TABLE audit RENAME TO log; CREATE TABLE audit (n int, changes int)",
    "DROP TABLE audit; ALTER TABLE log RENAME TO audit",
    "DELETE FROM audit WHERE n = 1",
    "TRUNCATE audit; INSERT INTO audit VALUES (1, 200)",
    "ALTER TABLE t DISABLE TRIGGER c",
    "ALTER TABLE t ENABLE ALWAYS TRIGGER c",
    "DROP TRIGGER c ON t",
)
"""Statements of another session while a change is applied. They concern the trigger, or the table to which its function writes."""
WORKER_WAITS = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
    AND pid IN (SELECT pid FROM pg_stat_subscription WHERE relid IS NULL)"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_applied_change_whose_trigger_waits_for_another_session_continues_as_in_postgresql(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0); CREATE PUBLICATION p FOR TABLE t")
    for database in (subscriber, mirror):
        database.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
        database.sql(AUDITED)
    subscribe_both(publisher, subscriber, mirror)
    for database in (subscriber, mirror):
        database.sql("ALTER SUBSCRIPTION s SET (disable_on_error = true)")
    for statement in INTERFERING:
        databases = (subscriber, mirror)
        with contextlib.ExitStack() as sessions:
            other_sessions = [sessions.enter_context(psycopg.connect(database.conninfo)) for database in databases]
            for session in other_sessions:
                session.execute(statement.encode())
            publisher.sql("UPDATE t SET v = v + 1 WHERE id = 1")
            for database in databases:
                until(lambda: database.sql(WORKER_WAITS) == "1", f"the worker does not wait for {statement!r}")  # noqa: B023
        for name in ("s", "mirror"):
            publisher.wait_confirmed(name)
        assert subscriber.sql("SELECT * FROM audit ORDER BY n") == mirror.sql("SELECT * FROM audit ORDER BY n"), statement


REFERENCES = """
    CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
    CREATE TABLE kind (id int PRIMARY KEY); ALTER TABLE parent ADD kind int REFERENCES kind"""
ENABLING = """DO $$ DECLARE found record; BEGIN
    FOR found IN SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE tgfoid::regproc::text IN ('"RI_FKey_check_ins"', '"RI_FKey_cascade_del"')
        AND (tgrelid = 'child'::regclass OR tgconstrrelid = 'child'::regclass) LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', found.tgrelid, found.tgname); END LOOP; END $$"""


def test_foreign_keys_of_applied_changes_are_checked_if_their_triggers_are_enabled_always(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher
) -> None:
    publisher.sql("CREATE TABLE child (id int PRIMARY KEY, parent int); CREATE TABLE parent (id int PRIMARY KEY, kind int)")
    publisher.sql("CREATE PUBLICATION p FOR ALL TABLES")
    for database in (subscriber, mirror):
        database.sql(REFERENCES)
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql("INSERT INTO child VALUES (1, 10); INSERT INTO parent VALUES (11, 1)")  # not checked
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    for database in (subscriber, mirror):
        database.sql(ENABLING)
    publisher.sql("""BEGIN; INSERT INTO parent VALUES (1, 1), (2, 1); INSERT INTO child VALUES (2, 1), (3, NULL), (4, 2);
        UPDATE child SET parent = 12 WHERE id = 3; DELETE FROM parent WHERE id = 1; INSERT INTO child VALUES (5, 2); COMMIT""")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    rows = "SELECT 'child', id, parent FROM child UNION ALL SELECT 'parent', id, kind FROM parent ORDER BY 1, 2"
    assert subscriber.sql(rows) == mirror.sql(rows)
    publisher.sql("BEGIN; INSERT INTO child VALUES (6, 13); INSERT INTO parent VALUES (13, 1); COMMIT")  # in this order
    error = subscriber.log.error('insert or update on table "child" violates foreign key constraint "child_parent_fkey"')
    assert error.detail == 'Key (parent)=(13) is not present in table "parent".'
    assert 'replication target relation "public.child"' in error.context
    assert subscriber.sql(rows) == mirror.sql(rows)
    for database in (subscriber, mirror):
        database.sql("ALTER TABLE child DISABLE TRIGGER ALL")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    assert subscriber.sql(rows) == mirror.sql(rows)
    assert "child|6|13" in mirror.sql(rows)


COUNTING = """
    CREATE TABLE totals (v text PRIMARY KEY, n int, ids text); INSERT INTO totals VALUES ('all', 0, '');
    CREATE TABLE seen (n serial PRIMARY KEY, id int, total int, ids text);
    CREATE TABLE child (id int REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE, n int);
    CREATE FUNCTION count_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE public.totals SET n = n + 1, ids = ids || NEW.id || ' ' WHERE v = 'all';
        INSERT INTO public.totals VALUES (NEW.v, 1, NEW.id::text) ON CONFLICT (v) DO UPDATE SET n = totals.n + 1, ids = totals.ids || NEW.id;
        RETURN NEW;
    END $$;
    CREATE FUNCTION count_old() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE public.totals SET n = n - 1 WHERE v IN ('all', OLD.v);
        DELETE FROM public.totals WHERE n = 0 AND v <> 'all';
        RETURN NULL;
    END $$;
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE total record; BEGIN
        SELECT * INTO total FROM public.totals WHERE v = 'all';
        INSERT INTO public.seen (id, total, ids) VALUES (NEW.id, total.n, total.ids);
        RETURN NULL;
    END $$;
    CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.child VALUES (NEW.id, (SELECT count(*) FROM public.child));
        UPDATE public.child SET n = n + 1 WHERE id < NEW.id;
        RETURN NULL;
    END $$;"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "created",
    [
        pytest.param("CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION count_new()", id="after"),
        pytest.param("CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION count_new()", id="before"),
        pytest.param(
            "CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION count_new();"
            " CREATE TRIGGER b AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION see()",
            id="read-after-the-row",
        ),
        pytest.param(
            "CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION count_new();"
            " CREATE TRIGGER b AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION see()",
            id="read-by-the-next-trigger",
        ),
        pytest.param(
            "CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION count_new();"
            " CREATE TRIGGER c AFTER UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION count_old()",
            id="three-events",
        ),
        pytest.param("CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION follow()", id="foreign-key"),
    ],
)
def test_triggers_that_change_other_tables_do_what_those_of_postgresql_do(
    publisher: Publisher, subscriber: Subscriber, mirror: Publisher, created: str
) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR ALL TABLES")
    for database in (subscriber, mirror):
        database.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
        database.sql(COUNTING + created)
        names = database.sql("SELECT string_agg(tgname, ',') FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal")
        for name in names.split(","):
            database.sql(f"ALTER TABLE t ENABLE ALWAYS TRIGGER {name}")
    subscribe_both(publisher, subscriber, mirror)
    publisher.sql("INSERT INTO t SELECT g, 'v' || g % 3 FROM generate_series(1, 12) g")
    publisher.sql("BEGIN; UPDATE t SET v = 'w' WHERE id % 4 = 0; DELETE FROM t WHERE id % 5 = 0; INSERT INTO t VALUES (20, 'x'); COMMIT")
    for name in ("s", "mirror"):
        publisher.wait_confirmed(name)
    for query in ("t ORDER BY id", "totals ORDER BY v", "seen ORDER BY n", "child ORDER BY id, n"):
        assert subscriber.sql(f"SELECT * FROM {query}") == mirror.sql(f"SELECT * FROM {query}")
    subscriber.sql("DROP TABLE child")  # workers fire no ON DELETE CASCADE, so it has rows without a parent
