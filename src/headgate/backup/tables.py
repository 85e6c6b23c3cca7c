"""The tables in a backup: of each that the copied catalog knows, the version that its log names.

    base/<database>/<relation>/_delta_log   commit files up to that version, checkpoints up to it
    base/<database>/<relation>/             the data files and deletion vectors of that version, and what prepared transactions have staged

Files of versions before it are left out, as are change files: they are there for slots, and a backup has none. Data and commit files never
change, so they get a second name where the file system can do that; what is written anew in its place is copied. `of_prepared` comes first
and under the commit lock: ROLLBACK PREPARED removes what it has staged at once.
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
from headgate.storage.delta import deletion_vector, delta_log, file_action
from headgate.storage.inventory import folder as _path
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key
from headgate.storage.transaction import prepared
from headgate.storage.transaction.log import TransactionLog

_NUMBERED = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\..*parquet)(?:\.crc)?\Z")
_LAST = "_last_checkpoint"


def copy(catalog: Catalog, base: DataPath, folder: Path, progress: Callable[[int, int, int], None]) -> int:
    """Copies the tables that the copied catalog knows from `base`; their bytes. `progress`: tables done, of how many, bytes. XX001."""
    size = of_prepared(base, folder, catalog, gone_is_wrong=True)
    versions = TransactionLog(catalog).versions()
    for done, (key, table) in enumerate(sorted(versions.items())):
        progress(done, len(versions), size)
        try:
            size += _table(_path(base, key), _local(folder, key), table.version)
        except FileNotFoundError as error:
            raise _lost(str(error.filename or error)) from error
    (folder / "base").mkdir(mode=0o700, exist_ok=True)
    mark = folder / "base" / directory_owner.FILE
    mark.write_text(f"{catalog.system_identifier()}\n", encoding="ascii")
    target.sync(mark)
    for path in (folder / "base").glob("*/"):
        target.sync(path)
    target.sync(folder / "base")
    return size


def of_prepared(base: DataPath, folder: Path, catalog: Catalog, *, gone_is_wrong: bool = False) -> int:
    """Copies what prepared transactions have staged and the empty tables that they have made, unless that is done; the bytes."""
    size = 0
    with contextlib.closing(catalog.cursor()) as cursor:
        found = rows(cursor, "SELECT dbid, body FROM hg.prepared_xact")
    for database, body in found:
        tables, created, *_ = prepared.read_body(body)
        for key in created:
            size += _log(_path(base, key), _local(folder, key), 0)
        for relation, (_, actions) in tables.items():
            path, destination = _path(base, (database, relation)), _local(folder, (database, relation))
            try:
                size += _link_all(path, destination, (data_location.inside(path, each) for each in file_action.files_made(path, actions)))
            except FileNotFoundError as error:
                if gone_is_wrong:
                    raise _lost(str(error.filename or error)) from error
    return size


def _lost(path: str) -> PostgresError:
    hint = "See what headgate check says."
    return PostgresError("XX001", f'file "{path}", which belongs to a table, is missing', hint=hint)


def _table(path: DataPath, destination: Path, version: int) -> int:
    """Copies one table at a version; its bytes."""
    size = _log(path, destination, version)
    named = _named(path, delta_log.files_at(destination, version).values())
    size += _link_all(path, destination, named)
    for folder in (destination / "_delta_log", destination):
        target.sync(folder)
    return size


def _log(path: DataPath, destination: Path, version: int) -> int:
    """Copies the commit files and checkpoints up to a version.

    The newest first, as cleaning removes the oldest first: so what is there is without a gap, however far it has come.
    """
    log, size = destination / "_delta_log", 0
    log.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in sorted(data_location.names(path / "_delta_log"), key=lambda name: name.lstrip("."), reverse=True):
        found = _NUMBERED.match(name)
        if (found is None or int(found[1]) > version) and name not in (_LAST, f".{_LAST}.crc"):
            continue
        if (log / name).exists():
            continue
        immutable = found is not None and found[2] != "crc" and not name.startswith(".")
        try:
            size += _copy(path / "_delta_log" / name, log / name, link=immutable)
        except FileNotFoundError:
            continue  # cleaning has removed it
    _keep_last(log, version)
    if not delta_log.has_version(destination, version):
        raise FileNotFoundError(2, "", str(path / "_delta_log" / f"{version:020d}.json"))
    return size


def _keep_last(log: Path, version: int) -> None:
    """The file that names the newest checkpoint goes where that is newer than the version."""
    try:
        last = int(json.loads((log / _LAST).read_text())["version"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError):
        last = version + 1
    if last > version:
        (log / _LAST).unlink()
        (log / f".{_LAST}.crc").unlink(missing_ok=True)


def _named(path: DataPath, adds: Iterable[file_action.Action]) -> Iterator[str]:
    for add in adds:
        yield unquote(add["path"])
        found = deletion_vector.file_of(path, add.get("deletionVector"))
        if found is not None:
            yield data_location.inside(path, found)


def _link_all(path: DataPath, destination: Path, names: Iterable[str]) -> int:
    """Links the files of these names, each with Hadoop's checksum beside it; those of an object store are brought here."""
    missing = []
    for name in dict.fromkeys(names):
        (destination / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (destination / name).exists():
            missing.append((path / name, destination / name))
        beside = (destination / name).with_name(f".{Path(name).name}.crc")
        source = (path / name).with_name(beside.name)
        if isinstance(source, Path) and source.exists() and not beside.exists():
            target.link(source, beside)
    return sum(data_location.together(path, lambda each: _copy(*each, link=True), missing))


def _copy(source: DataPath, destination: Path, *, link: bool) -> int:
    """Copies a file durably, or gives it a second name where nobody changes it; its size."""
    if isinstance(source, Path):
        return (target.link if link else target.copy)(source, destination)
    data_location.copy(source, destination)
    destination.chmod(0o600)
    target.sync(destination)
    return destination.stat().st_size


def _local(folder: Path, key: Key) -> Path:
    """Where a table lies in a backup."""
    return folder / "base" / str(key[0]) / str(key[1])
