"""DROP TABLE, and dropping tables with their partitions and rows.

Called by `execute`, and by what drops tables along with other objects: DROP SCHEMA, DROP OWNED, DROP TYPE, the end of temporary tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_history
from headgate.commands import dependency, lookup, privilege, table_in_use
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.partition import partition_constraint
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.storage.transaction.transaction import Transaction


def _tell_subscribed(session: Session, transaction: Transaction, dropped: Sequence[Relation]) -> None:
    """Report the subscriptions that lose a dropped table. The next change of the table stops them."""
    for relation in dropped:
        for oid in subscriptions.subscribing(transaction.cursor, relation.database, relation.oid):
            subscription = subscriptions.find(transaction.cursor, oid)
            if subscription is not None:
                session.notices.notice(
                    f'table "{relation.name}" is dropped out of subscription "{subscription.name}"',
                    hint="Drop it from the publication too. Otherwise the subscription stops at the next change of the table.",
                )


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """Execute DROP TABLE [IF EXISTS] a, b [CASCADE]."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    tables = list(lookup.dropped(cursor, session, node, "table"))
    for relation in tables:
        privilege.check_owner(cursor, context.user, relation.owner, "table", relation.name)
    refuse_replicated(session, tables)
    _tell_subscribed(session, transaction, tables)
    for relation in tables:
        if relation.parent:
            transaction.catalog.change_object("pg_class", relation.parent)
        transaction.own(relation)
    dropped_oids = [oid for relation in tables for oid in (relation.oid, *relations.descendants(cursor, context.database, relation.oid))]
    for oid in reversed(dropped_oids):
        table_in_use.check(session, cursor, relations.get(cursor, context.database, oid), "DROP TABLE")
    dependants = dependant_functions.of_relations(session, [relations.get(cursor, context.database, oid) for oid in dropped_oids])
    foreign_key_ids = [(2606, key.oid) for oid in dropped_oids for key in relations.get(cursor, context.database, oid).foreign_keys]
    dependency.settle(
        transaction, dependants, [dependency.shown(cursor, context, dropped) for dropped in tables], session.notices,
        cascade=node.behavior == pb.DROP_CASCADE, going=[*((1259, oid) for oid in dropped_oids), *foreign_key_ids],
    )  # fmt: skip
    drop_all(transaction, tables)
    return CommandResult("DROP TABLE")


def refuse_replicated(session: Session, dropped: Sequence[Relation]) -> None:
    """Raise 22023 for a table that is being copied, and 2BP01 for a history table unless the table that it records is dropped too."""
    cursor = session.begin_statement().cursor
    for relation in dropped:
        subscriptions.refuse_unfinished_sync(cursor, relation.database, relation.oid, relation.name)
        recorded = subscription_history.recorded_by(cursor, relation.database, relation.oid)
        if recorded is None or any(table.oid == recorded[1] for table in dropped):
            continue
        name = dependency.shown(cursor, session.context, relation)
        hint = "ALTER SUBSCRIPTION ... SET (history = ...) ends the history of a table."
        raise PostgresError("2BP01", f"cannot drop {name} because subscription {recorded[0]} requires it", hint=hint)


def drop_all(transaction: Transaction, tables: list[Relation]) -> None:
    """Drop tables with their partitions, rows and catalog entries."""
    cursor = transaction.cursor
    for relation in tables:
        if relations.find(cursor, relation.database, relation.oid) is None:
            continue
        for oid in reversed(relations.descendants(cursor, relation.database, relation.oid)):
            leaf = relations.find(cursor, relation.database, oid)
            if leaf is not None:
                _drop_one(transaction, leaf)
        _drop_one(transaction, relation)
        parent = relations.find(cursor, relation.database, relation.parent) if relation.parent else None
        if parent is not None:
            partition_constraint.rewrite(cursor, parent)
    if tables:
        transaction.catalog_changed()


def drop_relation(transaction: Transaction, relation: Relation) -> None:
    """Drop a table, view or sequence, unless it was dropped with another relation."""
    if relation.kind in TABLE_KINDS:
        drop_all(transaction, [relation])
    elif relations.find(transaction.cursor, relation.database, relation.oid) is not None:
        removal.drop(transaction.cursor, relation.database, relation.oid)


def _drop_one(transaction: Transaction, relation: Relation) -> None:
    removal.drop(transaction.cursor, relation.database, relation.oid)
    if relation.kind == RelationKind.TABLE:
        transaction.ddl.drop(relation)
