"""The tables that hold the histories of a subscription's tables (`subscriber.apply.table_history`): made, begun with rows, extended.

`prepare` is called by the apply worker between two batches, for tables that have become ready, and when a batch finds that a history does
not have the columns of its table. Like `applied_ddl`, it acts with the rights of the subscription's owner, in a transaction of its own.

A history is the table `<table>_history` in the schema of its table. If a table of that name has the columns of a history, and the owner of
the subscription owns it, it is continued: histories outlive their subscription. A column whose type has changed gets the new type; if its
values cannot be cast, the column is renamed and another takes its name.
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
from headgate.subscriber.apply import table_history
from headgate.subscriber.host import Jobs
from headgate.types import registry


def check(cursor: Cursor, subscription: Subscription) -> None:
    """42704 if the option `history` names a table that is not in the subscription."""
    oids = [each.relation for each in subscriptions.tables(cursor, subscription.oid)]
    names = subscriptions.titles(cursor, subscription.database, oids).values()
    name = subscription_history.unknown(subscription.history, names)
    if name is not None:
        raise PostgresError("42704", f'table "{name}" is not in subscription "{subscription.name}"')


def change(cursor: Cursor, subscription: Subscription) -> None:
    """ALTER SUBSCRIPTION … SET (history = …): end the histories of tables that it does not ask for any more."""
    check(cursor, subscription)
    known = subscription_history.of_subscription(cursor, subscription.oid)
    names = subscriptions.titles(cursor, subscription.database, known)
    for oid in known:
        if oid not in names or not subscription_history.is_wanted(subscription.history, names[oid]):
            subscription_history.forget(cursor, subscription.oid, oid)


def prepare(node: NodeParts, subscription: Subscription, stopping: Callable[[], None], jobs: Jobs) -> list[str]:
    """Begin the histories of ready tables that have none, and give all of them the columns that they lack; a line for each."""
    with acting(node, subscription, stopping, jobs) as session:
        transaction: Transaction = session.transaction
        transaction.lock_object("pg_subscription", subscription.oid)
        transaction.plan_again()
        now = subscriptions.find(transaction.cursor, subscription.oid)
        return [] if now is None else _prepare(session, transaction, now)


def _prepare(session: Session, transaction: Transaction, subscription: Subscription) -> list[str]:
    cursor, database, done = transaction.cursor, subscription.database, []
    known = subscription_history.of_subscription(cursor, subscription.oid)
    for oid in subscriptions.without_history(cursor, subscription):
        local = relations.get(cursor, database, oid)
        history = _opened(session, local, known.get(oid))
        _begin(transaction, subscription, local, history)
        subscription_history.begin(cursor, database, subscription.oid, oid, history.oid)
        done.append(f'table "{history.schema}.{history.name}" records the changes of table "{local.schema}.{local.name}"')
    for oid, each in known.items():
        if each.is_begun:
            local, history = relations.get(cursor, database, oid), relations.get(cursor, database, each.relation)
            if _extend(session, local, history):
                done.append(f'table "{history.schema}.{history.name}" has the columns of table "{local.schema}.{local.name}"')
    return done


def _opened(session: Session, local: Relation, known: subscription_history.TableHistory | None) -> Relation:
    """The table for the history of a table, made if there is none, with all columns."""
    cursor, database = session.begin_statement().cursor, local.database
    name = object_name.free_name(local.name, None, table_history.SUFFIX, ())
    history = relations.lookup(cursor, database, local.schema, name) if known is None else relations.get(cursor, database, known.relation)
    if history is None:
        _run(session, f"CREATE TABLE {qualified(local.schema, name)} ({', '.join(_definitions(_own(), ()))})")
        history = relations.lookup(cursor, database, local.schema, name)
        assert history is not None
    elif not _is_history(history):
        hint = f"Rename the table, or leave {quote_ident(local.name)} out of the subscription's history."
        raise PostgresError("42P07", f'table "{history.schema}.{history.name}" is not a history', hint=hint)
    privilege.check_owner(cursor, session.context.user, history.owner, "table", history.name)
    _extend(session, local, history)
    return relations.get(cursor, database, history.oid)


def _own() -> list[tuple[str, Column]]:
    return [(name, Column(0, name, oid)) for name, oid in table_history.OWN_COLUMNS]


def _is_history(history: Relation) -> bool:
    held = {column.name: column.type_oid for column in history.columns}
    return history.kind == RelationKind.TABLE and all(held.get(name) == oid for name, oid in table_history.OWN_COLUMNS)


def _definitions(columns: Sequence[tuple[str, Column]], words: Sequence[str]) -> list[str]:
    """Each column with its type, behind some words."""
    types = registry.known()
    return [" ".join([*words, quote_ident(name), types.format_type(column.type_oid, column.typmod)]) for name, column in columns]


def _extend(session: Session, local: Relation, history: Relation) -> bool:
    """Give a history the columns of its table that it lacks or has with another type; whether there were any."""
    differing, table = table_history.differing(local, history), qualified(history.schema, history.name)
    held = {column.name for column in history.columns}
    added = [each for each in differing if each[0] not in held]
    for each in differing:
        if each[0] in held:
            name, kind = quote_ident(each[0]), registry.known().format_type(each[1].type_oid, each[1].typmod)
            if attempt(session, [parse(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}")[0].node]) is not None:
                other = object_name.free_name(each[0], None, "before", held)
                _run(session, f"ALTER TABLE {table} RENAME COLUMN {name} TO {quote_ident(other)}")
                added.append(each)
    if added:
        _run(session, f"ALTER TABLE {table} {', '.join(_definitions(added, ['ADD COLUMN']))}")
    return bool(differing)


def _run(session: Session, text: str) -> None:
    [statement] = parse(text)
    session.node.run_statement(statement.node, session)


def _begin(transaction: Transaction, subscription: Subscription, local: Relation, history: Relation) -> None:
    """Write the rows that a table has now into its history, behind what the history has already."""
    transaction.lock(local)
    progress = origins.progress(transaction.cursor, f"pg_{subscription.oid}")
    lsn, moment = Lsn(INVALID if progress is None else progress.remote_lsn), datetime.now(UTC)
    with transaction.seeing_newest():
        if transaction.newest(history).rows:
            transaction.append(history, table_history.restart(history, lsn, moment))
        held = None if local.is_partitioned else transaction.held(local)
        rows = table_history.snapshot(local, history, transaction.frame(local) if held is None else held, lsn, moment)
        transaction.append(history, rows)
