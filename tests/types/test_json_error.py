"""Malformed json has PostgreSQL's SQLSTATE, message, DETAIL and CONTEXT."""

from __future__ import annotations

import psycopg
import pytest
from tests.types.conftest import Oracle

from headgate.errors import PostgresError
from headgate.types.base import json_text

TEXTS = (
    "",
    "''",
    '"abc',
    '"\\v"',
    '"\\u00"',
    '"\\u000g"',
    '"\\u0000"',
    "01",
    "1f2",
    "0.x1",
    "1.3ex100",
    "[1,2,]",
    "[1,2",
    "[1,[2]",
    '{"abc"}',
    '{1:"abc"}',
    '{"abc",1}',
    '{"abc"=1}',
    '{"abc"::1}',
    '{"abc":1:2}',
    '{"abc":1,3}',
    "true false",
    "true, false",
    "truf",
    "trues",
    "    ",
    '{\n\t\t"one": 1,\n\t\t"two":,"two",\n\t\t"three":\n\t\ttrue}',
    '{\n\t"one": 1,\n\t"two":"two",\n\t"averyveryveryveryveryveryveryveryveryverylongfieldname":}',
    "-",
    "1.",
    "1e",
    "[",
    "]",
    '{"a":1}}',
    '"a\\',
    '"é\\q"',
    '"ééééééééééééééééééééééééééééééééééééé\\q"',
    "NaN",
    "-Infinity",
    ".5",
    "+1",
    '{"a" "b"}',
    '["a" "b"]',
    '"\\ud83dx"',
    '"\\ude00"',
    '"\\ud83d\\ud83d"',
    '{"a":"\\u12"}',
    '"\\',
    '{"a":1,}',
    '"\\ud83d"',
    '"\\ud83d\\n"',
    "1.5.3",
    "[1,",
    '{"a":',
    "1e999999",
    "a\tb",
    '"a\tb"',
)


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_malformed_json_has_postgresqls_error(oracle: Oracle, kind: str) -> None:
    for text in TEXTS:
        assert of_headgate(text, kind) == of_postgresql(oracle.connection, text, kind), text


def of_headgate(text: str, kind: str) -> tuple[str | None, ...]:
    try:
        (json_text.checked if kind == "json" else json_text.normal)(text)
        return ()
    except PostgresError as error:
        return (error.sqlstate, error.message, error.detail, error.context)


def of_postgresql(connection: psycopg.Connection, text: str, kind: str) -> tuple[str | None, ...]:
    try:
        connection.execute(f"SELECT %s::text::{kind}", (text,))
        return ()
    except psycopg.Error as error:
        diag = error.diag
        return (diag.sqlstate, diag.message_primary, diag.message_detail, diag.context)
