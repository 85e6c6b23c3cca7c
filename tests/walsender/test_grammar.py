"""The replication grammar accepts PostgreSQL's replication commands and pgoutput's options."""

from __future__ import annotations

import pytest

from headgate.errors import Notices, PostgresError
from headgate.lsn import Lsn
from headgate.walsender import grammar, options
from headgate.walsender.grammar import CreateReplicationSlot, DropReplicationSlot, IdentifySystem, Show, StartReplication


def parse(text: str) -> grammar.Command | None:
    return grammar.parse(text, Notices())


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("IDENTIFY_SYSTEM", IdentifySystem()),
        (" IDENTIFY_SYSTEM ;", IdentifySystem()),
        ("SHOW wal_level", Show("wal_level")),
        ("SHOW a.b", Show("a.b")),
        ("DROP_REPLICATION_SLOT s", DropReplicationSlot("s", False)),
        ('DROP_REPLICATION_SLOT "S 1" WAIT;', DropReplicationSlot("S 1", True)),
        ("CREATE_REPLICATION_SLOT S LOGICAL pgoutput", CreateReplicationSlot("s", False, "pgoutput")),
        (
            "CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT",
            CreateReplicationSlot("s", True, "pgoutput", (("snapshot", "nothing"),)),
        ),
        (
            "CREATE_REPLICATION_SLOT s LOGICAL pgoutput TWO_PHASE USE_SNAPSHOT",
            CreateReplicationSlot("s", False, "pgoutput", (("two_phase", "true"), ("snapshot", "use"))),
        ),
        (
            "CREATE_REPLICATION_SLOT s LOGICAL pgoutput (TWO_PHASE, SNAPSHOT 'nothing')",
            CreateReplicationSlot("s", False, "pgoutput", (("two_phase", None), ("snapshot", "nothing"))),
        ),
        ("CREATE_REPLICATION_SLOT s PHYSICAL RESERVE_WAL", CreateReplicationSlot("s", False, None, (("reserve_wal", "true"),))),
        (
            "START_REPLICATION SLOT \"s\" LOGICAL 1/A (proto_version '3', \"messages\" 'true', publication_names '\"p\",\"P Quote''d\"')",
            StartReplication(
                "s", True, Lsn.parse("1/A"), (("proto_version", "3"), ("messages", "true"), ("publication_names", '"p","P Quote\'d"'))
            ),
        ),
        ("START_REPLICATION SLOT s LOGICAL 0/00000000", StartReplication("s", True, Lsn(0))),
        ("START_REPLICATION SLOT s 0/0", StartReplication("s", False, Lsn(0))),
        ("START_REPLICATION 0/0 TIMELINE 1", StartReplication(None, False, Lsn(0))),
    ],
)
def test_replication_commands_are_parsed(text: str, command: grammar.Command) -> None:
    assert parse(text) == command


@pytest.mark.parametrize("text", ["SELECT 1", "identify_system", "show wal_level", "", "-- IDENTIFY_SYSTEM", "COPY t TO STDOUT"])
def test_other_statements_are_sql(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "IDENTIFY_SYSTEM x",
        "CREATE_REPLICATION_SLOT s",
        "CREATE_REPLICATION_SLOT s LOGICAL",
        "START_REPLICATION SLOT s LOGICAL 0/X",
        "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version 1)",
        "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1'",
        "START_REPLICATION SLOT s LOGICAL 0/0 ()",
        "DROP_REPLICATION_SLOT 'a'",
    ],
)
def test_malformed_commands_are_syntax_errors(text: str) -> None:
    with pytest.raises(PostgresError) as caught:
        parse(text)
    assert (caught.value.sqlstate, caught.value.message) == ("42601", "syntax error")


def test_long_string_is_parsed_in_linear_time() -> None:
    command = grammar.parse(f"START_REPLICATION SLOT s LOGICAL 0/0 (publication_names '{'x' * 10_000_000}')", Notices())
    assert isinstance(command, grammar.StartReplication)


def test_timeline_is_a_32_bit_number_other_than_0() -> None:
    assert grammar.parse("TIMELINE_HISTORY 99999999999", Notices()) == grammar.TimelineHistory(0x4876E7FF)
    with pytest.raises(PostgresError, match="invalid timeline 0"):
        grammar.parse("TIMELINE_HISTORY 0", Notices())


def test_long_name_is_truncated_with_a_notice() -> None:
    notices = Notices()
    command = grammar.parse(f"DROP_REPLICATION_SLOT {'x' * 70}", notices)
    assert command == DropReplicationSlot("x" * 63, False)
    assert notices.said[0].sqlstate == "42622"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"p1","P Quote\'d"', ["p1", "P Quote'd"]),
        ('P , "in""ner"', ["p", 'in"ner']),
        ("", []),
        ("a b", None),
        ('"a', None),
        ("a,", None),
        (",a", None),
    ],
)
def test_publication_names_are_a_list_of_identifiers(text: str, names: list[str] | None) -> None:
    assert options.split_identifiers(text) == names


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "client sent proto_version=0 but we only support protocol 1 or higher"),
        ({"proto_version": "4", "publication_names": "p"}, "client sent proto_version=4 but we only support protocol 3 or lower"),
        ({"proto_version": "x"}, "invalid proto_version"),
        ({"proto_version": "-1"}, 'proto_version "-1" out of range'),
        ({"proto_version": "1"}, "publication_names parameter missing"),
        ({"proto_version": "1", "publication_names": "p", "foo": "x"}, "unrecognized pgoutput option: foo"),
        (
            {"proto_version": "1", "publication_names": "p", "streaming": "on"},
            "requested proto_version=1 does not support streaming, need 2 or higher",
        ),
        ({"proto_version": "1", "publication_names": "p", "binary": "x"}, "binary requires a Boolean value"),
    ],
)
def test_invalid_options_are_rejected(values: dict[str, str], problem: str) -> None:
    with pytest.raises(PostgresError) as caught:
        options.read(values.items())
    assert caught.value.message == problem
