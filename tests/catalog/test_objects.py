"""Catalog objects are read back as written, in transactions, and the history keeps earlier states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.catalog import history, trigger_upgrade
from headgate.catalog.catalog import Catalog
from headgate.catalog.relation import attribute, definition, foreign_key, key_text, pg_class, relation, removal
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.index import IndexKey, add_key
from headgate.catalog.relation.relation import Column, ForeignKey, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.replication import origin, publication, slot, subscription
from headgate.catalog.replication.publication import Member, Publication
from headgate.catalog.replication.subscription import Subscription, SubscriptionRel, SyncState
from headgate.catalog.security import role
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.types import registry as t


def make_table(catalog: Catalog, database: int, name: str = "t") -> Relation:
    columns = [Column(0, "a", t.INT4), Column(0, "b", t.TEXT, default="'x'::text", collation=100), Column(0, "c", t.NUMERIC, 655366)]
    table = Definition(
        2200, name, columns, keys=[IndexKey((1,), primary=True), IndexKey((2, 3))], checks=[NewCheck("(a > 0)", attnums=(1,))]
    )
    return catalog.change(lambda cursor: definition.create(cursor, catalog.next_oid, database, table))


def test_table_is_read_as_it_was_created(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    cursor = empty_catalog.cursor()
    assert relation.lookup(cursor, database, None, "t", ["public"]) == table
    assert relation.lookup(cursor, database, "public", "t") == table
    assert relation.lookup(cursor, database + 1, "public", "t") is None
    assert [index.name for index in table.indexes] == ["t_pkey", "t_b_c_key"]
    assert table.primary_key == table.identity_key() == (1,)
    assert table.columns[0].not_null
    assert Relation.load(table.dump()) == table


def test_created_table_equals_the_one_that_is_read(empty_catalog: Catalog, database: int) -> None:
    columns = [
        Column(0, "a", t.INT4, not_null=True, identity="a"), Column(0, "b", t.TEXT, default="'x'::text", collation=100),
        Column(0, "c", t.NUMERIC, 655366), Column(0, "d", t.INT4, generated="(a + 1)"), Column(0, "e", t.INT4_ARRAY),
    ]  # fmt: skip
    table = Definition(2200, "plain", columns, persistence="t", options=["fillfactor=70"])
    created = empty_catalog.change(lambda cursor: definition.create(cursor, empty_catalog.next_oid, database, table))
    assert relation.get(empty_catalog.cursor(), database, created.oid) == created


def test_key_texts_of_a_new_key_equal_those_written_after_a_rename(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    keys = [
        IndexKey((2, 1), included=(3,), options=(1, 0), classes=(0, 0), constraint=False, unique=False),
        IndexKey((0, 2), expressions=("lower(b)",), expression_columns=(Column(0, "lower", t.TEXT, collation=100),), constraint=False),
    ]
    for key in keys:
        empty_catalog.change(
            lambda cursor, key=key: add_key(cursor, empty_catalog.next_oid, relation.get(cursor, database, table.oid), key)
        )
    read = "SELECT i.*, k.conkeytext, k.conincludetext FROM hg.pg_index i LEFT JOIN hg.pg_constraint k ON k.conindid = i.indexrelid"
    texts = f"{read} WHERE i.dbid = {database} ORDER BY ALL"
    texts_written = empty_catalog.cursor().execute(texts).fetchall()
    assert len(texts_written) == 4
    empty_catalog.change(lambda cursor: cursor.execute("UPDATE hg.pg_index SET indkeytext = '', indcolumns = [] WHERE dbid <> 0"))
    empty_catalog.change(lambda cursor: key_text.write(cursor, database))
    assert empty_catalog.cursor().execute(texts).fetchall() == texts_written


def test_foreign_keys_of_an_earlier_version_get_their_triggers(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    key = ForeignKey("", 0, table.oid, (1,), table.oid, (1,), on_delete="c", index=table.indexes[0].oid, deferrable=True, deferred=True)
    created = empty_catalog.change(lambda cursor: foreign_key.create(cursor, empty_catalog.next_oid, table, key))
    clone = replace(key, name="clone", parent=created.oid)
    empty_catalog.change(lambda cursor: foreign_key.create(cursor, empty_catalog.next_oid, table, clone))
    sql = "SELECT tgfoid, tgtype, tgconstraint, tgdeferrable, tginitdeferred, tgparentid <> 0 FROM hg.pg_trigger ORDER BY ALL"
    triggers_written = empty_catalog.cursor().execute(sql).fetchall()
    assert [row[0] for row in triggers_written] == [1644, 1644, 1645, 1645, 1646, 1655]
    empty_catalog.change(lambda cursor: cursor.execute("DELETE FROM hg.pg_trigger"))
    for _ in range(2):
        empty_catalog.change(trigger_upgrade.create_triggers)
        assert empty_catalog.cursor().execute(sql).fetchall() == triggers_written


def test_generated_name_that_is_in_use_gets_a_number(empty_catalog: Catalog, database: int) -> None:
    make_table(empty_catalog, database, "t_b_c_key")
    assert [index.name for index in make_table(empty_catalog, database).indexes] == ["t_pkey", "t_b_c_key1"]


def test_name_in_use_is_rejected(empty_catalog: Catalog, database: int) -> None:
    make_table(empty_catalog, database)
    with pytest.raises(PostgresError, match='relation "t" already exists') as caught:
        make_table(empty_catalog, database)
    assert caught.value.sqlstate == "42P07"


def test_changes_of_a_table_reach_its_dependents(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    with empty_catalog.begin() as transaction:
        cursor = transaction.cursor
        attribute.rename_column(cursor, table, 1, "A b")
        removal.drop_column(cursor, table, 3)
        pg_class.rename(cursor, table, "u")
        pg_class.set_replica_identity(cursor, table, "f")
        added = attribute.add_column(cursor, empty_catalog.next_oid, relation.get(cursor, database, table.oid), Column(0, "d", t.BOOL))
    altered = relation.get(empty_catalog.cursor(), database, table.oid)
    assert added == 4
    assert (altered.name, [column.name for column in altered.columns]) == ("u", ["A b", "b", "d"])
    assert [index.name for index in altered.indexes] == ["t_pkey"]
    assert altered.identity_key() is None
    texts = "SELECT indkeytext FROM hg.pg_index WHERE dbid = ? AND indrelid = ?"
    assert empty_catalog.cursor().execute(texts, [database, table.oid]).fetchall() == [('"A b"',)]


def test_dropping_a_table_leaves_no_row_behind(empty_catalog: Catalog, database: int) -> None:
    described = make_table(empty_catalog, database)
    empty_catalog.change(lambda cursor: removal.drop(cursor, database, described.oid))
    cursor = empty_catalog.cursor()
    for table in ("pg_class", "pg_attribute", "pg_attrdef", "pg_index", "pg_constraint", "pg_type", "pg_depend"):
        assert cursor.execute(f"SELECT count(*) FROM hg.{table} WHERE dbid = ?", [database]).fetchall() == [(0,)], table


def test_rolled_back_transaction_leaves_nothing(empty_catalog: Catalog, database: int) -> None:
    transaction = empty_catalog.begin()
    definition.create(transaction.cursor, empty_catalog.next_oid, database, Definition(2200, "gone", [Column(0, "a", t.INT4)]))
    assert relation.lookup(empty_catalog.cursor(), database, "public", "gone") is None
    transaction.rollback()
    assert relation.lookup(empty_catalog.cursor(), database, "public", "gone") is None


def test_grant_of_a_membership_that_is_being_revoked_gets_a_serialization_failure(empty_catalog: Catalog) -> None:
    empty_catalog.change(lambda cursor: role.grant(cursor, 10, 11, 10))
    with empty_catalog.begin() as revoking, empty_catalog.begin() as granting:
        role.revoke(revoking.cursor, 10, 11)
        with pytest.raises(PostgresError) as error:
            role.grant(granting.cursor, 10, 11, 10, admin=True)
        assert error.value.sqlstate == "40001"
        granting.rollback()
    empty_catalog.change(lambda cursor: role.grant(cursor, 10, 11, 10, admin=True))
    assert role.admins(empty_catalog.cursor(), 10) == {11}
    empty_catalog.change(lambda cursor: role.revoke(cursor, 10, 11))


def test_second_writer_of_a_row_gets_a_serialization_failure(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    with empty_catalog.begin() as first:
        pg_class.set_replica_identity(first.cursor, table, "f")
        second = empty_catalog.begin()
        with pytest.raises(PostgresError) as caught:
            pg_class.set_replica_identity(second.cursor, table, "n")
        second.rollback()
    assert caught.value.sqlstate == "40001"


def test_history_returns_the_objects_at_a_position_in_the_log(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    with empty_catalog.begin() as transaction:
        cursor = transaction.cursor
        history.record(cursor, database, 0x500, 0)
        member = Member(table.oid, "(a > 1)", '{"some": "tree"}', (2, 1))
        publication.create(cursor, empty_catalog.next_oid, database, Publication(0, "p", members=(member,), schemas=(2200,)))
        published = publication.get(cursor, database, "p")
        history.record(cursor, database, 0x500, 2)
        publication.drop(cursor, database, published.oid)
        removal.drop(cursor, database, table.oid)
        history.record(cursor, database, 0x600, 0)
    cursor = empty_catalog.cursor()
    assert history.at(cursor, database, 0x4FF, 9).relations == {}
    assert history.at(cursor, database, 0x500, 1).publications == {}
    state = history.at(cursor, database, 0x5FF, 0)
    assert state.relations == {table.oid: table}
    assert state.publications == {"p": published}
    assert history.at(cursor, database, 0x600, 0).relations == {}
    assert history.changes(cursor, database, 0, 0x600) == [(0x500, 0), (0x500, 2), (0x600, 0)]
    history.prune(cursor, database, 0x700)
    assert history.at(cursor, database, 0x700, 0).publications == {}


def test_history_of_one_table_is_recorded_without_the_others(empty_catalog: Catalog, database: int) -> None:
    table, other_table = make_table(empty_catalog, database), make_table(empty_catalog, database, "other")
    with empty_catalog.begin() as transaction:
        cursor = transaction.cursor
        assert history.record(cursor, database, 0x500, 0, {table.oid}), "the first record is of all objects"
        pg_class.set_replica_identity(cursor, table, "f")
        pg_class.set_replica_identity(cursor, other_table, "f")
        assert history.record(cursor, database, 0x600, 0, {table.oid})
        assert not history.record(cursor, database, 0x600, 1, {table.oid})
        removal.drop(cursor, database, table.oid)
        assert history.record(cursor, database, 0x700, 0, {table.oid})
        publication.create(cursor, empty_catalog.next_oid, database, Publication(0, "p"))
        assert history.record(cursor, database, 0x800, 0, {other_table.oid}), "the publication has changed too"
    states = [history.at(empty_catalog.cursor(), database, lsn, 9) for lsn in (0x500, 0x600, 0x700, 0x800)]
    identities = [{oid: described.replica_identity for oid, described in state.relations.items()} for state in states]
    assert identities == [
        {table.oid: "d", other_table.oid: "d"}, {table.oid: "f", other_table.oid: "d"}, {other_table.oid: "d"}, {other_table.oid: "f"},
    ]  # fmt: skip
    assert [list(state.publications) for state in states] == [[], [], [], ["p"]]


def test_history_has_one_state_of_a_table_at_each_position(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    with empty_catalog.begin() as transaction:
        cursor = transaction.cursor
        for again, identity in ((False, "f"), (True, "n"), (True, "f")):
            pg_class.set_replica_identity(cursor, table, identity)
            assert history.record(cursor, database, 0x500, 0, {table.oid}, again=again)
    query = "SELECT count(*) FROM hg.history WHERE dbid = ? AND kind = 'relation' AND oid = ?"
    assert empty_catalog.cursor().execute(query, [database, table.oid]).fetchall() == [(1,)]
    assert history.at(empty_catalog.cursor(), database, 0x500, 0).relations[table.oid].replica_identity == "f"


def test_subscriptions_slots_and_origins_keep_their_state(empty_catalog: Catalog, database: int) -> None:
    cursor = empty_catalog.cursor()
    created = subscription.create(cursor, Subscription(empty_catalog.next_oid(), database, "s", 10, "host=x", ("p", "q"), slot_name="s"))
    subscription.add_table(cursor, database, SubscriptionRel(created.oid, 77, SyncState.INIT))
    assert subscription.set_table(cursor, SubscriptionRel(created.oid, 77, SyncState.SYNCDONE, Lsn(7)))
    assert subscription.tables(cursor, created.oid) == [SubscriptionRel(created.oid, 77, SyncState.SYNCDONE, Lsn(7))]
    subscription.change(cursor, created.oid, enabled=False, publications=("r",), slot_name=None)
    changed = subscription.get(cursor, database, "s")
    assert (changed.enabled, changed.publications, changed.slot_name) == (False, ("r",), None)
    name = f"slot_{database}"
    slot.create(cursor, slot.Slot(name, "pgoutput", database, Lsn(1), Lsn(2)))
    slot.advance(cursor, name, Lsn(2**40), Lsn(2**40 + 1))
    advanced = slot.lookup(cursor, name)
    assert advanced is not None
    assert advanced.restart_lsn == 2**40
    with pytest.raises(PostgresError, match="already exists"):
        slot.create(cursor, slot.Slot(name, "pgoutput", database, Lsn(1), Lsn(2)))
    slot.drop(cursor, name)
    origin.create(cursor, name)
    origin.advance(cursor, name, Lsn(5))
    origin.advance(cursor, name, Lsn(9), Lsn(3))
    progress = origin.progress(cursor, name)
    assert progress is not None
    assert (progress.remote_lsn, progress.local_lsn) == (9, 3)


def test_oids_are_never_assigned_twice_even_after_a_crash(tmp_path: Path) -> None:
    catalog = Catalog.create(tmp_path / "catalog.duckdb", superuser="root", password_verifier="SCRAM-SHA-256$…")
    first = [catalog.next_oid() for _ in range(100)]
    assert first[0] == 16384
    assert len(set(first)) == 100
    stored = role.get(catalog.cursor(), "root")
    assert stored.superuser
    assert stored.verifier == "SCRAM-SHA-256$…"
    catalog.close()
    again = Catalog.open(tmp_path / "catalog.duckdb")
    assert again.next_oid() > first[-1]
    again.close()


def test_history_of_a_partition_and_of_a_sequence_is_recorded_separately(empty_catalog: Catalog, database: int) -> None:
    table = make_table(empty_catalog, database)
    partition, sequence = replace(table, parent=1), replace(table, kind=RelationKind.SEQUENCE)
    assert history.touched(partition, partition) == history.touched(sequence) == {table.oid}
    assert history.touched(replace(table, kind=RelationKind.PARTITIONED_TABLE)) is None, "its partitions are altered with it"
