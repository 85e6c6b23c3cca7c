"""Reads the single changes of a table from its history (`subscriber.rows.table_history`) instead of the netted ones from the table's files.

A transaction of the log that a subscription has applied contains a whole batch: several transactions of the publisher. Its write to the
table has the last state of each key only. If the table has a history, the same transaction's writes to the history have every change. The
applier marks them (`TableWrite.recorded`) if they have all values that the table's replica identity and its columns need. Called by
`change_range`.

The changes keep the publisher's order. Their LSNs are those of the writes to the history: the LSN of the first one, and 8 for each change
before it in the transaction. TRUNCATEs are changes of the frame (operation T), without rows.

If the log no longer has the transaction's entry, the changes are found in the history by the LSN at the publisher (`removed`).

Memory: the changes of a row group, and the TRUNCATEs of one transaction. Groups of joined files have few changes of each transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription_history import old_name
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.publisher import gate
from headgate.publisher.decoded import LSN_PER_CHANGE, DecodedChanges, Numbers
from headgate.publisher.published import Published, PublishedAction, identity_columns
from headgate.storage import feed
from headgate.storage.delta.file_statistics import file_bounds
from headgate.storage.delta.table_state import TableState
from headgate.storage.feed import PIECE_ROWS, ChangeFile, Cut, WriteFiles
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.transaction.log import RecordedEntry, TableWrite
from headgate.storage.transaction.storage import Storage
from headgate.types import buffers
from headgate.types.storage import arrow_type

_LSN, _SEQ, _OP = "_lsn", "_seq", "_op"
_COMMIT = "\0commit"
"""A name that no column has."""
_LAST = 2**63 - 1
_ORDER = [(name, "ascending") for name in (_COMMIT, _LSN, _SEQ)]


def suffices(plan: Published, history: Relation) -> bool:
    """Return whether a history has all values that are needed to judge and send the changes of its table by this plan."""
    held = {(column.name, column.type_oid, column.typmod) for column in history.columns}
    names = {(name, column.type_oid, column.typmod) for column in plan.relation.columns for name in (column.name, old_name(column.name))}
    if not names <= held:
        return False
    identity = identity_columns(plan.relation)
    if identity is None or not plan.filters or not plan.actions & {PublishedAction.UPDATE, PublishedAction.DELETE}:
        return True
    return {column.attnum for column in gate.filter_columns(plan)} <= identity


def small(storage: Storage, relation: Relation, history: Relation, writes: Sequence[TableWrite]) -> DecodedChanges | None:
    """Return the changes in these writes to a history, or None if the driver should not read them at once."""
    table = feed.small(storage.tables, history, writes)
    if table is None:
        return None
    rows = _flattened(table).sort_by(_ORDER)
    return _changes(relation, rows, _lsns(rows, writes))


def large(storage: Storage, relation: Relation, history: Relation, writes: Sequence[TableWrite]) -> Iterator[DecodedChanges]:
    """Yield the changes in the writes of one transaction to a history, piece by piece."""
    count, first = 0, min(int(write.lsn) for write in writes)
    for rows in _ordered(group for write in writes for group in _groups(WriteFiles.of(storage.tables, history, write))):
        lsn = first + LSN_PER_CHANGE * np.arange(count, count + rows.num_rows)
        yield _changes(relation, rows, lsn)
        count += rows.num_rows


def removed(
    storage: Storage, relation: Relation, history: Relation, entries: Sequence[RecordedEntry], lsn: Lsn
) -> Iterator[DecodedChanges]:
    """Yield the changes in consecutive entries that the log no longer has, from the history as of an LSN, piece by piece.

    `history` describes its columns at that LSN. Raise 55000 if the history does not have exactly these changes.
    """
    key = (history.database, history.oid)
    state = storage.state_at(key, lsn)
    ends = np.array([int(entry.origin_lsn) for entry in entries])
    first, last = int(entries[0].after), int(ends[-1])
    commits, lsns = (np.array([int(getattr(entry.writes[0], name)) for entry in entries]) for name in ("commit_lsn", "lsn"))
    begins = np.cumsum([0, *(entry.writes[0].changes for entry in entries)])
    count = 0
    for rows in _ordered(_groups(_files(storage.tables.path(key), history, state, first, last)), first, last) if state is not None else ():
        numbers = np.arange(count, count + rows.num_rows)
        at = np.searchsorted(ends, rows[_LSN].to_numpy())
        if not np.array_equal(at, np.searchsorted(begins, numbers, "right") - 1):
            break
        count += rows.num_rows
        batch = rows.set_column(0, _COMMIT, pa.array(commits[at]))
        yield _changes(relation, batch, lsns[at] + LSN_PER_CHANGE * (numbers - begins[at]))
    if count != begins[-1]:
        text = f'table "{history.schema}.{history.name}" no longer has the changes after LSN {entries[0].after} of its publisher'
        raise PostgresError("55000", text, detail=f"The oldest retained LSN is {storage.log.oldest_kept()}.")


def _files(path: DataPath, history: Relation, state: TableState, first: int, last: int) -> WriteFiles:
    """Return the files of a history that can have changes after an LSN of the publisher, up to another one."""
    files = []
    for add in state.files.values():
        least, most = file_bounds(add.get("stats"), state.physical[_LSN])
        if least is None or most is None or (int(least) <= last and int(most) > first):
            files.append(ChangeFile(path / unquote(add["path"]), add["size"], 0, 0, 0, paired=False))
    names = {column.name: state.physical.get(column.name, column.name) for column in history.columns}
    return WriteFiles(history, tuple(files), names)


@dataclass(frozen=True)
class _Group:
    """A row group of a history. No row in it precedes `first` (_lsn, _seq), and none is after the publisher's LSN `last`."""

    first: tuple[int, int]
    last: int
    files: WriteFiles
    cut: Cut

    def rows(self) -> pa.Table:
        return pa.concat_tables([_flattened(piece) for piece in self.files.pieces(self.cut)])


