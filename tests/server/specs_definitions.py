"""Specs of sessions that change definitions concurrently with others: ALTER, CREATE, DROP, partitions, publications."""

from __future__ import annotations

from dataclasses import replace

from tests.server.judgement import Verdict
from tests.server.permutation import READ_COMMITTED, REPEATABLE_READ, Spec
from tests.server.specs_rows import PREPARE, ROWS, T

UNLOCKED = frozenset({Verdict.EQUAL, Verdict.WAITED, Verdict.SERIAL, Verdict.UNLOCKED})
"""Readers take no locks on a node, so definitions can change while they read."""
READS = ("SELECT * FROM t ORDER BY 1",)

ALTERATIONS = {
    "ADD COLUMN": "ALTER TABLE t ADD COLUMN c text DEFAULT 'new'",
    "DROP COLUMN": "ALTER TABLE t DROP COLUMN b",
    "RENAME COLUMN": "ALTER TABLE t RENAME COLUMN b TO c",
    "ALTER TYPE": "ALTER TABLE t ALTER COLUMN b TYPE text",
    "SET NOT NULL": "ALTER TABLE t ALTER COLUMN b SET NOT NULL",
    "SET DEFAULT": "ALTER TABLE t ALTER COLUMN b SET DEFAULT 77",
    "ADD CHECK": "ALTER TABLE t ADD CONSTRAINT small CHECK (b < 50)",
    "ADD PRIMARY KEY": "ALTER TABLE k ADD PRIMARY KEY (a)",
    "ADD UNIQUE": "ALTER TABLE t ADD CONSTRAINT once UNIQUE (b)",
    "ADD FOREIGN KEY": "ALTER TABLE k ADD CONSTRAINT kt FOREIGN KEY (a) REFERENCES t",
    "RENAME TO": "ALTER TABLE t RENAME TO n",
    "CREATE INDEX": "CREATE INDEX ti ON t (b)",
    "CREATE UNIQUE INDEX": "CREATE UNIQUE INDEX ti ON t (b)",
    "DROP INDEX": "DROP INDEX kb",
    "DROP CONSTRAINT": "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "DROP TABLE": "DROP TABLE t",
    "TRUNCATE": "TRUNCATE t, k",
}  # fmt: skip
SETUP = f"{T}; CREATE TABLE k (a int, b int); CREATE UNIQUE INDEX kb ON k (b)"
BOTH = f"{ROWS}; INSERT INTO k VALUES (1, 1)"
WRITERS: dict[str, tuple[str, ...]] = {
    "INSERT": ("BEGIN", "INSERT INTO t VALUES (3, 60)", "INSERT INTO k VALUES (3, 1)", "COMMIT"),
    "UPDATE": ("BEGIN", "UPDATE t SET b = NULL WHERE a = 1", "UPDATE k SET a = NULL", "COMMIT"),
    "DELETE": ("BEGIN", "DELETE FROM k WHERE a = 1", "DELETE FROM t WHERE a = 1", "COMMIT"),
    "SELECT": ("BEGIN", "SELECT * FROM t ORDER BY a", "SELECT * FROM t ORDER BY a", "COMMIT"),
    "savepoint": ("BEGIN", "INSERT INTO k VALUES (2, 2)", "SAVEPOINT s", "INSERT INTO t VALUES (3, 20)", "ROLLBACK TO s", "COMMIT"),
}  # fmt: skip

ALTERED: dict[str, Spec] = {}
for _number, (_name, _sql) in enumerate(ALTERATIONS.items()):
    for _at, (_writer, _statements) in enumerate(WRITERS.items()):
        _end = "ROLLBACK" if (_number + _at) % 4 == 3 else "COMMIT"
        ALTERED[f"{_name} beside {_writer}"] = Spec(
            SETUP, BOTH, {"a": ("BEGIN", _sql, _end), "b": _statements}, (*READS, "SELECT * FROM k ORDER BY a, b"), 2, may=UNLOCKED
        )
