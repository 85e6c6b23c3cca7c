"""Columns of arrays that are Delta arrays in the files and texts everywhere else.

A table WITH (array_storage = array) has them for readers that take elements or explode them; to the node an array is PostgreSQL's text,
with its bounds and dimensions. `TableState.lists` says which columns they are, from the table's own metadata: what a column has been made
as it stays. Each way into a file and out of it passes here (`write`, `delta_table`, `rows`, `feed`, `changes.lookup`, an initial copy's
tasks); what moves rows from file to file (compaction, copy on write, change files of whole files) leaves the lists as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import DataType, StringType

from headgate.catalog.relation.relation import Column as TableColumn
from headgate.storage.delta import parquet
from headgate.storage.spark import failure
from headgate.storage.spark.column_name import quoted
from headgate.types.storage import list_type, spark_type, spark_type_of
from headgate.types.text import list_array

Lists = Mapping[str, pa.ListType]
"""Columns that the files hold as lists, by their names."""


def file_type(column: TableColumn, *, as_lists: bool) -> DataType:
    """The Spark type of a new column in its table's metadata.

    `as_lists`: arrays are Delta arrays, but where they were declared with more than one dimension.
    """
    made = list_type(column.type_oid, column.typmod) if as_lists and column.dimensions <= 1 else None
    return spark_type(column.type_oid, column.typmod) if made is None else spark_type_of(made)


def of_file(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column of a file in the Arrow type in which the node holds it."""
    if pa.types.is_string(kind) and parquet.is_list(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        made = [list_array.texts(chunk) for chunk in chunks]
        return pa.chunked_array(made, pa.string()) if isinstance(column, pa.ChunkedArray) else made[0]
    return column if column.type == kind else column.cast(kind)


def to_file(rows: pa.Table, lists: Lists) -> pa.Table:
    """Rows as a file holds them. 0A000 for an array that is no list."""
    for name, kind in lists.items():
        place = rows.schema.get_field_index(name)
        if place >= 0:
            chunks = [list_array.lists(chunk, kind, name) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, pa.field(name, kind), pa.chunked_array(chunks, kind))
    return rows


def of_files(frame: DataFrame, lists: Lists) -> DataFrame:
    """A frame of a table's files, with what else it has, as the node holds the rows."""
    return _each(frame, dict.fromkeys(lists, texts))


def to_files(frame: DataFrame, lists: Lists) -> DataFrame:
    """A frame of rows, with what else it has, as Delta writes them. Its job fails with 0A000 for an array that is no list."""
    return _each(frame, {name: _made(name, kind) for name, kind in lists.items()})


def texts(column: Column) -> Column:
    """A column of lists as the node holds it."""
    return arrow_udf(list_array.texts, StringType(), ArrowUDFType.SCALAR)(column)


def _made(name: str, kind: pa.ListType) -> Callable[[Column], Column]:
    def made(arrays: pa.Array) -> pa.Array:
        return list_array.lists(arrays, kind, name)

    return arrow_udf(failure.marking(made), spark_type_of(kind), ArrowUDFType.SCALAR)


def _each(frame: DataFrame, turned: Mapping[str, Callable[[Column], Column]]) -> DataFrame:
    if not turned:
        return frame
    columns = {name: F.col(quoted(name)) for name in frame.columns}
    return frame.select(*[turned[name](column).alias(name) if name in turned else column for name, column in columns.items()])
