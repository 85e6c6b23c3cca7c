"""Removes what nobody can read any more: entries of the log, history of the catalog, data files and versions of the tables.

`clean` is called at each checkpoint. What must hold: nothing goes that a slot, an exported snapshot, a running transaction or a prepared
one needs. `oldest` is the LSN from which on they read; from it follows for each table the oldest version V that they, or the log, can
ask for. Of a table then go

    data files that a version up to V has removed           if that was longer than `retention` ago (readers outside of the node)
    change files of versions before V                       likewise
    deletion vectors that no kept file has                  likewise
    ``_headgate/<version>`` of versions before V            at once
    versions (JSON, checksums, checkpoints) before the      likewise
    newest checkpoint that is not after V

Delta's own VACUUM and clean-up of its log know nothing of slots: the tables have the latter switched off.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headgate.catalog import history
from headgate.lsn import Lsn
from headgate.storage import delta_log, vector
from headgate.storage.lock import Key

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet\Z")
_NUMBERED = re.compile(r"(\d{20})\.")


class Cleaner:
    """The cleaning of one engine; remembers up to which version each table is clean."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cleaned: dict[Key, int] = {}

    def clean(self, oldest: Lsn, retention: float) -> None:
        """Removes what is not needed from `oldest` on, files only when they are older than `retention` seconds."""
        engine = self._engine
        trimmed = engine.log.trim(oldest)
        if trimmed:
            floor = min(oldest, engine.log.oldest_seen())
            engine.catalog.change(lambda cursor: _prune(cursor, floor))
            _log.debug("removed %d entries of the transaction log", trimmed)
        before = time.time() - retention
        for key, needed in engine.log.needed_versions(oldest).items():
            if key not in engine.visible:
                continue
            try:
                self._clean_table(key, needed, before)
            except OSError as error:
                _log.warning("could not clean relation %d: %s", key[1], error)
        engine.clean()

    def _clean_table(self, key: Key, needed: int, before: float) -> None:
        path = self._engine.path(key)
        for folder in (path / "_headgate").glob("*"):
            if folder.name.isdigit() and int(folder.name) < needed:
                shutil.rmtree(folder, ignore_errors=True)
        upto = self._upto(key, path, needed, before)
        if upto <= self._cleaned.get(key, -1):
            return
        gone = _removed(path, self._cleaned.get(key, -1) + 1, upto, needed)
        if gone:
            kept = self._kept(key, path, upto)
            for name in gone - kept:
                (path / name).unlink(missing_ok=True)
        self._cleaned[key] = upto
        _forget_versions(path, upto)

    def _upto(self, key: Key, path: Path, needed: int, before: float) -> int:
        """The newest version, at most the needed one, that is old enough; nothing younger is looked at."""
        at = self._cleaned.get(key, -1)
        for version in sorted(_versions(path)):
            if version <= at:
                continue
            try:
                moment = (path / "_delta_log" / f"{version:020d}.json").stat().st_mtime
            except FileNotFoundError:
                continue
            if version > needed or moment > before:
                break
            at = version
        return at

    def _kept(self, key: Key, path: Path, upto: int) -> set[str]:
        """Files that a version after `upto` has or removes, or that are visible."""
        shown = self._engine.visible[key].state
        kept = set(_names(path, shown.files.values()))
        for version in _versions(path):
            if version > upto:
                for action in delta_log.read_version(path, version):
                    kept |= set(_names(path, [action[name] for name in ("add", "remove", "cdc") if name in action]))
        return kept


def _removed(path: Path, first: int, last: int, needed: int) -> set[str]:
    """Names of the files that these versions have removed, and of change files that nobody asks for."""
    gone: set[str] = set()
    for version in range(first, last + 1):
        try:
            actions = delta_log.read_version(path, version)
        except FileNotFoundError:
            continue
        gone |= set(_names(path, [action["remove"] for action in actions if "remove" in action]))
        gone -= set(_names(path, [action["add"] for action in actions if "add" in action]))
        if version < needed:
            gone |= set(_names(path, [action["cdc"] for action in actions if "cdc" in action]))
    return gone


def _names(path: Path, files: Iterable[Any]) -> Iterator[str]:
    """The names, below the table, of the files of actions and of their deletion vectors."""
    for file in files:
        yield unquote(file["path"])
        found = vector.file_of(path, file.get("deletionVector"))
        if found is not None and found.is_relative_to(path):
            yield str(found.relative_to(path))


def _versions(path: Path) -> list[int]:
    return [int(file.name[:20]) for file in (path / "_delta_log").glob("*.json") if len(file.name) == 25 and file.name[:20].isdigit()]


def _forget_versions(path: Path, upto: int) -> None:
    """Removes the versions before the newest checkpoint up to `upto`."""
    log = path / "_delta_log"
    files = [(int(found[1]), file) for file in log.iterdir() if (found := _NUMBERED.match(file.name))]
    checkpoints = [version for version, file in files if version <= upto and _CHECKPOINT.match(file.name)]
    if not checkpoints:
        return
    for version, file in files:
        if version < max(checkpoints):
            file.unlink(missing_ok=True)


def _prune(cursor: Any, floor: Lsn) -> None:
    databases = [row[0] for row in cursor.execute("SELECT DISTINCT dbid FROM hg.history").fetchall()]
    for database in databases:
        history.prune(cursor, database, int(floor) + 1)
    prepared = [row[0] for row in cursor.execute("SELECT xid FROM hg.log_entry WHERE kind = 'prepare'").fetchall()]
    history.forget_provisional(cursor, prepared)
