"""The repository follows its own rules: lock files, the README's commands, licences and set-up."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headgate.cli import main

ROOT = Path(__file__).parents[2]


def test_make_without_a_target_lists_the_targets() -> None:
    listed = subprocess.run(["make", "--no-print-directory"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    for target in ("setup", "demo", "test", "check", "bench", "clean"):
        assert re.search(rf"^  make {target} +\S", listed, re.M), target


def test_commands_of_the_readme_are_targets_and_ci_runs_the_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^    make (\w+)", readme, re.M)
    assert targets == ["demo", "test", "setup"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec make test")


@pytest.mark.parametrize("command", ["initdb", "start", "stop", "restart", "reload", "status", "check", "backup", "upgrade", "run", "demo"])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main._main([command, "--help"]) == 0
    assert f"headgate {command}" in capsys.readouterr().out


LOCKS = [path.name for path in sorted(ROOT.glob("requirements*.txt"))]


@pytest.mark.parametrize("file", LOCKS)
def test_lock_pins_every_package_with_hashes_and_names_no_host(file: str) -> None:
    text = (ROOT / file).read_text()
    packages = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert packages
    assert all("==" in line for line in packages)
    assert text.count("--hash=sha256:") >= len(packages)
    assert not re.search(r"/|file:|--index|--find-links", text), "a lock names packages, never a host or a path"


def test_locks_have_the_versions_that_the_project_requires() -> None:
    lock = (ROOT / "requirements.txt").read_text()
    assert "pyspark==4.1.4 " in lock
    assert "delta-spark==4.4.0 " in lock


def test_wheel_contains_the_licence_of_postgresqls_data(tmp_path: Path) -> None:
    notice = (ROOT / "NOTICE").read_text()
    assert "Portions Copyright (c) 1994, The Regents of the University of California" in notice
    data = [path_of_data for path_of_data in (ROOT / "src").rglob("*") if path_of_data.suffix in (".csv", ".parquet", ".json")]
    data = [path for path in data if path.name not in ("headgate.csv", "jars.csv")]
    assert data
    assert all(any(str(path.relative_to(ROOT)) in notice for path in (data_path, data_path.parent)) for data_path in data)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {Path(name).name for name in archive.namelist() if "/licenses/" in name} == {"LICENSE", "NOTICE"}


def test_second_set_up_does_nothing() -> None:
    if not (ROOT / ".setup" / "stamp").exists():
        pytest.skip("this tree was not set up by make setup")
    completed = subprocess.run(["bash", "scripts/setup.sh"], capture_output=True, text=True, cwd=ROOT)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@pytest.mark.slow
def test_tests_of_a_file_run_in_one_process(tmp_path: Path) -> None:
    """Otherwise the fixtures of a file would be created in both processes."""
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(
            "import os, pytest\n@pytest.mark.parametrize('n', range(8))\n"
            "def test_it(n):\n    open(f'{__file__}.' + os.environ['PYTEST_XDIST_WORKER'], 'w').close()\n"
        )
    options = re.search(r"^ABREAST := (.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert options is not None
    subprocess.run([sys.executable, "-m", "pytest", "-q", *options[1].split(), "."], cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.name.partition(".py.")[0] for path in tmp_path.glob("*.gw*")) == ["test_one", "test_two"]


def test_every_module_begins_with_a_docstring() -> None:
    import ast

    bare = [str(path) for path in (ROOT / "src").rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert bare == []
