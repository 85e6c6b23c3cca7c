"""The functions that tell of subscriptions: pg_stat_get_subscription, pg_stat_get_subscription_stats and their reset.

A base of the session's functions (`functions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.catalog.physical import one
from headgate.errors import PostgresError
from headgate.server import views

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session import Session

Row = tuple[Any, ...]


class SubscriptionFunctions:
    """Those of one session."""

    node: Node
    session: Session

    def fn_pg_stat_get_subscription(self, subid: int | None) -> list[Row]:
        """The workers of a subscription (NULL: of all): as pg_stat_subscription, without the name."""
        rows = [] if self.node.launcher is None else views.subscriptions(self.node)
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
        launcher = self.node.launcher
        reset = getattr(launcher, "reset_statistics", None)
        if reset is not None:
            reset(subid)
