"""What a table's role in subscriptions forbids: dropping it while its synchronization is unfinished.

Called by DROP TABLE and DROP SCHEMA before anything is written (PostgreSQL's RemoveSubscriptionRel).
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError


def refuse_unfinished_sync(cursor: Cursor, relation: Relation) -> None:
    """22023 `could not drop relation mapping for subscription` while the table's copy is under way."""
    found = rows(
        cursor,
        "SELECT s.subname, r.srsubstate FROM hg.pg_subscription_rel r JOIN hg.pg_subscription s ON s.oid = r.srsubid"
        " WHERE r.dbid = ? AND r.srrelid = ? AND r.srsubstate NOT IN ('i', 'r', 's')",
        [relation.database, relation.oid],
    )
    for name, state in found:
        raise PostgresError(
            "22023",
            f'could not drop relation mapping for subscription "{name}"',
            detail=f'Table synchronization for relation "{relation.name}" is in progress and is in state "{state}".',
            hint="Use ALTER SUBSCRIPTION ... ENABLE to enable subscription if not already enabled or use DROP SUBSCRIPTION ..."
            " to drop the subscription.",
        )
