"""Check of replication slots: their positions are valid, and the log that they need exists."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.catalog.physical import rows
from headgate.catalog.replication import slot as stored
from headgate.catalog.replication.slot import Slot
from headgate.check.finding import Finding, error
from headgate.check.subject import Subject
from headgate.lsn import Lsn
from headgate.storage.transaction.log import LSN_PER_CHANGE, EntryKind, length

_DROP = "drop the slot, and copy its subscriber's tables anew"


def findings(subject: Subject) -> Iterator[Finding]:
    subject.progress("replication slots")
    slots = stored.all_slots(subject.cursor)
    for slot in slots:
        yield from (error(_place(slot), what, _DROP) for what in impossible(slot, subject.end))
    valid_slots = [slot for slot in slots if not slot.lost]
    for slot in valid_slots:
        missing = _gap(subject, slot.restart_lsn)
        if missing is not None:
            yield error(_place(slot), f"the transaction log behind {missing}, which it needs, is missing", _DROP)


def _place(slot: Slot) -> str:
    return f'replication slot "{slot.name}"'


def impossible(slot: Slot, end: Lsn) -> Iterator[str]:
    if slot.restart_lsn > slot.confirmed_flush_lsn:
        yield f"restart_lsn {slot.restart_lsn} is behind confirmed_flush_lsn {slot.confirmed_flush_lsn}"
    if slot.confirmed_flush_lsn > end:
        yield f"confirmed_flush_lsn {slot.confirmed_flush_lsn} is behind the end of the log, {end}"
    if slot.two_phase and slot.two_phase_at > end:
        yield f"two_phase_at {slot.two_phase_at} is behind the end of the log, {end}"


def _gap(subject: Subject, needed: Lsn) -> Lsn | None:
    """Return where the log after a position has a gap, or None."""
    entries = rows(
        subject.cursor,
        "SELECT e.commit_lsn, e.end_lsn, any_value(e.kind), min(w.lsn), sum(w.changes)::BIGINT, sum(w.bytes)::BIGINT"
        " FROM hg.log_entry e LEFT JOIN hg.log_write w USING (commit_lsn) WHERE e.end_lsn > ? GROUP BY ALL ORDER BY e.end_lsn",
        [int(needed)],
    )
    if not entries:
        return None if needed >= subject.end else needed
    reached = int(needed)
    for commit, end, kind, written, changes, size in entries:
        match kind, written:
            case EntryKind.MESSAGE, None:  # pg_switch_wal leaves a gap
                first = reached
            case EntryKind.MESSAGE, _:  # its write has the LSN of the entry's end
                first = commit - length(changes, size)
            case _:
                first = commit if written is None else written
        if first - LSN_PER_CHANGE > reached:
            return Lsn(reached)
        reached = end
    return None
