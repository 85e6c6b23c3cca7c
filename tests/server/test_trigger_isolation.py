"""A trigger that writes a second table meets other sessions' changes and locks of that table as in PostgreSQL."""

from __future__ import annotations

import pytest
from tests.server.play import Play, Step

TABLES = """
    CREATE TABLE t (a int PRIMARY KEY, b int);
    INSERT INTO t VALUES (1, 1), (2, 2);
    CREATE TABLE audit (n int PRIMARY KEY, changes int);
    INSERT INTO audit SELECT a, 0 FROM t;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'INSERT' THEN INSERT INTO audit VALUES (NEW.a, 0); RETURN NEW; END IF;
        IF TG_OP = 'DELETE' THEN DELETE FROM audit WHERE n = OLD.a; RETURN OLD; END IF;
        UPDATE audit SET changes = changes + 1 WHERE n = NEW.a;
        RETURN NEW;
    END $$;
    CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()"""
CONTENTS: list[Step] = [("a", "SELECT * FROM t ORDER BY a"), ("a", "SELECT * FROM audit ORDER BY n")]
BEGIN: Step = ("a", "BEGIN")
OTHER: Step = ("b", "BEGIN")
REPEATABLE: list[Step] = [("a", "BEGIN ISOLATION LEVEL REPEATABLE READ"), ("a", "SELECT count(*) FROM audit")]
CHANGES: Step = ("a", "UPDATE t SET b = b + 1 WHERE a = 1")
WAITS: Step = ("a+", CHANGES[1])


def change_after(*statements: str, ends: str = "COMMIT") -> list[Step]:
    """Return steps in which session a updates `t` after session b has run these statements, and waits for b's transaction."""
    return [OTHER, *[("b", sql) for sql in statements], WAITS, ("b", ends), ("a", "")]


def statement_after_change(statement: str, ends: str = "COMMIT", *later: str) -> list[Step]:
    """Return steps in which session b runs a statement after session a's transaction has updated `t`, and waits for a's transaction."""
    return [BEGIN, CHANGES, ("b+", statement), ("a", ends), ("b", ""), *[("a", sql) for sql in later]]


