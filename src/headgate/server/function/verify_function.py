"""headgate.verify(subscription [, table [, with_values]]): whether the tables of a subscription are what the publisher has.

Both sides work meanwhile. A base of the session's functions (`functions`). For the owner of the subscription, with whose rights the
publisher and the tables are read. For each table a row with its result (equal, different, skipped), the rows and ranges that were compared
and the seconds; for each row that differs one more, with its key: missing, extra or different here, the last with the columns, and what
both sides have where that is asked for. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from headgate.commands import lookup
from headgate.commands.query import rendering
from headgate.errors import PostgresError
from headgate.server.function.subscription_function import owned, streamed
from headgate.storage.transaction.transaction import Transaction
from headgate.verify.publisher import Publisher
from headgate.verify.verification import Verdict, Verification
from headgate.walreceiver.receiver import Limits

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]


class VerifyFunction:
    """That of one session."""

    node: Node
    session: ClientSession

    def verify(self, subscription: str | None, relation: str | None = None, with_values: bool | None = False) -> Iterator[Row]:
        """(schema, name, result, key, columns, rows, seconds, ranges, theirs, ours)."""
        session, cursor = self.session, self.session.begin_statement().cursor
        found = owned(session, cursor, subscription)
        made = Verification(
            self.node, found, f"pg_{found.oid}_verify_{session.backend.pid}", lambda: streamed(self.node, found.oid), self._computing,
            session.interrupts.check, self._limits, None if relation is None else lookup.named(cursor, session.context, relation),
            session.settings.integer("verify_snapshot_timeout") / 1000, bool(with_values), session.tell_progress,
        )  # fmt: skip
        stop: list[Publisher] = []
        with session.cancelling(lambda: stop[-1].stop() if stop else None):
            try:
                for each in made.run(stop.append):
                    yield from _rows(each)
            except PostgresError:
                session.interrupts.check()  # a cancel ends the waits for the publisher with an error of theirs
                raise

    def _computing(self, transaction: Transaction) -> AbstractContextManager[None]:
        return rendering.running(self.session, transaction)

    def _limits(self) -> Limits:
        s = self.node.settings
        disk = s.bytes("segment_disk_limit")
        return Limits(s.seconds("wal_receiver_status_interval"), s.seconds("wal_receiver_timeout"), disk if disk > 0 else 1 << 62)


def _rows(verdict: Verdict) -> Iterator[Row]:
    shown = verdict.reason or None
    if verdict.count > len(verdict.differences):
        shown = f"{verdict.count - len(verdict.differences)} more rows differ"
    table = verdict.schema, verdict.name
    yield *table, verdict.result, None, shown, verdict.rows, verdict.seconds, verdict.ranges, None, None
    for each in verdict.differences:
        yield *table, each.what, each.key, ", ".join(each.columns) or None, None, None, None, each.theirs, each.ours
