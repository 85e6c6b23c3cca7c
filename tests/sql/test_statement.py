"""Statements that are made of what a publisher says: a name is a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.errors import PostgresError
from headgate.sql import command_tag, statement
from headgate.sql.parser import parse


@pytest.mark.parametrize(
    "made",
    [
        lambda: statement.column("", statement.type_name("pg_catalog", "text")), lambda: statement.create_table("s", "", ()),
        lambda: statement.alter_table("", "t", ()), lambda: statement.create_schema(""), lambda: statement.create_enum("s", "", ("",)),
        lambda: statement.create_domain("", "d", statement.type_name("pg_catalog", "text"), ()),
        lambda: statement.rename_column("s", "t", "a", ""),
    ],
)  # fmt: skip
def test_a_name_of_no_length_is_refused(made: Callable[[], Any]) -> None:
    """A publisher that sent one as a column's had it added; no query of the table was answered after that."""
    with pytest.raises(PostgresError, match="zero-length delimited identifier"):
        made()


@pytest.mark.parametrize(
    ("statement", "tag"),
    [
        ("CREATE TABLESPACE s LOCATION '/x'", "CREATE TABLESPACE"), ("DROP TABLESPACE s", "DROP TABLESPACE"),
        ("CREATE SERVER s FOREIGN DATA WRAPPER w", "CREATE SERVER"), ("CREATE STATISTICS s ON a, b FROM t", "CREATE STATISTICS"),
        ("CREATE ACCESS METHOD m TYPE TABLE HANDLER h", "CREATE ACCESS METHOD"), ("REFRESH MATERIALIZED VIEW v", "REFRESH MATERIALIZED VIEW"),
        ("CREATE PROCEDURE p() LANGUAGE sql AS ''", "CREATE PROCEDURE"), ("SECURITY LABEL ON TABLE t IS 'x'", "SECURITY LABEL"),
    ],
)  # fmt: skip
def test_a_command_has_the_name_that_postgresql_gives_it(statement: str, tag: str) -> None:
    [parsed] = parse(statement)
    assert command_tag.of(parsed.node) == tag
