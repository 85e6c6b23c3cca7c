"""`headgate status`: whether a node runs, and what its subscriptions and slots do, for a person or (``--json``) for a program.

The node is asked by a signal and answers in a file (`headgate.server.report`), and by a connection (`probe`). Exit codes are those of
pg_ctl status: 3 no node, 4 no data directory. With --json the node's own report is printed as it is, with ``running`` and ``accepting``.

What must hold: a node that does not accept connections, whatever the reason, is not said to run: its exit code is 3 too. What is wrong is
said in words, and ``trouble`` in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.cli import pidfile, probe
from headgate.cli.control import check_directory
from headgate.cli.message import out

FILE = "headgate.status"
SECONDS = 10.0
"""How long the node has to answer."""
_POLL = 0.02
LINES = 40
"""Lines of a subscription that tell of its columns and tables."""


def status(data_dir: Path, *, as_json: bool) -> None:
    """Prints what the node does."""
    check_directory(data_dir, code=4)
    running = pidfile.read(data_dir)
    if running is None or not pidfile.alive(data_dir):
        out('{"running": false}' if as_json else "headgate: no node running")
        sys.exit(3)
    report = _ask(data_dir, running.pid) if running.ready else None
    trouble = _trouble(running, report)
    if as_json:
        accepting = {"running": trouble is None, "pid": running.pid, "accepting": trouble is None}
        out(json.dumps((report or {}) | accepting | {"trouble": trouble}, indent=2))
    else:
        out(f"headgate: node {'is running' if trouble is None else 'does not accept connections'} (PID: {running.pid})")
        if trouble is not None:
            out(f"headgate: {trouble}")
        if (data_dir / pidfile.OPTIONS_FILE).exists():
            out((data_dir / pidfile.OPTIONS_FILE).read_text(), end="")
        for line in shown(report) if report is not None else ():
            out(line)
    if trouble is not None:
        sys.exit(3)


def _trouble(running: pidfile.Running, report: dict[str, Any] | None) -> str | None:
    """Why the node accepts no connections, None if it does."""
    if running.status == pidfile.Status.STARTING:
        return "it is starting up"
    if running.status == pidfile.Status.STOPPING:
        return "it is shutting down"
    found = probe.trouble(running)
    if found is None:
        return None
    return found if report is None or not report.get("trouble") else str(report["trouble"])


def _ask(data_dir: Path, pid: int) -> dict[str, Any] | None:
    """The node's report; None if it does not answer."""
    path = data_dir / FILE
    asked = time.time()
    os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if path.exists() and path.stat().st_mtime >= asked - 0.01:
            found: dict[str, Any] = json.loads(path.read_text())
            if found["time"] >= asked:
                return found
        time.sleep(_POLL)
    return None


def shown(report: dict[str, Any]) -> Iterator[str]:
    """The report as lines for a person."""
    for one in report.get("threads", ()):
        if not one["running"]:
            yield f'\nBackground thread "{one["name"]}" rests after {one["failures"]} failures: {one["error"]}'
    yield f"\nSubscriptions: {len(report['subscriptions'])}"
    for one in report["subscriptions"]:
        yield f"  {one['name']} (database {one['database']}): {one['state']}"
        waiting = f", waiting: {', '.join(one['tables_waiting'])}" if one["tables_waiting"] else ""
        yield f"    tables   {one['tables_synced']} of {one['tables']} synchronized{waiting}"
        yield f"    copied   {one['copied_rows']:,} rows, {_size(one['copied_bytes'])}"
        yield (
            f"    applied  {one['applied_rows']:,} row changes in {one['applied_transactions']:,} transactions,"
            f" {_size(one['applied_bytes'])}, up to {one['applied_lsn'] or 'unknown'}"
        )
        yield f"    lag      {_lag(one)}"
        yield from _differences(one)
        if (failure := one["last_error"]) is not None:
            where = f" ({failure['table']})" if failure["table"] else ""
            word = "error   " if one["failing"] else "was over"
            yield f"    {word} {_moment(failure['time'])}{where}: {failure['message']}"
            for name in ("detail", "context"):
                if failure[name]:
                    yield f"             {failure[name]}"
            if one["failing"]:
                yield f"    to do    {failure['advice']}"
        for line in one["to_do"]:
            yield f"    to do    {line}"
    yield f"\nReplication slots: {len(report['slots'])} (end of the log: {report['log_end']})"
    for one in report["slots"]:
        client = f", client {one['client']}" if one["client"] else ""
        yield f"  {one['name']} (database {one['database']}): {one['state']}{client}"
        yield f"    sent     {one['transactions']:,} transactions, {_size(one['bytes'])}, confirmed {one['confirmed_lsn']}"
        yield f"    lag      {_lag(one)}"


def _differences(one: dict[str, Any]) -> Iterator[str]:
    """What is here otherwise than there, and what was left out."""
    lines = [f"types    {each['column']}: {each['there']} there, {each['here']} here" for each in one["types"]]
    lines += [f"unfilled {each['column']}: NULL in {each['rows']:,} rows that have a default there" for each in one["unfilled"]]
    lines += [f"left out {each['table']}: {each['changes']:,} changes" for each in one["left_out"]]
    for line in lines[:LINES]:
        yield f"    {line}"
    if len(lines) > LINES:
        yield f"             and {len(lines) - LINES} more: --json has all"


def _lag(one: dict[str, Any]) -> str:
    if one["lag_bytes"] is None:
        return "unknown"
    seconds = one["lag_seconds"]
    return _size(one["lag_bytes"]) + ("" if seconds is None else f", {seconds:.1f} s")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 10 * 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} TB"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
