"""The location of the tables and all access to their files: a folder of the local file system, or a prefix of an object store.

A path below it is a `DataPath`: a pathlib path for a local folder; for an object store a universal_pathlib path (over fsspec), which has
the same methods. All differences between the two are handled here: atomic creation of a file, creation only if it does not exist,
listing, removal. Called by all of `storage`, `backup` and `check` for files of tables. The catalog and the segments are local and not
handled here.

Invariant: a file of a table is written once and never changed (except those of `write_whole`). So a file that was read or written
once is read from the local copy afterwards (`file_cache`), and fetched from an object store once. An object store takes some ten
milliseconds for each request. So there is one request for what are several local calls, and many files are fetched several at a time
(`fetch`).

Traced: INSERT of one row on an object store. The driver checks for another writer's version (1), writes the file into the cache and PUTs
it (2), PUTs the version with If-None-Match (3). The next UPDATE of the row finds the file in the cache.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from headgate.errors import PostgresError
from headgate.settings.table import find
from headgate.storage.location import file_cache, object_store
from headgate.storage.location.object_store.store import StoredFile

if TYPE_CHECKING:
    import duckdb
    from upath import UPath

    DataPath: TypeAlias = Path | UPath
else:
    DataPath = Path  # universal_pathlib takes a tenth of a second to import, and a local node does not need it

T = TypeVar("T")
R = TypeVar("R")

_guards: dict[object, Callable[[], None]] = {}
"""By object store, a check called before each request that writes or removes. It raises if this process may not write."""

_forsaken: dict[object, dict[str, float]] = {}
"""By object store, the keys of unneeded files that may exist there, with the time since when; see `forsake`."""
_forsaken_lock = threading.Lock()

CACHE_SIZE = "data_location_cache_size"
AT_ONCE = 16
"""Number of concurrent requests to an object store."""
A_REQUEST = 1_000
"""Number of files that one request to an object store removes."""
ANSWER_SECONDS = 120.0
"""Time in seconds after an unanswered request in which the store may still execute it."""


def is_local(path: DataPath) -> bool:
    """Return whether a path is in the local file system, where files can be fsynced, linked and renamed."""
    return isinstance(path, Path)


def uri(path: DataPath) -> str:
    """Return the path as a URI for Spark, independent of `fs.defaultFS`."""
    return f"file:{path}" if isinstance(path, Path) else str(path)


def base(settings: Mapping[str, str], data_dir: Path) -> DataPath:
    """Return the folder of the tables: the setting data_location, or base/ in the data directory."""
    return at(settings.get("data_location", "") or str(data_dir / "base"), settings)


def at(location: str, settings: Mapping[str, str]) -> DataPath:
    """Return the path for a data location as the settings, or a running node, name it."""
    store = object_store.named({"data_location": location})
    return Path(location) if store is None else store.path(location, settings)


def guard(path: DataPath, check: Callable[[], None]) -> None:
    """Call `check` before each write to or removal from the store of a path, from now on. It raises to reject that."""
    if not isinstance(path, Path):
        _guards[path.fs] = check


def _may_write(path: UPath) -> None:
    check = _guards.get(path.fs)
    if check is not None:
        check()


def open_cache(path: DataPath, folder: Path, settings: Mapping[str, str]) -> None:
    """Cache the files below a path of an object store in a local folder. Local files need no cache."""
    if not isinstance(path, Path):
        size = find(CACHE_SIZE)
        assert size is not None
        megabytes = size.read(settings[CACHE_SIZE]) if CACHE_SIZE in settings else size.default
        file_cache.open_cache(path.fs, folder, int(megabytes) << 20)


def root(path: DataPath) -> str:
    """Return the prefix of the path in Spark's URIs: the scheme, and for an object store the bucket."""
    return "file:" if isinstance(path, Path) else f"{path.protocol}://{path.drive}"


def absolute(near: DataPath, place: str) -> DataPath:
    """Return the path of a URI, in the same store as the path `near`."""
    if isinstance(near, Path):
        return Path(place.removeprefix("file://"))
    return near.joinuri(place)


def inside(folder: DataPath, path: DataPath) -> str:
    """Return the name of a file relative to the folder that contains it."""
    return str(path)[len(str(folder)) + 1 :]


