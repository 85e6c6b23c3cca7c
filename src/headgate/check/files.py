"""Check of the files that the tables' newest versions name, and those that slots still need: each exists and can be read.

A data file is read completely, to verify the checksum of every page, and must have as many rows as its `add` action states. A deletion
vector must match its checksum and the row count of its description, and contain only rows of its file. If Hadoop has written a checksum
file next to a file (``.<name>.crc``), without which Spark does not read it, that is verified too. A few threads read the files; nothing is
kept.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote

from headgate.catalog.physical import rows
from headgate.check.finding import Finding, error
from headgate.check.subject import Subject
from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector, delta_log, file_action, parquet
from headgate.storage.delta.deletion_vector import DeletionVector
from headgate.storage.delta.file_action import Action
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction import foreign_writer
from headgate.storage.transaction.log import TableWrite

THREADS = 4
_BATCH = 65_536
_CRC = b"crc\0"
_PIECE = 1 << 20


@dataclass(frozen=True)
class Named:
    """A Parquet file that something names: its kind for findings, and its required size and rows, if known."""

    kind: str
    path: DataPath
    size: int | None = None
    rows: int | None = None
    deleted: DeletionVector | None = None
    """The `deletionVector` of its `add` action."""


def findings(subject: Subject) -> Iterator[Finding]:
    needed = _unconfirmed_files(subject)
    with ThreadPoolExecutor(THREADS, "check") as pool:
        for key in sorted({*subject.tables, *needed}):
            place = subject.title(key)
            subject.progress(f"files of {place}")
            if not data_location.has_any(subject.path(key)):
                continue  # `log` has reported that all of it is missing
            files = {file.path: file for file in needed.get(key, ())}
            if key in subject.tables and key not in subject.damaged:
                named = subject.files(key)
                if named is None:
                    subject.damaged.add(key)
                    yield error(place, f"version {subject.tables[key].version} cannot be read from its log")
                    continue
                files |= {file.path: file for file in _of_version(subject.path(key), named.values())}
            for problem in pool.map(functools.partial(wrong, subject.path(key)), files.values()):
                if problem is not None:
                    subject.damaged.add(key)
                    yield error(place, problem)


def _of_version(path: DataPath, adds: Iterable[Action]) -> Iterator[Named]:
    for add in adds:
        rows = file_action.records(add) if file_action.is_counted(add) else None
        yield Named("data file", path / unquote(add["path"]), add["size"], rows, add.get("deletionVector"))
    for version in delta_log.checkpoints(path):
        for file in delta_log.checkpoint_files(path, version):
            yield Named("checkpoint", file)


def wrong(table: DataPath, file: Named) -> str | None:
    name = f'{file.kind} "{data_location.inside(table, file.path)}"'
    try:
        size = data_location.size(file.path)
        if file.size is not None and size != file.size:
            return f"{name} has {size} bytes, not {file.size}"
        with parquet.opened(file.path) as opened:
            count = int(opened.metadata.num_rows)
            for _ in opened.iter_batches(_BATCH):
                pass
        if not _fits_checksum(file.path):
            return f"{name} does not fit the checksums beside it"
    except FileNotFoundError:
        return f"{name} is missing" if file.kind != "checkpoint" else None  # cleaning may have removed it meanwhile
    except PostgresError:
        return f"{name} is damaged"
    if file.rows is not None and count != file.rows:
        return f"{name} has {count} rows, not {file.rows}"
    return _wrong_vector(table, file, count)


def _wrong_vector(table: DataPath, file: Named, count: int) -> str | None:
    if file.deleted is None:
        return None
    vector_file = deletion_vector.file_of(table, file.deleted)
    name = "deletion vector" if vector_file is None else f'deletion vector in file "{vector_file.name}"'
    try:
        deleted = deletion_vector.read(table, file.deleted)
    except FileNotFoundError:
        return f"{name} is missing"
    except (PostgresError, OSError):
        return f"{name} is damaged"
    if len(deleted) != file.deleted["cardinality"]:
        return f"{name} has {len(deleted)} rows, not {file.deleted['cardinality']}"
    if len(deleted) and not 0 <= deleted[0] <= deleted[-1] < count:
        return f"{name} deletes rows that its file does not have"
    return None


def _fits_checksum(path: DataPath) -> bool:
    """Return whether a file matches Hadoop's checksum file: a header, the number of bytes that each checksum covers, the CRC-32 checksums.

    In an object store there are none.
    """
    if not data_location.is_local(path):
        return True
    checksum_file = path.with_name(f".{path.name}.crc")
    if not checksum_file.exists():
        return True
    stored = checksum_file.read_bytes()
    if stored[:4] != _CRC or len(stored) < 8:
        return False
    (covered,) = struct.unpack(">I", stored[4:8])
    checksums = bytearray()
    with path.open("rb") as file:
        while piece := file.read(covered * max(1, _PIECE // covered)):
            view = memoryview(piece)
            checksums += b"".join(struct.pack(">I", zlib.crc32(view[start : start + covered])) for start in range(0, len(piece), covered))
    return bytes(checksums) == stored[8:]


# ---- what slots need ---------------------------------------------------------------------------------------------------


def _unconfirmed_files(subject: Subject) -> dict[Key, list[Named]]:
    """Return the files with the changes that slots have not confirmed yet."""
    files: dict[Key, list[Named]] = {}
    oldest = rows(subject.cursor, "SELECT datoid, min(restart_lsn) FROM hg.replication_slot WHERE NOT lost GROUP BY datoid")
    for database, restart in oldest:
        if not subject.wanted(database):
            continue
        # `log` checks transactions that are still prepared
        excluded = "SELECT prepared FROM hg.log_entry WHERE kind = 'rollback prepared' UNION SELECT commit_lsn FROM hg.prepared_xact"
        writes = rows(
            subject.cursor,
            "SELECT w.relid, w.kind, w.version, w.files FROM hg.log_write w JOIN hg.log_entry e USING (commit_lsn) WHERE e.dbid = ?"
            f" AND e.commit_lsn >= ? AND e.commit_lsn NOT IN ({excluded}) AND w.kind IN ('write', 'foreign')",
            [database, int(restart or 0)],
        )
        for relation, kind, version, where in writes:
            key = (database, relation)
            write = TableWrite(0, relation, kind, version, 0, 0).placed(where)
            files.setdefault(key, []).extend(_of_write(subject.path(key), write))
    return files


def _of_write(path: DataPath, write: TableWrite) -> Iterator[Named]:
    kind = "file of changes that a slot needs,"
    if write.files is not None:
        for file in write.files:
            yield Named(kind, path / unquote(file.path), file.size)
    elif write.kind == "foreign":
        folder = foreign_writer.folder(path, write.version)
        names = sorted(file.name for file in data_location.below(folder) if file.name.startswith("part-"))
        for name in names or ["part-00000"]:
            yield Named(kind, folder / name)
    elif delta_log.has_version(path, write.version):
        for action in delta_log.read_version(path, write.version):
            if "add" in action or "cdc" in action:
                yield Named(kind, path / unquote((action.get("add") or action["cdc"])["path"]))
