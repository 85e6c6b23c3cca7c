"""The README's five minutes, as they stand there but for the ports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import PG_BIN, Server, free_port, until

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_five_minutes_with_psql(cluster, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().split("## Five minutes with psql")[1].split("\n## ")[0]
    postgres: Server = cluster()
    port = free_port()
    environment = {**os.environ, "PGHOST": "127.0.0.1", "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{PG_BIN}:{os.environ['PATH']}"}
    wrapper = tmp_path / "headgate"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m headgate.cli.main "$@"\n')
    wrapper.chmod(0o755)

    def here(text: str) -> str:
        return text.replace("5432", str(postgres.port)).replace("5440", str(port))

    def shell(text: str) -> str:
        words = ["bash", "-ec", here(text.replace(". .venv/bin/activate\n", ""))]
        with (tmp_path / "said").open("w+") as said:  # not a pipe: the node would keep it open
            subprocess.run(words, cwd=tmp_path, env=environment, stdout=said, stderr=said, timeout=120, check=True)
            said.seek(0)
            return said.read()

    def psql(client: str, text: str) -> str:
        (tmp_path / "sql").write_text(here(text))
        return shell(f"{client} -X -At -v ON_ERROR_STOP=1 -f sql")

    native, node = re.findall(r"\(`(psql [^`]*)`\)", section)
    commands = [
        re.sub(r"^    ", "", block, flags=re.M)
        for block in re.findall(r"(?:^    .*\n)+", re.sub(r"```.*?```", "", section, flags=re.S), re.M)
    ]
    sql = re.findall(r"```sql\n(.*?)```", section, re.S)
    shell(commands[0])
    try:
        psql(native, sql[0])
        psql(node, sql[1])
        shell(commands[1])
        assert [row.split("|")[0] for row in psql(node, sql[2]).splitlines()] == ["1", "3"]
        psql(native, sql[3])
        until(lambda: [row.split("|")[0] for row in psql(node, sql[2]).splitlines()] == ["1", "2"])
        picture = shell(f"headgate status -D lake | {sys.executable} {ROOT}/tools/picture.py {tmp_path}/status.svg")
        assert picture == ""
        assert "http://www.w3.org/2000/svg" in (tmp_path / "status.svg").read_text()
        if "HEADGATE_PICTURE" in os.environ:
            text = (tmp_path / "status.svg").read_text().replace(str(tmp_path), "/home/you").replace(sys.executable, "python")
            (ROOT / "docs" / "status.svg").write_text(text)
    finally:
        shell("headgate stop -D lake")
