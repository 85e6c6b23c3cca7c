"""COPY … TO STDOUT (FORMAT arrow): rows as an Arrow IPC stream, cut into CopyData messages (Arrow Columnar Format, IPC Streaming Format).

PostgreSQL has no such format. Columns have the types in which a node holds them (docs/types.md). The first message holds the schema, each
other one a record batch of at most `MESSAGE_BYTES` or one row, and the last one the end of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from headgate.analysis.query import PlanColumn
from headgate.commands.result import CopyProgress
from headgate.types import buffers
from headgate.types.storage import arrow_type

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
MESSAGE_BYTES = 16 << 20
"""Approximate size of a message in bytes. A client holds a whole message in memory."""


def messages(schema: pa.Schema, batches: Iterable[pa.RecordBatch], progress: CopyProgress) -> Iterator[pa.Array]:
    yield buffers.single(schema.serialize())
    for batch in batches:
        progress.rows += batch.num_rows
        rows = max(batch.num_rows * MESSAGE_BYTES // max(batch.nbytes, 1), 1)
        for start in range(0, batch.num_rows, rows):
            yield buffers.single(batch.slice(start, rows).serialize())
    yield buffers.single(END_OF_STREAM)


def schema_of(columns: Sequence[PlanColumn]) -> pa.Schema:
    """Return the schema of rows in the form in which a node holds them."""
    return pa.schema([pa.field(column.name, arrow_type(column.type.oid, column.type.typmod)) for column in columns])


def held(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches whose columns have the types of the schema: Spark gives some with other units."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [values if values.type == field.type else values.cast(field.type) for values, field in zip(batch.columns, schema, strict=True)],
            schema=schema,
        )
