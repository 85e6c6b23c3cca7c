"""The functions about subscriptions: pg_stat_get_subscription and its like; headgate.resync and headgate.reconcile, which ask for a table.

A base of the session's functions (`functions`). What is asked for is written with the session's transaction (`subscription_resync`) and
done by the subscription's workers after its COMMIT (`subscriber.synchronization.table_sync`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_resync
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.replication.subscription_resync import Method
from headgate.commands import lookup, privilege
from headgate.errors import PostgresError
from headgate.server.monitoring import system_view
from headgate.sql.names import quote_ident, split_identifiers

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]


def owned(session: ClientSession, cursor: Cursor, name: str | None) -> Subscription:
    """The enabled subscription of this name; 42704, 42501 unless the user owns it, 55000 if it is disabled."""
    found = None if name is None else subscriptions.lookup(cursor, session.context.database, name)
    if found is None:
        raise PostgresError("42704", f'subscription "{name}" does not exist')
    privilege.check_owner(cursor, session.context.user, found.owner, "subscription", found.name)
    if not found.enabled:
        hint = f"Run ALTER SUBSCRIPTION {quote_ident(found.name)} ENABLE first."
        raise PostgresError("55000", f'subscription "{found.name}" is disabled', hint=hint)
    return found


def named_table(session: ClientSession, cursor: Cursor, relation: str) -> Relation:
    """The table that a text names, as regclass reads it; 42602, 42P01."""
    parts = split_identifiers(relation, ".")
    if not parts or len(parts) > 2:
        raise PostgresError("42602", "invalid name syntax")
    schema, name = (parts[0] if len(parts) > 1 else None), parts[-1]
    context = session.context
    oid = relations.find_oid(cursor, context.database, schema, name, lookup.search_path(cursor, context))
    found = None if oid is None else relations.find(cursor, context.database, oid)
    if found is None:
        raise PostgresError("42P01", f'relation "{relation}" does not exist')
    return found


class SubscriptionFunctions:
    """Those of one session."""

    node: Node
    session: ClientSession

    def fn_pg_stat_get_subscription(self, subid: int | None) -> list[Row]:
        """The workers of a subscription (NULL: of all): as pg_stat_subscription, without the name."""
        rows = system_view.subscriptions(self.node)
        found = [(row[0], row[3], row[2], *row[4:]) for row in rows]
        return [row for row in found if row[2] is not None and (subid is None or row[0] == subid)]

    def fn_pg_stat_get_subscription_stats(self, subid: int) -> Row:
        """The error counters of a subscription; zeros for one that there is not."""
        cursor = self.session.begin_statement().cursor
        found = one(cursor, "SELECT apply_error_count, sync_error_count, stats_reset FROM hg.subscription_stats WHERE subid = ?", [subid])
        return (subid, *(found or (0, 0, None)))

    def fn_pg_stat_reset_subscription_stats(self, subid: int | None) -> None:
        """Sets the counters of a subscription (NULL: of all) to zero."""
        if subid == 0:
            raise PostgresError("22023", "invalid subscription OID 0")
        self.node.launcher.reset_statistics(subid)

    def resync(self, subscription: str | None, relation: str | None) -> None:
        """headgate.resync: a table is copied again; the copy takes the place of its rows in one commit."""
        self._ask(subscription, relation, Method.COPY)

    def reconcile(self, subscription: str | None, relation: str | None) -> None:
        """headgate.reconcile: a table is compared with the publisher's, and what differs is written in one commit."""
        self._ask(subscription, relation, Method.DIFFERENCE)

    def _ask(self, subscription: str | None, relation: str | None, method: Method) -> None:
        session = self.session
        cursor = session.begin_statement().cursor
        found, table = owned(session, cursor, subscription), named_table(session, cursor, relation or "")
        if all(each.relation != table.oid for each in subscriptions.tables(cursor, found.oid)):
            text = f'table "{table.schema}.{table.name}" is not in subscription "{found.name}"'
            raise PostgresError("42704", text, hint=f"Run ALTER SUBSCRIPTION {quote_ident(found.name)} REFRESH PUBLICATION to add it.")
        if found.two_phase == "e":
            raise PostgresError(
                "55000",
                "tables cannot be synchronized again when two_phase is enabled",
                hint="Use DROP/CREATE SUBSCRIPTION.",
            )
        subscription_resync.request(cursor, found.database, found.oid, table.oid, method)
        session.after_commit(self.node.launcher.wake)
