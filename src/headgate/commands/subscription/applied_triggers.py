"""The triggers that a replication worker fires: REPLICA and ALWAYS ones, as the subscription's owner with an empty search path.

The subscriber is a floor below and asks through `headgate.subscriber.apply.row_triggers.TriggerFactory`; the server hands it
`applied_triggers`.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.commands.deferral import Deferral
from headgate.commands.pending_notifications import PendingNotifications
from headgate.commands.session import NodeParts
from headgate.commands.subscription.row_completion import WorkerSession, owners_context, workers_settings
from headgate.commands.trigger.firing import Firing, RoutedFiring, firing_of
from headgate.storage.transaction.transaction import Transaction

_kept: WeakKeyDictionary[Transaction, tuple[Deferral, PendingNotifications]] = WeakKeyDictionary()
"""What the transactions of workers put off and have to tell, for all tables whose triggers fire in them."""


def applied_triggers(
    node: NodeParts, transaction: Transaction, subscription: Subscription, relation: Relation, *, collects: bool = False
) -> Firing | RoutedFiring | None:
    """The triggers of a table that fire for what is applied; None: none do. `collects`: see `Firing`."""
    tables = [relation, *transaction.partitioned(relation).leaves] if relation.is_partitioned else [relation]
    cursor, with_triggers = transaction.cursor, [table for table in tables if table.has_triggers]
    if not any(each.fires("replica") for table in with_triggers for each in triggers.of_relation(cursor, table.database, table.oid)):
        return None  # as for any table with a foreign key, for each of whose frames this is asked
    context = owners_context(node, cursor, subscription)
    session = WorkerSession(node, context, transaction, workers_settings(node.settings))
    session.deferral, session.pending = _kept.setdefault(transaction, (session.deferral, session.pending))
    session.functions = {"pg_notify": lambda channel, payload: session.pending.notify(channel or "", payload or "")}
    return firing_of(session, relation, collects=collects)
