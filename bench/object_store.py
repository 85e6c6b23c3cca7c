"""The object store of part `cluster`: Versity's S3 gateway over a local folder. It enforces conditional writes and uses all cores.

Go builds it the first time, with the checksums of ``versitygw/go.sum``, in about a minute. The program (80 MB) is cached beside the Delta
jars. If Go is missing or too old, or the build fails, the tests' moto is used instead. It runs on one core of Python, which then limits
the figures.
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
    """Versity's gateway. A bucket is a folder, and the ETag of a file is an extended attribute."""

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
    """Start a store. Return it and its description."""
    folder.mkdir()
    reason = installation.without_go(MODULE)
    if reason is None:
        try:
            return Gateway(folder, installation.built_by_go("versitygw", MODULE, PACKAGE)), "Versity's S3 gateway"
        except AssertionError as error:
            reason = str(error).strip().splitlines()[-1]
    return ObjectStore(folder), f"moto, one core of Python ({reason})"
