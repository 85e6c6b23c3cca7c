"""Scenes of clients that use Arrow: ADBC, polars, connectorx."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from typing import Any

import connectorx
import polars
import pyarrow as pa
from adbc_driver_manager import Error
from adbc_driver_postgresql import dbapi
from conversation import NULLS, VALUES, answer

OF_ARROW = [name for name in VALUES if name not in {"price", "code", "tags"}]
"""The columns whose types ADBC can send. It can only read the other types."""


def scene(play: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a scene that runs `play` with an ADBC connection."""

    def connected(url: str) -> Any:
        with closing(dbapi.connect(url, autocommit=True)) as connection:
            return play(connection)

    return connected


def values(connection: Any) -> Any:
    types = [pa.int32(), pa.string(), pa.int64(), pa.bool_(), pa.float64(), pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.int32())]
    columns = [pa.array([VALUES[name], NULLS[name]], type_) for name, type_ in zip(OF_ARROW, types, strict=True)]
    with connection.cursor() as cursor:
        marks = ", ".join(f"${number}" for number in range(1, len(OF_ARROW) + 1))
        cursor.executemany(f"INSERT INTO items ({', '.join(OF_ARROW)}) VALUES ({marks})", pa.record_batch(columns, OF_ARROW))
        cursor.execute(
            "UPDATE items SET price = 12345678.90, code = '00112233-4455-6677-8899-aabbccddeeff', tags = $1 WHERE id = 1",
            (["x", None, 'y,z"'],),
        )
        cursor.execute("SELECT * FROM items WHERE id > $1 ORDER BY id", (0,))
        return [list(row.values()) for row in cursor.fetch_arrow_table().to_pylist()]


def errors(connection: Any) -> Any:
    answers = []
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO items (id) VALUES (1)")
        for statement, *parameters in (
            ("INSERT INTO items (id) VALUES ($1)", 1),
            ("SELEC 1",),
            ("SELECT $1::text::int", "x"),
            ("SELECT nosuch FROM items",),
        ):
            try:
                cursor.execute(statement, parameters or None)
                cursor.fetchall()
            except Error as error:
                answers.append([error.sqlstate, None])
        cursor.execute("SELECT 1")
        return [*answers, cursor.fetchone()[0]]


