"""One comparison of a subscription's tables with the publisher's, from the slot to the last row that differs.

    described    what is compared: the tables in state r that the publications have, their columns, filters and keys
    reached      the worker has applied everything up to the slot's position L; a transaction is begun, which sees the publisher at M
    followed     the stream from L to M has told which rows changed
    compared     range by range; rows of the ranges that differ; the changed rows by themselves

A table of which the stream cannot tell what changed (it was truncated, it has no key), and one that is being copied, is compared again
from a later position, ROUNDS times in all; then it is reported as skipped. Tables that are left when the publisher's snapshot has been held
for as long as it may (`most`) are compared under another; one that takes longer on its own is skipped. Called by
`server.function.verify_function`, in the session's thread.
"""

from __future__ import annotations

import enum
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_resync
from headgate.catalog.replication.subscription import Subscription, SyncState
from headgate.catalog.replication.subscription_resync import Method
from headgate.commands.session import NodeParts
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage.transaction.transaction import Transaction
from headgate.verify.changed import Changed
from headgate.verify.description import described
from headgate.verify.digest import Compared, RowDifference, Values, compared, differing, hashes_of, values_of_json, values_of_row
from headgate.verify.publisher import Publisher
from headgate.verify.stored import Stored
from headgate.walreceiver.receiver import Limits
from headgate.walreceiver.remote import fetch_relation, published_tables

ROUNDS = 3
SHOWN = 1_000
"""Rows that are told of a table; all are counted."""
FETCHED = 50_000
"""Rows that are fetched from either side at a time."""
PAUSE = 0.05

TOO_LONG = 'it takes longer than "verify_snapshot_timeout"'
_ROUNDS = itertools.count(1)
"""Numbers of the rounds of all verifications, which their slots have."""


class _Left(enum.Enum):
    """What a round has left to another: nothing; tables that changed, or are copied; those behind the end of its time."""

    NOTHING = enum.auto()
    CHANGED = enum.auto()
    BEHIND = enum.auto()


@dataclass(frozen=True)
class Verdict:
    """What came of one table: `result` is equal, different or skipped; `rows`, `ranges` were compared.

    `differences`: the first ones, of `count`.
    """

    schema: str
    name: str
    result: str
    rows: int = 0
    seconds: float = 0.0
    differences: tuple[RowDifference, ...] = ()
    count: int = 0
    reason: str = ""
    ranges: int = 0


