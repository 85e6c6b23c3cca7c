"""A node copies and follows a real database (tests/system/real_database.sql) with create_tables through changes, alterations and kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import NodeServer, check, until
from tests.subscriber.conftest import READY, Publisher, Subscriber

DATABASE = (Path(__file__).parent.parent / "system" / "real_database.sql").read_text()
OPTIONS = "create_tables = true, schema_evolution = follow"
SMALL = """
    INSERT INTO public.customers (email, nick, home, attributes, feels) VALUES ('x@y', 'X', ROW('a', 'b', 'c'), 'a=>1', NULL);
    UPDATE public.customers SET home = NULL, tags = '{}' WHERE id % 3 = 0;
    UPDATE sales.orders SET status = 'returned', history = history || 'returned'::public.order_status WHERE id % 20 = 0;
    DELETE FROM sales.orders WHERE id NOT IN (SELECT order_id FROM sales.order_lines);
    UPDATE public.products SET price = price + 1, category = 'top' WHERE id % 5 = 0;
    INSERT INTO sales.visits VALUES (1001, 'us', '2026-03-01', 'new', 'Later');"""
CHANGED = """
    ALTER TABLE public.customers RENAME COLUMN nick TO "Nick name";
    ALTER TABLE public.customers ADD COLUMN points integer NOT NULL DEFAULT 100, ADD COLUMN was public.citext DEFAULT 'new';
    UPDATE public.customers SET points = points + id WHERE id < 4;
    ALTER TABLE public.products DROP COLUMN raw, ALTER COLUMN sku TYPE varchar(20), ALTER COLUMN search TYPE text;
    UPDATE public.products SET title = title || '!' WHERE id < 3;
    ALTER TYPE public.order_status ADD VALUE 'lost' AFTER 'paid';
    ALTER TABLE sales.orders ALTER COLUMN note SET DEFAULT 'none', ALTER COLUMN status DROP NOT NULL;
    INSERT INTO sales.orders (customer, status) VALUES (1, 'lost'), (2, NULL);
    ALTER TABLE sales.visits ADD COLUMN source text DEFAULT 'web'; ALTER TABLE sales.visits RENAME agent TO "user agent";
    INSERT INTO sales.visits VALUES (1002, 'us', '2026-03-02', 'paid', 'a', 'app'), (1003, 'eu', '2026-03-02', 'lost', 'b', 'app');"""
LATER = """
    CREATE TABLE sales.later (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind sales."Payment Kind", since public.period);
    INSERT INTO sales.later (kind, since) VALUES ('cash', '[2026-01-01,2026-02-01)');"""


def columns(subscriber: Subscriber, table: str) -> str:
    """Return the columns of the local table, as a select list of texts."""
    listed = f"SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"
    return ", ".join(f"{name}::text" for name in subscriber.rows(listed))


def different(publisher: Publisher, subscriber: Subscriber, publication: str) -> list[str]:
    """Return the published tables whose rows differ from the local ones."""
    published_tables = (
        f"SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_publication_tables WHERE pubname = '{publication}'"
    )
    differing = []
    for table in publisher.rows(published_tables):
        listed = columns(subscriber, table.replace("'", "''"))
        if sorted(subscriber.rows(f"SELECT {listed} FROM {table}")) != sorted(publisher.rows(f"SELECT {listed} FROM ONLY {table}")):
            differing.append(table)
    return differing


def be_equal(publisher: Publisher, subscriber: Subscriber, publication: str) -> None:
    """Wait until the node has all committed rows of the publisher."""
    publisher.wait_confirmed(seconds=120)
    subscriber.wait(READY, "t", seconds=120)
    publisher.wait_confirmed(seconds=120)
    assert different(publisher, subscriber, publication) == []


@pytest.mark.slow
def test_part_of_a_real_database_is_copied_and_followed(publisher, subscriber) -> None:
    publisher.server.psql(publisher.name, DATABASE)
    subscriber.sql(publisher.subscription(OPTIONS, publication="a_part"))
    assert 'NOTICE: created table "public.customers" with the parts that a node supports' in subscriber.session.notices
    assert 'NOTICE: created partitioned table "sales.visits"' in subscriber.session.notices
    be_equal(publisher, subscriber, "a_part")
    publisher.server.psql(publisher.name, SMALL + CHANGED)
    be_equal(publisher, subscriber, "a_part")
    publisher.server.psql(publisher.name, f"{LATER} ALTER PUBLICATION a_part ADD TABLE sales.later")
    subscriber.wait("SELECT count(*) FROM pg_subscription_rel WHERE srrelid = to_regclass('sales.later')", "1")
    be_equal(publisher, subscriber, "a_part")
    assert subscriber.rows("SELECT schema, name, result, key, columns FROM headgate.verify('s') WHERE result <> 'equal'") == []


def killed(subscriber: Subscriber) -> None:
    """Kill the node and start it again."""
    subscriber.session.close()
    subscriber.server.kill()
    subscriber.server.start()


def alive(subscriber: Subscriber) -> bool:
    """Return whether the node's process is alive."""
    stat = Path(f"/proc/{subscriber.server.pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def set_failpoints(subscriber: Subscriber, conf: dict[str, str]) -> None:
    """Add failpoints to the node's settings, for a reload or a start."""
    assert isinstance(subscriber.server, NodeServer)
    subscriber.server.conf = subscriber.server.conf | conf
    subscriber.server._write_files()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("arrays", ["text", "array"])
def test_real_database_equals_its_publisher_after_copy_workload_and_kills(publisher, spare: Callable[..., Subscriber], arrays: str) -> None:
    subscriber = spare(array_storage=arrays)
    publisher.server.psql(publisher.name, DATABASE)
    subscriber.sql(publisher.subscription(OPTIONS, publication="everything"))
    be_equal(publisher, subscriber, "everything")
    for script in (SMALL, CHANGED, LATER):
        publisher.server.psql(publisher.name, script)
        killed(subscriber)
        be_equal(publisher, subscriber, "everything")
    for place, column in (("before", "first"), ("behind", "second")):
        set_failpoints(subscriber, {"headgate.failpoints": f"'entry {place}=kill'"})
        subscriber.server.headgate("reload")
        publisher.server.psql(
            publisher.name, f"ALTER TABLE audit.log ADD COLUMN {column} int DEFAULT 1; INSERT INTO audit.log DEFAULT VALUES"
        )
        until(lambda: not alive(subscriber), "the node was not killed")
        subscriber.session.close()
        set_failpoints(subscriber, {"headgate.failpoints": "''"})
        subscriber.server.start()
        be_equal(publisher, subscriber, "everything")
    assert subscriber.rows("SELECT schema, name, result, key, columns FROM headgate.verify('s') WHERE result <> 'equal'") == []
    check(subscriber.server, subscriber.name)
