"""What a batch of small transactions is put together from, and how it is put into the order of the log.

Made and filled by `stream`; a key is four times the LSN, and what stands before or behind a change of that LSN (Begin, Relation, Commit).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.pgoutput import encode
from headgate.pgoutput.encode import Frames

FEW = 50
"""With fewer changes than this for each frame that stands alone, all are put into order by copying."""

Numbers = npt.NDArray[np.int64]


@dataclass
class Pieces:
    """What a batch is put together from: frames with keys, and the LSNs at which something is published."""

    frames: list[Frames] = field(default_factory=list)
    keys: list[Numbers] = field(default_factory=list)
    marks: list[Numbers] = field(default_factory=list)
    single: list[tuple[int, bytes]] = field(default_factory=list)

    def singles(self) -> tuple[Frames, Numbers]:
        """What stands alone, as frames with keys."""
        offsets = np.cumsum([0, *(len(part) for _, part in self.single)])
        data = np.frombuffer(b"".join(part for _, part in self.single), np.uint8)
        return Frames(data, offsets.astype(np.int64)), np.array([key for key, _ in self.single], np.int64)

    def in_order(self) -> list[memoryview | bytes]:
        """All frames by their keys; `single` is sorted. One relation's changes in long transactions are cut, not copied."""
        if len(self.frames) == 1 and len(self.single) * FEW < len(self.keys[0]):
            whole, keys = self.frames[0], self.keys[0]
            cuts = [0, *(int(each) for each in np.searchsorted(keys, [key for key, _ in self.single])), len(keys)]
            parts: list[memoryview | bytes] = [whole.slice(0, cuts[1])]
            for (_, part), first, last in zip(self.single, cuts[1:], cuts[2:], strict=False):
                parts += [part, whole.slice(first, last)]
            return parts
        frames, keys_of_all = self.singles()
        return [encode.interleave([*self.frames, frames], [*self.keys, keys_of_all]).bytes()]
