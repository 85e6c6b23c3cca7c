"""Removal of everything that nothing can read any more: log entries, catalog history, data files and versions of the tables.

`clean` is called at each checkpoint. Invariant: it removes nothing that a slot, an exported snapshot, a running transaction or a
prepared one needs. `oldest` is the LSN from which on they read. It determines for each table the oldest version V that they, or the log,
can need. Of a table, these are removed:

    data files that a version up to V has removed           if that was longer than `retention` ago (readers outside the node)
    change files of versions before V                       likewise
    deletion vectors that no kept file has                  likewise
    ``_headgate/<version>`` of versions before V            at once
    files that failed transactions could not remove         at once
    files that nothing names, of transactions that were     if they are older than `retention` and every running transaction. Each
    killed, or of a Spark job that failed                   table's folder is searched once, when all files that were too young then
                                                            have aged, after a failed job, and after every LOOK_VERSIONS
    versions (JSON, checksums, checkpoints) before the      likewise; and if there are more than KEPT_VERSIONS, at once
    newest checkpoint that is not after V

A commit every few seconds makes hundreds of thousands of versions within the retention (a SELECT after a start took a minute). So versions
are trimmed by count too, to KEPT_VERSIONS. First, their list of files that may be removed later is stored
(``_headgate/removed/<version>``, with the time of the last of them). Delta's snapshots name the versions that they were made of, and are
computed when they are first read. So Delta reads the log again (`Tables.read_anew`), and nothing is removed before the transactions that
ran then have ended.

Delta's own VACUUM and log clean-up do not know slots: the tables have the latter disabled.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Container

from headgate.catalog import history
from headgate.catalog.cursor import CatalogCursor
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.storage.delta import delta_checkpoint, delta_log, file_action
from headgate.storage.engine import Engine
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.object_store.store import StoredFile
from headgate.storage.location.table_folders import Key
from headgate.storage.spark.internals import java_memory
from headgate.storage.transaction import recorded_batch

_log = logging.getLogger("headgate.storage")

_NUMBERED = re.compile(r"\.{0,2}(\d{20})\.")
"""Files of a version in a Delta log: its commit, its checkpoint, their checksums (with a dot in front), and any of them that a killed
process had not renamed yet (with another dot)."""
_FILES = re.compile(r"(?:[0-9A-Za-z]{2}/)?[^/]*\.(?:parquet|bin)|_change_data/[^/]*\.parquet")
"""Paths of data, change and vector files. Delta puts files of a table with column mapping into folders named by two letters."""
LOOK_VERSIONS = 1_000
_REMOVED = "removed"
KEPT_VERSIONS = 1_000
"""Number of versions of a table that are kept within `retention`. A tenth more may accumulate before they are trimmed."""
LOCK_SECONDS = 1.0
CLOCK_SECONDS = 1.0
"""Time in seconds by which a file's timestamp may be behind the clock."""


