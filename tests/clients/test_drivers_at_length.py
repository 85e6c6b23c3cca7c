"""Drivers' features beyond the short tests give the same results on a PostgreSQL and on a node."""

from __future__ import annotations

import pytest
from tests.clients.conftest import Table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HALF = sum(range(0, 200_000, 2))


def test_two_hundred_thousand_rows_are_copied_in_and_out_by_asyncpgs_binary_copy(table: Table) -> None:
    assert table.play("asyncpg", "bulk") == ["COPY 100000", 100_000, HALF, f"{HALF / 100:.2f}", 0, 0]
    assert table.sql("SELECT count(*), max(name), max(price) FROM items") == "200000|row 99999|1999.99"


def test_two_hundred_thousand_rows_are_copied_in_and_out_by_pgxs_binary_copy(table: Table) -> None:
    assert table.play("pgx", "bulk") == [200_000, 100_000, 100_000, HALF, 0]
    assert table.sql("SELECT count(*), sum(real8) FROM items") == f"200000|{sum(range(200_000)) / 4:.0f}"


def test_two_hundred_thousand_rows_of_an_arrow_table_are_returned_unchanged(table: Table) -> None:
    assert table.play("arrow", "bulk") == [200_000, 200_000, True, ["int64", "string", "double"]]


def test_plan_cached_by_asyncpg_is_renewed_outside_a_transaction_and_rejected_inside(table: Table) -> None:
    table.sql("INSERT INTO items (id) VALUES (1)")
    assert table.play("asyncpg", "plans") == [["id", "name"], "more", 7, "0A000", 10]


def test_plan_cached_by_jdbc_is_renewed_after_columns_are_added_changed_and_dropped(table: Table) -> None:
    table.sql("INSERT INTO items (id) VALUES (1)")
    assert table.play("jdbc", "plans") == [[11, "numeric", "nums"], [12, "numeric", "more"], [12, "numeric", "more"], [11, "text", "more"]]


def test_named_statement_of_node_postgres_is_rejected_after_its_result_has_changed(table: Table) -> None:
    table.sql("INSERT INTO items (id) VALUES (1)")
    assert table.play("node-postgres", "plans") == [11, "0A000", 10]


def test_plan_cached_by_pgx_fails_once_and_is_renewed(table: Table) -> None:
    table.sql("INSERT INTO items (id) VALUES (1)")
    assert table.play("pgx", "plans") == [11, 11, "0A000", 10]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg2", "jdbc", "node-postgres", "pgx"])
def test_notifications_arrive_in_the_order_of_their_commits(table: Table, driver: str) -> None:
    assert table.play(driver, "notifications") == [["news", "first"], ["news", "second"]]


def test_connection_returned_to_asyncpgs_pool_is_reset(table: Table) -> None:
    assert table.play("asyncpg", "pool") == [True, False, 0, 0, 20]


def test_sqlalchemys_pool_replaces_a_connection_that_the_server_has_ended(table: Table) -> None:
    assert table.play("sqlalchemy", "pool") == [True, True]


def test_pools_of_node_postgres_and_pgx_share_few_connections(table: Table) -> None:
    assert table.play("node-postgres", "pool") == [True, {"n": 30, "s": 435}]
    table.sql("TRUNCATE items")
    assert table.play("pgx", "pool") == [True, 30, 435]


def test_jdbcs_batches_give_counts_and_keys_and_fail_as_a_whole(table: Table) -> None:
    assert table.play("jdbc", "batches") == [300, 300, "23505", 300] * 2


def test_psycopg2s_batches_change_their_rows(table: Table) -> None:
    assert table.play("psycopg2", "batches") == [1000, 999, 1000, 2]


def test_batch_of_pgx_is_one_transaction(table: Table) -> None:
    assert table.play("pgx", "batch") == ["INSERT 0 2", "UPDATE 1", "zwei", "23505", "items_pkey", 2]


def test_pgx_works_in_each_of_its_five_modes(table: Table) -> None:
    assert table.play("pgx", "modes") == [["Größe 'q' \\ 😀", ["x", None, 'y,z"']]] * 5


def test_statements_in_one_message_have_separate_results(table: Table) -> None:
    assert table.play("node-postgres", "several") == [["SELECT", 1, [{"a": 1}]], ["INSERT", 2, []], ["SELECT", 1, [{"n": 2}]]]


def test_asyncpgs_cursor_skips_rows_and_keeps_its_snapshot(table: Table) -> None:
    table.sql("INSERT INTO items (id) SELECT generate_series(1, 30)")
    assert table.play("asyncpg", "cursors") == [[11, 12, 13], 5, 19, 20, 0]


def test_psycopg2s_cursors_scroll_and_can_be_held_over_a_commit(table: Table) -> None:
    table.sql("INSERT INTO items (id) SELECT generate_series(1, 30)")
    assert table.play("psycopg2", "cursors") == [[[1], [2]], [13], [9], [1], [16]]


