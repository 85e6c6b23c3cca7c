"""The pages of docs/guide work as printed, in an environment with only the packages that the pages install.

Only the ports differ. The packages come from `requirements-guide.txt`, so that the pages' ``pip install`` finds them. Spark downloads
Delta's jars, as on a user's machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients import installation
from tests.conftest import PG_BIN, Server, free_port
from tests.repo.page import ROOT, Block, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SAVED = re.compile(r"[Ss]ave this as `([^`]+)`")
NODE, POSTGRESQL = "5440", "5432"


class Reader:
    """A person who types the blocks of a page, in a separate folder."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder, self.ports = folder, ports
        self.port = POSTGRESQL
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "dist"]
        subprocess.run([*wheel, ROOT / "pyspark-headgate"], check=True, capture_output=True)
        python = installation.python("guide")
        packages = installation.printed(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        path = f"{folder}/spark/bin:{python.parent}:{PG_BIN}:{os.environ['PATH']}"  # the first as `source spark/bin/activate` sets it
        self.environment = installation.environment(PATH=path, PYTHONPATH=packages)

    def here(self, text: str) -> str:
        for port, replacement in self.ports.items():
            text = text.replace(port, str(replacement))
        return text

    def run(self, block: Block) -> str:
        """Save or type one block. SQL goes to the server that the paragraph before it names first, else to the same as before."""
        text, saved = self.here(block.text), SAVED.search(block.before)
        if saved is not None:
            place = self.folder / saved[1]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            return ""
        if block.language == "shell":
            return self._printed(["bash", "-ec", text])
        assert block.language == "sql", block
        clients_by_position = {
            block.before.find(word): port for word, port in (("PostgreSQL", POSTGRESQL), ("the node", NODE)) if word in block.before
        }
        self.port = clients_by_position[min(clients_by_position)] if clients_by_position else self.port
        return self._printed(
            ["psql", "-h", "127.0.0.1", "-p", self.here(self.port), "-U", "postgres", "-XAt", "-v", "ON_ERROR_STOP=1", "-c", text]
        )

    def _printed(self, command: list[str]) -> str:
        completed = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900)
        assert completed.returncode == 0, f"{command}\n{completed.stdout[-3000:]}\n{completed.stderr[-3000:]}"
        return completed.stdout

    def read(self, page: str) -> None:
        """Type all blocks of a page. A block without a language is what the program before it prints."""
        printed = ""
        for block in blocks(page):
            if block.language == "text":
                assert block.text.strip() in printed, f"{page}:{block.line}\n{printed[-3000:]}"
            else:
                printed = self.run(block)


@pytest.fixture
def reader(cluster: Callable[..., Server], tmp_path: Path) -> Reader:
    return Reader(tmp_path, {POSTGRESQL: cluster().port, NODE: free_port()})


def test_a_filtered_table_is_streamed_into_delta(reader: Reader) -> None:
    reader.read("docs/guide/stream.md")


def test_merge_and_pipeline_keep_rows_and_versions(reader: Reader) -> None:
    reader.read("docs/guide/scd.md")
    count = (
        "from pyspark.sql import SparkSession; spark = SparkSession.builder.getOrCreate();"
        "print([spark.read.format('delta').load(f'spark-warehouse/customers_scd_{n}').count() for n in (1, 2)])"
    )
    assert "[3, 3]" in reader.run(Block("shell", f'SPARK_CONF_DIR=conf python -c "{count}"', 0))


def test_report_reads_five_tables_at_one_lsn(cluster: Callable[..., Server], own_node: Callable[..., Server], tmp_path: Path) -> None:
    reader = Reader(tmp_path, {POSTGRESQL: cluster().port, NODE: own_node().port})
    reader.read("docs/guide/report.md")
