"""Google Cloud Storage: reached by obstore from Python, by Google's connector for Hadoop from Java.

Made by `object_store`. The setting `data_location_credentials` names where the JSON key of a service account is, ``env:NAME`` (a variable
that holds it) or ``file:/a/file``; without it both clients go the usual way: GOOGLE_APPLICATION_CREDENTIALS, what gcloud has left, the
machine's service account. Java takes a key from a file alone, so one of a variable is written into the node's scratch folder, for its user
to read.

What must hold: the tag of a file is its generation, which the store counts up at each write; conditions are on it. Java's client repairs no
folders (`implicit.dir.repair.enable`), so that it makes no files that mark them: obstore cannot name those (`obstore_requests`), so they
would never be removed. Those that others have made are listed as empty files, and passed over.
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
"""A bucket and a prefix without what a URI, a pattern of DuckDB's or a shell reads as something else."""
_HINT = "It names an environment variable that holds the JSON key of a service account, env:NAME, or a file, file:/path."
_KEY_FILE = "google-key.json"


class GoogleStorage(ObstoreRequests):
    """Google Cloud Storage; see `Store`."""

    name = "gs"
    title = "Google Cloud Storage"
    scheme = "gs"
    example = "gs://bucket/prefix"

    def is_place(self, place: str) -> bool:
        """See `Store`."""
        return _PLACE.fullmatch(place) is not None

    def path(self, given: str, settings: Mapping[str, str]) -> UPath:
        """See `Store`."""
        config: dict[str, str] = {}
        endpoint = settings.get("data_location_endpoint", "").rstrip("/")
        if endpoint:
            config["base_url"] = endpoint
        if key := _key(settings):
            config["service_account_key"] = key
        return self._reached(given, config, endpoint)

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """See `Store`."""
        found = {
            "impl": _CONNECTOR,
            "implicit.dir.repair.enable": "false",
            "auth.type": "APPLICATION_DEFAULT",
            "inputstream.fadvise": "AUTO",
        }
        if endpoint := settings.get("data_location_endpoint", ""):
            found["storage.root.url"] = endpoint.rstrip("/") + "/"
        source = credentials.find(settings, _HINT, names=(1,))
        if source is not None:
            file = source.file or _written(scratch / _KEY_FILE, source.variables[0])
            found |= {"auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "auth.service.account.json.keyfile": str(file)}
        return {f"spark.hadoop.fs.gs.{name}": value for name, value in found.items()}


def _key(settings: Mapping[str, str]) -> str | None:
    """The JSON key that the setting names; None where it names none. 22023, F0000 where it cannot be had."""
    source = credentials.find(settings, _HINT, names=(1,))
    if source is None:
        return None
    if source.file is not None:
        return credentials.read(source.file, _checked)
    try:
        return _checked(source.variables[0])
    except NoCredentialsError as error:
        raise credentials.invalid(f"The variable holds no credentials. {error}") from None


def _checked(text: str) -> str:
    """A JSON key, if that is what a text is."""
    try:
        found = json.loads(text)
    except ValueError:  # what it says shows nothing, but its context does
        found = None
    wanted = ("client_email", "private_key")
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) and found[name] for name in wanted):
        raise NoCredentialsError('It is the JSON key of a service account, with "client_email" and "private_key".') from None
    return text


def _written(file: Path, key: str) -> Path:
    """The file, with this key, for the node's user alone."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:
        target.write(key)
    return file
