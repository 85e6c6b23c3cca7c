"""CREATE TABLE … INHERITS: the columns and CHECK constraints that a new table has from its parents (tablecmds.c: MergeAttributes).

Called by `table`, and by `table_definition`, which merges the columns of the statement into those of the parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.relation import Check, Column, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege, stored_expression, temporary_schema
from headgate.commands.session import Session
from headgate.errors import Notices, PostgresError, not_supported
from headgate.expression.node import ColumnRef, walk
from headgate.sql.parser import unwrap
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry


@dataclass
class Inherited:
    """The parents of a new table, with their merged columns and CHECK constraints.

    `counts` and `check_counts`: the number of parents that have each of them. `conflicting`: the columns whose default or generation
    expression is not the same in all parents. `local`: the columns that the statement itself has too.
    """

    notices: Notices
    parents: list[Relation] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)
    checks: dict[str, tuple[Check, Relation]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    check_counts: dict[str, int] = field(default_factory=dict)
    conflicting: set[str] = field(default_factory=set)
    local: list[str] = field(default_factory=list)

    def record(self, cursor: Cursor, child: Relation, local_checks: Sequence[str]) -> None:
        """Write the rows of the catalogs for the new table. `local_checks`: the constraints that the statement itself has."""
        inheritance.add_parents(cursor, child, self.parents)
        for name, count in self.counts.items():
            inheritance.set_column_origin(cursor, child, name, (count, name in self.local))
        for name, count in self.check_counts.items():
            inheritance.set_check_origin(cursor, child, name, (count, name in local_checks))


def of_statement(node: pb.CreateStmt, session: Session, transaction: Transaction) -> Inherited:
    """Return the merged definitions of the tables that INHERITS names. Raise PostgreSQL's errors for those that cannot be parents."""
    inherited = Inherited(session.notices)
    if node.HasField("partbound"):
        return inherited
    parents = [named_parent(unwrap(item), session, transaction) for item in node.inh_relations]
    for place, parent in enumerate(parents):
        if any(parent.oid == earlier.oid for earlier in parents[:place]):
            raise PostgresError("42P07", f'relation "{parent.name}" would be inherited from more than once')
    for parent in parents:
        _check_parent(parent, node, session, transaction.cursor)
        inherited.parents.append(parent)
        _merge_columns(inherited, parent, transaction.cursor)
        _merge_checks(inherited, parent)
    return inherited


def named_parent(node: pb.RangeVar, session: Session, transaction: Transaction) -> Relation:
    """Return the table that is to have, or has, a child. Its definition is changed with that of the child."""
    parent = lookup.target(transaction.cursor, session.context, node)
    transaction.catalog.change_object("pg_class", parent.oid)
    return relations.get(transaction.cursor, parent.database, parent.oid)


def _check_parent(parent: Relation, node: pb.CreateStmt, session: Session, cursor: Cursor) -> None:
    if parent.is_partitioned:
        raise PostgresError("42809", f'cannot inherit from partitioned table "{parent.name}"')
    if parent.parent:
        raise PostgresError("42809", f'cannot inherit from partition "{parent.name}"')
    if parent.kind not in TABLE_KINDS | {RelationKind.FOREIGN_TABLE}:
        raise PostgresError("42809", f'inherited relation "{parent.name}" is not a table or foreign table')
    is_temporary = temporary_schema.wanted(node.relation)
    refuse_temporary(parent, session, is_temporary=is_temporary)
    privilege.check_owner(cursor, session.context.user, parent.owner, "table", parent.name)
    if parent.persistence != "t" and is_temporary:
        raise not_supported("a temporary table that inherits from a permanent one is not supported")


def refuse_temporary(parent: Relation, session: Session, *, is_temporary: bool) -> None:
    """Raise 42809 for a temporary parent of a permanent child (not `is_temporary`), or one of another session."""
    if parent.persistence == "t" and not is_temporary:
        raise PostgresError("42809", f'cannot inherit from temporary relation "{parent.name}"')
    if parent.persistence == "t" and parent.schema != session.context.temp_schema:
        raise PostgresError("42809", "cannot inherit from temporary relation of another session")


