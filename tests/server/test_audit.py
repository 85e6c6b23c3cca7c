"""The log records connections and statements in PostgreSQL's words. Most tests run on a PostgreSQL and on a node."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.conftest import NodeServer, Server, SqlError, until
from tests.log import Entry, Log

from headgate.errors import PostgresError
from headgate.server.listener import SocketFile
from headgate.settings.node import Settings


def lines(log: Log, pattern: str) -> list[str]:
    """Return the messages that begin with one of these texts, and their DETAIL. Times are replaced by T."""
    matching = [entry for entry in log.entries() if re.match(pattern, entry.message)]
    return [re.sub(r"\d+\.\d{3} ms", "T ms", entry.message) + (f" | {entry.detail}" if entry.detail else "") for entry in matching]


def ended(session: psycopg.Connection, log: Log, mark: str) -> None:
    """Wait until the log has the messages of the session's previous statements."""
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.execute(f"SELECT * FROM {mark}")
    until(lambda: log.matching(mark), "the line is not logged")


STATEMENTS = {
    "none": [],
    "ddl": ["CREATE TEMP TABLE audit (a int)", "CREATE ROLE auditor", "DROP ROLE auditor", "DROP TABLE audit"],
    "mod": [
        "CREATE TEMP TABLE audit (a int)", "INSERT INTO audit VALUES (1); SELECT 1", "UPDATE audit SET a = 2", "DELETE FROM audit",
        "TRUNCATE audit", "PREPARE p AS INSERT INTO audit VALUES (2)", "EXECUTE p", "EXPLAIN ANALYZE INSERT INTO audit VALUES (3)",
        "CREATE ROLE auditor", "DROP ROLE auditor", "DROP TABLE audit",
    ],
}  # fmt: skip
SCRIPT = [
    "CREATE TEMP TABLE audit (a int)", "INSERT INTO audit VALUES (1); SELECT 1", "UPDATE audit SET a = 2", "DELETE FROM audit", "TRUNCATE audit",
    "PREPARE p AS INSERT INTO audit VALUES (2)", "EXECUTE p", "DEALLOCATE p", "SELECT 1", "SHOW port", "BEGIN", "COMMIT",
    "CREATE ROLE auditor", "DROP ROLE auditor", "DROP TABLE audit",
]  # fmt: skip


@pytest.mark.parametrize("level", ["none", "ddl", "mod", "all"])
def test_statements_are_logged_by_log_statement(server: Server, level: str) -> None:
    log = Log(server)
    expected = [text for text in STATEMENTS.get(level, SCRIPT) if text in SCRIPT]
    with psycopg.connect(server.conninfo(), autocommit=True) as session, psycopg.ClientCursor(session) as cursor:
        cursor.execute(f"SET log_statement = '{level}'")
        for text in SCRIPT:
            cursor.execute(text)
        cursor.execute("SET log_statement = none")
        ended(session, log, f"audit_{level}_{server.port}")
    logged = lines(log, "statement: ")
    last = ["statement: SET log_statement = none"] if level == "all" else []
    assert (
        logged
        == [
            f"statement: {text}" + (" | prepare: PREPARE p AS INSERT INTO audit VALUES (2)" if text == "EXECUTE p" else "")
            for text in expected
        ]
        + last
    )


@pytest.mark.slow
def test_statements_and_parameters_of_the_extended_protocol_are_logged(server: Server) -> None:
    log = Log(server)
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        session.execute("SET log_statement = 'all'")
        session.execute("SELECT %s::text, %s::int", ["it's", None])
        session.execute("SELECT %s::int", [1], prepare=True)
        session.execute("SET log_parameter_max_length = 3")
        session.execute("SELECT %s::text", ["abcdef"])
        session.execute("SET log_statement = 'none'")
        session.execute("SET log_parameter_max_length = -1")
        session.execute("SET log_min_duration_statement = 0")
        session.execute("SELECT %s::int + 1", [5])
        session.execute("SET log_min_duration_statement = -1")
        ended(session, log, f"audit_extended_{server.port}")
    assert lines(log, "execute ") == [
        "execute <unnamed>: SELECT $1::text, $2::int | parameters: $1 = 'it''s', $2 = NULL",
        "execute _pg3_0: SELECT $1::int | parameters: $1 = '1'",
        "execute <unnamed>: SELECT $1::text | parameters: $1 = 'abc...'",
    ]
    assert lines(log, r"duration: .* ms  (parse|bind|execute)") == [
        "duration: T ms  parse <unnamed>: SELECT $1::int + 1",
        "duration: T ms  bind <unnamed>: SELECT $1::int + 1 | parameters: $1 = '5'",
        "duration: T ms  execute <unnamed>: SELECT $1::int + 1 | parameters: $1 = '5'",
    ]


