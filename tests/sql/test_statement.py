"""Names that a publisher sends are only used as names in generated statements."""

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
def test_empty_name_is_rejected(made: Callable[[], Any]) -> None:
    """A column with an empty name would make the table unusable."""
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
def test_command_has_postgresqls_command_tag(statement: str, tag: str) -> None:
    [parsed] = parse(statement)
    assert command_tag.of(parsed.node) == tag
