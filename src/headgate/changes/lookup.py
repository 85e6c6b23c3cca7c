"""Finds the stored rows that have given keys, with DuckDB over the files that can contain them, for up to some ten thousand keys.

A lookup in ten million rows takes 0.01-0.1 s, where a Spark job takes over a second. File statistics exclude files, and deletion
vectors exclude deleted rows. DuckDB does not verify the checksums of Parquet's pages, and a flipped bit may turn a key into another, so
each file is verified before it is first read. A file that is read repeatedly is kept decoded in memory (`HeldFiles`). A file of whose rows
a large share is wanted is read by Arrow as a whole (`_in_groups`), so that its pages are decoded once.

Called by `merge`, by `unique` for local INSERT and UPDATE, and for statements that name rows by their key
(`commands.query.driver.key_lookup`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import FunctionNullHandling, PythonUDFType
from numpy.typing import NDArray

from headgate.catalog.relation.relation import Relation
from headgate.storage.delta import deletion_vector, file_action, file_statistics, parquet
from headgate.storage.delta import rows as stored_rows
from headgate.storage.delta.table_folder import TableFolder
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.partitioned import ordered
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry, sortkey
from headgate.types.storage import stored_as_text
from headgate.types.text import list_array

AFTER = 8
"""The number of lookups in a file before it is cached."""
FILE_BYTES = 32 << 20
"""The size in bytes (in Parquet, or decoded) above which a file is not cached."""
MOST_BYTES = 96 << 20
"""The maximum size in bytes of all cached files, decoded."""
_NOTED = 4_096
"""The number of files whose lookups are counted."""
_LONGEST = 64
"""The maximum length in bytes of a text key."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HeldFile:
    """The rows of a file, and one of its columns in order: ``keys[i]`` is the key of row ``places[i]`` (if `places` is None: of row i)."""

    rows: pa.Table
    keys: npt.NDArray[np.generic]
    places: Numbers | None

    @property
    def nbytes(self) -> int:
        return buffers.memory(self.rows) + self.keys.nbytes + (0 if self.places is None else self.places.nbytes)

    def find(self, keys: pa.Array) -> tuple[Numbers, Numbers]:
        """Return (index in `keys`, row of the file) for each row that has one of the keys. `keys` contains no NULL."""
        indexes = np.arange(len(keys), dtype=np.int64)
        if self.keys.dtype != np.int64:  # texts of another length are none of these
            indexes = np.flatnonzero(pc.binary_length(keys).to_numpy(zero_copy_only=False) == self.keys.itemsize)
            keys = keys.take(pa.array(indexes))
        values = _comparable_keys(keys)
        if values is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first, behind = np.searchsorted(self.keys, values, "left"), np.searchsorted(self.keys, values, "right")
        counts = behind - first
        before = np.cumsum(counts) - counts
        at = np.arange(counts.sum(), dtype=np.int64) + np.repeat(first - before, counts)
        return np.repeat(indexes, counts), at if self.places is None else self.places[at]