ALTERED |= {
    f"{name} beside {statement_kind}, repeatable read": replace(ALTERED[f"{name} beside {statement_kind}"], level=REPEATABLE_READ, take=2)
    for name, statement_kind in (("ADD COLUMN", "UPDATE"), ("DROP COLUMN", "INSERT"), ("ALTER TYPE", "SELECT"), ("DROP TABLE", "DELETE"), ("RENAME TO", "SELECT"))
}  # fmt: skip
ALTERED |= {
    f"{first} beside {second}": Spec(
        SETUP, BOTH,
        {"a": ("BEGIN", ALTERATIONS[first], "COMMIT"), "b": ("BEGIN", ALTERATIONS[second], "COMMIT"), "c": ("INSERT INTO t (a, b) VALUES (3, 60)", *READS)},
        (*READS, "SELECT * FROM k ORDER BY a, b"), 2, may=UNLOCKED,
    )
    for first, second in (
        ("ADD COLUMN", "DROP TABLE"), ("DROP COLUMN", "RENAME COLUMN"), ("ALTER TYPE", "ADD CHECK"), ("CREATE INDEX", "DROP COLUMN"),
        ("ADD FOREIGN KEY", "DROP TABLE"), ("RENAME TO", "ADD UNIQUE"), ("SET NOT NULL", "DROP CONSTRAINT"), ("TRUNCATE", "ADD COLUMN"),
        ("DROP TABLE", "DROP TABLE"), ("ADD PRIMARY KEY", "ADD FOREIGN KEY"), ("DROP INDEX", "RENAME TO"),
    )
}  # fmt: skip

NAMES = {
    "two tables of one name": Spec(
        T, ROWS, {"a": ("BEGIN", "CREATE TABLE n (x int)", "INSERT INTO n VALUES (1)", "COMMIT"), "b": ("BEGIN", "CREATE TABLE n (y int)", "INSERT INTO n VALUES (2)", "COMMIT")},
        ("SELECT * FROM n",), 4,
    ),
    "a table whose name is given back": Spec(
        T, ROWS, {"a": ("BEGIN", "CREATE TABLE n (x int)", "ROLLBACK"), "b": ("BEGIN", "CREATE TABLE n (y int)", "INSERT INTO n VALUES (2)", "COMMIT")},
        ("SELECT * FROM n",), 4,
    ),
    "dropped and made again": Spec(
        T, ROWS, {"a": ("BEGIN", "DROP TABLE t", "CREATE TABLE t (a int, c int)", "COMMIT"), "b": ("BEGIN", "INSERT INTO t VALUES (3, 30)", "COMMIT", *READS)},
        READS, 4, may=UNLOCKED,
    ),
    "two names exchanged": Spec(
        f"{T}; CREATE TABLE k (a int PRIMARY KEY, b int)", ROWS,
        {"a": ("BEGIN", "ALTER TABLE t RENAME TO n", "ALTER TABLE k RENAME TO t", "COMMIT"), "b": ("BEGIN", "INSERT INTO t VALUES (3, 30)", "UPDATE t SET b = 0", "COMMIT")},
        READS, 4, may=UNLOCKED,
    ),
    "a view of a table that changes": Spec(
        T, ROWS, {"a": ("BEGIN", "CREATE VIEW v AS SELECT b FROM t", "COMMIT"), "b": ("BEGIN", "ALTER TABLE t DROP COLUMN b", "COMMIT"), "c": ("UPDATE t SET b = 1",)},
        READS, 4, may=UNLOCKED,
    ),
}  # fmt: skip

DOMAIN, ENUM = f"CREATE DOMAIN d AS int; {T.replace('b int', 'b d')}", f"CREATE TYPE e AS ENUM ('x', 'y'); {T.replace('b int', 'b e')}"
TYPES = {
    f"{name} beside {writer}": Spec(
        DOMAIN, ROWS, {"a": ("BEGIN", f"ALTER DOMAIN d {name}", "COMMIT"), "b": ("BEGIN", "SELECT count(*) FROM t", statement, "COMMIT")}, READS, 2, may=UNLOCKED
    )
    for name in ("ADD CONSTRAINT small CHECK (VALUE < 50)", "SET NOT NULL", "SET DEFAULT 40")
    for writer, statement in (("INSERT", "INSERT INTO t VALUES (3, 60)"), ("UPDATE", "UPDATE t SET b = NULL WHERE a = 1"), ("a default", "INSERT INTO t VALUES (3)"), ("a cast", "SELECT 60::d"))
} | {
    f"a label of an enum that is renamed beside {writer}": Spec(
        ENUM, "INSERT INTO t VALUES (1, 'x')", {"a": ("BEGIN", "ALTER TYPE e RENAME VALUE 'x' TO 'q'", "COMMIT"), "b": ("BEGIN", "SELECT count(*) FROM t", statement, "COMMIT")},
        ("SELECT a, b::text FROM t ORDER BY a",), 2, may=UNLOCKED,
    )
    for writer, statement in (("INSERT", "INSERT INTO t VALUES (3, 'x')"), ("UPDATE", "UPDATE t SET b = 'y' WHERE b = 'x'"))
} | {
    "a new label of an enum": Spec(
        ENUM, "INSERT INTO t VALUES (1, 'x')", {"a": ("ALTER TYPE e ADD VALUE 'z'",), "b": ("BEGIN", "SELECT count(*) FROM t", "INSERT INTO t VALUES (3, 'z')", "COMMIT")},
        ("SELECT a, b::text FROM t ORDER BY a",), 2, may=UNLOCKED,
    ),
}  # fmt: skip

