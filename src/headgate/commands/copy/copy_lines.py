"""Encode the rows of COPY TO STDOUT as messages for the client: in the driver, or in Spark's tasks for many rows.

`RowEncoder` turns a batch of stored values into messages, one for each row. Tasks call it too; the driver passes their messages on in
order. `of_query` encodes in the job that computes the rows of a query. `of_table` has tasks read the files of a table in parts of
`PART_ROWS`, `WINDOW` parts for each core at a time. The client therefore gets the first rows soon, and the temporary files of a job stay
small, however slowly it reads. Called by `copy`.

A task must depend only on its argument, so that Spark may retry it. An error must keep its SQLSTATE and its message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headgate.commands.copy.copy_option import CopyOptions
from headgate.storage.delta import file_action, rows
from headgate.storage.delta.table_folder import TableFolder
from headgate.storage.delta.table_state import TableState
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark import failure, result_spool
from headgate.types import buffers, registry
from headgate.types import copy_text as copy_format
from headgate.types.binary.binary import write_binary
from headgate.types.binary.copy_binary import write_copy_binary
from headgate.types.encoded import encoded
from headgate.types.resultset import ResultColumn
from headgate.types.text.text import styled, write_text
from headgate.types.text_column import TextSettings

PART_ROWS = 1 << 17
"""The rows that a task encodes: row groups that begin within so many rows of a file. A task costs some 20 ms in addition."""
WINDOW = 16
"""Number of parts that a job encodes for each core."""
_MESSAGES = pa.schema([("message", pa.large_binary())])


@dataclass(frozen=True)
class RowEncoder:
    """The encoder of rows in one format. `columns`: the columns, with domains as base types. `forms`: the session's text styles."""

    columns: tuple[ResultColumn, ...]
    options: CopyOptions
    forms: TextSettings

    def of_stored(self, values: Sequence[pa.Array], count: int) -> pa.Array:
        """Return the messages of columns in stored form, as large_string or large_binary."""
        if self.options.binary:
            typed = zip(values, self.columns, strict=True)
            return _binary_rows(
                [write_binary(array, column.type_oid, column.typmod, encoding=self.options.encoding) for array, column in typed], count
            )
        plain = self.forms.of_results
        typed = zip(values, self.columns, strict=True)
        return self.of_texts([write_text(array, column.type_oid, session=plain) for array, column in typed], count)

    def of_texts(self, texts: Sequence[pa.Array], count: int) -> pa.Array:
        """Return the lines of columns in text form (`TextSettings.of_results`), as large_string or large_binary."""
        if not texts:
            return pa.array([b"\n"] * count, pa.large_binary())
        typed = zip(texts, self.columns, strict=True)
        shown = [styled(text, column.type_oid, column.typmod, self.forms) for text, column in typed]
        quoted = self.options.force_quote
        return self._write(shown, [at for at, column in enumerate(self.columns) if quoted is None or column.name in quoted])

    def header(self) -> pa.Array:
        return self._write([pa.array([column.name], pa.string()) for column in self.columns])

    def _write(self, columns: Sequence[pa.Array], forced: Sequence[int] = ()) -> pa.Array:
        """Return rows in text or CSV format, in the requested encoding. In CSV, the columns at `forced` are quoted."""
        options = self.options
        if options.csv:
            lines = copy_format.write_copy_csv(
                columns, null=options.null, delimiter=options.delimiter, quote=options.quote, escape=options.escape, forced=forced
            )
        else:
            lines = copy_format.write_copy_text(columns, null=options.null, delimiter=options.delimiter)
        return encoded(lines, options.encoding)


def _binary_rows(arrays: Sequence[pa.LargeBinaryArray], count: int) -> pa.Array:
    if not arrays:
        return pa.array([b"\0\0"] * count, pa.large_binary())
    lengths = np.full(count, 2, np.int64)
    for array in arrays:
        lengths += np.asarray(pc.fill_null(pc.binary_length(array), 0), np.int64) + 4
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return buffers.strings(np.frombuffer(write_copy_binary(arrays), np.uint8), offsets, None, pa.large_binary())


# ---- by tasks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodeTask:
    """A kernel that reads rows and yields batches of `_MESSAGES`."""

    encoder: RowEncoder
    types: registry.TypeRegistry

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        registry.use(self.types)
        encode = failure.marking(self.encoder.of_stored)
        for batch in batches:
            yield pa.RecordBatch.from_arrays([encode(batch.columns, batch.num_rows).cast(pa.large_binary())], schema=_MESSAGES)


@dataclass(frozen=True)
class FilePart:
    """The row groups of a file that begin at row `first` or later, and before row `behind` (None: all later ones)."""

    name: str
    first: int
    behind: int | None


def parts_of(state: TableState) -> list[FilePart]:
    """Return the parts of a table's files, in order."""
    parts = []
    for name, add in state.files.items():
        firsts = range(0, max(file_action.records(add), 1), PART_ROWS)
        parts += [FilePart(name, first, None if first == firsts[-1] else first + PART_ROWS) for first in firsts]
    return parts


@dataclass(frozen=True)
class TableTask:
    """A kernel that reads numbers of parts, and yields the rows of these parts of a table as batches of `_MESSAGES`."""

    encode: EncodeTask
    table: TableFolder
    state: TableState
    names: tuple[str, ...]
    parts: tuple[FilePart, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.parts[number]
                state = replace(self.state, files={part.name: self.state.files[part.name]})
                yield from self.encode(rows.pieces(self.table.path, state, self.names, part.first, part.behind))


def of_query(frame: DataFrame, encoder: RowEncoder, directory: DataPath) -> Iterator[pa.Array]:
    """Yield the messages of the rows of a frame, in its order. `directory`: the place for the files of the tasks."""
    named = frame.toDF(*[f"c{place}" for place in range(len(frame.columns))])
    yield from _receive(named, EncodeTask(encoder, registry.known()), directory, "COPY (query) TO STDOUT")


def of_table(
    spark: SparkSession, table: TableFolder, state: TableState, names: Sequence[str], encoder: RowEncoder, directory: DataPath
) -> Iterator[pa.Array]:
    """Yield the messages of some columns of the rows of a table, in the order of its files."""
    encode, parts = EncodeTask(encoder, registry.known()), parts_of(state)
    size = WINDOW * spark.sparkContext.defaultParallelism
    for first in range(0, len(parts), size):
        chosen = parts[first : first + size]
        read = replace(state, files={part.name: state.files[part.name] for part in chosen})
        numbers = spark.range(0, len(chosen), 1, len(chosen))
        description = f"COPY TO STDOUT: parts {first + 1} to {first + len(chosen)} of {len(parts)}"
        yield from _receive(numbers, TableTask(encode, table, read, tuple(names), tuple(chosen)), directory, description)


def _receive(frame: DataFrame, kernel: result_spool.Kernel, directory: DataPath, description: str) -> Iterator[pa.Array]:
    for batch in result_spool.encoded(frame, kernel, _MESSAGES, directory, description):
        yield batch.column(0)
