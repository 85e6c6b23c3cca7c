"""The catalog file of a node: DIR/catalog.duckdb, which one process owns.

`Catalog.create` is initdb's part, `Catalog.open` the node's. Readers and writers take a cursor each (`cursor`: every statement
is its own transaction; `begin`: a transaction that the transaction log shares, so a log entry and the catalog rows that belong
to it commit together). A cursor belongs to one thread.

DuckDB isolates transactions by snapshots and refuses the second of two writers of one row at once (40001 here). Rows that
several threads write are therefore kept apart: the oid counter is advanced in blocks, in a transaction of its own under a lock;
a slot's row is written by its walsender, an origin's by its worker. What is left meets on rows of one object only.
`Catalog.change` retries a small change that meets another.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import duckdb

from headgate.catalog import bootstrap, macros
from headgate.catalog.physical import Cursor, one, run
from headgate.errors import PostgresError

T = TypeVar("T")

_OID_BLOCK = 64
_OPTIONS: dict[str, str | int | float | list[str]] = {
    "threads": 2,
    "memory_limit": "256MB",
    "preserve_insertion_order": True,
    "checkpoint_threshold": "16MB",
}


class CatalogTransaction:
    """A transaction on the catalog. `cursor` sees the state at its begin and its own writes."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._open = True
        run(cursor, "BEGIN TRANSACTION")

    def commit(self) -> None:
        """Makes the writes durable; 40001 if another transaction was first."""
        try:
            run(self.cursor, "COMMIT")
        except PostgresError:
            with contextlib.suppress(duckdb.Error):
                self.cursor.execute("ROLLBACK")
            raise
        finally:
            self._close()

    def rollback(self) -> None:
        """Forgets the writes; may be called after a failed commit."""
        if self._open:
            with contextlib.suppress(duckdb.Error):  # DuckDB has already ended a transaction that it aborted
                self.cursor.execute("ROLLBACK")
            self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self.cursor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._open:
            self.commit()
        else:
            self.rollback()


class Catalog:
    """The open catalog file."""

    def __init__(self, connection: Cursor, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._oid_lock = threading.Lock()
        self._next_oid = 0
        self._last_oid = 0
        self.type_changes = 0
        """How often the types of users may have changed: who keeps a registry of them reads it again when this differs."""

    @classmethod
    def create(cls, path: str | Path, superuser: str = "postgres", password_verifier: str | None = None) -> Catalog:
        """Makes a new file with the built-in rows, one superuser and the databases template0, template1 and postgres."""
        if Path(path).exists():
            raise PostgresError("58P02", f'file "{path}" already exists')
        catalog = cls(_connect(path), Path(path))
        with catalog.begin() as transaction:
            bootstrap.bootstrap(transaction.cursor, superuser, password_verifier)
            macros.install(transaction.cursor)
        run(catalog._connection, "CHECKPOINT")
        return catalog

    @classmethod
    def open(cls, path: str | Path) -> Catalog:
        """Opens an existing file; 58P01 if there is none, 55006 if another process has it, XX001 if it is not a catalog."""
        if not Path(path).exists():
            raise PostgresError("58P01", f'could not open file "{path}": No such file or directory')
        catalog = cls(_connect(path), Path(path))
        try:
            found = one(catalog._connection, "SELECT value FROM hg.counter WHERE name = 'format'")
        except PostgresError as error:
            catalog.close()
            raise PostgresError("XX001", f'"{path}" is not the catalog of a node') from error
        if found is None or found[0] != bootstrap.FORMAT:
            catalog.close()
            raise PostgresError("XX001", f'catalog "{path}" was made by another version of headgate')
        with catalog.begin() as transaction:
            macros.install(transaction.cursor)
        return catalog

    def cursor(self) -> Cursor:
        """A cursor of its own in autocommit, for one thread."""
        return self._connection.cursor()

    def begin(self) -> CatalogTransaction:
        """Begins a transaction on a cursor of its own."""
        return CatalogTransaction(self._connection.cursor())

    def next_oid(self, _cursor: Cursor | None = None) -> int:
        """An oid that no object has had since initdb, crashes included (blocks are reserved before they are used)."""
        with self._oid_lock:
            if self._next_oid == self._last_oid:
                cursor = self._connection.cursor()
                found = one(cursor, "SELECT value FROM hg.counter WHERE name = 'oid'")
                if found is None:
                    raise PostgresError("XX001", "catalog has no oid counter")
                self._next_oid = int(found[0])
                self._last_oid = self._next_oid + _OID_BLOCK
                run(cursor, "UPDATE hg.counter SET value = ? WHERE name = 'oid'", [self._last_oid])
                cursor.close()
            self._next_oid += 1
            return self._next_oid - 1

    def types_changed(self) -> None:
        """A session has made, changed or dropped a type, or the transaction in which it did so has ended."""
        with self._oid_lock:
            self.type_changes += 1

    def change(self, write: Callable[[Cursor], T], attempts: int = 20) -> T:
        """Runs `write` in a transaction of its own, again from the start when another transaction was first (40001)."""
        for attempt in range(attempts):
            transaction = self.begin()
            try:
                result = write(transaction.cursor)
                transaction.commit()
            except PostgresError as error:
                transaction.rollback()
                if error.sqlstate != "40001" or attempt == attempts - 1:
                    raise
                threading.Event().wait(0.002 * (attempt + 1))
            except BaseException:
                transaction.rollback()
                raise
            else:
                return result
        raise PostgresError("40001", "could not serialize access due to concurrent update")

    def close(self) -> None:
        """Writes a checkpoint and closes the file; open cursors fail from now on."""
        with contextlib.suppress(duckdb.Error):
            self._connection.execute("CHECKPOINT")
        self._connection.close()


def _connect(path: str | Path) -> Cursor:
    try:
        return duckdb.connect(str(path), config=_OPTIONS)
    except duckdb.IOException as error:
        if "lock" in str(error).lower():
            raise PostgresError("55006", f'catalog "{path}" is in use by another process') from error
        raise PostgresError("58030", f'could not open catalog "{path}"') from error
    except duckdb.Error as error:
        raise PostgresError("XX001", f'could not read catalog "{path}"') from error
