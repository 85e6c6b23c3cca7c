"""Writes changes to tables inside one transaction, and checks what PostgreSQL checks for applied changes: rights, keys, triggers.

`apply` makes a `TableWriter` for each attempt to apply a segment; `reconciliation` makes one for the rows that it mends.

    merge    one changes frame of one table, in the driver
    stage    the files that Spark tasks have written for one table (`changes.tasks`)
    settle   after the last of them: indexes that only the whole segment must satisfy, deferred triggers
    notify   after COMMIT: the notifications of triggers
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation.relation import Index, Relation
from headgate.changes import insertion, lookup, tasks
from headgate.changes.merge import CheckRows, Merged, merge, merged_by_tasks
from headgate.changes.tasks import Part, TaskTable
from headgate.errors import PostgresError
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.rows import conflict, partitioned, row_completion, updated_rows
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.leaf_constraints import UniqueChecks
from headgate.subscriber.rows.row_triggers import FiringTriggers, TriggeredTable, TriggerFactory
from headgate.subscriber.subscription_statistics import Counters

_log = logging.getLogger("headgate.subscriber")

_OPERATIONS = {"d": "U", "i": "U"}
"""The operation of which each half of a split UPDATE is a part (`changes.net`)."""


@dataclass(frozen=True)
class TableRules:
    """The rules for applied changes, as functions of the layer above. None: there is no such rule."""

    rows: row_completion.Factory | None = None
    """Completes and checks rows of tables that need it (`row_completion`)."""
    rights: Callable[[CatalogCursor, Relation, set[str]], None] | None = None
    """Raises an error if changes of these kinds may not be applied to a table."""
    unique: UniqueChecks | None = None
    """Checks unique indexes other than that of the key."""
    triggers: TriggerFactory | None = None
    """Returns the triggers of a table that fire for applied changes."""

    def fired(self, transaction: Transaction, relation: Relation) -> FiringTriggers | None:
        return None if self.triggers is None else self.triggers(transaction, relation)


class TableWriter:
    """The tables that one transaction writes changes to (see the module)."""

    def __init__(
        self, rules: TableRules, transaction: Transaction, place: ApplyPlace, counters: Counters, *, found_only: bool = False
    ) -> None:
        """`place` is kept up to date for the context of errors. The changes are added to `counters`.

        `found_only`: skip UPDATEs whose row does not exist before their new rows are checked.
        """
        self._rules, self._transaction, self._place, self._counters = rules, transaction, place, counters
        self._found_only = found_only
        self._later: dict[tuple[int, int], tuple[Relation, Index]] = {}
        """Unique indexes to check after the whole segment is written, with their tables, by the oids of table and index."""
        self._firing: FiringTriggers | None = None
        """The triggers of the table that fired last."""

    def merge(self, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, *, cut: bool = False) -> None:
        """Apply a changes frame to one table. `cut`: more frames of the table may follow."""
        self._place.relation, self._place.column, self._place.message = f"{relation.schema}.{relation.name}", None, "INSERT"
        ops = _ops(frame)
        self.check_rights(relation, ops)
        firing = self._rules.fired(self._transaction, relation)
        if firing is not None:
            self._firing = firing
            assert isinstance(frame, pa.Table), "the driver completes such a table's rows"
            table = TriggeredTable(self._transaction, relation, key, firing, self._rules.rows)
            for part in table.parts(frame):
                if part.frame.num_rows:
                    self._merge_frame(relation, key, part.frame, cut=True, ops=ops)
                for callback in part.behind:
                    callback()
            return
        self._merge_frame(relation, key, frame, cut=cut, ops=ops)

    def _merge_frame(
        self, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, *, cut: bool, ops: set[str]
    ) -> None:
        transaction = self._transaction
        if relation.parent:
            partitioned.refuse_outside(transaction, relation, frame)
        other_indexes = self._others(relation, key)
        has_other_keys = other_indexes or (relation.is_partitioned and not partitioned.has_one_key(transaction.partitioned(relation), key))
        if isinstance(frame, pa.Table) and transaction.storage.small_batch_rows and not has_other_keys and insertion.only_inserts(frame):
            rows = insertion.rows_of(frame["new"])
            transaction.lock(relation)  # otherwise another session could add the keys after the lookup
            if key is None or insertion.is_new(relation, lookup.key_of(relation, key), transaction.reader.states(relation), rows):
                self._counters.count(relation.oid, insertion.append(transaction, relation, rows))
                return
        if "I" not in ops:
            self._place.message = "UPDATE"
        for merged in self._parts(relation, key, frame, other_indexes, cut=cut):
            self._count(relation, merged)

    def _parts(
        self, relation: Relation, key: tuple[int, ...] | None, frame: pa.Table | DataFrame, others: Sequence[Index], *, cut: bool
    ) -> Iterator[Merged]:
        """Complete and merge a changes frame, in parts if rows must be looked up. `cut`: more frames of the table may follow."""
        transaction = self._transaction
        skip = functools.partial(self._skip, relation) if self._found_only else None
        completed = functools.partial(
            updated_rows.completed, transaction=transaction, factory=self._rules.rows, place=self._place, skip=skip
        )
        if relation.is_partitioned:
            yield from partitioned.apply(transaction, relation, key, frame, completed)
            return
        for part in completed(frame, relation, key):
            is_cut = cut or (isinstance(part, pa.Table) and isinstance(frame, pa.Table) and part.num_rows < frame.num_rows)
            checked_indexes = [index for index in others if not (is_cut and index.deferred)]
            merged = merge(transaction, relation, key, part, check_rows=self._check_rows(relation, checked_indexes))
            self._later.update(
                {(relation.oid, index.oid): (relation, index) for index in others if not (merged.checked and index in checked_indexes)}
            )
            yield merged

    def _check_rows(self, relation: Relation, indexes: Sequence[Index]) -> CheckRows | None:
        """Return the function that checks new rows against unique indexes, or None if there are none."""
        if not indexes or self._rules.unique is None:
            return None
        return functools.partial(self._rules.unique.rows, self._transaction, relation, indexes)

    @staticmethod
    def _others(relation: Relation, key: tuple[int, ...] | None) -> list[Index]:
        """Return the unique indexes of a table other than the key's. Those of a partitioned table are covered by its key."""
        if relation.is_partitioned:
            return []
        return [index for index in relation.indexes if index.unique and set(index.attnums) != set(key or ())]

    def stage(self, table: TaskTable, key: tuple[int, ...] | None, parts: Sequence[Part]) -> None:
        """Check the rights on one table, and stage the files that tasks have written for it."""
        transaction, relation = self._transaction, table.relation
        self._place.relation, self._place.column, self._place.message = f"{relation.schema}.{relation.name}", None, "INSERT"
        ops = {_OPERATIONS.get(op, op) for part in parts for op in part.ops}
        self.check_rights(relation, ops)
        if "I" not in ops:
            self._place.message = "UPDATE"
        merged = merged_by_tasks(transaction, table, parts)
        if merged is None:
            raise PostgresError("XX000", tasks.REFUSED)
        transaction.storage.statistics.merged(by_spark=True)
        self._count(relation, merged)
        self._later.update({(relation.oid, index.oid): (relation, index) for index in self._others(relation, key)})

    def _skip(self, relation: Relation, leaf: Relation, skipped: pa.Table) -> None:
        """Count and log UPDATEs of a table, or of a leaf of it, whose row does not exist."""
        self._counters.count(relation.oid, 0, skipped.num_rows)
        if _log.isEnabledFor(logging.DEBUG):
            partitioned.log_skipped(self._transaction, leaf, skipped)

    def _count(self, relation: Relation, done: Merged) -> None:
        """Count the result of a merge. Raise 23505 if the merge found an existing key."""
        if done.conflict is not None:
            raise partitioned.duplicate_key(self._transaction, relation, done.conflict.key)
        self._counters.count(relation.oid, done.changes, done.missing)
        if done.skipped is not None and _log.isEnabledFor(logging.DEBUG):
            partitioned.log_skipped(self._transaction, relation, done.skipped)

    def settle(self) -> None:
        """Check the indexes of the written tables, and call the functions of deferred triggers, after all changes are written."""
        for relation, index in self._later.values():
            self._check_index(relation, index)
        if self._firing is not None:
            self._firing.settle()

    def notify(self) -> None:
        """Deliver the notifications of trigger functions to sessions. Called after the transaction has committed."""
        if self._firing is not None:
            self._firing.committed()

    def _check_index(self, relation: Relation, index: Index) -> None:
        """Raise 23505 if a table holds a key of a unique index twice."""
        self._place.relation = f"{relation.schema}.{relation.name}"
        if self._rules.unique is not None:
            self._rules.unique.table(self._transaction, relation, index)

    def check_rights(self, relation: Relation, ops: set[str]) -> None:
        """Raise an error if changes of these kinds may not be applied to a table."""
        if self._rules.rights is None:
            return
        for op in sorted(ops):
            self._place.message = conflict.MESSAGES[op]
            relation_name, self._place.relation = self._place.relation, None if op == "T" else self._place.relation
            self._rules.rights(self._transaction.cursor, relation, {op})
            self._place.relation = relation_name
        self._place.message = "INSERT"


def _ops(frame: pa.Table | DataFrame) -> set[str]:
    operations = frame.select("op").distinct().toArrow()["op"] if isinstance(frame, DataFrame) else pc.unique(frame["op"])
    return set(operations.to_pylist())
