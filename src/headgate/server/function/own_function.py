"""The functions of schema headgate that return rows: change_ranges, verify, snapshot and explain_row. `functions` lists them."""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING

from headgate.catalog import history
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.publication import Publication
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.security import acl
from headgate.catalog.security.role import READ_ALL_DATA, READ_ALL_SETTINGS
from headgate.commands import lookup
from headgate.commands.publication.publication import ACTIONS
from headgate.commands.query import change_scan, rendering
from headgate.commands.query.catalog import privilege_inquiry
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.subscription.publisher_session import connected
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.publisher.published import published, publishes
from headgate.rowfilter import filter as row_filter
from headgate.server.function.subscription_function import member, owned, streamed
from headgate.sql.names import qualified
from headgate.sql.parser import parse
from headgate.storage import inventory
from headgate.storage.transaction.transaction import Transaction
from headgate.verify.explanation import Cell, Explained, MemberTable, condition, explained, key_values, last_touch, publications_query
from headgate.verify.publisher import Publisher
from headgate.verify.verification import Verdict, Verification
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.receiver import Limits
from headgate.walreceiver.remote import array_elements

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_LAST = 2**31 - 1
"""A sequence number after all changes of a transaction."""
_Row = tuple[object, ...]


def change_ranges(
    session: ClientSession,
    publication: str | None,
    relation: str | None,
    from_lsn: Lsn | None,
    to_lsn: Lsn | None,
    max_rows: int | None,
    max_ranges: int | None = None,
) -> Iterator[tuple[Lsn, Lsn, int, bool]]:
    """Cut the log into ranges for headgate.changes. Yield (from_lsn, to_lsn, changes, altered) of each.

    The ranges end at transaction boundaries and are contiguous. They are computed from the log alone, so that many readers can share the
    work of a range of LSNs before any data is read. With `max_ranges`, only the first ranges are returned, and the log after them is not
    read. Raise 22004 for NULL, 22023 if a maximum is not positive.
    """
    if publication is None or relation is None or from_lsn is None or to_lsn is None or max_rows is None:
        raise PostgresError("22004", "arguments of headgate.change_ranges except max_ranges must not be null")
    for name, value in (("max_rows", max_rows), ("max_ranges", max_ranges)):
        if value is not None and value <= 0:
            raise PostgresError("22023", f"{name} must be greater than zero")
    scan, _ = change_scan.opened(session, publication, relation, (Lsn(from_lsn), Lsn(to_lsn)))
    with session.node.slots.snapshots.holding(Lsn(from_lsn)):
        for cut in itertools.islice(scan.cuts(max_rows), max_ranges):
            yield cut.start, cut.end, cut.changes, cut.altered


def verify(
    session: ClientSession, subscription: str | None, relation: str | None = None, with_values: bool | None = False
) -> Iterator[_Row]:
    """Compare the tables of a subscription. Yield (schema, name, result, key, columns, rows, seconds, ranges, theirs, ours).

    Both sides may be written to while it runs. Only the owner of the subscription may call it; the publisher and the tables are read with
    the owner's privileges. There is a row for each table with the result (equal, different, skipped), the rows and ranges compared and the
    seconds. Each row that differs adds a row with its key: missing, extra or different here, the latter with the columns, and with both
    sides' values if requested. It writes nothing.
    """
    cursor = session.begin_statement().cursor
    sub = owned(session, cursor, subscription)
    verification = Verification(
        session.node.parts, sub, f"pg_{sub.oid}_verify_{session.backend.pid}", lambda: streamed(session.node.workers, sub.oid),
        partial(rendering.running, session), session.interrupts.check, lambda: Limits.of(session.node.settings),
        None if relation is None else member(session, cursor, sub, relation),
        session.settings.integer("verify_snapshot_timeout") / 1000, bool(with_values), session.tell_progress,
    )  # fmt: skip
    publishers: list[Publisher] = []
    with session.cancelling(lambda: publishers[-1].stop() if publishers else None):
        try:
            for verdict in verification.run(publishers.append):
                yield from _verdict_rows(verdict)
        except PostgresError:
            session.interrupts.check()  # a cancel ends the waits for the publisher with an error of its own
            raise


def _verdict_rows(verdict: Verdict) -> Iterator[_Row]:
    reason = verdict.reason or None
    if verdict.count > len(verdict.differences):
        reason = f"{verdict.count - len(verdict.differences)} more rows differ"
    table = verdict.schema, verdict.name
    yield *table, verdict.result, None, reason, verdict.rows, verdict.seconds, verdict.ranges, None, None
    for difference in verdict.differences:
        yield (
            *table,
            difference.what,
            difference.key,
            ", ".join(difference.columns) or None,
            None,
            None,
            None,
            difference.theirs,
            difference.ours,
        )


