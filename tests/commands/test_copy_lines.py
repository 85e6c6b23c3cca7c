"""Tasks encode the rows of COPY TO to the same messages as the driver."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from tests.storage.tables import DATABASE, change, made, relation, rows

from headgate.commands.copy import copy_lines
from headgate.commands.copy.copy_lines import RowEncoder
from headgate.commands.copy.copy_option import CopyOptions
from headgate.settings.encoding import Encoding
from headgate.storage.delta import rows as stored_rows
from headgate.storage.delta.table_state import TableState
from headgate.storage.engine import Engine
from headgate.storage.spark.failure import from_spark
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry as r
from headgate.types import typmod
from headgate.types.resultset import ResultColumn
from headgate.types.text_column import TextSettings

T = relation(
    28500, "t", id=r.INT8, f=r.FLOAT8, n=(r.NUMERIC, typmod.numeric(10, 2)), t=r.TEXT, d=r.DATE, z=r.TIMESTAMPTZ, by=r.BYTEA, b=r.BOOL
)  # fmt: skip
NAMES = [column.name for column in T.columns]
COLUMNS = tuple(ResultColumn(column.name, column.type_oid, column.typmod) for column in T.columns)


@pytest.fixture
def reader(engine: Engine) -> Transaction:
    """Return a transaction that sees a table of five files with deleted rows and NULLs."""
    made(engine, T)
    moment = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456, datetime.UTC)
    for first in range(0, 500, 100):
        values = [
            (
                number,
                number / 7,
                decimal.Decimal(number) / 4,
                f'é "{number}"\t\\',
                moment.date(),
                moment,
                bytes([number % 256]),
                number % 2 == 0,
            )
            for number in range(first, first + 99)
        ]
        writer = engine.begin(DATABASE)
        writer.append(T, rows(T, *values, (first + 99, *[None] * 7)))
        writer.commit()
    writer = engine.begin(DATABASE)
    change(writer, T, "id % 10 = 3")
    writer.commit()
    return engine.begin(DATABASE)


def messages(parts: list[pa.Array]) -> list[bytes]:
    """Return the messages of COPY."""
    return [message for part in parts for message in part.cast(pa.large_binary()).to_pylist()]


@pytest.mark.parametrize(
    "options",
    [
        CopyOptions(),
        pytest.param(CopyOptions("csv", null="", delimiter=",", force_quote=None), marks=pytest.mark.slow),
        pytest.param(CopyOptions("binary"), marks=pytest.mark.slow),
        pytest.param(CopyOptions(encoding=Encoding("LATIN1")), marks=pytest.mark.slow),
    ],
)
def test_tasks_encode_a_table_and_a_query_to_the_messages_of_the_driver(
    engine: Engine, reader: Transaction, monkeypatch: pytest.MonkeyPatch, options: CopyOptions
) -> None:
    monkeypatch.setattr(copy_lines, "WINDOW", 1)
    monkeypatch.setattr(copy_lines, "PART_ROWS", 100)
    encoder = RowEncoder(COLUMNS, options, TextSettings(date_style="SQL", date_order="DMY", timezone="Asia/Tokyo"))
    expected = messages([encoder.of_stored(batch.columns, batch.num_rows) for batch in reader.reader.pieces(T, NAMES)])
    state, _ = reader.reader.shown(T)
    folder = engine.tables[DATABASE, T.oid].folder

    by_files = messages(list(copy_lines.of_table(engine.spark, folder, state, NAMES, encoder, engine.exchange)))
    frame = engine.tables[DATABASE, T.oid].frame(state)
    by_query = messages(list(copy_lines.of_query(frame.orderBy("id"), encoder, engine.exchange)))

    assert by_files == expected
    assert sorted(by_query) == sorted(expected)
    assert len(expected) == 450
    assert list(engine.exchange.iterdir()) == []


@pytest.mark.parametrize(("recorded", "parts"), [(1000, 3), (300, 1), (None, 1)])
def test_each_row_group_is_in_one_part_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: int | None, parts: int
) -> None:
    """Also if the log has another number of rows, or none."""
    monkeypatch.setattr(copy_lines, "PART_ROWS", 400)
    pq.write_table(pa.table({"a": np.arange(1000)}), tmp_path / "f.parquet", row_group_size=150)
    add = {"path": "f.parquet", "size": 1} | ({} if recorded is None else {"stats": json.dumps({"numRecords": recorded})})
    state = TableState(0, {}, {}, {"f.parquet": add}, StructType().add("a", "long"), {"a": "a"}, {})
    found = copy_lines.parts_of(state)
    batches = [batch for part in found for batch in stored_rows.pieces(tmp_path, state, ["a"], part.first, part.behind)]
    assert len(found) == parts
    assert pa.Table.from_batches(batches)["a"].to_pylist() == list(range(1000))


@pytest.mark.slow
def test_character_without_equivalent_in_the_client_encoding_is_postgresqls_error(engine: Engine, reader: Transaction) -> None:
    encoder = RowEncoder(COLUMNS, CopyOptions(encoding=Encoding("LATIN2")), TextSettings())
    writer = engine.begin(DATABASE)
    writer.append(T, rows(T, (1000, None, None, "日", None, None, None, None)))
    writer.commit()
    state = engine.tables.visible[DATABASE, T.oid].state
    with pytest.raises(PySparkException) as raised:
        list(copy_lines.of_table(engine.spark, engine.tables[DATABASE, T.oid].folder, state, NAMES, encoder, engine.exchange))
    assert from_spark(raised.value).sqlstate == "22P05"
