"""``headgate check``: what `headgate.check` finds, a line each.

Called by `main`. A stopped node's directory is read here, with a Spark session of its own, and no node can start there meanwhile; a running
node is asked (``--online``) by the replication command CHECK_NODE. Exit codes: 0 nothing but notices, 1 it could not be checked, 2 errors
or warnings.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headgate.check.finding import Finding, FindingSeverity
from headgate.cli import control, pidfile, session
from headgate.cli.message import fail, out
from headgate.cli.run import check_java, read_settings
from headgate.storage.spark.application import jars
from headgate.walreceiver.connection import literal

WRONG = 2


def report(found: Iterable[Finding]) -> int:
    """Prints what is found as it is found; the exit code."""
    worst = 0
    for each in found:
        _clear()
        out(each.line)
        worst = worst if each.severity is FindingSeverity.NOTICE else WRONG
    _clear()
    return worst


def offline(data_dir: Path, command_line: Mapping[str, str], database: str | None) -> Iterator[Finding]:
    """Of a node that does not run."""
    control.check_directory(data_dir)
    if pidfile.alive(data_dir):
        fail(f'node is running in directory "{data_dir}"', "Stop it, or use --online.")
    settings = read_settings(data_dir, command_line)
    check_java()
    jars.ensure()
    from headgate.check import course, subject

    warnings.filterwarnings("ignore", category=UserWarning, module="pyspark")
    with pidfile.occupied(data_dir), subject.of_stopped(data_dir, settings, database) as checked:
        checked.progress = _show
        yield from course.run(checked)


def online(data_dir: Path, username: str | None, database: str | None) -> Iterator[Finding]:
    """Of a running node."""
    with session.opened(data_dir, username) as opened:
        command = "CHECK_NODE" if database is None else f"CHECK_NODE {literal(database)}"
        for severity, place, what, advice in opened.execute(command.encode()).fetchall():
            yield Finding(FindingSeverity(severity), place, what, advice)


def _show(what: str) -> None:
    """Says on a terminal what is looked at, in one line that the next one takes."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[Kchecking {what}"[:200])
        sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