@dataclass
class Verification:
    """See the module.

    `applied`: how far the subscription's worker has applied, None while there is none; `computing`: Spark's work for the session inside a
    transaction; `check` raises to end it all; `most`: seconds that one snapshot may be held, 0 for any; `with_values`: what both sides have
    of the rows that differ is told.
    """

    node: NodeParts
    subscription: Subscription
    name: str
    applied: Callable[[], Lsn | None]
    computing: Callable[[Transaction], AbstractContextManager[None]]
    check: Callable[[], None]
    limits: Callable[[], Limits]
    only: Relation | None = None
    most: float = 0
    with_values: bool = False
    progress: Callable[[str], None] = lambda _: None
    """Is told which table is compared next."""
    _done: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def run(self, opening: Callable[[Publisher], None]) -> Iterator[Verdict]:
        """The verdicts, table by table; `opening` is given each publisher before it is opened (its `stop` ends its waits)."""
        rounds = 0
        while rounds < ROUNDS:
            folder = self.node.data_dir / "pg_replication" / self.name
            # a name of its own: the publisher drops the slot of the round before when it notices that its connection has gone
            publisher = Publisher(self.subscription, f"{self.name}_{next(_ROUNDS)}", folder, self.limits, self.most)
            opening(publisher)
            with publisher:
                try:
                    left = yield from self._round(publisher, last=rounds == ROUNDS - 1)
                except PostgresError as error:
                    self.check()
                    if publisher.has_expired():  # before anything was compared
                        raise PostgresError("57014", 'canceling comparison due to "verify_snapshot_timeout"') from error
                    raise
            if left is _Left.NOTHING:
                return
            rounds += left is _Left.CHANGED

    def _round(self, publisher: Publisher, *, last: bool) -> Generator[Verdict, None, _Left]:
        """Compares what has no verdict yet; what is left."""
        self._wait(publisher.lsn)
        engine = self.node.engine
        transaction = engine.begin(self.subscription.database)
        try:
            with engine.commit_lock:  # nothing is committed between the rows' snapshot and the catalog's, which has the origin's progress
                transaction.isolate(None, serializable=False)
                known = origins.progress(transaction.cursor, f"pg_{self.subscription.oid}")
            wanted = [local for local in self._published(publisher, transaction) if (local.schema, local.name) not in self._done]
            ready = {
                each.relation for each in subscriptions.tables(transaction.cursor, self.subscription.oid) if each.state == SyncState.READY
            }
            tables = [self._described(publisher, transaction, local) for local in wanted if local.oid in ready]
            changes = {(table.schema, table.name): Changed(table, with_values=self.with_values) for table in tables}
            if known is not None and known.remote_lsn > publisher.lsn:
                for decoded in publisher.changes(known.remote_lsn, self.check):
                    for each in changes.values():
                        each.add(decoded, int(known.remote_lsn))
            stored = Stored(self.node, self.subscription, transaction)
            copied = [local for local in wanted if local.oid not in ready]  # what they hold is not of this position
            if last:
                again = subscription_resync.taken(transaction.cursor, self.subscription.oid)
                for local in copied:
                    reason = "it is being reconciled" if again.get(local.oid) is Method.DIFFERENCE else "it is being copied"
                    yield self._said(Verdict(local.schema, local.name, "skipped", reason=reason))
            for table in tables:
                if changes[table.schema, table.name].whole and last:
                    yield self._said(Verdict(table.schema, table.name, "skipped", reason="it changed while it was compared"))
            followed = [table for table in tables if not changes[table.schema, table.name].whole]
            for place, table in enumerate(followed):
                self.progress(f'comparing table {place + 1} of {len(followed)}: "{table.schema}.{table.name}"')
                found = self._compared_in_time(table, publisher, stored, changes[table.schema, table.name], transaction)
                if found is None and place:
                    return _Left.BEHIND
                yield self._said(found or Verdict(table.schema, table.name, "skipped", reason=TOO_LONG))
                if found is None:
                    return _Left.BEHIND
            return _Left.CHANGED if not last and (copied or len(followed) < len(tables)) else _Left.NOTHING
        finally:
            transaction.rollback()

    def _said(self, verdict: Verdict) -> Verdict:
        self._done[verdict.schema, verdict.name] = verdict
        return verdict

    def _compared_in_time(
        self, table: Compared, publisher: Publisher, stored: Stored, changed: Changed, transaction: Transaction
    ) -> Verdict | None:
        """None where the publisher's snapshot would have to be held for longer than it may."""
        if publisher.has_expired():
            return None
        try:
            return self._compared(table, publisher, stored, changed, transaction)
        except PostgresError:
            self.check()
            if not publisher.has_expired():
                raise
            return None

    def _wait(self, position: Lsn) -> None:
        """Until everything that the publisher committed before the position is visible here."""
        while (applied := self.applied()) is None or applied < position:
            self.check()
            time.sleep(PAUSE)

    # ---- what is compared ------------------------------------------------------------------------------------
    def _published(self, publisher: Publisher, transaction: Transaction) -> Iterator[Relation]:
        """The tables that are published and part of the subscription, in whatever state."""
        cursor, subscription = transaction.cursor, self.subscription
        states = {each.relation for each in subscriptions.tables(cursor, subscription.oid)}
        for each in published_tables(publisher.reader, subscription.publications):
            local = relations.lookup(cursor, subscription.database, each.schema, each.name)
            if local is not None and local.oid in states and (self.only is None or local.oid == self.only.oid):
                yield local

    def _described(self, publisher: Publisher, transaction: Transaction, local: Relation) -> Compared:
        remote = fetch_relation(publisher.reader, local.schema, local.name, self.subscription.publications)
        return described(publisher.reader, transaction, remote, local)

    # ---- comparing ---------------------------------------------------------------------------------------------
    def _compared(self, table: Compared, publisher: Publisher, stored: Stored, changed: Changed, transaction: Transaction) -> Verdict:
        began = time.monotonic()
        hashes = changed.hashes()
        with ThreadPoolExecutor(1, "verify") as pool, self.computing(transaction):
            asked = pool.submit(publisher.digests, table, hashes)
            try:
                ours = stored.digests(table, hashes)
            except BaseException:
                publisher.stop()
                raise
            theirs = asked.result()
            ranges = differing(theirs, ours)
            found = self._differences(table, publisher, stored, changed, ranges, _rows(theirs))
            first = tuple(islice(found, SHOWN))
            count = len(first) + sum(1 for _ in found)
            if self.with_values and first:
                first = self._with_values(table, publisher, stored, changed, ranges, first)
        rows = max(_rows(theirs), _rows(ours)) + len(hashes)
        result = "different" if count else "equal"
        took = time.monotonic() - began
        return Verdict(table.schema, table.name, result, rows, took, first, count, ranges=max(theirs.num_rows, ours.num_rows))

    def _with_values(
        self,
        table: Compared,
        publisher: Publisher,
        stored: Stored,
        changed: Changed,
        ranges: Sequence[str],
        found: Sequence[RowDifference],
    ) -> tuple[RowDifference, ...]:
        """The differences with what both sides have; of a row that the stream has changed what that has said."""
        keys = [each.text for each in found]
        if not table.key:
            whole = {key: values_of_row(table, key) for key in keys}
            return tuple(each.with_values(table, whole, whole) for each in found)
        hashes = hashes_of(keys)
        theirs, ours = _values(table, publisher.values(table, ranges, hashes)), _values(table, stored.values(table, hashes))
        since = frozenset(changed.keys())
        theirs = {key: values for key, values in theirs.items() if key not in since} | changed.values(keys)
        return tuple(each.with_values(table, theirs, ours) for each in found)

    def _differences(
        self, table: Compared, publisher: Publisher, stored: Stored, changed: Changed, ranges: list[str], rows: int
    ) -> Iterator[RowDifference]:
        left_out = pa.array(changed.keys(), pa.string())
        at_a_time = max(1, FETCHED * table.ranges // max(rows, 1))
        for place in range(0, len(ranges), at_a_time):
            self.check()
            some = ranges[place : place + at_a_time]
            theirs, ours = (side.rows(table, some) for side in (publisher, stored))
            yield from compared(table, *(each.filter(pc.invert(pc.is_in(each["key"], left_out))) for each in (theirs, ours)))
        if len(left_out):
            yield from compared(table, changed.rows(), stored.rows_of(table, changed.hashes()))


def _values(table: Compared, rows: pa.Table) -> Values:
    return {row["key"]: values_of_json(table, row["values"]) for row in rows.to_pylist()}


def _rows(digests: pa.Table) -> int:
    return int(pc.sum(digests["rows"]).as_py() or 0)
