"""The tables of a subscription: fetched from the publisher, found here, and their slots on the publisher.

Called by CREATE, ALTER … REFRESH and DROP SUBSCRIPTION. pg_subscription_rel gets a row in state i (to be copied) or r
(copy_data = false) for each table that the publications contain.
"""

from __future__ import annotations

from headgate.catalog import namespace as namespaces
from headgate.catalog import origin as origins
from headgate.catalog import relation as relations
from headgate.catalog import subscription as subscriptions
from headgate.catalog.relation import Relation
from headgate.catalog.subscription import Subscription, SubscriptionRel
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.names import quote_ident
from headgate.sql.parser import parse
from headgate.storage.transaction import Transaction
from headgate.walreceiver import remote
from headgate.walreceiver.connection import Connection


def _local(
    session: Session, transaction: Transaction, connection: Connection, subscription: Subscription, table: remote.PublishedTable
) -> Relation:
    """The local table that a published one is applied to; 3F000, 42P01, 42809. A missing one is made with `create_tables`."""
    cursor, context = transaction.cursor, session.context
    schema, name = table.schema, table.name
    if subscription.create_tables:
        _make_missing(session, transaction, connection, table)
    lookup.namespace(cursor, context.database, schema)
    relation = relations.lookup(cursor, context.database, schema, name)
    if relation is not None:
        transaction.use_object("pg_class", relation.oid)
    if relation is None:
        raise PostgresError("42P01", f'relation "{schema}.{name}" does not exist')
    if relation.kind not in "rp":
        raise PostgresError(
            "42809",
            f'cannot use relation "{schema}.{name}" as logical replication target',
            detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
        )
    return relation


def _make_missing(session: Session, transaction: Transaction, connection: Connection, table: remote.PublishedTable) -> None:
    """Makes the table, and its schema, as the publisher has them, if they are not there."""
    from headgate.commands import applied_ddl
    from headgate.commands.execute import execute  # it imports this module

    cursor, database = transaction.cursor, session.context.database
    if relations.lookup(cursor, database, table.schema, table.name) is not None:
        return
    made = f"CREATE SCHEMA IF NOT EXISTS {quote_ident(table.schema)}; {applied_ddl.table_definition(connection, table)}"
    said = len(session.notices.said)
    for statement in parse(made):
        if statement.kind != "CreateSchemaStmt" or namespaces.lookup(cursor, database, table.schema) is None:
            execute(statement.node, made, session)
    del session.notices.said[said:]
    session.notices.notice(f'created table "{table.schema}.{table.name}" as the publisher has it')


def add_all(session: Session, transaction: Transaction, connection: Connection, subscription: Subscription, state: str) -> int:
    """Adds the published tables in `state`; how many there are."""
    tables = remote.published_tables(connection, list(subscription.publications))
    for table in tables:
        relation = _local(session, transaction, connection, subscription, table)
        subscriptions.add_table(transaction.cursor, subscription.database, SubscriptionRel(subscription.oid, relation.oid, state))
    return len(tables)


def refresh(session: Session, transaction: Transaction, connection: Connection, subscription: Subscription, state: str) -> None:
    """Makes the tables of the subscription those that its publications contain now."""
    cursor = transaction.cursor
    known = {each.relation: each for each in subscriptions.tables(cursor, subscription.oid)}
    published: set[int] = set()
    for table in remote.published_tables(connection, list(subscription.publications)):
        relation = _local(session, transaction, connection, subscription, table)
        published.add(relation.oid)
        if relation.oid not in known:
            subscriptions.add_table(cursor, subscription.database, SubscriptionRel(subscription.oid, relation.oid, state))
    for oid, each in known.items():
        if oid in published:
            continue
        session.node.launcher.stop_table(subscription.oid, oid, session.check_cancel)
        subscriptions.drop_table(cursor, subscription.oid, oid)
        if each.state == "r":
            continue
        origins.drop(cursor, f"pg_{subscription.oid}_{oid}", missing_ok=True)
        if each.state != "s":
            connection.drop_slot(session.node.launcher.sync_slot_name(subscription.oid, oid), missing_ok=True)


def drop_slots(session: Session, subscription: Subscription, unfinished: list[int]) -> None:
    """Drops the slots of a subscription that goes: those of unfinished table syncs (if they are there), then its own."""
    try:
        connection = Connection.open(subscription.conninfo, subscription.name)
    except PostgresError as error:
        if subscription.slot_name is None:
            for relation in unfinished:
                name = session.node.launcher.sync_slot_name(subscription.oid, relation)
                session.notices.warning(f'could not drop tablesync replication slot "{name}"')
            return
        reason = error.message.removeprefix("could not connect to the publisher: ")
        raise PostgresError(
            "08006",
            f'could not connect to publisher when attempting to drop replication slot "{subscription.slot_name}": {reason}',
            hint="Use ALTER SUBSCRIPTION ... DISABLE to disable the subscription, and then use ALTER SUBSCRIPTION ... SET (slot_name ="
            " NONE) to disassociate it from the slot.",
        ) from error
    with connection:
        for relation in unfinished:
            name = session.node.launcher.sync_slot_name(subscription.oid, relation)
            if connection.drop_slot(name, missing_ok=True):
                session.notices.notice(f'dropped replication slot "{name}" on publisher')
        if subscription.slot_name is not None:
            connection.drop_slot(subscription.slot_name)
            session.notices.notice(f'dropped replication slot "{subscription.slot_name}" on publisher')
