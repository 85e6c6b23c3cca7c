"""A file over CopyData messages, from which Arrow reads the stream of ``COPY … TO STDOUT (FORMAT arrow)``.

`cli.hook` and the Spark source (`pyspark_headgate`) read changes with it, in bounded memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class CopyFile(io.RawIOBase):
    """A file that contains the content of CopyData messages."""

    def __init__(self, messages: Iterator[bytes | bytearray | memoryview]) -> None:
        super().__init__()
        self._messages = messages
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Copy the next bytes into a buffer. Return their number, 0 at the end."""
        target = memoryview(buffer)
        while not self._rest:
            message = next(self._messages, None)
            if message is None:
                return 0
            self._rest = memoryview(bytes(message))
        count = min(len(target), len(self._rest))
        target[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
