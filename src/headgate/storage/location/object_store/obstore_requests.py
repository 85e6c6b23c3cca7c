"""The requests of a store that obstore reaches: what `google` and `azure` have in common of `store.Store`.

What must hold: a store's files that mark folders, whose size is 0, never count as files of a table: no file of a table is empty. obstore
takes the slash at a name's end away.
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
    from obstore.store import ObjectStore
    from upath import UPath

CLIENT = {"connect_timeout": "5s", "timeout": "30s"}
"""How long the store may take to take a connection, and to answer."""
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}


class ObstoreRequests:
    """What is asked of a store; its class says the scheme, and the names of what tells a file's content from others."""

    scheme: str
    modules = "upath.implementations.cloud,obstore.fsspec"
    _of_tag: tuple[str, ...] = ("e_tag", "version")
    _marks_listed = False
    """Whether a listing of all that lies below a folder has the marks of folders too, with a slash at their end."""

    def _reached(self, given: str, config: Mapping[str, str], endpoint: str) -> UPath:
        """The path of a URI, whose files obstore reads and writes."""
        from upath import UPath

        register(self.scheme)
        client: dict[str, Any] = {**CLIENT}
        if endpoint:
            client["allow_http"] = endpoint.startswith("http://")
        found: UPath = UPath(given.rstrip("/"), config=dict(config), client_options=client, retry_config=RETRIES)
        return found

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
                elif self._marks_listed and not folders:
                    yield StoredFile(f"{each['path'][skipped:]}/", 0, each["last_modified"].timestamp())

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

        return self._tag(obstore.head(*self._client(path)))

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        """See `Store`."""
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
    """Has fsspec, and so universal_pathlib, reach the stores of a scheme by obstore."""
    import fsspec
    from obstore.fsspec import FsspecStore

    fsspec.register_implementation(scheme, type(f"{scheme.title()}Files", (FsspecStore,), {"protocol": scheme}), clobber=True)
