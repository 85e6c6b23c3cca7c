"""The folder of a backup: empty at first, marked until it is complete.

The marker is the first file and is removed last; `headgate start` refuses a folder that has it. HG_VERSION, without which nothing is a
data directory, comes just before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from headgate.errors import PostgresError, cannot_write

MARKER = "headgate.backup"
_TEXT = "A backup into this directory was begun and has not ended.\n"


def make(target: Path, *sources: Path) -> None:
    """Makes the folder, or takes an empty one, and marks it. 58P02 for one that is not empty, 22023 for one inside of what is copied."""
    check_outside(target, *sources)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise PostgresError("58P02", f'directory "{target}" exists but is not empty')
        target.chmod(0o700)
        (target / MARKER).write_text(_TEXT)
    except OSError as error:
        raise cannot_write(error, target) from error
    sync(target / MARKER)
    sync(target)


def check_outside(target: Path, *sources: Path) -> None:
    """22023 for a folder inside of what is copied."""
    resolved = target.resolve()
    for source in sources:
        if resolved.is_relative_to(source.resolve()):
            raise PostgresError("22023", f'backup directory "{target}" lies in "{source}", which is to be copied')


def is_incomplete(directory: Path) -> bool:
    """Whether a directory holds a backup that has not ended."""
    return (directory / MARKER).exists()


def complete(target: Path) -> None:
    """All is there and on the disk: it may be started."""
    sync(target)
    (target / MARKER).unlink()
    sync(target)


def sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy(source: Path, destination: Path) -> int:
    """Copies a file durably; its size."""
    shutil.copyfile(source, destination)
    destination.chmod(0o600)
    sync(destination)
    return destination.stat().st_size


def link(source: Path, destination: Path) -> int:
    """Gives a file that nobody changes a second name, or copies it where the file system cannot; its size."""
    with contextlib.suppress(OSError):
        os.link(source, destination)
        return destination.stat().st_size
    return copy(source, destination)
