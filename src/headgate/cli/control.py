"""``headgate start | stop | restart | reload | status``: the commands of pg_ctl, with pg_ctl's texts and exit codes.

Called by `main`. The node itself is another process, ``headgate run``. The commands find it by the pid file (`pidfile`). Exit codes: 0
success, 1 failure, and for status 3 not running, 4 no data directory.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.backup import target
from headgate.cli import initdb, pidfile
from headgate.cli.message import Failed, err, fail, out
from headgate.errors import PostgresError
from headgate.settings.node import Settings
from headgate.storage.location import object_store
from headgate.storage.location.object_store.store import Store
from headgate.storage.spark.application import jars

MODES = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_POLL = 0.05
_INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""
_RELOAD_SECONDS = 5
"""The seconds that `reload` waits for the node to report the outcome."""


@dataclass(frozen=True)
class Start:
    """The arguments of start. `options` are words for ``headgate run``."""

    data_dir: Path
    log_file: Path | None = None
    options: tuple[str, ...] = ()
    wait: bool = True
    seconds: float = 60


def check_directory(data_dir: Path, *, code: int = 1) -> None:
    """End the command if there is no node in the directory."""
    if not data_dir.is_dir():
        fail(f'directory "{data_dir}" does not exist', f'HINT: Create it with "headgate initdb -D {data_dir}".', code=code)
    if target.is_incomplete(data_dir):
        fail(f'directory "{data_dir}" holds a backup that is not complete', "Repeat the backup into an empty directory.", code=code)
    if not (data_dir / initdb.VERSION_FILE).exists():
        hint = f'HINT: Give the directory that "headgate initdb" made, which has the file "{initdb.VERSION_FILE}".'
        fail(f'directory "{data_dir}" is not a node\'s data directory', hint, code=code)


class _Dots:
    """Prints ``waiting for …`` with a dot every second."""

    def __init__(self, event: str) -> None:
        out(f"waiting for {event}...", end="")
        self._next = time.monotonic()

    def pause(self) -> None:
        if time.monotonic() >= self._next:
            out(".", end="")
            self._next += 1
        time.sleep(_POLL)


def start(call: Start) -> None:
    """Start the node and wait until it accepts connections."""
    check_directory(call.data_dir)
    if pidfile.alive(call.data_dir):
        err("headgate: another node might be running; trying to start node anyway")
    fetch_jars(_named_store(call.data_dir))
    command = [sys.executable, "-m", "headgate.cli.main", "run", "-D", str(call.data_dir), *call.options]
    child, said_before = _spawn(call, command)
    if not call.wait:
        out("node starting")
        return
    try:
        _await_start(call, child, said_before)
    except KeyboardInterrupt:
        out(" interrupted")
        where = f'"headgate status -D {call.data_dir}" says when it is ready, "headgate stop -D {call.data_dir}" stops it'
        raise Failed(f"headgate: the node goes on starting (PID {child.pid}): {where}", code=_INTERRUPTED) from None
    out(" done\nnode started")


def _await_start(call: Start, child: subprocess.Popen[bytes], said_before: int) -> None:
    dots = _Dots("node to start")
    until = time.monotonic() + call.seconds
    while True:
        running = pidfile.read(call.data_dir)
        if running and running.pid == child.pid and running.ready:
            break
        code = child.poll()
        if code is not None:
            out(" stopped waiting")
            if call.log_file is not None:
                _repeat(call.log_file, said_before)
            killed = [f"The process was terminated by signal {-code}."] if code < 0 else []
            fail("could not start node", *killed, "Examine the log output.")
        if time.monotonic() > until:
            out(" stopped waiting")
            fail("node did not start in time", "Examine the log output.")
        dots.pause()


def fetch_jars(store: Store | None = None) -> None:
    """Fetch the jars before the first start of a node that was installed by pip. This time does not count as the start's."""
    _fetch(jars.JARS, "Delta")
    if store is not None:
        _fetch(jars.STORE_JARS[store.name], store.title)


def _fetch(needed: Sequence[jars.Jar], title: str) -> None:
    try:
        jars.find_jars(needed)
    except PostgresError:
        out(f"fetching the {title} jars ... ", end="")
        try:
            _with_bar(needed, title)
        except PostgresError as error:
            out("failed")
            fail(error.message, *([f"HINT: {error.hint}"] if error.hint else []))
        out("ok")


def _named_store(data_dir: Path) -> Store | None:
    """Return the object store of data_location, or None. The node itself reports errors in the settings."""
    try:
        return object_store.named(Settings(data_dir, {}).load())
    except PostgresError:
        return None


