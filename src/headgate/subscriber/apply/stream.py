"""The source of the changes that an applier applies. Made by the apply worker, a table sync, and COMMIT PREPARED in a session."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog.replication.subscription import SubscriptionRel


@dataclass(frozen=True)
class AppliedStream:
    """The source of the changes: the subscription, the origin, and, for a table sync, its one table (`only`)."""

    subscription: int
    database: int
    origin: str
    only: int | None = None
    everything: bool = False
    """Whether the states of tables are ignored. True for a prepared transaction that is finished by hand: its tables were ready when it was
    prepared.
    """
    name: str = ""
    """The name of the subscription, which Spark shows with its jobs."""

    def applied_from(self, relation: int, state: SubscriptionRel | None) -> int | None:
        """Return the commit LSN from which a table's changes are applied, or None if none are applied (should_apply_changes_for_rel)."""
        if self.everything:
            return 0
        if self.only is not None:
            return 0 if relation == self.only else None
        return None if state is None else state.applied_from
