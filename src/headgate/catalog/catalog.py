"""The catalog file of a node: DIR/catalog.duckdb, which one process owns.

initdb calls `Catalog.create`, the node `Catalog.open`. Readers and writers use a cursor each. With `cursor`, every statement is its own
transaction. With `begin`, the transaction log shares the transaction, so that a log entry and the catalog rows that belong to it commit
together. A cursor belongs to one thread.

DuckDB isolates transactions by snapshots, and refuses the second of two concurrent updates or deletions of one row at once (40001 here).
It does not refuse an update of a row that another transaction deletes: the update is lost. Rows that several threads write are therefore
kept apart. The oid counter is advanced in blocks, in its own transaction under a lock. A slot's row is
written by its walsender, an origin's by its worker. Other conflicts concern rows of one object only. `Catalog.change` retries a small
change that conflicts.

If the disk is full, a COMMIT leaves nothing in the file's log. But a checkpoint of DuckDB that runs out of space makes the open database
unusable, and DuckDB would checkpoint inside any COMMIT. So automatic checkpoints are off, and `checkpoint` runs them if there is enough
space. If the database becomes unusable nevertheless (`is_usable`), the node restarts. The log has everything that was committed.

DuckDB syncs what it writes to its log, but not the directory entry of a new log, which the first commit after an open or a checkpoint
creates. A power failure could lose that entry with the whole log, so the directory is synced before a commit is acknowledged
(`_name_log`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

import duckdb

from headgate.catalog.cursor import Answers, CatalogCursor
from headgate.catalog.layout import bootstrap, macros, wal
from headgate.catalog.layout.format import FORMAT
from headgate.catalog.physical import Cursor, one, refused, run, update
from headgate.catalog.security import role as roles
from headgate.errors import PostgresError, disk_full
from headgate.failpoint import Step, step

T = TypeVar("T")

_log = logging.getLogger("headgate.catalog")

_OID_BLOCK = 64
_OPTIONS: dict[str, str | int | float | list[str]] = {
    # a query on the catalog takes about a millisecond and a second thread would slow it by a fifth, so the calling thread runs it alone
    "threads": 1,
    "memory_limit": "512MB",
    "preserve_insertion_order": True,
    "checkpoint_threshold": "1TB",
    # SQL of a session that should reach DuckDB despite the other checks must not reach anything outside the catalog
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    # With this optimizer DuckDB 2.0.0 joins by dictionaries and may find at run time that a column has none. That is an internal error,
    # after which the open database can no longer be used (the query of SQLAlchemy for primary keys caused it).
    "disabled_optimizers": "join_filter_pushdown",
}
CHECKPOINT_BYTES = 16 << 20
"""A log of this size is checkpointed."""
_TRIES = 50


class CatalogTransaction:
    """A transaction on the catalog. `cursor` sees the state at its beginning and its own writes.

    DuckDB takes its snapshot at the first read and not at BEGIN, so a transaction begins with one.
    """

    def __init__(self, cursor: Cursor, committed: Callable[[], None]) -> None:
        """Begin the transaction. `committed` is called after the COMMIT."""
        self.cursor = cursor
        self._open = True
        self._committed = committed
        run(cursor, "BEGIN TRANSACTION; SELECT value FROM hg.counter LIMIT 1").fetchall()

    def commit(self) -> None:
        """Make the writes durable. Raise 40001 if a concurrent transaction has written the same rows.

        Nothing fails behind the COMMIT: the caller would undo what the catalog then has.
        """
        try:
            run(self.cursor, "COMMIT")
        except PostgresError:
            with contextlib.suppress(duckdb.Error):
                self.cursor.execute("ROLLBACK")
            raise
        finally:
            self._close()
        self._committed()

    def rollback(self) -> None:
        """Discard the writes. May be called after a failed commit."""
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

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._answers = Answers(connection)
        self._log = path.with_name(path.name + ".wal")
        self._naming = threading.Lock()
        self._log_is_named = self._checkpointing = False
        self._oid_lock = threading.Lock()
        self._checkpoints = threading.Lock()
        self._next_oid = 0
        self._last_oid = 0
        self.type_changes = 0
        """How often user-defined types may have changed. A registry of them is read again when the number differs."""

    @classmethod
    def create(cls, path: str | Path, superuser: str = "postgres", password_verifier: str | None = None) -> Catalog:
        """Create a file with the built-in rows, one superuser and the databases template0, template1 and postgres."""
        if Path(path).exists():
            raise PostgresError("58P02", f'file "{path}" already exists')
        catalog = cls(_connect(path), Path(path))
        cursor = catalog.cursor()
        run(cursor, "BEGIN TRANSACTION")  # `begin` reads a table that is created here
        bootstrap.bootstrap(cursor, superuser, password_verifier)
        macros.install(cursor)
        roles.make_own(cursor)
        run(cursor, "COMMIT")
        cursor.close()
        catalog.mock_authentication_nonce()
        catalog.system_identifier()
        run(catalog.cursor(), "CHECKPOINT")
        return catalog

    @classmethod
    def open(cls, path: str | Path) -> Catalog:
        """Open an existing file. Raise 58P01 if it is missing, 55006 if another process has it open, XX001 if it is not a catalog."""
        catalog = cls.open_as_it_is(path)
        try:
            row = one(catalog.cursor(), "SELECT value FROM hg.counter WHERE name = 'format'")
        except PostgresError as error:
            catalog.close()
            raise PostgresError("XX001", f'"{path}" is not the catalog of a node') from error
        if row is None or row[0] != FORMAT:
            catalog.close()
            older = row is not None and row[0] < FORMAT
            hint = 'Run "headgate upgrade".' if older else "Use the version that made it, or a newer one."
            raise PostgresError("XX001", f'catalog "{path}" was made by another version of headgate', hint=hint)
        with catalog.begin() as transaction:
            macros.install(transaction.cursor)
            roles.make_own(transaction.cursor)
        return catalog

    @classmethod
    def open_as_it_is(cls, path: str | Path) -> Catalog:
        """Open an existing file of any version (for `upgrade`)."""
        if not Path(path).exists():
            raise PostgresError("58P01", f'could not open file "{path}": No such file or directory')
        return cls(_connect(path), Path(path))

    def cursor(self) -> Cursor:
        """Return a new cursor in autocommit mode, for one thread."""
        return CatalogCursor(self._connection.cursor(), self._answers)

    def begin(self) -> CatalogTransaction:
        return CatalogTransaction(self.cursor(), self._name_log)

    def _name_log(self) -> None:
        """Sync the directory if the log may be new. A failure is logged, and the next commit tries again."""
        if self._log_is_named and not self._checkpointing:
            return
        try:
            self._sync_folder()
        except OSError as error:
            _log.error('could not fsync directory "%s": %s', self.path.parent, error.strerror)

    def _sync_folder(self) -> None:
        with self._naming:
            log_exists = self._log.exists()
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._log_is_named = log_exists and not self._checkpointing

    def system_identifier(self) -> str:
        """Return the node's unique number (pg_control_system().system_identifier). initdb creates it, or the first call."""

        def write(cursor: Cursor) -> int:
            row = one(cursor, "SELECT value FROM hg.counter WHERE name = 'system_identifier'")
            if row is not None:
                return int(row[0])
            identifier = (int(time.time()) << 32 | secrets.randbits(32)) & 0x7FFFFFFFFFFFFFFF
            run(cursor, "INSERT INTO hg.counter VALUES ('system_identifier', ?)", [identifier])
            return identifier

        with self._oid_lock:
            return str(self.change(write))

    def mock_authentication_nonce(self) -> bytes:
        """Return a secret that determines the salts of unknown roles, so that they survive a restart. The first call creates it."""
        names = [f"mock_authentication_nonce_{place}" for place in range(4)]

        def write(cursor: Cursor) -> bytes:
            for name in names:
                if one(cursor, "SELECT value FROM hg.counter WHERE name = ?", [name]) is None:
                    run(cursor, "INSERT INTO hg.counter VALUES (?, ?)", [name, secrets.randbits(64)])
            rows_of_names = (one(cursor, "SELECT value FROM hg.counter WHERE name = ?", [name]) for name in names)
            return b"".join(int(row[0]).to_bytes(8, "big") for row in rows_of_names if row is not None)

        with self._oid_lock:
            return self.change(write)

    def next_oid(self, _cursor: Cursor | None = None) -> int:
        """Return an oid that no object has had since initdb, even before a crash (blocks are reserved before they are used)."""
        with self._oid_lock:
            if self._next_oid == self._last_oid:
                cursor = self.cursor()
                row = one(cursor, "SELECT value FROM hg.counter WHERE name = 'oid'")
                if row is None:
                    raise PostgresError("XX001", "catalog has no oid counter")
                if row[0] > 2**32 - _OID_BLOCK:  # oids do not wrap around, because the log's past is read by them
                    raise PostgresError("54000", "all object identifiers of the node have been used")
                with step(Step.COUNTER):
                    update(cursor, "counter", {"name": "oid"}, value=row[0] + _OID_BLOCK)
                    self._name_log()
                cursor.close()
                # these stay as they were if the update above failed, for instance because the disk is full
                self._next_oid, self._last_oid = int(row[0]), int(row[0]) + _OID_BLOCK
            self._next_oid += 1
            return self._next_oid - 1

    def types_changed(self) -> None:
        """Record that a session has created, changed or dropped a type, or that the transaction in which it did so has ended."""
        with self._oid_lock:
            self.type_changes += 1

    def change(self, write: Callable[[Cursor], T], of: Step = Step.COUNTER, attempts: int = 20) -> T:
        """Run `write` in its own transaction, and retry it after a conflict with another transaction (40001).

        `of` is the step that is durable afterwards.
        """
        for attempt in range(attempts):
            transaction = self.begin()
            try:
                result = write(transaction.cursor)
                with step(of):
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

    def checkpoint(self, least: int = CHECKPOINT_BYTES) -> None:
        """Write the log into the file if it has `least` bytes and there is space. Skip it if other transactions are writing."""
        size = self._log.stat().st_size if self._log.exists() else 0
        if size < max(least, 1) or not self._checkpoints.acquire(blocking=False):
            return
        try:
            self._checkpoint(size)
        finally:
            self._checkpoints.release()

    def _checkpoint(self, size: int) -> None:
        needed = size + self.path.stat().st_size  # at most everything is rewritten
        if shutil.disk_usage(self.path.parent).free < needed:
            _log.warning('no checkpoint of catalog "%s": it may need %d bytes, and there is no room for them', self.path, needed)
            return
        cursor = self.cursor()
        self._checkpointing = True
        try:
            for _ in range(_TRIES):
                with contextlib.suppress(duckdb.TransactionException), step(Step.CHECKPOINT):  # another transaction may be writing
                    cursor.execute("CHECKPOINT")
                    return
                threading.Event().wait(0.01)
        except duckdb.Error as error:
            raise refused(error) from error
        finally:
            self._log_is_named = False
            self._checkpointing = False
            cursor.close()

    @contextlib.contextmanager
    def without_checkpoints(self) -> Iterator[None]:
        """Prevent checkpoints, so that the file does not change and its log only grows."""
        with self._checkpoints:
            yield

    def is_usable(self) -> bool:
        """Return False if DuckDB has invalidated the open database after an error that it could not undo."""
        cursor = self.cursor()
        try:
            cursor.execute("SELECT 1").fetchall()
        except duckdb.FatalException:
            return False
        finally:
            cursor.close()
        return True

    def close(self) -> None:
        """Checkpoint and close the file. Open cursors fail from now on."""
        with contextlib.suppress(PostgresError, OSError):
            self.checkpoint(0)
        self._connection.close()


def _connect(path: str | Path) -> duckdb.DuckDBPyConnection:
    try:
        connection = duckdb.connect(str(path), config=_OPTIONS)
        connection.execute("SET lock_configuration = true")
        return connection
    except duckdb.Error as error:
        full = disk_full(error)
        if full is not None:
            raise full from error
        if isinstance(error, duckdb.IOException):
            if "lock" in str(error).lower():
                raise PostgresError("55006", f'catalog "{path}" is in use by another process') from error
            raise PostgresError("58030", f'could not open catalog "{path}"') from error
        copy = wal.cut(Path(path), error)
        if copy is None:
            hint = "Restore the data directory from a backup."
            raise PostgresError("XX001", f'could not read catalog "{path}"', hint=hint) from error
        _log.warning('the log of catalog "%s" ended in zeros, which are cut off; as it was it is kept in "%s"', path, copy)
        return _connect(path)
