"""A wheel in an empty environment with Java and PostgreSQL is enough for `headgate demo`, which downloads the jars first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_wheel_is_all_that_a_demonstration_needs(tmp_path: Path) -> None:
    def do(*arguments: str | Path, seconds: float = 900) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HEADGATE_JARS", "VIRTUAL_ENV")}
        environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        completed = subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, env=environment, cwd=tmp_path)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout

    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    wheel = next(tmp_path.glob("headgate-*.whl"))
    do(sys.executable, "-m", "venv", tmp_path / "empty")
    programs = tmp_path / "empty" / "bin"
    do(programs / "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
    output = do(programs / "headgate", "demo", "--rows", "20000", "--seconds", "5", seconds=600)
    assert output.startswith("fetching the Delta jars ... ok")
    assert (tmp_path / "empty" / "share" / "headgate" / "headgate.service").is_file()
