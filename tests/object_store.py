"""An object store for tests: moto's server in a separate process, which supports S3's protocol and conditional writes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import fsspec
from tests.conftest import free_port, until

BUCKET = "lake"
KEY, SECRET = "access-key-of-tests", "secret-of-tests"


def await_start(process: subprocess.Popen[bytes], is_up: Callable[[], bool], log: Path, seconds: float = 60) -> None:
    """Wait until a server answers. End it if it does not, because it does not belong to a fixture yet."""

    def answers() -> bool:
        assert process.poll() is None, "the server has ended"
        return is_up()

    try:
        until(answers, "the server does not answer", seconds)
    except BaseException as error:
        process.kill()
        process.wait()
        error.add_note(log.read_text(errors="replace"))
        raise


class ObjectStore:
    """The server. `settings` returns the settings of a node that has its tables at a separate prefix."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.log = folder / "object_store.log"
        self.credentials = folder / "credentials"
        self.credentials.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        self.credentials.chmod(0o600)
        with self.log.open("wb") as log_file:
            self._process = subprocess.Popen(self._command(folder), stdout=log_file, stderr=log_file)
        await_start(self._process, self._is_up, self.log)

    def _command(self, _: Path) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def _is_up(self) -> bool:
        bucket_request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        with contextlib.suppress(OSError), urllib.request.urlopen(bucket_request, timeout=10):
            return True
        return False

    @property
    def files(self) -> fsspec.AbstractFileSystem:
        """The store's file system, for tests that read its files."""
        return fsspec.filesystem(
            "s3", key=KEY, secret=SECRET, endpoint_url=self.endpoint, client_kwargs={"region_name": "us-east-1"}, use_listings_cache=False
        )

    def settings(self, location: str | None = None) -> dict[str, str]:
        """Return the settings of a node. `location`: the location of another node, to share it."""
        return {
            "data_location": f"'{location or f's3a://{BUCKET}/{uuid.uuid4().hex[:8]}'}'",
            "data_location_endpoint": f"'{self.endpoint}'",
            "data_location_region": "'us-east-1'",
            "data_location_credentials": f"'file:{self.credentials}'",
        }

    def end(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()
