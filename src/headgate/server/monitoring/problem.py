"""Derives the problems of a node from its snapshot. Status, JSON, metrics and alerts all show this list.

Called by `status_report`, which puts the list into the snapshot. A node is healthy if the list is empty.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.server.monitoring.snapshot import StatusReport
from headgate.subscriber.snapshot import Problem

KINDS = ("node", "thread", "pool", "disk", "table", "work", "subscription", "slot")
"""The kinds of problems, named by their subject. `work` is work of a background thread that does not succeed."""
LOW_SPACE = 64 << 20
"""The free space in bytes below which a disk counts as full."""
RESTORE = 'Bring the files back, or restore the table from a backup; "headgate check --online" lists all that is damaged.'


def problems(report: StatusReport) -> list[Problem]:
    """Return the problems, the most severe first."""
    return [Problem(kind=kind, subject=subject, message=message, to_do=to_do) for kind, subject, message, to_do in _problems(report)]


def _problems(report: StatusReport) -> Iterator[tuple[str, str, str, str | None]]:
    if report.trouble is not None:
        yield "node", "node", report.trouble, None
    for disk in report.disks:
        if disk.free_bytes < LOW_SPACE:
            yield "disk", f'disk of "{disk.folder}"', f"{disk.free_bytes >> 20} MB are free", "On this node: free disk space."
    for table in report.unreadable:
        yield "table", table.table, f"it cannot be read: {table.message}", RESTORE
    for subscription in report.subscriptions:
        for problem in subscription.problems:
            yield problem.kind, problem.subject, problem.message, problem.to_do
    for pool in report.pools:
        if pool.starved:
            waiting = f", waiting: {', '.join(pool.waiting)}" if pool.waiting else ""
            yield "pool", f"out of {pool.name}", f"{pool.used} of {pool.limit} in use{waiting}", pool.to_do
    for slot in report.slots:
        if slot.wal_status in ("unreserved", "lost"):
            reason = f" ({slot.invalidation_reason})" if slot.invalidation_reason else ""
            drop = f"On this node: SELECT pg_drop_replication_slot('{slot.name}'), and make its subscriber copy its tables again."
            yield "slot", f'replication slot "{slot.name}"', f"its log is {slot.wal_status}{reason}", drop
    for thread in report.threads:
        if not thread.running:
            text = f"it rests after {thread.failures} failures: {thread.error}"
            yield "thread", f'background thread "{thread.name}"', text, "See the server log of this node."
    for work in report.obstacles:
        yield "work", f"{work.work} {work.subject}", work.message, None
