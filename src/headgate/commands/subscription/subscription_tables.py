"""The tables of a subscription: fetch them from the publisher, find the local ones, and drop their slots on the publisher.

Called by CREATE, ALTER … REFRESH and DROP SUBSCRIPTION, and by the apply worker for tables that are added later (`join`).
pg_subscription_rel gets a row in state i (to be copied) or r (copy_data = false) for each table in the publications.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headgate.catalog import namespace as namespaces
from headgate.catalog.catalog import Catalog
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_history, subscription_resync
from headgate.catalog.replication.subscription import COPIED, Subscription, SubscriptionRel, SyncState
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.commands.subscription.publisher_session import connected
from headgate.errors import PostgresError, existing
from headgate.storage.transaction.transaction import Transaction
from headgate.walreceiver import definition, remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.definition import Definitions

MISSING = "Create the table first, or use WITH (create_tables = true) to have it made as the publisher has it."


@dataclass(frozen=True)
class _Published:
    """The published tables, and their definitions if tables are created or followed."""

    tables: Sequence[remote.PublishedTable]
    definitions: Definitions | None


def _published_tables(
    connection: PublisherConnection, subscription: Subscription, known: Collection[tuple[str, str]] | None = None
) -> _Published:
    """Return the published tables, without those that are `known`."""
    tables = remote.published_tables(connection, list(subscription.publications))
    tables = [table for table in tables if known is None or (table.schema, table.name) not in known]
    needs_definitions = tables and (subscription.create_tables or subscription.schema_evolution == "follow")
    return _Published(tables, definition.read(connection, tables) if needs_definitions else None)


def _add(session: Session, transaction: Transaction, subscription: Subscription, published: _Published, state: SyncState) -> list[Relation]:
    """Return the local tables of the published ones. Create missing ones with create_tables.

    Add new ones to the subscription in `state`.
    """
    # imported here, because it imports modules that import this one
    from headgate.commands.subscription.create_tables import Maker, followed

    cursor, database = transaction.cursor, subscription.database
    known_oids = {member.relation for member in subscriptions.tables(cursor, subscription.oid)}
    local_tables = []
    remote_tables = published.definitions
    maker = None if remote_tables is None else Maker.of(session, remote_tables)
    names = [(table.schema, table.name) for table in published.tables]
    missing = [name for name in names if maker and subscription.create_tables and relations.lookup(cursor, database, *name) is None]
    if maker is not None and missing:
        maker.explain_storage(missing)
    for table in published.tables:
        # a table may have been created with another one, as its partition
        if (
            maker is not None
            and (table.schema, table.name) in missing
            and relations.lookup(cursor, database, table.schema, table.name) is None
        ):
            maker.make(table.schema, table.name)
        relation = _local(session, transaction, table)
        local_tables.append(relation)
        if relation.oid not in known_oids:
            subscriptions.add_table(cursor, database, SubscriptionRel(subscription.oid, relation.oid, state))
        if maker is not None and not subscription_column.of_table(cursor, subscription.oid, relation.oid):
            columns = followed(maker.remote.named.get((table.schema, table.name)), relation, maker.types)
            if subscription.binary and (as_text := [column.name for column in columns if column.local_type is not None]):
                raise PostgresError(
                    "0A000",
                    f'columns of table "{table.schema}.{table.name}" are text here, and the publisher would send them in binary form',
                    detail=f"Columns: {', '.join(as_text)}.",
                    hint="Use WITH (binary = false).",
                )
            subscription_column.write(cursor, database, subscription.oid, relation.oid, columns)
    return local_tables


def _local(session: Session, transaction: Transaction, table: remote.PublishedTable) -> Relation:
    """Return the local table to which a published one is applied. Raise 3F000, 42P01 or 42809 (a view, or the history of another table)."""
    cursor, context = transaction.cursor, session.context
    schema, name = table.schema, table.name
    try:
        namespaces.get(cursor, context.database, schema)
        relation = existing(relations.lookup(cursor, context.database, schema, name), "42P01", f'relation "{schema}.{name}"')
    except PostgresError as error:
        error.hint = MISSING
        raise
    transaction.catalog.use_object("pg_class", relation.oid)
    if relation.kind not in TABLE_KINDS:
        raise PostgresError(
            "42809",
            f'cannot use relation "{schema}.{name}" as logical replication target',
            detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
        )
    subscription_history.refuse_change(cursor, context.database, relation.oid, relation.name, "replicate to")
    return relation


def add_all(
    session: Session, transaction: Transaction, connection: PublisherConnection, subscription: Subscription, state: SyncState
) -> int:
    """Add the published tables in `state`, and return their number."""
    _warn_of_origins(session, connection, subscription, state, set())
    return len(_add(session, transaction, subscription, _published_tables(connection, subscription), state))


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
    """Return the names of the tables in a subscription, in one query: this runs every few seconds, for thousands of tables."""
    oids = [member.relation for member in subscriptions.tables(cursor, subscription.oid)]
    return set(subscriptions.titles(cursor, subscription.database, oids).values())


def has_new(catalog: Catalog, connection: PublisherConnection, subscription: Subscription) -> bool:
    with contextlib.closing(catalog.cursor()) as cursor:
        known_names = _names(cursor, subscription)
    return any(
        (table.schema, table.name) not in known_names for table in remote.published_tables(connection, list(subscription.publications))
    )


def join(session: Session, transaction: Transaction, connection: PublisherConnection, subscription: Subscription) -> list[str]:
    """Add the published tables that are not in the subscription yet, for the initial copy. Return their names."""
    published = _published_tables(connection, subscription, _names(transaction.cursor, subscription))
    _add(session, transaction, subscription, published, SyncState.INIT)
    return [f"{table.schema}.{table.name}" for table in published.tables]


def refresh(
    session: Session, transaction: Transaction, connection: PublisherConnection, subscription: Subscription, state: SyncState
) -> None:
    """Add and remove tables of the subscription so that they match its publications."""
    published = _published_tables(connection, subscription)
    _hold_unpublished(session, transaction, subscription, published)
    cursor = transaction.cursor
    members = {member.relation: member for member in subscriptions.tables(cursor, subscription.oid)}
    _warn_of_origins(session, connection, subscription, state, _names(cursor, subscription))
    local_oids = {relation.oid for relation in _add(session, transaction, subscription, published, state)}
    for oid, member in members.items():
        if oid in local_oids:
            continue
        subscriptions.drop_table(cursor, subscription.oid, oid)
        origin = f"pg_{subscription.oid}_{oid}"
        has_slot = member.state not in COPIED or origins.find(cursor, origin) is not None  # an origin is dropped after its sync slot
        origins.drop(cursor, origin, missing_ok=True)
        if has_slot:
            connection.drop_slot(session.parts.workers.host.sync_slot_name(subscription.oid, oid), missing_ok=True)


def _hold_unpublished(session: Session, transaction: Transaction, subscription: Subscription, published: _Published) -> None:
    """Stop the sync workers of tables that are to be removed, before the catalog is read. Otherwise their last writes would conflict."""
    names = {(table.schema, table.name) for table in published.tables}
    oids = [member.relation for member in subscriptions.tables(transaction.cursor, subscription.oid)]
    titles = subscriptions.titles(transaction.cursor, subscription.database, oids)
    workers = session.parts.workers
    unpublished = [oid for oid in oids if titles.get(oid) not in names]
    for oid in unpublished:
        release = functools.partial(workers.release_table, subscription.oid, oid)
        session.after_commit(release)
        session.after_rollback(release)
        workers.hold_table(subscription.oid, oid, session.check_cancel)
    if unpublished:
        transaction.plan_again()


def copy_differences(cursor: Cursor, subscription: Subscription) -> None:
    """Let the tables that are still to be copied keep their rows, and copy only the rows that differ (copy_data = reconcile)."""
    for member in subscriptions.tables(cursor, subscription.oid):
        if member.state == SyncState.INIT:
            subscription_resync.take_difference(cursor, subscription.database, subscription.oid, member.relation)


def drop_slots(session: Session, subscription: Subscription, unfinished: list[int]) -> None:
    """Drop the slots of a subscription to drop: those of unfinished table syncs (if they exist), then its own."""
    sync_slots = [session.parts.workers.host.sync_slot_name(subscription.oid, relation) for relation in unfinished]
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(connected(session, subscription))
        except PostgresError as error:
            if error.sqlstate.startswith("57"):  # the statement was cancelled
                raise
            if subscription.slot_name is None:
                for name in sync_slots:
                    session.notices.warning(f'could not drop tablesync replication slot "{name}"')
                return
            reason = error.message.removeprefix("could not connect to the publisher: ")
            raise PostgresError(
                "08006",
                f'could not connect to publisher when attempting to drop replication slot "{subscription.slot_name}": {reason}',
                hint="Use ALTER SUBSCRIPTION ... DISABLE to disable the subscription, and then use ALTER SUBSCRIPTION ... SET (slot_name ="
                " NONE) to disassociate it from the slot.",
            ) from error
        for name in sync_slots:
            if connection.drop_slot(name, missing_ok=True):
                session.notices.notice(f'dropped replication slot "{name}" on publisher')
        if subscription.slot_name is not None:
            connection.drop_slot(subscription.slot_name)
            session.notices.notice(f'dropped replication slot "{subscription.slot_name}" on publisher')