def transaction(url: str) -> Any:
    """Roll back to a savepoint without an error before it: after an error, ADBC accepts no statement, not even ROLLBACK TO."""
    with closing(dbapi.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO items (id, name) VALUES (1, 'outer')")
        cursor.execute("SAVEPOINT deeper")
        cursor.execute("INSERT INTO items (id, name) VALUES (2, 'inner')")
        cursor.execute("ROLLBACK TO SAVEPOINT deeper")
        cursor.execute("INSERT INTO items (id, name) VALUES (3, 'behind')")
        connection.commit()
        cursor.execute("DELETE FROM items")
        connection.rollback()


def copy(connection: Any) -> Any:
    """Copy rows in and out. ADBC uses binary COPY for both."""
    table = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a,b", None, ""]})
    with connection.cursor() as cursor:
        row_count = cursor.adbc_ingest("items", table, mode="append")
        cursor.execute("SELECT id, name FROM items ORDER BY id")
        rows = cursor.fetch_arrow_table().to_pylist()
    return [row_count, "".join(f"{row['id']},{_csv(row['name'])}\n" for row in rows)]


def _csv(name: str | None) -> str:
    return "" if name is None else f'"{name}"' if "," in name or not name else name


def parts(connection: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": "10000"})
        cursor.execute("SELECT g FROM generate_series(1, 20000) g")
        batches = [batch.column(0).to_pylist() for batch in cursor.fetch_record_batch()]
    assert len(batches) > 5
    return [sum(map(len, batches)), sum(map(sum, batches))]


def cancel(connection: Any) -> Any:
    with connection.cursor() as cursor:
        timer = threading.Timer(0.2, cursor.adbc_cancel)
        timer.start()
        try:
            cursor.execute("SELECT g, pg_sleep(0.001) FROM generate_series(1, 100000) g")
            cursor.fetch_arrow_table()
        except Error:
            pass
        else:
            return None
        finally:
            timer.join()
        cursor.execute("SELECT 1")
        return ["57014", cursor.fetchone()[0]]


def polars_read(url: str) -> Any:
    """Read values and NULLs with both engines of polars, of each type that both support."""
    query = "SELECT id, name, big, good, real8, made FROM (SELECT *, date '2024-02-29' AS made FROM items) i ORDER BY id"
    engines = [polars.read_database_uri(query, url, engine=engine).rows() for engine in ("connectorx", "adbc")]
    assert engines[0] == engines[1]
    return engines[0]


def polars_write(url: str) -> Any:
    frame = polars.DataFrame(
        {"id": [1, 2], "name": ["one", None], "at": [datetime.fromisoformat("2024-02-29 10:00"), None], "day": [date(2024, 2, 29), None]}
    )
    counts = [frame.write_database("frames", url, engine="adbc")]
    counts.append(frame.write_database("frames", url, engine="adbc", if_table_exists="append"))
    counts.append(frame.write_database("frames", url, engine="adbc", if_table_exists="replace"))
    return [
        *counts,
        polars.read_database_uri("SELECT count(*) AS n, count(name) AS names, max(day)::text AS day FROM frames", url, engine="adbc").row(
            0
        ),
    ]


def connectorx_read(url: str) -> Any:
    """Read a table with each protocol, whole and in partitions. connectorx computes the partitions from min and max."""
    results = []
    for protocol in ("binary", "csv", "cursor"):
        for more in ({}, {"partition_on": "id", "partition_num": 3}):
            table = connectorx.read_sql(url, "SELECT id, name FROM items", return_type="arrow", protocol=protocol, **more)
            results.append([table.num_rows, sum(table["id"].to_pylist()), table["name"].null_count])
    assert all(rows_read == results[0] for rows_read in results), results
    try:
        connectorx.read_sql(url, "SELECT nosuch FROM items", return_type="arrow")
    except RuntimeError as error:
        return [results[0], 'column "nosuch" does not exist' in str(error)]


def bulk(connection: Any) -> Any:
    """Copy 200,000 rows in, and read them in batches."""
    count = 200_000
    ids = pa.array(range(count), pa.int64())
    table = pa.table(
        {
            "id": ids,
            "name": [f"row {number}" for number in range(count)],
            "share": [number / 4 for number in range(count)],
            "nums": [[number, None] for number in range(count)],
        }
    )
    with connection.cursor() as cursor:
        row_count = cursor.adbc_ingest("taken", table, mode="create")
        cursor.execute("SELECT * FROM taken ORDER BY id")
        back = cursor.fetch_arrow_table()
    schema = connection.adbc_get_table_schema("taken")
    return [row_count, back.num_rows, back.to_pylist() == table.to_pylist(), [str(field.type) for field in schema][:3]]


def reflection(connection: Any) -> Any:
    objects = connection.adbc_get_objects(depth="columns", db_schema_filter="public", table_name_filter="items").read_all().to_pylist()
    [table] = [table for catalog in objects for schema in catalog["catalog_db_schemas"] or () for table in schema["db_schema_tables"] or ()]
    [key] = [constraint for constraint in table["table_constraints"] if constraint["constraint_type"] == "PRIMARY KEY"]
    columns = sorted(table["table_columns"], key=lambda column: column["ordinal_position"])
    return [[column["column_name"] for column in columns], key["constraint_column_names"]]


SCENES = (values, errors, copy, parts, cancel, bulk, reflection)
URLS = (transaction, polars_read, polars_write, connectorx_read)
answer({**{play.__name__: scene(play) for play in SCENES}, **{play.__name__: play for play in URLS}})
