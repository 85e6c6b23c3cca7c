"""The requests to a store that is accessed through obstore: the part of `store.Store` that `google` and `azure` have in common.

Invariant: the marker files of folders, whose size is 0, never count as files of a table. No file of a table is empty. obstore
strips the slash at the end of a name.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headgate.storage.location.object_store.store import StoredFile

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore
    from upath import UPath

CLIENT: ClientConfig = {"connect_timeout": "5s", "timeout": "30s"}
"""Time limits for the store to accept a connection, and to answer."""
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}


class ObstoreRequests:
    """The requests. A subclass sets the scheme, and the fields that identify a file's content."""

    scheme: str
    modules = "upath.implementations.cloud,obstore.fsspec"
    _of_tag: tuple[str, ...] = ("e_tag", "version")
    _marks_listed = False
    """Whether a listing of all files below a folder includes the markers of folders, with a slash at their end."""

    def _path_of(self, uri: str, config: Mapping[str, str], endpoint: str) -> UPath:
        """Return the path of a URI, whose files obstore reads and writes."""
        from upath import UPath

        register(self.scheme)
        client = CLIENT.copy()
        if endpoint:
            client["allow_http"] = endpoint.startswith("http://")
        path: UPath = UPath(uri.rstrip("/"), config=dict(config), client_options=client, retry_config=RETRIES)
        return path

    def split(self, path: UPath) -> tuple[str, str]:
        bucket, _, key = str(path.path).partition("/")
        return bucket, key.rstrip("/")

    def listed(self, folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
        import obstore

        client, key = self._client(folder)
        skipped = len(key) + 1 if key else 0
        if folders:
            listing = obstore.list_with_delimiter(client, key)
            yield from (StoredFile(f"{name[skipped:]}/", 0, 0.0) for name in listing["common_prefixes"])
            pages: Any = [listing["objects"]]
        else:
            pages = obstore.list(client, key, chunk_size=1_000)
        for page in pages:
            for file in page:
                if file["size"]:
                    yield StoredFile(file["path"][skipped:], file["size"], file["last_modified"].timestamp())
                elif self._marks_listed and not folders:
                    yield StoredFile(f"{file['path'][skipped:]}/", 0, file["last_modified"].timestamp())

    def remove(self, near: UPath, keys: Sequence[str]) -> None:
        import obstore

        client, _ = self._client(near)
        try:
            obstore.delete(client, list(keys))
        except FileNotFoundError:  # the request stops at the first file that does not exist
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(client, key)

    def tag(self, path: UPath) -> str:
        import obstore

        return self._tag(obstore.head(*self._client(path)))

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        client, key = self._client(path)
        try:
            answer = obstore.put(client, key, content, mode="create" if before is None else json.loads(before))
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(errno.EEXIST, "File exists", str(path)) from error
        return self._tag(answer)

    def _tag(self, answer: Mapping[str, Any]) -> str:
        return json.dumps({name: answer[name] for name in self._of_tag if answer[name] is not None})

    def _client(self, path: UPath) -> tuple[ObjectStore, str]:
        bucket, key = self.split(path)
        return path.fs._construct_store(bucket), key


@functools.cache
def register(scheme: str) -> None:
    """Make fsspec, and so universal_pathlib, access the stores of a scheme through obstore."""
    import fsspec
    from obstore.fsspec import FsspecStore

    fsspec.register_implementation(scheme, type(f"{scheme.title()}Files", (FsspecStore,), {"protocol": scheme}), clobber=True)
