"""The differences of `foreign_key.sql`, `plpgsql.sql` and `triggers.sql` on a node, by kind, with their reasons.

A kind is a regular expression. It is searched in the text of a statement and in the lines that the node and PostgreSQL print for it. Statements that
name an object which an earlier difference left missing or left behind belong to the kind of that difference.
"""

from __future__ import annotations

LEAST_SHARE = {"foreign_key": 0.90, "plpgsql": 0.90, "triggers": 0.88}
"""The least share of statements with equal output."""

SETUP = {
    "plpgsql": (
        "CREATE TABLE int4_tbl (f1 int)",
        "INSERT INTO int4_tbl VALUES (0), (123456), (-123456), (2147483647), (-2147483647)",
        "CREATE TABLE int8_tbl (q1 bigint, q2 bigint)",
        "INSERT INTO int8_tbl VALUES (123, 456), (123, 4567890123456789), (4567890123456789, 123), (4567890123456789, 4567890123456789),"
        " (4567890123456789, -4567890123456789)",
        "CREATE TABLE tenk1 (unique1 int, four int, thousand int, tenthous int)",
        "INSERT INTO tenk1 SELECT i, i % 4, i % 1000, i FROM generate_series(0, 9999) i",
    ),
}
"""The tables of test_setup.sql that the file reads."""

KINDS = {
    "foreign_key": {
        r"(?i)create rule|explain": "rules, and EXPLAIN of DELETE, are not supported",
        r"dropfk_a_fkey": "clones of a constraint are created in the order of the partitions' oids, not of their bounds",
        r"pg_describe_object": "pg_describe_object is not supported",
        r"altered to be NOT VALID": "the parser has the message of PostgreSQL 18",
    },
    "plpgsql": {
        r"partitioned_table": "table.column%TYPE is not supported in CREATE FUNCTION",
        r"point\(|textrange|float8range|int4range|anyrange|anycompatiblerange|duplic|stavalues1": (
            "geometric types, user-defined range types and polymorphic range types are not supported"
        ),
        r"(?im)^LINE \d+:(?s:.*)create (or replace )?function|create (or replace )?function(?s:.*)^LINE \d+:|DO LANGUAGE|forc_bad": (
            "syntax errors in the body of a function have no position"
        ),
        r"shadow": "plpgsql.extra_warnings = shadowed_variables is not supported",
        r"compos\(": "the types of the fields of a returned record are not compared, but cast",
        r"no_such_table|rttest": "SELECT INTO in RETURN QUERY creates the table, as CREATE TABLE AS does",
        r"leaker_1": "the number of connections of an extension is not shown",
        r"nonexistent": "a cast to regclass in an SQL function that returns void is not evaluated",
        r"create cast|sql_to_date|cast_invoker": "CREATE CAST is not supported",
        r"strtest|standard_conforming_strings": "standard_conforming_strings is always on",
        r"explain|consumes_rw_array|INFO: ": "EXPLAIN shows Spark's plan, and functions in FROM cannot refer to other items",
    },
    "triggers": {
        r"(?i)language c\b|autoinc|check_(primary|foreign)_key|trigger_return_old|ttdummy|ttserial|\btttest\b|\bf?pkeys\b|\bfkeys2?\b|\btrigtest\b": (
            "functions in C are not supported"
        ),
        r"(?i)tableoid|table_with_oids": "system columns in WHEN are not supported",
        r"(?i)create rule|european_city|city_view": "rules are not supported",
        r"\bself_ref": "the rows of a foreign key that refers to its own table are changed in one step",
        r"already modified by an operation|from parent where aid|\bparent set val1": (
            "a row that a BEFORE trigger of the statement has changed is changed again instead of being rejected"
        ),
        r"child_row_trig": "ROW triggers with transition tables are accepted on a table that inherits",
        r"(?i)^with |\bwcte\b|parted2_stmt_trig|\btable1\b": "the statements of WITH run before the statement",
        r"\bparted(_[12])?\b|parted_trigfunc|parted_trigger": "partition keys that are expressions are not supported",
        r"trg_clone": "a deferrable key has no trigger in pg_trigger",
        r"iocdu_tt_parted": "INSERT … ON CONFLICT into a partitioned table with transition tables is not supported",
    },
}
"""The reasons of the differences by their kinds."""
