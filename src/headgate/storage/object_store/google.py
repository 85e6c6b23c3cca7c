"""Google Cloud Storage: reached by obstore from Python, by Google's connector for Hadoop from Java.

Made by `object_store`. The setting `data_location_credentials` names where the JSON key of a service account is, ``env:NAME`` (a variable
that holds it) or ``file:/a/file``; without it both clients go the usual way: GOOGLE_APPLICATION_CREDENTIALS, what gcloud has left, the
machine's service account. Java takes a key from a file alone, so one of a variable is written into the node's scratch folder, for its user
to read.

What must hold: the tag of a file is its generation, which the store counts up at each write; conditions are on it. Java's client makes no
files that mark folders: obstore cannot name them (it takes the slash at a name's end away), so they would never be removed. Those that
others have made are listed as empty files, and passed over: no file of a table is empty.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.storage.object_store import credentials
from headgate.storage.object_store.credentials import NoCredentialsError
from headgate.storage.object_store.store import StoredFile

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from upath import UPath

_CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
_PLACE = re.compile(r"[a-z0-9][a-z0-9._-]+(/(?!\.{1,2}(/|\Z))[\w.=@~+,:-]+)+/?", re.ASCII)
"""A bucket and a prefix without what a URI, a pattern of DuckDB's or a shell reads as something else."""
_HINT = "It names an environment variable that holds the JSON key of a service account, env:NAME, or a file, file:/path."
_KEY_FILE = "google-key.json"
CLIENT = {"connect_timeout": "5s", "timeout": "30s"}
"""How long the store may take to take a connection, and to answer."""
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}


class GoogleStorage:
    """Google Cloud Storage; see `Store`."""

    name = "gs"
    title = "Google Cloud Storage"
    scheme = "gs"
    modules = "upath.implementations.cloud,obstore.fsspec"

    def is_place(self, place: str) -> bool:
        """See `Store`."""
        return _PLACE.fullmatch(place) is not None

    def path(self, given: str, settings: Mapping[str, str]) -> UPath:
        """See `Store`."""
        from upath import UPath

        _register()
        config: dict[str, str] = {}
        client: dict[str, Any] = {**CLIENT}
        if endpoint := settings.get("data_location_endpoint", ""):
            config["base_url"] = endpoint.rstrip("/")
            client["allow_http"] = endpoint.startswith("http://")
        if key := _key(settings):
            config["service_account_key"] = key
        found: UPath = UPath(given.rstrip("/"), config=config, client_options=client, retry_config=RETRIES)
        return found

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

    def split(self, path: UPath) -> tuple[str, str]:
        """See `Store`."""
        bucket, _, key = str(path.path).partition("/")
        return bucket, key.rstrip("/")

    def listed(self, folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
        """See `Store`."""
        import obstore

        client, key = self._client(folder)
        skipped = len(key) + 1 if key else 0
        if folders:
            found = obstore.list_with_delimiter(client, key)
            yield from (StoredFile(f"{name[skipped:]}/", 0, 0.0) for name in found["common_prefixes"])
            pages: Any = [found["objects"]]
        else:
            pages = obstore.list(client, key, chunk_size=1_000)
        for page in pages:
            for each in page:
                if each["size"]:
                    yield StoredFile(each["path"][skipped:], each["size"], each["last_modified"].timestamp())

    def remove(self, near: UPath, keys: Sequence[str]) -> None:
        """See `Store`."""
        import obstore

        client, _ = self._client(near)
        try:
            obstore.delete(client, list(keys))
        except FileNotFoundError:  # it ends with the first that is not there
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(client, key)

    def tag(self, path: UPath) -> str:
        """See `Store`."""
        import obstore

        return _tag(obstore.head(*self._client(path)))

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        """See `Store`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        client, key = self._client(path)
        try:
            answer = obstore.put(client, key, content, mode="create" if before is None else json.loads(before))
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(errno.EEXIST, "File exists", str(path)) from error
        return _tag(answer)

    def _client(self, path: UPath) -> tuple[ObjectStore, str]:
        bucket, key = self.split(path)
        return path.fs._construct_store(bucket), key


def _tag(answer: Mapping[str, Any]) -> str:
    return json.dumps({name: answer[name] for name in ("e_tag", "version") if answer[name] is not None})


@functools.cache
def _register() -> None:
    """Has fsspec, and so universal_pathlib, reach the store by obstore."""
    import fsspec
    from obstore.fsspec import FsspecStore

    fsspec.register_implementation("gs", type("GoogleFiles", (FsspecStore,), {"protocol": "gs"}), clobber=True)


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
