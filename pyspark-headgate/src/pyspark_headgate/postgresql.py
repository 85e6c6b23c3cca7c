"""A connection to a PostgreSQL server without a node: the same positions, ranges and changes, read through the walsender.

The columns are those of a node. The differences follow from what PostgreSQL keeps:

- Only a slot can read the log, from its position on, and only one process at a time. A micro-batch is therefore one task. A slot that
  has moved beyond a range is an error, never a gap.
- The server does not tell where a range must be cut. `ranges` streams the log to find out, so that the server decodes it once for planning
  and once for the task.
- The table as of the slot's position can only be read while the connection that created the slot is open (`TableSnapshot`).
- An unchanged TOAST value is not in the log. It is taken from the old row (REPLICA IDENTITY FULL). Otherwise it is an error.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from headgate.pgoutput import message as m
from headgate.pgoutput.change_columns import HEAD, Definition, schema_of
from headgate.pgoutput.decode import Changes, DecodedFrames, decode
from headgate.pgoutput.outline import Numbers, scan
from headgate.types.datetime import calendar
from pyspark_headgate import walsender
from pyspark_headgate.column_text import arrow_type, read_text
from pyspark_headgate.connection import Range, ServerConnection, lost
from pyspark_headgate.options import SourceOptions, lsn_text, parse_lsn
from pyspark_headgate.walsender import Run

PIECE = 4 << 20
"""The number of bytes of a table's rows that are converted together."""
_CODES, _LETTERS = np.frombuffer(b"DIU", np.uint8), pa.array(["D", "I", "U"])
_WITH_COLUMN_LISTS = 150000
_FIRST_USER_OID = 16384


@dataclass(frozen=True)
class PublishedTable:
    """A published table as it is now."""

    oid: int
    schema: str
    name: str
    definition: Definition
    filter: str | None
    is_partitioned: bool

    def __contains__(self, relation: object) -> bool:
        """Return whether a Relation message is about the table, under its present name or an earlier one."""
        assert isinstance(relation, m.Relation)
        return relation.relation == self.oid or (relation.schema, relation.name) == (self.schema, self.name)


@dataclass
class TableSnapshot:
    """The snapshot of the server at the position of a slot. It exists until `close`."""

    position: int
    name: str
    connection: psycopg.Connection[Any]

    def close(self) -> None:
        """End the snapshot."""
        self.connection.close()


