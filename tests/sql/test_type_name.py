"""A type name that a publisher sends is parsed as a type name, or rejected."""

from __future__ import annotations

import pytest

from headgate.errors import PostgresError
from headgate.sql import grammar
from headgate.sql.type_name import parsed


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("integer", "int"),
        ("numeric(10,2)[]", "numeric(10, 2)[]"),
        ("character varying(5)", "varchar(5)"),
        ("timestamp(3) with time zone", "timestamp (3) with time zone"),
        ("interval day to second(3)", "interval day to second(3)"),
        ('"char"', '"char"'),
        ('public."A b"(3)[]', 'public."A b"(3)[]'),
        ('"a"";b"', '"a"";b"'),
        ("geometry(Point,4326)", "geometry(point, 4326)"),
        ("text -- and more", "text"),
    ],
)
def test_type_name_printed_by_format_type_is_parsed(text: str, spelled: str) -> None:
    for spelling in (text, spelled):
        cast = grammar.parse("SELECT NULL::text")
        cast.stmts[0].stmt.select_stmt.target_list[0].res_target.val.type_cast.type_name.CopyFrom(parsed(spelling))
        assert grammar.deparse(cast) == f"SELECT NULL::{spelled}"


@pytest.mark.parametrize(
    "text",
    [
        "", "text); CREATE ROLE p SUPERUSER; --", "text; SELECT 1", "text FROM pg_class", "text AS x", 'text COLLATE "C"', "text, 1", "text + 1",
        "int::text", "setof int", "numeric((select 1))", "a.b%TYPE", "int WHERE true", "text LIMIT 1", "text UNION SELECT 1", "text[]) OR (1",
        "text DEFAULT pg_read_file('x')", "text NOT NULL", "text PRIMARY KEY", "x" * 5000, "text\0", "text /*", "text FOR UPDATE", "text INTO x",
    ],
)  # fmt: skip
def test_anything_but_a_type_name_is_rejected(text: str) -> None:
    with pytest.raises(PostgresError) as raised:
        parsed(text)
    assert raised.value.sqlstate == "08P01"
    assert text not in raised.value.message or not text