def _merge_columns(inherited: Inherited, parent: Relation, cursor: Cursor) -> None:
    for column in parent.columns:
        name, known = column.name, inherited.columns.get(column.name)
        if known is None:
            inherited.columns[name] = replace(column, identity="")
            inherited.counts[name] = 1
            continue
        inherited.notices.notice(f'merging multiple inherited definitions of column "{name}"')
        check_type(cursor, known, column, "inherited column")
        if (known.generated is None) != (column.generated is None):
            raise PostgresError("42804", f'inherited column "{name}" has a generation conflict')
        inherited.counts[name] += 1
        value, known_value = column.generated or column.default, known.generated or known.default
        if value is not None and known_value is not None and value != known_value:
            inherited.conflicting.add(name)
        inherited.columns[name] = replace(
            known, not_null=known.not_null or column.not_null, default=known.default or column.default, generated=known.generated
        )


def check_type(cursor: Cursor, known: Column, column: Column, word: str) -> None:
    """Raise 42804 or 42P21 unless two definitions of a column have the same type and collation."""
    if (known.type_oid, known.typmod) != (column.type_oid, column.typmod):
        first, second = (registry.known().format_type(either.type_oid, either.typmod) for either in (known, column))
        raise PostgresError("42804", f'{word} "{column.name}" has a type conflict', detail=f"{first} versus {second}")
    if known.collation != column.collation:
        first, second = (_collation(cursor, either.collation) for either in (known, column))
        raise PostgresError("42P21", f'{word} "{column.name}" has a collation conflict', detail=f'"{first}" versus "{second}"')


def _collation(cursor: Cursor, oid: int) -> str:
    row = one(cursor, "SELECT collname FROM hg.pg_collation WHERE oid = ?", [oid])
    return "" if row is None else str(row[0])


def _merge_checks(inherited: Inherited, parent: Relation) -> None:
    for check in parent.checks:
        if check.no_inherit:
            continue
        refuse_whole_row(check, parent)
        known = inherited.checks.setdefault(check.name, (check, parent))
        if known[0].expression != check.expression:
            message = f'check constraint name "{check.name}" appears multiple times but with different expressions'
            raise PostgresError("42710", message)
        inherited.check_counts[check.name] = inherited.check_counts.get(check.name, 0) + 1


def refuse_whole_row(check: Check, relation: Relation) -> None:
    """Raise 0A000 for a constraint that names the whole row of its table, whose type a child does not have."""
    expression = stored_expression.stored(check.expression, relation)
    if any(isinstance(part, ColumnRef) and part.attnum == 0 for part in walk(expression)):
        detail = f'Constraint "{check.name}" contains a whole-row reference to table "{relation.name}".'
        raise PostgresError("0A000", "cannot convert whole-row table reference", detail=detail)


def refuse_conflicting(inherited: Inherited, overridden: Sequence[str]) -> None:
    """Raise 42611 for a column whose parents have different values, unless the statement has its own value for it."""
    for name, column in inherited.columns.items():
        if name not in inherited.conflicting or name in overridden:
            continue
        if column.generated is not None:
            raise PostgresError("42611", f'column "{name}" inherits conflicting generation expressions')
        hint = "To resolve the conflict, specify a default explicitly."
        raise PostgresError("42611", f'column "{name}" inherits conflicting default values', hint=hint)


def merged_checks(
    inherited: Sequence[tuple[Check, Relation]], own: Sequence[NewCheck], columns: Sequence[Column], table: str, notices: Notices
) -> list[NewCheck]:
    """Return the CHECK constraints of a new table with these columns: those of its parents, and its own ones that are not the same.

    Raise 42710 or 42P17 for one of its own that conflicts with an inherited one (MergeWithExistingConstraint).
    """
    numbers = {column.name: column.attnum for column in columns}
    checks = {
        check.name: NewCheck(
            check.expression, check.name, tuple(sorted(numbers[name] for name in stored_expression.columns_of(check.expression, parent)))
        )
        for check, parent in inherited
    }
    more = []
    for check in own:
        known = checks.get(check.name or "")
        if known is None:
            more.append(check)
            continue
        if known.expression != check.expression:
            raise PostgresError("42710", f'constraint "{check.name}" for relation "{table}" already exists')
        if check.no_inherit:
            raise PostgresError("42P17", f'constraint "{check.name}" conflicts with inherited constraint on relation "{table}"')
        notices.notice(f'merging constraint "{check.name}" with inherited definition')
    return [*checks.values(), *more]