class HeldFiles:
    """The cache of decoded files: the sorted key column of each, with the rows beside it. Thread-safe.

    A lookup of one key in a file of 100,000 rows takes DuckDB 5 to 15 ms. Most of that time goes into unpacking pages for one row. A
    transaction of a thousand statements, or a stream of small ones, unpacks the same pages a thousand times. Files never change, so a
    cached file is never stale. The key is one column of integers, or of texts of one length (uuid).

    Invariant: all cached files together take at most `MOST_BYTES`. A file is cached only after `AFTER` lookups, and after it was evicted
    only after as many again. So files that evict each other cost a fraction of the lookups, not a multiple.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], HeldFile] = OrderedDict()
        self._looks: OrderedDict[tuple[str, str], int | None] = OrderedDict()
        """How often a file that is not held was looked at; None: it is none that can be held."""
        self.nbytes = 0

    def get(self, place: str, column: str, size: int) -> HeldFile | None:
        """Return the cached form of a local file with a key column, or None if it is not cached and not yet due.

        `size`: its bytes in Parquet. Raises XX001 if the file is damaged.
        """
        key = (place, column)
        with self._lock:
            if (held := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                return held
            if size > FILE_BYTES or not self._is_due(key):
                return None
        held = _read_held(place, column)
        with self._lock:
            if held is None:
                self._looks[key] = None
            elif key not in self._held:
                self._held[key] = held
                self.nbytes += held.nbytes
            while self.nbytes > self._most:
                self.nbytes -= self._held.popitem(last=False)[1].nbytes
        return held

    def _is_due(self, key: tuple[str, str]) -> bool:
        """Count a lookup. Return whether the file must be read now. Only one of several concurrent lookups reads it."""
        looks = self._looks.pop(key, 0)
        self._looks[key] = None if looks is None else (looks + 1) % AFTER
        if len(self._looks) > _NOTED:
            self._looks.popitem(last=False)
        return looks == AFTER - 1


def _read_held(place: str, column: str) -> HeldFile | None:
    """Read and decode a file. Return None if its key has an unsupported type, or if it is too large."""
    with parquet.opened(Path(place)) as file:
        decoded = sum(int(file.metadata.row_group(number).total_byte_size) for number in range(file.num_row_groups))
        if column not in file.schema_arrow.names or decoded > FILE_BYTES:
            return None
        rows = file.read().combine_chunks()
    return None if rows.nbytes > FILE_BYTES else _sorted(rows, column)


def _sorted(rows: pa.Table, column: str) -> HeldFile | None:
    """Return rows with their key in order, or None if the key has NULLs or is of an unsupported type."""
    named = buffers.whole(rows.column(column))
    keys = None if named.null_count else _comparable_keys(named)
    if keys is None:
        return None
    if bool(np.all(np.less_equal(keys[:-1], keys[1:]))):
        return HeldFile(rows, keys, None)
    places = np.argsort(keys, kind="stable")
    return HeldFile(rows, keys[places], places)


def _comparable_keys(column: pa.Array) -> npt.NDArray[np.generic] | None:
    """Return a column without NULLs in NumPy's form: integers as int64, texts of one length as bytes. None for others."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    if not pa.types.is_string(column.type) or not len(column):
        return None
    data, offsets = buffers.view(column)
    lengths = np.diff(offsets)
    length = int(lengths[0])
    if not 0 < length <= _LONGEST or bool(np.any(lengths != length)):
        return None
    return np.ascontiguousarray(data).view(f"S{length}")


_files_held = HeldFiles()
LARGE_SHARE = 8
"""A file is read as a whole if at least one key for this many of its rows is wanted."""
DECODED_BYTES = 64 << 20
"""The size of the rows that are decoded at a time when a file is read as a whole."""
FAR_BYTES = 16 << 20
"""The size in bytes above which a file of an object store is not fetched as a whole for a lookup."""
_TRAILING = r"^(-?[0-9]+)(?:\.0*|(\.[0-9]*?[1-9])0*)$"
"""Matches numeric's text form with trailing zeros: 1.50 and 1.5 are equal."""


@dataclass(frozen=True)
class RowKey:
    """The columns that identify a row. `exact[i]`: equal values have equal stored forms (not true for numeric as text, char(n))."""

    names: tuple[str, ...]
    exact: tuple[bool, ...]
    kinds: tuple[int, ...]

    def arrays(self, rows: pa.StructArray) -> list[pa.Array]:
        """Return the key columns of rows, in canonical form."""
        return [canonical_array(rows.field(n), kind) for n, kind in zip(self.names, self.kinds, strict=True)]


def key_of(relation: Relation, attnums: Sequence[int]) -> RowKey:
    """Return the key with these columns (attnums). All columns of the relation make the key of REPLICA IDENTITY FULL."""
    by_number = {c.attnum: c for c in relation.columns}
    chosen = [by_number[n] for n in attnums]
    kinds = tuple(kind_of(c.type_oid, c.typmod) for c in chosen)
    return RowKey(tuple(c.name for c in chosen), tuple(not kind for kind in kinds), kinds)


def identifying(relation: Relation, attnums: Sequence[int] | None) -> RowKey:
    """Return the key that identifies rows of a batch. None (REPLICA IDENTITY FULL): all columns that a publisher sends."""
    return key_of(relation, [column.attnum for column in relation.columns if column.generated is None] if attnums is None else attnums)


