"""`headgate status`: shows whether a node runs, and the state of its subscriptions and slots, for a person or (``--json``) for a program.

The node is queried by a signal and answers in a file (`headgate.server.report.status_report`), and by a connection (`probe`). Exit
codes are those of pg_ctl status: 3 no node, 4 no data directory. With --json the node's own report is printed unchanged, with ``running``
and ``accepting``.

Invariant: a node that does not accept connections, for any reason, is not reported as running, and its exit code is 3 too. The
reason is printed, and is ``trouble`` in JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.cli import pidfile
from headgate.cli.control import check_directory
from headgate.cli.message import count, out
from headgate.cli.pidfile import Running
from headgate.server.monitoring.snapshot import Document, SlotReport, StatusReport, load
from headgate.subscriber.snapshot import CopyReport, SubscriptionReport

FILE = "headgate.status"
SECONDS = 10.0
"""The seconds that the node has to answer."""
_POLL = 0.02
LINES = 40
"""The maximum number of lines about the columns and tables of a subscription."""


_GSSENC_REQUEST = struct.pack("!ii", 8, 80877104)


def status(data_dir: Path, *, as_json: bool) -> None:
    """Print the status of the node."""
    check_directory(data_dir, code=4)
    node = look(data_dir)
    if as_json:
        out(_as_json(node))
    else:
        for line in lines(data_dir, node):
            out(line)
    if node is None or node.trouble is not None:
        sys.exit(3)


@dataclass(frozen=True)
class RunningNode:
    """A running node: its report, and the reason if it does not accept connections."""

    running: pidfile.Running
    document: Document | None
    """The report as JSON. It may come from a node of another version."""
    trouble: str | None

    @property
    def report(self) -> StatusReport | None:
        """The report in the form of this version."""
        return None if self.document is None else load(self.document)


def look(data_dir: Path) -> RunningNode | None:
    """Return the report of the node in a directory, or None if none runs."""
    running = pidfile.read(data_dir)
    if running is None or not pidfile.alive(data_dir):
        return None
    document = _ask(data_dir, running.pid) if running.ready else None
    return RunningNode(running, document, _trouble(running, document))


def _as_json(node: RunningNode | None) -> str:
    if node is None:
        return '{"running": false, "healthy": false}'
    well, document = node.trouble is None, node.document
    problems = [] if document is None else [*document.get("problems", ())]
    if not well and all(problem["kind"] != "node" for problem in problems):
        problems.insert(0, {"kind": "node", "subject": "node", "message": str(node.trouble), "to_do": None})
    if well and document is None:
        problems.append({"kind": "node", "subject": "node", "message": "it does not answer with its status", "to_do": None})
    own = {"running": well, "pid": node.running.pid, "accepting": well, "trouble": node.trouble}
    return json.dumps({**(document or {}), **own, "healthy": not problems, "problems": problems}, indent=2)


def condition(node: RunningNode) -> str:
    """Return a line that says whether the node works as it should."""
    health = ""
    report = node.report
    if report is not None and report.healthy is not None:  # a node of an earlier version does not report it
        problems = report.problems
        health = f", {count(len(problems), 'problem')}" if problems else ", healthy"
    return f"node {'is running' if node.trouble is None else 'does not accept connections'} (PID: {node.running.pid}){health}"


def lines(data_dir: Path, node: RunningNode | None) -> Iterator[str]:
    """Return the lines that `status` prints for a person."""
    if node is None:
        yield "headgate: no node running"
        return
    yield f"headgate: {condition(node)}"
    if node.trouble is not None:
        yield f"headgate: {node.trouble}"
    if (data_dir / pidfile.OPTIONS_FILE).exists():
        yield (data_dir / pidfile.OPTIONS_FILE).read_text().rstrip("\n")
    if (report := node.report) is not None:
        yield from shown(report)


def _trouble(running: pidfile.Running, document: Document | None) -> str | None:
    """Return why the node does not accept connections, or None if it does."""
    if running.status == pidfile.Status.STARTING:
        return "it is starting up"
    if running.status == pidfile.Status.STOPPING:
        return "it is shutting down"
    failure = probe(running)
    if failure is None:
        return None
    return failure if document is None or not document.get("trouble") else str(document["trouble"])


def _ask(data_dir: Path, pid: int) -> Document | None:
    """Return the node's report, or None if it does not answer."""
    path = data_dir / FILE
    requested = time.time()
    os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if path.exists() and path.stat().st_mtime >= requested - 0.01:
            with contextlib.suppress(ValueError):  # on a full disk it is written in place
                document: Document = json.loads(path.read_text())
                if document["time"] >= requested:
                    return document
        time.sleep(_POLL)
    return None


