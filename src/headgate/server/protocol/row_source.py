"""The rows of a result, which a portal or a cursor reads in parts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headgate.types.resultset import ResultSet


class RowSource:
    """The rows of a ResultSet, which are read in parts."""

    def __init__(self, result: ResultSet) -> None:
        self.result = result
        self.columns = result.columns
        self._batches: Iterator[pa.RecordBatch] = iter(result)
        self._rest: pa.RecordBatch | None = None

    def take(self, limit: int) -> Iterator[pa.RecordBatch]:
        """Yield batches with at most `limit` rows in total; 0 = all."""
        remaining = limit
        while True:
            batch = self._next()
            if batch is None:
                return
            if limit and batch.num_rows > remaining:
                self._rest = batch.slice(remaining)
                batch = batch.slice(0, remaining)
            if limit:
                remaining -= batch.num_rows
            yield batch
            if limit and not remaining:
                return

    def _next(self) -> pa.RecordBatch | None:
        while True:
            if self._rest is not None:
                batch, self._rest = self._rest, None
            else:
                next_batch = next(self._batches, None)
                if next_batch is None:
                    return None
                batch = next_batch
            if batch.num_rows:
                return batch

    def close(self) -> None:
        close = getattr(self.result.batches, "close", None)
        if close is not None:
            close()
