"""The folder of a backup: empty at first, marked until it is complete.

The marker is the first file and is removed last; `headgate start` rejects a folder that has it. HG_VERSION, without which a folder is not a
data directory, is written just before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from headgate.errors import PostgresError, cannot_write
from headgate.storage.delta import fsync

MARKER = "headgate.backup"
_TEXT = "A backup into this directory was begun and has not ended.\n"


def make(target: Path, *sources: Path) -> None:
    """Create the folder, or use an empty one, and mark it. Raise 58P02 if it is not empty, 22023 if it is inside a source."""
    check_outside(target, *sources)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise PostgresError("58P02", f'directory "{target}" exists but is not empty')
        target.chmod(0o700)
        (target / MARKER).write_text(_TEXT)
    except OSError as error:
        raise cannot_write(error, target) from error
    fsync.sync(target / MARKER)
    fsync.sync(target)


def check_outside(target: Path, *sources: Path) -> None:
    """Raise 22023 if the folder is inside a folder that is copied."""
    resolved = target.resolve()
    for source in sources:
        if resolved.is_relative_to(source.resolve()):
            raise PostgresError("22023", f'backup directory "{target}" lies in "{source}", which is to be copied')


def is_incomplete(directory: Path) -> bool:
    return (directory / MARKER).exists()


def complete(target: Path) -> None:
    """Remove the mark after all files are durable. Then the backup may be started."""
    fsync.sync(target)
    (target / MARKER).unlink()
    fsync.sync(target)


def copy(source: Path, destination: Path) -> int:
    """Copy a file durably. Return its size."""
    shutil.copyfile(source, destination)
    destination.chmod(0o600)
    fsync.sync(destination)
    return destination.stat().st_size


def link(source: Path, destination: Path) -> int:
    """Hard-link an immutable file, or copy it if the file system cannot do that. Return its size."""
    with contextlib.suppress(OSError):
        os.link(source, destination)
        return destination.stat().st_size
    return copy(source, destination)
