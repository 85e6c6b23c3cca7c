"""``headgate check``: prints the findings of `headgate.check`, one per line.

Called by `main`. The last line has the number of checked tables and of findings. The directory of a stopped node is read here, with a
separate Spark session, and no node can start there in the meantime. A running node is checked (``--online``) by the replication command
CHECK_NODE. Exit codes: 0 only notices, 1 the check failed, 2 errors or warnings.
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


Findings = Generator[Finding, None, int]
"""Yields the findings, and finally returns the number of checked tables."""


def report(findings: Findings) -> int:
    """Print the findings and a summary. Return the exit code."""
    kinds: Counter[FindingSeverity] = Counter()
    tables = 0

    def all_findings() -> Iterator[Finding]:
        nonlocal tables
        tables = yield from findings

    for finding in all_findings():
        show_progress("")
        out(finding.line)
        kinds[finding.severity] += 1
    show_progress("")
    summary = ", ".join(count(kinds[severity], severity.value) for severity in FindingSeverity if kinds[severity])
    out(f"checked {count(tables, 'table')}: {summary or 'nothing found'}")
    return WRONG if kinds.keys() - {FindingSeverity.NOTICE} else 0


def offline(data_dir: Path, command_line: Mapping[str, str], database: str | None) -> Findings:
    """Check a stopped node."""
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


def online(data_dir: Path, username: str | None, database: str | None) -> Findings:
    """Check a running node."""
    with session.opened(data_dir, username) as opened:
        command = "CHECK_NODE" if database is None else f"CHECK_NODE {literal(database)}"
        session.show_progress_of(opened, "checking ")
        cursor = opened.execute(command.encode())
        for severity, place, message, advice in cursor.fetchall():
            yield Finding(FindingSeverity(severity), place, message, advice)
        return int((cursor.statusmessage or "").rpartition(" ")[2])


def _show(step: str) -> None:
    show_progress(f"checking {step}")
