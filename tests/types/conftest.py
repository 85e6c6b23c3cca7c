"""An oracle for the tests of types: it returns how PostgreSQL stores a text that is inserted into a column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa
import pytest

from headgate.errors import PostgresError
from headgate.types import registry
from headgate.types.text import text
from headgate.types.text_column import PLAIN, TextSettings

TRY = """
CREATE FUNCTION try_input(type text, value text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE shown text; state text; message text; detail text;
BEGIN
  EXECUTE format('INSERT INTO pg_temp.%I(v) VALUES (%L) RETURNING format(''%%s'', v)', type, value) INTO shown;
  RETURN ARRAY[shown, NULL, NULL, NULL];
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
  RETURN ARRAY[NULL, state, message, nullif(detail, '')];
END $$
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a value: its text, or an error."""

    shown: str | None
    sqlstate: str | None = None
    message: str | None = None
    detail: str | None = None


def enum_of(oid: int, array: int, schema: str, name: str, labels: tuple[str, ...]) -> tuple[registry.PgType, registry.PgType]:
    """Return the two types that CREATE TYPE … AS ENUM creates."""
    nothing = {"by_value": False, "delimiter": ",", "base": 0, "base_typmod": -1, "collation": 0, "relation": 0, "has_typmod": False}
    own = registry.PgType(oid, name, schema, registry.TypeKind.ENUM, "E", False, 4, element=0, array=array, plain=name, unmodified=name,
                          labels=labels, **nothing)  # fmt: skip
    array_name = name + "[]"
    over = registry.PgType(array, "_" + name, schema, registry.TypeKind.BASE, "A", False, -1, element=oid, array=0, plain=array_name,
                           unmodified=array_name, **nothing)  # fmt: skip
    return own, over


COMPOSITE = {"a": "int4", "b": "text", "c": "numeric(6,2)", "d": "mood", "e": "int4range", "f": "timestamptz", "g": "text[]"}
"""The columns of the composite type of the tests."""


def composite_of(oid: int, array: int, columns: tuple[registry.Attribute, ...]) -> tuple[registry.PgType, registry.PgType]:
    """Return the two types that CREATE TYPE thing AS (…) creates."""
    own, over = enum_of(oid, array, "public", "thing", ())
    return replace(own, kind=registry.TypeKind.COMPOSITE, category="C", length=-1, attributes=columns), over


class Oracle:
    """A PostgreSQL session with a temporary table for each type."""

    def __init__(self, conninfo: str) -> None:
        self.connection = psycopg.connect(conninfo, autocommit=True)
        self.connection.execute(TRY)
        self.connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy', 'it''s é')")
        listed = ", ".join(f"{name} {kind}" for name, kind in COMPOSITE.items())
        self.connection.execute(f"CREATE TYPE thing AS ({listed})")
        self.tables: set[str] = set()

    @contextmanager
    def under(self, timezone: str, styles: TextSettings = PLAIN) -> Iterator[None]:
        """Set this time zone and these styles inside the context. The defaults are restored at the end."""
        self.connection.execute(f"SET timezone = '{timezone}'")
        self.connection.execute(f"SET datestyle = {styles.date_style}, {styles.date_order}; SET intervalstyle = {styles.interval_style}")
        try:
            yield
        finally:
            self.connection.execute("RESET timezone; RESET datestyle; RESET intervalstyle")

    def table(self, type_name: str) -> str:
        name = "of " + type_name.replace('"', "")
        if name not in self.tables:
            self.connection.execute(f'CREATE TEMP TABLE "{name}" (v {type_name})')
            self.tables.add(name)
        return name

    def enter(self, type_name: str, values: Sequence[str]) -> list[Outcome]:
        """Return PostgreSQL's result for each value in a column of the type."""
        query = "SELECT try_input(%s, x) FROM unnest(%s::text[]) WITH ORDINALITY u(x, n) ORDER BY n"
        return [Outcome(*row[0]) for row in self.connection.execute(query, (self.table(type_name), list(values)))]

    def type_of(self, type_name: str) -> tuple[int, int]:
        """Return the oid and the modifier of a column of the type."""
        query = "SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum = 1"
        row = self.connection.execute(query, (f'pg_temp."{self.table(type_name)}"',)).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def attributes(self, type_name: str) -> tuple[registry.Attribute, ...]:
        """Return the columns of a composite type."""
        query = "SELECT attname, atttypid, atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 ORDER BY attnum"
        return tuple(registry.Attribute(*row) for row in self.connection.execute(query, (type_name,)))

    def oids(self, type_name: str) -> tuple[int, int]:
        """Return the oids of a type and of its array type."""
        row = self.connection.execute("SELECT oid, typarray FROM pg_type WHERE typname = %s", (type_name,)).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def stored(self, type_name: str, values: Sequence[str]) -> tuple[bytes, bytes]:
        """Return the values that the type accepts, and a NULL, as COPY writes them, in text and in binary format."""
        table = self.table(type_name)
        self.connection.execute(f'TRUNCATE pg_temp."{table}"; INSERT INTO pg_temp."{table}" VALUES (NULL)')
        self.enter(type_name, values)
        query = f'SELECT v FROM pg_temp."{table}"'
        return self.copy_out(query, "text"), self.copy_out(query, "binary")

    def copy_out(self, query: str, form: str) -> bytes:
        with self.connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT {form})") as copy:
            return b"".join(bytes(part) for part in copy)


