"""Piles: the rows of many small writes, copied into one Arrow table, because Arrow needs kilobytes for a table of one row.

`staging` keeps change rows in piles, and `pending_rows` rows that are not written yet. Each write remembers its own rows as a `Piece`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from headgate.types import buffers

SINGLE_BYTES = 4 << 20
"""Limit in bytes of the rows that a transaction keeps as they were written, before they are copied into piles."""
_PIECE_BYTES = 256
"""The memory in bytes that a piece takes beside its rows."""


@dataclass(frozen=True)
class Piece:
    """The rows of one write: `count` rows of `pile` from row `first` on. `size`: their share of its memory in bytes."""

    pile: pa.Table
    first: int
    count: int
    size: int

    @classmethod
    def of(cls, rows: pa.Table) -> Piece:
        """Return rows that are in no pile yet."""
        return cls(rows, 0, rows.num_rows, buffers.memory(rows))

    @property
    def rows(self) -> pa.Table:
        return self.pile.slice(self.first, self.count)


def piled(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces in piles: the rows of those with the same columns are copied into one table, in their order."""
    result = list(pieces)
    places: dict[pa.Schema, list[int]] = {}
    for place, piece in enumerate(result):
        places.setdefault(piece.pile.schema, []).append(place)
    for members in places.values():
        pile, first = together(result[place] for place in members).combine_chunks(), 0
        memory = buffers.memory(pile)
        for place in members:
            count = result[place].count
            result[place] = Piece(pile, first, count, _PIECE_BYTES + memory * count // max(pile.num_rows, 1))
            first += count
    return result


def together(pieces: Iterable[Piece]) -> pa.Table:
    """Return the rows of all pieces, which have the same columns. Pieces that follow each other in a pile are taken as one slice."""
    parts: list[Piece] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        if last is not None and last.pile is piece.pile and last.first + last.count == piece.first:
            parts[-1] = Piece(last.pile, last.first, last.count + piece.count, last.size)
        else:
            parts.append(piece)
    return pa.concat_tables([part.rows for part in parts])
