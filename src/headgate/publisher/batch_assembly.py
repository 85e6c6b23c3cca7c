"""The parts of a batch of small transactions, and their arrangement in log order.

Created and filled by `stream`. A key is four times the LSN plus an offset for messages before or after the change (Begin, Relation,
Commit).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.pgoutput import encode
from headgate.pgoutput.encode import Frames

FEW = 50
"""With fewer changes than this per single frame, all frames are ordered by copying."""

Numbers = npt.NDArray[np.int64]


@dataclass
class Pieces:
    """The parts of a batch: frames with keys, and the LSNs at which something is published."""

    frames: list[Frames] = field(default_factory=list)
    keys: list[Numbers] = field(default_factory=list)
    marks: list[Numbers] = field(default_factory=list)
    single: list[tuple[int, bytes]] = field(default_factory=list)

    def singles(self) -> tuple[Frames, Numbers]:
        offsets = np.cumsum([0, *(len(part) for _, part in self.single)])
        data = np.frombuffer(b"".join(part for _, part in self.single), np.uint8)
        return Frames(data, offsets.astype(np.int64)), np.array([key for key, _ in self.single], np.int64)

    def in_order(self) -> list[memoryview | bytes]:
        """Return all frames in key order; `single` must be sorted. Changes of one relation in long transactions are not copied."""
        if len(self.frames) == 1 and len(self.single) * FEW < len(self.keys[0]):
            whole, keys = self.frames[0], self.keys[0]
            cuts = [0, *(int(index) for index in np.searchsorted(keys, [key for key, _ in self.single])), len(keys)]
            parts: list[memoryview | bytes] = [whole.slice(0, cuts[1])]
            for (_, part), first, last in zip(self.single, cuts[1:], cuts[2:], strict=False):
                parts += [part, whole.slice(first, last)]
            return parts
        frames, keys_of_all = self.singles()
        return [encode.interleave([*self.frames, frames], [*self.keys, keys_of_all]).bytes()]