class PostgresConnection(ServerConnection):
    """See the module."""

    def create_slot(self, options: SourceOptions) -> TableSnapshot:
        """Create the slot of a query, with a snapshot of the database at its position. The server waits for running transactions."""
        self.published(options)
        connection = psycopg.connect(walsender.conninfo(self.url, replication="database"), autocommit=True)
        command = f"CREATE_REPLICATION_SLOT {sql.Identifier(options.slot).as_string(None)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        row = connection.execute(command.encode()).fetchone()
        assert row is not None
        return TableSnapshot(parse_lsn(row[1], ""), row[2], connection)

    def check_position(self, slot: str, start: int) -> None:
        """Raise RuntimeError unless the slot has all changes from `start` on."""
        if not slot:
            raise ValueError('option "slot" is needed: only a replication slot has the changes of a PostgreSQL server')
        state = self.slot(slot)
        if state is None or state.is_lost:
            raise lost(slot)
        if state.position > start:
            raise RuntimeError(
                f'replication slot "{slot}" no longer has the changes from LSN {lsn_text(start)} to {lsn_text(state.position)}.'
                " Start the query with a new checkpoint."
            )

    # ---- the definition ---------------------------------------------------------------------------------------
    def published(self, options: SourceOptions) -> PublishedTable:
        """Return how a publication publishes a table now. Raise ValueError if it does not."""
        relation_row = self._one(
            "SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind = 'p' FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.oid = %s::regclass",
            options.table,
        )
        oid, schema, name, is_partitioned = relation_row
        publication = options.publication
        if self._one("SELECT 1 FROM pg_publication WHERE pubname = %s", publication) is None:
            raise ValueError(f'publication "{publication}" does not exist')
        extra = "attnames::text[], rowfilter" if self._connection.info.server_version >= _WITH_COLUMN_LISTS else "NULL::text[], NULL"
        query = f"SELECT {extra} FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s"
        row = self._one(query, publication, schema, name)
        if row is None:
            raise ValueError(f'table "{schema}.{name}" is not part of publication "{publication}"')
        columns = self._connection.execute(
            "SELECT attname::text, atttypid::bigint, atttypmod FROM pg_attribute WHERE attrelid = %s::oid AND attnum > 0"
            " AND NOT attisdropped AND (attname::text = ANY (%s::text[]) OR %s::text[] IS NULL AND attgenerated = '') ORDER BY attnum",
            (oid, row[0], row[0]),
        ).fetchall()
        return PublishedTable(oid, schema, name, tuple((c[0], c[1], c[2]) for c in columns), row[1], is_partitioned)

    def arrow_schema(self, definition: Definition) -> pa.Schema:
        """Return the schema of the changes of a table with these columns."""
        row = [pa.field(name, arrow_type(*self._base(oid, modifier))) for name, oid, modifier in definition]
        return schema_of(row)

    def _base(self, oid: int, modifier: int) -> tuple[int, int]:
        """Return the type of which a domain consists, or the type itself."""
        while oid >= _FIRST_USER_OID:
            row = self._one("SELECT typbasetype::bigint, typtypmod FROM pg_type WHERE oid = %s::oid AND typtype = 'd'", oid)
            if row is None:
                break
            oid, modifier = row
        return oid, modifier

    def schema(self, options: SourceOptions, position: int) -> pa.Schema:
        """Return the columns of the first change after a position that the slot still has, or as they are now."""
        now = self.published(options)
        state = self.slot(options.slot) if options.slot else None
        if state is not None and not state.is_lost and state.position <= position:
            with closing(self._runs(options, Range(position, self.current()))) as runs:
                for run in runs:
                    for _, _, message in scan(run.data, run.starts, run.lengths).others:
                        if isinstance(message, m.Relation) and message in now:
                            return self.arrow_schema(_definition(message))
        return self.arrow_schema(now.definition)

    def _runs(self, options: SourceOptions, part: Range) -> Generator[Run]:
        assert part.start is not None
        if part.end > part.start:
            yield from walsender.runs(self.url, options.slot, options.publication, part.start, part.end)

    def check_table(self, options: SourceOptions) -> None:
        """Raise ValueError for a past state of a table."""
        if options.lsn is not None:
            raise ValueError('option "lsn": a PostgreSQL server gives a table only as it is now, which is "latest"')

    # ---- the ranges -------------------------------------------------------------------------------------------
    def ranges(self, options: SourceOptions, whole: Range, rows: int, first: int | None = None) -> list[tuple[Range, int, bool]]:
        """Return ranges as `NodeConnection.ranges` does, by reading the stream of the slot."""
        assert whole.start is not None
        if whole.end <= whole.start:
            return []
        self.check_position(options.slot, whole.start)
        cutter = _Cutter(self.published(options), whole, rows, first)
        with closing(self._runs(options, whole)) as runs:
            for run in runs:
                cutter.add(run)
                if cutter.is_done:
                    return cutter.cuts
        return cutter.finished()

    def shares(self, options: SourceOptions, whole: Range) -> list[Range]:
        """Return the range of the one task of a micro-batch."""
        assert whole.start is not None
        self.check_position(options.slot, whole.start)
        return [whole] if whole.end > whole.start else []

    # ---- the rows ---------------------------------------------------------------------------------------------
    def batches(self, options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a range. An empty batch comes before the first change and wherever the columns change."""
        published = self.published(options)
        if part.start is None:
            yield from self._table(published, part)
            return
        self.check_position(options.slot, part.start)
        reader = _ChangeBatches(self, published)
        for run in self._runs(options, part):
            for piece in reader.tables(run):
                yield from piece.to_batches() or [pa.RecordBatch.from_pylist([], schema=piece.schema)]

    def _table(self, published: PublishedTable, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table: as of the snapshot of a slot, or as they are now."""
        schema = self.arrow_schema(published.definition)
        yield pa.RecordBatch.from_pylist([], schema=schema)
        columns = sql.SQL(", ").join(sql.Identifier(name) for name, _, _ in published.definition)
        only = sql.SQL("" if published.is_partitioned else "ONLY ")
        where = sql.SQL(f" WHERE {published.filter}" if published.filter else "")
        query = sql.SQL("COPY (SELECT {} FROM {}{}{}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(
            columns, only, sql.Identifier(published.schema, published.name), where
        )
        replication = {} if part.snapshot else {"replication": "database"}
        with psycopg.connect(walsender.conninfo(self.url, **replication), autocommit=True) as connection:
            connection.execute("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
            position = part.end
            if part.snapshot:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(part.snapshot))
            else:
                name = f"pyspark_headgate_{connection.info.backend_pid}"
                row = connection.execute(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput USE_SNAPSHOT".encode()).fetchone()
                assert row is not None
                position = parse_lsn(row[1], "")
            _check_not_rewritten(connection, published)
            count = 0
            with connection.cursor().copy(query) as copy:
                for content in _pieces(iter(copy)):
                    batch = _copied(content, published.definition, schema, position, count)
                    count += batch.num_rows
                    yield batch


def _check_not_rewritten(connection: psycopg.Connection[Any], published: PublishedTable) -> None:
    """Lock a table. Raise RuntimeError if it was rewritten since the snapshot, which then sees no rows in it.

    `pg_relation_filenode` uses the current catalog, not the snapshot's.
    """
    name = sql.Identifier(published.schema, published.name)
    connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 0").format(name))
    tables = f"SELECT {published.oid} UNION ALL SELECT relid::oid FROM pg_partition_tree({published.oid})"
    if connection.execute(
        f"SELECT 1 FROM pg_class WHERE pg_relation_filenode(oid) <> relfilenode AND oid IN ({tables})".encode()
    ).fetchone():
        raise RuntimeError(
            f'table "{published.schema}.{published.name}" was rewritten after the snapshot of its rows. Start the query again.'
        )


def _pieces(messages: Iterator[Any]) -> Iterator[bytes]:
    """Yield rows of some megabytes together. Each message of PostgreSQL is a row."""
    pending: list[bytes] = []
    size = 0
    for message in messages:
        pending.append(bytes(message))
        size += len(pending[-1])
        if size > PIECE:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def _copied(content: bytes, definition: Definition, schema: pa.Schema, position: int, first: int) -> pa.RecordBatch:
    """Return rows of a table, numbered from `first`."""
    names = [str(number) for number in range(len(definition))]
    rows = csv.read_csv(
        io.BytesIO(content),
        read_options=csv.ReadOptions(column_names=names, block_size=len(content) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""], column_types=dict.fromkeys(names, pa.string())
        ),
    ).combine_chunks()
    count = rows.num_rows
    values = [
        read_text(rows.column(number).combine_chunks(), schema.types[len(HEAD) + number], name)
        for number, (name, _, _) in enumerate(definition)
    ]
    head = [pa.array(["R"] * count, pa.string()), pa.array(np.full(count, position)), pa.array(np.arange(first, first + count))]
    rest = [pa.nulls(count, kind) for _, kind in HEAD[3:]]
    return pa.RecordBatch.from_arrays([*head, *rest, *values, pa.nulls(count, schema.types[-1])], schema=schema)


def _definition(relation: m.Relation) -> Definition:
    return tuple((column.name, column.type_oid, column.typmod) for column in relation.columns)


@dataclass
class _Cutter:
    """Cuts a range at transactions into parts of about `most` changes, and where the columns change.

    The part in progress begins at `_start`. Its last transaction ends at `_last`, or at -1 if it has none.
    """

    table: PublishedTable
    whole: Range
    most: int
    first: int | None
    cuts: list[tuple[Range, int, bool]] = field(default_factory=list)
    _seq: int = 0
    _oids: set[int] = field(default_factory=set)
    _definitions: list[tuple[int, Definition]] = field(default_factory=list)
    """The columns from each sequence number on."""
    _open: tuple[int, int] | None = None
    """The number of changes of a transaction whose Commit is in a later run, and the index of its first definition."""
    _start: int = -1
    _last: int = -1
    _count: int = 0
    _altered: bool = False
    _definition: int = -1
    """The index of the definition of the last transaction."""

    @property
    def is_done(self) -> bool:
        """Whether as many parts are known as were asked for."""
        return self.first is not None and len(self.cuts) >= self.first

    def add(self, run: Run) -> None:
        """Read the next frames."""
        outline = scan(run.data, run.starts, run.lengths, self._seq)
        truncates = []
        for seq, _, message in outline.others:
            if isinstance(message, m.Relation) and message in self.table:
                self._oids.add(message.relation)
                if not self._definitions or self._definitions[-1][1] != _definition(message):
                    self._definitions.append((seq, _definition(message)))
            elif isinstance(message, m.Truncate) and self._oids.intersection(message.relations):
                truncates.append(seq)
        own = outline.changes[np.isin(outline.relations, list(self._oids))] + self._seq
        own = np.sort(np.concatenate([own, np.array(truncates, np.int64)]))
        self._seq += len(run)
        which = np.searchsorted(np.array([seq for seq, _ in self._definitions], np.int64), own, side="right") - 1
        commits = np.searchsorted(outline.commits, own)
        transactions, firsts, counts = np.unique(commits, return_index=True, return_counts=True)
        sizes = dict(zip(transactions.tolist(), zip(counts.tolist(), which[firsts].tolist(), strict=True), strict=True))
        if self._open is not None:
            count, first = self._open
            sizes[0] = sizes.get(0, (0, 0))[0] + count, first
        self._open = sizes.pop(len(outline.commits), None)
        for number, (count, first) in sorted(sizes.items()):
            if self._transaction(int(outline.commit_end[number]), count, first):
                return

    def _transaction(self, end: int, count: int, definition: int) -> bool:
        """Add a transaction to the part, or begin a new part with it. Return whether enough parts are known."""
        changed = self._definition >= 0 and definition != self._definition
        if self._last >= 0 and (changed or self._count + count > self.most):
            self._cut(self._last)
        self._altered |= changed
        self._definition, self._last, self._count = definition, end, self._count + count
        return self.is_done

    def _cut(self, end: int) -> None:
        start = self._start if self._start >= 0 else self.whole.start
        self.cuts.append((Range(start, end), self._count, self._altered))
        self._start, self._last, self._count, self._altered = end, -1, 0, False

    def finished(self) -> list[tuple[Range, int, bool]]:
        """Return the parts after the last frame. The last one extends to the end of the range."""
        if not self.is_done:
            self._cut(self.whole.end)
        return self.cuts


class _ChangeBatches:
    """Converts the runs of a stream into rows. It carries what a transaction needs that goes on in the next run."""

    def __init__(self, server: PostgresConnection, table: PublishedTable) -> None:
        self._server, self._table = server, table
        self._relations: dict[int, m.Relation] = {}
        self._schemas: dict[Definition, pa.Schema] = {}
        self._last: Definition | None = None
        self._seq = 0
        self._open = (0, 0, 0, 0)
        """The commit LSN, the xid, the commit time and the number of changes so far of the transaction in progress."""
        self._origin: str | None = None

    def tables(self, run: Run) -> Iterator[pa.Table]:
        """Yield the rows of a run in order. An empty table comes first wherever the columns change."""
        frames = decode(run.data, run.starts, run.lengths, relations=self._relations, first_seq=self._seq, only=self._table)
        self._relations, self._seq = frames.relations, self._seq + len(run)
        pieces = [(change.relation, change.seq, change) for change in frames.changes if len(change)]
        truncated = [(r, np.array([t.seq]), None) for t in frames.truncations for r in t.relations if r in self._table]
        head = self._head(frames, np.sort(np.concatenate([np.zeros(0, np.int64), *(seq for _, seq, _ in [*pieces, *truncated])])))
        groups: dict[Definition, list[tuple[Numbers, pa.Table]]] = {}
        for relation, seqs, changes in sorted([*pieces, *truncated], key=lambda piece: int(piece[1][0])):
            rows = self._values(relation, changes)
            groups.setdefault(_definition(relation), []).append((seqs, head(seqs, rows, changes)))
        for definition, parts in groups.items():
            if definition != self._last:
                self._last = definition
                yield self._schema(definition).empty_table()
            if len(parts) == 1:
                yield parts[0][1]
            else:
                order = np.argsort(np.concatenate([seqs for seqs, _ in parts]), kind="stable")
                yield pa.concat_tables([rows for _, rows in parts]).take(pa.array(order))

    def _schema(self, definition: Definition) -> pa.Schema:
        if definition not in self._schemas:
            self._schemas[definition] = self._server.arrow_schema(definition)
        return self._schemas[definition]

    def _head(self, frames: DecodedFrames, own: Numbers) -> Callable[[Numbers, tuple[pa.Schema, list[pa.Array]], Changes | None], pa.Table]:
        """Return a function that puts the first columns before the values of some changes. `own`: the changes of the table, in order."""
        transactions = frames.transactions
        carried = self._open
        commits, xids, times = (
            np.concatenate([[carried[number]], np.asarray(column, np.int64)])
            for number, column in enumerate((transactions.commit_lsn, transactions.xid, transactions.commit_time))
        )
        names = {number: origin.name for number, origin in frames.origins.items()}
        origins = [names.get(-1, self._origin), *(names.get(number) for number in range(len(transactions)))]
        of_own = np.searchsorted(transactions.begin, own, side="right")
        firsts = np.searchsorted(of_own, np.arange(len(transactions) + 1))
        ranks = np.arange(len(own)) - firsts[of_own] + np.where(of_own == 0, carried[3], 0)
        if len(transactions) and transactions.commit[-1] >= 0:
            self._open, self._origin = (0, 0, 0, 0), None
        else:
            count = int((of_own == len(transactions)).sum()) + (0 if len(transactions) else carried[3])
            self._open, self._origin = (int(commits[-1]), int(xids[-1]), int(times[-1]), count), origins[-1]

        def head(seqs: Numbers, rows: tuple[pa.Schema, list[pa.Array]], changes: Changes | None) -> pa.Table:
            schema, values = rows
            letters = pa.array(["T"]) if changes is None else _LETTERS.take(pa.array(np.searchsorted(_CODES, changes.op)))
            places = np.searchsorted(transactions.begin, seqs, side="right")
            time = pa.array(times[places] + calendar.EPOCH_MICROS).cast(HEAD[4][1])
            sequence = pa.array(ranks[np.searchsorted(own, seqs)])
            origin = pa.array(origins, pa.string()).take(pa.array(places))
            columns = [letters, pa.array(commits[places]), sequence, pa.array(xids[places]), time, origin, *values]
            return pa.Table.from_arrays(columns, schema=schema)

        return head

    def _values(self, relation: m.Relation, changes: Changes | None) -> tuple[pa.Schema, list[pa.Array]]:
        """Return the columns and the old rows of changes. For a DELETE the columns are those of the old row."""
        schema = self._schema(_definition(relation))
        kinds = [schema.field(len(HEAD) + number).type for number in range(len(relation.columns))]
        if changes is None:
            return schema, [pa.nulls(1, kind) for kind in [*kinds, schema.types[-1]]]
        deleted, has_old = pa.array(changes.op == ord("D")), changes.old_kind != 0
        new, old = [], []
        for number, (column, kind) in enumerate(zip(relation.columns, kinds, strict=True)):
            before = pa.nulls(len(changes), kind) if changes.old is None else read_text(changes.old[number].values, kind, column.name)
            after = read_text(changes.new[number].values, kind, column.name)
            unchanged = changes.new[number].unchanged
            if unchanged is not None:
                if (changes.old_kind[unchanged] != m.OldKind.ROW).any():
                    raise RuntimeError(
                        f'the log does not have the value of column "{column.name}" of table "{relation.schema}.{relation.name}" for an'
                        " UPDATE that does not change it, because it is a TOAST value."
                        f' Execute ALTER TABLE "{relation.schema}"."{relation.name}" REPLICA IDENTITY FULL,'
                        " drop the slot, and start the query with a new checkpoint."
                    )
                after = pc.if_else(pa.array(unchanged), before, after)
            new.append(pc.if_else(deleted, before, after))
            old.append(before)
        fields = list(schema.types[-1])
        return schema, [*new, pa.StructArray.from_arrays(old, fields=fields, mask=pa.array(~has_old))]
