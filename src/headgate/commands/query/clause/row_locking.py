"""FOR UPDATE, FOR SHARE and similar clauses (manual, SELECT: The Locking Clause).

`from_clause` calls `take` for each table that a clause applies to (`analysis.row_locking`). A node locks tables, not rows. Each clause
acquires the write lock of the table, or of the leaves of a partitioned table, until the transaction ends.

    (no option)    waits for the lock and reads the latest committed rows; under REPEATABLE READ, raises 40001 if other
                   transactions have changed or deleted any rows of the table since the snapshot
    NOWAIT         raises 55P03
    SKIP LOCKED    returns no rows of the table or leaf, because any of them may be locked

A table must be locked before its frame is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import RowLock
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.errors import PostgresError
from headgate.types.registry import FIRST_USER_OID

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation
    from headgate.commands.query.planner import Planner


def permit(planner: Planner, relation: Relation, clauses: Sequence[RowLock]) -> None:
    """Raise 42809 for locking clauses on a sequence, and 42501 without the right to UPDATE."""
    if clauses and relation.kind == RelationKind.SEQUENCE:
        raise PostgresError("42809", f'cannot lock rows in sequence "{relation.name}"')
    if clauses and relation.oid >= FIRST_USER_OID:
        cursor, role = planner.transaction.cursor, planner.role
        whole = privilege.may_on_table(cursor, role, relation.database, relation.oid, "UPDATE")
        if not whole and not privilege.columns_with(cursor, role, relation, "UPDATE"):
            raise privilege.denied(cursor, relation.database, relation.oid, relation.name)


def take(planner: Planner, relation: Relation, locks: Sequence[RowLock]) -> set[int]:
    """Lock a table, or the leaves of a partitioned one. Return the oids of the tables whose rows are skipped."""
    if not locks or planner.describing:
        return set()
    skipped: set[int] = set()
    policy = max(lock.policy for lock in locks)
    for leaf in planner.transaction.partitioned(relation).leaves if relation.is_partitioned else [relation]:
        try:
            planner.transaction.lock(leaf, wait=policy == pb.LockWaitBlock)
            planner.transaction.refuse_changed(leaf)
        except PostgresError as error:
            if error.sqlstate != "55P03" or policy == pb.LockWaitBlock:
                raise
            if policy == pb.LockWaitError:
                raise PostgresError("55P03", f'could not obtain lock on row in relation "{leaf.name}"') from error
            skipped.add(leaf.oid)
    return skipped
