"""Tables that inherit: a publication of a parent sends its children under their own names, and apply changes the named table alone."""

from __future__ import annotations

import pytest
from tests.conftest import Server
from tests.subscriber.conftest import READY, Subscriber

TABLES = "CREATE TABLE parent (a int PRIMARY KEY, b text); CREATE TABLE child (c int, PRIMARY KEY (a)) INHERITS (parent)"


@pytest.mark.slow
def test_children_are_published_and_changes_of_a_parent_are_applied_to_it_alone(publisher, subscriber, node: Server) -> None:
    publisher.sql(f"{TABLES}; INSERT INTO parent VALUES (0, 'p'), (1, 'p'); INSERT INTO child VALUES (1, 'c', 10), (2, 'c', 20)")
    publisher.sql("CREATE PUBLICATION p FOR TABLE parent WHERE (a > 0)")
    subscriber.sql(f"{TABLES}; CREATE PUBLICATION q FOR TABLE parent; {publisher.subscription()}")
    further = Subscriber(node)
    try:
        subscriber.wait(READY, "t")
        further.sql(TABLES)
        further.sql(f"CREATE SUBSCRIPTION s CONNECTION '{subscriber.conninfo}' PUBLICATION q WITH (slot_name = '{further.name}')")
        further.wait(READY, "t")
        rows = "SELECT tableoid::regclass, a, b FROM parent ORDER BY a, b DESC"
        assert further.sql(rows) == subscriber.sql(rows) == "parent|1|p\nchild|1|c\nchild|2|c"
        publisher.sql("UPDATE ONLY parent SET b = 'alone'; UPDATE child SET c = 11 WHERE a = 1; INSERT INTO child VALUES (-1, 'c', 0)")
        publisher.wait_confirmed()
        further.wait(rows, "child|1|c\nparent|1|alone\nchild|2|c")
        further.wait("SELECT a, c FROM child ORDER BY a", "1|11\n2|20")
        publisher.sql("TRUNCATE ONLY parent")
        publisher.wait_confirmed()
        further.wait(rows, "child|1|c\nchild|2|c")
        further.sql("ALTER TABLE parent ADD COLUMN d int")
        subscriber.sql("ALTER TABLE parent ADD COLUMN d int DEFAULT 5; UPDATE parent SET b = 'both', d = 6")
        further.wait("SELECT a, b, c, d FROM child ORDER BY a", "1|both|11|6\n2|both|20|6")
        subscriber.sql("TRUNCATE parent")
        further.wait("SELECT count(*) FROM parent", "0")
    finally:
        further.close()