def test_psycopg2_changes_and_deletes_the_current_row_of_a_named_cursor(table: Table) -> None:
    table.sql("INSERT INTO items (id) SELECT generate_series(1, 4)")
    assert table.play("psycopg2", "current_of") == [[1, "row 1"], 1, [3, "row 3"], 1]
    assert table.sql("SELECT id, name FROM items ORDER BY id") == "1|row 1\n3|row 3"


def test_sqlalchemy_changes_the_current_row_of_a_cursor(table: Table) -> None:
    table.sql("INSERT INTO items (id) SELECT generate_series(1, 4)")
    assert table.play("sqlalchemy", "current_of") == [[3, "once"], [3, "twice"]]


def test_jdbcs_results_stay_open_across_commits_and_scroll(table: Table) -> None:
    table.sql("INSERT INTO items (id) SELECT generate_series(1, 30)")
    assert table.play("jdbc", "scrolling") == [*range(1, 13), 12, 30, 27]


def test_rows_can_be_changed_deleted_and_added_through_a_result_of_jdbc(table: Table) -> None:
    table.sql("INSERT INTO items (id, name) SELECT g, 'n' || g FROM generate_series(1, 6) g")
    assert table.play("jdbc", "updatable") == ["changed", 2]
    assert table.sql("SELECT id, name, tags FROM items ORDER BY id") == "1|n1|\n2|changed|{a,NULL}\n3|n3|\n5|n5|\n6|n6|\n100||"


def test_jdbcs_autosave_limits_an_error_to_its_statement(table: Table) -> None:
    assert table.play("jdbc", "autosave") == ["23505", 2]


def test_types_are_looked_up_by_name(table: Table) -> None:
    assert table.play("asyncpg", "types")[:3] == [["happy", "sad"], "abc", '["A"]']
    table.sql("DROP TYPE mood; DROP DOMAIN short")
    assert table.play("pgx", "types") == [["happy", "sad"], "abc", 1, 2, 3 * 3600 * 10**6]
    table.sql("DROP TYPE mood")
    assert table.play("psycopg2", "types") == ["happy", "{sad}", {"a": [1]}, [1, 5], "NaN"]
    assert table.play("pg8000", "types") == ["1 day, 0:00:00", {"a": [1]}, "infinity", "10.0.0.1", "[1,5)"]


def test_statement_prepared_by_pg8000_can_be_run_again_and_closed(table: Table) -> None:
    assert table.play("pg8000", "prepared") == [[3, 3]]


def test_jdbcs_metadata_have_tables_columns_keys_and_indexes(table: Table) -> None:
    assert table.play("jdbc", "metadata") == [
        ["by_time", "INDEX"], ["parts_pkey", "INDEX"], ["parts", "TABLE"], ["seen", "VIEW"],
        ["item", "int4", 10, 0, "NO", None, None], ["n", "numeric", 8, 3, "NO", "1.5", "how many"],
        ["at", "timestamptz", 35, 6, "YES", None, None],
        ["item", 1, "parts_pkey"], ["n", 2, "parts_pkey"],
        ["items", "id", "item", "parts_item_fkey"],
        ["parts_pkey", False, "item", "A"], ["parts_pkey", False, "n", "A"], ["by_time", True, "at", "D"],
    ]  # fmt: skip


def test_adbc_describes_a_table_and_its_key(table: Table) -> None:
    columns = ["id", "name", "price", "big", "good", "real8", "seen", "raw", "code", "tags", "nums"]
    assert table.play("arrow", "reflection") == [columns, ["id"]]


def test_sqlalchemy_reflects_tables_views_keys_checks_enums_and_comments(table: Table) -> None:
    assert table.play("sqlalchemy", "reflection") == [
        ["customers", "items", "orders"], ["seen"], ["customers_id_seq", "orders_id_seq"],
        [["ix_orders_customer_id", ["customer_id"]]], [["name"]], [["positive", "amount > 0"]], [["customer_id"], "customers", ["id"]],
        "who buys", [["mood", ["sad", "happy"]]],
        [
            ["id", "INTEGER", False], ["name", "TEXT", True], ["price", "NUMERIC(10, 2)", True], ["big", "BIGINT", True],
            ["good", "BOOLEAN", True], ["real8", "DOUBLE PRECISION", True], ["seen", "TIMESTAMP", True], ["raw", "BYTEA", True],
            ["code", "UUID", True], ["tags", "ARRAY", True], ["nums", "ARRAY", True],
        ],
        False,
    ]  # fmt: skip


def test_sqlalchemys_asynchronous_engine_writes_and_reads_every_type(table: Table) -> None:
    rows_read = table.play("sqlalchemy", "asynchronous")
    assert [row[0] for row in rows_read] == [1, 2]
    assert rows_read[0][6] == "2024-02-29T10:30:15.123456"
    assert rows_read[1][1:] == [None] * 10


def test_alembic_generates_the_missing_revisions_and_upgrades_and_downgrades(table: Table) -> None:
    all_tables, first_tables = ["alembic_version", "keepers", "pets"], ["alembic_version", "keepers"]
    table.sql("DROP TABLE items")
    assert table.play("sqlalchemy", "migrations") == [
        first_tables,
        [all_tables, ["id", "mood", "age"]],
        [first_tables, ["id", "mood"]],
        all_tables,
    ]
