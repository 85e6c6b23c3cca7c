"""ALTER TABLE … ADD, DROP, ALTER and VALIDATE CONSTRAINT: keys, checks, foreign keys.

Called by `alter_table`.
"""

from __future__ import annotations

from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import insert, update
from headgate.catalog.relation import attribute, key_text, object_name, pg_class
from headgate.catalog.relation import constraint as constraints
from headgate.catalog.relation import foreign_key as foreign_keys
from headgate.catalog.relation import index as indexes
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import ForeignKey, Relation
from headgate.commands import dependency, table_in_use
from headgate.commands.alteration import Alteration
from headgate.commands.partition import partition_index
from headgate.commands.table import alter_partition, foreign_key, rewrite_table, table_definition
from headgate.errors import PostgresError, without_position
from headgate.sql.parser import ParseNode, unwrap

_NO_CONSTRAINT = "Cannot create a primary key or unique constraint using such an index."


def add_constraint(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ADD [CONSTRAINT …] PRIMARY KEY, UNIQUE, CHECK or FOREIGN KEY."""
    node = unwrap(getattr(command, "def"))
    relation = alteration.relation
    if node.contype == pb.CONSTR_CHECK:
        with without_position():
            check = table_definition.check(node, relation.columns, relation.name, alteration.session.context.forms)
        add_check(alteration, replace(check, validated=not node.skip_validation))
        return
    if node.contype == pb.CONSTR_FOREIGN:
        declared = table_definition.ForeignKeyNeed(node, only=alteration.only)
        foreign_key.add(declared, relation, alteration.session, alteration.transaction, check=True)
        return
    if node.indexname:
        using_index(alteration, node)
        return
    add_key(alteration, table_definition.key(node, relation.columns, relation.name, altering=True))


def add_key(alteration: Alteration, key: indexes.IndexKey) -> None:
    relation = alteration.relation
    if key.primary and relation.primary_key:
        raise PostgresError("42P16", f'multiple primary keys for table "{relation.name}" are not allowed')
    label = "pkey" if key.primary else "key"
    column_names = None if key.primary else "_".join(column.name for column in relation.columns_at((*key.attnums, *key.included)))
    name = key.name or object_name.choose_name(
        alteration.cursor, relation.database, relation.namespace_oid, relation.name, column_names, label, constraint=True
    )
    if key.primary:
        for column in relation.columns_at(key.attnums):
            if not column.not_null:
                alter_partition.check_no_nulls(alteration, column.name)
            if not relation.is_partitioned:
                alter_partition.set_not_null(alteration, column.name)
    partition_index.add(alteration.transaction, relation, replace(key, name=name), only=alteration.only)
    alteration.refresh()


def add_check(alteration: Alteration, check: constraints.NewCheck) -> None:
    """Add a CHECK constraint to a table and the tables below it."""
    if alter_partition.merge_own_check(alteration, check):
        return
    alter_partition.add_check(alteration, alter_partition.create_check(alteration, check))


def drop_constraint(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    relation, cursor, context = alteration.relation, alteration.cursor, alteration.session.context
    index = relation.key_constraint(command.name)
    if index is not None:
        subject = f"constraint {index.name} on {dependency.shown(cursor, context, relation)}"
        dependants = dependency.of_index(cursor, context, relation, index)
        dependency.settle(
            alteration.transaction, dependants, [subject], alteration.session.notices, cascade=command.behavior == pb.DROP_CASCADE
        )
        alteration.refresh()
    key = relation.foreign_key(command.name)
    if key is not None:  # its triggers are dropped
        target = relations.get(cursor, relation.database, key.target)
        table_in_use.check(alteration.session, cursor, target, "ALTER TABLE")
    if command.name in foreign_keys.clones_of(cursor, relation):
        raise PostgresError("42P16", f'cannot drop inherited constraint "{command.name}" of relation "{relation.name}"')
    if not alter_partition.drop_constraint(alteration, command.name):
        alteration.session.notices.skip(_missing(relation, command.name), allowed=command.missing_ok)


def _foreign_key(alteration: Alteration, name: str) -> ForeignKey:
    relation = alteration.relation
    key = relation.foreign_key(name)
    clone = foreign_keys.clones_of(alteration.cursor, relation).get(name) if key is None else None
    if clone is not None:
        raise _derived(alteration, name, clone)
    if key is None:
        if relation.check(name) is not None or relation.key_constraint(name) is not None:
            raise PostgresError("42809", f'constraint "{name}" of relation "{relation.name}" is not a foreign key constraint')
        raise _missing(relation, name)
    return key


def _missing(relation: Relation, name: str) -> PostgresError:
    return PostgresError("42704", f'constraint "{name}" of relation "{relation.name}" does not exist')


def alter_constraint(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER CONSTRAINT … [NOT] DEFERRABLE, INITIALLY DEFERRED or IMMEDIATE."""
    node = unwrap(getattr(command, "def"))
    if node.noinherit:
        raise PostgresError("0A000", "FOREIGN KEY constraints cannot be marked NO INHERIT")
    key = _foreign_key(alteration, node.conname)
    if key.parent:
        raise _derived(alteration, key.name, key.oid)
    foreign_keys.set_deferrable(
        alteration.cursor, alteration.relation.database, key.oid, deferrable=node.deferrable, deferred=node.initdeferred
    )


def _derived(alteration: Alteration, name: str, clone: int) -> PostgresError:
    """Return the error for a constraint that is the clone (oid) of another (ATExecAlterConstraint)."""
    relation = alteration.relation
    origin_name, origin = foreign_keys.origin_of(alteration.cursor, relation.database, clone)
    origin_table = relations.get(alteration.cursor, relation.database, origin)
    return PostgresError(
        "XX000",
        f'cannot alter constraint "{name}" on relation "{relation.name}"',
        detail=f'Constraint "{name}" is derived from constraint "{origin_name}" of relation "{origin_table.name}".',
        hint="You may alter the constraint it derives from, instead.",
    )


def validate_constraint(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute VALIDATE CONSTRAINT, also for the partitions."""
    relation = alteration.relation
    check = relation.check(command.name)
    if check is not None:
        if check.validated:
            return
        rewrite_table.check_rows(alteration.session, alteration.transaction, relation, check)
        foreign_keys.validate(alteration.cursor, relation.database, check.oid)
        children = [] if check.no_inherit else alteration.children(even_only=True)
        if children and alteration.only:
            raise PostgresError("42P16", "constraint must be validated on child tables too")
        for child in children:
            validate_constraint(child, command)
        return
    if relation.key_constraint(command.name) is not None:
        raise PostgresError("42809", f'constraint "{command.name}" of relation "{relation.name}" is not a foreign key or check constraint')
    key = _foreign_key(alteration, command.name)
    if not key.validated:
        foreign_key.validate(key, relation, alteration.session, alteration.transaction)


def using_index(alteration: Alteration, node: ParseNode) -> None:
    """Execute ADD CONSTRAINT … PRIMARY KEY | UNIQUE USING INDEX i (transformIndexConstraint)."""
    relation, cursor = alteration.relation, alteration.cursor
    primary, name = node.contype == pb.CONSTR_PRIMARY, node.indexname
    index = next((candidate for candidate in relation.indexes if candidate.name == name), None)
    if index is None:
        if relations.find_oid(cursor, relation.database, relation.schema, name) is None:
            raise PostgresError("42704", f'index "{name}" does not exist')
        raise PostgresError("55000", f'index "{name}" does not belong to table "{relation.name}"')
    if index.constraint:
        raise PostgresError("55000", f'index "{name}" is already associated with a constraint')
    if not index.unique:
        raise PostgresError("42809", f'"{name}" is not a unique index', detail=_NO_CONSTRAINT)
    for is_present, message in (
        (index.expressions, f'index "{name}" contains expressions'),
        (index.predicate, f'"{name}" is a partial index'),
    ):
        if is_present:
            raise PostgresError("42809", message, detail=_NO_CONSTRAINT)
    if primary and relation.primary_key:
        raise PostgresError("42P16", f'multiple primary keys for table "{relation.name}" are not allowed')
    constraint_name = node.conname or name
    if constraint_name != name:
        alteration.session.notices.notice(f'ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index "{name}" to "{constraint_name}"')
        pg_class.rename(cursor, relations.get(cursor, relation.database, index.oid), constraint_name)
    deferrable = node.deferrable or node.initdeferred
    oid = alteration.transaction.catalog.next_oid()
    insert(
        cursor, "pg_constraint", dbid=relation.database, oid=oid, conname=constraint_name, connamespace=relation.namespace_oid,
        contype="p" if primary else "u", condeferrable=deferrable, condeferred=node.initdeferred, convalidated=True,
        conrelid=relation.oid, conindid=index.oid, confupdtype=" ", confdeltype=" ", confmatchtype=" ", conislocal=True, connoinherit=True,
        conkey=list(index.attnums),
    )  # fmt: skip
    update(cursor, "pg_index", {"dbid": relation.database, "indexrelid": index.oid}, indisprimary=primary, indimmediate=not deferrable)
    for column in relation.columns_at(index.attnums if primary else ()):
        if not column.not_null:
            rewrite_table.check_no_nulls(alteration.transaction, relation, column)
            attribute.set_not_null(cursor, relation, column.attnum, not_null=True)
    key_text.write(cursor, relation.database, relation.oid)