def test_durations_are_logged_by_their_settings(server: Server) -> None:
    log = Log(server)
    with psycopg.connect(server.conninfo(), autocommit=True) as session, psycopg.ClientCursor(session) as cursor:
        cursor.execute("SET log_min_duration_statement = '1h'")
        cursor.execute("SELECT 1")
        cursor.execute("SET log_min_duration_statement = 50")
        cursor.execute("SELECT pg_sleep(0.1)")
        cursor.execute("SET log_statement = 'all'")
        cursor.execute("SELECT pg_sleep(0.2)")
        cursor.execute("SET log_statement = 'none'; SET log_min_duration_statement = -1")
        cursor.execute("SET log_duration = on")
        cursor.execute("SELECT 3")
        cursor.execute("SET log_duration = off")
        ended(session, log, f"audit_durations_{server.port}")
    # A SET of a loaded machine may itself take longer than 50 ms: its own line is left out.
    assert lines(log, r"duration: \S+ ms($|  statement: SELECT)|statement: SELECT") == [
        "duration: T ms  statement: SELECT pg_sleep(0.1)",
        "statement: SELECT pg_sleep(0.2)",
        "duration: T ms",
        "duration: T ms",  # of SET log_duration = on
        "duration: T ms",
    ]


def test_replication_commands_are_logged(server: Server) -> None:
    log = Log(server)
    with psycopg.connect(server.conninfo(replication="database"), autocommit=True) as session, psycopg.ClientCursor(session) as cursor:
        cursor.execute("SET log_replication_commands = on")
        cursor.execute("IDENTIFY_SYSTEM")
        cursor.execute("SELECT 1")
        ended_by = f"audit_replication_{server.port}"
        with pytest.raises(psycopg.errors.UndefinedTable):
            cursor.execute(f"SELECT * FROM {ended_by}")
        until(lambda: log.matching(ended_by), "the line is not logged")
    assert lines(log, "received replication") == ["received replication command: IDENTIFY_SYSTEM"]


# ---- connections ----------------------------------------------------------------------------------------
@pytest.fixture
def audited(server: Server) -> Iterator[Server]:
    """A server with log_connections and log_disconnections."""
    for name in ("log_connections", "log_disconnections"):
        server.psql("postgres", f"ALTER SYSTEM SET {name} = on")
    server.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: server.psql("postgres", "SHOW log_connections") == "on", "the setting does not take effect")
    server.psql(
        "postgres",
        "CREATE ROLE audited LOGIN PASSWORD 'geheim'; CREATE ROLE unset LOGIN; CREATE ROLE late LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01'; CREATE ROLE closed PASSWORD 'geheim'",
    )
    rules = server.data / "pg_hba.conf"
    rules_before = rules.read_text()
    methods = [
        f"host all {user} 127.0.0.1/32 {method}"
        for user, method in [("unset", "md5"), ("closed", "password"), ("audited,late,nobody", "scram-sha-256")]
    ]
    rules.write_text(
        "\n".join([*methods, "host all barred 127.0.0.1/32 reject", "local all all trust", "host all postgres 127.0.0.1/32 trust"])
    )
    server.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: server.psql("postgres", "SELECT count(*) FROM pg_hba_file_rules") == "6", "the rules are not read")
    yield server
    rules.write_text(rules_before)
    server.psql("postgres", "DROP ROLE audited, unset, late, closed; ALTER SYSTEM RESET ALL")
    server.psql("postgres", "SELECT pg_reload_conf()")


def of_user(log: Log, user: str) -> list[Entry]:
    return [entry for entry in log.entries() if user in entry.message]


