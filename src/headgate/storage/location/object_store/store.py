"""What an object store must do for a node, and each does its own way.

Implemented by `s3`, `google` and `azure`, called by `data_location`, `lease` and `spark_session`. Everything else (whole files, parts of
them, copies) goes through fsspec's names, which the paths' file systems have in common. What must hold: a write on condition is refused by
the store itself, whoever else writes at that moment; a file appears whole.
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
    """A file of a listing: its name below the folder that was listed, its size, and when it was written (seconds of the Unix epoch)."""

    name: str
    size: int
    modified: float


class Store(Protocol):
    """One kind of object store; it has no state, which is in the file systems of the paths that it makes."""

    name: str
    """As `headgate fetch-jars` has it."""
    title: str
    """What people call it."""
    scheme: str
    example: str
    """A location in it."""
    modules: str
    """What a process imports that asks the store for something, comma-separated."""

    def is_place(self, place: str) -> bool:
        """Whether what stands behind the scheme names a bucket and a prefix."""

    def path(self, given: str, settings: Mapping[str, str]) -> UPath:
        """A path of the store, by its URI. 22023, F0000 where the credentials that the settings name cannot be had."""

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """The same for Java's file system; `scratch`: a folder of the node's own. 22023, F0000 as of `path`."""

    def split(self, path: UPath) -> tuple[str, str]:
        """A path as the store's requests name it: bucket and key."""

    def listed(self, folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
        """All that lies below a folder; with `folders` only what is in it, the folders too, whose names end with a slash."""

    def remove(self, near: UPath, keys: Sequence[str]) -> None:
        """Removes at most 1,000 files of a path's bucket by their keys; those that are not there are passed over. OSError."""

    def tag(self, path: UPath) -> str:
        """What tells the content of a file from all that it has had or will have. FileNotFoundError."""

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        """Writes a small file in place of the one with this tag, None: of no file; its tag. FileExistsError where something else is there.

        FileNotFoundError where the one with the tag has gone.
        """
