"""Google's storage for tests: fake-gcs-server, before which ``googlestorage/main.go`` puts the interface that obstore uses.

It is built by Go when it is first needed (minutes) and kept beside the Delta jars; where Go is missing or too old its tests are skipped.
Both clients get their tokens by the key of a service account that is made for the run; requests of obstore's without one are refused.
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
    """The server; `secret` is of the key, and is to be seen nowhere."""

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
        """The store, for tests that look into it."""
        settings = {name: value.strip("'") for name, value in self.settings().items()}
        return google.GoogleStorage().path(f"gs://{BUCKET}", settings).fs

    def settings(self, location: str | None = None) -> dict[str, str]:
        """Settings of a node; `location`: another node's, to be shared."""
        return {
            "data_location": f"'{location or f'gs://{BUCKET}/{uuid.uuid4().hex[:8]}'}'",
            "data_location_endpoint": f"'{self.endpoint}'",
            "data_location_credentials": f"'file:{self.credentials}'",
        }


def key(private: str, tokens: str) -> str:
    """The JSON key of a service account, which gets its tokens at an address."""
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
