"""Google Cloud Storage. Python accesses it through obstore, Java through Google's connector for Hadoop.

Made by `object_store`. The setting `data_location_credentials` names the source of a service account's JSON key: ``env:NAME`` (a variable
that contains it) or ``file:/a/file``. Without it both clients use the default chain: GOOGLE_APPLICATION_CREDENTIALS, gcloud's credentials,
the machine's service account. Java reads a key only from a file, so a key in a variable is written into the node's scratch folder, readable
only by its user.

Invariant: the tag of a file is its generation, which the store increments at each write; conditions use it. Java's client does not
repair folders (`implicit.dir.repair.enable`), so that it creates no marker files for them. obstore cannot name those (`obstore_requests`),
so they would never be removed. Markers that other programs have created are listed as empty files, and skipped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.storage.location.object_store import credentials
from headgate.storage.location.object_store.credentials import NoCredentialsError
from headgate.storage.location.object_store.obstore_requests import ObstoreRequests

if TYPE_CHECKING:
    from upath import UPath

_CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
_PLACE = re.compile(r"[a-z0-9][a-z0-9._-]+(/(?!\.{1,2}(/|\Z))[\w.=@~+,:-]+)+/?", re.ASCII)
"""A bucket and a prefix, without characters that are special in a URI, a pattern of DuckDB or a shell."""
_HINT = "It names an environment variable that holds the JSON key of a service account, env:NAME, or a file, file:/path."
_KEY_FILE = "google-key.json"


class GoogleStorage(ObstoreRequests):
    """Google Cloud Storage; see `Store`."""

    name = "gs"
    title = "Google Cloud Storage"
    scheme = "gs"
    example = "gs://bucket/prefix"

    def is_place(self, place: str) -> bool:
        return _PLACE.fullmatch(place) is not None

    def path(self, uri: str, settings: Mapping[str, str]) -> UPath:
        config: dict[str, str] = {}
        endpoint = settings.get("data_location_endpoint", "").rstrip("/")
        if endpoint:
            config["base_url"] = endpoint
        if key := _key(settings):
            config["service_account_key"] = key
        return self._path_of(uri, config, endpoint)

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        options = {
            "impl": _CONNECTOR,
            "implicit.dir.repair.enable": "false",
            "auth.type": "APPLICATION_DEFAULT",
            "inputstream.fadvise": "AUTO",
        }
        if endpoint := settings.get("data_location_endpoint", ""):
            options["storage.root.url"] = endpoint.rstrip("/") + "/"
        source = credentials.find(settings, _HINT, names=(1,))
        if source is not None:
            file = source.file or _write_key(scratch / _KEY_FILE, source.variables[0])
            options |= {"auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "auth.service.account.json.keyfile": str(file)}
        return {f"spark.hadoop.fs.gs.{name}": value for name, value in options.items()}


def _key(settings: Mapping[str, str]) -> str | None:
    """Return the JSON key that the setting names, or None. Raise 22023 or F0000 if it is not available."""
    source = credentials.find(settings, _HINT, names=(1,))
    if source is None:
        return None
    if source.file is not None:
        return credentials.read(source.file, _check_key)
    try:
        return _check_key(source.variables[0])
    except NoCredentialsError as error:
        raise credentials.invalid(f"The variable holds no credentials. {error}") from None


def _check_key(text: str) -> str:
    """Return the text if it is a JSON key, otherwise raise NoCredentialsError."""
    try:
        key = json.loads(text)
    except ValueError:  # its message shows nothing of the text, but its context does
        key = None
    required = ("client_email", "private_key")
    if not isinstance(key, dict) or not all(isinstance(key.get(name), str) and key[name] for name in required):
        raise NoCredentialsError('It is the JSON key of a service account, with "client_email" and "private_key".') from None
    return text


def _write_key(file: Path, key: str) -> Path:
    """Write the key to a file that only the node's user can access. Return the file."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:
        target.write(key)
    return file
