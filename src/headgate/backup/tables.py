"""The tables in a backup: for each table in the copied catalog, the version that its log names.

    base/<database>/<relation>/_delta_log   commit files up to that version, checkpoints up to it
    base/<database>/<relation>/             the data files and deletion vectors of that version, and prepared transactions' staged files

An external table is copied like the others. The node that starts in the copy has it in its own folder.

Files of earlier versions are omitted, and so are change files: they are for slots, and a backup has none. Data and commit files never
change, so they are hard-linked if the file system can do that. Files that are overwritten are copied. `of_prepared` comes first and under
the commit lock, because ROLLBACK PREPARED removes its staged files at once.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

from headgate.backup import target
from headgate.catalog.catalog import Catalog
from headgate.catalog.physical import rows
from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector, delta_log, file_action, fsync
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key, TableFolders
from headgate.storage.transaction import prepared
from headgate.storage.transaction.log import TransactionLog

_NUMBERED = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\..*parquet)(?:\.crc)?\Z")
_LAST = "_last_checkpoint"


def copy(catalog: Catalog, base: DataPath, folder: Path, progress: Callable[[int, int, int], None]) -> int:
    """Copy the tables in the copied catalog from `base`. Return their bytes. `progress`: tables done, total, bytes. Raise XX001."""
    folders = TableFolders(base)
    size = of_prepared(folders, folder, catalog, gone_is_wrong=True)
    versions = TransactionLog(catalog).versions()
    for number, (key, table) in enumerate(sorted(versions.items())):
        progress(number, len(versions), size)
        try:
            size += _table(folders.path(key), _local(folder, key), table.version)
        except FileNotFoundError as error:
            raise _lost(str(error.filename or error)) from error
    (folder / "base").mkdir(mode=0o700, exist_ok=True)
    mark = folder / "base" / directory_owner.FILE
    mark.write_text(f"{catalog.system_identifier()}\n", encoding="ascii")
    fsync.sync(mark)
    for path in (folder / "base").glob("*/"):
        fsync.sync(path)
    fsync.sync(folder / "base")
    return size


def of_prepared(folders: TableFolders, folder: Path, catalog: Catalog, *, gone_is_wrong: bool = False) -> int:
    """Copy the staged files of prepared transactions and the empty tables that they created, unless that is done. Return the bytes."""
    size = 0
    with contextlib.closing(catalog.cursor()) as cursor:
        prepared_rows = rows(cursor, "SELECT dbid, body FROM hg.prepared_xact")
    for database, body in prepared_rows:
        tables, created, *_ = prepared.read_body(body)
        for key in created:
            size += _log(folders.path(key), _local(folder, key), 0)
        for relation, (_, actions) in tables.items():
            path, destination = folders.path((database, relation)), _local(folder, (database, relation))
            try:
                size += _link_all(path, destination, (data_location.inside(path, file) for file in file_action.files_made(path, actions)))
            except FileNotFoundError as error:
                if gone_is_wrong:
                    raise _lost(str(error.filename or error)) from error
    return size


def _lost(path: str) -> PostgresError:
    hint = "See what headgate check says."
    return PostgresError("XX001", f'file "{path}", which belongs to a table, is missing', hint=hint)


def _table(path: DataPath, destination: Path, version: int) -> int:
    """Copy one table at a version. Return its bytes."""
    size = _log(path, destination, version)
    names = _file_names(path, delta_log.files_at(destination, version).values())
    size += _link_all(path, destination, names)
    for folder in (destination / "_delta_log", destination):
        fsync.sync(folder)
    return size


def _log(path: DataPath, destination: Path, version: int) -> int:
    """Copy the commit files and checkpoints up to a version. Return their bytes.

    The newest come first, because cleaning removes the oldest first. So the copy has no gap, however far cleaning gets meanwhile.
    """
    log, size = destination / "_delta_log", 0
    log.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in sorted(data_location.names(path / "_delta_log"), key=lambda name: name.lstrip("."), reverse=True):
        match = _NUMBERED.match(name)
        if (match is None or int(match[1]) > version) and name not in (_LAST, f".{_LAST}.crc"):
            continue
        if (log / name).exists():
            continue
        immutable = match is not None and match[2] != "crc" and not name.startswith(".")
        try:
            size += _copy(path / "_delta_log" / name, log / name, link=immutable)
        except FileNotFoundError:
            continue  # cleaning has removed it
    _keep_last(log, version)
    if not delta_log.has_version(destination, version):
        raise FileNotFoundError(2, "", str(path / "_delta_log" / f"{version:020d}.json"))
    return size


def _keep_last(log: Path, version: int) -> None:
    """Remove the file that names the newest checkpoint if that is newer than the version."""
    try:
        last = int(json.loads((log / _LAST).read_text())["version"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError):
        last = version + 1
    if last > version:
        (log / _LAST).unlink()
        (log / f".{_LAST}.crc").unlink(missing_ok=True)


def _file_names(path: DataPath, adds: Iterable[file_action.Action]) -> Iterator[str]:
    for add in adds:
        yield unquote(add["path"])
        vector_file = deletion_vector.file_of(path, add.get("deletionVector"))
        if vector_file is not None:
            yield data_location.inside(path, vector_file)


def _link_all(path: DataPath, destination: Path, names: Iterable[str]) -> int:
    """Link the files of these names, each with Hadoop's checksum file. Fetch those of an object store. Return the bytes."""
    missing = []
    for name in dict.fromkeys(names):
        (destination / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (destination / name).exists():
            missing.append((path / name, destination / name))
        checksum = (destination / name).with_name(f".{Path(name).name}.crc")
        source = (path / name).with_name(checksum.name)
        if isinstance(source, Path) and source.exists() and not checksum.exists():
            target.link(source, checksum)
    return sum(data_location.together(path, lambda pair: _copy(*pair, link=True), missing))


def _copy(source: DataPath, destination: Path, *, link: bool) -> int:
    """Copy a file durably, or hard-link it if it is immutable. Return its size."""
    if isinstance(source, Path):
        return (target.link if link else target.copy)(source, destination)
    data_location.copy(source, destination)
    destination.chmod(0o600)
    fsync.sync(destination)
    return destination.stat().st_size


def _local(folder: Path, key: Key) -> Path:
    return folder / "base" / str(key[0]) / str(key[1])
