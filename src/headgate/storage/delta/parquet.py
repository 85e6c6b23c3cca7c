"""Parquet files of a Delta table written by the driver, for small writes: 2 ms instead of 100 ms for a Spark job.

The files and their statistics equal those of Delta on Spark: snappy, timestamps in microseconds, minimum and maximum of the first 32
columns (strings truncated to 32 characters, the maximum rounded up). tests/storage compares the two. Floating-point columns have neither
Parquet's statistics, which omit NaN, nor a dictionary, which distinguishes -0 from 0: readers that skip by these would miss rows.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import json
import math
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import PostgresError, disk_full
from headgate.storage.delta import deletion_vector, file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

ROW_GROUP_ROWS = 1 << 16
"""Maximum rows of a row group. Readers skip whole groups by their statistics. Smaller groups skip more, larger ones compress better."""
SMALL_BYTES = 1 << 16
"""The size of a file up to which it takes longer to wake Arrow's threads than to read it without them."""
_STATS_COLUMNS = 32
_STATS_LENGTH = 32
_VERIFIED_ROWS = 16_384
_PLAIN = [
    pa.bool_(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(1),
    pa.string(),
    pa.binary(),
    pa.date32(),
]
_OWN_TYPES = frozenset(kind.id for kind in _PLAIN)
_INSTANT = pa.timestamp("us", "UTC")
_MARKED = re.compile(r'"\\u0000(-?[0-9.]+)\\u0000"')
_LAST = "\U0010ffff"
Bound: TypeAlias = Any
"""A minimum or maximum of a column, of the JSON type that Delta has for the column's type."""


@dataclass(frozen=True)
class Statistics:
    """The statistics of an `add` action: the number of rows, and the bounds and NULLs of columns by their names in the file."""

    rows: int
    least: Mapping[str, Bound]
    most: Mapping[str, Bound]
    nulls: Mapping[str, int]


@contextlib.contextmanager
def opened(path: DataPath) -> Iterator[pq.ParquetFile]:
    """Open a file of a table for reading, verifying the checksum of each page. Raise XX001 if it is damaged.

    Threads read ahead only in a file of more than `SMALL_BYTES`.
    """
    local = data_location.local(path)
    with reading(path):
        buffered = local.stat().st_size > SMALL_BYTES
        with pq.ParquetFile(local, coerce_int96_timestamp_unit="us", page_checksum_verification=True, pre_buffer=buffered) as file:
            yield _as_own(file)


class _Converted:
    """A `pq.ParquetFile` whose columns are read with other types than Arrow finds in it."""

    def __init__(self, file: pq.ParquetFile, schema: pa.Schema) -> None:
        self._file, self.schema_arrow = file, schema
        self.metadata, self.num_row_groups = file.metadata, file.num_row_groups

    def read(self, *, use_threads: bool = True) -> pa.Table:
        return self._file.read(use_threads=use_threads).cast(self.schema_arrow)

    def iter_batches(self, batch_size: int = ROW_GROUP_ROWS, **options: object) -> Iterator[pa.RecordBatch]:
        for batch in self._file.iter_batches(batch_size, **options):
            yield batch.cast(pa.schema([self.schema_arrow.field(name) for name in batch.schema.names], self.schema_arrow.metadata))


def _as_own(file: pq.ParquetFile) -> pq.ParquetFile | _Converted:
    """Return a file whose columns have the types of the node's own files.

    Spark writes timestamps with time zone as INT96, which Arrow reads without a zone. Writers that use Arrow, such as delta-rs, store its
    types in the file: large texts, views, dictionaries.
    """
    stored, leaves = file.schema_arrow, file.schema
    if all(kind.id in _OWN_TYPES or kind == _INSTANT for kind in stored.types):
        return file
    columns = [leaves.column(number) for number in range(len(leaves))]
    int96 = {column.path.partition(".")[0] for column in columns if column.physical_type == "INT96"}
    kinds = [_own_type(field.type, as_utc=field.name in int96) for field in stored]
    if kinds == stored.types:
        return file
    fields = [field.with_type(kind) for field, kind in zip(stored, kinds, strict=True)]
    return _Converted(file, pa.schema(fields, stored.metadata))


def _own_type(kind: pa.DataType, *, as_utc: bool) -> pa.DataType:
    """Return the type that the node's files have for a column. `as_utc`: a timestamp without a zone is in UTC."""
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(_own_type(kind.value_type, as_utc=as_utc)))
    if pa.types.is_dictionary(kind):
        return _own_type(kind.value_type, as_utc=as_utc)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return _INSTANT if kind.tz or as_utc else pa.timestamp("us")
    return kind