PARTITIONED = (
    "CREATE TABLE r (a int, b int) PARTITION BY LIST (a); CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1);"
    " CREATE TABLE r2 PARTITION OF r FOR VALUES IN (2); CREATE TABLE r3 (a int, b int)"
)
IN_PARTS = "INSERT INTO r VALUES (1, 10), (2, 20); INSERT INTO r3 VALUES (3, 30)"
OF_PARTS = ("SELECT * FROM r ORDER BY 1, 2", "SELECT * FROM r1", "SELECT * FROM r3 ORDER BY 1, 2")


def partitions(take: int = 3, **sessions: tuple[str, ...]) -> Spec:
    """Return a spec of sessions that use a partitioned table."""
    return Spec(PARTITIONED, IN_PARTS, sessions, OF_PARTS, take, may=UNLOCKED)


ATTACH, DETACH = "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES IN (3)", "ALTER TABLE r DETACH PARTITION r1"
PARTITIONS = {
    "ATTACH beside INSERT of the root": partitions(a=("BEGIN", ATTACH, "COMMIT"), b=("BEGIN", "INSERT INTO r VALUES (3, 31)", "COMMIT")),
    "ATTACH beside INSERT of the part": partitions(a=("BEGIN", ATTACH, "COMMIT"), b=("BEGIN", "INSERT INTO r3 VALUES (4, 40)", "COMMIT")),
    "ATTACH beside UPDATE": partitions(a=("BEGIN", ATTACH, "COMMIT"), b=("BEGIN", "UPDATE r3 SET b = 31", "UPDATE r SET b = b + 1", "COMMIT")),
    "DETACH beside INSERT of the root": partitions(a=("BEGIN", DETACH, "COMMIT"), b=("BEGIN", "INSERT INTO r VALUES (1, 11)", "COMMIT")),
    "DETACH beside UPDATE": partitions(a=("BEGIN", DETACH, "COMMIT"), b=("BEGIN", "UPDATE r SET a = 3 - a", "COMMIT")),
    "ATTACH beside two INSERTs": partitions(4, a=("BEGIN", ATTACH, "COMMIT"), b=("BEGIN", "INSERT INTO r VALUES (1, 12)", "INSERT INTO r VALUES (3, 31)", "COMMIT")),
    "DETACH beside two INSERTs": partitions(4, a=("BEGIN", DETACH, "COMMIT"), b=("BEGIN", "INSERT INTO r VALUES (2, 21)", "INSERT INTO r VALUES (1, 11)", "COMMIT")),
    "a part cut from the default beside INSERT": Spec(
        "CREATE TABLE r (a int, b int) PARTITION BY LIST (a); CREATE TABLE rd PARTITION OF r DEFAULT", "INSERT INTO r VALUES (2, 20)",
        {"a": ("BEGIN", "CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1)", "COMMIT"), "b": ("BEGIN", "INSERT INTO r VALUES (1, 10)", "UPDATE r SET a = 1", "COMMIT")},
        ("SELECT tableoid::regclass::text, * FROM r ORDER BY 1, 2, 3",), 5, may=UNLOCKED,
    ),
    "a part cut from the default beside INSERT into it": Spec(
        "CREATE TABLE r (a int, b int) PARTITION BY LIST (a); CREATE TABLE rd PARTITION OF r DEFAULT; CREATE TABLE r1 (a int, b int)", "INSERT INTO r VALUES (2, 20)",
        {"a": ("BEGIN", "ALTER TABLE r ATTACH PARTITION r1 FOR VALUES IN (1)", "COMMIT"), "b": ("BEGIN", "INSERT INTO rd VALUES (1, 10)", "COMMIT")},
        ("SELECT tableoid::regclass::text, * FROM r ORDER BY 1, 2, 3",), 4, may=UNLOCKED,
    ),
    "DETACH beside SELECT": partitions(a=("BEGIN", DETACH, "COMMIT"), b=("BEGIN", OF_PARTS[0], OF_PARTS[0], "COMMIT")),
    "DETACH and DROP beside DELETE": partitions(a=("BEGIN", DETACH, "DROP TABLE r1", "COMMIT"), b=("BEGIN", "DELETE FROM r1", "DELETE FROM r WHERE a = 2", "COMMIT")),
    "two new parts for one value": partitions(
        a=("BEGIN", ATTACH, "COMMIT"), b=("BEGIN", "CREATE TABLE r4 PARTITION OF r FOR VALUES IN (3)", "COMMIT"), c=("INSERT INTO r VALUES (3, 33)",)
    ),
    "DROP of a part beside ATTACH": partitions(a=("BEGIN", "DROP TABLE r3", "COMMIT"), b=("BEGIN", ATTACH, "COMMIT")),
    "a row moves to a part that goes": partitions(a=("BEGIN", "UPDATE r SET a = 1 WHERE a = 2", "COMMIT"), b=("BEGIN", "DROP TABLE r1", "COMMIT")),
    "many rows for parts, one of which goes": partitions(
        2, a=("BEGIN", "INSERT INTO r SELECT 1 + i % 2, i FROM generate_series(1, 10002) i", "COMMIT"), b=("BEGIN", "DROP TABLE r2", "COMMIT")
    ),
    "TRUNCATE of the root beside a part": partitions(a=("BEGIN", "TRUNCATE r", "COMMIT"), b=("BEGIN", "INSERT INTO r1 VALUES (1, 12)", "UPDATE r2 SET b = 0", "COMMIT")),
    "ADD COLUMN of the root beside a part": partitions(a=("BEGIN", "ALTER TABLE r ADD COLUMN c int", "COMMIT"), b=("BEGIN", "INSERT INTO r1 VALUES (1, 12)", "INSERT INTO r VALUES (2, 21)", "COMMIT")),
}  # fmt: skip

