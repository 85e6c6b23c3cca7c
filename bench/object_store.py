"""The object store that `cluster` measures on: Versity's S3 gateway over a local folder. It enforces conditional writes and uses all cores.

It is built by Go, by the digests of ``versitygw/go.sum``, when it is first needed, and kept beside the Delta jars (a minute, 80 MB). Where
Go is missing or too old, or it cannot be built, the tests' moto takes its place: one core of Python, which is then what is measured.
"""

from __future__ import annotations

import contextlib
import urllib.request
from pathlib import Path

from tests.clients import installation
from tests.object_store import BUCKET, KEY, SECRET, ObjectStore

MODULE = Path(__file__).parent / "versitygw"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"


class Gateway(ObjectStore):
    """The gateway; a bucket is a folder, a file's ETag an extended attribute."""

    def __init__(self, folder: Path, program: Path) -> None:
        self._program = program
        super().__init__(folder)

    def _command(self, folder: Path) -> list[str]:
        buckets = folder / "buckets"
        (buckets / BUCKET).mkdir(parents=True)
        options = ["--port", f"127.0.0.1:{self.port}", "--access", KEY, "--secret", SECRET, "--keep-alive", "--quiet", "--health", "/alive"]
        return [str(self._program), *options, "posix", str(buckets)]

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/alive"):
            return True
        return False


def started(folder: Path) -> tuple[ObjectStore, str]:
    """The store, and what it is."""
    folder.mkdir()
    reason = installation.without_go(MODULE)
    if reason is None:
        try:
            return Gateway(folder, installation.built_by_go("versitygw", MODULE, PACKAGE)), "Versity's S3 gateway"
        except AssertionError as error:
            reason = str(error).strip().splitlines()[-1]
    return ObjectStore(folder), f"moto, one core of Python ({reason})"
