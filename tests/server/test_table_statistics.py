"""pg_stat_all_tables counts the rows that transactions have inserted, updated and deleted, and the rows of the table."""

from __future__ import annotations

from tests.conftest import Server, until

CHANGES = """
CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE untouched (a int);
INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g; INSERT INTO t VALUES (2000, 'y'), (2001, 'z');
UPDATE t SET b = 'q' WHERE a <= 100; DELETE FROM t WHERE a > 990 AND a <= 1000; DELETE FROM t WHERE a = 1;
INSERT INTO t VALUES (2000, 'y'), (3001, 'z') ON CONFLICT (a) DO UPDATE SET b = 'up';
BEGIN; INSERT INTO t VALUES (5000, 'a'); UPDATE t SET b = 'b' WHERE a = 5000; DELETE FROM t WHERE a = 2; COMMIT;
BEGIN; DELETE FROM t WHERE a < 50; INSERT INTO t SELECT g, 'n' FROM generate_series(7000, 7009) g; COMMIT;
MERGE INTO t USING (VALUES (60), (9999)) v (k) ON a = k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (k, 'm')
"""
COUNTS = "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del, n_live_tup FROM pg_stat_user_tables ORDER BY relname"


def test_rows_are_counted_by_operation(server: Server) -> None:
    database = server.new_database()
    server.psql(database, CHANGES)
    expected = "t|1015|102|60|955\nuntouched|0|0|0|0"
    until(
        lambda: server.psql(database, COUNTS) == expected, "the counts are not as expected"
    )  # PostgreSQL's sessions report their counts when they end
    server.psql(database, "BEGIN; DELETE FROM t; ROLLBACK; DROP TABLE untouched; TRUNCATE t")
    until(
        lambda: server.psql(database, COUNTS).endswith("|0") and "untouched" not in server.psql(database, COUNTS),
        "the table is not shown as empty",
    )
    server.psql(database, "SELECT pg_stat_reset_single_table_counters('t'::regclass)")
    until(lambda: server.psql(database, COUNTS) == "t|0|0|0|0", "the counters of the table are not reset")
    server.psql(database, "INSERT INTO t VALUES (1, 'x')")
    until(lambda: server.psql(database, COUNTS).startswith("t|1|"), "the insert after the reset is not counted")
    server.psql(database, "SELECT pg_stat_reset()")
    until(lambda: server.psql(database, COUNTS).startswith("t|0|"), "the counters of the database are not reset")