def kind_of(type_oid: int, typmod: int) -> int:
    """Return the type by which values of a type are compared (see `canonical_array`), or 0 if their stored forms can be compared."""
    base = registry.known().base(type_oid)[0]
    is_exact = not stored_as_text(type_oid, typmod) if base == registry.NUMERIC else sortkey.exact(type_oid, registry.known())
    return 0 if is_exact else base


def canonical_array(column: pa.Array, kind: int) -> pa.Array:
    """Return an Arrow column in a form that is equal for equal values."""
    match kind:
        case 0:
            return column
        case registry.BPCHAR:
            return pc.utf8_rtrim(column, " ")
        case registry.NUMERIC:
            return pc.replace_substring_regex(column, _TRAILING, r"\1\2")
        case registry.FLOAT4 | registry.FLOAT8:
            return pc.add(column, pa.scalar(0, column.type))  # -0 is 0
        case _:
            return sortkey.keys(column, kind, registry.known())


def hashes(keys: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Return a hash of each key (canonical columns, at least one). It is the same in every process."""
    named = pa.table([bits(column) for column in keys], names=[f"k{position}" for position in range(len(keys))])
    with _cursor() as cursor:
        cursor.register("keys", named)
        result = cursor.sql(f"SELECT hash({', '.join(named.column_names)}) AS h FROM keys").to_arrow_table()
    return np.asarray(result["h"].to_numpy())


def members(keys: pa.Table) -> frozenset[tuple[Hashable, ...]]:
    """Return the canonical keys of a few rows as a set. NaN equals NaN, and times beyond the range of Python's types are supported."""
    return frozenset(zip(*[_hashable(column).to_pylist() for column in keys.columns], strict=True))


def _hashable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        return column.cast(pa.string())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return column


def _canonical_sql(name: str, kind: int) -> str:
    match kind:
        case 0:
            return name
        case registry.BPCHAR:
            return f"rtrim({name}, ' ')"
        case registry.NUMERIC:
            return f"regexp_replace({name}, '{_TRAILING}', '\\1\\2')"
        case registry.FLOAT4 | registry.FLOAT8:
            return f"{name} + 0::{'FLOAT' if kind == registry.FLOAT4 else 'DOUBLE'}"
        case _:
            return f"{_key_function(kind)}({name})"


def _key_function(kind: int) -> str:
    """Return the DuckDB function that computes the equality key of a text by its type."""
    types = registry.known()

    def equality_key(texts: pa.ChunkedArray) -> pa.Array:
        return sortkey.keys(buffers.whole(texts).cast(pa.string()), kind, types)

    return _function(f"equality_key_{kind}", equality_key, pa.string(), "BLOB")


def bits(column: pa.Array) -> pa.Array:
    """Return a canonical key column in a form in which Arrow finds equal values equal: all NaNs are the same."""
    if not pa.types.is_floating(column.type):
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(np.nan, column.type), column)
    return one_nan.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def _list_function(kind: pa.ListType) -> str:
    """Return the DuckDB function that returns the array of a list."""

    def array(lists: pa.ChunkedArray) -> pa.Array:
        return list_array.texts(buffers.whole(lists).cast(kind))

    return _function("array_of_" + re.sub(r"\W+", "_", str(kind.value_type)), array, kind, "VARCHAR")


def _function(name: str, run: Callable[[pa.ChunkedArray], pa.Array], of: pa.DataType, result: str) -> str:
    """Return the name of a DuckDB function of one column of this Arrow type. It is created on first use."""
    with _lock:
        if name not in _functions:
            [parameter] = _database().from_arrow(pa.table({"c": pa.array([], of)})).types
            _database().create_function(
                name, run, [parameter], result, type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL
            )
            _functions.add(name)
    return name


_functions: set[str] = set()


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"threads": 2, "memory_limit": "256MB"})
    database.execute("SET GLOBAL TimeZone = 'UTC'")  # INT96 has no zone: Spark stores instants so, in UTC
    return database


_lock = threading.Lock()


