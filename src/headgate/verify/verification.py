"""One comparison of a subscription's tables with the publisher's, from the creation of the slot to the last row that differs.

    described    the tables in state r that the publications contain, with their columns, filters and keys
    reached      the worker has applied everything up to the slot's position L; a transaction was begun that sees the publisher at M
    followed     the stream from L to M has listed the rows that changed
    compared     range by range; then the rows of the ranges that differ; the changed rows separately

A table is compared again from a later position if the stream cannot list its changes (it was truncated, or has no key), or if it is being
copied. After ROUNDS rounds it is reported as skipped. If the publisher's snapshot has been held for its limit (`most`), the remaining
tables are compared under another one; a table that takes longer than the limit is skipped. Called by `server.function.own_function`, in
the session's thread.
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
"""Limit of the rows that are reported for a table. All are counted."""
FETCHED = 50_000
"""Limit of the rows that are fetched from either side at a time."""
PAUSE = 0.05

TOO_LONG = 'it takes longer than "verify_snapshot_timeout"'
_ROUNDS = itertools.count(1)
"""Numbers of the rounds of all verifications, which are part of their slots' names."""


class _Left(enum.Enum):
    """The tables that a round leaves to another: none; those that changed or are being copied; those after the end of its time limit."""

    NOTHING = enum.auto()
    CHANGED = enum.auto()
    BEHIND = enum.auto()


