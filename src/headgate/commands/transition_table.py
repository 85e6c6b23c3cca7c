"""Transition tables: the rows that a statement has changed, as a trigger's function reads them (manual, CREATE TRIGGER, REFERENCING).

`commands.trigger.firing` collects the rows while the statement writes. `commands.function.host` puts the tables of the trigger into the
session for each query of its function, and `analysis.from_clause` looks for one before it looks for a relation of that name.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.catalog.relation.relation import Relation
from headgate.storage import row_store
from headgate.storage.location.data_location import DataPath
from headgate.storage.row_store import RowStore
from headgate.storage.spark import exchange
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns


class TransitionTable:
    """The rows that one statement has changed in a table: their old or their new state, in the order in which it wrote them."""

    def __init__(self, relation: Relation, rows: RowStore) -> None:
        self.relation = relation
        self._rows = rows
        self._in_files: DataFrame | None = None
        self._forget: Callable[[], None] | None = None

    def add(self, rows: pa.Table) -> None:
        """Append rows of the table; further columns are ignored."""
        schema = arrow_row(self.relation)
        self._rows.extend(rows.select(schema.names).cast(schema).to_batches())

    def frame(self, spark: SparkSession, place: DataPath) -> DataFrame:
        """Return the rows as a frame; many rows are put into files below `place`, which stay until `close`."""
        part = self._rows.part(0, self._rows.rows)
        if not part.is_large:
            schema = arrow_row(self.relation)
            return local_frame(spark, pa.Table.from_batches(list(part), schema=schema), spark_columns(self.relation))
        if self._in_files is None:
            pieces = row_store.tables(part, exchange.FILE_ROWS, row_store.MEMORY_BYTES)
            self._in_files, self._forget = exchange.kept(spark, pieces, place)
        return self._in_files

    def close(self) -> None:
        """Remove the files. No query reads the rows any longer."""
        if self._forget is not None:
            self._forget()
            self._in_files = self._forget = None