def find(transaction: Transaction, relation: Relation, key: RowKey, keys: pa.Table) -> pa.Table:
    """Return the stored rows whose key is in `keys` (columns k0, k1… canonical, no duplicates), as this transaction sees them.

    Columns: `i` the row of `keys`, `old` struct, `file` string, `row` bigint (as `TableReader.positions` returns them).
    NULL in a key matches NULL.
    """
    if relation.is_partitioned:
        return _find_in_leaves(transaction, relation, key, keys)
    table = transaction.reader.table(relation)
    return find_in(table, relation, transaction.reader.newest(relation), key, keys)


def find_in(table: TableFolder, relation: Relation, state: TableState, key: RowKey, keys: pa.Table, *, most: int | None = None) -> pa.Table:
    """Like `find`, for a table that is not partitioned, in the files of one of its states.

    `most`: the maximum number of rows that are read, deleted ones included.
    """
    row = arrow_row(relation)
    files = _files(state, key, keys)
    if not files or not keys.num_rows:
        return _shape(row).empty_table()
    places = _places(table, state, files)
    return _live(table, state, places, _query(table, state, key, row, places, keys, most))


def _find_in_leaves(transaction: Transaction, root: Relation, key: RowKey, keys: pa.Table) -> pa.Table:
    """Return the stored rows of a partitioned table."""
    parts = []
    for leaf in transaction.partitioned(root).leaves:
        stored = find(transaction, leaf, key, keys)
        if stored.num_rows:
            old = ordered(root, buffers.whole(stored["old"]))
            parts.append(stored.set_column(stored.column_names.index("old"), "old", old))
    return pa.concat_tables(parts) if parts else _shape(arrow_row(root)).empty_table()


def no_rows(relation: Relation) -> pa.Table:
    """Return the result of a lookup that finds nothing."""
    return _shape(arrow_row(relation)).empty_table()


def _shape(row: pa.Schema) -> pa.Schema:
    return pa.schema([("i", pa.int64()), ("old", pa.struct(list(row))), ("file", pa.string()), ("row", pa.int64())])


def _files(state: TableState, key: RowKey, keys: pa.Table) -> list[str]:
    for i, name in enumerate(key.names):
        values = keys.column(f"k{i}")
        if key.exact[i] and not values.null_count:
            return file_statistics.candidates(state, name, values)
    return list(state.files)


def _query(
    table: TableFolder, state: TableState, key: RowKey, row: pa.Schema, places: Mapping[str, str], keys: pa.Table, most: int | None
) -> pa.Table:
    """Join the wanted keys with the files. Return i, old, filename and row of each matching row, deleted ones included."""
    held, left = _held(state, key, places, keys)
    parts = [_in_held(state, row, place, file, keys, most) for place, file in held.items()]
    if most is None and _is_plain(key, keys):
        whole = _in_whole_files(state, key, row, left, keys)
        parts += itertools.chain.from_iterable(whole.values())
        left = {place: name for place, name in left.items() if place not in whole}
    if left or not parts:
        parts.append(_in_files(table, state, key, row, left, keys, most))
    return pa.concat_tables(parts)


def _held(state: TableState, key: RowKey, places: Mapping[str, str], keys: pa.Table) -> tuple[dict[str, HeldFile], dict[str, str]]:
    """Return the files that are kept decoded, and the other files, by the names that DuckDB uses."""
    held: dict[str, HeldFile] = {}
    if _is_plain(key, keys):
        column = state.physical.get(key.names[0], key.names[0])
        for place, name in places.items():
            if Path(place).is_absolute() and (file := _files_held.get(place, column, state.files[name]["size"])) is not None:
                held[place] = file
    return held, {place: name for place, name in places.items() if place not in held}


def _is_plain(key: RowKey, keys: pa.Table) -> bool:
    """Return whether the key is one column whose stored values can be compared, and none of the wanted keys is NULL."""
    return len(key.names) == 1 and key.exact[0] and not keys["k0"].null_count


def _in_whole_files(state: TableState, key: RowKey, row: pa.Schema, places: Mapping[str, str], keys: pa.Table) -> dict[str, list[pa.Table]]:
    """Return the results of `_query` for those of the files of which a large share of the rows is wanted, by the files' places."""
    wanted = [place for place, name in places.items() if keys.num_rows * LARGE_SHARE >= file_action.records(state.files[name])]
    found = {place: _in_groups(state, key, row, place, keys, state.files[places[place]]["size"]) for place in wanted}
    return {place: parts for place, parts in found.items() if parts}


