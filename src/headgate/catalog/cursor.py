"""A cursor on the catalog, with a cache of the results of catalog queries.

DuckDB plans each query anew, which takes one to three milliseconds. Nearly every statement needs one or two rows (the role, the schemas of
the search path, the table with its columns). So results are cached (`Answers`, one for a catalog) with the versions of the
parts of catalogs (`point`: a whole catalog, or its rows of one object) that the query reads. A result is reused while the transaction sees
these versions. Called by `physical.rows` and `one`. Queries of users run with `execute`, and their results are not cached.

The version of a part is the moment of the last commit that wrote it. From before that commit until after it, the part is *unsettled*.
DuckDB takes a transaction's snapshot at its first read. The transaction sees the newest version of a part if at that time the part was
not unsettled, and if no later commit has written it. Invariant: every write to the file passes through a `CatalogCursor` of the one
`Catalog`.

    query in a transaction                                  result
    newest parts, not written by the transaction            from the shared cache for these versions, otherwise fetched and cached there
    some part older, unknown, or written by it              from the transaction's own cache since it last wrote one of them, otherwise
                                                            fetched; moved to the shared cache at COMMIT if no other transaction has
                                                            written the parts
    a plain query, rows of which are buffered               the rows of DuckDB as above and the buffered rows; both are in the shared cache
                                                            after COMMIT
    outside a transaction, parts settled                    from the shared cache for the current versions, otherwise fetched; cached if the
                                                            parts stay settled
    the query reads what has no version (`Answers.reads`)   fetched

Rows that a transaction inserts into the catalogs of relations are written later, in batches (`unwritten`).
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from headgate.catalog import point
from headgate.catalog.point import Part
from headgate.catalog.unique import CatalogKey
from headgate.catalog.unwritten import UnwrittenRows, to_arrow, to_insert

Row = tuple[Any, ...]
"""A row as DuckDB returns it. The types of its values depend on the query."""
Rows = list[Row]
_Key = tuple[Any, ...]
_T = TypeVar("_T")

_READS = ("SELECT", "WITH", "FROM", "EXPLAIN", "DESCRIBE", "SHOW")
_NO_ROWS = ("ROLLBACK", "SET")
_WRITTEN = re.compile(r'\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+hg\."?(\w+)', re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAMED = re.compile(r'\bhg\."?(\w+)')
_MADE = """SELECT view_name, sql FROM duckdb_views() WHERE schema_name = 'hg'
UNION ALL SELECT function_name, macro_definition FROM duckdb_functions() WHERE schema_name = 'hg'"""
_UNSTABLE = "SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
_SYSTEM = {"information_schema", "duckdb_tables", "duckdb_columns", "duckdb_functions", "duckdb_views"}
EVERY = "*"
"""Stands for any table, for a statement other than INSERT, UPDATE or DELETE."""
_MOST_ANSWERS = 16_384
_MOST_TEXTS = 4096
_MOST_PARTS = 65_536
_MOST_ROWS = 64
_MOST_CHARACTERS = 16 << 20
"""Limits of the shared cache: results, texts of queries, parts with a version, rows of one result, and the total length of all values in
characters and elements."""


def is_read(sql: str) -> bool:
    return sql.lstrip()[:8].upper().startswith(_READS)


def _key(query: str, parameters: Sequence[object] | None) -> _Key | None:
    """Return a query with its parameters and their types, or None if a parameter has no hash."""
    key = (query, *((type(parameter), parameter) for parameter in parameters or ()))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _parameters(key: _Key) -> list[object]:
    return [value for _, value in key[1:]]


@dataclass(frozen=True)
class Snapshot:
    """A moment, and the parts for which it is not known whether a commit at that time is visible; `EVERY` stands for all parts."""

    moment: int
    unsettled: frozenset[Part]

    def is_unsure(self, parts: Iterable[Part]) -> bool:
        """Return whether it is unknown which version of one of these parts is visible."""
        return bool(self.unsettled) and (EVERY in self.unsettled or not self.unsettled.isdisjoint(parts))


class Answers:
    """The shared cache of results of catalog queries. Thread-safe."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._versions: dict[Part, int] = {}
        """The moments at which parts of catalogs last changed."""
        self._earliest = 0
        """The version of the parts that `_versions` does not have."""
        self._unsettled: dict[Part, int] = {}
        self.moment = 0
        """A counter that advances at each beginning and end of a commit."""
        self._entries: OrderedDict[_Key, tuple[Rows, int]] = OrderedDict()
        self._characters = 0
        self._reads: dict[str, tuple[str, ...] | None] = {}
        self._learning = threading.Lock()
        self._sources: dict[str, frozenset[str]] | None = None
        """The tables that each table, view or macro reads. None if one may have been created since this was determined."""
        self._schemas: dict[str, pa.Schema] = {}
        self._unstable: set[str] = set()
        """Words whose presence makes a result unstable: names of functions, and of tables that only one cursor has."""

    def _learn(self) -> dict[str, frozenset[str]]:
        """Read the tables, views, macros and functions that exist."""
        with self._learning, contextlib.closing(self._connection.cursor()) as cursor:
            sources_read = self._sources
            if sources_read is not None:
                return sources_read
            tables = cursor.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'hg'").fetchall()
            definitions = cursor.execute(_MADE).fetchall()
            unstable = {name.lower() for (name,) in cursor.execute(_UNSTABLE).fetchall()} | _SYSTEM
        texts: dict[str, str] = {}
        for name, text in definitions:  # a macro has one definition for each number of arguments
            texts[name] = f"{texts.get(name, '')} {text}"
        sources = {name: frozenset([name]) for (name,) in tables}
        references = {name: set(_NAMED.findall(text)) - {name} for name, text in texts.items()}
        with self._lock:
            self._unstable |= unstable
            self._unstable |= {name for name, text in texts.items() if self._is_unstable(text)}
        while ready := [name for name in references if name not in sources and references[name] <= sources.keys()]:
            for name in ready:
                sources[name] = frozenset[str]().union(*(sources[reference] for reference in references[name]))
                if references[name] & self._unstable:
                    self._unstable.add(name)
        self._sources = sources
        return sources

    def _is_unstable(self, sql: str) -> bool:
        return any(word in self._unstable for word in _WORD.findall(sql.lower()))

    def registered(self, name: str) -> None:
        """Note that only one cursor has a table with this name, so that queries which read it have no version."""
        if name.lower() not in self._unstable:
            with self._lock:
                self._unstable.add(name.lower())
                self._reads.clear()

    def reads(self, sql: str) -> tuple[str, ...] | None:
        """Return the tables that a query reads, or None if anything it reads lacks a version: a clock, a counter, a cursor's own table."""
        try:
            return self._reads[sql]
        except KeyError:
            tables = self._read(sql)
            with self._lock:
                if len(self._reads) >= _MOST_TEXTS:
                    self._reads.clear()
                self._reads[sql] = tables
            return tables

    def _read(self, sql: str) -> tuple[str, ...] | None:
        table_names = self.named(sql)
        return None if not is_read(sql) or self._is_unstable(sql) or not table_names else tuple(sorted(table_names))

    def named(self, sql: str) -> frozenset[str] | None:
        """Return the tables that a statement names, also through views and macros. Return None if it names anything else."""
        sources = self._sources or self._learn()
        table_names = set(_NAMED.findall(sql))
        return frozenset[str]().union(*(sources[name] for name in table_names)) if table_names <= sources.keys() else None

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table as an Arrow schema."""
        if table not in self._schemas:
            with contextlib.closing(self._connection.cursor()) as cursor:
                self._schemas[table] = cursor.sql(f"SELECT * FROM hg.{table} LIMIT 0").to_arrow_table().schema
        return self._schemas[table]

    def parts(self, sql: str, parameters: Sequence[object] | None) -> tuple[Part, ...] | None:
        """Return the parts of catalogs that a query reads, or None as `reads` does."""
        tables = self.reads(sql)
        return None if tables is None else point.read(sql, parameters or ()) or tables

    def snapshot(self) -> Snapshot:
        with self._lock:
            return Snapshot(self.moment, frozenset(self._unsettled))

    def stamp(self, seen: Snapshot, parts: Iterable[Part]) -> tuple[int, ...] | None:
        """Return the versions of parts if a snapshot sees them, otherwise None."""
        if seen.is_unsure(parts):
            return None
        with self._lock:
            versions = tuple([self._version(part) for part in (EVERY, *parts)])
        return versions if max(versions) <= seen.moment else None

    def _version(self, part: Part) -> int:
        return self._versions.get(part, self._earliest)

    def unsettle(self, parts: Iterable[Part]) -> None:
        """Mark parts as unsettled because a commit that writes them begins."""
        with self._lock:
            self.moment += 1
            for part in parts:
                self._unsettled[part] = self._unsettled.get(part, 0) + 1

    def settle(self, parts: Collection[Part]) -> tuple[int, dict[Part, int]]:
        """Give parts a new version after a commit that wrote them. Return the version, and the versions that it replaces."""
        with self._lock:
            self.moment += 1
            before = {part: self._version(part) for part in parts}
            for part in parts:
                self._versions[part] = self.moment
                self._unsettled[part] -= 1
                if not self._unsettled[part]:
                    del self._unsettled[part]
            if len(self._versions) > _MOST_PARTS:
                self._versions, self._earliest = {}, self.moment
            if EVERY in parts:
                self._sources = None
                self._reads.clear()
                self._schemas = {}
            return self.moment, before

    def stamp_after(self, seen: Snapshot, moment: int, before: Mapping[Part, int], parts: Iterable[Part]) -> tuple[int, ...] | None:
        """Return the versions of parts after a commit, if the committed transaction has seen them together with its own changes.

        `seen` is its snapshot. At `moment`, its commit replaced the versions `before`. Return None if another transaction has changed a
        part since the snapshot, or is about to.
        """
        if seen.is_unsure(parts):
            return None
        with self._lock:
            versions = tuple([self._version(part) for part in (EVERY, *parts)])
            for part, version in zip((EVERY, *parts), versions, strict=True):
                if before.get(part, version) > seen.moment or part in self._unsettled or (part in before and version != moment):
                    return None
        return versions

    def kept(self, key: _Key) -> Rows | None:
        """Return the cached result of a query with the versions of the parts that it reads, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return list(entry[0])

    def keep(self, key: _Key, rows: Rows) -> None:
        """Cache the result of a query. The least recently used results are evicted."""
        if len(rows) > _MOST_ROWS:
            return
        size = len(str(key[0])) + sum(len(value) if isinstance(value, str | list | bytes) else 8 for row in rows for value in row)
        if size > _MOST_CHARACTERS // 16:
            return
        with self._lock:
            self._drop(key)
            self._entries[key] = (list(rows), size)
            self._characters += size
            while len(self._entries) > _MOST_ANSWERS or self._characters > _MOST_CHARACTERS:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._characters -= entry[1]