PLAYS: dict[str, list[Step]] = {
    "an update of the audit row is waited for, and is seen": change_after("UPDATE audit SET changes = 10 WHERE n = 1"),
    "an update of the audit row that is rolled back is not seen": change_after("UPDATE audit SET changes = 10 WHERE n = 1", ends="ROLLBACK"),
    "an audit row that is deleted is not updated": change_after("DELETE FROM audit WHERE n = 1"),
    "an audit row that is locked is waited for": change_after("SELECT * FROM audit WHERE n = 1 FOR UPDATE"),
    "a lock of the audit table is waited for": change_after("LOCK TABLE audit IN SHARE MODE"),
    "an audit table that is dropped fails the statement": [*change_after("DROP TABLE audit"), ("b", "CREATE TABLE audit (n int)")],
    "DROP of the audit table that is rolled back does not fail the statement": change_after("DROP TABLE audit", ends="ROLLBACK"),
    "an audit table with a new column is written": change_after("ALTER TABLE audit ADD d int DEFAULT 4"),
    "an audit column that is renamed is not found": change_after("ALTER TABLE audit RENAME changes TO c"),
    "an audit column with a new type stores the value": change_after("ALTER TABLE audit ALTER changes TYPE text"),
    "an audit table that is renamed is not found": [*change_after("ALTER TABLE audit RENAME TO log"), ("b", "ALTER TABLE log RENAME TO audit")],
    "a new CHECK of the audit table is enforced": change_after("ALTER TABLE audit ADD CHECK (changes < 1)"),
    "an audit table that is truncated is waited for": change_after("TRUNCATE audit"),
    "a trigger that is disabled does not fire": change_after("ALTER TABLE t DISABLE TRIGGER note"),
    "a trigger that is dropped does not fire": change_after("DROP TRIGGER note ON t"),
    "a new trigger fires": change_after("CREATE TRIGGER z AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()"),
    "a function that is replaced is not waited for": [
        OTHER,
        ("b", "CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"),
        CHANGES,
        ("b", "COMMIT"),
        CHANGES,
    ],
    "a function that is replaced during a transaction is used from the next statement on": [
        BEGIN,
        CHANGES,
        ("b", "CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"),
        CHANGES,
        ("a", "COMMIT"),
    ],
    "an update of an audit row waits for the trigger's transaction": statement_after_change("UPDATE audit SET changes = changes + 10 WHERE n = 1"),
    "an update of an audit row waits for the trigger's transaction that rolls back": statement_after_change("UPDATE audit SET changes = changes + 10 WHERE n = 1", "ROLLBACK"),
    "a delete of an audit row waits": statement_after_change("DELETE FROM audit WHERE n = 1 RETURNING changes"),
    "a lock of an audit row waits": statement_after_change("SELECT * FROM audit WHERE n = 1 FOR UPDATE"),
    "DROP of the audit table waits": [*statement_after_change("DROP TABLE audit"), CHANGES, ("a", "CREATE TABLE audit (n int)")],
    "TRUNCATE of the audit table waits": statement_after_change("TRUNCATE audit"),
    "ALTER of the audit table waits": statement_after_change("ALTER TABLE audit ADD d int DEFAULT 4", "COMMIT", CHANGES[1]),
    "a rename of the audit table waits": [*statement_after_change("ALTER TABLE audit RENAME TO log", "COMMIT", CHANGES[1]), ("a", "ALTER TABLE log RENAME TO audit")],
    "DISABLE TRIGGER waits": statement_after_change("ALTER TABLE t DISABLE TRIGGER note", "COMMIT", CHANGES[1]),
    "DROP TRIGGER waits": statement_after_change("DROP TRIGGER note ON t", "COMMIT", CHANGES[1]),
    "a lock of the audit table waits": statement_after_change("LOCK TABLE audit IN EXCLUSIVE MODE"),
    "a key that the trigger has inserted is rejected": [BEGIN, ("a", "INSERT INTO t VALUES (3, 3)"), ("b+", "INSERT INTO audit VALUES (3, 7)"), ("a", "COMMIT"), ("b", "")],
    "a key that the trigger has added is free after a rollback": [
        BEGIN, ("a", "INSERT INTO t VALUES (3, 3)"), ("b+", "INSERT INTO audit VALUES (3, 7)"), ("a", "ROLLBACK"), ("b", ""),
    ],
    "the trigger waits for a key that another session inserts, and is rejected": [
        OTHER, ("b", "INSERT INTO audit VALUES (3, 7)"), ("a+", "INSERT INTO t VALUES (3, 3)"), ("b", "COMMIT"), ("a", ""),
    ],
    "an audit row that changed after the snapshot cannot be updated": [*REPEATABLE, ("b", "UPDATE audit SET changes = 5 WHERE n = 1"), CHANGES, ("a", "ROLLBACK")],
    "an audit row can be updated if only another row changed after the snapshot": [*REPEATABLE, ("b", "UPDATE audit SET changes = 5 WHERE n = 2"), CHANGES, ("a", "COMMIT")],
    "ROLLBACK TO restores both tables": [BEGIN, ("a", "SAVEPOINT s"), CHANGES, ("a", "ROLLBACK TO s"), *CONTENTS, CHANGES, ("a", "COMMIT")],
    "two sessions whose triggers update the same audit row wait for each other in turn": [
        ("a", "ALTER TABLE audit DROP CONSTRAINT audit_pkey; UPDATE audit SET n = 0"),
        ("a", """CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN UPDATE audit SET changes = changes + 1; RETURN NULL; END $$"""),
        BEGIN, CHANGES, ("b+", "UPDATE t SET b = 9 WHERE a = 2"), ("a", "COMMIT"), ("b", ""),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if number == 0 else [pytest.mark.slow]) for number, name in enumerate(PLAYS)])
def test_trigger_that_writes_a_second_table_meets_other_sessions_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    steps = [("a", TABLES), *PLAYS[name], *CONTENTS]
    on_node, on_postgres = ([*play.run(steps), play.waited] for play in plays)
    assert on_node == on_postgres
