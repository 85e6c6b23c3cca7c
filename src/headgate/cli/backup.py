"""``headgate backup``: makes a copy of a node that starts in the state that the node had at one LSN (`headgate.backup`).

Called by `main`. A running node copies its catalog and keeps the files that it refers to, as requested over a connection that stays open
until the tables are copied. In the directory of a stopped node, no node can start in the meantime. Exit codes: 0 the backup is
complete, 1 it is not. Then the directory stays marked, and no node starts there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headgate.backup import beside as copies
from headgate.backup import catalog, settings, tables, target
from headgate.cli import control, initdb, pidfile, session
from headgate.cli.message import count, err, out, show_progress
from headgate.cli.run import read_settings
from headgate.errors import disk_full
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.transaction.log import TransactionLog
from headgate.walreceiver.connection import literal


def backup(data_dir: Path, folder: Path, command_line: Mapping[str, str], username: str | None) -> None:
    """Make a backup of a node in a folder."""
    control.check_directory(data_dir)
    began = time.monotonic()
    try:
        with _source(data_dir, folder, command_line, username) as base:
            summary = _fill(data_dir, base, folder)
        target.complete(folder)
    except Exception as error:
        if target.is_incomplete(folder):
            err(f'headgate: directory "{folder}" holds a backup that is not complete and cannot be started; remove it')
        full = disk_full(error)
        if full is None or full is error:
            raise
        raise full from error
    out(f"backup completed: {summary}, {time.monotonic() - began:.1f} s")


def beside(data_dir: Path, command_line: Mapping[str, str], username: str | None) -> None:
    """Put copies of a node's catalog and settings next to its tables."""
    control.check_directory(data_dir)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headgate-backup-") as scratch:
        folder = Path(scratch) / "copy"
        with _source(data_dir, folder, command_line, username) as base:
            copied = catalog.without_slots(folder)
            end = TransactionLog(copied).end
            copied.close()
            settings.copy(data_dir, base, folder, moves=False)
            target.copy(data_dir / initdb.VERSION_FILE, folder / initdb.VERSION_FILE)
            (folder / target.MARKER).unlink()
            place = copies.put(base, folder, end)
    out(f"backup completed: LSN {end}, {place}, {time.monotonic() - began:.1f} s")


@contextmanager
def _source(data_dir: Path, folder: Path, command_line: Mapping[str, str], username: str | None) -> Iterator[DataPath]:
    """Copy the catalog. Yield the folder of the tables, whose files are not removed inside the context."""
    if not pidfile.alive(data_dir):
        with pidfile.occupied(data_dir):
            base = data_location.base(read_settings(data_dir, command_line), data_dir)
            target.make(folder, data_dir, *([base] if isinstance(base, Path) else []))
            catalog.of_stopped(data_dir, folder)
            yield base
        return
    with session.opened(data_dir, username) as opened:
        target.make(folder, data_dir)
        row = opened.execute(f"BACKUP_CATALOG {literal(str(folder))}".encode()).fetchone()
        assert row is not None
        base = data_location.at(row[1], read_settings(data_dir, command_line))
        if isinstance(base, Path):
            target.check_outside(folder, base)
        yield base
        opened.execute("IDENTIFY_SYSTEM")  # if the connection was open all the time, no file was removed


def _fill(data_dir: Path, base: DataPath, folder: Path) -> str:
    """Copy the tables of the copied catalog, and the settings. Return a summary."""
    copied = catalog.without_slots(folder)
    try:
        end, number = TransactionLog(copied).end, len(TransactionLog(copied).versions())
        size = tables.copy(copied, base, folder, _show)
    finally:
        copied.close()
        show_progress("")
    settings.copy(data_dir, base, folder)
    size += sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    target.copy(data_dir / initdb.VERSION_FILE, folder / initdb.VERSION_FILE)
    return f"LSN {end}, {count(number, 'table')}, {size} bytes"


def _show(done: int, whole: int, size: int) -> None:
    show_progress(f"{done} of {whole} tables, {size >> 20} MB")
