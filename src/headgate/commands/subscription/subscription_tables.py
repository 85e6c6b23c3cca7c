"""The tables of a subscription: fetched from the publisher, found here, and their slots on the publisher.

Called by CREATE, ALTER … REFRESH and DROP SUBSCRIPTION, and for tables that come later by the apply worker (`join`). pg_subscription_rel
gets a row in state i (to be copied) or r (copy_data = false) for each table that the publications contain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column
from headgate.catalog.replication.subscription import Subscription, SubscriptionRel, SyncState
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.storage.transaction.transaction import Transaction
from headgate.walreceiver import definition, remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.definition import Definitions

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog

MISSING = "Create the table first, or use WITH (create_tables = true) to have it made as the publisher has it."


@dataclass(frozen=True)
class _Published:
    """What the publisher publishes: the tables, and where tables are made or followed what it says of them."""

    tables: Sequence[remote.PublishedTable]
    definitions: Definitions | None


def _published(connection: PublisherConnection, subscription: Subscription, known: Collection[tuple[str, str]] | None = None) -> _Published:
    """The published tables, without those that are `known`."""
    tables = remote.published_tables(connection, list(subscription.publications))
    tables = [each for each in tables if known is None or (each.schema, each.name) not in known]
    wanted = tables and (subscription.create_tables or subscription.schema_evolution == "follow")
    return _Published(tables, definition.read(connection, tables) if wanted else None)


def _add(session: Session, transaction: Transaction, subscription: Subscription, published: _Published, state: SyncState) -> list[Relation]:
    """The local tables of the published ones, made with create_tables where they are missing; new ones join the subscription in `state`."""
    from headgate.commands.subscription.create_tables import Maker, followed  # it imports what imports this module

    cursor, database = transaction.cursor, subscription.database
    known = {each.relation for each in subscriptions.tables(cursor, subscription.oid)}
    found = []
    remote_tables = published.definitions
    maker = None if remote_tables is None else Maker.of(session, remote_tables, partial(_tell, session))
    names = [(table.schema, table.name) for table in published.tables]
    missing = [name for name in names if maker and subscription.create_tables and relations.lookup(cursor, database, *name) is None]
    if maker is not None and missing:
        maker.explain_storage(missing)
    for table in published.tables:
        # a table may have been made with another one, as its partition
        if (
            maker is not None
            and (table.schema, table.name) in missing
            and relations.lookup(cursor, database, table.schema, table.name) is None
        ):
            maker.make(table.schema, table.name)
        relation = _local(session, transaction, table)
        found.append(relation)
        if relation.oid not in known:
            subscriptions.add_table(cursor, database, SubscriptionRel(subscription.oid, relation.oid, state))
        if maker is not None and not subscription_column.of_table(cursor, subscription.oid, relation.oid):
            columns = followed(maker.remote.named.get((table.schema, table.name)), relation, maker.types)
            if subscription.binary and (as_text := [each.name for each in columns if each.local_type is not None]):
                raise PostgresError(
                    "0A000",
                    f'columns of table "{table.schema}.{table.name}" are text here, and the publisher would send them in binary form',
                    detail=f"Columns: {', '.join(as_text)}.",
                    hint="Use WITH (binary = false).",
                )
            subscription_column.write(cursor, database, subscription.oid, relation.oid, columns)
    return found


def _tell(session: Session, line: str, detail: str | None, hint: str | None) -> None:
    session.notices.notice(line, detail=detail, hint=hint)


def _local(session: Session, transaction: Transaction, table: remote.PublishedTable) -> Relation:
    """The local table that a published one is applied to; 3F000, 42P01, 42809."""
    cursor, context = transaction.cursor, session.context
    schema, name = table.schema, table.name
    try:
        lookup.namespace(cursor, context.database, schema)
        relation = relations.lookup(cursor, context.database, schema, name)
        if relation is None:
            raise PostgresError("42P01", f'relation "{schema}.{name}" does not exist')
    except PostgresError as error:
        error.hint = MISSING
        raise
    transaction.use_object("pg_class", relation.oid)
    if relation.kind not in TABLE_KINDS:
        raise PostgresError(
            "42809",
            f'cannot use relation "{schema}.{name}" as logical replication target',
            detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
        )
    return relation


def add_all(
    session: Session, transaction: Transaction, connection: PublisherConnection, subscription: Subscription, state: SyncState
) -> int:
    """Adds the published tables in `state`; how many there are."""
    _warn_of_origins(session, connection, subscription, state, set())
    return len(_add(session, transaction, subscription, _published(connection, subscription), state))


def _warn_of_origins(
    session: Session, connection: PublisherConnection, subscription: Subscription, state: SyncState, known: Collection[tuple[str, str]]
) -> None:
    """Warn if a table to be copied with origin = none may have rows of other origins (check_publications_origin in PostgreSQL 16)."""
    if subscription.origin != "none" or state != SyncState.INIT:
        return
    names = remote.written_by_subscriptions(connection, list(subscription.publications), known)
    if not names:
        return
    shown = ", ".join(f'"{name}"' for name in names)
    listed = f"a publication ({shown}) that contains" if len(names) == 1 else f"publications ({shown}) that contain"
    session.notices.warning(
        f'subscription "{subscription.name}" requested copy_data with origin = NONE but might copy data that had a different origin',
        sqlstate="55000",
        detail=f"The subscription being created subscribes to {listed} tables that are written to by other subscriptions.",
        hint="Verify that initial data copied from the publisher tables did not come from other origins.",
    )


def _names(cursor: Cursor, subscription: Subscription) -> set[tuple[str, str]]:
    """The tables that are in a subscription; asked every few seconds, of thousands in one query."""
    held = [each.relation for each in subscriptions.tables(cursor, subscription.oid)]
    return set(subscriptions.titles(cursor, subscription.database, held).values())


def has_new(catalog: Catalog, connection: PublisherConnection, subscription: Subscription) -> bool:
    """Whether there are published tables that are not in the subscription."""
    with contextlib.closing(catalog.cursor()) as cursor:
        known = _names(cursor, subscription)
    return any((each.schema, each.name) not in known for each in remote.published_tables(connection, list(subscription.publications)))


def join(session: Session, transaction: Transaction, connection: PublisherConnection, subscription: Subscription) -> list[str]:
    """Adds the published tables that are not in the subscription yet, to be copied; which they are."""
    published = _published(connection, subscription, _names(transaction.cursor, subscription))
    _add(session, transaction, subscription, published, SyncState.INIT)
    return [f"{each.schema}.{each.name}" for each in published.tables]


def refresh(
    session: Session, transaction: Transaction, connection: PublisherConnection, subscription: Subscription, state: SyncState
) -> None:
    """Makes the tables of the subscription those that its publications contain now."""
    cursor = transaction.cursor
    known = {each.relation: each for each in subscriptions.tables(cursor, subscription.oid)}
    _warn_of_origins(session, connection, subscription, state, _names(cursor, subscription))
    published = {each.oid for each in _add(session, transaction, subscription, _published(connection, subscription), state)}
    for oid, each in known.items():
        if oid in published:
            continue
        session.node.launcher.stop_table(subscription.oid, oid, session.check_cancel)
        subscriptions.drop_table(cursor, subscription.oid, oid)
        if each.state == SyncState.READY:
            continue
        origins.drop(cursor, f"pg_{subscription.oid}_{oid}", missing_ok=True)
        if each.state != SyncState.SYNCDONE:
            connection.drop_slot(session.node.launcher.sync_slot_name(subscription.oid, oid), missing_ok=True)


def drop_slots(session: Session, subscription: Subscription, unfinished: list[int]) -> None:
    """Drops the slots of a subscription that goes: those of unfinished table syncs (if they are there), then its own."""
    try:
        connection = PublisherConnection.open(subscription.conninfo, subscription.name)
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
