"""headgate.explain_row explains why a row is at the subscriber, at the publisher, or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from tests.conftest import Server, until
from tests.system.chain import Database, subscribe

from headgate.verify.explanation import terms

TABLE = "CREATE TABLE o (id int, region text, amount numeric(10,2), note text, PRIMARY KEY (id, region))"
HEIR = "CREATE TABLE heir () INHERITS (o); INSERT INTO heir VALUES (9, 'eu', 9, 'a row of a child, which is none of its parent')"
LINES = "SELECT what, publication, present, passes, filter, columns, publish FROM headgate.explain_row('{}', 'o', '{}')"


@dataclass
class Pair:
    publisher: Database
    lake: Database

    def lines(self, key: str, name: str = "s") -> list[str]:
        return self.lake.sql(LINES.format(name, key)).splitlines()


@pytest.fixture(scope="module", params=["postgres", pytest.param("node", marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest, node: Server) -> Iterator[Pair]:
    publisher, lake = Database.new(request.getfixturevalue(request.param)), Database.new(node)
    publisher.sql(
        f"""{TABLE}; INSERT INTO o VALUES (1, 'eu', 10, 'a'), (2, 'us', 200, NULL), (3, 'eu', NULL, 'c');
        CREATE PUBLICATION p FOR TABLE o (id, region, amount) WHERE (region = 'eu' AND (id > 1 OR id < 0));
        CREATE PUBLICATION q WITH (publish = 'insert, delete'); {HEIR}"""
    )
    lake.sql(f"{TABLE}; {HEIR}")
    subscribe(lake, publisher, "s", "p, q")
    yield Pair(publisher, lake)
    lake.unsubscribe()


FILTER = "((region = 'eu'::text) AND ((id > 1) OR (id < 0)))"
PUBLISHED = "id, region, amount|insert, update, delete, truncate"
ABSENT = "here||f|||no change of it is known|"
NOWHERE = "publication|q|{}|f||the table is not in the publication|insert, delete"


def test_each_term_of_a_filter_is_shown_with_its_value(pair: Pair) -> None:
    assert pair.lines('{"id": 1, "region": "eu"}') == [
        f"publication|p|t|f|{FILTER}|{PUBLISHED}",
        "term|p||t|region = 'eu'::text||", "term|p||f|id > 1||", "term|p||f|id < 0||",
        NOWHERE.format("t"), ABSENT,
    ]  # fmt: skip
    assert pair.lines('{"id": 3, "region": "eu"}')[0] == f"publication|p|t|t|{FILTER}|{PUBLISHED}"
    assert pair.lines('{"id": 3, "region": "eu"}')[-1] == "here||t||||"


def test_missing_row_is_reported(pair: Pair) -> None:
    assert pair.lines('{"id": 9, "region": "eu"}') == [
        f"publication|p|f|f|{FILTER}|{PUBLISHED}",
        "term|p|||region = 'eu'::text||", "term|p|||id > 1||", "term|p|||id < 0||",
        NOWHERE.format("f"), ABSENT,
    ]  # fmt: skip


def test_last_entry_that_changed_a_row_is_named_with_its_origin(pair: Pair) -> None:
    touched = (
        "SELECT lsn IS NOT NULL, time > now() - interval '1 hour', origin FROM headgate.explain_row('s', 'o', '{}') WHERE what = 'here'"
    )
    pair.publisher.sql("INSERT INTO o VALUES (50, 'eu', 1, 'x')")
    pair.lake.wait("SELECT count(*) FROM o WHERE id = 50", "1")
    assert pair.lake.sql(touched.format('{"id": 50, "region": "eu"}')) == "t|t|s"
    pair.lake.sql("UPDATE o SET note = 'here' WHERE id = 50")
    assert pair.lake.sql(touched.format('{"id": 50, "region": "eu"}')) == "t|t|"
    lsn_before = pair.lake.sql("SELECT lsn FROM headgate.explain_row('s', 'o', '{\"id\": 50}') WHERE what = 'here'")
    pair.lake.sql("INSERT INTO o VALUES (60, 'eu', 1, 'y')")
    assert pair.lake.sql("SELECT lsn FROM headgate.explain_row('s', 'o', '{\"id\": 50}') WHERE what = 'here'") == lsn_before
    pair.publisher.sql("DELETE FROM o WHERE id = 50")
    pair.lake.wait("SELECT count(*) FROM o WHERE id = 50", "0")
    assert pair.lake.sql(touched.format('{"id": 50, "region": "eu"}')) == "t|t|s"
    pair.lake.sql("DELETE FROM o WHERE id = 60")


@pytest.mark.slow
def test_change_whose_log_entry_was_removed_is_reported_as_unknown_with_the_reason(pair: Pair) -> None:
    pair.publisher.sql("INSERT INTO o VALUES (70, 'eu', 1, 'x')")
    pair.lake.wait("SELECT count(*) FROM o WHERE id = 70", "1")
    pair.lake.sql("INSERT INTO o VALUES (71, 'eu', 1, 'y')")  # the last entry always stays
    # slots that other test files left on the node keep the log
    pair.lake.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    unknown = "here||t|||the last change is not known any more: its entry of the log was removed, because no slot needs it|"

    def forgotten() -> bool:
        pair.lake.sql("CHECKPOINT")
        return pair.lines('{"id": 70, "region": "eu"}')[-1] == unknown

    until(forgotten, "the entry is still in the log")


def test_publisher_explains_its_own_publication(node: Server) -> None:
    database = Database.new(node)
    database.sql(
        f"""{TABLE}; INSERT INTO o VALUES (1, 'eu', 10, 'a'); CREATE PUBLICATION p FOR TABLE o WHERE (region = 'us' OR id = 1);
        CREATE PUBLICATION q FOR ALL TABLES"""
    )
    assert database.sql(LINES.format("p", '{"id": 1}')).splitlines() == [
        "publication|p|t|t|((region = 'us'::text) OR (id = 1))|all|insert, update, delete, truncate", "term|p||f|region = 'us'::text||",
        "term|p||t|id = 1||",
    ]  # fmt: skip
    assert database.sql(LINES.format("q", '{"id": 1}')) == "publication|q|t|t||all|insert, update, delete, truncate"


@pytest.mark.parametrize(
    ("call", "state"),
    [
        ("'nosuch', 'o', '{\"id\": 1}'", "42704"), ("'p', 'nosuch', '{\"id\": 1}'", "42P01"), ("'p', 'o', '{\"nosuch\": 1}'", "42703"),
        ("'p', 'o', 'id = 1'", "22023"), ("'p', 'o', '[]'", "22023"), ("'p', 'o', '{\"id\": \"x\"}'", "22P02"), ("'p', 'o', '{\"region\": \"eu\"}'", "21000"),
    ],
)  # fmt: skip
def test_arguments_that_name_no_row_are_rejected(own: Callable[[], str], call: str, state: str) -> None:
    with psycopg.connect(own(), autocommit=True) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute(f"SELECT * FROM headgate.explain_row({call})")  # type: ignore[call-overload]
    assert refused.value.sqlstate == state


@pytest.fixture(scope="module")
def own(node: Server) -> Callable[[], str]:
    database = Database.new(node)
    database.sql(f"{TABLE}; INSERT INTO o VALUES (1, 'eu', 10, 'a'), (2, 'eu', 10, 'b'); CREATE PUBLICATION p FOR TABLE o")
    return lambda: database.conninfo


@pytest.mark.parametrize(
    "filter_text",
    ["true; DROP TABLE o", "a >", "", "'", "true UNION SELECT 1 WHERE a AND b", f"{'lower(' * 600}a{')' * 600} = 'x' AND b", "a > 5"],
)
def test_filter_that_cannot_be_split_is_shown_as_a_whole(filter_text: str) -> None:
    assert terms(filter_text) == []
