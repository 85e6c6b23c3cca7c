"""Google's storage for tests: fake-gcs-server, behind ``googlestorage/main.go``, which adds the interface that obstore uses.

Go builds it the first time, which takes minutes, and it is cached beside the Delta jars. If Go is missing or too old, its tests are
skipped. Both clients get their tokens by the key of a service account, which is created for the run. Requests of obstore without a token
are rejected.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
import uuid
from pathlib import Path

import fsspec
import pytest
from tests.clients import installation
from tests.object_store import BUCKET, ObjectStore

from headgate.storage.location.object_store import google

MODULE = Path(__file__).parent / "googlestorage"


class GoogleStorage(ObjectStore):
    """The server. `secret` is a part of the service account's key, which no output may show."""

    def __init__(self, folder: Path, *options: str) -> None:
        reason = installation.without_go(MODULE)
        if reason is not None:
            pytest.skip(reason)
        self._program = installation.built_by_go("googlestorage", MODULE)
        self._options = options
        private = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA"], capture_output=True, text=True, check=True).stdout
        super().__init__(folder)
        self.secret = private.splitlines()[3]
        self.key = key(private, f"{self.endpoint}/token")
        self.credentials.write_text(self.key)

    def _command(self, _: Path) -> list[str]:
        return [str(self._program), "-port", str(self.port), "-bucket", BUCKET, *self._options]

    def _is_up(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/_internal/healthcheck", timeout=10):
            return True
        return False

    @property
    def files(self) -> fsspec.AbstractFileSystem:
        """Return a client of the store, for tests that read its files."""
        settings = {name: value.strip("'") for name, value in self.settings().items()}
        return google.GoogleStorage().path(f"gs://{BUCKET}", settings).fs

    def settings(self, location: str | None = None) -> dict[str, str]:
        """Return the settings of a node. `location`: the location of another node, to share it."""
        return {
            "data_location": f"'{location or f'gs://{BUCKET}/{uuid.uuid4().hex[:8]}'}'",
            "data_location_endpoint": f"'{self.endpoint}'",
            "data_location_credentials": f"'file:{self.credentials}'",
        }


def key(private: str, tokens: str) -> str:
    """Return the JSON key of a service account that gets its tokens at an address."""
    return json.dumps(
        {
            "type": "service_account",
            "project_id": "tests",
            "private_key_id": "1",
            "private_key": private,
            "client_email": "node@tests.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": tokens,
        }
    )
