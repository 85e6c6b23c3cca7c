"""The files that the tables' newest versions name, and those that slots still need: each is there and reads.

A data file is read whole, so that the checksum of every page is compared, and has as many rows as its `add` action says; a deletion vector
fits its checksum, has as many rows as its description says, and all of them are rows of its file. Where Hadoop has left a checksum beside a
file (``.<name>.crc``), without which Spark does not read it, that is compared too. Files are read by a few threads; nothing is kept.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from headgate.catalog.physical import rows
from headgate.check.finding import Finding, error
from headgate.check.subject import Subject
from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector, delta_log, file_action, foreign_writer, parquet
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key
from headgate.storage.transaction.log import TableWrite

THREADS = 4
_BATCH = 65_536
_CRC = b"crc\0"
_PIECE = 1 << 20


@dataclass(frozen=True)
class Named:
    """A Parquet file that something names: what it is called in findings, and the size and rows that it must have, if known."""

    kind: str
    path: DataPath
    size: int | None = None
    rows: int | None = None
    deleted: Mapping[str, Any] | None = None
    """The `deletionVector` of its `add` action."""


def findings(subject: Subject) -> Iterator[Finding]:
    """All files of which something is wrong."""
    needed = _needed(subject)
    with ThreadPoolExecutor(THREADS, "check") as pool:
        for key in sorted({*subject.tables, *needed}):
            place = subject.title(key)
            subject.progress(f"files of {place}")
            if not data_location.has_any(subject.path(key)):
                continue  # `log` has told that all of it is gone
            files = {file.path: file for file in needed.get(key, ())}
            if key in subject.tables and key not in subject.damaged:
                named = subject.files(key)
                if named is None:
                    subject.damaged.add(key)
                    yield error(place, f"version {subject.tables[key].version} cannot be read from its log")
                    continue
                files |= {file.path: file for file in _of_version(subject.path(key), named.values())}
            for found in pool.map(functools.partial(wrong, subject.path(key)), files.values()):
                if found is not None:
                    subject.damaged.add(key)
                    yield error(place, found)


def _of_version(path: DataPath, adds: Iterable[dict[str, Any]]) -> Iterator[Named]:
    for add in adds:
        rows = file_action.records(add) if file_action.is_counted(add) else None
        yield Named("data file", path / unquote(add["path"]), add["size"], rows, add.get("deletionVector"))
    for version in delta_log.checkpoints(path):
        for file in delta_log.checkpoint_files(path, version):
            yield Named("checkpoint", file)


def wrong(table: DataPath, file: Named) -> str | None:
    """What is wrong about a file, None if nothing is."""
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
        return f"{name} is missing" if file.kind != "checkpoint" else None  # cleaning has removed it meanwhile
    except PostgresError:
        return f"{name} is damaged"
    if file.rows is not None and count != file.rows:
        return f"{name} has {count} rows, not {file.rows}"
    return _wrong_vector(table, file, count)


def _wrong_vector(table: DataPath, file: Named, count: int) -> str | None:
    if file.deleted is None:
        return None
    place = deletion_vector.file_of(table, file.deleted)
    name = "deletion vector" if place is None else f'deletion vector in file "{place.name}"'
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
    """Whether a file fits the checksums that Hadoop has left beside it: a header, the bytes that each covers, one CRC-32 for so many.

    In an object store it leaves none.
    """
    if not data_location.is_local(path):
        return True
    beside = path.with_name(f".{path.name}.crc")
    if not beside.exists():
        return True
    stored = beside.read_bytes()
    if stored[:4] != _CRC or len(stored) < 8:
        return False
    (covered,) = struct.unpack(">I", stored[4:8])
    found = bytearray()
    with path.open("rb") as file:
        while piece := file.read(covered * max(1, _PIECE // covered)):
            whole = memoryview(piece)
            found += b"".join(struct.pack(">I", zlib.crc32(whole[at : at + covered])) for at in range(0, len(piece), covered))
    return bytes(found) == stored[8:]


# ---- what slots need ---------------------------------------------------------------------------------------------------


def _needed(subject: Subject) -> dict[Key, list[Named]]:
    """The files with the changes that slots have not had yet."""
    found: dict[Key, list[Named]] = {}
    oldest = rows(subject.cursor, "SELECT datoid, min(restart_lsn) FROM hg.replication_slot WHERE NOT lost GROUP BY datoid")
    for database, restart in oldest:
        if not subject.wanted(database):
            continue
        # what is still prepared is looked at as such
        gone = "SELECT prepared FROM hg.log_entry WHERE kind = 'rollback prepared' UNION SELECT commit_lsn FROM hg.prepared_xact"
        writes = rows(
            subject.cursor,
            "SELECT w.relid, w.kind, w.version, w.files FROM hg.log_write w JOIN hg.log_entry e USING (commit_lsn) WHERE e.dbid = ?"
            f" AND e.commit_lsn >= ? AND e.commit_lsn NOT IN ({gone}) AND w.kind IN ('write', 'foreign')",
            [database, int(restart or 0)],
        )
        for relation, kind, version, where in writes:
            key = (database, relation)
            write = TableWrite(0, relation, kind, version, 0, 0).placed(where)
            found.setdefault(key, []).extend(_of_write(subject.path(key), write))
    return found


def _of_write(path: DataPath, write: TableWrite) -> Iterator[Named]:
    kind = "file of changes that a slot needs,"
    if write.files is not None:
        for each in write.files:
            yield Named(kind, path / unquote(each.path), each.size)
    elif write.kind == "foreign":
        folder = foreign_writer.folder(path, write.version)
        written = sorted(file.name for file in data_location.below(folder) if file.name.startswith("part-"))
        for name in written or ["part-00000"]:
            yield Named(kind, folder / name)
    elif delta_log.has_version(path, write.version):
        for action in delta_log.read_version(path, write.version):
            if "add" in action or "cdc" in action:
                yield Named(kind, path / unquote((action.get("add") or action["cdc"])["path"]))