def test_connection_is_logged_from_its_beginning_to_its_end(audited: Server) -> None:
    log = Log(audited)
    psycopg.connect(audited.conninfo(user="audited", password="geheim", application_name="app")).close()
    until(lambda: len(of_user(log, "audited")) == 3, "the end of the connection is not logged")
    messages = [entry.message for entry in of_user(log, "audited")]
    assert messages[0] == f'connection authenticated: identity="audited" method=scram-sha-256 ({audited.data}/pg_hba.conf:3)'
    assert messages[1] == "connection authorized: user=audited database=postgres application_name=app"
    assert re.fullmatch(
        r"disconnection: session time: 0:00:0\d\.\d{3} user=audited database=postgres host=127\.0\.0\.1 port=\d+", messages[2]
    )
    assert any(re.fullmatch(r"connection received: host=127\.0\.0\.1 port=\d+", entry.message) for entry in log.entries())


FAILED = [
    ("audited", "falsch", ""),
    ("late", "x", 'User "late" has an expired password.\n'),
    ("unset", "x", 'User "unset" has no password assigned.\n'),
    ("closed", "falsch", 'Password does not match for user "closed".\n'),
    ("nobody", "x", 'Role "nobody" does not exist.\n'),
]


@pytest.mark.parametrize(("user", "password", "reason"), FAILED)
def test_reason_of_a_failed_authentication_is_only_in_the_log(audited: Server, user: str, password: str, reason: str) -> None:
    log = Log(audited)
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(audited.conninfo(user=user, password=password))
    assert str(refused.value).endswith(f'FATAL:  password authentication failed for user "{user}"')
    text = f'password authentication failed for user "{user}"'
    until(lambda: log.matching(text) and log.matching(text)[0].detail.endswith('"'), "the rejection is not logged")
    line, rule = {"unset": (1, "host all unset 127.0.0.1/32 md5"), "closed": (2, "host all closed 127.0.0.1/32 password")}.get(
        user, (3, "host all audited,late,nobody 127.0.0.1/32 scram-sha-256")
    )
    assert log.matching(text)[0].detail == f'{reason}Connection matched pg_hba.conf line {line}: "{rule}"'
    assert log.matching(text)[0].severity == "FATAL"
    assert not log.matching("falsch")


def test_rejection_by_access_rules_is_logged(audited: Server) -> None:
    log = Log(audited)
    for user, text in (("barred", "pg_hba.conf rejects connection for host"), ("eve", "no pg_hba.conf entry for host")):
        with pytest.raises(psycopg.OperationalError, match=f'{text} "127.0.0.1", user "{user}", database "postgres", no encryption'):
            psycopg.connect(audited.conninfo(user=user))
        until(lambda expected=text: log.matching(expected), "the rejection is not logged")
    with pytest.raises(psycopg.OperationalError, match='role "closed" is not permitted to log in'):
        psycopg.connect(audited.conninfo(user="closed", password="geheim"))
    until(lambda: log.matching('role "closed" is not permitted to log in'), "the rejection is not logged")
    assert [entry.message for entry in of_user(log, "closed")][-2:] == [
        "connection authorized: user=closed database=postgres",
        'role "closed" is not permitted to log in',
    ]


def test_passwords_in_statements_are_not_logged(node: Server) -> None:
    log = Log(node)
    statement = "ALTER ROLE postgres PASSWORD $$geheim$$, nonsense; SELECT * FROM audit_secret"
    with pytest.raises(SqlError):
        node.psql("postgres", statement)
    with psycopg.connect(node.conninfo(), autocommit=True) as session:
        session.execute("SET log_statement = 'all'")
        session.execute("CREATE ROLE audit_secret PASSWORD U&'gehei\\006d'")
        session.execute("ALTER ROLE audit_secret PASSWORD /* E'a' */ E'ge\\x68eim'")
        session.execute("DROP ROLE audit_secret")
        with pytest.raises(psycopg.errors.SyntaxError):
            session.execute("CREATE ROLE audit_secret PASSWORD 'geheim")
    until(lambda: log.matching("unterminated quoted string"), "the line is not logged")
    logged = [entry.message + "".join(entry.fields.values()) for entry in log.entries()]
    assert not [text for text in logged if "gehei" in text or "x68" in text]
    assert any("CREATE ROLE audit_secret PASSWORD <hidden>" in text for text in logged)


# ---- the prefix, sockets, settings ----------------------------------------------------------------------
PREFIX = "%a;%u;%d;%r;%h;%p;%t;%m;%n;%i;%e;%c;%l;%s;%v;%x;%b;%5p;%-8u;%%;%q|%u|"


