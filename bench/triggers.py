"""Measure the rows that a subscriber applies per second to a table with a trigger.

Called by `__main__` with a publisher and a subscriber. Each case is a trigger on the subscriber's table. The subscription is disabled while
the publisher writes, so that only catching up is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.replication import catch_up, pair, subscribe, wait_synced
from headgate.cli.demo.servers import DemoServer


@dataclass(frozen=True)
class Case:
    """A trigger: when it fires, the body of its function, and the target for a node in applied rows per second."""

    name: str
    timing: str
    body: str
    target: int


CASES = (
    Case(
        "a trigger that assigns to NEW", "BEFORE INSERT OR UPDATE",
        "NEW.name := lower(trim(NEW.name)); NEW.version := coalesce(NEW.version, 0) + 1; NEW.updated_at := now(); RETURN NEW;", 5_000,
    ),
    Case(
        "a trigger that writes to an audit table", "AFTER INSERT OR UPDATE",
        "INSERT INTO public.audit (op, id, was, is_now, at)"
        " VALUES (TG_OP, NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.name END, NEW.name, now()); RETURN NULL;", 5_000,
    ),
    Case(
        "a trigger that queries a table", "BEFORE INSERT OR UPDATE",
        "SELECT m.name INTO NEW.name FROM public.mapping m WHERE m.id = NEW.id % 10; RETURN NEW;", 300,
    ),
    Case(
        "a trigger that updates another table", "AFTER INSERT OR UPDATE",
        "UPDATE public.mapping SET name = 'last ' || NEW.id WHERE id = NEW.id % 10; RETURN NULL;", 300,
    ),
)  # fmt: skip


def seconds(publisher: DemoServer, subscriber: DemoServer, case: Case, rows: int) -> tuple[float, float]:
    """Return the seconds of applying `rows` INSERTs, and `rows` UPDATEs. 50 INSERTs are applied first to warm up the function."""
    with pair(publisher, subscriber) as (pub, sub, name):
        pub.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
        pub.execute("CREATE PUBLICATION p FOR TABLE t")
        for statement in (
            "CREATE TABLE t (id int PRIMARY KEY, name text, version int, updated_at timestamptz)",
            "CREATE TABLE audit (n bigserial, op text, id int, was text, is_now text, at timestamptz)",
            "CREATE TABLE mapping (id int PRIMARY KEY, name text)",
            "INSERT INTO mapping SELECT g, 'name ' || g FROM generate_series(0, 9) g",
            f"CREATE FUNCTION fired() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {case.body} END $$",
            f"CREATE TRIGGER fired {case.timing} ON t FOR EACH ROW EXECUTE FUNCTION fired()",
            "ALTER TABLE t ENABLE ALWAYS TRIGGER fired",
        ):
            sub.execute(statement)
        subscribe(pub, sub, name)
        wait_synced(sub)
        catch_up(pub, sub, name, lambda: pub.execute("INSERT INTO t SELECT -g, ' Name ' || g FROM generate_series(1, 50) g"))
        inserted = catch_up(pub, sub, name, lambda: pub.execute(f"INSERT INTO t SELECT g, ' Name ' || g FROM generate_series(1, {rows}) g"))
        changed = catch_up(pub, sub, name, lambda: pub.execute("UPDATE t SET name = name || 'x' WHERE id > 0"))
        return inserted.seconds, changed.seconds