FAMILY = "CREATE TABLE m (a int, b int); CREATE TABLE f (a int, b int); CREATE TABLE f1 (c int) INHERITS (f); CREATE TABLE f2 (c int, b int, a int)"
OF_FAMILY = "INSERT INTO m VALUES (1, 1); INSERT INTO f VALUES (1, 10); INSERT INTO f1 VALUES (2, 20, 0); INSERT INTO f2 VALUES (0, 30, 3)"
READ_FAMILY = (
    "SELECT tableoid::regclass::text, * FROM f ORDER BY 2, 3",
    "SELECT * FROM f1 ORDER BY 1, 2",
    "SELECT * FROM f2 ORDER BY 1, 2",
    "SELECT * FROM m ORDER BY 1, 2",
)


def family(take: int = 3, level: str = READ_COMMITTED, **sessions: tuple[str, ...]) -> Spec:
    """Return a spec of sessions that use tables with and without children."""
    return Spec(FAMILY, OF_FAMILY, sessions, READ_FAMILY, take, level, may=UNLOCKED)


HEIR = ("BEGIN", "CREATE TABLE f3 (d int) INHERITS (f)", "INSERT INTO f3 VALUES (4, 40, 0)", "COMMIT")
INHERIT, DISINHERIT = ("BEGIN", "ALTER TABLE f2 INHERIT f", "COMMIT"), ("BEGIN", "ALTER TABLE f1 NO INHERIT f", "COMMIT")
CHANGED = ("BEGIN", "UPDATE f SET b = b + 1", "UPDATE f SET b = b + 1", "COMMIT")
SEEN = ("BEGIN", READ_FAMILY[0], READ_FAMILY[0], "COMMIT")
INHERITANCE = {
    "a new child beside SELECT": family(a=HEIR, b=SEEN),
    "a new child beside SELECT, repeatable read": family(level=REPEATABLE_READ, a=HEIR, b=SEEN),
    "a new child beside UPDATE of the parent": family(a=HEIR, b=CHANGED),
    "the first child beside UPDATE of the parent": family(
        a=("BEGIN", "CREATE TABLE m1 () INHERITS (m)", "INSERT INTO m1 VALUES (2, 2)", "COMMIT"), b=("BEGIN", "UPDATE m SET b = b + 1", "DELETE FROM m WHERE a = 2", "COMMIT")
    ),
    "the first child beside INSERT into the parent": family(
        a=("BEGIN", "CREATE TABLE m1 () INHERITS (m)", "COMMIT"), b=("BEGIN", "INSERT INTO m VALUES (2, 2)", "INSERT INTO m VALUES (3, 3)", "COMMIT")
    ),
    "two new children": family(a=HEIR, b=("BEGIN", "CREATE TABLE f4 () INHERITS (f)", "COMMIT")),
    "a new child beside DROP of the parent": family(a=("BEGIN", "CREATE TABLE m1 () INHERITS (m)", "COMMIT"), b=("BEGIN", "DROP TABLE m", "COMMIT")),
    "a new child beside ADD COLUMN": family(a=HEIR, b=("BEGIN", "ALTER TABLE f ADD COLUMN e int DEFAULT 5", "COMMIT")),
    "INHERIT beside SELECT": family(a=INHERIT, b=SEEN),
    "INHERIT beside UPDATE of the parent": family(a=INHERIT, b=CHANGED),
    "NO INHERIT beside SELECT": family(a=DISINHERIT, b=SEEN),
    "NO INHERIT beside UPDATE of the parent": family(a=DISINHERIT, b=CHANGED),
    "DROP of a child beside UPDATE of the parent": family(a=("BEGIN", "DROP TABLE f1", "COMMIT"), b=CHANGED),
    "ADD COLUMN of the parent beside a child": family(a=("BEGIN", "ALTER TABLE f ADD COLUMN e int DEFAULT 5", "COMMIT"), b=("BEGIN", "INSERT INTO f1 VALUES (5, 50, 0)", "UPDATE f SET b = 0", "COMMIT")),
    "TRUNCATE of the parent beside a child": family(a=("BEGIN", "TRUNCATE f", "COMMIT"), b=("BEGIN", "INSERT INTO f1 VALUES (5, 50, 0)", "UPDATE f1 SET b = 0", "COMMIT")),
    "rows of the parent beside rows of a child": family(a=CHANGED, b=("BEGIN", "UPDATE f1 SET b = b * 2", "DELETE FROM ONLY f", "COMMIT")),
}  # fmt: skip


