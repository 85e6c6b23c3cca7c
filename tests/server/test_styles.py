"""A node reads, prints and stores values under DateStyle and IntervalStyle as PostgreSQL does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
import pytest
from tests.conftest import PG_BIN, Server

SCRIPT = Path(__file__).parent / "statements" / "styles.sql"
CHOSEN = [
    ("SQL, DMY", "sql_standard", "Europe/Berlin"),
    ("Postgres, MDY", "postgres_verbose", "UTC"),
    ("German, DMY", "iso_8601", "America/New_York"),
]


def printed(server: Server, date_style: str, interval_style: str, zone: str) -> list[str]:
    """Return the output of psql for the script, with these settings of its connection."""
    options = f"-c datestyle={date_style.replace(' ', '')} -c intervalstyle={interval_style}"
    return server.script(server.new_database(), SCRIPT, "-A", PGOPTIONS=options, PGTZ=zone).splitlines()


@pytest.mark.slow  # nine seconds each
@pytest.mark.parametrize(("date_style", "interval_style", "zone"), CHOSEN)
def test_statements_print_the_same_as_in_postgresql(
    postgres: Server, node: Server, date_style: str, interval_style: str, zone: str
) -> None:
    assert printed(node, date_style, interval_style, zone) == printed(postgres, date_style, interval_style, zone)


def test_styles_of_the_start_up_packet_and_of_the_server_apply_and_reset_restores_them(node: Server) -> None:
    query = "SELECT date '03/02/2011', (date '2011-02-03')::text, interval '1 day'"
    command = [PG_BIN / "psql", "-X", "-q", "-At", "-d", node.conninfo(), "-c", f"SET datestyle = german; RESET datestyle; {query}"]
    completed = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PGDATESTYLE": "SQL, DMY"}, check=True
    )
    assert completed.stdout == "03/02/2011|03/02/2011|1 day\n"
    node.psql("postgres", "ALTER SYSTEM SET datestyle = 'German'; ALTER SYSTEM SET intervalstyle = 'iso_8601'; SELECT pg_reload_conf()")
    try:
        with psycopg.connect(node.conninfo(options="-cdatestyle=mdy")) as connection:
            assert connection.info.parameter_status("DateStyle") == "German, MDY"
            row = connection.execute(
                "SELECT (date '02/03/2011')::text, (interval '1 day')::text, to_json(date '2011-02-03')::text"
            ).fetchone()
            assert row == ("03.02.2011", "P1D", '"2011-02-03"')
    finally:
        node.psql("postgres", "ALTER SYSTEM RESET datestyle; ALTER SYSTEM RESET intervalstyle; SELECT pg_reload_conf()")


def test_binary_result_is_the_same_in_every_style(node: Server) -> None:
    query = "SELECT timestamptz '2024-02-03 10:11:12+00', date '2024-02-03', interval '-1 day +2 hours', array[timestamptz '2024-02-03+00']"
    results = []
    for style in ("ISO, MDY", "SQL, DMY", "German"):
        with psycopg.connect(node.conninfo(node.new_database())) as connection:
            connection.execute("SELECT set_config('TimeZone', 'Asia/Kolkata', false), set_config('IntervalStyle', 'sql_standard', false)")
            connection.execute(f"SET datestyle = '{style}'")
            cursor = connection.cursor(binary=True)
            cursor.execute(query)
            results.append([cursor.pgresult.get_value(0, index) for index in range(4)])  # type: ignore[union-attr]
    assert results[0] == results[1] == results[2]


def test_stream_is_printed_in_the_style_of_its_own_connection(server: Server) -> None:
    database = server.new_database()
    slot = f"{database}_styles"
    server.psql(
        database, "CREATE TABLE t (d date PRIMARY KEY, i interval, a date[]); CREATE PUBLICATION p FOR TABLE t WHERE (d > '01/12/2010')"
    )
    server.psql(database, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    server.psql(
        database, "SET datestyle = 'SQL, DMY'; INSERT INTO t VALUES ('03/02/2011', '1 day', '{03/02/2011}'), ('31/12/2009', '1 day', NULL)"
    )
    end = server.psql(database, "SELECT pg_current_wal_lsn()")
    for options, expected in (
        ("-c datestyle=German -c intervalstyle=iso_8601", (b"03.02.2011", b"P1D", b"{03.02.2011}")),
        ("-c datestyle=ISO -c intervalstyle=postgres", (b"2011-02-03", b"1 day", b"{2011-02-03}")),
    ):
        command = [
            PG_BIN / "pg_recvlogical",
            "-d",
            server.conninfo(database),
            "-S",
            slot,
            "--start",
            "-f",
            "-",
            "--no-loop",
            "-n",
            "-E",
            end,
        ]
        command += ["-o", "proto_version=1", "-o", "publication_names=p", "-s", "0", "-F", "0"]
        completed = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, env={**os.environ, "PGOPTIONS": options}, check=False)
        assert all(word in completed.stdout for word in expected), (options, completed.stdout)
        assert b"2009" not in completed.stdout
        server.drop_slot(database, slot)
        server.psql(database, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        server.psql(
            database,
            "UPDATE t SET i = i WHERE d > '2010-01-01'; DELETE FROM t; INSERT INTO t VALUES ('2011-02-03', '1 day', '{2011-02-03}')",
        )
        end = server.psql(database, "SELECT pg_current_wal_lsn()")
    server.drop_slot(database, slot)
