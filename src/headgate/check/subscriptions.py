"""Check of subscriptions: the states of their tables, their positions, and their files.

pg_twophase/<gid>.segment, .index     transactions that a publisher has prepared: one for each row of hg.applied_prepare
pg_replication/<oid>, <oid>_<relid>   received and not yet applied: removed and received again at a start
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from headgate.catalog.physical import rows
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import SyncState
from headgate.check.finding import Finding, error, notice, warning
from headgate.check.subject import Subject

_STATES = "SELECT srsubstate, srsublsn FROM hg.pg_subscription_rel WHERE srsubid = ? ORDER BY srrelid"
_KNOWN = {state.value for state in SyncState}
_OWN_ORIGIN = re.compile(r"pg_(\d+)(?:_\d+)?\Z")


def findings(subject: Subject) -> Iterator[Finding]:
    subject.progress("subscriptions")
    known = {
        subscription.oid: f'subscription "{subscription.name}" of {subject.database(subscription.database)}'
        for subscription in subscriptions.all_subscriptions(subject.cursor)
    }
    for oid, place in known.items():
        for state, lsn in rows(subject.cursor, _STATES, [oid]):
            if state not in _KNOWN:
                yield error(place, f'a table has the unknown state "{state}"', "refresh the subscription without it, then with it")
            elif state == SyncState.SYNCDONE and lsn is None:
                yield error(place, "a synchronized table has no position", "refresh the subscription without it, then with it")
    for progress in origins.all_progress(subject.cursor):
        if progress.local_lsn > subject.end:
            what = f"its position in the log, {progress.local_lsn}, is behind the log's end, {subject.end}"
            yield error(f'replication origin "{progress.name}"', what, "copy the subscription's tables anew")
    for (name,) in rows(subject.cursor, "SELECT roname FROM hg.pg_replication_origin ORDER BY 1"):
        own = _OWN_ORIGIN.match(name)
        if own is not None and int(own[1]) not in known:
            yield warning(f'replication origin "{name}"', "its subscription does not exist", "drop it with pg_replication_origin_drop")
    yield from _check_prepared(subject)
    yield from _check_received(subject, set(known))


def _check_prepared(subject: Subject) -> Iterator[Finding]:
    """Check the transactions that publishers have prepared, and their files."""
    folder = subject.data_dir / "pg_twophase"
    applied = {gid for (gid,) in rows(subject.cursor, "SELECT gid FROM hg.applied_prepare")}
    for gid in sorted(applied):
        place = f'prepared transaction "{gid}"'
        advice = "roll it back, and copy the subscription's tables anew"
        try:
            size = int(np.fromfile(folder / f"{gid}.index", np.uint32).sum(dtype=np.int64))
            fits = size == (folder / f"{gid}.segment").stat().st_size
        except FileNotFoundError:
            if not subject.running:  # in a running node, it may have ended meanwhile
                yield error(place, f'its files in "{folder.name}" are missing', advice)
            continue
        if not fits:
            yield error(place, f'its files in "{folder.name}" do not fit each other', advice)
    if not subject.running:
        for file in sorted(folder.glob("*")):
            if file.stem not in applied:
                yield notice(f'file "{folder.name}/{file.name}"', "it belongs to no prepared transaction", "it may be removed")


def _check_received(subject: Subject, known: set[int]) -> Iterator[Finding]:
    """Check the files that workers have received."""
    if subject.running:
        return
    for folder in sorted((subject.data_dir / "pg_replication").glob("*")):
        subscription = folder.name.partition("_")[0]
        if not subscription.isdigit() or int(subscription) not in known:
            yield notice(f'"{folder.parent.name}/{folder.name}"', "it belongs to no subscription", "it may be removed")