def published(take: int = 3, **sessions: tuple[str, ...]) -> Spec:
    """Return a spec of sessions that use two tables and a publication of one of them."""
    return Spec(
        f"{T}; CREATE TABLE k (a int PRIMARY KEY, b int); CREATE PUBLICATION p FOR TABLE t", ROWS, sessions, READS, take, may=UNLOCKED
    )


PUBLICATIONS = {
    "CREATE PUBLICATION beside DML": published(a=("BEGIN", "CREATE PUBLICATION q FOR TABLE t", "COMMIT"), b=("BEGIN", "INSERT INTO t VALUES (3, 30)", "UPDATE t SET b = 0", "COMMIT")),
    "CREATE PUBLICATION beside DROP TABLE": published(a=("BEGIN", "CREATE PUBLICATION q FOR TABLE k", "COMMIT"), b=("BEGIN", "DROP TABLE k", "COMMIT")),
    "CREATE PUBLICATION beside RENAME": published(a=("BEGIN", "CREATE PUBLICATION q FOR TABLE k", "COMMIT"), b=("BEGIN", "ALTER TABLE k RENAME TO n", "COMMIT")),
    "row filter beside DROP COLUMN": published(a=("BEGIN", "CREATE PUBLICATION q FOR TABLE t WHERE (a > 1)", "COMMIT"), b=("BEGIN", "ALTER TABLE t DROP COLUMN b", "COMMIT")),
    "column list beside DROP COLUMN": published(a=("BEGIN", "CREATE PUBLICATION q FOR TABLE t (a, b)", "COMMIT"), b=("BEGIN", "ALTER TABLE t DROP COLUMN b", "COMMIT")),
    "ADD TABLE beside DROP TABLE": published(a=("BEGIN", "ALTER PUBLICATION p ADD TABLE k", "COMMIT"), b=("BEGIN", "DROP TABLE k", "COMMIT")),
    "SET TABLE beside DML": published(a=("BEGIN", "ALTER PUBLICATION p SET TABLE k", "COMMIT"), b=("BEGIN", "INSERT INTO t VALUES (3, 30)", "INSERT INTO k VALUES (3, 30)", "COMMIT")),
    "ADD and DROP TABLE": published(a=("BEGIN", "ALTER PUBLICATION p ADD TABLE k", "COMMIT"), b=("BEGIN", "ALTER PUBLICATION p DROP TABLE t", "COMMIT")),
    "DROP PUBLICATION beside ALTER": published(a=("BEGIN", "DROP PUBLICATION p", "COMMIT"), b=("BEGIN", "ALTER PUBLICATION p ADD TABLE k", "COMMIT")),
    "DROP PUBLICATION beside DML": published(a=("BEGIN", "DROP PUBLICATION p", "ROLLBACK"), b=("BEGIN", "DELETE FROM t", "COMMIT")),
    "two publications of one name": published(a=("BEGIN", "CREATE PUBLICATION q", "COMMIT"), b=("BEGIN", "CREATE PUBLICATION q FOR TABLE t", "COMMIT")),
    "ADD TABLE beside PREPARE": published(a=("BEGIN", "ALTER PUBLICATION p ADD TABLE k", "COMMIT"), b=("BEGIN", "INSERT INTO k VALUES (3, 30)", PREPARE, "COMMIT PREPARED 'one'")),
    "FOR ALL TABLES beside CREATE TABLE": published(a=("BEGIN", "CREATE PUBLICATION q FOR ALL TABLES", "COMMIT"), b=("BEGIN", "CREATE TABLE n (x int)", "COMMIT")),
    "publisher without identity": Spec(
        "CREATE TABLE t (a int, b int)", ROWS,
        {"a": ("BEGIN", "CREATE PUBLICATION q FOR TABLE t", "COMMIT"), "b": ("BEGIN", "INSERT INTO t VALUES (3, 30)", "UPDATE t SET b = 0", "COMMIT")}, READS, 4, may=UNLOCKED,
    ),
}  # fmt: skip

