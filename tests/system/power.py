"""Reconstruct what a disk holds after a power failure: record a process's writes, and replay them without those that were not fsynced.

`Recording` runs a command under strace, which records each system call that changes files. `replay` applies the calls to a `Disk` one by
one. `Disk.crashed` writes one of the many states that a power failure after the last call may leave:

    a file's bytes          as of its last fsync, and all, none or some of the later writes, each of which may be cut at a sector boundary
    the names of a folder   as of the last fsync of the folder, and the first few later changes, in order

So an fsynced file may be missing if its folder was not fsynced. This is stricter than ext4, and POSIX allows it. A rename from one folder to
another is assumed to be complete.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

CALLS = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,lseek,ftruncate,truncate,fallocate,fsync,fdatasync,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,sendfile,copy_file_range,clone,clone3,fork,vfork"
)
SECTOR = 512
_LINE = re.compile(r"(\d+) +(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>(.*))\Z", re.DOTALL)
_RESULT = re.compile(r"(.*)\) += (-?\d+|\?)(?: .*)?\Z", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PATH = re.compile(r'(?:(AT_FDCWD|\d+), )?"((?:\\x[0-9a-f]{2})*)"')


def can_record() -> bool:
    """Return whether strace is installed and permitted."""
    try:
        return subprocess.run(["strace", "-qqq", "-f", "--seccomp-bpf", "-o", os.devnull, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@dataclass(eq=False)
class File:
    """A file: its bytes on the disk (`synced`), and the later writes (`pending`)."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, bytes) for a write, or (size, None) if the file was truncated or extended to a size."""
    size: int = 0

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        self.pending.append((size, None))
        self.size = size

    def sync(self) -> None:
        for pending_write in self.pending:
            _apply(self.synced, *pending_write)
        self.pending.clear()

    def crashed(self, random: Random) -> bytes:
        """Return possible bytes of the file after a power failure."""
        content, all_of_them = bytearray(self.synced), random.choice((True, False, None))
        for offset, data in self.pending:
            whole = random.choice((True, False, None)) if all_of_them is None else all_of_them
            if whole:
                _apply(content, offset, data)
            elif whole is None and data is not None:
                _apply(content, offset, data[: random.randrange(len(data) // SECTOR + 1) * SECTOR])
        return bytes(content)


@dataclass(eq=False)
class Folder:
    """A folder: its names on the disk (`synced`), the later changes (`pending`), and its names now (`entries`)."""

    synced: dict[str, Node] = field(default_factory=dict)
    pending: list[tuple[tuple[str, Node | None], ...]] = field(default_factory=list)
    """The names that each call changed. A rename removes one name and adds another."""
    entries: dict[str, Node] = field(default_factory=dict)

    def put(self, *names: tuple[str, Node | None]) -> None:
        """Add names of files or folders, or remove those with None."""
        self.pending.append(names)
        for name, node in names:
            _name(self.entries, name, node)

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.pending.clear()

    def crashed(self, random: Random) -> dict[str, Node]:
        """Return possible names in the folder after a power failure."""
        entries = dict(self.synced)
        for names in self.pending[: random.randint(0, len(self.pending))]:
            for name, node in names:
                _name(entries, name, node)
        return entries


Node = File | Folder


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _name(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


class Disk:
    """The files below one folder, as they are and as a power failure would leave them."""

    def __init__(self, root: Path) -> None:
        """Read the folder as it is now, as if all of it was fsynced."""
        self.root = root
        self.top = self._read(root)

    def _read(self, path: Path) -> Folder:
        folder = Folder()
        for entry in path.iterdir():
            if entry.is_dir():
                folder.entries[entry.name] = self._read(entry)
            elif entry.is_file():
                data = entry.read_bytes()
                folder.entries[entry.name] = File(bytearray(data), [], len(data))
        folder.sync()
        return folder

    def parts(self, path: str) -> list[str] | None:
        """Return the parts of a path below the folder, or None if the path is outside."""
        whole, root = os.path.normpath(path), str(self.root)
        return whole[len(root) :].strip("/").split("/") if whole.startswith(root + "/") else [] if whole == root else None

    def find(self, parts: Sequence[str]) -> Node | None:
        """Return the file or folder that exists now, or None."""
        node: Node | None = self.top
        for part in parts:
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return node

    def parent(self, parts: Sequence[str]) -> Folder:
        """Return the folder that contains the last name."""
        folder = self.find(parts[:-1])
        assert isinstance(folder, Folder), f"no folder for {'/'.join(parts)}"
        return folder

    def crashed(self, random: Random, target: Path) -> None:
        """Write a possible state after a power failure to `target`, which must not exist."""

        def lay(folder: Folder, path: Path) -> None:
            path.mkdir(mode=0o700)
            for name, node in folder.crashed(random).items():
                if isinstance(node, Folder):
                    lay(node, path / name)
                else:
                    (path / name).write_bytes(node.crashed(random))

        lay(self.top, target)


class Recording:
    """A running command whose writes are recorded."""

    def __init__(self, command: Sequence[str], trace: Path, log: Path) -> None:
        self.trace = trace
        with log.open("w") as output:
            self._process = subprocess.Popen(
                ["strace", "-f", "--seccomp-bpf", "-qqq", "-xx", "-s", str(1 << 28), "-e", f"trace={CALLS}", "-e", "signal=none",
                 "-o", str(trace), *command], stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def moment(self) -> int:
        """Return the current position in the recording. All earlier calls are before it."""
        return self.trace.stat().st_size

    def end(self, pid: int) -> None:
        """Kill the command (`pid`) and its tracer."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)


@dataclass
class _Open:
    node: Node
    parts: list[str]
    offset: int = 0
    append: bool = False


class _Replay:
    """The state of a replay: the disk, and the open files of each process."""

    def __init__(self, disk: Disk, cwd: Path) -> None:
        self.disk = disk
        self._cwd = str(cwd)
        self._files: dict[tuple[int, int], _Open] = {}
        self._process: dict[int, int] = {}
        """The process of each thread."""

    def call(self, thread: int, name: str, arguments: str, result: int) -> bool:
        """Apply a call that succeeded. Return whether it has changed the disk."""
        done = getattr(self, f"_{name.removesuffix('64').replace('renameat2', 'renameat')}", None)
        if done is None:
            raise AssertionError(f"a call that is not replayed: {name}({arguments[:200]}")
        return bool(done(self._process.setdefault(thread, thread), arguments, result, thread))

    # ---- processes and descriptors ----------------------------------------------------------------------
    def _clone(self, process: int, arguments: str, result: int, thread: int) -> None:
        if "CLONE_THREAD" in arguments:
            self._process[result] = process
        else:
            for (owner, number), opened in [*self._files.items()]:
                if owner == process:
                    self._files[result, number] = opened
            self._process[result] = result

    _clone3 = _fork = _vfork = _clone

    def _close(self, process: int, arguments: str, result: int, thread: int) -> None:
        self._files.pop((process, int(arguments)), None)

    def _dup(self, process: int, arguments: str, result: int, thread: int) -> None:
        opened = self._files.get((process, int(arguments.split(",", maxsplit=1)[0])))
        if opened is not None:
            self._files[process, result] = opened
        else:
            self._files.pop((process, result), None)

    _dup2 = _dup3 = _dup

    def _fcntl(self, process: int, arguments: str, result: int, thread: int) -> None:
        if "F_DUPFD" in arguments:
            self._dup(process, arguments, result, thread)

    def _opened(self, process: int, arguments: str) -> _Open | None:
        return self._files.get((process, int(arguments.split(",", maxsplit=1)[0])))

    def _lseek(self, process: int, arguments: str, result: int, thread: int) -> None:
        opened = self._opened(process, arguments)
        if opened is not None:
            opened.offset = result

    # ---- names ------------------------------------------------------------------------------------------
    def _paths(self, process: int, arguments: str) -> list[list[str] | None]:
        """Return the paths of a call as parts, or None for a path outside the disk."""
        paths: list[list[str] | None] = []
        for at, text in _PATH.findall(arguments):
            path = bytes.fromhex(text.replace("\\x", "")).decode()
            if at.isdigit() and not path.startswith("/"):
                opened = self._files.get((process, int(at)))
                paths.append(None if opened is None else [*opened.parts, path])
            else:
                paths.append(self.disk.parts(os.path.join(self._cwd, path)))  # noqa: PTH118
        return paths

    def _openat(self, process: int, arguments: str, result: int, thread: int) -> bool:
        self._files.pop((process, result), None)
        [parts] = self._paths(process, arguments)
        if parts is None:
            return False
        node, changed = self.disk.find(parts), False
        if node is None and "O_CREAT" in arguments:
            node, changed = File(), True
            self.disk.parent(parts).put((parts[-1], node))
        if node is None:
            return False
        if isinstance(node, File) and "O_TRUNC" in arguments and node.size:
            node.resize(0)
            changed = True
        assert "O_SYNC" not in arguments
        assert "O_DSYNC" not in arguments
        self._files[process, result] = _Open(node, parts, append="O_APPEND" in arguments)
        return changed

    _open = _openat

    def _creat(self, process: int, arguments: str, result: int, thread: int) -> bool:
        return self._openat(process, f"{arguments}, O_CREAT|O_TRUNC", result, thread)

    def _mkdir(self, process: int, arguments: str, result: int, thread: int) -> bool:
        [parts] = self._paths(process, arguments)
        if parts:
            self.disk.parent(parts).put((parts[-1], Folder()))
        return bool(parts)

    _mkdirat = _mkdir

    def _unlink(self, process: int, arguments: str, result: int, thread: int) -> bool:
        [parts] = self._paths(process, arguments)
        if parts:
            self.disk.parent(parts).put((parts[-1], None))
        return bool(parts)

    _unlinkat = _rmdir = _unlink

    def _rename(self, process: int, arguments: str, result: int, thread: int) -> bool:
        old, new = self._paths(process, arguments)
        if old is None and new is None:
            return False
        assert old is not None, "a file was renamed from outside the disk"
        node = self.disk.find(old)
        source = self.disk.parent(old)
        target = None if new is None else self.disk.parent(new)
        if new is not None and target is source:
            source.put((old[-1], None), (new[-1], node))
            return True
        source.put((old[-1], None))
        source.sync()
        if new is not None and target is not None:
            target.put((new[-1], node))
            target.sync()
        return True

    _renameat = _rename

    def _link(self, process: int, arguments: str, result: int, thread: int) -> bool:
        old, new = self._paths(process, arguments)
        if new:
            assert old is not None
            self.disk.parent(new).put((new[-1], self.disk.find(old)))
        return bool(new)

    _linkat = _link

    def _symlink(self, process: int, arguments: str, result: int, thread: int) -> None:
        assert self._paths(process, arguments)[1] is None, "a symbolic link"

    _symlinkat = _symlink

    # ---- bytes ------------------------------------------------------------------------------------------
    def _put(self, process: int, arguments: str, count: int, offset: int | None) -> bool:
        opened = self._opened(process, arguments)
        if opened is None or not isinstance(opened.node, File):
            return False
        data = b"".join(bytes.fromhex(text.replace("\\x", "")) for text in _STRING.findall(arguments))[:count]
        assert len(data) == count
        at = offset if offset is not None else opened.node.size if opened.append else opened.offset
        opened.node.write(at, data)
        if offset is None:
            opened.offset = at + count
        return True

    def _write(self, process: int, arguments: str, result: int, thread: int) -> bool:
        return self._put(process, arguments, result, None)

    _writev = _write

    def _pwrite(self, process: int, arguments: str, result: int, thread: int) -> bool:
        return self._put(process, arguments, result, int(arguments.rsplit(",", 1)[1]))

    _pwritev = _pwrite

    def _ftruncate(self, process: int, arguments: str, result: int, thread: int) -> bool:
        opened = self._opened(process, arguments)
        if opened is None or not isinstance(opened.node, File):
            return False
        opened.node.resize(int(arguments.rsplit(",", 1)[1]))
        return True

    def _truncate(self, process: int, arguments: str, result: int, thread: int) -> bool:
        [parts] = self._paths(process, arguments)
        node = None if parts is None else self.disk.find(parts)
        if not isinstance(node, File):
            return False
        node.resize(int(arguments.rsplit(",", 1)[1]))
        return True

    def _fallocate(self, process: int, arguments: str, result: int, thread: int) -> bool:
        opened = self._opened(process, arguments)
        if opened is None or not isinstance(opened.node, File):
            return False
        _, mode, offset, length = arguments.split(", ")
        assert mode == "0"
        if int(offset) + int(length) > opened.node.size:
            opened.node.resize(int(offset) + int(length))
        return True

    def _copied(self, process: int, arguments: str, result: int, thread: int) -> None:
        assert self._opened(process, arguments) is None, "a copy in the kernel"

    _sendfile = _copy_file_range = _copied

    def _fsync(self, process: int, arguments: str, result: int, thread: int) -> bool:
        opened = self._opened(process, arguments)
        if opened is not None:
            opened.node.sync()
        return opened is not None

    _fdatasync = _fsync


def replay(disk: Disk, trace: Path, cwd: Path) -> Iterator[int]:
    """Apply the recorded calls to a disk in the state before them. After each call that changes it, yield the end of the call in the recording."""
    replaying = _Replay(disk, cwd)
    begun: dict[int, tuple[str, str]] = {}
    position = 0
    with trace.open("rb") as lines:
        for raw in lines:
            position += len(raw)
            line = raw.decode("ascii", "replace").rstrip("\n")
            match = _LINE.match(line)
            if match is None:
                continue
            thread, name, rest = int(match[1]), match[2] or match[4], match[3] if match[2] else match[5]
            if match[2] and rest.endswith("<unfinished ...>"):
                begun[thread] = name, rest.removesuffix("<unfinished ...>").rstrip()
                continue
            if not match[2]:
                before = begun.pop(thread, None)
                assert before is not None
                assert before[0] == name
                rest = before[1] + rest
            result = _RESULT.match(rest)
            if result is None or result[2] == "?" or int(result[2]) < 0:
                continue
            if replaying.call(thread, name, result[1], int(result[2])):
                yield position
