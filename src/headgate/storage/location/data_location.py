"""Where the tables lie, and the one way to their files: the data location is a folder of a file system or a prefix of an object store.

A path below it is a `DataPath`: pathlib's of a local folder, universal_pathlib's (over fsspec) of an object store, which has the same
names. What the two do differently is here, and nowhere else: a file that appears whole or not at all, one that must not be there yet, a
listing, a removal. Called by all of `storage`, `backup` and `check` for files of tables; the catalog and the segments are local and not
its business.

What must hold: a file of a table is written once and never changed (but `write_whole`'s). So what was read or written once is read again
from the local copy (`file_cache`), and an object store is asked for it once. An object store answers each request in some ten
milliseconds: there is one request where the local file system has several calls, and several at a time where there are many files
(`fetch`).

Traced: INSERT of one row on an object store. The driver looks whether another writer was there (1), writes the file into the cache and
PUTs it (2), PUTs the version with If-None-Match (3). The next UPDATE of the row finds the file in the cache.
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
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from headgate.errors import PostgresError
from headgate.settings.table import find
from headgate.storage.location import file_cache, object_store
from headgate.storage.location.object_store.store import StoredFile

if TYPE_CHECKING:
    import duckdb
    from upath import UPath

    DataPath: TypeAlias = Path | UPath
else:
    DataPath = Path  # universal_pathlib takes a tenth of a second to import, and a local node has no use for it

T = TypeVar("T")
R = TypeVar("R")

_guards: dict[Any, Callable[[], None]] = {}
"""By object store what says, before each request that writes or removes, that this process may."""

_forsaken: dict[Any, dict[str, float]] = {}
"""By object store the keys of files that may lie there though nobody names them, and since when: see `forsake`."""
_forsaken_lock = threading.Lock()

CACHE_SIZE = "data_location_cache_size"
AT_ONCE = 16
"""Requests to an object store that wait at a time."""
A_REQUEST = 1_000
"""Files that an object store removes with one."""
ANSWER_SECONDS = 120.0
"""So long after a request that was not answered the store may still do it."""


def is_local(path: DataPath) -> bool:
    """Whether a path is one of the local file system: what is synchronized, linked and renamed."""
    return isinstance(path, Path)


def uri(path: DataPath) -> str:
    """The path as Spark takes it, whatever `fs.defaultFS` says."""
    return f"file:{path}" if isinstance(path, Path) else str(path)


def base(settings: Mapping[str, str], data_dir: Path) -> DataPath:
    """The folder of the tables: what data_location says, else base/ in the data directory."""
    return at(settings.get("data_location", "") or str(data_dir / "base"), settings)


def at(given: str, settings: Mapping[str, str]) -> DataPath:
    """A path as the settings, or a running node, name it."""
    store = object_store.named({"data_location": given})
    return Path(given) if store is None else store.path(given, settings)


def guard(path: DataPath, check: Callable[[], None]) -> None:
    """From now on `check` is called before anything is written to the store of a path, or removed there; it raises to refuse that."""
    if not isinstance(path, Path):
        _guards[path.fs] = check


def _may_write(path: UPath) -> None:
    check = _guards.get(path.fs)
    if check is not None:
        check()


def open_cache(path: DataPath, folder: Path, settings: Mapping[str, str]) -> None:
    """Has copies of the files below a path in a folder from now on; those of local files need none."""
    if not isinstance(path, Path):
        size = find(CACHE_SIZE)
        assert size is not None
        megabytes = size.read(settings[CACHE_SIZE]) if CACHE_SIZE in settings else size.default
        file_cache.open_cache(path.fs, folder, int(megabytes) << 20)


def root(path: DataPath) -> str:
    """What stands before the path in the URIs that Spark gives: the scheme, and of an object store the bucket."""
    return "file:" if isinstance(path, Path) else f"{path.protocol}://{path.drive}"


def absolute(near: DataPath, place: str) -> DataPath:
    """The path of a URI, in the store in which another path is."""
    if isinstance(near, Path):
        return Path(place.removeprefix("file://"))
    return near.joinuri(place)


def inside(folder: DataPath, path: DataPath) -> str:
    """The name of a file below a folder that it lies in."""
    return str(path)[len(str(folder)) + 1 :]


def is_inside(folder: DataPath, path: DataPath) -> bool:
    """Whether a file lies in a folder, or below it."""
    return str(path).startswith(f"{folder}/")


# ---- reading -----------------------------------------------------------------------------------------------------------


def local(path: DataPath) -> Path:
    """A local file with the content of one that never changes: itself, or the copy in the cache. FileNotFoundError."""
    if isinstance(path, Path):
        return path
    with _told(path):
        return file_cache.get(path.fs, path.path, lambda target: _download(path, target))


def is_near(path: DataPath) -> bool:
    """Whether a file is local, or has been fetched already."""
    return isinstance(path, Path) or file_cache.has(path.fs, path.path)


def register_with(database: duckdb.DuckDBPyConnection, path: DataPath) -> None:
    """Has DuckDB read files of a path's object store in parts, by their URIs."""
    if isinstance(path, Path):
        return
    protocol = path.fs.protocol
    if not database.filesystem_is_registered(protocol if isinstance(protocol, str) else protocol[0]):
        database.register_filesystem(path.fs)