COMMIT_PREPARED, ROLLBACK_PREPARED = "COMMIT PREPARED 'one'", "ROLLBACK PREPARED 'one'"
INSERTED = ("BEGIN", "INSERT INTO t VALUES (3, 60)", PREPARE, COMMIT_PREPARED)
PREPARED = {
    f"prepared rows beside {name}": Spec(SETUP, BOTH, {"a": INSERTED, "b": ("BEGIN", ALTERATIONS[name], "COMMIT")}, READS, 3, may=UNLOCKED)
    for name in ("ADD COLUMN", "ALTER TYPE", "ADD CHECK", "DROP TABLE", "CREATE UNIQUE INDEX", "RENAME TO")
}  # fmt: skip
PREPARED |= {
    f"prepared {name} beside rows": Spec(
        SETUP, BOTH, {"a": ("BEGIN", ALTERATIONS[name], PREPARE, end), "b": ("BEGIN", "UPDATE t SET b = b + 1 WHERE a = 1", *READS, "COMMIT")}, READS, 3, may=UNLOCKED
    )
    for name, end in (
        ("ADD COLUMN", COMMIT_PREPARED), ("DROP COLUMN", ROLLBACK_PREPARED), ("DROP TABLE", COMMIT_PREPARED), ("RENAME COLUMN", COMMIT_PREPARED),
        ("ADD UNIQUE", COMMIT_PREPARED),
    )
}  # fmt: skip
PREPARED |= {
    "prepared CREATE TABLE": Spec(
        T, ROWS, {"a": ("BEGIN", "CREATE TABLE n (x int)", "INSERT INTO n VALUES (1)", PREPARE, COMMIT_PREPARED), "b": ("BEGIN", "CREATE TABLE n (y int)", "COMMIT")},
        ("SELECT * FROM n",), 3,
    ),
    "prepared, ended by another": Spec(
        SETUP, BOTH, {"a": ("BEGIN", "UPDATE t SET b = 0 WHERE a = 1", PREPARE), "b": (COMMIT_PREPARED, "SELECT * FROM t ORDER BY a"), "c": ("BEGIN", ALTERATIONS["ADD COLUMN"], "COMMIT")},
        READS, 4, may=UNLOCKED,
    ),
}  # fmt: skip

SPECS = {**ALTERED, **NAMES, **TYPES, **PARTITIONS, **INHERITANCE, **PUBLICATIONS, **PREPARED}
