"""``headgate check``: what `headgate.check` finds, a line each.

Called by `main`. The last line says how many tables were checked, and what was found. A stopped node's directory is read here, with a
Spark session of its own, and no node can start there meanwhile; a running node is asked (``--online``) by the replication command
CHECK_NODE. Exit codes: 0 nothing but notices, 1 it could not be checked, 2 errors
or warnings.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

from headgate.check.finding import Finding, FindingSeverity
from headgate.cli import control, pidfile, session
from headgate.cli.message import count, fail, out, show_progress
from headgate.cli.run import check_java, read_settings
from headgate.storage.spark.application import jars
from headgate.walreceiver.connection import literal

WRONG = 2


Found = Generator[Finding, None, int]
"""What is found, as it is found; at the end the number of tables that were checked."""


def report(found: Found) -> int:
    """Print what is found and a summary. Return the exit code."""
    kinds: Counter[FindingSeverity] = Counter()
    tables = 0

    def all_findings() -> Iterator[Finding]:
        nonlocal tables
        tables = yield from found

    for finding in all_findings():
        show_progress("")
        out(finding.line)
        kinds[finding.severity] += 1
    show_progress("")
    told = ", ".join(count(kinds[severity], severity.value) for severity in FindingSeverity if kinds[severity])
    out(f"checked {count(tables, 'table')}: {told or 'nothing found'}")
    return WRONG if kinds.keys() - {FindingSeverity.NOTICE} else 0


def offline(data_dir: Path, command_line: Mapping[str, str], database: str | None) -> Found:
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
        return len(checked.tables)


def online(data_dir: Path, username: str | None, database: str | None) -> Found:
    """Of a running node."""
    with session.opened(data_dir, username) as opened:
        command = "CHECK_NODE" if database is None else f"CHECK_NODE {literal(database)}"
        session.show_progress_of(opened, "checking ")
        cursor = opened.execute(command.encode())
        for severity, place, what, advice in cursor.fetchall():
            yield Finding(FindingSeverity(severity), place, what, advice)
        return int((cursor.statusmessage or "").rpartition(" ")[2])


def _show(what: str) -> None:
    show_progress(f"checking {what}")
