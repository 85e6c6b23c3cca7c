"""The rows of one of PostgreSQL's catalogs at initdb.

Read once by each of those who build a table of them: `types.registry`, `expression.builtin`, the catalog's own modules. Columns have
PostgreSQL's names; regproc and its like are oids, "char" is text, pg_node_tree is None (of a rule: the text of its query).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

InitialRow = dict[str, Any]
"""A row by the names of its columns."""
_DATA = Path(str(resources.files("headgate.initial_catalog").joinpath("data")))


def table(catalog: str, *columns: str) -> pa.Table | None:
    """Return the rows as an Arrow table, of these columns or all; None for a catalog that is empty at initdb."""
    file = _DATA / f"{catalog}.parquet"
    # not read_table: the machinery for many files that it loads takes longer than all of this
    return pq.ParquetFile(file).read(list(columns) or None) if file.exists() else None


@functools.cache
def schemas() -> Mapping[int, str]:
    return {row["oid"]: row["nspname"] for row in rows("pg_namespace", "oid", "nspname")}


def rows(catalog: str, *columns: str) -> list[InitialRow]:
    """Return the rows as dicts of these columns."""
    data = table(catalog, *columns)
    return [] if data is None else data.to_pylist()