@contextlib.contextmanager
def reading(path: DataPath) -> Iterator[None]:
    """Raise XX001 for an error of Arrow that shows that a file of a table is damaged."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        if disk_full(error) is not None:
            raise  # from a write inside the context
        raise PostgresError("XX001", f'file "{path}" is damaged or cannot be read') from error


def counted(table: DataPath, files: Mapping[str, Action]) -> Mapping[str, Action]:
    """Return the `add` actions by path, each with the row count of its file. Other writers may omit it; it is then read from the footer.

    The action of a file that cannot be read is returned unchanged.
    """
    completed = {}
    for path, add in files.items():
        if file_action.is_counted(add):
            continue
        with contextlib.suppress(FileNotFoundError, pa.ArrowInvalid):
            statistics = {**json.loads(add.get("stats") or "{}"), "numRecords": rows_of(table / unquote(path))}
            completed[path] = {**add, "stats": json.dumps(statistics)}
    return {**files, **completed} if completed else files


@functools.lru_cache(maxsize=1 << 14)
def rows_of(path: DataPath) -> int:
    """Return the number of rows in a file, from its footer. Raise FileNotFoundError, or ArrowInvalid if it is damaged."""
    with data_location.opened(path) as file:
        return int(pq.read_metadata(file).num_rows)


@functools.lru_cache(maxsize=1 << 14)
def verify(path: str) -> frozenset[str]:
    """Verify the checksums of all pages of a local file, once per process, before a reader that does not. Raise XX001.

    Return the names of its columns in the file: the table may have more columns since.

    Files never change. Takes 0.3 ms for the file of a small commit, 2-3 ms per megabyte.
    """
    with opened(Path(path)) as file:
        for _ in file.iter_batches(_VERIFIED_ROWS):
            pass
        return _share(tuple(file.schema_arrow.names))


@functools.lru_cache(maxsize=1 << 12)
def column_names(path: DataPath) -> frozenset[str]:
    """Return the names of a file's columns, as they are in the file, from its footer."""
    with data_location.opened(path) as file:
        return _share(tuple(pq.read_schema(file).names))


@functools.lru_cache(maxsize=1 << 12)
def list_columns(path: DataPath) -> frozenset[str]:
    """Return the names of the columns that a file holds as lists, as they are in the file, from its footer."""
    with data_location.opened(path) as file:
        return frozenset(field.name for field in pq.read_schema(file) if is_list(field.type))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a column's type is a list, including the form that other writers use."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


@functools.lru_cache(maxsize=1 << 10)
def _share(names: tuple[str, ...]) -> frozenset[str]:
    """Return one shared set for the many files that have the same columns."""
    return frozenset(names)


def live_rows(path: DataPath, names: Sequence[str], deleted: deletion_vector.Rows) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are not deleted, at most `ROW_GROUP_ROWS` at a time.

    `names`: the columns, by their names in the file; a column that the file does not have is omitted. `deleted`: ascending row numbers.
    Raise XX001 if the file is damaged.
    """
    with opened(path) as file:
        existing = set(file.schema_arrow.names)
        batches = file.iter_batches(ROW_GROUP_ROWS, columns=[name for name in names if name in existing])
        yield from (batch for batch in deletion_vector.without(batches, deleted) if batch.num_rows)


def write(table: DataPath, rows: pa.Table, physical: Mapping[str, str], number: int = 0) -> Action:
    """Write a data file. Return its `add` action. `number`: the file's position among those of one write (the change feed's order)."""
    return write_pieces(table, rows.schema, [rows], physical, number, sorting=_sorting(rows), in_memory=rows.nbytes <= SMALL_BYTES)


def write_pieces(
    table: DataPath,
    schema: pa.Schema,
    pieces: Iterable[pa.Table],
    physical: Mapping[str, str],
    number: int = 0,
    *,
    sorting: Sequence[pq.SortingColumn] | None = None,
    in_memory: bool = False,
) -> Action:
    """Write a data file of rows that are passed piece by piece, at least one piece. Return its `add` action. `in_memory`: see `_write`."""
    path = f"part-{number:05d}-{uuid.uuid4()}-c000.snappy.parquet"
    statistics_of_pieces = []

    def counted() -> Iterator[pa.Table]:
        for piece in pieces:
            statistics_of_pieces.append(statistics(piece, physical))
            yield piece

    size = _write(table / path, schema, counted(), physical, sorting=sorting, in_memory=in_memory)
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": to_json(merge_statistics(statistics_of_pieces)),
        }
    }


def _sorting(rows: pa.Table) -> list[pq.SortingColumn] | None:
    """Return the first column for the file's footer if the rows are sorted by it. Floats are excluded: Parquet orders them differently."""
    if not rows.num_columns or not rows.num_rows:
        return None
    first = rows.column(0)
    if first.null_count or pa.types.is_floating(first.type) or pa.types.is_nested(first.type) or pa.types.is_boolean(first.type):
        return None
    ascends = pc.all(pc.less_equal(first.slice(0, len(first) - 1), first.slice(1))).as_py()
    return [pq.SortingColumn(0)] if ascends in (True, None) else None


_UNWRITTEN = "unwritten-"


def unwritten_changes(size: int) -> Action:
    """Return the `cdc` action of change rows in memory. Its file does not exist, so it must not be committed (`staging`)."""
    return {"cdc": {"path": f"{_UNWRITTEN}{uuid.uuid4()}", "partitionValues": {}, "size": size, "dataChange": False}}


def is_unwritten(path: str) -> bool:
    """Return whether a path is that of an action from `unwritten_changes`."""
    return path.startswith(_UNWRITTEN)