@pytest.fixture(scope="module")
def oracle(postgres) -> Iterator[Oracle]:
    """A separate oracle for each module, because other tests of the process do not know the type mood."""
    type_oracle = Oracle(postgres.conninfo(postgres.new_database()))
    registry_before = registry.known()
    moods = enum_of(*type_oracle.oids("mood"), "public", "mood", ("sad", "happy", "it's é"))
    registry.use(registry_before.extended([*moods, *composite_of(*type_oracle.oids("thing"), type_oracle.attributes("thing"))]))
    yield type_oracle
    registry.use(registry_before)
    type_oracle.connection.close()


def read_and_write(value: str, oid: int, modifier: int, session: TextSettings) -> Outcome:
    """Return headgate's result for a value."""
    try:
        stored = text.read_text(pa.array([None, value], pa.string()), oid, modifier, session=session)
        return Outcome(text.write_text(stored, oid, session=session)[1].as_py())
    except PostgresError as error:
        return Outcome(None, error.sqlstate, error.message, error.detail)


NO_DETAIL = {"int4[]", "text[]", "xml"}
"""Types whose DETAIL has other words for some malformed values (docs/types.md)."""

NO_MESSAGE = {"jsonpath"}
"""Types whose errors name another part of a malformed value than PostgreSQL's."""


def compare(oracle: Oracle, type_name: str, values: list[str], timezone: str = "UTC", styles: TextSettings = PLAIN) -> None:
    """Compare headgate with PostgreSQL under a time zone, a DateStyle and an IntervalStyle."""
    session = replace(styles, timezone=timezone)
    oid, modifier = oracle.type_of(type_name)
    good: list[tuple[str, str]] = []
    with oracle.under(timezone, styles):
        entered = oracle.enter(type_name, values)
    for value, expected in zip(values, entered, strict=True):
        outcome = read_and_write(value, oid, modifier, session)
        if expected.sqlstate is None and outcome.sqlstate == "0A000" and outcome.message.startswith("cannot store"):
            continue
        if type_name in NO_MESSAGE:
            assert (outcome.shown, outcome.sqlstate) == (expected.shown, expected.sqlstate), (type_name, value)
        elif type_name in NO_DETAIL:
            assert (outcome.shown, outcome.sqlstate, outcome.message) == (expected.shown, expected.sqlstate, expected.message), (
                type_name,
                value,
            )
        else:
            assert outcome == expected, (type_name, value, session)
        if expected.shown is not None:
            good.append((value, expected.shown))
    if good:
        column = pa.array([value for value, _ in good], pa.string())
        stored = text.read_text(column, oid, modifier, session=session)
        assert text.write_text(stored, oid, session=session).to_pylist() == [shown_text for _, shown_text in good]


@pytest.fixture(scope="module")
def check(oracle: Oracle) -> Callable[..., None]:
    """Compare headgate with PostgreSQL on values of a type."""
    return lambda *arguments: compare(oracle, *arguments)
