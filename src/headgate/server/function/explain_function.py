"""headgate.explain_row(subscription or publication, table, key): explain why a row is or is not here or at the publisher.

For a subscription, its owner gets the publisher's view of the row and its state
here. For a publication of this database, a user who may read the table gets the publication's treatment of the row. The key is a JSON
object, '{"id": 7}'. See `verify.explanation`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from headgate.catalog import history
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.publication import Publication
from headgate.catalog.replication.subscription import Subscription
from headgate.commands import lookup
from headgate.commands.publication.publication import ACTIONS
from headgate.commands.query import rendering
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.publisher.published import published, publishes
from headgate.rowfilter import filter as row_filter
from headgate.server.function.subscription_function import owned
from headgate.sql.names import qualified
from headgate.sql.parser import parse
from headgate.storage.transaction.transaction import Transaction
from headgate.verify.explanation import Cell, Explained, MemberTable, condition, explained, key_values, last_touch, publications_query
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.remote import array_elements
from headgate.walreceiver.waker import Waker

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def explain_row(session: ClientSession, name: str | None, relation: str | None, key: str | None) -> Iterator[tuple[object, ...]]:
    """Yield (what, publication, present, passes, filter, columns, publish, lsn, time, origin)."""
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    table = lookup.named(cursor, session.context, relation or "")
    if table.kind not in TABLE_KINDS:
        raise PostgresError("42809", f'"{table.name}" is not a table')
    values = key_values(table, key)
    subscription = None if name is None else subscriptions.lookup(cursor, database, name)
    if subscription is not None:
        explanations = _rows_of_subscriber(session, owned(session, cursor, name), transaction, table, values)
    else:
        publication = None if name is None else publications.lookup(cursor, database, name)
        if publication is None:
            raise PostgresError("42704", f'there is no subscription and no publication "{name}"')
        member = _member(transaction, publication, table)
        explanations = explained(lambda sql, _: _local(session, transaction, sql), (table.schema, table.name), condition(values), [member])
    for explanation in explanations:
        *fields, lsn, time, origin = astuple(explanation)
        yield (*fields, lsn, None if time is None else EPOCH + datetime.timedelta(microseconds=time), origin)


def _rows_of_subscriber(
    session: ClientSession, subscription: Subscription, transaction: Transaction, table: Relation, values: dict[str, Cell]
) -> Iterator[Explained]:
    waker, filter_text = Waker(), condition(values)
    with session.cancelling(waker.stop):
        try:
            yield from _rows_of_publisher(subscription, waker, table, filter_text)
        except PostgresError:
            session.interrupts.check()  # a cancel ends the waits for the publisher with an error of its own
            raise
        finally:
            waker.close()
    rows = _local(session, transaction, f"SELECT 1::pg_catalog.text FROM {qualified(table.schema, table.name)} WHERE {filter_text} LIMIT 1")
    leaves = transaction.partitioned(table).leaves if table.is_partitioned else (table,)
    touch = last_touch(session.node.engine, leaves, values, session.interrupts.check)
    if isinstance(touch, str):
        message = f"the last change is not known any more: {touch}" if rows else "no change of it is known"
        yield Explained("here", present=bool(rows), columns=message)
        return
    origin = subscription.name if touch.origin == f"pg_{subscription.oid}" else touch.origin
    yield Explained("here", present=bool(rows), lsn=touch.commit_lsn, time=touch.commit_time, origin=origin)


def _rows_of_publisher(subscription: Subscription, waker: Waker, table: Relation, filter_text: str) -> Iterator[Explained]:
    connection = PublisherConnection.open(subscription.conninfo, f"pg_{subscription.oid}_explain", waker=waker, replication=False)
    try:
        connection.query("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
        query = publications_query(subscription.publications, table.schema, table.name, knows_filters=connection.server_version >= 150000)
        members = [_read(row) for row in connection.query(query, 8)]
        publication_oids = {member.publication for member in members}
        yield from explained(connection.query, (table.schema, table.name), filter_text, members)
        for name in subscription.publications:
            if name not in publication_oids:
                yield Explained("publication", name, passes=False, columns="the publication does not exist")
    finally:
        connection.close()


def _local(session: ClientSession, transaction: Transaction, sql: str) -> list[list[Cell]]:
    """Return the rows of a query on a user's table, with the session's privileges."""
    [statement] = parse(sql)
    with rendering.running(session, transaction):
        plan = Planner(session, transaction).select(statement.node, None)
        result = plan.frame.toArrow()
    return [list(row) for row in zip(*(column.to_pylist() for column in result.columns), strict=True)]


def _member(transaction: Transaction, publication: Publication, table: Relation) -> MemberTable:
    """Return how a publication of this database publishes a table."""
    state = history.current(transaction.cursor, transaction.database)
    publish = tuple(action for action in ACTIONS if getattr(publication, action))
    table_publication = published(state, [publication], table.oid)
    if table_publication is None or not publishes(publication) or not table_publication.publications:
        return MemberTable(publication.name, publish, listed=False)
    names = tuple(column.name for column in table_publication.sent_columns)
    has_all = len(names) == len(table.columns)
    trees = table_publication.copied
    return MemberTable(publication.name, publish, True, None if has_all else names, row_filter.load(trees[0]).text if trees else None)


def _read(row: Sequence[Cell]) -> MemberTable:
    publish = tuple(action for action, flag in zip(ACTIONS, row[1:5], strict=True) if flag == "t")
    columns = None if row[6] is None else array_elements(row[6])
    return MemberTable(str(row[0]), publish, row[5] == "t", columns, row[7])
