"""Types have PostgreSQL's oids and names and are printed by format_type. A result counts its rows."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from tests.types.conftest import enum_of

from headgate.errors import PostgresError
from headgate.types import registry, resultset, storage, typmod
from headgate.types.text import text

SPELLINGS = ["int", "integer", "bigint", "smallint", "boolean", "real", "double precision", "Double  Precision", "decimal", "numeric",
             "character varying", "varchar", "bpchar", "timestamp with time zone", "time without time zone", "text[]", "int4[]"]  # fmt: skip
MODIFIED = [(registry.NUMERIC, [10, 2]), (registry.NUMERIC, [5, -2]), (registry.NUMERIC, [7]), (registry.VARCHAR, [5]), (registry.BPCHAR, [3]),
            (registry.BIT, [3]), (registry.VARBIT, [9]), (registry.TIMESTAMP, [3]), (registry.TIMESTAMPTZ, [0]), (registry.TIME, [6]),
            (registry.INTERVAL, [2])]  # fmt: skip


def test_every_builtin_type_is_printed_as_by_postgresql(oracle) -> None:
    rows = oracle.connection.execute(
        "SELECT oid::int8, format_type(oid, NULL), format_type(oid, -1) FROM pg_type WHERE oid < 16384"
    ).fetchall()
    assert [(oid, registry.format_type(oid), registry.format_type(oid, -1)) for oid, _, _ in rows] == rows


@pytest.mark.parametrize(("oid", "arguments"), MODIFIED)
def test_type_modifier_is_the_number_that_postgresql_stores(oracle, oid: int, arguments: list[int]) -> None:
    name = registry.by_oid(oid).name
    modifier = typmod.from_arguments(oid, name, arguments)
    declared = f"{registry.format_type(oid, modifier)}"
    assert oracle.type_of(declared) == (oid, modifier)
    array = registry.by_oid(oid).array
    query = "SELECT format_type(%s::int8::oid, %s), format_type(%s::int8::oid, %s)"
    assert oracle.connection.execute(query, (oid, modifier, array, modifier)).fetchone() == (
        declared,
        registry.format_type(array, modifier),
    )


@pytest.mark.parametrize("name", SPELLINGS)
def test_sql_spellings_name_the_types(oracle, name: str) -> None:
    assert (registry.by_name(name).oid,) == oracle.connection.execute("SELECT to_regtype(%s)::oid::int8", (name,)).fetchone()


def test_unknown_type_is_undefined_object() -> None:
    with pytest.raises(PostgresError, match='type "nosuch" does not exist') as refused:
        registry.by_name("nosuch")
    assert refused.value.sqlstate == "42704"


def test_registered_enum_checks_its_labels() -> None:
    types = registry.builtin().extended(enum_of(16400, 16399, "public", "mood", ("sad", "happy")))
    assert types.by_name("mood[]").oid == 16399
    assert text.read_text(pa.array(["happy", None]), 16400, registry=types).to_pylist() == ["happy", None]
    assert text.read_text(pa.array(["{sad,NULL}"]), 16399, registry=types).to_pylist() == ["{sad,NULL}"]
    with pytest.raises(PostgresError, match='invalid input value for enum mood: "angry"'):
        text.read_text(pa.array(["angry"]), 16400, registry=types)


def test_name_without_schema_is_searched_along_the_path() -> None:
    types = [*enum_of(16400, 16399, "public", "mood", ("sad",)), *enum_of(16402, 16401, "other", "mood", ("x",))]
    along = registry.builtin().extended(types, ("other", "public"))
    assert (along.by_name("mood").oid, along.by_name("mood[]").oid, along.by_name("mood", "public").oid) == (16402, 16401, 16400)
    assert registry.builtin().extended(types, ("nothing",)).find_name("mood") is None
    assert registry.builtin().extended(types, ("nothing",)).anywhere().by_name("mood").oid == 16400


def test_pickled_registry_contains_only_user_types() -> None:
    types = registry.builtin().extended(enum_of(16400, 16399, "public", "mood", ("sad", "happy")), ("public",))
    pickled = pickle.dumps(types)
    assert len(pickled) < 2000
    assert pickle.loads(pickled).by_name("mood").labels == ("sad", "happy")


@pytest.mark.parametrize(
    ("oid", "modifier", "arrow", "delta"),
    [
        (registry.INT2, -1, pa.int16(), spark.ShortType()),
        (registry.NUMERIC, typmod.numeric(38, 38), pa.decimal128(38, 38), spark.DecimalType(38, 38)),
        (registry.NUMERIC, typmod.numeric(39, 2), pa.string(), spark.StringType()),
        (registry.NUMERIC, typmod.numeric(3, -1), pa.string(), spark.StringType()),
        (registry.NUMERIC, -1, pa.string(), spark.StringType()),
        (registry.TIMESTAMP, 3, pa.timestamp("us"), spark.TimestampNTZType()),
        (registry.TIMESTAMPTZ, -1, pa.timestamp("us", tz="UTC"), spark.TimestampType()),
        (registry.BYTEA, -1, pa.binary(), spark.BinaryType()),
        (registry.INT4_ARRAY, -1, pa.string(), spark.StringType()),
    ],
)
def test_type_has_the_same_storage_in_arrow_and_in_spark(oid: int, modifier: int, arrow: pa.DataType, delta: spark.DataType) -> None:
    assert (storage.arrow_type(oid, modifier), storage.spark_type(oid, modifier)) == (arrow, delta)


def test_result_counts_the_rows_that_are_read() -> None:
    result = resultset.of_rows([resultset.ResultColumn("a", registry.INT4)], [["1"], [None]])
    assert [batch.num_rows for batch in result] == [2]
    assert (result.command_tag, result.columns[0].type_length) == ("SELECT 2", 4)
