"""Remove relations with everything that belongs to them, and columns, indexes and constraints of a relation.

Called by the commands, inside their transaction. The caller has checked dependent objects. No row that refers to a removed relation
remains in any catalog.
"""

from __future__ import annotations

from headgate.catalog import constraint
from headgate.catalog.physical import Cursor, delete, rows, run, update
from headgate.catalog.relation import attribute
from headgate.catalog.relation.relation import Relation

_ROWS = (
    ("pg_attribute", "attrelid"), ("pg_attrdef", "adrelid"), ("pg_index", "indexrelid"), ("pg_inherits", "inhrelid"),
    ("pg_partitioned_table", "partrelid"), ("pg_sequence", "seqrelid"), ("pg_class", "oid"), ("pg_publication_rel", "prrelid"),
    ("pg_subscription_rel", "srrelid"), ("pg_description", "objoid"), ("pg_depend", "objid"), ("pg_depend", "refobjid"),
    ("partition_ancestor", "relid"), ("sequence_state", "seqrelid"), ("pg_rewrite", "ev_class"), ("pg_policy", "polrelid"),
    ("pg_trigger", "tgrelid"), ("pg_trigger", "tgconstrrelid"), ("subscription_column", "relid"), ("subscription_resync", "relid"),
    ("subscription_history", "relid"), ("subscription_history", "histid"),
)  # fmt: skip
"""The catalogs with rows of a relation, and the column with its oid."""


def drop(cursor: Cursor, database: int, oid: int) -> None:
    """Remove a relation with everything that belongs to it.

    This includes indexes, constraints, its membership in publications and subscriptions, and the sequences that its columns own. The caller
    must drop its partitions first.
    """
    owned = rows(
        cursor,
        "SELECT d.objid FROM hg.pg_depend d JOIN hg.pg_class c ON c.oid = d.objid AND c.dbid = d.dbid WHERE d.dbid = ? AND"
        " d.refclassid = 1259 AND d.refobjid = ? AND d.classid = 1259 AND d.deptype IN ('a', 'i') AND c.relkind = 'S'",
        [database, oid],
    )
    for (sequence,) in owned:
        drop(cursor, database, sequence)
    indexes = [index for (index,) in rows(cursor, "SELECT indexrelid FROM hg.pg_index WHERE dbid = ? AND indrelid = ?", [database, oid])]
    constraint.delete(cursor, database, "conrelid = ?", [oid])
    for catalog, class_oid, object_oid, table, table_class, column in (
        ("pg_depend", "classid", "objid", "pg_rewrite", 2618, "ev_class"),
        ("pg_depend", "classid", "objid", "pg_attrdef", 2604, "adrelid"),
        ("pg_description", "classoid", "objoid", "pg_trigger", 2620, "tgrelid"),
        ("pg_description", "classoid", "objoid", "pg_policy", 3256, "polrelid"),
    ):
        of_relation = f"SELECT oid FROM hg.{table} WHERE dbid = ? AND {column} = ?"
        sql = f"DELETE FROM hg.{catalog} WHERE dbid = ? AND {class_oid} = ? AND {object_oid} IN ({of_relation})"
        run(cursor, sql, [database, table_class, database, oid])
    for removed in [*indexes, oid]:
        for table, column in _ROWS:
            delete(cursor, table, dbid=database, **{column: removed})
        update(cursor, "pg_partitioned_table", {"dbid": database, "partdefid": removed}, partdefid=0)
        run(
            cursor,
            "DELETE FROM hg.pg_type WHERE dbid = ? AND (typrelid = ? OR typelem IN"
            " (SELECT oid FROM hg.pg_type WHERE dbid = ? AND typrelid = ?))",
            [database, removed, database, removed],
        )


def drop_column(cursor: Cursor, relation: Relation, attnum: int) -> None:
    """Drop a column: mark it as dropped, and remove its default and the indexes and constraints that use it."""
    for index in relation.indexes:
        if attnum in index.attnums or attnum in index.included:
            drop_index(cursor, relation, index.oid)
    checks = rows(
        cursor,
        "SELECT oid, conkey FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND contype = 'c'",
        [relation.database, relation.oid],
    )
    for oid, key in checks:
        if attnum in (key or ()):
            drop_check(cursor, relation, oid)
    constraint.delete(cursor, relation.database, "conrelid = ? AND contype = 'f' AND list_contains(conkey, ?)", [relation.oid, attnum])
    attribute.set_default(cursor, lambda: 0, relation, attnum, None)
    update(
        cursor,
        "pg_attribute",
        {"dbid": relation.database, "attrelid": relation.oid, "attnum": attnum},
        attname=f"........pg.dropped.{attnum}........",
        atttypid=0,
        attisdropped=True,
        attacl=None,
        attnotnull=False,
        attidentity="",
        attgenerated="",
        attstattarget=0,
    )


def drop_index(cursor: Cursor, relation: Relation, index: int) -> None:
    constraint.delete(cursor, relation.database, "conindid = ?", [index])
    drop(cursor, relation.database, index)
    run(
        cursor,
        "UPDATE hg.pg_class SET relhasindex = EXISTS (SELECT 1 FROM hg.pg_index WHERE dbid = ? AND indrelid = ?)"
        " WHERE dbid = ? AND oid = ?",
        [relation.database, relation.oid, relation.database, relation.oid],
    )


def drop_check(cursor: Cursor, relation: Relation, oid: int) -> None:
    constraint.delete(cursor, relation.database, "oid = ?", [oid])
    run(cursor, "UPDATE hg.pg_class SET relchecks = relchecks - 1 WHERE dbid = ? AND oid = ?", [relation.database, relation.oid])