def write_changes(table: DataPath, schema: pa.Schema, pieces: Iterable[pa.Table], physical: Mapping[str, str], number: int = 0) -> Action:
    """Write a change file of rows that are passed piece by piece, with a column `_change_type`. Return its `cdc` action.

    `number`: as for `write`.
    """
    path = f"_change_data/cdc-{number:05d}-{uuid.uuid4()}.c000.snappy.parquet"
    data_location.make_folder(table / "_change_data")
    size = _write(table / path, schema, pieces, physical)
    return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


def _write(
    path: DataPath,
    schema: pa.Schema,
    pieces: Iterable[pa.Table],
    physical: Mapping[str, str],
    *,
    sorting: Sequence[pq.SortingColumn] | None = None,
    in_memory: bool = False,
) -> int:
    """Write a file and return its size in bytes. Each piece begins a row group.

    `in_memory`: the content is encoded in memory first. For a small file this takes a third of the time: Arrow needs 0.15 ms to open one.
    """
    schema = pa.schema([field.with_name(physical.get(field.name, field.name)) for field in schema])
    not_floating = [field.name for field in schema if not pa.types.is_floating(field.type)]
    with data_location.written(path) as target:
        content = pa.BufferOutputStream() if in_memory else None
        with pq.ParquetWriter(
            target if content is None else content,
            schema,
            compression="snappy",
            coerce_timestamps="us",
            write_statistics=not_floating,
            use_dictionary=not_floating,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=sorting,
        ) as file:
            for rows in pieces:
                file.write_table(rows.rename_columns(schema.names), row_group_size=ROW_GROUP_ROWS)
        return target.stat().st_size if content is None else target.write_bytes(content.getvalue())


def statistics(rows: pa.Table, physical: Mapping[str, str]) -> Statistics:
    """Return the statistics of an `add` action. Bounds that are not certain are omitted."""
    least: dict[str, Bound] = {}
    most: dict[str, Bound] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names[:_STATS_COLUMNS]:
        column, stored = rows[name], physical.get(name, name)
        nulls[stored] = column.null_count
        bounds = _bounds(column)
        if bounds is not None:
            least[stored], most[stored] = bounds
    return Statistics(rows.num_rows, least, most, nulls)


def merge_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of a file from those of its pieces. A column has no bounds if a piece with values of it has none."""
    nulls = {name: sum(part.nulls[name] for part in parts) for name in parts[0].nulls}
    least, most = {}, {}
    for name in nulls:
        valued = [part for part in parts if part.nulls[name] < part.rows]
        if valued and all(name in part.least for part in valued):
            least[name] = min(part.least[name] for part in valued)
            most[name] = max(part.most[name] for part in valued)
    return Statistics(sum(part.rows for part in parts), least, most, nulls)


def _bounds(column: pa.ChunkedArray) -> tuple[Bound, Bound] | None:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_nested(kind) or column.null_count == len(column):
        return None
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    if pa.types.is_timestamp(kind):
        return _moments(column)
    least, most = pc.min_max(column).values()
    low, high = least.as_py() if not pa.types.is_date(kind) else least, most.as_py() if not pa.types.is_date(kind) else most
    if isinstance(low, str):
        return low[:_STATS_LENGTH], _rounded_up(high)
    if pa.types.is_date(kind):
        days = least.cast(pa.int32()).as_py(), most.cast(pa.int32()).as_py()
        return (_day(days[0]), _day(days[1])) if all(-719162 <= day <= 2932896 for day in days) else None
    return low, high


def _rounded_up(text: str) -> str:
    """Return the text if it is short, and otherwise a greater one: its first characters, and one more U+10FFFF than follow them."""
    if len(text) <= _STATS_LENGTH:
        return text
    rest = text[_STATS_LENGTH:]
    return text[:_STATS_LENGTH] + _LAST * (len(rest) - len(rest.lstrip(_LAST)) + 1)


def to_json(stats: Statistics) -> str:
    """Return the statistics as JSON text, decimals with all their digits."""

    def mark(value: object) -> str:
        if isinstance(value, decimal.Decimal):
            return f"\0{value:f}\0"
        raise TypeError(value)

    bounds = {"minValues": stats.least, "maxValues": stats.most}
    content = {"numRecords": stats.rows, **bounds, "nullCount": stats.nulls, "tightBounds": True}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=mark)
    return _MARKED.sub(r"\1", text)


def _day(days: int) -> str:
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()


def _moments(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return the bounds of timestamps in whole milliseconds, rounded outwards."""
    least, most = (bound.cast(pa.int64()).as_py() for bound in pc.min_max(column).values())
    low, high = least // 1000, math.ceil(most / 1000) if abs(most) < 1 << 50 else -(-most // 1000)
    first, last = -62135596800000, 253402300799999
    if not first <= low <= high <= last:
        return None
    zone = "Z" if column.type.tz else ""
    return _moment(low) + zone, _moment(high) + zone


def _moment(milliseconds: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=milliseconds)  # noqa: DTZ001 (the zone is in the type)
    return moment.isoformat(timespec="milliseconds")