class Cleaner:
    """The cleaning of one engine. It remembers up to which version each table is clean."""

    def __init__(self, engine: Engine, kept_versions: int = KEPT_VERSIONS) -> None:
        self._engine = engine
        self._kept_versions = kept_versions
        self._anew: dict[Key, tuple[int, frozenset[int]]] = {}
        """Tables that Delta has read again: from which checkpoint on, and the transactions that ran then."""
        self._cleaned: dict[Key, int] = {}
        self._looked: dict[Key, int] = {}
        self._youngest: dict[Key, float] = {}
        """The time of the youngest unnamed file that was kept, infinity if all were removed."""

    def clean(self, oldest: Lsn, retention: float) -> None:
        """Remove what is not needed from `oldest` on. Files must be older than `retention` seconds."""
        engine = self._engine
        try:
            data_location.remove_forsaken(engine.base)
        except (OSError, PostgresError) as error:
            _log.warning("could not remove files that transactions have left: %s", error)
        engine.intents.purge()  # before the log entries that show that they are done are removed
        trimmed = engine.log.trim(min(oldest, engine.listed()))
        if trimmed:
            floor = min(oldest, engine.log.oldest_seen())
            engine.catalog.change(lambda cursor: _prune(cursor, floor), Step.CLEANING)
            _log.debug("removed %d entries of the transaction log", trimmed)
        before = time.time() - retention
        for key, needed in engine.log.needed_versions(oldest).items():
            if key not in engine.tables.visible:
                continue
            try:
                self._clean_table(key, needed, before)
                engine.obstacles.clear("cleaning", key)
            except (OSError, PostgresError) as error:
                _log.warning("could not clean relation %d: %s", key[1], error)
                engine.obstacles.note("cleaning", key, str(error))
            except KeyError:
                if key in engine.tables.visible:
                    raise  # otherwise it was dropped meanwhile
        engine.clean()

    @step(Step.CLEANING)
    def _clean_table(self, key: Key, needed: int, before: float) -> None:
        path = self._engine.tables.path(key)
        entries = data_location.names_if_any(path / "_headgate")  # listed once per table and checkpoint: requests count
        for name in entries:
            if name.isdigit() and int(name) < needed:
                data_location.remove_tree(path / "_headgate" / name)
        self._remove_unnamed(key, path, before)
        if _REMOVED in entries:
            self._remove_noted(key, path, before)
        upto = self._upto(key, path, needed, before)
        if upto > self._cleaned.get(key, -1):
            removed = removed_files(path, self._cleaned.get(key, -1) + 1, upto, needed)
            if removed:
                names_in_use = self._needed_files(key, path, upto)
                data_location.remove_all(path / name for name in removed - names_in_use)
            self._cleaned[key] = upto
        self._trim(key, path, needed)

    def _trim(self, key: Key, path: DataPath, needed: int) -> None:
        """Remove the versions that are old enough, and those above the limit."""
        versions = delta_log.versions(path)
        first, limit = min(versions, default=0), self._limit(key, versions, needed)
        if limit <= first or delta_checkpoint.newest(path, limit) <= first or (key not in self._anew and not self._read_anew(key)):
            return
        checkpoint, running = self._anew[key]
        if running & self._engine.running.ids():
            return
        del self._anew[key]
        upto = delta_checkpoint.newest(path, min(checkpoint, limit))
        if upto > first:
            self._note_removed(key, path, upto - 1, needed)
            forget_versions(path, upto)
            _log.debug("trimmed relation %d to the versions from %d on", key[1], upto)

    def _limit(self, key: Key, versions: list[int], needed: int) -> int:
        """Return the version at which a log of these versions may begin."""
        limit = self._cleaned.get(key, -1)
        if max(versions, default=0) - min(versions, default=0) >= self._kept_versions * 11 // 10:
            limit = max(limit, min(needed, max(versions) - self._kept_versions))
        return limit

    def _read_anew(self, key: Key) -> bool:
        """Make Delta drop its state of the versions that may be removed. Return False if a transaction is writing to the table."""
        engine = self._engine
        try:
            with engine.locked(key, LOCK_SECONDS) as own:
                checkpoint = engine.tables.read_anew(key)
                self._anew[key] = checkpoint, engine.running.ids() - {own}
        except PostgresError as error:
            if error.sqlstate != "55P03":
                raise
            return False
        return True

    def _note_removed(self, key: Key, path: DataPath, last: int, needed: int) -> None:
        """Store the names of the files that the versions up to `last` have removed, so that they are removed later."""
        removed = removed_files(path, self._cleaned.get(key, -1) + 1, last, needed)
        self._cleaned[key] = max(last, self._cleaned.get(key, -1))
        if not removed:
            return
        folder = path / "_headgate" / _REMOVED
        modified = data_location.modified(path / "_delta_log" / f"{last:020d}.json")
        data_location.make_folder(folder)
        data_location.write_whole(folder / f"{last:020d}", "".join(f"{name}\n" for name in sorted(removed)), modified=modified)

    def _remove_noted(self, key: Key, path: DataPath, before: float) -> None:
        """Remove the files of trimmed versions that are old enough."""
        folder = path / "_headgate" / _REMOVED
        due = [folder / note.name for note in data_location.below(folder) if note.name.isdigit() and note.modified <= before]
        if not due:
            return
        names_in_use = self._needed_files(key, path, -1)
        for note in due:
            data_location.remove_all(path / name for name in data_location.read_text(note).splitlines() if name not in names_in_use)
            data_location.remove(note)

    def _upto(self, key: Key, path: DataPath, needed: int, before: float) -> int:
        """Return the newest version, at most the needed one, that is old enough. Stop at the first younger one."""
        clean_to = self._cleaned.get(key, -1)
        for version, modified in delta_log.times(path):
            if version <= clean_to:
                continue
            try:
                written_at = modified()
            except FileNotFoundError:
                continue
            if version > needed or written_at > before:
                break
            clean_to = version
        return clean_to

    def _remove_unnamed(self, key: Key, path: DataPath, before: float) -> None:
        """Remove old files that no version names, left by a killed process or a failed Spark job."""
        newest, table = self._engine.tables.visible[key].version, self._engine.tables[key]
        # a staged file belongs to a transaction that is running, prepared, or being undone
        oldest = min(before, self._engine.running.oldest_time() - CLOCK_SECONDS)
        has_aged = self._youngest.get(key, oldest) < oldest
        if newest < self._looked.get(key, -LOOK_VERSIONS) + LOOK_VERSIONS and not has_aged and not table.has_failed:
            return
        staged = self._engine.prepared.files(key) | self._engine.intents.files(key)
        names_in_use = self._needed_files(key, path, -1) | {data_location.inside(path, file) for file in staged}
        for text in data_location.together(path, data_location.read_text, _notes(path)):
            names_in_use |= set(text.splitlines())
        unnamed = unnamed_files(path, names_in_use)
        old = [path / file.name for file in unnamed if file.modified < oldest]
        data_location.remove_all(file.with_name(name) for file in old for name in (file.name, f".{file.name}.crc"))
        young = [file.modified for file in unnamed if file.modified >= oldest]
        self._looked[key], self._youngest[key] = newest, max(young, default=math.inf)
        table.has_failed = False
        if old:
            java_memory.collect(self._engine.spark.sparkContext)  # failed jobs have left them open, which keeps their space in use

    def _needed_files(self, key: Key, path: DataPath, upto: int) -> set[str]:
        """Return the files that a version after `upto` has or removes, or that are visible."""
        shown = self._engine.tables.visible[key].state
        return set(file_action.names_of(path, shown.files.values())) | named_files(path, upto)