def _with_bar(needed: Sequence[jars.Jar], title: str) -> None:
    """Fetch the jars. On a terminal, a bar shows how many have been fetched."""
    if not sys.stderr.isatty():
        jars.resolve(jars=needed)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"fetching the {title} jars", total=len(needed))
        jars.resolve(tell=lambda done, whole: progress.update(task, completed=min(done, whole)), jars=needed)


def _spawn(call: Start, command: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the node's process in its own session. Return it and the previous length of the log."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if call.log_file is None:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=environment), 0
    try:
        handle = os.open(call.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        fail(f'could not open log file "{call.log_file}": {error.strerror}')
    with os.fdopen(handle, "ab") as log:
        size = os.fstat(handle).st_size
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment)
    return child, size


def _repeat(log_file: Path, since: int) -> None:
    """Print what the node wrote to its log before it ended."""
    with log_file.open("rb") as log:
        log.seek(since)
        for line in log.read().decode(errors="replace").splitlines()[-40:]:
            err(line)


def stop(data_dir: Path, mode: str, seconds: float, *, wait: bool = True) -> None:
    check_directory(data_dir)
    if mode not in MODES:
        fail(f'unrecognized shutdown mode "{mode}"', 'Try "headgate --help" for more information.')
    pid = _pid(data_dir)
    _signal(pid, MODES[mode], "stop")
    if not wait:
        out("node shutting down")
        return
    try:
        _await_stop(data_dir, pid, mode, seconds)
    except KeyboardInterrupt:
        out(" interrupted")
        raise Failed(f"headgate: the node goes on shutting down (PID {pid})", code=_INTERRUPTED) from None
    if not pidfile.alive(data_dir):
        (data_dir / pidfile.NAME).unlink(missing_ok=True)
    out(" done\nnode stopped")


def _await_stop(data_dir: Path, pid: int, mode: str, seconds: float) -> None:
    dots = _Dots("node to shut down")
    until = time.monotonic() + seconds
    # the process seems to have ended as soon as its first thread has, but its other threads still hold the file for a moment
    while pidfile.exists(pid) or (pidfile.alive(data_dir) and _holds(data_dir, pid)):
        if time.monotonic() > until:
            out(" failed")
            hint = (
                'HINT: The "-m fast" option immediately disconnects sessions rather than',
                "waiting for session-initiated disconnection.",
            )
            fail("node does not shut down", *(hint if mode == "smart" else ()))
        dots.pause()


def _holds(data_dir: Path, pid: int) -> bool:
    running = pidfile.read(data_dir)
    return running is not None and running.pid == pid


def restart(call: Start, mode: str, *, keep_options: bool) -> None:
    """Stop the node if it runs and start it again, with the options of the last start unless others are given."""
    check_directory(call.data_dir)
    if pidfile.alive(call.data_dir):
        stop(call.data_dir, mode, call.seconds)
    else:
        err(f'headgate: PID file "{call.data_dir / pidfile.NAME}" does not exist')
        err("Is node running?\ntrying to start node anyway")
    if keep_options:
        call = Start(call.data_dir, call.log_file, _last_options(call.data_dir), call.wait, call.seconds)
    start(call)


def _last_options(data_dir: Path) -> tuple[str, ...]:
    try:
        words = shlex.split((data_dir / pidfile.OPTIONS_FILE).read_text())
    except FileNotFoundError:
        return ()
    return tuple(words[words.index("-D") + 2 :]) if "-D" in words else ()


def reload(data_dir: Path) -> None:
    """Make the node read its files again. Print the settings that count from its next start, and whether the files have errors."""
    check_directory(data_dir)
    pid = _pid(data_dir)
    before = pidfile.read(data_dir)
    _signal(pid, signal.SIGHUP, "reload")
    out("node signaled")
    if before is None or not before.ready:
        return
    until = time.monotonic() + _RELOAD_SECONDS
    while (now := pidfile.read(data_dir)) is None or now.reloaded == before.reloaded:
        if time.monotonic() > until or not pidfile.exists(pid):
            return
        time.sleep(_POLL)
    done = now.reloaded
    if done is None:
        return
    if done.has_errors:
        err("headgate: the configuration files have errors, and not all changes were applied: see the server log")
    for name in done.pending:
        out(f'parameter "{name}" counts from the next start')


def _pid(data_dir: Path) -> int:
    running = pidfile.read(data_dir)
    if running is None:
        fail(f'PID file "{data_dir / pidfile.NAME}" does not exist', "Is node running?")
    return running.pid


def _signal(pid: int, number: signal.Signals, name: str) -> None:
    if not pidfile.exists(pid):
        fail(f"could not send {name} signal (PID: {pid}): No such process")
    try:
        os.kill(pid, number)
    except OSError as error:
        fail(f"could not send {name} signal (PID: {pid}): {error.strerror}")
