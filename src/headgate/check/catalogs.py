"""Check of the system catalogs: no duplicate keys, and every row that another row references exists.

DuckDB does not enforce keys for them (`catalog.physical`). The unique indexes are PostgreSQL's (`catalog.unique`). The references are those
of the manual's chapter 53 whose columns a node writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.catalog import physical, unique
from headgate.catalog.physical import rows
from headgate.check.finding import Finding, error
from headgate.check.subject import Subject
from headgate.storage.location.table_folders import Key

_MEND = "restore the catalog from a backup, or drop and make the object again"


@dataclass(frozen=True)
class CatalogReference:
    """A reference: `columns` of `catalog` name a row of `target` by its `keys`. 0 and NULL name none."""

    catalog: str
    columns: tuple[str, ...]
    target: str
    keys: tuple[str, ...] = ("oid",)


def _to(target: str, *sources: str) -> list[CatalogReference]:
    """Return references by oid: ``pg_class.relnamespace`` names a row of the target."""
    return [CatalogReference(catalog, (column,), target) for catalog, column in (source.split(".") for source in sources)]


REFERENCES = (
    *_to(
        "pg_class",
        *("pg_attribute.attrelid", "pg_index.indrelid", "pg_index.indexrelid", "pg_constraint.conrelid", "pg_constraint.confrelid"),
        *("pg_constraint.conindid", "pg_inherits.inhrelid", "pg_inherits.inhparent", "pg_partitioned_table.partrelid"),
        *("pg_sequence.seqrelid", "pg_rewrite.ev_class", "pg_type.typrelid", "pg_publication_rel.prrelid", "pg_subscription_rel.srrelid"),
        *(
            "pg_policy.polrelid",
            "subscription_column.relid",
            "subscription_resync.relid",
            "subscription_history.relid",
            "subscription_history.histid",
            "sequence_state.seqrelid",
            "partition_ancestor.relid",
            "partition_ancestor.ancestor",
        ),
    ),
    *_to("pg_namespace", "pg_class.relnamespace", "pg_type.typnamespace", "pg_constraint.connamespace", "pg_publication_namespace.pnnspid"),
    *_to("pg_type", "pg_class.reltype", "pg_attribute.atttypid", "pg_enum.enumtypid", "pg_type.typelem", "pg_type.typbasetype"),
    *_to("pg_constraint", "pg_constraint.conparentid"),
    *_to(
        "pg_authid",
        "pg_class.relowner",
        "pg_namespace.nspowner",
        "pg_database.datdba",
        "pg_subscription.subowner",
        "pg_publication.pubowner",
    ),
    *_to("pg_authid", "pg_auth_members.roleid", "pg_auth_members.member"),
    *_to("pg_publication", "pg_publication_rel.prpubid", "pg_publication_namespace.pnpubid"),
    *_to(
        "pg_subscription",
        "pg_subscription_rel.srsubid",
        "subscription_option.subid",
        "subscription_stats.subid",
        "subscription_column.subid",
        "subscription_resync.subid",
        "subscription_history.subid",
    ),
    *_to("pg_database", "pg_subscription.subdbid", "replication_slot.datoid", "prepared_xact.dbid"),
    CatalogReference("pg_subscription", ("oid",), "subscription_option", ("subid",)),
    CatalogReference("pg_attrdef", ("adrelid", "adnum"), "pg_attribute", ("attrelid", "attnum")),
    CatalogReference("origin_progress", ("roident",), "pg_replication_origin", ("roident",)),
)


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield all duplicate keys, dangling references, and tables without a log or without a catalog row."""
    subject.progress("the catalogs")
    known = {name for (name,) in rows(subject.cursor, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'hg'")}
    by_database = {
        name
        for (name,) in rows(subject.cursor, "SELECT table_name FROM duckdb_columns() WHERE schema_name = 'hg' AND column_name = 'dbid'")
    }
    for index in _indexes():
        if index.catalog in known:
            count = rows(subject.cursor, _duplicates_query(index))[0][0]
            if count:
                yield error(f'catalog "{index.catalog}"', f'{count} keys of index "{index.name}" are there more than once', _MEND)
    for reference in REFERENCES:
        if {reference.catalog, reference.target} <= known:
            count = rows(subject.cursor, _dangling(reference, by_database))[0][0]
            if count:
                columns = ", ".join(f'"{column}"' for column in reference.columns)
                yield error(f'catalog "{reference.catalog}"', f'{count} rows name by {columns} no row of "{reference.target}"', _MEND)
    for catalog in sorted(by_database):
        sql = f"SELECT count(*) FROM hg.{catalog} WHERE dbid <> 0 AND dbid NOT IN (SELECT oid FROM hg.pg_database)"
        if catalog not in ("log_entry", "history", "table_version") and (count := rows(subject.cursor, sql)[0][0]):
            yield error(f'catalog "{catalog}"', f"{count} rows are of no database", _MEND)
    yield from _tables(subject)


def _indexes() -> Iterator[unique.UniqueIndex]:
    for indexes in unique.indexes().values():
        yield from indexes
    for name, table in physical.tables().items():
        if any(column.name == "oid" for column in table.columns):
            yield unique.UniqueIndex(f"{name}_oid_index", name, ("oid",), table.shared)
    yield unique.UniqueIndex("pg_attribute_relid_attnum_index", "pg_attribute", ("attrelid", "attnum"), shared=False)


def _duplicates_query(index: unique.UniqueIndex) -> str:
    columns = ", ".join(f'"{column}"' for column in (*index.columns, *(() if index.shared else ("dbid",))))
    return f"SELECT count(*) FROM (SELECT 1 FROM hg.{index.catalog} GROUP BY {columns} HAVING count(*) > 1)"


def _dangling(reference: CatalogReference, by_database: set[str]) -> str:
    """Return the query that counts dangling references. Rows of a database may reference its own and the built-in rows."""
    conditions = [f's."{column}" = t."{key}"' for column, key in zip(reference.columns, reference.keys, strict=True)]
    if {reference.catalog, reference.target} <= by_database:
        conditions.append("t.dbid IN (0, s.dbid)")
    first = reference.columns[0]
    return (
        f'SELECT count(*) FROM hg.{reference.catalog} s WHERE s."{first}" IS NOT NULL AND s."{first}" <> 0'
        f" AND NOT EXISTS (SELECT 1 FROM hg.{reference.target} t WHERE {' AND '.join(conditions)})"
    )


def _tables(subject: Subject) -> Iterator[Finding]:
    """Check that the tables of pg_class and of the log are the same."""
    known: set[Key] = {
        key for key in rows(subject.cursor, "SELECT dbid, oid FROM hg.pg_class WHERE relkind = 'r' AND dbid <> 0") if subject.wanted(key[0])
    }
    for key in sorted(known - set(subject.tables)):
        yield error(subject.title(key), "the transaction log does not have it", _MEND)
    for key in sorted(set(subject.tables) - known):
        yield error(subject.title(key), "the transaction log has it and the catalog does not", _MEND)
