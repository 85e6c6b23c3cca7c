"""initdb creates its files, and rejects what the real initdb rejects."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import duckdb
import pytest
from tests.conftest import HEADGATE, PG_BIN


def headgate(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "HEADGATE_DATA"}
    return subprocess.run([*HEADGATE, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def initdb(*arguments: str) -> subprocess.CompletedProcess[str]:
    owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    environment = {name: value for name, value in os.environ.items() if name != "PGDATA"}
    return subprocess.run([*owner, PG_BIN / "initdb", *arguments], capture_output=True, text=True, cwd="/", env=environment)


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("initdb: error")]


def test_initdb_creates_a_private_directory_with_configuration_and_catalog(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    completed = headgate("initdb", "-D", str(data), "-U", "admin", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    assert f"creating directory {data} ... ok\n" in completed.stdout
    assert completed.stdout.endswith(f"    headgate start -D {data} -l logfile\n\n")
    assert data.stat().st_mode & 0o777 == 0o700
    assert {"HG_VERSION", "headgate.conf", "headgate.auto.conf", "pg_hba.conf", "base", "catalog.duckdb"} <= {
        file.name for file in data.iterdir()
    }
    assert all(file.stat().st_mode & 0o077 == 0 for file in data.iterdir())
    with duckdb.connect(str(data / "catalog.duckdb"), read_only=True) as catalog:
        assert catalog.execute("SELECT rolname FROM hg.pg_authid WHERE rolsuper").fetchall() == [("admin",)]


def test_directory_that_is_not_empty_is_rejected_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    completed = headgate("initdb", "-D", str(tmp_path))
    assert completed.returncode == 1
    assert completed.stderr.splitlines()[-2:] == [
        f'initdb: error: directory "{tmp_path}" exists but is not empty',
        "initdb: hint: If you want to create a new node, either remove or empty the directory "
        f'"{tmp_path}" or run initdb with an argument other than "{tmp_path}".',
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments", [["-A", "nonsense"], ["-A", "scram-sha-256"], ["-U", "pg_me"], ["--pwfile", "/nonexistent/password"], []]
)
def test_invalid_arguments_are_rejected_with_the_messages_of_initdb(arguments: list[str], tmp_path: Path) -> None:
    directory = ["-D", str(tmp_path / "data")] if arguments else []
    expected, actual = initdb(*directory, *arguments), headgate("initdb", *directory, *arguments)
    assert actual.returncode == expected.returncode == 1
    if "--pwfile" not in arguments:  # initdb looks at the file later
        assert errors(actual) == errors(expected)
    assert not (tmp_path / "data").exists()


def test_failed_initdb_leaves_nothing_behind(tmp_path: Path) -> None:
    parent = tmp_path / "file"
    parent.write_text("")
    assert headgate("initdb", "-D", str(parent / "data")).returncode == 1
    assert headgate("initdb", "-D", str(parent)).returncode == 1
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_password_is_stored_only_as_a_scram_verifier(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\nsecond line\n")
    data = tmp_path / "data"
    completed = headgate("initdb", "-D", str(data), "-A", "scram-sha-256", "--pwfile", str(tmp_path / "password"), "-U", "postgres")
    assert completed.returncode == 0, completed.stderr
    with duckdb.connect(str(data / "catalog.duckdb"), read_only=True) as catalog:
        [(stored,)] = catalog.execute("SELECT rolpassword FROM hg.pg_authid WHERE rolsuper").fetchall()
    assert stored.startswith("SCRAM-SHA-256$4096:")
    assert "scram-sha-256" in (data / "pg_hba.conf").read_text()
    assert b"geheim" not in b"".join(file.read_bytes() for file in data.iterdir() if file.is_file())


@pytest.mark.slow
def test_default_trust_authentication_gives_a_warning(tmp_path: Path) -> None:
    assert 'initdb: warning: enabling "trust" authentication' in headgate("initdb", "-D", str(tmp_path / "data")).stderr


@pytest.mark.slow
def test_settings_can_be_given(tmp_path: Path) -> None:
    headgate("initdb", "-D", str(tmp_path / "data"), "-c", "port=5440", "-c", "spark.sql.shuffle.partitions=3")
    lines = (tmp_path / "data" / "headgate.conf").read_text().splitlines()
    assert any(line.startswith("port = 5440 ") for line in lines)
    assert "spark.sql.shuffle.partitions = '3'" in lines