def far_name(path: DataPath) -> str:
    """What DuckDB calls a file that it reads so."""
    return str(path) if isinstance(path, Path) else str(path.fs.unstrip_protocol(path.path))


@contextlib.contextmanager
def opened(path: DataPath) -> Iterator[Any]:
    """A file of which parts are read; one of an object store is not fetched whole, unless it has been already."""
    if isinstance(path, Path) or file_cache.has(path.fs, path.path):
        with local(path).open("rb") as file:
            yield file
        return
    with _told(path), path.fs.open(path.path, "rb") as far:
        yield far


def read_text(path: DataPath) -> str:
    """The content of a small file that may change."""
    if isinstance(path, Path):
        return path.read_text(encoding="utf-8")
    with _told(path):
        return bytes(path.fs.cat_file(path.path)).decode()


def fetch(paths: Iterable[DataPath]) -> None:
    """Brings files that are about to be read into the cache, several at a time; those that are not there are passed over."""
    wanted = [path for path in paths if not isinstance(path, Path) and not file_cache.has(path.fs, path.path)]
    if len(wanted) < 2:
        return

    def one(path: DataPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            local(path)

    together(wanted[0], one, wanted)


def has_file(path: DataPath) -> bool:
    """Whether a file is there: one look, however many files its folder has."""
    if isinstance(path, Path):
        return path.exists()
    try:
        with _told(path):
            path.fs.cat_file(path.path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def names(folder: DataPath) -> list[str]:
    """The names of what lies in a folder, in no order. FileNotFoundError where there is none."""
    if isinstance(folder, Path):
        return os.listdir(folder)  # noqa: PTH208 (a tenth of the time of iterdir)
    found = [file.name.rstrip("/") for file in _listed(folder, folders=True) if file.name]
    if not found:
        raise FileNotFoundError(2, "No such file or directory", str(folder))
    return found


def names_if_any(folder: DataPath) -> list[str]:
    """As `names`; none where there is no folder."""
    try:
        return names(folder)
    except FileNotFoundError:
        return []


def has_any(folder: DataPath) -> bool:
    """Whether a folder is there, or of an object store something in it."""
    return folder.exists() if isinstance(folder, Path) else bool(names_if_any(folder))


def below(folder: DataPath) -> Iterator[StoredFile]:
    """All files in a folder and in its folders; one that goes meanwhile is passed over."""
    if isinstance(folder, Path):
        for place, folders, found in os.walk(folder):
            for name in [*found, *(each for each in folders if os.path.islink(f"{place}/{each}"))]:  # noqa: PTH114 (thousands of files)
                path = f"{place}/{name}"
                with contextlib.suppress(FileNotFoundError):
                    at = os.lstat(path)
                    yield StoredFile(path[len(str(folder)) + 1 :], at.st_size, at.st_mtime)
        return
    yield from (file for file in _listed(folder) if file.name and not file.name.endswith("/"))


def _listed(folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
    """What an object store has below a folder; with `folders` only what is in it, the folders too, whose names end with a slash."""
    with _told(folder):
        yield from object_store.of(folder).listed(folder, folders=folders)


def modified(path: DataPath) -> float:
    """When a file was written."""
    if isinstance(path, Path):
        return path.stat().st_mtime
    with _told(path):
        return float(path.fs.modified(path.path).timestamp())


def size(path: DataPath) -> int:
    """The size of a file. FileNotFoundError."""
    if isinstance(path, Path):
        return path.stat().st_size
    with _told(path):
        return int(path.fs.size(path.path))


# ---- writing -----------------------------------------------------------------------------------------------------------


def make_folder(folder: DataPath) -> None:
    """Makes a folder, with those above; an object store has none."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def written(path: DataPath, *, kept: bool = True) -> Iterator[Path]:
    """Inside, the file of this path is written at the place that is given; behind, it is there whole. On an error nothing is left.

    `kept`: the node will read it itself, so the copy of a file in an object store stays in the cache.
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
            with _told(path):
                path.fs.put_file(str(draft), path.path)
        except BaseException:
            if kept:  # otherwise it goes with its folder
                _note_forsaken([path])  # the store may have it all the same
            raise
        if kept:
            file_cache.keep(path.fs, path.path, draft)
    finally:
        draft.unlink(missing_ok=True)


def write_new(path: DataPath, text: str, *, synced: bool = False) -> None:
    """Writes a small file that must not be there yet; it appears whole. FileExistsError if another writer was first.

    `synced`: also after a power failure what has this name is whole; an object store's file always is.
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
    with _told(path):
        try:
            object_store.of(path).put_if(path, content, None)
        except FileExistsError:
            # a request that was answered too late is sent again, and meets what it has written itself
            if _content(path) != content:
                raise
    file_cache.put(path.fs, path.path, content)


def _content(path: UPath) -> bytes:
    """The content of a file that the store has just said to be there."""
    try:
        return bytes(path.fs.cat_file(path.path))
    except FileNotFoundError as error:  # it refuses what comes while another request is under way, too
        raise OSError(errno.EAGAIN, "file was removed while it was written", str(path)) from error


def write_whole(path: DataPath, text: str, modified: float | None = None) -> None:
    """Writes a small file, in the place of what was there, durably: whoever reads it sees the one or the other.

    `modified`: the time that the file shall have; those of an object store are as old as they are.
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
    with _told(path):
        path.fs.pipe_file(path.path, text.encode())


def copy(path: DataPath, target: Path) -> None:
    """Brings a file, whole, to a local place that is not there yet."""
    if isinstance(path, Path):
        shutil.copyfile(path, target)
        return
    with _told(path):
        _download(path, target)


def put(file: Path, path: DataPath) -> None:
    """Brings a local file, whole, to a place that is not there yet."""
    if isinstance(path, Path):
        shutil.copyfile(file, path)
        path.chmod(0o600)
        return
    _may_write(path)
    with _told(path):
        path.fs.put_file(str(file), path.path)


def remove(path: DataPath) -> None:
    """Removes a file, if it is there."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    _may_write(path)
    with _told(path), contextlib.suppress(FileNotFoundError):
        path.fs.rm_file(path.path)
    file_cache.forget(path.fs, path.path)


def remove_all(paths: Iterable[DataPath]) -> None:
    """Removes files, those of an object store many with a request."""
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
    """Removes files of a path's store by their keys."""
    store = object_store.of(near)
    bucket, _ = store.split(near)

    def some(wanted: Sequence[str]) -> None:
        _may_write(near)
        try:
            with _told(near):
                store.remove(near, wanted)
        finally:
            for key in wanted:
                file_cache.forget(near.fs, f"{bucket}/{key}")

    together(near, some, [keys[first : first + A_REQUEST] for first in range(0, len(keys), A_REQUEST)])


def forsake(paths: Iterable[DataPath]) -> None:
    """Removes files that were made for nothing, of names that are never given again; what a store does not remove now goes later."""
    given = list(paths)
    try:
        remove_all(given)
    except (OSError, PostgresError):
        _note_forsaken(given)


def remove_forsaken(near: DataPath) -> None:
    """Removes from a path's store what `forsake` could not remove, and what writes that failed may have left."""
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
    """Removes a folder with all that is in it, as far as that can be done; whether it is gone.

    `last`: a folder in it by which it is known what the whole is; it goes when the rest has gone.
    """
    if isinstance(folder, Path):
        if last and folder.is_dir() and not folder.is_symlink():
            for name in set(names_if_any(folder)) - {last}:
                _remove_local(folder / name)
        _remove_local(folder)
        return not os.path.lexists(folder)
    _may_write(folder)
    try:
        found, key = [file.name for file in _listed(folder)], _key(folder)
        later = [name for name in found if last and name.startswith(f"{last}/")]
        for names in ([name for name in found if name not in set(later)], later):
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
    """Moves a folder to a place where nothing is yet. Where it is now.

    An object store copies its files; none goes before all are there, so that a crash parts no table.
    """
    if isinstance(folder, Path) and isinstance(target, Path):
        target.parent.mkdir(exist_ok=True)
        return folder.rename(target)

    def one(file: StoredFile) -> None:
        _may_write(folder)  # type: ignore[arg-type]
        with _told(folder):
            folder.fs.copy(str((folder / file.name).path), str((target / file.name).path))  # type: ignore[union-attr]

    together(folder, one, below(folder))
    remove_tree(folder)
    return target


# ---- requests ----------------------------------------------------------------------------------------------------------


def together(near: DataPath, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Does something with each of several things, some at a time where `near` lies in an object store; the results in their order."""
    given = list(items)
    if isinstance(near, Path) or len(given) < 2:
        return [work(each) for each in given]
    with ThreadPoolExecutor(min(AT_ONCE, len(given)), "data location") as pool:
        return list(pool.map(work, given))


def _download(path: UPath, target: Path) -> None:
    target.write_bytes(path.fs.cat_file(path.path))


@contextlib.contextmanager
def _told(path: DataPath) -> Iterator[None]:
    """What the store's client raises beside OSErrors becomes 58030: no connection, no answer, no credentials."""
    try:
        yield
    except (OSError, PostgresError):
        raise
    except Exception as error:
        first = str(error).partition("\n")[0]  # obstore's go on with what it looks like inside
        raise PostgresError("58030", f'could not reach "{path}": {first}') from error
