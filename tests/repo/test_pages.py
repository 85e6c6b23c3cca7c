"""The commands of README and of the pages that it links to work in order, from a fresh clone, as printed.

Only the ports differ. Blocks with placeholders ("…", DIR) are skipped. tests/system/test_change_feed.py runs docs/readers.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import PG_BIN, Server, free_port, until
from tests.repo.page import ROOT, Block, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PAGES = ("docs/operations.md", "docs/verify.md", "docs/reconcile.md", "docs/monitoring.md")
SECTION = "Five minutes with psql"
NATIVE, NODE = "psql -p 5432 -U postgres", "psql -h 127.0.0.1 -p 5440 -U postgres"


@dataclass
class Hour:
    """A fresh clone and a PostgreSQL server, with ports that replace those of the pages."""

    clone: Path
    ports: dict[str, int]
    client: str = NODE

    def here(self, text: str) -> str:
        for port, replacement in self.ports.items():
            text = text.replace(port, str(replacement))
        return text

    def shell(self, text: str) -> str:
        """Return the output of the commands. Raise an error if one of them fails."""
        path = f"{self.clone}/.venv/bin:{PG_BIN}:{os.environ['PATH']}"
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "HEADGATE_DATA")}
        with (self.clone / "said").open("w+") as output_file:  # not a pipe: the node would keep it open
            completed = subprocess.run(
                ["bash", "-ec", self.here(text)], cwd=self.clone, stdout=output_file, stderr=output_file, timeout=900,
                env={**environment, "PATH": path, "PGHOST": "127.0.0.1"},
            )  # fmt: skip
            output_file.seek(0)
            printed = output_file.read()
        assert completed.returncode == 0, f"{text}\n{printed}"
        return printed

    def run(self, block: Block) -> str:
        """Type one block. SQL goes to the server that the paragraph before it names first, else to the same as the block before."""
        if block.language == "shell":
            return self.shell(block.text)
        places = {"PostgreSQL": NATIVE, "the node": NODE}
        clients_by_position = {block.before.find(word): client for word, client in places.items() if word in block.before}
        self.client = clients_by_position[min(clients_by_position)] if clients_by_position else self.client
        (self.clone / "sql").write_text(self.here(block.text))
        return self.shell(f"{self.client} -X -At -v ON_ERROR_STOP=1 -f sql")


@pytest.fixture
def hour(cluster: Callable[..., Server], tmp_path: Path) -> Iterator[Hour]:
    """A clone of the current commit, and a PostgreSQL server."""
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "headgate"], check=True)
    first_hour = Hour(tmp_path / "headgate", {"5432": cluster().port, "5440": free_port(), "9187": free_port()})
    yield first_hour
    first_hour.shell("headgate stop -D lake || true")


def _rows(printed: str) -> list[str]:
    return [row.split("|")[0] for row in printed.splitlines()]


def test_first_hour_works_as_the_pages_say(hour: Hour) -> None:
    five_minutes = [block for block in blocks("README.md", SECTION) if block.language in ("shell", "sql")]
    for block in five_minutes:
        printed = hour.run(block)
        if block.text.startswith("SELECT * FROM orders"):
            assert _rows(printed) == ["1", "3"]
        if block.text.startswith("UPDATE"):
            until(lambda: _rows(hour.shell(f"{NODE} -X -At -c 'SELECT * FROM orders ORDER BY id'")) == ["1", "2"])
        if "verify" in block.text:
            assert "public.orders: equal" in printed
        if block.text.startswith("until"):
            _picture(hour)
    for page in PAGES:
        hour.client = NODE
        for block in blocks(page):
            if block.language in ("shell", "sql") and not block.is_template:
                printed = hour.run(Block(block.language, block.text, block.line))
                if "explain_row" in block.text:
                    assert "publication|orders_eu|t|t|" in printed
                if "curl" in block.text:
                    assert 'headgate_subscription_state{database="postgres",state="streaming",subscription="lake"} ' in printed


def _picture(hour: Hour) -> None:
    """Return whether the picture of README shows the output of `headgate status`."""
    target = hour.clone / "status.svg"
    assert hour.shell(f"headgate status -D lake | {sys.executable} tools/picture.py {target}") == ""
    text = target.read_text()
    assert "http://www.w3.org/2000/svg" in text
    if "HEADGATE_PICTURE" in os.environ:
        status_text = text.replace(str(hour.clone), "/home/you/headgate").replace(sys.executable, "python")
        (ROOT / "docs" / "status.svg").write_text(status_text)


def test_pages_have_commands_that_can_be_typed() -> None:
    for page in ("README.md", *PAGES):
        assert [block for block in blocks(page) if block.language == "shell" and not block.is_template], page
