"""Duplicate keys of applied rows are rejected with PostgreSQL's message, by a lookup of the rows' keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.storage.tables import DATABASE, INT8, TEXT, made, relation, rows

from headgate.catalog.relation.relation import Index
from headgate.commands.constraint import uniqueness
from headgate.errors import PostgresError
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.engine import Engine
from headgate.types import registry

T = relation(22000, "t", a=INT8, b=TEXT, c=registry.BPCHAR)


def error_detail(
    engine: Engine, *values: tuple[object, ...], attnums: tuple[int, ...] = (1,), predicate: str | None = None,
    expressions: tuple[str, ...] = (), replaced: pa.Table | None = None,
) -> str | None:  # fmt: skip
    """Return the error's DETAIL, or None if there is no error."""
    index = Index("t_key", 0, (0,) if expressions else attnums, unique=True, predicate=predicate, expressions=expressions)
    transaction = engine.begin(DATABASE)
    nothing = pa.table({"file": pa.array([], pa.string()), "row": pa.array([], pa.int64())})
    try:
        uniqueness.check_rows(transaction, T, [index], rows(T, *values), nothing if replaced is None else replaced)
        return None
    except PostgresError as error:
        refusal = error
    finally:
        transaction.rollback()
    assert (refusal.sqlstate, refusal.message) == ("23505", 'duplicate key value violates unique constraint "t_key"')
    return refusal.detail


def test_key_that_exists_in_the_table_or_twice_in_the_rows_is_rejected(engine: Engine) -> None:
    made(engine, T, (1, "x", "p  "), (5, None, "q"))
    assert error_detail(engine, (2, "x", "r"), (3, "y", "s")) is None
    assert error_detail(engine, (2, "x", "r"), (1, "y", "s")) == "Key (a)=(1) already exists."
    assert error_detail(engine, (7, "x", "r"), (7, "y", "s")) == "Key (a)=(7) already exists."
    assert error_detail(engine, (1, "x", "r"), (1, "y", "r"), attnums=(1, 2)) == "Key (a, b)=(1, x) already exists."
    assert error_detail(engine, (5, None, "r"), (5, None, "r"), attnums=(1, 2)) is None
    assert error_detail(engine, (9, "z", "p"), attnums=(3,)) == "Key (c)=(p) already exists."


def test_keys_of_rows_that_the_statement_replaces_are_free(engine: Engine) -> None:
    made(engine, T, (1, "x", "p"), (2, "y", "q"))
    transaction = engine.begin(DATABASE)
    positions = transaction.reader.positions(T).where("a = 1").select(FILE, ROW).toArrow().rename_columns(["file", "row"])
    transaction.rollback()
    assert error_detail(engine, (1, "new", "p"), replaced=positions) is None
    assert error_detail(engine, (2, "new", "p"), replaced=positions) == "Key (a)=(2) already exists."


@pytest.mark.parametrize("count", [0, 1])
def test_empty_or_single_row_has_no_duplicates(engine: Engine, count: int) -> None:
    made(engine, T)
    assert error_detail(engine, *[(1, "x", "y")] * count) is None


def test_partial_index_has_only_the_rows_that_meet_its_predicate(engine: Engine) -> None:
    made(engine, T, (1, "live", "p"), (2, "gone", "q"))
    live = "(b = 'live'::text)"
    assert error_detail(engine, (1, "live", "r"), predicate=live) == "Key (a)=(1) already exists."
    assert error_detail(engine, (1, "gone", "r"), predicate=live) is None
    assert error_detail(engine, (2, "live", "r"), predicate=live) is None
    assert error_detail(engine, (3, "live", "r"), (3, None, "s"), predicate=live) is None
    assert error_detail(engine, (3, "live", "r"), (3, "live", "s"), predicate=live) == "Key (a)=(3) already exists."


def test_key_of_an_expression_is_compared_by_its_value(engine: Engine) -> None:
    made(engine, T, (1, "One", "p"), (2, "two", "q"))
    lower, digest = ("lower(b)",), ("md5(b)",)  # evaluated by Arrow and by Spark
    assert error_detail(engine, (3, "ONE", "r"), expressions=lower) == "Key (lower(b))=(one) already exists."
    assert error_detail(engine, (3, "three", "r"), (4, None, "r"), (5, None, "r"), expressions=lower) is None
    assert error_detail(engine, (3, "four", "r"), (4, "FOUR", "r"), expressions=lower) == "Key (lower(b))=(four) already exists."
    assert error_detail(engine, (3, "ONE", "r"), expressions=digest) is None
    assert error_detail(engine, (3, "two", "r"), expressions=digest) == "Key (md5(b))=(b8a9f715dbb64fd5c56e7783c6820a61) already exists."
