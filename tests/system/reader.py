"""Read a Delta table with one reader in a separate environment: ``reader.py READER PATH VERSION`` prints the rows as JSON, or the error.

`test_readers` runs this program. It does not use headgate, and imports only the requested reader. VERSION may be ``newest``.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa


def query_builder(path: str, version: int | None) -> pa.Table:
    import deltalake

    table = deltalake.DeltaTable(path, version=version)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def to_arrow(path: str, version: int | None) -> pa.Table:
    import deltalake

    return deltalake.DeltaTable(path, version=version).to_pyarrow_table()


def to_pandas(path: str, version: int | None) -> pa.Table:
    import deltalake

    return pa.Table.from_pandas(deltalake.DeltaTable(path, version=version).to_pandas())


def load_cdf(path: str, version: int | None) -> pa.Table:
    import deltalake

    return pa.table(deltalake.DeltaTable(path).load_cdf(starting_version=0, ending_version=version).read_all())


def polars(path: str, version: int | None) -> pa.Table:
    import polars

    with (
        tempfile.TemporaryDirectory() as folder
    ):  # it finds no deletion vectors below a folder whose name has a space, as tests' nodes have
        copied = shutil.copytree(path, Path(folder) / "table")
        return polars.scan_delta(str(copied), version=version).collect().to_arrow()


def duckdb(path: str, version: int | None) -> pa.Table:
    import duckdb
    import duckdb_extension_delta

    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    at = "" if version is None else f", version = {version}"
    return connection.execute(f"FROM delta_scan('{path}'{at})").to_arrow_table()


def plain(value: Any) -> Any:
    """Return a value in a JSON form that is the same for every reader."""
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, datetime.datetime):
        return (value.astimezone(datetime.UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, datetime.date | decimal.Decimal):
        return str(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview) else value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows. Columns with infinite timestamps are returned as numbers, because Python has no infinite datetime."""
    try:
        return table.to_pylist()
    except (OverflowError, ValueError):
        numbers = [field.with_type(_number(field.type)) for field in table.schema]
        return table.cast(pa.schema(numbers)).to_pylist()


def _number(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


if __name__ == "__main__":
    reader, path, version = sys.argv[1:]
    try:
        result = globals()[reader](path, None if version == "newest" else int(version))
    except Exception as error:  # noqa: BLE001 (what it says is what is compared)
        print(json.dumps({"refused": type(error).__name__}))
    else:
        print(json.dumps({"rows": [{name: plain(value) for name, value in row.items()} for row in rows_of(result)]}))
