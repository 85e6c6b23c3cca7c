"""Fill a new catalog for initdb: the tables, PostgreSQL's built-in rows, the first role and the first databases.

Called by `Catalog.create` within one transaction.
"""

from __future__ import annotations

from headgate.catalog import physical
from headgate.catalog.function import PLPGSQL
from headgate.catalog.layout.format import FORMAT
from headgate.catalog.physical import Cursor, insert, run
from headgate.initial_catalog import rows
from headgate.types.registry import FIRST_USER_OID

PUBLIC_NAMESPACE = 2200
DATABASE_OWNER = 6171  # the role pg_database_owner
BOOTSTRAP_SUPERUSER = 10

_NODE_TABLES = """
CREATE TABLE hg.counter (name VARCHAR, value UBIGINT);
CREATE TABLE hg.history (dbid UINTEGER, lsn UBIGINT, seq INTEGER, kind VARCHAR, oid UINTEGER, state VARCHAR);
CREATE TABLE hg.replication_slot (slot_name VARCHAR, plugin VARCHAR, datoid UINTEGER, temporary BOOLEAN, restart_lsn UBIGINT,
    confirmed_flush_lsn UBIGINT, two_phase BOOLEAN, two_phase_at UBIGINT, created_lsn UBIGINT, lost BOOLEAN,
    failover BOOLEAN, idle BOOLEAN);
CREATE TABLE hg.origin_progress (roident UINTEGER, remote_lsn UBIGINT, local_lsn UBIGINT);
CREATE TABLE hg.partition_ancestor (dbid UINTEGER, relid UINTEGER, ancestor UINTEGER, depth INTEGER);
CREATE TABLE hg.sequence_state (dbid UINTEGER, seqrelid UINTEGER, last_value BIGINT, is_called BOOLEAN);
CREATE TABLE hg.subscription_stats (subid UINTEGER, apply_error_count BIGINT, sync_error_count BIGINT, stats_reset TIMESTAMP);
CREATE TABLE hg.subscription_option (subid UINTEGER, suborigin VARCHAR, subrunasowner BOOLEAN, subpasswordrequired BOOLEAN,
    subfailover BOOLEAN, subcreatetables BOOLEAN, subschemaevolution VARCHAR, subhistory VARCHAR);
CREATE TABLE hg.applied_prepare (gid VARCHAR, subid UINTEGER, dbid UINTEGER, owner UINTEGER, xid UINTEGER, prepared TIMESTAMP);
CREATE TABLE hg.subscription_column (dbid UINTEGER, subid UINTEGER, relid UINTEGER, attnum INTEGER, attname VARCHAR, former VARCHAR[],
    remote_type VARCHAR, typoid UINTEGER, typmod INTEGER, local_type VARCHAR, not_null BOOLEAN, default_text VARCHAR, dropped BOOLEAN,
    unfilled BIGINT, remote_relid UINTEGER);
CREATE TABLE hg.subscription_resync (dbid UINTEGER, subid UINTEGER, relid UINTEGER, method VARCHAR, taken BOOLEAN);
CREATE TABLE hg.subscription_history (dbid UINTEGER, subid UINTEGER, relid UINTEGER, histid UINTEGER, begun BOOLEAN, expired BIGINT);
CREATE TABLE hg.kept_statistics (content VARCHAR);
"""
"""headgate's own tables. hg.log_entry, hg.log_write and hg.table_version are created by package `storage` (log.create_tables).

subscription_column.former (earlier names of the column) is no longer written.
"""


_LANGUAGES = f"""
INSERT INTO hg.pg_language (dbid, oid, lanname, lanowner, lanispl, lanpltrusted, lanplcallfoid, laninline, lanvalidator)
    VALUES (0, {PLPGSQL}, 'plpgsql', {BOOTSTRAP_SUPERUSER}, true, true, 0, 0, 0);
INSERT INTO hg.pg_language SELECT d.oid, l.* EXCLUDE (dbid) FROM hg.pg_language l, hg.pg_database d;
DELETE FROM hg.pg_language WHERE dbid = 0
"""
"""Add PL/pgSQL, which is not among the rows that initdb begins with, and give each database its own rows: it has its own privileges."""


def bootstrap(cursor: Cursor, superuser: str, password_verifier: str | None) -> None:
    """Fill an empty DuckDB file."""
    run(cursor, "CREATE SCHEMA hg")
    for statement in _NODE_TABLES.split(";"):
        if statement.strip():
            run(cursor, statement)
    for table in physical.tables().values():
        _create(cursor, table)
    run(cursor, "INSERT INTO hg.counter VALUES ('format', ?), ('oid', ?)", [FORMAT, FIRST_USER_OID])
    run(cursor, "UPDATE hg.pg_authid SET rolname = ?, rolpassword = ? WHERE oid = ?", [superuser, password_verifier, BOOTSTRAP_SUPERUSER])
    run(cursor, "DELETE FROM hg.pg_namespace WHERE oid = ?", [PUBLIC_NAMESPACE])
    for oid, name, template, connectable in ((1, "template1", True, True), (4, "template0", True, False), (5, "postgres", False, True)):
        insert(
            cursor, "pg_database", oid=oid, datname=name, datdba=BOOTSTRAP_SUPERUSER, encoding=6, datlocprovider="c",
            datistemplate=template, datallowconn=connectable, datconnlimit=-1, datfrozenxid=700, datminmxid=1, dattablespace=1663,
            datcollate="C", datctype="C", datacl=[f"=c/{superuser}", f"{superuser}=CTc/{superuser}"] if template else None,
        )  # fmt: skip
        insert(
            cursor, "pg_namespace", dbid=oid, oid=PUBLIC_NAMESPACE, nspname="public", nspowner=DATABASE_OWNER,
            nspacl=["pg_database_owner=UC/pg_database_owner", "=U/pg_database_owner"],
        )  # fmt: skip
    for statement in _LANGUAGES.split(";"):
        run(cursor, statement)


def _create(cursor: Cursor, table: physical.PhysicalTable) -> None:
    columns = [f'"{column.name}" {physical.duckdb_type(column.type_oid)}' for column in table.columns]
    columns += [f"{name} {kind}" for name, kind in physical.EXTRA.get(table.name, ())]
    if not table.shared:
        columns.insert(0, "dbid UINTEGER")
    run(cursor, f"CREATE TABLE hg.{table.name} ({', '.join(columns)})")
    built_in = rows.table(table.name)
    if built_in is not None:
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        lead = ("", "") if table.shared else ("dbid, ", "0, ")
        cursor.register("hg_built_in", built_in)  # by Arrow: the catalog reads no files
        run(cursor, f"INSERT INTO hg.{table.name} ({lead[0]}{names}) SELECT {lead[1]}{names} FROM hg_built_in")
        cursor.unregister("hg_built_in")
