"""Write the built-in rows of PostgreSQL 15's system catalogs to Parquet. `Catalog.create` loads them.

Run it against a newly initialized PostgreSQL 15: ``python tools/dump_catalog.py "host=/tmp port=5432 user=postgres dbname=postgres"``.
It writes one file for each catalog that has rows to src/headgate/initial_catalog/data.

TOAST tables, collations that do not compare text by its bytes, and PL/pgSQL are left out, because a node does not have them. For a view,
`pg_rewrite.ev_action` contains the text of its query instead of PostgreSQL's parse tree.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent.parent / "src/headgate/initial_catalog/data"

ARROW = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "oid": pa.uint32(),
    "xid": pa.uint32(),
    "regproc": pa.uint32(),
    "pg_lsn": pa.uint64(),
    "timestamptz": pa.timestamp("us"),
    "int2vector": pa.list_(pa.int16()),
    "oidvector": pa.list_(pa.uint32()),
    "_oid": pa.list_(pa.uint32()),
    "_int2": pa.list_(pa.int16()),
}
"""The storage type of each PostgreSQL type. Arrays of other types are lists of text. All other types are text."""

WRITTEN_AS = {
    "regproc": "{}::oid",
    "xid": "{}::text::bigint",
    "int2vector": "{}::int2[]",
    "oidvector": "{}::oid[]",
    "pg_node_tree": "NULL::text",
}

NO_PLPGSQL = "NOT IN (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')"
TOAST = "(SELECT oid FROM pg_namespace WHERE nspname = 'pg_toast')"
WITHOUT = {
    "pg_class": f"relnamespace <> {TOAST}",
    "pg_attribute": f"attrelid IN (SELECT oid FROM pg_class WHERE relnamespace <> {TOAST})",
    "pg_index": f"indrelid IN (SELECT oid FROM pg_class WHERE relnamespace <> {TOAST})",
    "pg_collation": "collprovider IN ('d', 'c') AND collname IN ('default', 'C', 'POSIX', 'ucs_basic', 'C.utf8')",
    "pg_language": "lanname <> 'plpgsql'",
    "pg_proc": f"prolang {NO_PLPGSQL} AND proname NOT LIKE 'plpgsql%'",
    "pg_description": "NOT (classoid = 'pg_collation'::regclass OR description LIKE 'PL/pgSQL%')",
}
KEYWORDS = "pg_get_keywords"
"""A function whose rows are written, as if it were a catalog."""
OF_INFORMATION_SCHEMA = ("sql_features", "sql_implementation_info", "sql_parts", "sql_sizing")
"""The tables of information_schema. Its other relations are views."""
EMPTY = {"pg_depend", "pg_shdepend", "pg_statistic", "pg_extension", "pg_init_privs", "pg_statistic_ext_data", "pg_database", "pg_attrdef"}


def expression(catalog: str, column: str, type_name: str) -> str:
    """Return the SQL expression that reads a column in its storage type."""
    if (catalog, column) == ("pg_rewrite", "ev_action"):
        return "rtrim(pg_get_viewdef(ev_class), ';')"
    if (catalog, column) == ("pg_class", "reltoastrelid"):
        return "0::oid"
    if type_name.startswith("_") and type_name not in ARROW:
        return f"{column}::text[]"
    if type_name == "char" or type_name not in ARROW:
        return WRITTEN_AS.get(type_name, "{}::text").format(column)
    return WRITTEN_AS.get(type_name, "{}").format(column)


def arrow_type(type_name: str) -> pa.DataType:
    """Return the storage type of a PostgreSQL type."""
    if type_name in ARROW:
        return ARROW[type_name]
    return pa.list_(pa.string()) if type_name.startswith("_") else pa.string()


def dump(connection: psycopg.Connection, catalog: str, schema: str = "pg_catalog") -> int:
    """Write a catalog or a table of information_schema. Return the number of rows."""
    columns = connection.execute(
        "SELECT attname, coalesce(b.typname, t.typname) FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid"
        " LEFT JOIN pg_type b ON b.oid = t.typbasetype WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        (f"{schema}.{catalog}",),
    ).fetchall()
    listed = ", ".join(f"{expression(catalog, name, kind)} AS {name}" for name, kind in columns)
    rows = connection.execute(f"SELECT {listed} FROM {schema}.{catalog} WHERE {WITHOUT.get(catalog, 'true')} ORDER BY 1, 2").fetchall()
    arrays = []
    for position, (_, kind) in enumerate(columns):
        arrays.append(pa.array([row[position] for row in rows], arrow_type(kind)))
    if rows:
        table = pa.table(arrays, names=[name for name, _ in columns])
        pq.write_table(table, DATA / f"{catalog}.parquet", compression="zstd", compression_level=19)
    return len(rows)


def dump_keywords(connection: psycopg.Connection) -> int:
    """Write the rows of pg_get_keywords. Return their number."""
    cursor = connection.execute(f"SELECT * FROM pg_catalog.{KEYWORDS}() ORDER BY word")
    names, rows = [column.name for column in cursor.description or ()], cursor.fetchall()
    table = pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})
    pq.write_table(table, DATA / f"{KEYWORDS}.parquet", compression="zstd", compression_level=19)
    return len(rows)


def main() -> None:
    """Dump each catalog of the server. The first argument is its conninfo."""
    DATA.mkdir(exist_ok=True)
    with psycopg.connect(sys.argv[1]) as connection:
        connection.execute("SET search_path = ''")
        connection.execute("SET timezone = 'UTC'")
        names = connection.execute(
            "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 11 AND relkind = 'r' ORDER BY 1"
        ).fetchall()
        connection.execute("SET search_path = pg_catalog")
        for (catalog,) in names:
            if catalog not in EMPTY:
                if catalog == "pg_rewrite":
                    connection.execute("SET search_path = ''")
                print(catalog, dump(connection, catalog))
                connection.execute("SET search_path = pg_catalog")
        print(KEYWORDS, dump_keywords(connection))
        for table in OF_INFORMATION_SCHEMA:
            print(table, dump(connection, table, "information_schema"))


if __name__ == "__main__":
    main()
