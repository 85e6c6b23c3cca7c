"""Reconciles a table that already has rows with the publisher's by their differences, in the commit that also writes state f.

Called by table syncs for a table that is to be synchronized again by its difference (`subscription_resync`). `host.FoundDifference`, which
the server provides from a layer above, finds the differences. This module fetches the differing rows in pieces, reads them like the
initial copy (defaults, generated columns, constraints), stages them as Parquet in the worker's folder, and merges them like a batch.

Invariant: only one piece of rows is in memory. The folder is removed afterwards; after a crash, when the sync begins again.
Traced: the slot is made at 0/50; 3 of 256 ranges differ; their 12,000 rows are fetched and staged, joined with the 11,990 here: 10 INSERTs
and one UPDATE are merged and committed with state f at 0/50; from there on the table is caught up as after any copy (`table_sync`).
"""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.pgoutput import message as m
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.host import FoundDifference
from headgate.subscriber.rows import conversion, row_completion, updated_rows
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.relation_map import Mapping, map_relation, shown
from headgate.subscriber.rows.table_writer import TableWriter
from headgate.subscriber.subscription_statistics import Counters
from headgate.subscriber.synchronization.copy_target import PIECE, CopyTarget
from headgate.subscriber.synchronization.initial_copy import Copied, InitialCopy
from headgate.types import registry, sortkey
from headgate.types.copy_text import read_copy_text
from headgate.walreceiver.connection import CreatedSlot, PublisherConnection
from headgate.walreceiver.remote import RemoteRelation

_log = logging.getLogger("headgate.subscriber")

_HASHES = ("k", "r")
"""The columns before those of the table: hashes of the row's key and of the row."""


class Reconciliation(InitialCopy):
    """The reconciliation of one table, run by a table sync like an initial copy."""

    is_copy = False

    def choose_method(self, connection: PublisherConnection) -> Copied:
        return self._reconcile

    def _reconcile(self, _: CreatedSlot, reader: PublisherConnection, transaction: Transaction, remote: RemoteRelation) -> None:
        """Write the differences. `reader` reads under the slot's snapshot. Raise the errors of a copy and of a batch of changes."""
        target = self.target(transaction, remote)
        mapping = _mapping_of(transaction, target)
        difference = self.worker.difference(transaction, mapping, remote, reader)
        folder = transaction.storage.exchange / f"reconcile-{self.slot}"
        data_location.remove_tree(folder)
        counts: dict[str, int] = {}
        try:
            ranges = difference.ranges()
            self.worker.check_stop()
            if ranges:
                data_location.make_folder(folder / "rows")
                with data_location.written(folder / "rows" / "rows.parquet", is_cached=False) as file:
                    self._stage(transaction, target, difference, reader, file)
                counts = self._merge(transaction, mapping, difference, folder)
        finally:
            data_location.remove_tree(folder)
        self.rows = counts.get("I", 0) + counts.get("U", 0)
        _log.info(
            'table "%s": %d ranges differ from the publisher\'s; %d rows to insert, %d to update, %d to delete',
            shown(target.local), len(ranges), *(counts.get(op, 0) for op in "IUD"),
        )  # fmt: skip

    def _stage(
        self, transaction: Transaction, target: CopyTarget, difference: FoundDifference, reader: PublisherConnection, file: Path
    ) -> None:
        """Write the publisher's rows to a Parquet file: k, r, new."""
        names = [*_HASHES, *difference.columns]
        places = {name: place for place, name in enumerate(names)}
        schema = pa.schema([(name, pa.string()) for name in _HASHES] + [("new", conversion.row_type(target.local.columns))])
        with pq.ParquetWriter(file, schema, coerce_timestamps="us") as writer:
            for piece in reader.copy_out(difference.command, PIECE):
                self.worker.check_stop()
                texts = read_copy_text(piece, len(names), names=names, first_line=self.rows + 1)
                sent = [texts[places[column.name]] for column in target.remote.columns]
                rows = self.checked(transaction, target, target.of_texts(sent, self.rows + 1))
                new = pa.StructArray.from_arrays(
                    [column.combine_chunks() for column in rows.columns], fields=list(schema.field("new").type)
                )
                with step(Step.COPY_RANGE):
                    writer.write_table(pa.table([texts[0], texts[1], new], schema=schema))
                self.count(rows.num_rows, len(piece))

    def _merge(self, transaction: Transaction, mapping: Mapping, difference: FoundDifference, folder: DataPath) -> dict[str, int]:
        """Merge the differences. Return the number of changes of each kind."""
        local = mapping.local
        extra = frozenset(column.name for column in mapping.extra if column.generated is None)
        accepted = row_completion.judged(local, extra, extra)[1]
        place = data_location.uri(folder / "changes")
        difference.changes(folder / "rows", sorted(extra | accepted)).write.parquet(place)
        self.worker.check_stop()
        changes = transaction.storage.spark.read.parquet(place)
        counted = changes.groupBy("op").agg(F.count(F.lit(1)).alias("n")).toArrow().to_pydict()
        counts = dict(zip(counted["op"], counted["n"], strict=True))
        if counts:
            by_driver = bool(updated_rows.Reads.of(transaction, local).needed(extra))
            writer = TableWriter(self.worker.rules, transaction, ApplyPlace(), Counters())
            writer.merge(local, mapping.key, changes.toArrow() if by_driver else changes)
            writer.settle()
        return counts


def _mapping_of(transaction: Transaction, target: CopyTarget) -> Mapping:
    """Return the mapping of columns as if the publisher sent each row completely: any key will do.

    Raise 42883 if rows cannot be compared.
    """
    local, remote = target.local, target.remote
    columns = tuple(m.RelationColumn(key=True, name=column.name, type_oid=column.type_oid, typmod=-1) for column in remote.columns)
    remote_relation = m.Relation(remote.oid, remote.schema, remote.name, ReplicaIdentity.FULL, columns)
    mapping = map_relation(transaction.cursor, local.database, remote_relation)
    if mapping.refusal is not None:
        raise mapping.refusal
    for column in conversion.old_columns(mapping):
        if not sortkey.comparable(column.type_oid, registry.known()):
            kind = registry.format_type(column.type_oid, -1)
            raise PostgresError(
                "42883", f"could not identify an equality operator for type {kind}", hint="Use headgate.resync() for this table."
            )
    return mapping
