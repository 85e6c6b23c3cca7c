"""The data source ``headgate``: a stream of a table's published changes, a range of them, or the table as of an LSN.

A micro-batch is the transactions that commit in (start, end]. Its tasks read ranges of LSNs side by side, from a node that gives the same
rows each time, so a replayed micro-batch equals the first. The slot only keeps the node's log: nobody streams from it, and it moves in
`commit`, which Spark calls after the sink has the micro-batch. Offsets are ``{"lsn": 123}``; the first one of ``start = snapshot`` is
``{"lsn": 123, "table": true}``, and the micro-batch that begins there has the table as of that LSN in it (`_op` R).

pyspark 4.1 asks for the latest offset without saying where the query stands, and the slot may be one micro-batch behind. The first answer
after a start is therefore the end of the log, which is never before the checkpoint; `maxRows` bounds the micro-batches after it. This also
makes Trigger.AvailableNow read all that there is. Since 4.2, Spark says where the query stands, and `maxRows` bounds every micro-batch.

A change of the published columns ends a micro-batch. The next one fails with an error that says so, and the query goes on with the new
columns when it is started again. If the first offset after a start is that of such a change, pyspark 4.1 would take an offset that it has
already for "nothing new", and never come to the change. That offset therefore has a number of its own (`run`). Spark then makes a
micro-batch that begins and ends at the change, and by that says that it has everything before.

A PostgreSQL server gives the table as of the slot's position only while the connection that created the slot is open. The reader holds it
until the first micro-batch has ended. A query that is killed before that has to start with a new slot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_headgate.connection import NodeConnection, Range, ServerConnection, lost
from pyspark_headgate.options import SourceOptions, lsn_text
from pyspark_headgate.postgresql import PostgresConnection, TableSnapshot

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # pyspark 4.1 has no admission control
    SupportsTriggerAvailableNow = object
    ReadAllAvailable = ReadMaxRows = None

Offset = dict[str, Any]
Connection = NodeConnection | PostgresConnection


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, part: Range) -> None:
        super().__init__(None)
        self.range = part


class HeadgateSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headgate"

    def schema(self) -> StructType:
        """Return the columns at the position where the query goes on."""
        options = self._options()
        with connect(options.url) as server:
            return from_arrow_schema(server.schema(options, _begin(server, options)), prefer_timestamp_ntz=True)

    def _options(self) -> SourceOptions:
        """The options, before it is known whether the query is a stream: a read without a range does not have a slot."""
        options = dict(self.options)
        is_stream = "start" in options or ("slot" in options and "from" not in options)
        return SourceOptions.of_stream(options) if is_stream else SourceOptions.of_batch(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ``read``."""
        return RangeReader(schema, SourceOptions.of_batch(dict(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of ``readStream``."""
        return StreamReader(schema, SourceOptions.of_stream(dict(self.options)))


def connect(url: str) -> Connection:
    """Return a connection to a node or to a PostgreSQL server."""
    with ServerConnection(url) as server:
        return NodeConnection(url) if server.is_node else PostgresConnection(url)


def _begin(server: Connection, options: SourceOptions) -> int:
    """The position whose columns count."""
    if options.first is not None:
        return options.first
    if options.slot:
        slot = server.slot(options.slot)
        if slot is not None and not slot.is_lost:
            return slot.position
        return options.start if isinstance(options.start, int) else server.current()
    return server.current() if options.lsn is None else options.lsn


def read_range(options: SourceOptions, schema: StructType, part: Range) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range in the columns of the query; runs in a task."""
    expected = _arrow_schema(schema)
    with connect(options.url) as server:
        for batch in server.batches(options, part):
            if not batch.num_rows:
                _check_columns(options, schema, batch.schema, part.end if part.start is None else part.start)
                continue
            visible = _without_truncates(options, batch)
            if visible.num_rows:
                yield pa.RecordBatch.from_arrays([_as(c, f.type) for c, f in zip(visible.columns, expected, strict=True)], schema=expected)


def _arrow_schema(schema: StructType) -> pa.Schema:
    try:
        return to_arrow_schema(schema, timezone="UTC")  # type: ignore[call-arg]
    except TypeError:  # pyspark 4.1
        return to_arrow_schema(schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values in the type that Spark expects. Only the nullability of struct fields differs."""
    return values if values.type == kind else values.cast(kind)


def _check_columns(options: SourceOptions, schema: StructType, arrow_schema: pa.Schema, lsn: int) -> None:
    now = from_arrow_schema(arrow_schema, prefer_timestamp_ntz=True)
    if [(f.name, f.dataType) for f in now.fields[:-1]] != [(f.name, f.dataType) for f in schema.fields[:-1]]:
        raise RuntimeError(
            f'the published columns of table "{options.table}" have changed after LSN {lsn_text(lsn)}: {now.simpleString()}.'
            " Start the query again to go on with the new columns; the sink must take them."
        )


def _without_truncates(options: SourceOptions, batch: pa.RecordBatch) -> pa.RecordBatch:
    truncated = pc.equal(batch.column("_op"), "T")
    if options.on_truncate == "row" or not pc.any(truncated).as_py():
        return batch
    if options.on_truncate == "skip":
        return batch.filter(pc.invert(truncated))
    lsn = lsn_text(batch.filter(truncated).column("_lsn")[0].as_py())
    raise RuntimeError(
        f'table "{options.table}" was truncated at LSN {lsn}. Set the option onTruncate to "row" to get a row with _op T,'
        ' or to "skip" to leave it out.'
    )


class RangeReader(DataSourceReader):
    """The reader of ``read``."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema, self._options = schema, options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks' ranges."""
        options = self._options
        with connect(options.url) as server:
            if options.first is None:
                server.check_table(options)
                return [RangePartition(Range(None, server.current() if options.lsn is None else options.lsn))]
            last = server.current() if options.last is None else options.last
            ranges = server.shares(options, Range(options.first, last)) or [Range(options.first, options.first)]
            return [RangePartition(part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._schema, partition.range)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark 4.1 does not have it
    """The reader of ``readStream``. Its methods but `read` run in one process of the driver."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema, self._options = schema, options
        self._begin: int | None = None
        """Where a query without a checkpoint begins, if this process has made its slot."""
        self._snapshot: TableSnapshot | None = None
        """The table as of the position of a slot that this process has created on a PostgreSQL server, until it has been read."""
        self._has_created = False
        """Whether this process has created the slot."""
        self._reached: int | None = None
        self._target: int | None = None

    def _server(self) -> Connection:
        return connect(self._options.url)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the first offset of a query without a checkpoint."""
        with self._server() as server:
            position = self._slot(server)
            start = self._options.start
            if isinstance(start, int):
                return {"lsn": start}
            if start == "now":
                return {"lsn": position}
            if isinstance(server, NodeConnection):
                return {"lsn": position, "table": True}
            if self._snapshot is None:
                raise _snapshot_gone(self._options.slot)
            return {"lsn": position, "table": True, "snapshot": self._snapshot.name}

    def _slot(self, server: Connection, known: int | None = None) -> int:
        """Return the position of the slot, which is created if it does not exist. `known`: where the query stands, if it is known."""
        options = self._options
        if server.slot(options.slot) is None:
            self._has_created = True
            if isinstance(server, PostgresConnection):
                if known is not None:
                    raise lost(options.slot)
                if options.start == "snapshot":
                    self._snapshot = server.create_slot(options)
                    return self._snapshot.position
            elif isinstance(options.start, int):
                self._begin = options.start
        return server.ensured_slot(options.slot).position

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the offset at which this run must end."""
        with self._server() as server:
            self._target = server.current()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the limit of each micro-batch."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the end of the log."""
        with self._server() as server:
            return {"lsn": server.current()}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch; before 4.2 without `start`."""
        with self._server() as server:
            known = start["lsn"] if start is not None else self._reached
            position = self._slot(server, known)
            end = server.current() if self._target is None else self._target
            begin = known if known is not None else position if self._begin is None else self._begin
            first = 2 if ReadMaxRows is None and known is None else 1
            cuts = server.ranges(self._options, Range(begin, max(begin, end)), self._most(known, limit), first)
        self._reached = cuts[0][0].end if cuts else max(begin, end)
        if ReadMaxRows is None and known is None and len(cuts) > 1:
            return {"lsn": self._reached, "run": time.time_ns()}
        return {"lsn": self._reached}

    def _most(self, known: int | None, limit: Any) -> int:
        """Return the maximum number of changes in a micro-batch."""
        most = self._options.max_rows if ReadMaxRows is None else getattr(limit, "max_rows", None)
        return 1 << 62 if known is None or most is None else most

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks' ranges of a micro-batch."""
        tables = [Range(None, start["lsn"], start.get("snapshot", ""))] if start.get("table") else []
        if start.get("snapshot") and (self._snapshot is None or self._snapshot.name != start["snapshot"]):
            raise _snapshot_gone(self._options.slot)
        with self._server() as server:
            if start["lsn"] == end["lsn"] and not tables:
                try:
                    now = server.schema(self._options, start["lsn"])
                    _check_columns(self._options, self._schema, now, start["lsn"])
                except RuntimeError:
                    server.advance(self._options.slot, start["lsn"])
                    raise
            if isinstance(server, PostgresConnection):
                self._check_position(server, start["lsn"])
            return [RangePartition(part) for part in [*tables, *server.shares(self._options, Range(start["lsn"], end["lsn"]))]]

    def _check_position(self, server: PostgresConnection, start: int) -> None:
        """Raise RuntimeError if the slot does not have all changes from `start` on. Drop it if it was created by mistake.

        pyspark 4.1 does not tell `latestOffset` whether the query has a checkpoint, and so a slot that is missing is created.
        """
        try:
            server.check_position(self._options.slot, start)
        except RuntimeError:
            if self._has_created:
                server.drop_slot(self._options.slot)
            raise

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._schema, partition.range)

    def commit(self, end: Offset) -> None:
        """Move the slot, so that the server can discard the log of what the sink has."""
        self._end_snapshot()
        with self._server() as server:
            server.advance(self._options.slot, end["lsn"])

    def stop(self) -> None:
        """End what the reader holds."""
        self._end_snapshot()

    def _end_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None


def _snapshot_gone(slot: str) -> RuntimeError:
    return RuntimeError(
        f'replication slot "{slot}" exists, and the table as of its position can no longer be read. Either the first micro-batch was'
        " interrupted, or another query has created the slot. Drop it with pyspark_headgate.drop_slot, empty the sink, and start the query"
        ' with a new checkpoint. The option start = "now" begins at the position of the slot without the rows of the table.'
    )
