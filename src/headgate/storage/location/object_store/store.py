"""The interface of an object store: the operations that each store implements differently.

Implemented by `s3`, `google` and `azure`, called by `data_location`, `lease` and `spark_session`. All other operations (whole files, parts
of them, copies) use fsspec's methods, which the paths' file systems have in common. Invariant: the store itself rejects a conditional
write, even against concurrent writers; a file appears atomically.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from upath import UPath


@dataclass(frozen=True)
class StoredFile:
    """A file of a listing: its name relative to the listed folder, its size, and its modification time (seconds of the Unix epoch)."""

    name: str
    size: int
    modified: float


class Store(Protocol):
    """One kind of object store. It has no state: that is in the file systems of the paths that it makes."""

    name: str
    """The name for `headgate fetch-jars`."""
    title: str
    """The product name."""
    scheme: str
    example: str
    """A sample location."""
    modules: str
    """The modules that a process imports to access the store, comma-separated."""

    def is_place(self, place: str) -> bool:
        """Return whether the part after the scheme names a bucket and a prefix."""

    def path(self, uri: str, settings: Mapping[str, str]) -> UPath:
        """Return a path of the store by its URI. Raise 22023 or F0000 if the credentials that the settings name are not available."""

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """Return the settings of Java's file system. `scratch`: a folder of the node. Raise 22023 or F0000 as `path` does."""

    def split(self, path: UPath) -> tuple[str, str]:
        """Return the bucket and the key of a path."""

    def listed(self, folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
        """Yield all files below a folder. With `folders`, only its entries; names of folders end with a slash."""

    def remove(self, near: UPath, keys: Sequence[str]) -> None:
        """Remove at most 1,000 files of a path's bucket by their keys. Skip those that do not exist. Raise OSError."""

    def tag(self, path: UPath) -> str:
        """Return a tag that identifies the content of a file among all that it has ever had. Raise FileNotFoundError."""

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        """Write a small file if it has the tag `before`, or for None, if it does not exist. Return its new tag.

        Raise FileExistsError if the content is another, FileNotFoundError if the tagged file no longer exists.
        """
