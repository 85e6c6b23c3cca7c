"""The sql package parses statements, positions, names, type names and options as PostgreSQL does."""

from __future__ import annotations

import postgast
import pytest
from postgast.pg_query_pb2 import ParseResult

from headgate.errors import PostgresError
from headgate.sql import names, options, parser_process
from headgate.sql.parser import SMALL, parse, parse_expression, unwrap, walk
from headgate.sql.parser_process import TREE


def error(text: str) -> PostgresError:
    with pytest.raises(PostgresError) as caught:
        parse(text)
    return caught.value


def test_query_string_is_split_into_statements() -> None:
    statements = parse("SELECT 'é'; SELECT 2 ;; -- end\n")
    assert [(statement.kind, statement.source) for statement in statements] == [("SelectStmt", "SELECT 'é'"), ("SelectStmt", "SELECT 2")]
    assert parse(" -- nothing\n") == []


def test_locations_count_characters() -> None:
    text = "SELECT 'éé', b FROM t"
    [statement] = parse(text)
    locations = [message.location for message in walk(statement.node) if message.DESCRIPTOR.name == "ColumnRef"]
    assert locations == [text.index("b")]


@pytest.mark.parametrize(
    ("text", "state", "message", "position"),
    [
        ("CREATE PUBLICATIN p", "42601", 'syntax error at or near "PUBLICATIN"', 8),
        ("SELECT 'é', foo(", "42601", "syntax error at end of input", 17),
        ("CREATE PUBLICATION p FOR TABLE p1, CURRENT_SCHEMA", "42601", "invalid table name", 36),
        ("SELECT 1; mERGE INTO t USING u ON true WHEN MATCHED THEN DELETE RETURNING *", "42601", 'syntax error at or near "RETURNING"', 65),
        ("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) VIRTUAL)", "42601", 'syntax error at or near "VIRTUAL"', 58),
        ("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + (1)))", "42601", 'syntax error at or near ")"', 59),
        ("CREATE TABLE bad (a int) PARTITION BY MAGIC (a)", "22023", 'unrecognized partitioning strategy "magic"', None),
    ],
)
def test_syntax_errors_have_postgresqls_text_and_position(text: str, state: str, message: str, position: int | None) -> None:
    raised = error(text)
    assert (raised.sqlstate, raised.message, raised.position) == (state, message, position)


CHAINS = {"sums": "+1", "casts": "::int", "unions": " UNION SELECT 1", "tests": " ISNULL"}