def is_inside(folder: DataPath, path: DataPath) -> bool:
    """Return whether a file is in a folder or below it."""
    return str(path).startswith(f"{folder}/")


# ---- reading -----------------------------------------------------------------------------------------------------------


def local(path: DataPath) -> Path:
    """Return a local file with the content of an immutable one: itself, or its copy in the cache. Raise FileNotFoundError."""
    if isinstance(path, Path):
        return path
    with _store_errors(path):
        return file_cache.get(path.fs, path.path, lambda target: _download(path, target))


def is_near(path: DataPath) -> bool:
    """Return whether a file is local or cached."""
    return isinstance(path, Path) or file_cache.has(path.fs, path.path)


def register_with(database: duckdb.DuckDBPyConnection, path: DataPath) -> None:
    """Register a path's object store with DuckDB, which then reads parts of its files by URI."""
    if isinstance(path, Path):
        return
    protocol = path.fs.protocol
    if not database.filesystem_is_registered(protocol if isinstance(protocol, str) else protocol[0]):
        database.register_filesystem(path.fs)


def far_name(path: DataPath) -> str:
    """Return the name under which DuckDB reads a file of an object store."""
    return str(path) if isinstance(path, Path) else str(path.fs.unstrip_protocol(path.path))


@contextlib.contextmanager
def opened(path: DataPath) -> Iterator[object]:
    """Open a file to read parts of it. A file of an object store is not fetched whole, unless it is cached."""
    if isinstance(path, Path) or file_cache.has(path.fs, path.path):
        with local(path).open("rb") as file:
            yield file
        return
    with _store_errors(path), path.fs.open(path.path, "rb") as far:
        yield far


def read_text(path: DataPath) -> str:
    """Return the content of a small file that may change."""
    if isinstance(path, Path):
        return path.read_text(encoding="utf-8")
    with _store_errors(path):
        return bytes(path.fs.cat_file(path.path)).decode()


