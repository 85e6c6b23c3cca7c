"""A small disk that a test can fill: a file system in memory, mounted on a folder. Without the right to mount, the test is skipped."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest


class Disk:
    """A small disk, as the module describes."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
        completed = subprocess.run(command, capture_output=True, text=True)
        if completed.returncode:
            pytest.skip(f"no disk can be mounted here: {completed.stderr.strip()}")

    @property
    def room(self) -> int:
        """Return the number of free bytes."""
        file_system = os.statvfs(self.folder)
        return file_system.f_bavail * file_system.f_frsize

    def fill(self, but: int = 0) -> None:
        """Fill the disk until this number of bytes is free."""
        with (self.folder / "filling").open("ab") as file:
            while (missing := self.room - but) > 0:
                with contextlib.suppress(OSError):  # another process writes meanwhile, so there is less space than requested
                    os.posix_fallocate(file.fileno(), file.tell(), missing)
                    return

    def free(self) -> None:
        """Free the space that `fill` has used."""
        (self.folder / "filling").unlink()

    def end(self) -> None:
        """Unmount the disk."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