@pytest.mark.parametrize("link", CHAINS.values(), ids=CHAINS)
def test_statement_that_nests_deeper_than_the_stack_is_an_error(link: str) -> None:
    for start in ("SELECT 1", "EXPLAIN SELECT 1"):
        for size in (1 << 14, 1 << 20):
            assert error(start + link * (size // len(link))).sqlstate == "54001"


@pytest.mark.parametrize("link", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("behind", ["", f" -- {'x' * SMALL}"])
def test_tree_of_a_hundred_levels_is_read(link: str, behind: str) -> None:
    [statement] = parse("SELECT 1" + link * 250 + behind)
    assert len(list(walk(statement.node))) > 250


def test_deparser_handles_every_tree_that_can_be_read() -> None:
    for start, link, end in (("", "- ", "a"), ("", "f(", "1" + ")" * 300), ("1", "::int", ""), ("", "NOT ", "a")):
        [statement] = parse(f"SELECT {start}{link * 300}{end}")
        tree = postgast.parse("SELECT 1")
        tree.stmts[0].stmt.select_stmt.CopyFrom(statement.node)
        assert len(postgast.deparse(tree)) > 300


def test_large_statement_is_parsed_like_a_small_one() -> None:
    text = "SELECT 'é', b, '" + "x" * SMALL + "', c FROM t; SELECT 2"
    first, second = parse(text)
    locations = [message.location for message in walk(first.node) if message.DESCRIPTOR.name == "ColumnRef"]
    assert locations == [text.index("b,"), text.index("c FROM")]
    assert second.source == "SELECT 2"
    raised = error("SELECT 'é', '" + "x" * SMALL + "', foo(")
    assert (raised.sqlstate, raised.message, raised.position) == ("42601", "syntax error at end of input", SMALL + 21)


@pytest.mark.slow  # half a minute
def test_statement_with_more_parts_than_memory_is_rejected() -> None:
    raised = error("SELECT 1 IN (1" + ",1" * (TREE // 8) + ")")
    assert (raised.sqlstate, raised.message) == ("53200", "out of memory")


def test_object_list_without_keyword_is_an_error_that_names_the_keyword() -> None:
    assert error("CREATE PUBLICATION p FOR t").detail == (
        "One of TABLE or TABLES IN SCHEMA must be specified before a standalone table or schema name."
    )


@pytest.mark.parametrize(
    ("text", "sqlstate", "hint", "position"),
    [
        (r"SELECT E'wrong: \u061'", "22025", r"Unicode escapes must be \uXXXX or \UXXXXXXXX.", 17),
        (r"SELECT U&'wrong: \061'", "42601", r"Unicode escapes must be \XXXX or \+XXXXXX.", 18),
    ],
)
def test_malformed_unicode_escape_has_a_hint(text: str, sqlstate: str, hint: str, position: int) -> None:
    raised = error(text)
    assert (raised.sqlstate, raised.message, raised.hint, raised.position) == (sqlstate, "invalid Unicode escape", hint, position)


def test_stored_expression_is_parsed_again() -> None:
    assert parse_expression("(a > 5)").DESCRIPTOR.name == "A_Expr"


def test_identifiers_are_quoted_only_if_needed() -> None:
    identifiers = ["t", "T", "select", "a b", 'a"b', "name", "é", "_x1$", "1a", "between", "user"]
    assert [names.quote_ident(name) for name in identifiers] == [
        "t",
        '"T"',
        '"select"',
        '"a b"',
        '"a""b"',
        "name",
        '"é"',
        "_x1$",
        '"1a"',
        '"between"',
        '"user"',
    ]


def test_identifier_lists_are_split() -> None:
    assert names.split_identifiers('INSERT, "Update" , x') == ["insert", "Update", "x"]
    assert names.split_identifiers("") == []
    assert names.split_identifiers("insert update") is None
    assert names.split_identifiers("a,,b") is None


def column_type(sql: str) -> tuple[int, int]:
    [statement] = parse(f"CREATE TABLE t (a {sql})")
    return names.type_name(unwrap(statement.node.table_elts[0]).type_name)


def test_type_names_are_resolved_with_their_modifiers() -> None:
    assert column_type("int") == (23, -1)
    assert column_type("numeric(10,2)") == (1700, 655366)
    assert column_type("varchar(5)[]") == (1015, 9)
    assert column_type("char") == (1042, 5)
    assert column_type("timestamp(3) with time zone") == (1184, 3)
    assert column_type("interval year to month") == (1186, 458751)
    with pytest.raises(PostgresError) as caught:
        column_type("intt")
    assert (caught.value.sqlstate, caught.value.message, caught.value.position) == ("42704", 'type "intt" does not exist', 19)


def test_options_are_read_by_postgresqls_rules() -> None:
    [statement] = parse("CREATE PUBLICATION p WITH (publish = 'insert', publish_via_partition_root, x = 1, y = foo, z = off)")
    read = options.unique(statement.node.options)
    assert {name: option.value for name, option in read.items()} == {
        "publish": "insert",
        "publish_via_partition_root": None,
        "x": "1",
        "y": "foo",
        "z": "off",
    }
    assert (read["publish_via_partition_root"].boolean(), read["x"].boolean(), read["z"].boolean()) == (True, True, False)
    with pytest.raises(PostgresError, match="y requires a Boolean value"):
        read["y"].boolean()
    [statement] = parse("CREATE PUBLICATION p WITH (a = 1, a = 2)")
    with pytest.raises(PostgresError, match="conflicting or redundant options") as caught:
        options.unique(statement.node.options)
    assert caught.value.position == 35


@pytest.mark.parametrize("text", [
    "VALUES " + ", ".join(["(1, 'ä')"] * 100_000),
    f"SELECT 1, '{'x' * 3_000_000}', (SELECT {', '.join(['a.b'] * 100_000)} FROM x WHERE a IN ({', '.join(['$1'] * 100_000)}))",
    "SELECT 1; " * 50_000,
    "SELECT " + "f(" * 120 + f"'{'y' * 600_000}', {', '.join(['1'] * 50_000)}" + ")" * 120,
])  # fmt: skip
def test_tree_received_in_parts_is_the_whole_tree(text: str) -> None:
    kind, encoded = parser_process._parsed(text.encode())
    whole = ParseResult()
    parser_process._merge_deep(whole, encoded)
    parts = list(parser_process.cut(encoded))
    assert kind in (b"T", b"W")
    assert max(len(part) for operation, part in parts if operation == b"+") < 2 * parser_process.PART + 3_000_000
    assert len(parts) > 4
    assert parser_process.parse_apart(text.encode())[0] == whole