def _in_groups(state: TableState, key: RowKey, row: pa.Schema, place: str, keys: pa.Table, size: int) -> list[pa.Table] | None:
    """Return the result of `_query` for a local file of whose rows a large share is wanted, or None if its key is not of integers.

    `size`: the bytes of the file. It is read once, with its checksums. At most `parquet.ROW_GROUP_ROWS` rows, or about `DECODED_BYTES`,
    are decoded at a time.
    """
    column = state.physical.get(key.names[0], key.names[0])
    if not Path(place).is_absolute():
        return None
    parts, first = [], 0
    for batch in _batches(place, size):
        if column not in batch.schema.names or not pa.types.is_integer(batch.schema.field(column).type):
            return None
        group = _sorted(batch, column)
        if group is None:
            return None
        found = _in_held(state, row, place, group, keys, None)
        parts.append(found.set_column(found.column_names.index("row"), "row", pc.add(found["row"], first)))
        first += batch.num_rows
    return parts


def _batches(place: str, size: int) -> Iterator[pa.Table]:
    """Yield the rows of a local file of `size` bytes in pieces, with its checksums verified."""
    if size <= parquet.SMALL_BYTES:
        yield stored_rows.content(Path(place))
        return
    with parquet.opened(Path(place)) as file:
        decoded = sum(int(file.metadata.row_group(number).total_byte_size) for number in range(file.num_row_groups))
        fitting = DECODED_BYTES * file.metadata.num_rows // max(decoded, 1)
        for batch in file.iter_batches(max(min(fitting, parquet.ROW_GROUP_ROWS), 1)):
            yield pa.Table.from_batches([batch])


def _in_held(state: TableState, row: pa.Schema, place: str, file: HeldFile, keys: pa.Table, most: int | None) -> pa.Table:
    """Return the result of `_query` for one file that is kept decoded."""
    indexes, at = [column[:most] for column in file.find(buffers.whole(keys["k0"]))]
    arrays = [buffers.whole(column) for column in stored_rows.columns(file.rows.take(pa.array(at)), state, row)]
    old = pa.StructArray.from_arrays(arrays, fields=list(row))
    names = pa.repeat(pa.scalar(place, pa.string()), len(at))
    return pa.table({"i": pa.array(indexes), "old": old, "filename": names, "row": pa.array(at)})


def _in_files(
    table: TableFolder, state: TableState, key: RowKey, row: pa.Schema, places: Mapping[str, str], keys: pa.Table, most: int | None
) -> pa.Table:
    """Return the result of `_query` for files that DuckDB reads."""
    paths = [*places]
    held = frozenset[str]().union(*[_columns_of(table, place, name) for place, name in places.items()])
    # columns that were added after all of these files were written are NULL there
    names = {n: _text_sql(state, n) if state.physical.get(n, n) in held else "NULL" for n in row.names}
    columns = ", ".join(f"{names[n]} AS c{i}" for i, n in enumerate(row.names))
    compared = [_canonical_sql(names[n], kind) for n, kind in zip(key.names, key.kinds, strict=True)]
    result = (_one if _is_one(keys) else _joined)(paths, compared, columns, keys, "" if most is None else f" LIMIT {most}")
    arrays = [
        pa.nulls(result.num_rows, field.type) if names[field.name] == "NULL" else buffers.whole(result[f"c{i}"]).cast(field.type)
        for i, field in enumerate(row)
    ]
    old = pa.StructArray.from_arrays(arrays, fields=list(row)) if arrays else pa.array([{}] * result.num_rows, pa.struct([]))
    return pa.table({"i": result["i"], "old": old, "filename": result["filename"], "row": result["file_row_number"]})


_SOURCE = "read_parquet(?, filename = true, file_row_number = true, union_by_name = true, hive_partitioning = false) p"


def _is_one(keys: pa.Table) -> bool:
    """Return whether exactly one key is wanted, whose values SQL literals can express."""
    kinds = keys.schema.types
    return (
        keys.num_rows == 1
        and bool(kinds)
        and all(
            (pa.types.is_integer(kind) or pa.types.is_string(kind)) and not column.null_count
            for kind, column in zip(kinds, keys.columns, strict=True)
        )
    )


