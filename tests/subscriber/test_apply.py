"""The applier without a node applies segments to tables of an engine."""

from __future__ import annotations

import pytest
from tests.storage.tables import DATABASE, INT4, contents
from tests.subscriber.test_decoding import SESSION, segment, sent

from headgate.catalog.relation import definition
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import Subscription, SubscriptionRel, SyncState
from headgate.errors import PostgresError
from headgate.pgoutput import message as m
from headgate.storage.engine import Engine
from headgate.subscriber.apply.apply import Applier
from headgate.subscriber.apply.evolution import Follower
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.apply_worker import refuse_stopped
from headgate.subscriber.rows.table_writer import TableRules
from headgate.walreceiver.receiver import StreamEndError

ORIGIN, SUBSCRIPTION = "pg_9", 9


def create(engine: Engine, name: str) -> Relation:
    """Create a table without a key, with one column."""
    transaction = engine.begin(DATABASE)
    table = definition.create(transaction.cursor, engine.catalog.next_oid, DATABASE, Definition(2200, name, [Column(1, "id", INT4, -1)]))
    transaction.ddl.create(table)
    transaction.commit()
    return table


def test_applied_segment_is_not_applied_again_after_an_error_behind_its_commit(engine: Engine) -> None:
    def fail(_: dict[int, int]) -> None:
        raise PostgresError("40001", "a failure behind the commit")

    t, outside = create(engine, "t"), create(engine, "outside")
    engine.catalog.change(lambda cursor: origins.create(cursor, ORIGIN))
    ready = SubscriptionRel(SUBSCRIPTION, t.oid, SyncState.READY)
    engine.catalog.change(lambda cursor: subscriptions.add_table(cursor, DATABASE, ready))
    stream = AppliedStream(SUBSCRIPTION, DATABASE, ORIGIN)
    applier = Applier(engine, stream, lambda: SESSION, lambda: None, TableRules(), Follower(engine, stream), left_out=fail)
    described = [
        m.Relation(oid, "public", name, "d", (m.RelationColumn(True, "id", INT4, -1),)) for oid, name in ((1, "t"), (2, "outside"))
    ]
    first = [m.Begin(1000, 5, 7), *described, m.Insert(1, (sent(1),)), m.Insert(2, (sent(1),)), m.Commit(1000, 2000, 5)]
    second = [m.Begin(3000, 5, 8), m.Insert(1, (sent(2),)), m.Commit(3000, 4000, 5)]
    with pytest.raises(PostgresError, match="behind the commit"):
        applier.apply(segment([*first, *second]))
    progress = origins.progress(engine.catalog.cursor(), ORIGIN)
    assert progress is not None
    assert (contents(engine, t), contents(engine, outside), progress.remote_lsn) == ([(1,), (2,)], [], 4000)


def test_worker_does_not_start_for_a_subscription_that_was_stopped_after_it_was_read(engine: Engine) -> None:
    catalog, subscription = engine.catalog, Subscription(SUBSCRIPTION, DATABASE, "s", 10, "", ("p",))
    cursor = catalog.cursor()
    catalog.change(lambda cursor: subscriptions.create(cursor, subscription))
    refuse_stopped(cursor, subscription)
    catalog.change(lambda cursor: subscriptions.change(cursor, SUBSCRIPTION, enabled=False))
    with pytest.raises(StreamEndError, match='for subscription "s" will not start because the subscription was disabled during startup'):
        refuse_stopped(cursor, subscription)
    catalog.change(lambda cursor: subscriptions.drop(cursor, SUBSCRIPTION))
    with pytest.raises(StreamEndError, match="for subscription 9 will not start because the subscription was removed during startup"):
        refuse_stopped(cursor, subscription)
