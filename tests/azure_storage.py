"""Azure Blob Storage for tests: Azurite, Microsoft's emulator of an account with a flat namespace.

It is an npm package (``npm install --global azurite``). If it is not installed, its tests are skipped.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import subprocess
import urllib.parse
import urllib.request
import uuid
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest
from tests.conftest import free_port
from tests.object_store import await_start

from headgate.storage.location.object_store import azure

CONTAINER, ACCOUNT = "lake", "headgatetests"
VERSION = "2021-12-02"
PLACE = f"{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"


class AzureStorage:
    """The emulator. `secret` is the account's key, which no output may show."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("azurite-blob")
        if program is None:
            pytest.skip("azurite-blob is not installed (npm's package azurite)")
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.secret = base64.b64encode(secrets.token_bytes(64)).decode()
        self.log = folder / "azurite.log"
        self.credentials = folder / "azure-credentials"
        self.credentials.write_text(f"[default]\naccount_key = {self.secret}\n")
        self.credentials.chmod(0o600)
        command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort", str(self.port)]
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.secret}"}
        with self.log.open("wb") as log_file:
            self._process = subprocess.Popen(command, stdout=log_file, stderr=log_file, env=environment, cwd=folder)
        await_start(self._process, self._is_up, self.log)
        self._make_container()

    def _is_up(self) -> bool:
        return "successfully listens" in self.log.read_text()

    def _make_container(self) -> None:
        """Create the container. The two clients of a node do not create it."""
        headers = {"x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "x-ms-version": VERSION}
        header_lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed = self._signature("PUT" + "\n" * 12 + f"{header_lines}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container")
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signed}"
        url = f"{self.endpoint}/{ACCOUNT}/{CONTAINER}?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()

    def token(self) -> str:
        """Return a shared access signature for the container."""
        permissions = {"sp": "racwdl", "se": "2100-01-01T00:00:00Z", "sv": VERSION, "sr": "c"}
        signed = [
            permissions["sp"],
            "",
            permissions["se"],
            f"/blob/{ACCOUNT}/{CONTAINER}",
            "",
            "",
            "",
            permissions["sv"],
            permissions["sr"],
            *[""] * 7,
        ]
        return urllib.parse.urlencode({**permissions, "sig": self._signature("\n".join(signed))})

    def _signature(self, text: str) -> str:
        return base64.b64encode(hmac.digest(base64.b64decode(self.secret), text.encode(), hashlib.sha256)).decode()

    @property
    def files(self) -> fsspec.AbstractFileSystem:
        """Return a client of the store, for tests that read its files."""
        settings = {name: value.strip("'") for name, value in self.settings().items()}
        return azure.AzureStorage().path(settings["data_location"], settings).fs

    def settings(self, location: str | None = None) -> dict[str, str]:
        """Return the settings of a node. `location`: the location of another node, to share it."""
        return {
            "data_location": f"'{location or f'abfss://{PLACE}/{uuid.uuid4().hex[:8]}'}'",
            "data_location_endpoint": f"'{self.endpoint}'",
            "data_location_credentials": f"'file:{self.credentials}'",
        }

    def end(self) -> None:
        """End the emulator."""
        self._process.kill()
        self._process.wait()
