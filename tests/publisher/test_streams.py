"""A node's stream equals PostgreSQL's for prepared and large transactions, messages, and an ALTER PUBLICATION within a transaction."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from psycopg.pq import ExecStatus
from tests.conftest import Server, until
from tests.publisher import slots

from headgate.lsn import Lsn
from headgate.pgoutput import codec
from headgate.pgoutput import message as m

TABLES = "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE u (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;"


@pytest.fixture(scope="module")
def pair(postgres: Server, node: Server) -> list[tuple[Server, str]]:
    """Both servers, each with a database that has the tables."""
    databases = []
    for server in (postgres, node):
        database = server.new_database()
        server.psql(database, TABLES)
        databases.append((server, database))
    return databases


def test_prepared_transactions_and_messages_are_sent_as_by_postgresql(pair: list[tuple[Server, str]]) -> None:
    answers = []
    for server, database in pair:
        whole, early = slots.make(server, database, "whole"), slots.make(server, database, "early", two_phase=True)
        gid = f"{database}_g"
        server.psql(
            database,
            f"""BEGIN; INSERT INTO t VALUES (1, 'one'); SAVEPOINT s; INSERT INTO t VALUES (9, 'gone'); ROLLBACK TO s;
            INSERT INTO t VALUES (2, 'two'); PREPARE TRANSACTION '{gid}';""",
        )
        prepared = slots.messages(server, database, early), slots.messages(server, database, whole)
        prepared_rows = server.psql(
            database, f"SELECT count(*) FROM t; SELECT gid = '{gid}', owner FROM pg_prepared_xacts WHERE gid = '{gid}'"
        )
        server.psql(
            database,
            f"""COMMIT PREPARED '{gid}'; BEGIN; INSERT INTO u VALUES (1); PREPARE TRANSACTION '{gid}'; ROLLBACK PREPARED '{gid}';
            BEGIN; DELETE FROM t WHERE a = 1; SELECT pg_logical_emit_message(true, 'pre', 'inside');
            SELECT pg_logical_emit_message(false, 'pre', 'alone'); ROLLBACK;
            BEGIN; SELECT pg_logical_emit_message(true, 'pre', 'kept'); UPDATE t SET b = 'x' WHERE a = 2; COMMIT;""",
        )
        rest = slots.messages(server, database, early, messages="on"), slots.messages(server, database, whole)
        answers.append(str((prepared, prepared_rows, rest, server.psql(database, "SELECT * FROM t ORDER BY a"))).replace(gid, "g"))
        server.psql(database, f"TRUNCATE t; SELECT pg_drop_replication_slot('{whole}'), pg_drop_replication_slot('{early}')")
    assert answers[1] == answers[0]


def test_prepare_that_is_rolled_back_before_it_is_read_does_not_stop_the_stream(node: Server) -> None:
    database = node.new_database()
    node.psql(database, f"{TABLES}; INSERT INTO t VALUES (1, 'x')")
    slot, gid = slots.make(node, database, "behind", two_phase=True), f"{database}_gone"
    node.psql(
        database,
        f"""BEGIN; DELETE FROM t; CREATE TABLE v (a int); INSERT INTO v VALUES (1); PREPARE TRANSACTION '{gid}'; ROLLBACK PREPARED '{gid}';
        INSERT INTO t VALUES (2, 'y')""",
    )
    messages = slots.messages(node, database, slot, two_phase="on")
    assert [message.split()[0] for message in messages] == [
        "BeginPrepare",
        "Prepare",
        "RollbackPrepared",
        "Begin",
        "Relation",
        "Insert",
        "Commit",
    ]
    node.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")


def test_transaction_that_is_prepared_late_has_the_lsn_of_its_prepare(pair: list[tuple[Server, str]]) -> None:
    answers = []
    for server, database in pair:
        slot, gid = slots.make(server, database, "late"), f"{database}_late"
        server.psql(database, f"BEGIN; INSERT INTO t VALUES (1, 'one'); PREPARE TRANSACTION '{gid}';")
        end = Lsn.parse(server.psql(database, f"SELECT end_lsn FROM pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"))
        assert slots.messages(server, database, slot, two_phase="on") == []
        rows = server.psql(
            database,
            f"""COMMIT PREPARED '{gid}'; SELECT data FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL,
            'proto_version', '3', 'publication_names', 'p', 'two_phase', 'on')""",
        )
        messages = [codec.read(bytes.fromhex(row[2:])) for row in rows.splitlines() if row.startswith("\\x")]
        answers.append([(type(message).__name__, getattr(message, "end_lsn", 0) <= end) for message in messages])
        server.psql(database, f"TRUNCATE t; SELECT pg_drop_replication_slot('{slot}')")
    assert answers[1] == answers[0]
    assert answers[1][-2:] == [("Prepare", True), ("CommitPrepared", False)]


def test_message_outside_transactions_has_postgresqls_xid(pair: list[tuple[Server, str]]) -> None:
    answers = []
    for server, database in pair:
        slot = slots.make(server, database, "emitted")
        server.psql(database, "INSERT INTO t VALUES (1, 'x'); SELECT pg_logical_emit_message(false, 'pre', 'alone'); DELETE FROM t;")
        query = f"""SELECT chr(get_byte(data, 0)), xid <> '0', int2send(get_byte(data, 1)::int2) FROM
            pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, 'proto_version', '1', 'publication_names', 'p', 'messages', 'on')
            WHERE get_byte(data, 0) IN (66, 67, 77)"""
        answers.append(server.psql(database, query))
        server.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")
    assert answers[1] == answers[0]


def test_start_position_after_a_commit_skips_only_that_transaction(pair: list[tuple[Server, str]]) -> None:
    answers = []
    for server, database in pair:
        slot = slots.make(server, database, "skipping")
        server.psql(database, "INSERT INTO t VALUES (1, 'skipped'); INSERT INTO t VALUES (2, 'sent');")
        first = f"SELECT data FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, 1, 'proto_version', '1', 'publication_names', 'p') LIMIT 1"
        commit = int(server.psql(database, first)[4:20], 16)
        server.psql(database, f"SELECT pg_replication_slot_advance('{slot}', '{(commit + 1) >> 32:X}/{(commit + 1) & 0xFFFFFFFF:X}')")
        answers.append(slots.messages(server, database, slot))
        server.psql(database, f"TRUNCATE t; SELECT pg_drop_replication_slot('{slot}')")
    assert [message for message in answers[1] if message.startswith("Insert")] == ["Insert t (2, sent)"]
    assert answers[1] == answers[0]


def test_large_transaction_is_streamed_in_blocks_with_the_xids_of_its_subtransactions(pair: list[tuple[Server, str]]) -> None:
    small_memory = "SET logical_decoding_work_mem = '64kB';"
    answers = []
    for server, database in pair:
        streamed, whole = slots.make(server, database, "streamed"), slots.make(server, database, "spilled")
        server.psql(
            database,
            """BEGIN; INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 1000) i; SAVEPOINT s;
            INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1001, 2000) i; RELEASE s; DELETE FROM t WHERE a = 1; COMMIT;""",
        )
        messages = slots.messages(server, database, streamed, "p", small_memory, streaming="on")
        plain = slots.messages(server, database, whole, "p", small_memory)
        assert messages.count("StreamStart x0") == messages.count("StreamStop") > 2
        counts = server.psql(
            database,
            f"""SELECT slot_name = '{streamed}', stream_txns, stream_count > 2, stream_bytes > 100000, total_txns
            FROM pg_stat_replication_slots WHERE slot_name IN ('{streamed}', '{whole}') ORDER BY 1""",
        )
        answers.append(([message for message in messages if not message.startswith("Stream")], plain, messages[-1], counts))
        server.psql(database, f"TRUNCATE t; SELECT pg_drop_replication_slot('{streamed}'), pg_drop_replication_slot('{whole}')")
    assert answers[1] == answers[0]


def test_change_is_published_by_the_publication_as_of_the_change(pair: list[tuple[Server, str]]) -> None:
    answers = []
    for server, database in pair:
        server.psql(database, "CREATE PUBLICATION q FOR TABLE t WHERE (a > 10)")
        slot = slots.make(server, database, "judged")
        with psycopg.connect(server.conninfo(database)) as session:
            session.execute("INSERT INTO t VALUES (1), (11)")
            server.psql(database, "ALTER PUBLICATION q SET TABLE t WHERE (a < 5)")
            session.execute("INSERT INTO t VALUES (2), (12)")
            server.psql(database, "ALTER PUBLICATION q SET TABLE t (a)")
            session.execute("INSERT INTO t VALUES (3, 'three')")
        messages = slots.messages(server, database, slot, "q")
        answers.append([message for message in messages if not message.startswith("Relation")])
        server.psql(database, f"DROP PUBLICATION q; TRUNCATE t; SELECT pg_drop_replication_slot('{slot}')")
    assert answers[1] == answers[0] == ["Begin x0", "Insert t (11, null)", "Insert t (2, null)", "Insert t (3)", "Commit"]


def test_changes_around_a_rewrite_of_a_column_have_its_values(pair: list[tuple[Server, str]]) -> None:
    answers = []
    for server, database in pair:
        slot = slots.make(server, database, "rewritten")
        server.psql(
            database,
            """INSERT INTO t VALUES (1, 'before'); ALTER TABLE t ALTER b TYPE text USING upper(b); INSERT INTO t VALUES (2, 'after');
            ALTER TABLE t ALTER b TYPE text; UPDATE t SET b = b || '!'""",
        )
        answers.append([message for message in slots.messages(server, database, slot) if message.startswith(("Insert", "Update"))])
        server.psql(database, f"TRUNCATE t; SELECT pg_drop_replication_slot('{slot}')")
    assert answers[1] == answers[0]


def test_prepared_transaction_is_finished_by_its_name_in_its_database(pair: list[tuple[Server, str]]) -> None:
    server, database = pair[1]
    server.psql(database, "BEGIN; INSERT INTO t VALUES (5); PREPARE TRANSACTION 'mine'")
    try:
        for sql, error in [
            ("BEGIN; PREPARE TRANSACTION 'mine'", 'ERROR:  transaction identifier "mine" is already in use'),
            ("COMMIT PREPARED 'other'", 'ERROR:  prepared transaction with identifier "other" does not exist'),
            ("BEGIN; COMMIT PREPARED 'mine'", "ERROR:  COMMIT PREPARED cannot run inside a transaction block"),
        ]:
            with pytest.raises(Exception, match=error):
                server.psql(database, sql)
        with pytest.raises(Exception, match="prepared transaction belongs to another database"):
            server.psql("postgres", "COMMIT PREPARED 'mine'")
    finally:
        server.psql(database, "ROLLBACK PREPARED 'mine'")
    assert server.psql(database, "SELECT count(*) FROM t WHERE a = 5") == "0"


def test_transaction_without_published_changes_is_logged_at_debug1(pair: list[tuple[Server, str]]) -> None:
    for server, database in pair:
        slot = slots.make(server, database, "skipped")
        server.psql("postgres", "ALTER SYSTEM SET log_min_messages = debug1; SELECT pg_reload_conf()")
        try:
            until(lambda: server.psql("postgres", "SHOW log_min_messages") == "debug1")  # noqa: B023 (called at once)
            xid = server.psql(database, "BEGIN; INSERT INTO u VALUES (9); SELECT pg_current_xact_id(); COMMIT")
            assert slots.messages(server, database, slot) == []
            assert f"DEBUG:  skipped replication of an empty transaction with XID: {xid}\n" in server.log()
        finally:
            server.psql("postgres", "ALTER SYSTEM RESET log_min_messages; SELECT pg_reload_conf()")
        server.psql(database, f"TRUNCATE u; SELECT pg_drop_replication_slot('{slot}')")


def test_rows_written_before_a_table_was_published_follow_a_copy_as_of_a_new_slot(node: Server) -> None:
    database = node.new_database()
    node.psql(database, f"{TABLES} CREATE TABLE added (a int PRIMARY KEY); CREATE TABLE of_prepared (a int PRIMARY KEY)")
    old_slot, gid = slots.make(node, database, "old"), f"{database}_before"
    node.psql(database, f"BEGIN; INSERT INTO of_prepared VALUES (2); PREPARE TRANSACTION '{gid}'")
    with psycopg.connect(node.conninfo(database)) as session:
        session.execute("INSERT INTO added VALUES (1)")
        node.psql(database, "ALTER PUBLICATION p ADD TABLE added, of_prepared")
        new_slot = slots.make(node, database, "new")
    node.psql(database, f"COMMIT PREPARED '{gid}'")
    transactions = [["Begin", "Relation", f"Insert {row}", "Commit"] for row in ("added (1)", "of_prepared (2)")]
    for slot in (old_slot, new_slot):
        messages = [message.split(" x")[0] for message in slots.messages(node, database, slot)]
        assert messages == [message for transaction in transactions for message in transaction]
        node.drop_slot(database, slot)


def test_client_is_answered_while_its_changes_are_judged(node: Server) -> None:
    database = node.new_database()
    node.psql(database, "CREATE TABLE t (a bigint PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t WHERE (a::numeric ^ 1.37 < 0)")
    slot = slots.make(node, database, "slow")
    node.psql(database, "INSERT INTO t SELECT generate_series(1, 100000)")
    end = Lsn.parse(node.psql(database, "SELECT pg_current_wal_lsn()"))
    with contextlib.closing(psycopg.connect(node.conninfo(database, replication="database"), autocommit=True)) as session:
        client = session.pgconn
        client.send_query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode())
        result = client.get_result()
        assert result is not None
        assert result.status == ExecStatus.COPY_BOTH
        client.put_copy_data(codec.write_reply(m.StatusUpdate(0, 0, 0, 0, reply_requested=True)))
        client.flush()
        answer = codec.read_frame(bytes(client.get_copy_data(0)[1]))
        assert isinstance(answer, m.Keepalive)
        assert answer.end < end, "the changes were judged first"
    node.drop_slot(database, slot)


@pytest.mark.parametrize("limits", ["NULL, 0", "'0/0', NULL", "'FFFFFFFF/FFFFFFFF', 2147483647", "NULL, -1"])
def test_limits_of_null_or_zero_return_what_postgresql_returns(pair: list[tuple[Server, str]], limits: str) -> None:
    answers = []
    for server, database in pair:
        slot = slots.make(server, database, "limits")
        server.psql(database, "INSERT INTO t VALUES (71, 'x'); DELETE FROM t WHERE a = 71")
        options = "'proto_version', '1', 'publication_names', 'p'"
        answers.append(server.psql(database, f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('{slot}', {limits}, {options})"))
        server.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")
    assert answers[1] == answers[0]


def test_rows_that_exchange_unique_keys_are_published_in_an_order_that_keeps_them_unique(node: Server) -> None:
    database = node.new_database()
    node.psql(database, "CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)")
    node.psql(database, "INSERT INTO t VALUES (1, 1), (2, 2)")
    node.psql(database, "CREATE PUBLICATION p FOR TABLE t")
    slot = slots.make(node, database, "keys")
    node.psql(database, "UPDATE t SET a = a + 1")
    node.psql(database, "UPDATE t SET b = 3 - b")
    changes = [message for message in slots.messages(node, database, slot) if message.startswith(("Insert", "Update", "Delete"))]
    assert changes[:2] == ["Update t (2, null) (3, 2)", "Update t (1, null) (2, 1)"]
    assert changes[2:] == ["Delete t (2, null)", "Update t (3, 1)", "Insert t (2, 2)"]
    node.psql(database, "INSERT INTO t SELECT g, g FROM generate_series(4, 9) g")
    node.psql(database, "SET headgate.small_write_rows = 3; UPDATE t SET a = a + 1")
    changes = [message for message in slots.messages(node, database, slot) if message.startswith(("Insert", "Update", "Delete"))]
    assert [message.split()[0] for message in changes] == ["Insert"] * 6 + ["Delete"] * 8 + ["Insert"] * 8
    assert node.psql(database, "SELECT string_agg(a || ':' || b, ' ' ORDER BY a) FROM t") == "3:2 4:1 5:4 6:5 7:6 8:7 9:8 10:9"
