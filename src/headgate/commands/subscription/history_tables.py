"""Create, start and extend the history tables of a subscription's tables (`subscriber.rows.table_history`).

The apply worker calls `prepare` between two batches: for tables that have become ready, and when a history lacks columns of its table. Like
`applied_ddl`, it acts with the rights of the subscription's owner, in its own transaction.

A history is the table `<table>_history` in the schema of its table. An existing table of that name is continued if it has the columns of a
history, the subscription's owner owns it and no subscription writes it, because histories outlive their subscription. A column whose type
has changed gets the new type. If its values cannot be cast, the column is renamed and a new column gets its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import object_name
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_history
from headgate.catalog.replication.subscription import Subscription
from headgate.commands import privilege
from headgate.commands.session import NodeParts, Session
from headgate.commands.subscription.applied_ddl import acting
from headgate.commands.transaction.subtransaction import attempt
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.sql.names import qualified, quote_ident
from headgate.sql.parser import parse
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.host import Jobs
from headgate.subscriber.rows import table_history
from headgate.types import registry


def check(cursor: Cursor, subscription: Subscription) -> None:
    """Raise 42704 if the option `history` names a table that is not in the subscription."""
    oids = [member.relation for member in subscriptions.tables(cursor, subscription.oid)]
    names = subscriptions.titles(cursor, subscription.database, oids).values()
    name = subscription_history.unknown(subscription.history, names)
    if name is not None:
        raise PostgresError("42704", f'table "{name}" is not in subscription "{subscription.name}"')


def change(cursor: Cursor, subscription: Subscription) -> None:
    """Run ALTER SUBSCRIPTION … SET (history = …): end the histories of tables that the option no longer includes."""
    check(cursor, subscription)
    table_oids = subscription_history.of_subscription(cursor, subscription.oid)
    names = subscriptions.titles(cursor, subscription.database, table_oids)
    for oid in table_oids:
        if oid not in names or not subscription_history.is_wanted(subscription.history, names[oid]):
            subscription_history.forget(cursor, subscription.oid, oid)


def prepare(node: NodeParts, subscription: Subscription, stopping: Callable[[], None], jobs: Jobs) -> list[str]:
    """Start the histories of ready tables without one, and add missing columns to all histories. Return a line for each change."""
    with acting(node, subscription, stopping, jobs) as session:
        transaction: Transaction = session.transaction
        transaction.catalog.lock_object("pg_subscription", subscription.oid)
        transaction.plan_again()
        current = subscriptions.find(transaction.cursor, subscription.oid)
        return [] if current is None else _prepare(session, transaction, current)


def _prepare(session: Session, transaction: Transaction, subscription: Subscription) -> list[str]:
    cursor, database, lines = transaction.cursor, subscription.database, []
    histories = subscription_history.of_subscription(cursor, subscription.oid)
    for oid in subscriptions.without_history(cursor, subscription):
        subscription_history.forget(cursor, subscription.oid, oid)  # no table is a history while this function alters it
        local = relations.get(cursor, database, oid)
        history = _open(session, local, histories.get(oid))
        _begin(transaction, subscription, local, history)
        subscription_history.begin(cursor, database, subscription.oid, oid, history.oid)
        lines.append(f'table "{history.schema}.{history.name}" records the changes of table "{local.schema}.{local.name}"')
    for oid, table_record in histories.items():
        if table_record.is_begun:
            subscription_history.forget(cursor, subscription.oid, oid)
            local, history = relations.get(cursor, database, oid), relations.get(cursor, database, table_record.relation)
            if _extend(session, local, history):
                lines.append(f'table "{history.schema}.{history.name}" has the columns of table "{local.schema}.{local.name}"')
            subscription_history.begin(cursor, database, subscription.oid, oid, history.oid, table_record.expired)
    return lines


def _open(session: Session, local: Relation, known: subscription_history.TableHistory | None) -> Relation:
    """Return the history table of a table with all columns. Create it if necessary. Raise 42P07 if it cannot be one."""
    cursor, database = session.begin_statement().cursor, local.database
    name = object_name.free_name(local.name, None, table_history.SUFFIX, ())
    history = relations.lookup(cursor, database, local.schema, name) if known is None else relations.get(cursor, database, known.relation)
    if history is None:
        own_columns = [(name, Column(0, name, oid)) for name, oid in subscription_history.OWN_COLUMNS]
        _run(session, f"CREATE TABLE {qualified(local.schema, name)} ({', '.join(_definitions(own_columns, ()))})")
        history = relations.lookup(cursor, database, local.schema, name)
        assert history is not None
    elif known is None:
        _check_unused(cursor, local, history)
    privilege.check_owner(cursor, session.context.user, history.owner, "table", history.name)
    _extend(session, local, history)
    return relations.get(cursor, database, history.oid)


def _check_unused(cursor: Cursor, local: Relation, history: Relation) -> None:
    """Raise 42P07 unless an existing table can become a history: it has the columns of one, and no subscription writes it."""
    hint = f"Rename the table, or leave {quote_ident(local.name)} out of the subscription's history."
    title = f"{history.schema}.{history.name}"
    if not _is_history(history):
        raise PostgresError("42P07", f'table "{title}" is not a history', hint=hint)
    recorded = subscription_history.recorded_by(cursor, history.database, history.oid)
    writers = [
        subscription.name
        for oid in subscriptions.subscribing(cursor, history.database, history.oid)
        if (subscription := subscriptions.find(cursor, oid))
    ]
    if recorded is not None:
        writers.append(recorded[0])
    if writers:
        raise PostgresError("42P07", f'table "{title}" is written by subscription "{writers[0]}"', hint=hint)


def _is_history(history: Relation) -> bool:
    types_by_name = {column.name: column.type_oid for column in history.columns}
    return history.kind == RelationKind.TABLE and all(types_by_name.get(name) == oid for name, oid in subscription_history.OWN_COLUMNS)


def _definitions(columns: Sequence[tuple[str, Column]], words: Sequence[str]) -> list[str]:
    """Return the definition of each column with its type, after the words `words`."""
    types = registry.known()
    return [" ".join([*words, quote_ident(name), types.format_type(column.type_oid, column.typmod)]) for name, column in columns]


def _extend(session: Session, local: Relation, history: Relation) -> bool:
    """Add the columns that a history lacks or has with another type. Return whether there were any."""
    differing, table = table_history.differing(local, history), qualified(history.schema, history.name)
    existing = {column.name for column in history.columns}
    added = [item for item in differing if item[0] not in existing]
    for item in differing:
        if item[0] in existing:
            name, kind = quote_ident(item[0]), registry.known().format_type(item[1].type_oid, item[1].typmod)
            if attempt(session, [parse(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}")[0].node]) is not None:
                free_name = object_name.free_name(item[0], None, "before", existing)
                _run(session, f"ALTER TABLE {table} RENAME COLUMN {name} TO {quote_ident(free_name)}")
                added.append(item)
    if added:
        _run(session, f"ALTER TABLE {table} {', '.join(_definitions(added, ['ADD COLUMN']))}")
    return bool(differing)


def _run(session: Session, text: str) -> None:
    [statement] = parse(text)
    session.parts.run_statement(statement.node, session)


def _begin(transaction: Transaction, subscription: Subscription, local: Relation, history: Relation) -> None:
    """Append the current rows of a table to its history, after the existing rows of the history."""
    transaction.lock(local)
    progress = origins.progress(transaction.cursor, f"pg_{subscription.oid}")
    lsn, moment = Lsn(INVALID if progress is None else progress.remote_lsn), datetime.now(UTC)
    with transaction.snapshot.seeing_newest():
        if transaction.reader.newest(history).rows:
            transaction.append(history, table_history.restart(history, lsn, moment))
        memory_rows = None if local.is_partitioned else transaction.reader.held(local)
        rows = table_history.snapshot(local, history, transaction.reader.frame(local) if memory_rows is None else memory_rows, lsn, moment)
        transaction.append(history, rows)