def _groups(files: WriteFiles) -> list[_Group]:
    """Return the row groups of some files of a history, from the files' footers."""
    groups = []
    for file in files.files:
        with data_location.opened(file.path) as data:
            footer = pq.read_metadata(data)
        names = [footer.schema.column(place).name for place in range(footer.num_columns)]
        places = [names.index(files.physical[name]) for name in (_LSN, _SEQ)]
        for number in range(footer.num_row_groups):
            lsn, seq = (footer.row_group(number).column(place).statistics for place in places)
            groups.append(_Group((lsn.min, seq.min), lsn.max, files, Cut(file, number, number + 1)))
    return groups


def _ordered(groups: Iterable[_Group], first: int = -1, last: int = _LAST) -> Iterator[pa.Table]:
    """Yield the recorded changes after an LSN of the publisher, up to another one, in order.

    Tasks write the TRUNCATEs of a batch into a file of their own, and the other changes into files that each have a part of the stream. The
    groups are read in the order of their first changes. The changes that precede those of the next group are complete.
    """
    chosen = sorted((group for group in groups if group.first[0] <= last and group.last > first), key=lambda group: group.first)
    rest: pa.Table | None = None
    for group, following in itertools.zip_longest(chosen, chosen[1:]):
        rows = group.rows()
        if first >= 0:
            is_wanted = pc.and_(pc.greater(rows[_LSN], first), pc.less_equal(rows[_LSN], last))
            rows = rows.filter(pc.and_(is_wanted, pc.and_(pc.not_equal(rows[_OP], "R"), pc.greater_equal(rows[_SEQ], 0))))
        rows = _sorted(rows if rest is None else pa.concat_tables([rest, rows]))
        complete = rows.num_rows if following is None else _count_before(rows, following.first)
        rest = rows.slice(complete)
        yield from (rows.slice(place, min(PIECE_ROWS, complete - place)) for place in range(0, complete, PIECE_ROWS))


def _sorted(rows: pa.Table) -> pa.Table:
    """Return changes in order. They are if one task has written them."""
    lsn, seq = (np.diff(rows[name].to_numpy()) for name in (_LSN, _SEQ))
    return rows if ((lsn > 0) | ((lsn == 0) & (seq > 0))).all() else rows.sort_by(_ORDER[1:])


def _count_before(rows: pa.Table, place: tuple[int, int]) -> int:
    """Return how many of these changes, which are in order, precede a place (_lsn, _seq)."""
    lsn, seq = (rows[name].to_numpy() for name in (_LSN, _SEQ))
    first, last = np.searchsorted(lsn, place[0]), np.searchsorted(lsn, place[0], "right")
    return int(first + np.searchsorted(seq[first:last], place[1]))


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