def snapshot(session: ClientSession, lsn: Lsn | None = None) -> Iterator[tuple[object, ...]]:
    """Yield the Delta version of each table at one LSN, for programs that read its files: (schema, name, oid, path, version, lsn).

    The tables are those of the session's database that its user may read: without an LSN, as the statement sees them (committed data,
    without writes of the session's own transaction); with one, as they were then, under the names that they had. Rights are always those of
    now; a table that was dropped since is shown to the roles that owned it and to members of pg_read_all_data. Paths are shown only to
    members of pg_read_all_settings, as all paths of the node.

    Invariants: the versions are those of one LSN. While the transaction is open, their files are not removed (`cleaning` gets the oldest
    LSN that a transaction can read from the engine, and `Snapshots.holding` those that are older). An LSN before which something may have
    been removed is an error (55000): a table is never omitted because its files are gone.
    """
    transaction, context = session.begin_statement(), session.context
    engine, cursor, database = session.node.engine, transaction.cursor, context.database
    role = acl.role(cursor, context.user)
    shows_paths = role.owns(READ_ALL_SETTINGS)
    readable, among = privilege_inquiry.readable(cursor, context), None
    position = transaction.snapshot.lsn if lsn is None else Lsn(lsn)
    if lsn is not None:
        _hold(session, position)
        among = history.at(cursor, database, int(position), _LAST).relations
        relation_oids = {oid for oid, *_ in cursor.execute("SELECT oid FROM hg.pg_class WHERE dbid = ?", [database]).fetchall()}
        every = READ_ALL_DATA in role.roles
        readable |= {oid for oid, table in among.items() if oid not in relation_oids and (every or role.owns(table.owner))}
    versions = engine.log.versions(position)
    if among is not None:
        _check_files(position, {oid: among[oid] for oid in among if (database, oid) not in versions})
    relations = None if among is None else among.values()
    for table in inventory.of_database(cursor, engine.folders, versions, database, context.database_name, relations):
        if table.oid in readable:
            yield table.schema, table.name, table.oid, str(table.path) if shows_paths else None, table.version, position


def _hold(session: ClientSession, position: Lsn) -> None:
    """Keep the files of a past LSN until the transaction ends. Raise 22023 if it is not yet reached, 55000 if it is no longer kept."""
    node = session.node
    if position > node.engine.log.end:
        text = f"LSN {position} is after the end of the log"
        raise PostgresError("22023", text, detail=f"The end of the log is {node.engine.log.end}.")
    held = contextlib.ExitStack()
    held.enter_context(node.slots.snapshots.holding(position))
    session.after_commit(held.close)
    session.after_rollback(held.close)
    oldest = node.engine.oldest_readable(session.context.database)
    if position < oldest:
        raise PostgresError(
            "55000",
            f"the tables as of LSN {position} are no longer kept",
            detail=f"The oldest retained LSN is {oldest}.",
            hint="A replication slot retains the tables from its position.",
        )


def _check_files(position: Lsn, without: Mapping[int, Relation]) -> None:
    """Raise 55000 if a table of that LSN has no version: it was dropped, and its files were removed before the node started."""
    for table in without.values():
        if table.kind is RelationKind.TABLE and table.persistence != "t":
            text = f"the tables as of LSN {position} are no longer kept"
            detail = f'Table "{table.schema}.{table.name}" has been dropped since.'
            raise PostgresError("55000", text, detail=detail, hint="A replication slot retains the tables from its position.")


def explain_row(session: ClientSession, name: str | None, relation: str | None, key: str | None) -> Iterator[tuple[object, ...]]:
    """Explain why a row is or is not here or at the publisher (`verify.explanation`).

    For a subscription, its owner gets the publisher's view of the row and its state here. For a publication of this database, a user who
    may read the table gets the publication's treatment of the row. `key` is a JSON object, '{"id": 7}'. Yield (what, publication,
    present, passes, filter, columns, publish, lsn, time, origin).
    """
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
        explanations = explained(lambda sql, _: _local(session, transaction, sql), _source(table), condition(values), [member])
    for explanation in explanations:
        *fields, lsn, time, origin = astuple(explanation)
        yield (*fields, lsn, None if time is None else _EPOCH + datetime.timedelta(microseconds=time), origin)


def _rows_of_subscriber(
    session: ClientSession, subscription: Subscription, transaction: Transaction, table: Relation, values: dict[str, Cell]
) -> Iterator[Explained]:
    filter_text = condition(values)
    with connected(session, subscription, f"pg_{subscription.oid}_explain", replication=False) as connection:
        yield from _rows_of_publisher(connection, subscription, table, filter_text)
    rows = _local(session, transaction, f"SELECT 1::pg_catalog.text FROM {_source(table)} WHERE {filter_text} LIMIT 1")
    leaves = transaction.reader.leaves(table)
    touch = last_touch(session.node.engine, leaves, values, session.interrupts.check)
    if isinstance(touch, str):
        message = f"the last change is not known any more: {touch}" if rows else "no change of it is known"
        yield Explained("here", present=bool(rows), columns=message)
        return
    origin = subscription.name if touch.origin == f"pg_{subscription.oid}" else touch.origin
    yield Explained("here", present=bool(rows), lsn=touch.commit_lsn, time=touch.commit_time, origin=origin)


def _rows_of_publisher(
    connection: PublisherConnection, subscription: Subscription, table: Relation, filter_text: str
) -> Iterator[Explained]:
    connection.query("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
    query = publications_query(subscription.publications, table.schema, table.name, knows_filters=connection.server_version >= 150000)
    members = [_read(row) for row in connection.query(query, 8)]
    publication_oids = {member.publication for member in members}
    name = qualified(table.schema, table.name)
    is_plain = connection.query(f"SELECT 1 FROM pg_catalog.pg_class WHERE oid = {literal(name)}::pg_catalog.regclass AND relkind = 'r'")
    yield from explained(connection.query, f"ONLY {name}" if is_plain else name, filter_text, members)
    for name in subscription.publications:
        if name not in publication_oids:
            yield Explained("publication", name, passes=False, columns="the publication does not exist")


def _source(table: Relation) -> str:
    """Return a table as FROM names it, without the tables that inherit from it."""
    return ("" if table.is_partitioned else "ONLY ") + qualified(table.schema, table.name)


def _local(session: ClientSession, transaction: Transaction, sql: str) -> list[list[Cell]]:
    """Return the rows of a query on a user's table, with the session's privileges."""
    [statement] = parse(sql)
    with rendering.running(session, transaction):
        plan = QueryPlanner(session, transaction).select(statement.node, None)
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