@pytest.fixture
def prefixed(node: Server) -> Iterator[NodeServer]:
    """A node with all escapes in log_line_prefix."""
    assert isinstance(node, NodeServer)
    node.psql("postgres", f"ALTER SYSTEM SET log_line_prefix = '{PREFIX}'; ALTER SYSTEM SET log_hostname = on")
    node.headgate("reload")
    until(lambda: node.psql("postgres", "SHOW log_hostname") == "on", "the setting does not take effect")
    yield node
    node.psql("postgres", "ALTER SYSTEM RESET ALL")
    node.headgate("reload")
    until(lambda: node.psql("postgres", "SHOW log_hostname") == "off", "the setting is not reset")


def test_log_line_prefix_expands_every_escape(prefixed: NodeServer) -> None:
    node = prefixed
    with psycopg.connect(node.conninfo(application_name="app"), autocommit=True) as session:
        pid = session.info.backend_pid
        port = session.execute("SELECT client_port, client_hostname FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchone()
        with pytest.raises(psycopg.errors.UndefinedTable):
            session.execute("SELECT * FROM audit_prefix")
    assert port is not None
    assert port[1] == "localhost"
    until(lambda: "audit_prefix" in node.log(), "the line is not logged")
    [line] = [text for text in node.log().split("\n") if text.endswith('ERROR:  relation "audit_prefix" does not exist at character 15')]
    fields = line.split(";")
    assert fields[:6] == ["app", "postgres", "postgres", f"localhost({port[0]})", "localhost", str(pid)]
    for moment, form in (
        (fields[6], r"[-\d]{10} [\d:]{8} UTC"),
        (fields[7], r"[-\d]{10} [\d:]{8}\.\d{3} UTC"),
        (fields[8], r"\d{10}\.\d{3}"),
    ):
        assert re.fullmatch(form, moment), moment
    assert fields[9:11] == ["SELECT", "42P01"]
    assert re.fullmatch(rf"[0-9a-f]+\.{pid:x}", fields[11])
    assert fields[12] == "1"
    assert fields[14:] == [
        f"{pid}/0",
        "0",
        "client backend",
        str(pid).rjust(5),
        "postgres",
        "%",
        '|postgres|ERROR:  relation "audit_prefix" does not exist at character 15',
    ]
    node.headgate("reload")
    ending = ";LOG:  received SIGHUP, reloading configuration files"
    [reload_line] = until(lambda: [text for text in node.log().split("\n") if text.endswith(ending)], "the reload is not logged")[-1:]
    assert reload_line.startswith(";;;;;")
    assert ";postmaster;" in reload_line


def test_socket_has_the_configured_permissions_and_group(tmp_path: Path) -> None:
    file = SocketFile(tmp_path, 5432, 0o700, str(tmp_path.stat().st_gid))
    with file.bind(tmp_path, 1):
        status = file.path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o700, tmp_path.stat().st_gid)
    file.remove()
    with pytest.raises(PostgresError, match='group "nosuchgroup" does not exist'):
        SocketFile(tmp_path, 5432, 0o700, "nosuchgroup").bind(tmp_path, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value"),
    [("log_lock_waits", "on"), ("log_destination", "csvlog"), ("log_destination", "stderr, syslog")],
)
def test_settings_without_effect_are_rejected(name: str, value: str) -> None:
    with pytest.raises(PostgresError) as refused:
        Settings.of({name: value})
    assert refused.value.sqlstate == "0A000"


def test_client_names_cannot_forge_log_lines(node: Server) -> None:
    forged = "2026-01-01 00:00:00.000 UTC [1] LOG:  forged"
    node.psql("postgres", "ALTER SYSTEM SET log_line_prefix = '%m [%p] %u %d '; SELECT pg_reload_conf()")
    until(lambda: node.psql("postgres", "SHOW log_line_prefix") != "%m [%p] ", "the setting does not take effect")
    try:
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(host="127.0.0.1", port=node.port, user=f"x\n{forged}", dbname=f"y\n{forged}")
        until(lambda: "LOG:  forged" in node.log(), "the line is not logged")
        assert f"\n{forged}" not in node.log()
    finally:
        node.psql("postgres", "ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()")
        until(lambda: node.psql("postgres", "SHOW log_line_prefix") == "%m [%p] ", "the setting is not reset")
