"""The triggers that a replication worker fires: REPLICA and ALWAYS ones, as the subscription's owner with an empty search path.

The subscriber is a floor below and asks through `headgate.subscriber.apply.row_triggers.TriggerFactory`; the server hands it
`applied_triggers`.
"""

from __future__ import annotations

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.commands.session import NodeParts
from headgate.commands.subscription.row_completion import WorkerSession, owners_context, workers_settings
from headgate.commands.trigger.firing import Firing
from headgate.storage.transaction.transaction import Transaction


def applied_triggers(node: NodeParts, transaction: Transaction, subscription: Subscription, relation: Relation) -> Firing | None:
    """The triggers of a table that fire for what is applied; None: none do."""
    if not relation.has_triggers:
        return None
    cursor = transaction.cursor
    if not any(each.fires("replica") for each in triggers.of_relation(cursor, relation.database, relation.oid)):
        return None  # as for any table with a foreign key, for each of whose frames this is asked
    context = owners_context(node, cursor, subscription)
    return Firing(WorkerSession(node, context, transaction, workers_settings(node.settings)), relation)
