"""ALTER TABLE, VIEW, INDEX, SEQUENCE … RENAME and SET SCHEMA.

Called by `execute` for RenameStmt and AlterObjectSchemaStmt.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import rows
from headgate.catalog.relation import attribute, inheritance, pg_class
from headgate.catalog.relation import constraint as constraints
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, RelationKind
from headgate.catalog.replication import subscription_history
from headgate.commands import lookup, privilege, stored_expression
from headgate.commands.alteration import Alteration
from headgate.commands.publication import membership
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import alter_partition
from headgate.commands.view import view
from headgate.errors import PostgresError
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.storage.transaction.transaction import Transaction

WORDS = {pb.OBJECT_INDEX: "INDEX", pb.OBJECT_VIEW: "VIEW", pb.OBJECT_SEQUENCE: "SEQUENCE"}


KINDS: dict[str, tuple[AbstractSet[RelationKind], str]] = {
    "INDEX": (INDEX_KINDS, "an index"),
    "VIEW": (frozenset({RelationKind.VIEW}), "a view"),
    "SEQUENCE": (frozenset({RelationKind.SEQUENCE}), "a sequence"),
}
"""The kinds of relations for ALTER INDEX, VIEW and SEQUENCE. ALTER TABLE accepts all."""


def _find_named(node: pb.AlterObjectSchemaStmt | pb.RenameStmt, word: str, session: Session, transaction: Transaction) -> Relation | None:
    """Return the relation of ALTER INDEX, VIEW, … if it is of that kind (any kind for ALTER TABLE). For IF EXISTS: None and a NOTICE."""
    cursor, context = transaction.cursor, session.context
    relation = lookup.altered(cursor, session, node.relation, missing_ok=node.missing_ok)
    if relation is None:
        return None
    kinds, kind_phrase = KINDS.get(word, (frozenset(RelationKind), ""))
    if relation.kind not in kinds:
        raise PostgresError("42809", f'"{relation.name}" is not {kind_phrase}')
    if relation.kind == RelationKind.SEQUENCE and getattr(node, "rename_type", None) == pb.OBJECT_COLUMN:
        raise PostgresError(
            "42809",
            f'cannot rename columns of relation "{relation.name}"',
            detail="This operation is not supported for sequences.",
        )
    privilege.check_owner(cursor, context.user, relation.owner, lookup.KINDS[relation.kind], relation.name)
    privilege.refuse_system(relation)  # PostgreSQL renames views of information_schema; here nothing could read them afterwards
    renames_part = getattr(node, "rename_type", None) in (pb.OBJECT_COLUMN, pb.OBJECT_TABCONSTRAINT)
    transaction.own(inheritance.expanded(cursor, relation) if renames_part and node.relation.inh else relation)
    return relation


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    """Execute ALTER TABLE … RENAME [COLUMN | CONSTRAINT], or ALTER INDEX, VIEW, SEQUENCE … RENAME."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    word = WORDS.get(node.relation_type if node.rename_type == pb.OBJECT_COLUMN else node.rename_type, "TABLE")
    tag = CommandResult(f"ALTER {word}")
    relation = _find_named(node, "TABLE" if word == "INDEX" else word, session, transaction)
    if relation is None:
        return tag
    with view.rewritten(session, transaction, view.naming_views(cursor, relation)):
        _rename(node, relation, session, transaction)
    transaction.catalog_changed()
    return tag


def _rename(node: pb.RenameStmt, relation: Relation, session: Session, transaction: Transaction) -> None:
    cursor = transaction.cursor
    if node.rename_type == pb.OBJECT_COLUMN:
        subscription_history.refuse_change(cursor, relation.database, relation.oid, relation.name, "alter")
        column = relation.column(node.subname)
        if column is None:
            if node.subname in SYSTEM_COLUMNS:
                raise PostgresError("0A000", f'cannot rename system column "{node.subname}"')
            raise PostgresError("42703", f'column "{node.subname}" does not exist')
        alter_partition.check_rename(cursor, relation, column, only=not node.relation.inh)
        alteration = Alteration(session, transaction, relation)
        alter_partition.refuse_other_parents(alteration, column.name, 'cannot rename inherited column "{}"')
        for table in (*alteration.below(), alteration):
            _rename_column(transaction, table.relation, node.subname, node.newname)
        alter_partition.renamed(transaction, relation)
    elif node.rename_type == pb.OBJECT_TABCONSTRAINT:
        _rename_constraint(transaction, relation, node)
    else:
        privilege.check_new_name(cursor, session.context.user, relation)
        pg_class.rename(cursor, relation, node.newname)


def _rename_constraint(transaction: Transaction, relation: Relation, node: pb.RenameStmt) -> None:
    """Rename a constraint, a CHECK constraint in the tables below too. Raise 42P16 for one that the table inherits."""
    cursor, name = transaction.cursor, node.subname
    tables = [relation]
    if any(check.name == name and not check.no_inherit for check in relation.checks):
        if inheritance.check_origin(cursor, relation, name)[0]:
            raise PostgresError("42P16", f'cannot rename inherited constraint "{name}"')
        below = inheritance.below(cursor, relation)
        if below and not node.relation.inh:
            raise PostgresError("42P16", f'inherited constraint "{name}" must be renamed in child tables too')
        tables += below
    for table in tables:
        constraints.rename_constraint(cursor, table, name, node.newname)


def _rename_column(transaction: Transaction, relation: Relation, name: str, new_name: str) -> None:
    cursor = transaction.cursor
    column = relation.column(name)
    assert column is not None
    attribute.rename_column(cursor, relation, column.attnum, new_name)
    changed = relations.get(cursor, relation.database, relation.oid)
    stored_expression.rename_in_expressions(cursor, transaction.catalog.next_oid, relation, changed)
    membership.renamed(cursor, relation, changed)
    if relation.kind == RelationKind.TABLE:
        transaction.ddl.alter(relation, changed)


def set_schema(node: pb.AlterObjectSchemaStmt, session: Session) -> CommandResult:
    """Execute ALTER TABLE, VIEW, SEQUENCE … SET SCHEMA."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    word = WORDS.get(node.object_type, "TABLE")
    relation = _find_named(node, word, session, transaction)
    if relation is None:
        return CommandResult(f"ALTER {word}")
    if any(name == "pg_temp" or name.startswith("pg_temp_") for name in (node.newschema, relation.schema)):
        raise PostgresError("0A000", "cannot move objects into or out of temporary schemas")
    namespace = lookup.used_namespace(cursor, context.database, node.newschema)
    privilege.check_create_in_schema(cursor, context.user, context.database, namespace)
    if "pg_toast" in (node.newschema, relation.schema):
        raise PostgresError("0A000", "cannot move objects into or out of TOAST schema")
    if namespace == relation.namespace_oid:
        return CommandResult(f"ALTER {word}")
    same_named = rows(
        cursor,
        "SELECT 1 FROM hg.pg_class WHERE dbid = ? AND relnamespace = ? AND relname = ?",
        [context.database, namespace, relation.name],
    )
    if same_named:
        raise PostgresError("42P07", f'relation "{relation.name}" already exists in schema "{node.newschema}"')
    with view.rewritten(session, transaction, view.naming_views(cursor, relation)):
        pg_class.set_schema(cursor, relation, namespace)
    transaction.catalog_changed()
    return CommandResult(f"ALTER {word}")