def shown(report: StatusReport) -> Iterator[str]:
    """Return the report as lines for a person."""
    yield from _problems(report)
    if (spark := report.spark) is not None:
        executors = "" if spark.executors is None else f", {count(spark.executors, 'executor')}"
        ui = f", {spark.ui}" if spark.ui else ""
        yield f"\nSpark: {spark.master}{executors}{ui}"
        yield f"  segments {spark.driver_segments} decoded by the driver, {spark.spark_segments} by tasks"
        yield f"  batches  {spark.driver_batches} merged by the driver, {spark.spark_batches} by tasks"
        changes = spark.driver_changes + spark.spark_changes
        yield f"  changes  {changes} applied, {spark.spark_changes / max(changes, 1):.0%} of them by tasks"
    yield f"\nSubscriptions: {len(report.subscriptions)}"
    for one in report.subscriptions:
        yield f"  {one.name} (database {one.database}): {one.state}"
        waiting = f", waiting: {', '.join(one.tables_waiting)}" if one.tables_waiting else ""
        yield f"    tables   {one.tables_synced} of {one.tables} synchronized{waiting}"
        for table, method in one.tables_resync.items():
            yield f"    again    {table}: {_AGAIN[method]}"
        for copy in one.copies:
            yield f"    copying  {_copying(copy)}"
        yield f"    copied   {count(one.copied_rows, 'row')}, {size(one.copied_bytes)}"
        last = "" if one.applied_at is None else f", the last {span(report.time - one.applied_at)} ago"
        yield (
            f"    applied  {count(one.applied_rows, 'row change')} in {count(one.applied_transactions, 'transaction')},"
            f" {size(one.applied_bytes)}, up to {one.applied_lsn or 'unknown'}{last}"
        )
        if one.skipped_rows:
            yield f"    skipped  {count(one.skipped_rows, 'change')} of rows that are not here"
        yield f"    lag      {_lag(one)}{'' if one.connected or one.lag_bytes is None else ', not connected'}"
        yield from _differences(one)
        if (failure := one.last_error) is not None:
            where = f" ({failure.table})" if failure.table else ""
            word = "error   " if one.failing else "was over"
            yield f"    {word} {_moment(failure.time)}{where}: {failure.message}"
            for text in filter(None, (failure.detail, failure.context)):
                yield f"             {text}"
    yield f"\nReplication slots: {len(report.slots)} (end of the log: {report.log_end})"
    for slot in report.slots:
        client = f", client {slot.client}" if slot.client else ""
        yield f"  {slot.name} (database {slot.database}): {slot.state}{client}"
        if slot.invalidation_reason:
            yield f"             invalidated: {slot.invalidation_reason}"
        yield f"    sent     {count(slot.transactions, 'transaction')}, {size(slot.bytes)}, confirmed {slot.confirmed_lsn}"
        yield f"    lag      {_lag(slot)}"


_AGAIN = {"copy": "copied again, as requested", "difference": "compared and made equal, as requested"}


def _problems(report: StatusReport) -> Iterator[str]:
    """Yield the problems, each with the suggested action."""
    if report.problems:
        yield f"\nProblems: {len(report.problems)}"
    for problem in report.problems:
        yield f"  {problem.subject}: {problem.message}"
        if problem.to_do:
            yield f"    to do    {problem.to_do}"


def _copying(copy: CopyReport) -> str:
    """Return the progress of a copy."""
    whole = "" if copy.estimated_rows is None else f" of about {copy.estimated_rows:,}"
    left = "" if copy.seconds_left is None else f", {span(copy.seconds_left)} left"
    return f"{copy.table}: {copy.rows:,}{whole} rows, {copy.rows_per_second:,.0f} rows/s{left}"


def _differences(subscription: SubscriptionReport) -> Iterator[str]:
    """Return the differences from the publisher, and the skipped changes."""
    differing = [f"types    {column.column}: {column.there} there, {column.here} here" for column in subscription.types]
    differing += [f"unfilled {gap.column}: {count(gap.rows, 'row')} that the publisher has values for" for gap in subscription.unfilled]
    differing += [f"left out {table.table}: {count(table.changes, 'change')}" for table in subscription.left_out]
    for line in differing[:LINES]:
        yield f"    {line}"
    if len(differing) > LINES:
        yield f"             and {len(differing) - LINES} more: --json has all"


def _lag(stream: SubscriptionReport | SlotReport) -> str:
    if stream.lag_bytes is None:
        return "unknown"
    seconds = stream.lag_seconds
    return size(stream.lag_bytes) + ("" if seconds is None else f", {span(seconds)}")


def span(seconds: float) -> str:
    """Return seconds, and from ten minutes on minutes, hours and days."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= max(600, 2 * length):
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.1f} s"


def size(number: int) -> str:
    """Return a number of bytes with a unit that leaves few digits."""
    left = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if left < 10 * 1024:
            return f"{left:.0f} {unit}"
        left /= 1024
    return f"{left:.0f} TB"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def probe(running: Running) -> str | None:
    """Return why the node does not answer, or None if it does. A node that does not listen anywhere counts as answering."""
    if not running.address and not running.directory:
        return None
    try:
        with _connect(running, SECONDS) as connection:
            connection.sendall(_GSSENC_REQUEST)
            answer = connection.recv(4096)
    except TimeoutError:
        return f"no answer within {SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    if answer[:1] in {b"N", b"G"}:
        return None
    fields = answer[5:].split(b"\0") if answer[:1] == b"E" else []
    message = next((field[1:].decode(errors="replace") for field in fields if field[:1] == b"M"), "")
    return message or "it closes connections at once"


def _connect(running: Running, seconds: float) -> socket.socket:
    if running.address:
        return socket.create_connection((running.host, running.port), seconds)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(f"{running.directory}/.s.PGSQL.{running.port}")
    except OSError:
        connection.close()
        raise
    return connection