@dataclass(frozen=True)
class Verdict:
    """The result for one table: `result` is equal, different or skipped. `rows`, `ranges`: how many were compared.

    `differences`: the first of the `count` differences.
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
    """One comparison (see the module).

    `applied`: returns how far the subscription's worker has applied, None if it is not running. `computing`: a context for the session's
    Spark work in a transaction. `check` raises to end the comparison. `most`: seconds that one snapshot may be held, 0 for no limit.
    `with_values`: report the values on both sides of the rows that differ.
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
    """Called with a description of the table that is compared next."""
    _done: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def run(self, opening: Callable[[Publisher], None]) -> Iterator[Verdict]:
        """Yield the verdicts, table by table. `opening` is called with each publisher before it is opened (its `stop` ends its waits)."""
        rounds = 0
        while rounds < ROUNDS:
            folder = self.node.data_dir / "pg_replication" / self.name
            # its own name: the publisher drops the slot of the previous round only when it notices the closed connection
            publisher = Publisher(self.subscription, f"{self.name}_{next(_ROUNDS)}", folder, self.limits, self.most)
            opening(publisher)
            with publisher:
                try:
                    remaining = yield from self._round(publisher, last=rounds == ROUNDS - 1)
                except PostgresError as error:
                    self.check()
                    if publisher.has_expired():  # before any table was compared
                        raise PostgresError("57014", 'canceling comparison due to "verify_snapshot_timeout"') from error
                    raise
            if remaining is _Left.NOTHING:
                return
            rounds += remaining is _Left.CHANGED

    def _round(self, publisher: Publisher, *, last: bool) -> Generator[Verdict, None, _Left]:
        """Compare the tables without a verdict. Return which ones remain."""
        self._wait(publisher.lsn)
        engine = self.node.engine
        transaction = engine.begin(self.subscription.database)
        try:
            with engine.commit_lock:  # no commit between the snapshots of the rows and of the catalog, which has the origin's progress
                transaction.isolate(None, serializable=False)
                progress = origins.progress(transaction.cursor, f"pg_{self.subscription.oid}")
            published = list(self._published_tables(publisher, transaction))
            for local in self._unpublished_tables(published, transaction):
                yield self._record(Verdict(local.schema, local.name, "skipped", reason="it is not published"))
            pending = [local for local in published if (local.schema, local.name) not in self._done]
            ready = {
                table_state.relation
                for table_state in subscriptions.tables(transaction.cursor, self.subscription.oid)
                if table_state.state == SyncState.READY
            }
            tables = [self._describe(publisher, transaction, local) for local in pending if local.oid in ready]
            changes = {(table.schema, table.name): Changed(table, with_values=self.with_values) for table in tables}
            if progress is not None and progress.remote_lsn > publisher.lsn:
                for decoded in publisher.changes(progress.remote_lsn, self.check):
                    for changed in changes.values():
                        changed.add(decoded, int(progress.remote_lsn))
            stored = Stored(self.node, self.subscription, transaction)
            copied = [local for local in pending if local.oid not in ready]  # their content does not belong to this position
            if last:
                resyncs = subscription_resync.taken(transaction.cursor, self.subscription.oid)
                for local in copied:
                    reason = "it is being reconciled" if resyncs.get(local.oid) is Method.DIFFERENCE else "it is being copied"
                    yield self._record(Verdict(local.schema, local.name, "skipped", reason=reason))
            for table in tables:
                if changes[table.schema, table.name].whole and last:
                    yield self._record(Verdict(table.schema, table.name, "skipped", reason="it changed while it was compared"))
            followed = [table for table in tables if not changes[table.schema, table.name].whole]
            for index, table in enumerate(followed):
                self.progress(f'comparing table {index + 1} of {len(followed)}: "{table.schema}.{table.name}"')
                verdict = self._compared_in_time(table, publisher, stored, changes[table.schema, table.name], transaction)
                if verdict is None and index:
                    return _Left.BEHIND
                yield self._record(verdict or Verdict(table.schema, table.name, "skipped", reason=TOO_LONG))
                if verdict is None:
                    return _Left.BEHIND
            return _Left.CHANGED if not last and (copied or len(followed) < len(tables)) else _Left.NOTHING
        finally:
            transaction.rollback()

    def _record(self, verdict: Verdict) -> Verdict:
        self._done[verdict.schema, verdict.name] = verdict
        return verdict

    def _compared_in_time(
        self, table: Compared, publisher: Publisher, stored: Stored, changed: Changed, transaction: Transaction
    ) -> Verdict | None:
        """Compare a table. Return None if the publisher's snapshot would have to be held longer than its limit."""
        if publisher.has_expired():
            return None
        try:
            return self._compare(table, publisher, stored, changed, transaction)
        except PostgresError:
            self.check()
            if not publisher.has_expired():
                raise
            return None

    def _wait(self, position: Lsn) -> None:
        """Wait until everything that the publisher committed before the position is visible here."""
        while (applied := self.applied()) is None or applied < position:
            self.check()
            time.sleep(PAUSE)

    # ---- what is compared ------------------------------------------------------------------------------------
    def _published_tables(self, publisher: Publisher, transaction: Transaction) -> Iterator[Relation]:
        """Yield the tables that are published and part of the subscription, in any state."""
        cursor, subscription = transaction.cursor, self.subscription
        states = {table_state.relation for table_state in subscriptions.tables(cursor, subscription.oid)}
        for published in published_tables(publisher.reader, subscription.publications):
            local = relations.lookup(cursor, subscription.database, published.schema, published.name)
            if local is not None and local.oid in states and (self.only is None or local.oid == self.only.oid):
                yield local

    def _unpublished_tables(self, published: Sequence[Relation], transaction: Transaction) -> Iterator[Relation]:
        """Yield the tables of the subscription without a verdict that are no longer in its publications."""
        oids = {local.oid for local in published}
        for table in subscriptions.tables(transaction.cursor, self.subscription.oid):
            local = relations.find(transaction.cursor, self.subscription.database, table.relation)
            if local is None or local.oid in oids or (local.schema, local.name) in self._done:
                continue
            if self.only is None or local.oid == self.only.oid:
                yield local

    def _describe(self, publisher: Publisher, transaction: Transaction, local: Relation) -> Compared:
        remote = fetch_relation(publisher.reader, local.schema, local.name, self.subscription.publications)
        return described(publisher.reader, transaction, remote, local)

    # ---- comparing ---------------------------------------------------------------------------------------------
    def _compare(self, table: Compared, publisher: Publisher, stored: Stored, changed: Changed, transaction: Transaction) -> Verdict:
        began = time.monotonic()
        hashes = changed.hashes()
        with ThreadPoolExecutor(1, "verify") as pool, self.computing(transaction):
            future = pool.submit(publisher.digests, table, hashes)
            try:
                ours = stored.digests(table, hashes)
            except BaseException:
                publisher.stop()
                raise
            theirs = future.result()
            ranges = differing(theirs, ours)
            differences = self._differences(table, publisher, stored, changed, ranges, _rows(theirs))
            first = tuple(islice(differences, SHOWN))
            count = len(first) + sum(1 for _ in differences)
            if self.with_values and first:
                first = self._with_values(table, publisher, stored, changed, ranges, first)
        rows = max(_rows(theirs), _rows(ours)) + len(hashes)
        result = "different" if count else "equal"
        seconds = time.monotonic() - began
        return Verdict(table.schema, table.name, result, rows, seconds, first, count, ranges=max(theirs.num_rows, ours.num_rows))

    def _with_values(
        self,
        table: Compared,
        publisher: Publisher,
        stored: Stored,
        changed: Changed,
        ranges: Sequence[str],
        differences: Sequence[RowDifference],
    ) -> tuple[RowDifference, ...]:
        """Return the differences with the values of both sides. For a row that the stream has changed, the stream has the values."""
        keys = [difference.text for difference in differences]
        if not table.key:
            values = {key: values_of_row(table, key) for key in keys}
            return tuple(difference.with_values(table, values, values) for difference in differences)
        hashes = hashes_of(keys)
        theirs, ours = _values(table, publisher.values(table, ranges, hashes)), _values(table, stored.values(table, hashes))
        changed_keys = frozenset(changed.keys())
        theirs = {key: values for key, values in theirs.items() if key not in changed_keys} | changed.values(keys)
        return tuple(difference.with_values(table, theirs, ours) for difference in differences)

    def _differences(
        self, table: Compared, publisher: Publisher, stored: Stored, changed: Changed, ranges: list[str], rows: int
    ) -> Iterator[RowDifference]:
        changed_keys = pa.array(changed.keys(), pa.string())
        at_a_time = max(1, FETCHED * table.ranges // max(rows, 1))
        for start in range(0, len(ranges), at_a_time):
            self.check()
            batch = ranges[start : start + at_a_time]
            theirs, ours = (side.rows(table, batch) for side in (publisher, stored))
            yield from compared(
                table, *(side_rows.filter(pc.invert(pc.is_in(side_rows["key"], changed_keys))) for side_rows in (theirs, ours))
            )
        if len(changed_keys):
            yield from compared(table, changed.rows(), stored.rows_of(table, changed.hashes()))


def _values(table: Compared, rows: pa.Table) -> Values:
    return {row["key"]: values_of_json(table, row["values"]) for row in rows.to_pylist()}


def _rows(digests: pa.Table) -> int:
    return int(pc.sum(digests["rows"]).as_py() or 0)
