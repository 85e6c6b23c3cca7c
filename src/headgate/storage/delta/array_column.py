"""Array columns that are Delta arrays in the files and text everywhere else.

A table WITH (array_storage = array) has them for readers that access elements or explode them. The node itself uses PostgreSQL's text of an
array, with its bounds and dimensions. `TableState.lists` names these columns, from the table's own metadata: a column keeps the form in
which it was created. All reads and writes of files convert here (`write`, `delta_table`, `rows`, `feed`, `changes.lookup`, the tasks of an
initial copy). Code that moves rows from file to file (compaction, copy on write, change files of whole files) keeps the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from headgate.catalog.relation.relation import Column as TableColumn
from headgate.storage.delta import parquet
from headgate.storage.spark import failure
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.internals import arrow_function
from headgate.types.storage import list_type, spark_type, spark_type_of
from headgate.types.text import list_array

Lists = Mapping[str, pa.ListType]
"""Columns that the files hold as lists, by name."""


def file_type(column: TableColumn, *, as_lists: bool) -> DataType:
    """Return the Spark type of a new column in its table's metadata.

    `as_lists`: arrays are Delta arrays unless they were declared with more than one dimension.
    """
    arrow_list = list_type(column.type_oid, column.typmod) if as_lists and column.dimensions <= 1 else None
    return spark_type(column.type_oid, column.typmod) if arrow_list is None else spark_type_of(arrow_list)


def of_file(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Convert a column of a file to the Arrow type in which the node holds it."""
    if pa.types.is_string(kind) and parquet.is_list(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        texts_of_chunks = [list_array.texts(chunk) for chunk in chunks]
        return pa.chunked_array(texts_of_chunks, pa.string()) if isinstance(column, pa.ChunkedArray) else texts_of_chunks[0]
    return column if column.type == kind else column.cast(kind)


def to_file(rows: pa.Table, lists: Lists) -> pa.Table:
    """Convert rows to the form of a file. Raise 0A000 for an array that is not a list."""
    for name, kind in lists.items():
        index = rows.schema.get_field_index(name)
        if index >= 0:
            chunks = [list_array.lists(chunk, kind, name) for chunk in rows.column(index).chunks]
            rows = rows.set_column(index, pa.field(name, kind), pa.chunked_array(chunks, kind))
    return rows


def of_files(frame: DataFrame, lists: Lists) -> DataFrame:
    """Convert a frame of a table's files, which may have other columns, to the node's form."""
    return _each(frame, dict.fromkeys(lists, texts))


def to_files(frame: DataFrame, lists: Lists) -> DataFrame:
    """Convert a frame of rows, which may have other columns, to the form that Delta writes. Its job fails with 0A000 for a non-list."""
    return _each(frame, {name: _list_writer(name, kind) for name, kind in lists.items()})


def texts(column: Column) -> Column:
    """Convert a column of lists to the text in which the node holds it."""
    return arrow_function.of_arrays(list_array.texts, StringType())(column)


def _list_writer(name: str, kind: pa.ListType) -> Callable[[Column], Column]:
    def to_lists(arrays: pa.Array) -> pa.Array:
        return list_array.lists(arrays, kind, name)

    return arrow_function.of_arrays(failure.marking(to_lists), spark_type_of(kind))


def _each(frame: DataFrame, conversions: Mapping[str, Callable[[Column], Column]]) -> DataFrame:
    if not conversions:
        return frame
    columns = {name: F.col(quoted(name)) for name in frame.columns}
    return frame.select(*[conversions[name](column).alias(name) if name in conversions else column for name, column in columns.items()])
