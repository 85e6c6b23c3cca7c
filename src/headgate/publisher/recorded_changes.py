"""Reads the single changes of a table from its history (`subscriber.rows.table_history`) instead of the netted ones from the table's files.

A transaction of the log that a subscription has applied contains a whole batch: several transactions of the publisher. Its write to the
table has the last state of each key only. If the table has a history, the same transaction's writes to the history have every change. The
applier marks them (`TableWrite.recorded`) if they have all values that the table's replica identity and its columns need. Called by
`change_range`.

The changes keep the publisher's order. Their LSNs are those of the writes to the history: the LSN of the first one, and 8 for each change
before it in the transaction. TRUNCATEs are changes of the frame (operation T), without rows.

Memory: the changes of `feed.PIECE_ROWS` rows, and the TRUNCATEs of one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.catalog.replication.subscription_history import old_name
from headgate.publisher import gate
from headgate.publisher.decoded import LSN_PER_CHANGE, DecodedChanges, Numbers
from headgate.publisher.published import Published, PublishedAction, identity_columns
from headgate.storage import feed
from headgate.storage.feed import ALL_GROUPS, ChangeFile, Cut, WriteFiles
from headgate.storage.location import data_location
from headgate.storage.transaction.log import TableWrite
from headgate.types import buffers
from headgate.types.storage import arrow_type

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation
    from headgate.storage.engine import Engine

_LSN, _SEQ, _OP = "_lsn", "_seq", "_op"
_COMMIT = "\0commit"
"""A name that no column has."""
_ORDER = [(name, "ascending") for name in (_COMMIT, _LSN, _SEQ)]


def suffices(plan: Published, history: Relation) -> bool:
    """Return whether a history has all values that are needed to judge and send the changes of its table by this plan."""
    names = {column.name for column in history.columns}
    if any(not {column.name, old_name(column.name)} <= names for column in plan.relation.columns):
        return False
    identity = identity_columns(plan.relation)
    if identity is None or not plan.filters or not plan.actions & {PublishedAction.UPDATE, PublishedAction.DELETE}:
        return True
    return {column.attnum for column in gate.filter_columns(plan)} <= identity


def small(engine: Engine, relation: Relation, history: Relation, writes: Sequence[TableWrite]) -> DecodedChanges | None:
    """Return the changes in these writes to a history, or None if the driver should not read them at once."""
    table = feed.small(engine, history, writes)
    if table is None:
        return None
    rows = _flattened(table).sort_by(_ORDER)
    return _changes(relation, rows, _lsns(rows, writes))


def large(engine: Engine, relation: Relation, history: Relation, writes: Sequence[TableWrite]) -> Iterator[DecodedChanges]:
    """Yield the changes in the writes of one transaction to a history, piece by piece."""
    count, first = 0, min(int(write.lsn) for write in writes)
    for rows in _pieces(engine, history, writes):
        lsn = first + LSN_PER_CHANGE * np.arange(count, count + rows.num_rows)
        yield _changes(relation, rows, lsn)
        count += rows.num_rows


def _pieces(engine: Engine, history: Relation, writes: Sequence[TableWrite]) -> Iterator[pa.Table]:
    """Yield the rows of the writes of one transaction in order.

    Tasks write the TRUNCATEs of a batch into a file of their own, and the other rows into files that each have a part of the stream.
    """
    truncates, files = [], []
    for write in writes:
        write_files = WriteFiles.of(engine, history, write)
        for file in write_files.files:
            first, last = _bounds(file, write_files.physical)
            if first[2] == last[2] == "T":
                truncates += [_flattened(piece) for piece in write_files.pieces(Cut(file, 0, ALL_GROUPS))]
            else:
                # files that begin in one transaction: all but the last of them end in it, too
                files.append(((first[0], last[0], first[1]), write_files, file))
    rest = pa.concat_tables(truncates).sort_by(_ORDER) if truncates else None
    for _, write_files, file in sorted(files, key=lambda item: item[0]):
        for piece in write_files.pieces(Cut(file, 0, ALL_GROUPS)):
            rows = _flattened(piece)
            if rest is not None:
                before = _count_before(rest, rows)
                rows = pa.concat_tables([rest.slice(0, before), rows]).sort_by(_ORDER)
                rest = rest.slice(before)
            yield rows
    if rest is not None and rest.num_rows:
        yield rest


def _bounds(file: ChangeFile, physical: Mapping[str, str]) -> tuple[list[object], list[object]]:
    """Return the minima and the maxima of _lsn, _seq and _op in a file, from its footer."""
    with data_location.opened(file.path) as data:
        footer = pq.read_metadata(data)
    names = [footer.schema.column(place).name for place in range(footer.num_columns)]
    places = [names.index(physical[name]) for name in (_LSN, _SEQ, _OP)]
    groups = [[footer.row_group(group).column(place).statistics for place in places] for group in range(footer.num_row_groups)]
    columns = list(zip(*groups, strict=True))
    return [min(each.min for each in column) for column in columns], [max(each.max for each in column) for column in columns]


def _count_before(truncates: pa.Table, rows: pa.Table) -> int:
    """Return how many TRUNCATEs precede the last of these rows."""
    last_lsn, last_seq = (rows[name][-1] for name in (_LSN, _SEQ))
    precedes = pc.or_(pc.less(truncates[_LSN], last_lsn), pc.and_(pc.equal(truncates[_LSN], last_lsn), pc.less(truncates[_SEQ], last_seq)))
    return int(pc.sum(precedes).as_py() or 0)


def _flattened(changes: pa.Table) -> pa.Table:
    """Return the rows that a changes frame of a history inserts, with the commit LSN of the write."""
    rows = buffers.whole(changes["new"])
    columns = [buffers.field(rows, field.name) for field in rows.type]
    return pa.table([buffers.whole(changes["commit_lsn"]), *columns], names=[_COMMIT, *(field.name for field in rows.type)])


def _lsns(rows: pa.Table, writes: Sequence[TableWrite]) -> Numbers:
    """Return the LSN of each change, which are in the order of the transactions."""
    commits = rows[_COMMIT].to_numpy()
    distinct, begins = np.unique(commits, return_index=True)
    first = {commit: min(int(write.lsn) for write in writes if write.commit_lsn == commit) for commit in distinct.tolist()}
    index = np.searchsorted(distinct, commits)
    bases = np.array([first[commit] for commit in distinct.tolist()], np.int64)
    return np.asarray(bases[index] + LSN_PER_CHANGE * (np.arange(len(commits)) - begins[index]), np.int64)


def _changes(relation: Relation, rows: pa.Table, lsn: Numbers) -> DecodedChanges:
    """Return rows of a history as changes of its table. An old row has at least the columns of the replica identity.

    If an UPDATE does not change the identity's key, the publisher sends no old row. Its key is then that of the new row.
    """
    identity, op = identity_columns(relation), buffers.whole(rows[_OP])
    has_no_old, has_no_new = (np.asarray(pc.is_in(op, pa.array(letters))) for letters in (["I", "T"], ["D", "T"]))
    fields, old, new = [], [], []
    for column in relation.columns:
        kind = arrow_type(column.type_oid, column.typmod)
        after, before = buffers.whole(rows[column.name]), buffers.whole(rows[old_name(column.name)])
        if identity is not None:
            before = pc.coalesce(before, after) if column.attnum in identity else pa.nulls(len(rows), kind)
        fields.append(pa.field(column.name, kind))
        old.append(before.cast(kind))
        new.append(after.cast(kind))
    frame = {
        "commit_lsn": rows[_COMMIT], "seq": pa.array(np.zeros(len(rows), np.int64)), "position": pa.array(np.arange(len(rows))),
        "op": op,
        "old": pa.StructArray.from_arrays(old, fields=fields, mask=pa.array(has_no_old)),
        "new": pa.StructArray.from_arrays(new, fields=fields, mask=pa.array(has_no_new)),
    }  # fmt: skip
    return DecodedChanges(pa.table(frame), lsn)