class CatalogCursor:
    """A DuckDB cursor on the catalog, in autocommit or between BEGIN and COMMIT, for one thread. Other attributes are those of DuckDB."""

    claim: Callable[[CatalogKey], None] | None = None
    use: Callable[[str, int], None] | None = None
    """Claim a key (`catalog.unique`), and hold an object (`catalog.hold`). Only the cursor of a transaction sets them."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, answers: Answers) -> None:
        self._cursor, self._answers = cursor, answers
        self._begun = False
        self._seen: Snapshot | None = None
        self._moment: int | None = None
        """The moment at which the transaction took its snapshot. None if it is not known, because a commit was in progress."""
        self._wrote: dict[Part, int] = {}
        self._queries: dict[_Key, tuple[tuple[int, ...], Rows]] = {}
        self._unwritten = UnwrittenRows()
        self._plain: set[_Key] = set()
        """The plain queries that the transaction has asked."""
        self._final: dict[_Key, Rows] = {}
        """Results that plain queries have after the COMMIT that is in progress."""

    def newest(self, _sql: str) -> CatalogCursor:
        """Return a cursor whose query sees all committed changes. A session's transaction overrides this (`storage.transaction`)."""
        return self

    def has_newest(self, sql: str) -> bool:
        """Return whether no other transaction has committed a change to the tables that a query reads since this one's snapshot."""
        reads = self._answers.reads(sql)
        if reads is None or self._seen is None:
            return self.is_newest
        return self._answers.stamp(self._seen, reads) is not None and not self._answers.snapshot().is_unsure(reads)

    def has_written(self, sql: str) -> bool:
        """Return whether this transaction may have written a table that a query reads."""
        reads = self._answers.reads(sql)
        if reads is None:
            return bool(self._wrote) or bool(self._unwritten)
        return EVERY in self._wrote or any(table in self._wrote or self._unwritten.has(table) for table in reads)

    @property
    def is_newest(self) -> bool:
        """Whether nothing has been committed since the transaction took its snapshot."""
        return self._moment is not None and self._moment == self._answers.moment

    def execute(self, query: str, parameters: Sequence[object] | None = None) -> duckdb.DuckDBPyConnection:
        """Execute a statement as DuckDB's cursor does. A write may be deferred, or not needed in DuckDB (`unwritten`)."""
        deleted = None
        if self._begun and not is_read(query):
            values = parameters or ()
            table = self._unwritten.insert(query, values)
            if table is not None and self._unwritten.is_full(table):
                self._write([table])
            deleted = self._unwritten.delete(query, values)
            if table is not None or deleted or self._unwritten.update(query, values):
                return self._cursor
        if deleted is None:
            if query == "COMMIT":
                self._final = self._final_results()
            self._write_for(query)
        return self._execute(query, parameters)

    def _execute(self, query: str, parameters: Sequence[object] | None, parts: Iterable[Part] | None = None) -> duckdb.DuckDBPyConnection:
        """Run a statement. `parts` are the parts that it writes, or None to determine them."""
        run = functools.partial(self._cursor.execute, query, *([parameters] if parameters else []))
        return self._run_counted(query, run, lambda table: point.written(query, parameters or (), table) if parts is None else parts)

    def _write_for(self, query: str) -> None:
        """Write the rows that a statement may read or change."""
        if self._unwritten and not query.lstrip()[:8].upper().startswith(_NO_ROWS):
            self._write(self._answers.named(query) or None)

    def _write(self, tables: Collection[str] | None) -> None:
        """Write the pending rows of these tables (None: of all) to DuckDB."""
        for table, pending in self._unwritten.take(tables):
            statement, parts = to_insert(table, pending), point.inserted(table, pending)
            if statement is not None:
                self._execute(*statement, parts)
                continue
            table_rows = to_arrow(pending, self._answers.schema(table))
            self._cursor.register("unwritten_rows", table_rows)
            try:
                columns = ", ".join(table_rows.column_names)
                self._execute(f"INSERT INTO hg.{table} ({columns}) SELECT {columns} FROM unwritten_rows", None, parts)
            finally:
                self._cursor.unregister("unwritten_rows")

    def register(self, name: str, table: pa.Table) -> duckdb.DuckDBPyConnection:
        """Make an Arrow table available to statements of this cursor, as DuckDB's cursor does."""
        self._answers.registered(name)
        return self._cursor.register(name, table)

    def unregister(self, name: str) -> None:
        """Remove a table that `register` made available."""
        self._cursor.unregister(name)

    def interrupt(self) -> None:
        """Stop the statement that another thread runs on this cursor."""
        self._cursor.interrupt()

    def close(self) -> None:
        """Close the cursor, which rolls back its transaction."""
        self._cursor.close()

    def rows(self, query: str, parameters: Sequence[object] | None = None) -> Rows:
        """Return all rows of a query, from the cache if possible (see the module)."""
        own = self._unwritten.select(query, parameters or ()) if self._begun and is_read(query) else None
        key = _key(query, parameters)
        if own is None:
            return self._rows_of(query, parameters, key)
        own_rows, is_all = own
        if key is not None and len(self._plain) < _MOST_ANSWERS:
            self._plain.add(key)
        return own_rows if is_all else [*self._rows_of(query, parameters, key, whole=False), *own_rows]

    def _rows_of(self, query: str, parameters: Sequence[object] | None, key: _Key | None, *, whole: bool = True) -> Rows:
        """Return the rows of a query with this key. If not `whole`, omit the rows that are not written to DuckDB yet."""
        parts = self._answers.parts(query, parameters)
        if whole:
            self._write_for(query)
        if parts is None or key is None:
            return self._fetch(query, parameters)
        if not self._begun:
            return self._outside(key, parts, query, parameters)
        if self._seen is None:
            return self._fetch(query, parameters)
        stamp = self._shared_stamp(self._seen, parts)
        if stamp is None:
            return self._own_rows(key, parts, query, parameters)
        result = self._answers.kept((*key, stamp))
        if result is None:
            result = self._fetch(query, parameters)
            self._answers.keep((*key, stamp), result)
        return result

    def _shared_stamp(self, seen: Snapshot, parts: tuple[Part, ...]) -> tuple[int, ...] | None:
        """Return the versions of parts if the transaction sees the newest ones and has not written the parts, otherwise None."""
        is_written = EVERY in self._wrote or not self._wrote.keys().isdisjoint(parts)
        return None if is_written else self._answers.stamp(seen, parts)

    def _outside(self, key: _Key, parts: tuple[Part, ...], query: str, parameters: Sequence[object] | None) -> Rows:
        before = self._answers.stamp(self._answers.snapshot(), parts)
        result = None if before is None else self._answers.kept((*key, before))
        if result is None:
            result = self._fetch(query, parameters)
            if before is not None and before == self._answers.stamp(self._answers.snapshot(), parts):
                self._answers.keep((*key, before), result)
        return result

    def _own_rows(self, key: _Key, parts: tuple[Part, ...], query: str, parameters: Sequence[object] | None) -> Rows:
        stamp = self._stamp(parts)
        cached = self._queries.get(key)
        if cached is not None and cached[0] == stamp:
            return list(cached[1])
        result = self._fetch(query, parameters)
        self._queries.pop(key, None)
        if len(result) <= _MOST_ROWS:
            if len(self._queries) >= _MOST_ANSWERS:
                del self._queries[next(iter(self._queries))]
            self._queries[key] = (stamp, result)
        return list(result)

    def _fetch(self, query: str, parameters: Sequence[object] | None) -> Rows:
        return self._execute(query, parameters).fetchall()  # read completely: an unread result keeps its transaction open

    def _run_counted(self, query: str, run: Callable[[], _T], parts_of: Callable[[str], Iterable[Part]]) -> _T:
        """Run a statement and record its effect on versions. `parts_of` returns the parts of a catalog that it writes."""
        if is_read(query):
            return self._looking(run)
        word = query.split(None, 1)[0].upper().rstrip(";")
        if word == "BEGIN":
            self._forget(begun=True)
            return self._looking(run) if "SELECT" in query else run()  # a read together with BEGIN takes the snapshot
        if word == "COMMIT":
            return self._committing([*self._wrote], run)
        if word == "ROLLBACK":
            self._forget()
            return run()
        if word in ("CHECKPOINT", "SET"):
            return run()
        match = _WRITTEN.match(query)
        table = match.group(1) if match is not None else EVERY
        parts: list[Part] = [EVERY] if table == EVERY else list(parts_of(table))
        if not self._begun:
            return self._committing(parts, run)
        for part in parts:
            self._wrote[part] = self._wrote.get(part, 0) + 1
        self._unwritten.wrote(None if table == EVERY else table)
        return self._looking(run)

    def _looking(self, run: Callable[[], _T]) -> _T:
        """Run a read. The first read of a transaction takes its snapshot."""
        if not self._begun or self._seen is not None:
            return run()
        before = self._answers.snapshot()
        is_done = False
        try:
            result = run()
            is_done = True
        finally:
            after = self._answers.snapshot()
            # It is not known whether a statement that failed took the snapshot.
            quiet = is_done and not before.unsettled and before.moment == after.moment
            self._moment = before.moment if quiet else None
            self._seen = Snapshot(before.moment, before.unsettled | after.unsettled | (set() if is_done else {EVERY}))
        return result

    def _committing(self, parts: list[Part], run: Callable[[], _T]) -> _T:
        self._answers.unsettle(parts)
        is_done = False
        try:
            result = run()
            is_done = True
        finally:
            moment, before = self._answers.settle(parts)
            if is_done and (self._queries or self._final):
                self._publish(moment, before)
            self._forget()
        return result

    def _final_results(self) -> dict[_Key, Rows]:
        """Return the results that plain queries of this transaction have after it, where they are known without another query.

        The rows are those of DuckDB, if an earlier result is still valid, followed by the buffered rows. So the next transaction need not
        load a table again that this one has created or altered.
        """
        finished = {}
        for key in self._plain if self._unwritten else ():
            own = self._unwritten.select(str(key[0]), _parameters(key))
            if own is not None:
                own_rows, is_all = own
                stored_rows = [] if is_all else self._still_valid(key)
                if stored_rows is not None:
                    finished[key] = [*stored_rows, *own_rows]
        return finished

    def _still_valid(self, key: _Key) -> Rows | None:
        """Return an earlier result of a query in DuckDB, if nothing that it reads has changed since."""
        parts = self._answers.parts(str(key[0]), _parameters(key))
        if parts is None or self._seen is None:
            return None
        stamp = self._shared_stamp(self._seen, parts)
        if stamp is not None:
            return self._answers.kept((*key, stamp))
        query = self._queries.get(key)
        return query[1] if query is not None and query[0] == self._stamp(parts) else None

    def _publish(self, moment: int, before: Mapping[Part, int]) -> None:
        """Move results that are valid after this transaction, committed at a moment, to the shared cache.

        The transaction saw the state after its commit if no other transaction has committed a change of these parts since its snapshot.
        """
        if self._seen is None or EVERY in self._wrote:
            return
        for key, (stamp, result) in self._queries.items():
            parts = self._answers.parts(str(key[0]), _parameters(key)) or ()
            if stamp == self._stamp(parts):
                self._final.setdefault(key, result)
        for key, result in self._final.items():
            parts = self._answers.parts(str(key[0]), _parameters(key)) or ()
            after = self._answers.stamp_after(self._seen, moment, before, parts)
            if after is not None:
                self._answers.keep((*key, after), result)

    def _stamp(self, parts: Iterable[Part]) -> tuple[int, ...]:
        """Return how often this transaction has written each of the parts."""
        return (self._wrote.get(EVERY, 0), *(self._wrote.get(part, 0) for part in parts))

    def _forget(self, *, begun: bool = False) -> None:
        self._begun, self._seen, self._moment = begun, None, None
        self._wrote, self._queries = {}, {}
        self._plain, self._final = set(), {}
        self._unwritten = UnwrittenRows()
