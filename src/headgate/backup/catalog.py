"""The catalog in a backup: its file and the file's log, as of one moment.

DuckDB changes the file only at a checkpoint, and the log only by appending. So with checkpoints disabled, and under the commit lock, the
file and the log up to its current end are the catalog as of the LSN that is the log's end. A half-written entry of the log is ignored when
it is opened. Transactions that publishers have prepared are copied at the same moment, because their frames belong to the catalog's rows.

The copy has no slots, as in PostgreSQL's base backups, and no intents: a transaction without an entry in it did not happen.
"""

from __future__ import annotations

from pathlib import Path

from headgate.backup import tables, target
from headgate.catalog.catalog import Catalog
from headgate.catalog.physical import run
from headgate.lsn import Lsn
from headgate.storage.transaction import log
from headgate.storage.transaction.storage import Storage

NAME = "catalog.duckdb"
PREPARED = "pg_twophase"


def of_running(storage: Storage, data_dir: Path, folder: Path) -> Lsn:
    """Copy the catalog of a running node, and the files that ROLLBACK PREPARED removes at once. Return the LSN of the copy."""
    with storage.catalog.without_checkpoints():
        with storage.commit_lock:
            _frames(data_dir, folder)
            end = storage.log.end
            _file(data_dir, folder, f"{NAME}.wal")
            _frames(data_dir, folder)  # those that were added since; those that were removed had no row
            tables.of_prepared(storage.folders, folder, storage.catalog)
        _file(data_dir, folder, NAME)
    return end


def of_stopped(data_dir: Path, folder: Path) -> None:
    for file in data_dir.glob(f"{NAME}*"):
        _file(data_dir, folder, file.name)
    _frames(data_dir, folder)


def _file(data_dir: Path, folder: Path, name: str) -> None:
    if (data_dir / name).exists():
        target.copy(data_dir / name, folder / name)


def _frames(data_dir: Path, folder: Path) -> None:
    if not (data_dir / PREPARED).is_dir():
        return
    (folder / PREPARED).mkdir(mode=0o700, exist_ok=True)
    for file in (data_dir / PREPARED).iterdir():
        try:
            target.copy(file, folder / PREPARED / file.name)
        except FileNotFoundError:
            continue  # its transaction has just ended


def without_slots(folder: Path) -> Catalog:
    """Open the copy and remove what a backup does not have. Return the catalog, which the caller closes."""
    catalog = Catalog.open(folder / NAME)
    try:
        log.create_tables(catalog.cursor())  # a node that has never run does not have them
        with catalog.begin() as transaction:
            for table in ("replication_slot", "intent"):
                run(transaction.cursor, f"DELETE FROM hg.{table}")
            applied = {gid for (gid,) in run(transaction.cursor, "SELECT gid FROM hg.applied_prepare").fetchall()}
        for file in (folder / PREPARED).glob("*"):
            if file.stem not in applied:
                file.unlink()
        catalog.checkpoint(0)
    except BaseException:
        catalog.close()
        raise
    return catalog
