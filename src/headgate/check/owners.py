"""Check of ownership: every folder and file below the tables' folder, and in the data directory, must have an owner.

A file in a table's folder belongs to a version (current or past), to a prepared transaction, to a COMMIT that a crash has interrupted, or
is noted for removal. A killed process leaves staged files without an owner, which cleaning removes: a notice. In a running node such files
may be in use, so they are not reported.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from headgate.backup import beside
from headgate.catalog.physical import rows
from headgate.check.finding import Finding, error, notice, warning
from headgate.check.log import OLDER
from headgate.check.subject import Subject
from headgate.errors import PostgresError
from headgate.storage import inventory, lost_commits
from headgate.storage.delta import delta_log, file_action
from headgate.storage.location import data_location, directory_owner, lease
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction import intent as intents

_STAGED = re.compile(r"(?:_change_data/)?(?:\w{2}/)?(?:(?:part|cdc)-[^/]*\.parquet|deletion_vector_[^/]*\.bin)\Z")
"""A file that a writer creates before a version names it. With column mapping, Delta puts files into folders named by two letters."""
_OF_TABLES = {inventory.LOG_TABLE[0], directory_owner.FILE, lease.FILE, "headgate.reserve", directory_owner.UNKNOWN, "lost+found"}
_OF_NODE = {
    *(
        "HG_VERSION",
        "base",
        "headgate.conf",
        "headgate.auto.conf",
        "pg_hba.conf",
        "pg_ident.conf",
        "headgate.pid",
        "headgate.opts",
        "headgate.opts.tmp",
        beside.COMPLETE,
    ),
    *(
        "server.crt",
        "server.key",
        "headgate.status",
        "headgate.reserve",
        directory_owner.LOCATION_FILE,
        "pg_cache",
        "pg_replication",
        "pg_twophase",
        "pgsql_tmp",
        "lost+found",
    ),
}
_OF_TABLE = {"_delta_log", "_headgate"}
_CATALOG = re.compile(r"catalog\.duckdb(?:\.|\Z)")


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each folder or file without an owner."""
    base = subject.engine.base
    yield from _mark(subject, base)
    # `catalogs` reports tables whose folder exists although the log does not have them
    dropped = set(rows(subject.cursor, "SELECT dbid, relid FROM hg.table_version WHERE dropped UNION SELECT dbid, oid FROM hg.pg_class"))
    staged, created = _unfinished_files(subject)
    lost = {} if subject.running else {commit.key: commit.xid for commit in lost_commits.find(subject.engine)}
    for folder in (base / name for name in sorted(_names(base))):
        if not folder.name.isdigit() or (data_location.is_local(folder) and not folder.is_dir()):
            if folder.name not in _OF_TABLES and not folder.name.startswith("."):
                yield warning(f'"{folder}"', "it is not the node's", "move it to another place")
            continue
        database = int(folder.name)
        if not subject.wanted(database):
            continue
        if database not in subject.databases and any((database, int(name)) not in dropped for name in _names(folder) if name.isdigit()):
            if not subject.running:
                yield warning(f'"{folder}"', "it is of a database that does not exist", "make a backup, then move it to another place")
            continue
        for table in (folder / name for name in sorted(_names(folder))):
            key = (database, int(table.name)) if table.name.isdigit() else None
            if key is not None and key in subject.tables:
                subject.progress(f"folder of {subject.title(key)}")
                yield from _folder(subject, key, staged.get(key, set()))
            elif key in lost:
                yield error(f'"{table}"', f"the catalog is older than it: it does not know transaction {lost[key]}", OLDER)
            elif key is None or (key not in dropped and key not in created and not subject.running):
                yield warning(
                    f'"{table}"', "it is of a table that does not exist", f'the next start moves it to "{directory_owner.UNKNOWN}"'
                )
    for file in sorted(subject.data_dir.glob("*")):
        if file.name not in _OF_NODE and not _CATALOG.match(file.name) and file != base and not file.name.startswith("."):
            yield notice(f'"{file}"', "it is not the node's")


def _mark(subject: Subject, base: DataPath) -> Iterator[Finding]:
    """Check that the mark of the tables' folder is this node's."""
    number = rows(subject.cursor, "SELECT value FROM hg.counter WHERE name = 'system_identifier'")
    owner = directory_owner.found(base)
    if owner and number and owner != str(number[0][0]):
        yield error(f'"{base}"', "it belongs to another node", "let data_location name this node's folder")


def _unfinished_files(subject: Subject) -> tuple[dict[Key, set[str]], set[Key]]:
    """Return the files, by table, of prepared transactions and of interrupted commits, and the tables that they have created."""
    files: dict[Key, set[str]] = {}
    created: set[Key] = set()

    def note(database: int, tables: dict[int, tuple[int, list[file_action.Action]]]) -> None:
        for relation, (_, actions) in tables.items():
            path = subject.path((database, relation))
            files.setdefault((database, relation), set()).update(
                data_location.inside(path, file) for file in file_action.files_of(path, actions)
            )

    for xact in subject.engine.prepared.all():
        note(xact.database, xact.tables)
        created |= xact.created
    for (body,) in rows(subject.cursor, "SELECT body FROM hg.intent"):
        if intents.is_undone(body):
            continue
        with contextlib.suppress(Exception):  # pickle may raise any exception; `log` reports it
            intent = intents.read_body(body)
            note(intent.database, dict(intent.tables))
            created |= {(intent.database, relation) for relation in (*intent.tables, *intent.as_they_are)}
    return files, created


def _folder(subject: Subject, key: Key, staged: set[str]) -> Iterator[Finding]:
    """Yield findings for files in a table's folder that nothing names."""
    if subject.running or key in subject.damaged:
        return
    path = subject.path(key)
    named = staged | set(file_action.names_of(path, (subject.files(key) or {}).values()))
    notes = path / "_headgate" / "removed"
    for note in _names(notes):
        if note.isdigit():
            named |= set(data_location.read_text(notes / note).splitlines())
    versions = delta_log.versions(path)
    delta_log.fetch_versions(path, versions)
    for version in versions:
        try:
            actions = delta_log.read_version(path, version)
        except (PostgresError, FileNotFoundError):
            continue
        named |= set(
            file_action.names_of(path, [action[name] for action in actions for name in ("add", "remove", "cdc") if name in action])
        )
    with_named = {"_change_data", *(name.split("/")[0] for name in named if "/" in name)}
    staged_count, unknown = 0, dict[str, None]()
    for name in (file.name for file in data_location.below(path)):
        top, slash, _ = name.partition("/")
        if name in named or top in _OF_TABLE or _is_checksum(name):
            continue
        if _STAGED.match(name):
            staged_count += 1
        else:
            unknown[top if slash and top not in with_named else name] = None
    if staged_count:
        yield notice(subject.title(key), f"{staged_count} files that nothing names are in its folder", "cleaning removes them")
    shown = f"versions {min(versions)} to {max(versions)} of its log" if versions else "the version that the node has of it"
    searched = f"{shown}, a prepared transaction, an unfinished commit or a note of removal"
    for name in unknown:
        yield warning(
            subject.title(key),
            f'"{name}" in its folder is not named by {searched}',
            "make a backup, then move it to a place outside of the folder",
        )


def _is_checksum(name: str) -> bool:
    """Return whether a file is Hadoop's checksum file of another."""
    inner = name.rpartition("/")[2]
    return inner.startswith(".") and inner.endswith(".crc")


def _names(folder: DataPath) -> list[str]:
    try:
        return data_location.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
