"""headgate.verify(subscription [, table [, with_values]]): compares the tables of a subscription with the publisher's.

Both sides may be written to while it runs. Only the owner of the subscription may call it; the publisher and the tables are read with the
owner's privileges. It returns a row for each table with the result (equal, different, skipped), the rows and ranges compared and the
seconds. Each row that differs adds a row with its key: missing, extra or different here, the latter with the columns, and with both sides'
values if requested. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from headgate.commands import lookup
from headgate.commands.query import rendering
from headgate.errors import PostgresError
from headgate.server.function.subscription_function import owned, streamed
from headgate.verify.publisher import Publisher
from headgate.verify.verification import Verdict, Verification
from headgate.walreceiver.receiver import Limits

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]


def verify(
    session: ClientSession, subscription: str | None, relation: str | None = None, with_values: bool | None = False
) -> Iterator[Row]:
    """Yield (schema, name, result, key, columns, rows, seconds, ranges, theirs, ours)."""
    cursor = session.begin_statement().cursor
    sub = owned(session, cursor, subscription)
    verification = Verification(
        session.node.parts, sub, f"pg_{sub.oid}_verify_{session.backend.pid}", lambda: streamed(session.node, sub.oid),
        partial(rendering.running, session), session.interrupts.check, lambda: Limits.of(session.node.settings),
        None if relation is None else lookup.named(cursor, session.context, relation),
        session.settings.integer("verify_snapshot_timeout") / 1000, bool(with_values), session.tell_progress,
    )  # fmt: skip
    publishers: list[Publisher] = []
    with session.cancelling(lambda: publishers[-1].stop() if publishers else None):
        try:
            for verdict in verification.run(publishers.append):
                yield from _rows(verdict)
        except PostgresError:
            session.interrupts.check()  # a cancel ends the waits for the publisher with an error of its own
            raise


def _rows(verdict: Verdict) -> Iterator[Row]:
    reason = verdict.reason or None
    if verdict.count > len(verdict.differences):
        reason = f"{verdict.count - len(verdict.differences)} more rows differ"
    table = verdict.schema, verdict.name
    yield *table, verdict.result, None, reason, verdict.rows, verdict.seconds, verdict.ranges, None, None
    for difference in verdict.differences:
        yield (
            *table,
            difference.what,
            difference.key,
            ", ".join(difference.columns) or None,
            None,
            None,
            None,
            difference.theirs,
            difference.ours,
        )