def _one(paths: list[str], compared: Sequence[str], columns: str, keys: pa.Table, limit: str) -> pa.Table:
    """Return the rows of one key. DuckDB runs this filter faster than a join."""
    values = [column[0].as_py() for column in keys.columns]
    match = " AND ".join(f"{left} = {'?' if isinstance(value, str) else value}" for left, value in zip(compared, values, strict=True))
    query = f"SELECT 0::BIGINT AS i, p.filename, p.file_row_number, {columns} FROM {_SOURCE} WHERE {match}{limit}"
    with _cursor() as cursor:
        return cursor.sql(query, params=[paths, *(value for value in values if isinstance(value, str))]).to_arrow_table()


def _joined(paths: list[str], compared: Sequence[str], columns: str, key_table: pa.Table, limit: str) -> pa.Table:
    conditions = [(left, f"w.k{i}", key_table[f"k{i}"].null_count) for i, left in enumerate(compared)]
    match = " AND ".join(f"{left} IS NOT DISTINCT FROM {right}" if nulls else f"{left} = {right}" for left, right, nulls in conditions)
    with _cursor() as cursor:
        cursor.register("wanted", key_table.append_column("i", pa.array(np.arange(key_table.num_rows))))
        query = f"SELECT w.i, p.filename, p.file_row_number, {columns} FROM {_SOURCE} JOIN wanted w ON {match}{limit}"
        return cursor.sql(query, params=[paths]).to_arrow_table()


def _cursor() -> contextlib.closing[duckdb.DuckDBPyConnection]:
    with _lock:
        return contextlib.closing(_database().cursor())


def _places(table: TableFolder, state: TableState, files: list[str]) -> dict[str, str]:
    """Return the files by the names that DuckDB uses.

    These are local copies. A large file in an object store has its URL, and DuckDB reads only the columns that it needs.
    """
    paths = {name: table.path / unquote(name) for name in files}
    far = {name: path for name, path in paths.items() if state.files[name]["size"] > FAR_BYTES and not data_location.is_near(path)}
    data_location.fetch(path for name, path in paths.items() if name not in far)
    if far:
        with _lock:
            data_location.register_with(_database(), table.path)
    return {data_location.far_name(path) if name in far else str(data_location.local(path)): name for name, path in paths.items()}


def _columns_of(table: TableFolder, place: str, name: str) -> frozenset[str]:
    """Return the columns of a file, after verifying its pages.

    If only parts of a file are read, the object store guarantees its integrity.
    """
    if data_location.is_local(table.path) or Path(place).is_absolute():
        return parquet.verify(place)
    return parquet.column_names(table.path / unquote(name))


def _text_sql(state: TableState, name: str) -> str:
    """Return the SQL of a column of a file, in the form that the node stores."""
    column = f"p.{_identifier(state, name)}"
    return column if name not in state.lists else f"{_list_function(state.lists[name])}({column})"


def _identifier(state: TableState, name: str) -> str:
    return '"' + state.physical.get(name, name).replace('"', '""') + '"'


def _live(table: TableFolder, state: TableState, named: Mapping[str, str], matches: pa.Table) -> pa.Table:
    """Remove the deleted rows, and return files as URIs. `named`: the files' names in the log by the names that DuckDB uses."""
    paths, rows = buffers.whole(matches["filename"]).dictionary_encode(), matches["row"].to_numpy()
    keep = np.ones(matches.num_rows, bool)
    codes = paths.indices.to_numpy()
    uris = []
    for code, path in enumerate(paths.dictionary.to_pylist()):
        name = named[path]
        uris.append(table.uri(name))
        deleted = deletion_vector.read(table.path, state.files[name].get("deletionVector"))
        if len(deleted):
            keep &= ~((codes == code) & np.isin(rows, deleted))
    files = pa.array(uris, pa.string()).take(pa.array(codes))
    result = pa.table({"i": buffers.whole(matches["i"]), "old": matches["old"], "file": files, "row": pa.array(rows)})
    return result if keep.all() else result.filter(pa.array(keep))