def named_files(path: DataPath, upto: int) -> set[str]:
    """Return the names of the files that a version after `upto` has or removes."""
    named: set[str] = set()
    versions = [version for version in delta_log.versions(path) if version > upto]
    delta_log.fetch_versions(path, versions)
    for version in versions:
        for action in delta_log.read_version(path, version):
            named |= set(file_action.names_of(path, [action[name] for name in ("add", "remove", "cdc") if name in action]))
    return named


def unnamed_files(path: DataPath, named: Container[str]) -> list[StoredFile]:
    """Return the data, change and vector files of a table that are not in `named`."""
    return [file for file in data_location.below(path) if _FILES.fullmatch(file.name) and file.name not in named]


def removed_files(path: DataPath, first: int, last: int, needed: int) -> set[str]:
    """Return the names of the files that these versions have removed, and of change files that are no longer needed."""
    removed: set[str] = set()
    for version in sorted(number for number in delta_log.versions(path) if first <= number <= last):
        actions = delta_log.read_version(path, version)
        removed |= set(file_action.names_of(path, [action["remove"] for action in actions if "remove" in action]))
        removed -= set(file_action.names_of(path, [action["add"] for action in actions if "add" in action]))
        if version < needed:
            removed |= set(file_action.names_of(path, [action["cdc"] for action in actions if "cdc" in action]))
    return removed


def _notes(path: DataPath) -> list[DataPath]:
    """Return the files that `_note_removed` has written."""
    folder = path / "_headgate" / _REMOVED
    return [folder / name for name in data_location.names_if_any(folder) if name.isdigit()]


def forget_versions(path: DataPath, checkpoint: int) -> None:
    """Remove the versions before a checkpoint, the oldest first, so that there is never a gap."""
    log = path / "_delta_log"
    files = sorted((int(match[1]), name) for name in data_location.names_if_any(log) if (match := _NUMBERED.match(name)))
    for version, name in files:
        if version < checkpoint:
            data_location.remove(log / name)


def _prune(cursor: CatalogCursor, floor: Lsn) -> None:
    databases = [row[0] for row in cursor.execute("SELECT DISTINCT dbid FROM hg.history").fetchall()]
    for database in databases:
        oids, oldest = recorded_batch.needed(cursor, database)
        if oldest is None or oldest >= floor:
            history.prune(cursor, database, int(floor) + 1)
        else:
            history.prune(cursor, database, int(oldest) + 1)
            history.prune(cursor, database, int(floor) + 1, besides=oids)
    prepared = [row[0] for row in cursor.execute("SELECT xid FROM hg.log_entry WHERE kind = 'prepare'").fetchall()]
    history.forget_provisional(cursor, prepared)
