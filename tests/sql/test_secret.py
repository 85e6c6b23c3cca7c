"""Passwords in statements are hidden in the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sql.secret import hidden, hidden_error

FORMS = [
    "'geheim'",
    "E'geheim'",
    "e'ge\\'heim'",
    "U&'geheim'",
    "$$geheim$$",
    "$x$geheim$x$",
    "'geheim'\n'geheim'",
    "'ge''heim'",
    "N'geheim'",
]
STATEMENTS = [
    "CREATE ROLE bob LOGIN PASSWORD {}",
    "CREATE USER bob ENCRYPTED PASSWORD {} VALID UNTIL '2030-01-01'",
    "/* PASSWORD */ ALTER -- or\n ROLE bob WITH PASSWORD/* of bob */{}",
    'ALTER ROLE "ö" PASSWORD\n\n{}',
    "SELECT 1; ALTER USER bob PASSWORD {}; SELECT 2",
    "ALTER ROLE bob PASWORD {}",
    "UPDATE users SET password = {} WHERE id = 1",
    'INSERT INTO t ("my password") VALUES (1); UPDATE t SET "my password"=({})',
    "CREATE SUBSCRIPTION s CONNECTION {} PUBLICATION p",
    "ALTER SUBSCRIPTION s CONNECTION /**/ {}",
    'ALTER SYSTEM SET "spark.hadoop.fs.s3a.secret.key" = {}',
    "SET spark.hadoop.fs.s3a.access.key TO {}",
    "ALTER ROLE bob SET app.session_token = {}",
    "SELECT set_config('spark.hadoop.fs.s3a.secret.key', {}, false)",
    "SELECT set_config('app.password', {}, false)",
    "ALTER ROLE bob PASSWORD {",  # does not end
    "ALTER ROLE bob PASSWORD {} 'x",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_password_is_hidden_in_every_notation(statement: str, form: str) -> None:
    text = statement.replace("{}", form) if "{}" in statement else statement.replace("{", form[:-1])
    logged = hidden(text)
    assert "heim" not in logged
    assert "<hidden>" in logged


def test_rest_of_the_statement_is_shown() -> None:
    assert hidden(STATEMENTS[1].replace("{}", FORMS[3])) == "CREATE USER bob ENCRYPTED PASSWORD <hidden> VALID UNTIL '2030-01-01'"
    assert hidden(STATEMENTS[4].replace("{}", FORMS[4])) == "SELECT 1; ALTER USER bob PASSWORD <hidden>; SELECT 2"
    assert hidden("CREATE SUBSCRIPTION s CONNECTION 'host=a' PUBLICATION p WITH (slot_name = 'b')") == (
        "CREATE SUBSCRIPTION s CONNECTION <hidden> PUBLICATION p WITH (slot_name = 'b')"
    )
    for statement in (
        "ALTER ROLE bob SET search_path TO 'a'",
        "SELECT password FROM users",
        "INSERT INTO t VALUES ('a', 'https://example.com/x')",
        'GRANT role TO "user"',
        "ALTER ROLE bob PASSWORD NULL",
        'START_REPLICATION SLOT "user" LOGICAL 0/16B3748',
    ):
        assert hidden(statement) == statement


def test_passwords_of_connection_strings_are_hidden_anywhere() -> None:
    for secret in (
        "host=h password=geheim",
        "password=''ge heim''",
        "postgresql://u:geheim@h/d",
        "postgres:///?password=geheim",
        "a b PassWord = geheim",
    ):
        assert "heim" not in hidden(f"SELECT dblink('{secret}')")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER ROLE bob PASSWORD geheim",
        "ALTER ROLE bob PASSWORD ge@heim-1 LOGIN",
        "CREATE USER bob WITH ENCRYPTED PASSWORD first heim",
        "SET app.secret.key = geheim",
        "SET LOCAL mytoken TO geheim",
        "ALTER SYSTEM SET app.token = geheim",
        "ALTER ROLE bob SET app.token TO geheim",
        "CREATE SUBSCRIPTION s CONNECTION host=h password=geheim PUBLICATION p",
    ],
)
def test_secret_without_quotes_is_hidden_with_the_rest_of_the_statement(statement: str) -> None:
    logged = hidden(statement)
    assert "heim" not in logged
    assert logged.endswith("<hidden>")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER ROLE bob PASSWORD NULL LOGIN",
        "ALTER ROLE bob CONNECTION LIMIT 5",
        "SET app.token TO DEFAULT",
        "ALTER ROLE password SET a.b = c",
        "UPDATE users SET password = name",
        "CREATE TABLE users (password text, token int)",
        "ALTER TABLE users ADD password text",
    ],
)
def test_words_that_are_not_secrets_are_shown(statement: str) -> None:
    assert hidden(statement) == statement


def test_long_statement_is_truncated() -> None:
    assert hidden("SELECT " + "1," * 1_000_000) == ("SELECT " + "1," * 1_000_000)[: 1 << 20] + "..."
    assert hidden(" " * 100_000 + "ALTER ROLE bob PASSWORD geheim") == " " * 100_000 + "ALTER ROLE bob PASSWORD<hidden>"
    assert hidden(" " * 65_520 + "ALTER ROLE bob PASSWORD 'geheim'").endswith("PASSWORD<hidden>")


def test_text_that_cannot_be_scanned_is_truncated() -> None:
    assert hidden("ALTER USER bob PASSWORD geheim 12ab") == "ALTER USER bob PASSWORD<hidden>"
    assert hidden("ALTER USER bob /* PASSWORD 'x") == "ALTER USER bob /* PASSWORD<hidden>"


def test_errors_do_not_repeat_the_password() -> None:
    assert hidden_error('unterminated quoted string at or near "\'geheim"') == 'unterminated quoted string at or near "<hidden>"'
    assert hidden_error("syntax error at or near \"E'geheim'\"") == 'syntax error at or near "<hidden>"'
    assert hidden_error('invalid connection string syntax: missing "=" after "geheim" in connection info string\n').endswith(
        "syntax: <hidden>"
    )
    assert hidden_error('syntax error at or near "geheim"', "ALTER ROLE bob PASSWORD geheim", 25) == 'syntax error at or near "<hidden>"'
    assert hidden_error('syntax error at or near "PASWORD"', "ALTER ROLE bob PASWORD 'geheim'", 16).endswith('"PASWORD"')
    assert hidden_error('syntax error at or near "PASWORD"') == 'syntax error at or near "PASWORD"'


def test_unbalanced_quote_before_the_password_does_not_expose_it() -> None:
    assert hidden("'\nALTER ROLE x PASSWORD e'ge\\'heim'") == "<hidden>"


@given(st.text(), st.sampled_from(FORMS))
def test_password_is_hidden_after_any_text(before: str, form: str) -> None:
    logged = hidden(f"{before}\nALTER ROLE x PASSWORD {form}")
    if "heim" not in before:
        assert "heim" not in logged or "--" in before
