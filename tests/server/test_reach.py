"""A session can call PostgreSQL's functions, and none of DuckDB's or Spark's, which could access files, settings and Java classes."""

from __future__ import annotations

from typing import Any

import duckdb
import psycopg
import pyspark.sql.functions
import pytest
from tests.conftest import Server

FORMS = ("SELECT {}('x')", "SELECT * FROM {}('x')", "SELECT {}(relname) FROM pg_class", "SELECT {}(a) FROM t")
DANGEROUS = [
    "read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "parquet_metadata", "read_json", "read_json_auto", "read_text", "read_blob", "read_ndjson",
    "glob", "sniff_csv", "query", "query_table", "duckdb_settings", "duckdb_secrets", "duckdb_functions", "duckdb_tables", "duckdb_databases", "pragma_version",
    "pragma_database_size", "pragma_storage_info", "pragma_user_agent", "getenv", "getvariable", "which_secret", "json_execute_serialized_sql", "from_substrait",
    "sqlite_scan", "postgres_scan", "arrow_scan", "pandas_scan", "python_map_function", "checkpoint", "force_checkpoint", "enable_logging", "enable_profiling",
    "test_all_types", "seq_scan", "add_parquet_key", "current_setting_duckdb", "nextval_duckdb", "range", "write_log", "error",
    "java_method", "reflect", "try_reflect", "input_file_name", "input_file_block_start", "assert_true", "raise_error", "spark_partition_id", "current_catalog",
    "from_csv", "schema_of_json", "try_aes_decrypt", "aes_decrypt", "uuid", "session_window", "collect_list", "explode", "stack", "read_files",
]  # fmt: skip


def state(session: psycopg.Connection[Any], statement: str) -> str | None:
    """Return the SQLSTATE of a statement, or None if it succeeds."""
    try:
        session.execute(statement, prepare=False)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def beyond(postgres: Server, node: Server, names: list[str]) -> list[str]:
    """Return the calls that PostgreSQL does not know and that the node does not reject as unknown."""
    reachable = []
    with (
        psycopg.connect(postgres.conninfo(), autocommit=True) as native,
        psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as node_session,
    ):
        for session in (native, node_session):
            session.execute("CREATE TABLE IF NOT EXISTS t (a text)")
        known_names = "SELECT proname::text FROM pg_proc UNION SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')"
        known = {name for (name,) in native.execute(known_names)}
        for name in sorted(set(names) - known):
            quoted = '"' + name.replace('"', '""') + '"'
            for form in FORMS:
                statement = form.format(quoted)
                if state(native, statement) == "42883" and (sqlstate := state(node_session, statement)) != "42883":
                    reachable.append(f"{statement}: {sqlstate}")
        native.execute("DROP TABLE t")
    return reachable


def test_dangerous_functions_do_not_exist(postgres: Server, node: Server) -> None:
    assert beyond(postgres, node, DANGEROUS) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_functions_of_duckdb_and_spark_do_not_exist(postgres: Server, node: Server, spark) -> None:
    with duckdb.connect() as connection:
        ducks = [name for (name,) in connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()]
    sparks = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
    names = sorted({*ducks, *sparks, *vars(pyspark.sql.functions)})
    assert len(names) > 900
    assert beyond(postgres, node, names) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM '/etc/passwd'",
        'SELECT * FROM "/etc/passwd"',
        'SELECT * FROM "read_csv(\'/etc/passwd\')"',
        "SELECT * FROM duckdb_settings",
        "SELECT * FROM hg.pg_authid",
        "SELECT * FROM main.pg_authid",
        "SELECT * FROM pg_catalog.hg_built_in",
        "SELECT * FROM parquet.\"/tmp\"",
        "SELECT * FROM delta.\"/tmp\"",
        "ATTACH '/tmp/x.duckdb'",
        "PRAGMA version",
        "INSTALL httpfs",
        "EXPORT DATABASE '/tmp/x'",
        "CALL pragma_version()",
        "CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '/tmp')",
        "SELECT relname FROM pg_class UNION ALL SELECT content FROM read_text('/etc/passwd')",
    ],
)  # fmt: skip
def test_other_features_of_duckdb_and_spark_do_not_exist(node: Server, statement: str) -> None:
    with psycopg.connect(node.conninfo(), autocommit=True) as session, pytest.raises(psycopg.Error) as caught:
        session.execute(statement, prepare=False)  # type: ignore[arg-type]
    assert caught.value.sqlstate in {"42601", "42P01", "42883", "3F000", "0A000"}, caught.value


@pytest.mark.parametrize(
    "call", ["has_table_privilege('t')", "has_column_privilege('t', 'a')", "pg_has_role('r')", "row_security_active('t', 'u')"]
)
def test_privilege_functions_with_wrong_arguments_do_not_exist(node: Server, call: str) -> None:
    with psycopg.connect(node.conninfo(), autocommit=True) as session, pytest.raises(psycopg.errors.UndefinedFunction):
        session.execute(f"SELECT {call}")  # type: ignore[arg-type]
