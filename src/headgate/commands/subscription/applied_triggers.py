"""The triggers that a replication worker fires: REPLICA and ALWAYS triggers, also of foreign keys, with an empty search path.

They run as the subscription's owner, or with run_as_owner = false as the table's.

The subscriber must not import this package. It calls it through `headgate.subscriber.rows.row_triggers.TriggerFactory`; the server passes
it `applied_triggers`.
"""

from __future__ import annotations

from functools import partial
from weakref import WeakKeyDictionary

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.commands.deferral import Deferral
from headgate.commands.pending_notifications import PendingNotifications
from headgate.commands.session import NodeParts
from headgate.commands.subscription import applied_references
from headgate.commands.subscription.row_completion import WorkerSession, workers_settings, writers_context
from headgate.commands.trigger.firing import Firing
from headgate.commands.trigger.routed_firing import RoutedFiring
from headgate.commands.trigger.statement import firing_of
from headgate.storage.transaction.transaction import Transaction

_kept: WeakKeyDictionary[Transaction, tuple[Deferral, PendingNotifications]] = WeakKeyDictionary()
"""The deferred actions and notifications of the workers' transactions, shared by all tables whose triggers fire in them."""


def applied_triggers(
    node: NodeParts, subscription: Subscription, transaction: Transaction, relation: Relation, *, collects: bool = False
) -> Firing | RoutedFiring | None:
    """Return the triggers of a table that fire for applied changes, or None. `collects`: see `Firing`."""
    tables = [relation, *transaction.partitioned(relation).leaves] if relation.is_partitioned else [relation]
    cursor, with_triggers = transaction.cursor, [table for table in tables if table.has_triggers]
    if not any(_fires(cursor, table) for table in with_triggers):
        return None  # a fast exit: this is called for each frame of any table with a foreign key
    context = writers_context(node, cursor, subscription, relation)
    session = WorkerSession(node, context, transaction, workers_settings(node.settings))
    session.deferral, session.pending = _kept.setdefault(transaction, (session.deferral, session.pending))
    session.functions = {"pg_notify": lambda channel, payload: session.pending.notify(channel or "", payload or "")}
    return firing_of(session, relation, collects=collects, references=partial(applied_references.of_relation, session))


def _fires(cursor: Cursor, table: Relation) -> bool:
    """Return whether a trigger of a table fires for applied changes."""
    if applied_references.checked(table):
        return True
    return any(trigger.fires(applied_references.ROLE) for trigger in triggers.of_relation(cursor, table.database, table.oid))