def fetch(paths: Iterable[DataPath]) -> None:
    """Fetch files that are about to be read into the cache, several at a time. Skip those that do not exist."""
    missing = [path for path in paths if not isinstance(path, Path) and not file_cache.has(path.fs, path.path)]
    if len(missing) < 2:
        return

    def fetch_one(path: DataPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            local(path)

    together(missing[0], fetch_one, missing)


def has_file(path: DataPath) -> bool:
    """Return whether a file exists. Costs one lookup, regardless of the size of its folder."""
    if isinstance(path, Path):
        return path.exists()
    try:
        with _store_errors(path):
            path.fs.cat_file(path.path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def names(folder: DataPath) -> list[str]:
    """Return the names of the entries of a folder, in no order. Raise FileNotFoundError if the folder does not exist."""
    if isinstance(folder, Path):
        return os.listdir(folder)  # noqa: PTH208 (a tenth of the time of iterdir)
    entries = [file.name.rstrip("/") for file in _list_files(folder, folders=True) if file.name]
    if not entries:
        raise FileNotFoundError(2, "No such file or directory", str(folder))
    return entries


def names_if_any(folder: DataPath) -> list[str]:
    """Return the names as `names` does, or an empty list if the folder does not exist."""
    try:
        return names(folder)
    except FileNotFoundError:
        return []


def has_any(folder: DataPath) -> bool:
    """Return whether a folder exists, or for an object store, whether it has an entry."""
    return folder.exists() if isinstance(folder, Path) else bool(names_if_any(folder))


def below(folder: DataPath) -> Iterator[StoredFile]:
    """Yield all files in a folder and its subfolders. Skip those that are removed meanwhile."""
    if isinstance(folder, Path):
        for place, folders, files in os.walk(folder):
            for name in [*files, *(subfolder for subfolder in folders if os.path.islink(f"{place}/{subfolder}"))]:  # noqa: PTH114 (thousands of files)
                path = f"{place}/{name}"
                with contextlib.suppress(FileNotFoundError):
                    status = os.lstat(path)
                    yield StoredFile(path[len(str(folder)) + 1 :], status.st_size, status.st_mtime)
        return
    yield from (file for file in _list_files(folder) if file.name and not file.name.endswith("/"))


def _list_files(folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
    """Yield the files below a folder in an object store. With `folders`, only its entries; names of folders end with a slash."""
    with _store_errors(folder):
        yield from object_store.of(folder).listed(folder, folders=folders)


def modified(path: DataPath) -> float:
    """Return the time at which a file was written."""
    if isinstance(path, Path):
        return path.stat().st_mtime
    with _store_errors(path):
        return float(path.fs.modified(path.path).timestamp())


def size(path: DataPath) -> int:
    """Return the size of a file. Raise FileNotFoundError."""
    if isinstance(path, Path):
        return path.stat().st_size
    with _store_errors(path):
        return int(path.fs.size(path.path))


# ---- writing -----------------------------------------------------------------------------------------------------------


def make_folder(folder: DataPath) -> None:
    """Create a folder and its parents. An object store has no folders."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def written(path: DataPath, *, is_cached: bool = True) -> Iterator[Path]:
    """Yield a local path at which the caller writes the file. After the context the file is complete. On an error it is removed.

    `is_cached`: the node will read the file itself, so its copy stays in the cache if it is in an object store.
    """
    if isinstance(path, Path):
        try:
            yield path
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return
    draft = file_cache.draft(path.fs)
    try:
        yield draft
        _may_write(path)
        try:
            with _store_errors(path):
                path.fs.put_file(str(draft), path.path)
        except BaseException:
            if is_cached:  # otherwise it is removed with its folder
                _note_forsaken([path])  # the store may have written it nevertheless
            raise
        if is_cached:
            file_cache.keep(path.fs, path.path, draft)
    finally:
        draft.unlink(missing_ok=True)


def write_new(path: DataPath, text: str, *, synced: bool = False) -> None:
    """Write a small file atomically if it does not exist yet. Raise FileExistsError if another writer was first.

    `synced`: the file is complete even after a power failure. A file of an object store always is.
    """
    if isinstance(path, Path):
        draft = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        return
    content = text.encode()
    _may_write(path)
    with _store_errors(path):
        try:
            object_store.of(path).put_if(path, content, None)
        except FileExistsError:
            # the client retries a request whose answer was late, and then finds the file that it has written itself
            if _content(path) != content:
                raise
    file_cache.put(path.fs, path.path, content)


def _content(path: UPath) -> bytes:
    """Return the content of a file that the store has just reported as existing."""
    try:
        return bytes(path.fs.cat_file(path.path))
    except FileNotFoundError as error:  # the store also rejects a write while another request for the key is in progress
        raise OSError(errno.EAGAIN, "file was removed while it was written", str(path)) from error


def write_whole(path: DataPath, text: str, modified: float | None = None) -> None:
    """Write a small file atomically and durably, replacing an existing one. A reader sees the old or the new content.

    `modified`: the modification time to set on a local file. An object store does not allow that.
    """
    if isinstance(path, Path):
        draft = path.with_name(f".{path.name}.tmp")
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if modified is not None:
            os.utime(draft, (modified, modified))
        draft.replace(path)
        return
    _may_write(path)
    with _store_errors(path):
        path.fs.pipe_file(path.path, text.encode())


def copy(path: DataPath, target: Path) -> None:
    """Copy a file to a local path that does not exist yet."""
    if isinstance(path, Path):
        shutil.copyfile(path, target)
        return
    with _store_errors(path):
        _download(path, target)


def put(file: Path, path: DataPath) -> None:
    """Copy a local file to a path that does not exist yet."""
    if isinstance(path, Path):
        shutil.copyfile(file, path)
        path.chmod(0o600)
        return
    _may_write(path)
    with _store_errors(path):
        path.fs.put_file(str(file), path.path)


def remove(path: DataPath) -> None:
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    _may_write(path)
    with _store_errors(path), contextlib.suppress(FileNotFoundError):
        path.fs.rm_file(path.path)
    file_cache.forget(path.fs, path.path)


def remove_all(paths: Iterable[DataPath]) -> None:
    """Remove files, in an object store many with each request."""
    remote = []
    for path in paths:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
        else:
            remote.append(path)
    if len(remote) == 1:
        remove(remote[0])
    elif remote:
        _remove_keys(remote[0], [_key(path) for path in remote])


def _remove_keys(near: UPath, keys: Sequence[str]) -> None:
    """Remove files from a path's store by their keys."""
    store = object_store.of(near)
    bucket, _ = store.split(near)

    def remove_keys(batch: Sequence[str]) -> None:
        _may_write(near)
        try:
            with _store_errors(near):
                store.remove(near, batch)
        finally:
            for key in batch:
                file_cache.forget(near.fs, f"{bucket}/{key}")

    together(near, remove_keys, [keys[first : first + A_REQUEST] for first in range(0, len(keys), A_REQUEST)])


def forsake(paths: Iterable[DataPath]) -> None:
    """Remove unneeded files, whose names are never reused. If the store fails, `remove_forsaken` removes them later."""
    unneeded = list(paths)
    try:
        remove_all(unneeded)
    except (OSError, PostgresError):
        _note_forsaken(unneeded)


def remove_forsaken(near: DataPath) -> None:
    """Remove from a path's store the files that `forsake` could not remove, and those that failed writes may have left."""
    if isinstance(near, Path):
        return
    until = time.monotonic() - ANSWER_SECONDS
    with _forsaken_lock:
        due = [key for key, since in _forsaken.get(near.fs, {}).items() if since <= until]
    if due:
        _remove_keys(near, due)
        with _forsaken_lock:
            for key in due:
                _forsaken[near.fs].pop(key, None)


def _note_forsaken(paths: Iterable[DataPath]) -> None:
    with _forsaken_lock:
        for path in paths:
            if not isinstance(path, Path):
                _forsaken.setdefault(path.fs, {})[_key(path)] = time.monotonic()


def _key(path: UPath) -> str:
    return object_store.of(path).split(path)[1]


def remove_tree(folder: DataPath, last: str = "") -> bool:
    """Remove a folder with its content, as far as possible. Return whether it is gone.

    `last`: a subfolder that identifies the folder. It is removed after the rest.
    """
    if isinstance(folder, Path):
        if last and folder.is_dir() and not folder.is_symlink():
            for name in set(names_if_any(folder)) - {last}:
                _remove_local(folder / name)
        _remove_local(folder)
        return not os.path.lexists(folder)
    _may_write(folder)
    try:
        files, key = [file.name for file in _list_files(folder)], _key(folder)
        later = [name for name in files if last and name.startswith(f"{last}/")]
        for names in ([name for name in files if name not in set(later)], later):
            _remove_keys(folder, [f"{key}/{name}" for name in names])
    except (OSError, PostgresError):
        return False
    return True


def _remove_local(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def move(folder: DataPath, target: DataPath) -> DataPath:
    """Move a folder to a path that does not exist yet. Return the new path.

    In an object store the files are copied. None is removed before all are copied, so that a crash does not split a table.
    """
    if isinstance(folder, Path):
        target.parent.mkdir(exist_ok=True)
        return folder.rename(str(target))

    def copy_one(file: StoredFile) -> None:
        _may_write(folder)
        with _store_errors(folder):
            folder.fs.copy(str((folder / file.name).path), (target / file.name).as_posix())

    together(folder, copy_one, below(folder))
    remove_tree(folder)
    return target


# ---- requests ----------------------------------------------------------------------------------------------------------


def together(near: DataPath, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call `work` for each item, several at a time if `near` is in an object store. Return the results in the order of the items."""
    all_items = list(items)
    if isinstance(near, Path) or len(all_items) < 2:
        return [work(item) for item in all_items]
    with ThreadPoolExecutor(min(AT_ONCE, len(all_items)), "data location") as pool:
        return list(pool.map(work, all_items))


def _download(path: UPath, target: Path) -> None:
    target.write_bytes(path.fs.cat_file(path.path))


@contextlib.contextmanager
def _store_errors(path: DataPath) -> Iterator[None]:
    """Convert exceptions of the store's client other than OSError to 58030: no connection, no answer, no credentials."""
    try:
        yield
    except (OSError, PostgresError):
        raise
    except Exception as error:
        first = str(error).partition("\n")[0]  # the further lines of obstore's messages show its internals
        raise PostgresError("58030", f'could not reach "{path}": {first}') from error
