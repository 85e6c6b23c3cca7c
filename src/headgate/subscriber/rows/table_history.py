"""The history of a table: every change that a subscription applies, as a row of an append-only table, before the batch is netted.

    _op           I, U, D, T (TRUNCATE), R (a row that the table had when the history was begun)
    _lsn          the publisher's commit LSN of the transaction, as a number
    _seq          the number of the change in its transaction; R: 0, the T before the Rs of a history that is begun again: -1
    _xid          the publisher's transaction; NULL for R
    _commit_time  the time of the commit
    _unchanged    the columns that the publisher did not send, because the change did not touch them; NULL if all were sent
    x             each column x of the table; for D the value in the old row, if it was sent
    _old_x        each column x of the old row of U and D, if it was sent

`rows` is a kernel: the driver calls it for each frame (`batch`), tasks call it for each slice (`decoding`). The rows are written in the
transaction of the batch, so that table and history agree at each LSN. `snapshot` begins a history
(`commands.subscription.history_tables`).

Invariant: replaying the rows in the order of `_lsn` and `_seq`, up to an LSN, gives the table as of that LSN. Generated columns are
not recorded because the others determine them. A history keeps the columns that its table has lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.replication import subscription_history
from headgate.catalog.replication.subscription_history import old_name
from headgate.changes.keyed_batch import whole_rows
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput.outline import Transactions
from headgate.storage.delta import file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.file_statistics import file_bounds, null_count
from headgate.storage.delta.table_state import TableState
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.log import POSTGRES_EPOCH
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers
from headgate.types.text.array import quoted as quoted_element

SUFFIX = "history"


class LackingHistoryError(PostgresError):
    """Raised if the history of a table does not exist yet, or lacks columns."""


def recorded(relation: Relation) -> Iterator[tuple[str, Column]]:
    """Return (name in the history, column) for each column of a history that is a column of the table."""
    columns = [column for column in relation.columns if column.generated is None]
    yield from ((column.name, column) for column in columns)
    yield from ((old_name(column.name), column) for column in columns)


def differing(relation: Relation, history: Relation) -> list[tuple[str, Column]]:
    """Return the items of `recorded` that a history lacks or has with another type."""
    held = {column.name: (column.type_oid, column.typmod) for column in history.columns}
    return [(name, column) for name, column in recorded(relation) if held.get(name) != (column.type_oid, column.typmod)]


def rows(
    relation: Relation, history: Relation, changes: pa.Table, transactions: Transactions, old: pa.StructArray | None = None
) -> pa.Table:
    """Return the rows of a history for a changes frame.

    `transactions` are those of the changes, in commit order. `old`: the old rows, which may have more columns than the frame's.
    """
    commit_lsn, ops = changes["commit_lsn"].to_numpy(), buffers.whole(changes["op"])
    at = np.searchsorted(transactions.commit_lsn, commit_lsn)
    old, new = (
        whole_rows(relation, structs) for structs in (buffers.whole(changes["old"]) if old is None else old, buffers.whole(changes["new"]))
    )
    values: dict[str, pa.Array] = {
        "_op": ops,
        "_lsn": buffers.whole(changes["commit_lsn"]),
        "_seq": pa.array(changes["seq"].to_numpy() - transactions.begin[at]),
        "_xid": pa.array(transactions.xid[at]),
        "_commit_time": pa.array(transactions.commit_time[at] + POSTGRES_EPOCH * 1_000_000, pa.timestamp("us", "UTC")),
        "_unchanged": _unchanged_columns(changes["unchanged"]),
    }
    deleted = pc.equal(ops, "D")
    has_deleted = pc.any(deleted).as_py()
    for column in relation.columns:
        if column.generated is None:
            before, after = buffers.field(old, column.name), buffers.field(new, column.name)
            values[column.name] = pc.if_else(deleted, before, after) if has_deleted else after
            values[old_name(column.name)] = before
    return _table(history, values, changes.num_rows)


def in_order(parts: Sequence[pa.Table]) -> pa.Table:
    """Return rows of a history in the order of the stream. TRUNCATEs are noted after the changes of their part of a segment."""
    rows = pa.concat_tables(parts)
    if len(parts) == 1:
        return rows
    return rows.sort_by([("_lsn", "ascending"), ("_seq", "ascending")])


def sends_all(history: TableState, actions: Sequence[Action]) -> bool:
    """Return whether the rows in these new files of a history have all values of their changes."""
    column = history.physical["_unchanged"]
    files = [action["add"] for action in actions if "add" in action]
    return all(null_count(add.get("stats"), column) == file_action.records(add) for add in files)


def snapshot(relation: Relation, history: Relation, held: pa.Table | DataFrame, lsn: Lsn, moment: datetime) -> pa.Table | DataFrame:
    values = {"_op": "R", "_lsn": int(lsn), "_seq": 0, "_commit_time": moment}
    names = [column.name for column in relation.columns if column.generated is None]
    if isinstance(held, DataFrame):
        kinds = {field.name: field.dataType for field in spark_columns(history)}
        own = {name: F.lit(value).cast(kinds[name]) for name, value in values.items()}
        own |= {name: F.col(quoted(name)) for name in names}
        return held.select(*[own.get(name, F.lit(None).cast(kinds[name])).alias(name) for name in kinds])
    own_values = {name: pa.array([value] * held.num_rows) for name, value in values.items()}
    return _table(history, own_values | {name: buffers.whole(held[name]) for name in names}, held.num_rows)


def restart(history: Relation, lsn: Lsn, moment: datetime) -> pa.Table:
    """Return the row of a history that empties the table before the rows of `snapshot`."""
    return _table(
        history, {"_op": pa.array(["T"]), "_lsn": pa.array([int(lsn)]), "_seq": pa.array([-1]), "_commit_time": pa.array([moment])}, 1
    )


def expire(transaction: Transaction, history: Relation, oldest: datetime) -> int:
    """Remove the files of a history whose changes all committed before a time. Return the number of files. No stream sends the removal."""
    transaction.lock(history)
    state = transaction.reader.newest(history)
    gone, expired = [], 0
    for add in state.files.values():
        (_, last), (_, lsn) = (file_bounds(add.get("stats"), state.physical[name]) for name in ("_commit_time", "_lsn"))
        if last is not None and lsn is not None and datetime.fromisoformat(last) < oldest:
            gone.append(file_action.removal(add, data_change=True))
            expired = max(expired, int(lsn))
    if gone:
        transaction.replace_files((history.database, history.oid), gone)
        subscription_history.expire(transaction.cursor, history.database, history.oid, expired)
    return len(gone)


def _table(history: Relation, values: Mapping[str, pa.Array], count: int) -> pa.Table:
    fields = [values[field.name].cast(field.type) if field.name in values else pa.nulls(count, field.type) for field in arrow_row(history)]
    return pa.table(fields, schema=arrow_row(history))


def _unchanged_columns(lists: pa.ChunkedArray) -> pa.Array:
    """Return the lists of columns that were not sent, in the stored form of text[]."""
    whole = buffers.whole(lists)
    if whole.null_count == len(whole):
        return pa.nulls(len(whole), pa.string())
    names, lengths = whole.flatten(), pc.fill_null(pc.list_value_length(whole), 0).to_numpy()
    distinct = pc.unique(names)
    shown = pa.array([quoted_element(name, ",") for name in distinct.to_pylist()], pa.string()).take(pc.index_in(names, distinct))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    texts = pc.binary_join_element_wise("{", pc.binary_join(pa.ListArray.from_arrays(offsets, shown), ","), "}", "")
    return pc.if_else(whole.is_valid(), texts, None)
