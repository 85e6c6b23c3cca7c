"""Settings are read, shown and rejected as by a real PostgreSQL 15."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.conftest import Server

from headgate.errors import PostgresError
from headgate.settings import file
from headgate.settings.definition import SettingContext, SettingKind
from headgate.settings.node import Settings
from headgate.settings.session import SessionSettings
from headgate.settings.table import definitions, find

CASES = [
    ("wal_sender_timeout", "60s"),
    ("wal_sender_timeout", "90s"),
    ("wal_sender_timeout", "1.5min"),
    ("wal_sender_timeout", " 2 h "),
    ("wal_sender_timeout", "1d"),
    ("wal_sender_timeout", "1500us"),
    ("wal_sender_timeout", "2500us"),
    ("wal_sender_timeout", "0"),
    ("wal_sender_timeout", "10x"),
    ("wal_sender_timeout", "10 X"),
    ("wal_sender_timeout", "MS"),
    ("wal_sender_timeout", ""),
    ("wal_sender_timeout", "-3"),
    ("wal_sender_timeout", "99999999999"),
    ("wal_sender_timeout", "30d"),
    ("work_mem", "64MB"),
    ("work_mem", "65536kB"),
    ("work_mem", "65537kB"),
    ("work_mem", "1.5GB"),
    ("work_mem", "1000000B"),
    ("work_mem", "12"),
    ("work_mem", "0x100"),
    ("work_mem", "0200"),
    ("work_mem", "64Mb"),
    ("logical_decoding_work_mem", "4TB"),
    ("temp_buffers", "16MB"),
    ("effective_cache_size", "4097"),
    ("extra_float_digits", "3"),
    ("extra_float_digits", "-15"),
    ("extra_float_digits", "1.4"),
    ("extra_float_digits", "1.5"),
    ("extra_float_digits", "2.5"),
    ("extra_float_digits", "16"),
    ("extra_float_digits", "1e0"),
    ("extra_float_digits", "3ms"),
    ("seq_page_cost", "1.25"),
    ("seq_page_cost", "-4"),
    ("seq_page_cost", "abc"),
    ("seq_page_cost", "1e10"),
    ("seq_page_cost", "1e300"),
    ("vacuum_cost_delay", "1.5ms"),
    ("vacuum_cost_delay", "1500us"),
    ("vacuum_cost_delay", "3"),
    ("enable_seqscan", "tr"),
    ("enable_seqscan", "OFF"),
    ("enable_seqscan", "o"),
    ("enable_seqscan", "1"),
    ("enable_seqscan", ""),
    ("enable_seqscan", "maybe"),
    ("bytea_output", "ESCAPE"),
    ("bytea_output", "octal"),
    ("client_min_messages", "debug"),
    ("client_min_messages", "loud"),
    ("synchronous_commit", "true"),
    ("synchronous_commit", "remote_apply"),
    ("backslash_quote", "0"),
    ("IntervalStyle", "ISO_8601"),
    ("DateStyle", "iso, dmy"),
    ("DateStyle", "German"),
    ("DateStyle", "SQL"),
    ("DateStyle", "ymd"),
    ("DateStyle", "foo"),
    ("DateStyle", "ISO, SQL"),
    ("DateStyle", "PostgreSQL, European"),
    ("DateStyle", "noneuropean, german"),
    ("DateStyle", "german, default"),
    ("DateStyle", "sql, default, ymd"),
    ("DateStyle", "mdy, dmy"),
    ("TimeZone", "europe/berlin"),
    ("TimeZone", "utc"),
    ("TimeZone", "Nowhere/Town"),
    ("TimeZone", "3"),
    ("TimeZone", "-4.5"),
    *(
        ("TimeZone", pair)
        for pair in (
            "+05:30",
            "UTC+3",
            "abc3def",
            "<abc>3<def>",
            "PST8PDT,M3.2.0,M11.1.0",
            "posix/europe/rome",
            "right/Europe/Rome",
            "posixrules",
            "localtime",
            "Factory",
            "",
            "z",
            "pst",
            "1e1",
            "0x10",
            "Infinity",
            "nan",
            "200",
            "-167.9",
            "168",
            "-5.123456",
            "  5",
            "5 ",
            "1_0",
            "A",
        )
    ),
    ("client_encoding", "utf-8"),
    ("client_encoding", "foo"),
    ("search_path", 'a, "B"'),
    ("search_path", "a,,b"),
    ("search_path", ""),
    ("search_path", '"open'),
    ("application_name", "Zürich\tmain"),
    ("application_name", "x" * 70),
    ("app.user_id", "5"),
    ("a.1b", "5"),
    ("nosuch", "1"),
    ("port", "5433"),
    ("server_version", "9"),
    ("fsync", "off"),
    ("log_connections", "on"),
]


@pytest.fixture(scope="module")
def oracle(postgres: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.conninfo("postgres"), autocommit=True) as session:
        yield session


def session_settings() -> SessionSettings:
    session = SessionSettings(Settings.of())
    session.override("is_superuser", "on")
    return session


def error_fields(error: psycopg.Error) -> tuple[str | None, ...]:
    return error.sqlstate, error.diag.message_primary, error.diag.message_detail, error.diag.message_hint


def agree(name: str, text: str, oracle: psycopg.Connection) -> None:
    expected: tuple[object, ...]
    try:
        with oracle.transaction(force_rollback=True):
            oracle.execute("SELECT set_config(%s, %s, true)", (name, text))
            expected = (oracle.execute("SELECT current_setting(%s)", (name,)).fetchone() or ("",))[:1]
    except psycopg.Error as error:
        expected = error_fields(error)
    actual: tuple[object, ...]
    try:
        settings = session_settings()
        settings.set(name, text)
        actual = (settings.text(name),)
    except PostgresError as error:
        actual = (error.sqlstate, error.message, error.detail, error.hint)
    assert actual == expected


@pytest.mark.parametrize(("name", "text"), CASES)
def test_set_and_show_agree_with_postgresql(name: str, text: str, oracle: psycopg.Connection) -> None:
    agree(name, text, oracle)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=400)
@given(
    name=st.sampled_from(["wal_sender_timeout", "work_mem", "extra_float_digits", "seq_page_cost", "vacuum_cost_delay", "enable_sort"]),
    text=st.one_of(
        st.from_regex(r"[ +-]?[0-9]{1,6}(\.[0-9]{0,3})?(e[0-9])?[ ]?(B|kB|MB|GB|us|ms|s|min|h|d)?", fullmatch=True),
        st.text("0123456789.xeEkMGB smintruefalso'+-", max_size=6),
    ),
)
@example(name="wal_sender_timeout", text="0.1d")
@example(name="vacuum_cost_delay", text="-0ms")
def test_any_text_is_read_or_rejected_as_by_postgresql(name: str, text: str, oracle: psycopg.Connection) -> None:
    agree(name, text, oracle)


def test_pg_settings_describes_postgresqls_settings_as_postgresql_does(oracle: psycopg.Connection) -> None:
    columns = "name, unit, category, short_desc, extra_desc, context, vartype, min_val, max_val, enumvals"
    expected = {row[0]: row[1:] for row in oracle.execute(f"SELECT {columns} FROM pg_settings")}  # type: ignore[arg-type]
    actual = {row["name"]: row for row in session_settings().rows(guarded=True)}
    shared = set(expected) & set(actual)
    assert len(shared) > 230
    wrong = {
        name: (tuple(actual[name][column] for column in columns.split(", ")[1:]), expected[name])
        for name in shared
        if tuple(actual[name][column] for column in columns.split(", ")[1:]) != expected[name]
    }
    assert not wrong


def test_show_all_prints_postgresqls_defaults(oracle: psycopg.Connection) -> None:
    boot = dict(oracle.execute("SELECT name, boot_val FROM pg_settings"))  # type: ignore[arg-type]
    from headgate.settings.table import NODE_DEFAULTS

    rows = {row["name"]: row["boot_val"] for row in session_settings().rows(guarded=True)}
    different = {name for name in rows if name in boot and (boot[name] or "") != rows[name]}
    assert different <= set(NODE_DEFAULTS)


def test_default_pools_fit_a_hub_of_twenty_subscriptions() -> None:
    settings = Settings.of()
    syncs, workers = settings.integer("max_sync_workers_per_subscription"), settings.integer("max_logical_replication_workers")
    assert 20 * (1 + syncs) <= workers < settings.integer("max_worker_processes")
    assert workers <= settings.integer("max_replication_slots") <= settings.integer("max_wal_senders")


def test_every_default_is_a_valid_value() -> None:
    for definition in definitions().values():
        if definition.kind in {SettingKind.BOOL, SettingKind.INTEGER, SettingKind.REAL} or (
            definition.kind is SettingKind.ENUM and definition.default
        ):
            assert definition.read(definition.plain(definition.default)) == definition.default, definition.name


def test_names_are_case_insensitive() -> None:
    assert Settings.of({"TIMEZONE": "Europe/Berlin"}).text("timezone") == "Europe/Berlin"


def test_session_cannot_set_settings_of_the_server() -> None:
    plain = SessionSettings(Settings.of())
    for name, state in (("port", "55P02"), ("server_version", "55P02"), ("log_min_messages", "42501"), ("fsync", "55P02")):
        with pytest.raises(PostgresError) as caught:
            plain.set(name, "1" if name != "log_min_messages" else "info")
        assert caught.value.sqlstate == state


# ---- transactions ---------------------------------------------------------------------------------------------


def test_encoding_is_known_by_all_its_names_and_rejected_if_it_cannot_be_converted() -> None:
    session = SessionSettings(Settings.of({}))
    for alias, name in (
        ("sql_ascii", "SQL_ASCII"),
        ("Windows-1252", "WIN1252"),
        ("iso 8859-15", "LATIN9"),
        ("win936", "GBK"),
        ("alt", "WIN866"),
    ):
        session.set("client_encoding", alias)
        assert session.text("client_encoding") == name
    with pytest.raises(PostgresError) as refused:
        session.set("client_encoding", "euc_tw")
    assert (refused.value.sqlstate, refused.value.message) == ("0A000", 'invalid value for parameter "client_encoding": "euc_tw"')
    assert refused.value.detail == "Conversion between EUC_TW and UTF8 is not supported."


def test_datestyle_keeps_the_part_that_a_new_value_does_not_set(oracle: psycopg.Connection) -> None:
    settings = session_settings()
    for value in ("DMY", "SQL", "German", "iso", "us", "sql, ymd", "postgres", "mdy", "german", "german, mdy", "default", ""):
        settings.set("DateStyle", value)
        oracle.execute("SELECT set_config('DateStyle', %s, false)", (value,))
        assert (settings.text("DateStyle"),) == oracle.execute("SHOW datestyle").fetchone()
    settings.set_values("DateStyle", ["SQL, DMY"])
    assert settings.text("DateStyle") == "SQL, DMY"
    oracle.execute("RESET datestyle")


def test_set_is_undone_by_rollback_and_kept_by_commit() -> None:
    settings = session_settings()
    state = settings.remember()
    settings.set("work_mem", "1MB")
    settings.restore(state, rolled_back=True)
    assert settings.text("work_mem") == "4MB"
    state = settings.remember()
    settings.set("work_mem", "1MB")
    settings.restore(state, rolled_back=False)
    assert settings.text("work_mem") == "1MB"


def test_set_local_ends_with_the_transaction_and_a_later_set_wins() -> None:
    settings = session_settings()
    state = settings.remember()
    settings.set("work_mem", "1MB", local=True)
    assert settings.text("work_mem") == "1MB"
    settings.restore(state, rolled_back=False)
    assert settings.text("work_mem") == "4MB"
    state = settings.remember()
    settings.set("work_mem", "1MB", local=True)
    settings.set("work_mem", "2MB")
    assert settings.text("work_mem") == "2MB"
    settings.restore(state, rolled_back=False)
    assert settings.text("work_mem") == "2MB"


def test_rollback_to_a_savepoint_undoes_later_settings() -> None:
    settings = session_settings()
    settings.set("work_mem", "1MB")
    savepoint = settings.remember()
    settings.set("work_mem", "2MB")
    settings.set("app.a", "x", local=True)
    settings.rollback_to(savepoint)
    assert settings.text("work_mem") == "1MB"
    assert settings.text("app.a") == ""


def test_reset_restores_the_value_with_the_highest_priority() -> None:
    settings = session_settings()
    settings.set_initial("work_mem", "8MB", "client")
    settings.set_initial("work_mem", "6MB", "database")
    settings.set("work_mem", "1MB")
    settings.reset("work_mem")
    assert settings.text("work_mem") == "8MB"
    settings.set("work_mem", "1MB")
    settings.reset_all()
    assert settings.text("work_mem") == "8MB"


def test_client_is_sent_reported_settings_once_and_after_each_change() -> None:
    settings = session_settings()
    first = dict(settings.reported())
    assert first["server_version"].startswith("15.18 (headgate ")
    assert {"client_encoding", "DateStyle", "TimeZone", "integer_datetimes", "is_superuser", "session_authorization"} <= set(first)
    assert settings.reported() == []
    settings.set("timezone", "Europe/Berlin")
    assert settings.reported() == [("TimeZone", "Europe/Berlin")]


def test_list_is_quoted_if_needed(oracle: psycopg.Connection) -> None:
    settings = session_settings()
    settings.set_values("search_path", ["$user", "Public", "a b", "x"])
    oracle.execute("""SET search_path TO "$user", "Public", "a b", x""")
    assert settings.text("search_path") == oracle.execute("SHOW search_path").fetchone()[0]  # type: ignore[index]
    oracle.execute("RESET search_path")
    with pytest.raises(PostgresError, match="SET work_mem takes only one argument"):
        settings.set_values("work_mem", ["1", "2"])


# ---- headgate.conf ------------------------------------------------------------------------------------------------


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "headgate.conf").write_text(file.default_text())
    return tmp_path


def append(data_dir: Path, text: str) -> None:
    with (data_dir / "headgate.conf").open("a") as conf:
        conf.write(text)


def test_default_file_changes_nothing_and_all_its_lines_are_valid(data_dir: Path) -> None:
    assert {setting.source for setting in Settings(data_dir).load().all().values()} == {"default", "override"}
    conf = data_dir / "headgate.conf"
    lines = [line[1:] if line.startswith("#") and line[1:2].isalpha() and " = " in line else line for line in conf.read_text().splitlines()]
    conf.write_text("\n".join(lines))
    loaded = Settings(data_dir)
    assert loaded.load().complaints == []
    from_file = [setting for setting in loaded.all().values() if setting.source == "configuration file"]
    assert len(from_file) > 120
    assert all(setting.value == setting.definition.default for setting in from_file)


def test_values_with_quotes_comments_and_units_are_read(data_dir: Path) -> None:
    append(
        data_dir,
        "cluster_name = 'it''s' # a comment\nwork_mem 8MB\nPORT=5440\nport = 5441\napp.x = 'a\\tb'\n"
        "search_path = '\"$user\", public'\nspark.sql.shuffle.partitions = 8\nspark.hadoop.fs.s3a.access-key = 'k'\n",
    )
    read = Settings(data_dir).load()
    assert read.text("cluster_name") == "it's"
    assert read.text("work_mem") == "8MB"
    assert read.integer("port") == 5441
    assert read.text("app.x") == "a\tb"
    assert read.spark()["spark.sql.shuffle.partitions"] == "8"
    assert read.spark()["spark.hadoop.fs.s3a.access-key"] == "k"
    assert read.spark()["spark.master"] == read["spark.master"] == "local[*]"
    assert read.setting("port").line == len((data_dir / "headgate.conf").read_text().splitlines()) - 4
    append(data_dir, "spark.master = 'local[3]'\n")
    assert Settings(data_dir).load().text("spark_master") == "local[3]"


def test_command_line_overrides_alter_system_and_alter_system_overrides_the_file(data_dir: Path) -> None:
    append(data_dir, "work_mem = 1MB\nport = 1111\ncluster_name = a\n")
    Settings(data_dir).load().alter_system("work_mem", "2MB")
    Settings(data_dir).load().alter_system("cluster_name", "it's")
    loaded = Settings(data_dir, {"port": "2222"}).load()
    assert (loaded.text("work_mem"), loaded.integer("port"), loaded.text("cluster_name")) == ("2MB", 2222, "it's")
    loaded.alter_system("work_mem", None)
    assert Settings(data_dir).load().text("work_mem") == "1MB"


def test_reload_reports_changes_and_settings_that_need_a_restart(data_dir: Path) -> None:
    loaded = Settings(data_dir, {"max_connections": "7"}).load()
    append(data_dir, "work_mem = 1MB\nport = 1111\nmax_connections = 9\n")
    done = loaded.reload()
    assert done.changed == ("work_mem",)
    assert [error.message for error in done.messages][:2] == [
        'parameter "port" cannot be changed without restarting the server',
        'parameter "work_mem" changed to "1MB"',
    ]
    assert (loaded.integer("port"), loaded.integer("max_connections")) == (5432, 7)
    assert loaded.pending == {"port"}
    (data_dir / "headgate.conf").write_text("")
    assert 'parameter "work_mem" removed from configuration file, reset to default' in [error.message for error in loaded.reload().messages]


def test_reload_of_an_invalid_file_changes_nothing(data_dir: Path) -> None:
    loaded = Settings(data_dir).load()
    append(data_dir, "work_mem = 1MB\nnosuch = 1\n")
    messages = [error.message for error in loaded.reload().messages]
    assert messages[-1] == f'configuration file "{data_dir}/headgate.conf" contains errors; no changes were applied'
    assert loaded.text("work_mem") == "4MB"


LINES = ["port 70000 x", "port = 'abc", "x y z", "= 3", "port", "a.1 = 5", "nosuch = 1", "port = abc", "port == 1", "port = 5 5", "9 = 9"]


@pytest.mark.parametrize("line", LINES)
def test_invalid_line_is_rejected_with_postgresqls_message(line: str, data_dir: Path, cluster_file: Path) -> None:
    (data_dir / "headgate.conf").write_text(f"\n{line}\n")
    settings = Settings(data_dir)
    with pytest.raises(PostgresError, match="contains errors"):
        settings.load()
    expected = refused_by_postgresql(cluster_file, f"\n{line}\n")
    assert [error.message.replace(str(data_dir / "headgate.conf"), str(cluster_file)) for error in settings.complaints] == expected


@pytest.fixture(scope="module")
def cluster_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import os
    import shutil
    import tempfile

    from tests.conftest import PG_BIN

    folder = Path(tempfile.mkdtemp(prefix="headgate-test-"))
    owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if owner:
        shutil.chown(folder, "postgres")
    subprocess.run([*owner, PG_BIN / "initdb", "-D", folder / "data", "-A", "trust", "-N"], check=True, capture_output=True, cwd="/")
    yield folder / "data" / "postgresql.conf"
    shutil.rmtree(folder)


def refused_by_postgresql(conf: Path, text: str) -> list[str]:
    """Return the LOG messages of a PostgreSQL server that is started with this file."""
    import os
    import re

    from tests.conftest import PG_BIN

    conf.write_text(text)
    owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    completed = subprocess.run([*owner, PG_BIN / "postgres", "-D", conf.parent], capture_output=True, text=True, cwd="/", timeout=20)
    return re.findall(r"LOG:  (.*)", completed.stderr)


def test_contexts_of_important_settings_are_postgresqls() -> None:
    for name, context in (
        ("wal_level", SettingContext.POSTMASTER),
        ("log_min_messages", SettingContext.SUPERUSER),
        ("server_version", SettingContext.INTERNAL),
    ):
        definition = find(name)
        assert definition is not None
        assert definition.context is context
