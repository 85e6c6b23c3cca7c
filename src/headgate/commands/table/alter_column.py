"""ALTER TABLE … ADD, DROP and ALTER COLUMN, with the objects that depend on a column.

Called by `alter_table`. A change of the stored columns is passed to the storage with the old and the new relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.physical import rows, update
from headgate.catalog.relation import attribute, inheritance, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, RelationKind
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import dependency, stored_expression
from headgate.commands.alteration import Alteration
from headgate.commands.constraint import index_key, uniqueness
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.partition import partition_foreign_key
from headgate.commands.publication import membership
from headgate.commands.sequence import sequence, sequence_owner
from headgate.commands.table import alter_constraint, alter_partition, foreign_key, identity_column, policy, rewrite_table, table_definition
from headgate.commands.view import view
from headgate.errors import PostgresError, without_position
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.sql import names
from headgate.sql.parser import parse_expression, unwrap, walk
from headgate.types import registry


def add_column(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    relation, cursor = alteration.relation, alteration.cursor
    element = unwrap(getattr(command, "def"))
    if relation.column(element.colname) is not None:
        message = f'column "{element.colname}" of relation "{relation.name}" already exists'
        alteration.session.notices.skip(PostgresError("42701", message), allowed=command.missing_ok, sqlstate="42701")
        return
    column, elements = table_definition.column(
        element, relation.name, relation.all_columns, cursor, relation.database, alteration.session.context.forms
    )
    if column.identity and alteration.children() and not alteration.only:
        raise PostgresError("42P16", "cannot recursively add identity column to table that has child tables")
    next_oid = alteration.transaction.catalog.next_oid
    sequence_oids: dict[str, int] = {}
    for need in elements.sequences:
        name = sequence.owned_name(cursor, relation.database, relation.namespace_oid, relation.name, need.column)
        sequence_oids[need.column] = sequence.create(
            cursor, next_oid, relation.database, relation.namespace_oid, name, relation.owner, need.type_oid, need.options
        )
        if not need.identity:
            column = replace(column, default=sequences.next_value(sequence_oids[need.column]))
    attnum = attribute.add_column(cursor, next_oid, relation, column)
    for oid in sequence_oids.values():
        sequence_owner.own(cursor, relation.database, oid, relation.oid, attnum, identity=bool(column.identity))
    alteration.refresh()
    alteration.stored_columns_changed(relation)
    rewrite_table.fill_added_column(alteration.session, alteration.transaction, alteration.relation, replace(column, attnum=attnum))
    alter_partition.add_column(alteration, replace(column, attnum=attnum))
    for key in elements.keys:
        alter_constraint.add_key(alteration, key)
    for check in elements.checks:
        alter_constraint.add_check(alteration, check)
    for declared in elements.foreign_keys:
        foreign_key.add(declared, alteration.relation, alteration.session, alteration.transaction, check=True)


def drop_column(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    relation, cursor = alteration.relation, alteration.cursor
    column = relation.column(command.name)
    if column is None:
        if command.missing_ok and command.name not in SYSTEM_COLUMNS:
            alteration.session.notices.notice(f'column "{command.name}" of relation "{relation.name}" does not exist, skipping')
            return
        column = alteration.column(command.name, "drop")
    tables = [*_losing(alteration, column.name), alteration]
    _settle_columns(tables, column.name, cascade=command.behavior == pb.DROP_CASCADE)
    for table in reversed(tables):
        lost = table.column(column.name)
        with view.rewritten(table.session, table.transaction, views.readers(cursor, relation.database, table.relation.oid)):
            _drop_column(table, lost)


def _losing(alteration: Alteration, name: str) -> Iterator[Alteration]:
    """Yield the tables below that lose a column that is dropped, in PostgreSQL's order. The others have one parent less for it."""
    for child in alteration.children(even_only=True):
        count, is_local = inheritance.column_origin(alteration.cursor, child.relation, name)
        if count == 1 and not is_local and not alteration.only:
            yield from _losing(child, name)
            yield child
        else:
            inheritance.set_column_origin(alteration.cursor, child.relation, name, (count - 1, is_local or alteration.only))


def _drop_column(alteration: Alteration, column: Column) -> None:
    relation, cursor = alteration.relation, alteration.cursor
    generated = [candidate for candidate in relation.columns if column.name in _columns_of(candidate.generated, relation)]
    for index in relation.indexes:
        if not index.plain and column.attnum in index_key.used_columns(relation, index):
            removal.drop_index(cursor, alteration.relation, index.oid)
    alteration.refresh()
    for dropped in [*generated, column]:
        owned = sequences.of_column(cursor, relation.database, relation.oid, dropped.attnum)
        if owned is not None:
            removal.drop(cursor, relation.database, owned)
        removal.drop_column(cursor, alteration.relation, dropped.attnum)
        alteration.refresh()
    alteration.stored_columns_changed(relation)


def _settle_columns(tables: Sequence[Alteration], name: str, *, cascade: bool) -> None:
    """Check the objects that depend on a column to be dropped from tables. Raise an error, or with `cascade` report and remove them."""
    cursor, context = tables[0].cursor, tables[0].session.context
    dependants, own, subjects = list[dependency.Dependant](), list[tuple[int, int]](), list[str]()
    for table in reversed(tables):
        column = table.column(name)
        subjects.append(f"column {name} of {dependency.shown(cursor, context, table.relation)}")
        dependants += _dependants(table, column, subjects[-1])
        sql = "SELECT oid FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ? AND adnum = ?"
        own += [(2604, oid) for (oid,) in rows(cursor, sql, [table.relation.database, table.relation.oid, column.attnum])]
    dependency.settle(tables[0].transaction, dependants, subjects, tables[0].session.notices, cascade=cascade, going=own)
    for table in tables:
        table.refresh()


def _dependants(alteration: Alteration, column: Column, on: str) -> list[dependency.Dependant]:
    """Return the objects that depend on a column. `on`: the column in messages."""
    relation, cursor, context = alteration.relation, alteration.cursor, alteration.session.context
    table = dependency.shown(cursor, context, relation)
    dependants = [
        dependency.Dependant(
            (dependency.COLUMN, relation.oid << 11 | generated_column.attnum),
            f"column {generated_column.name} of {table}",
            on,
            lambda: None,
        )
        for generated_column in relation.columns
        if column.name in _columns_of(generated_column.generated, relation)
    ]
    dependants += dependency.of_column(cursor, context, relation, column.attnum)
    dependants += policy.dependants(cursor, relation, table, on, column.name)
    dependants += _triggers(alteration, column, table, on)
    dependants += [_member(alteration, table, on, member) for member in membership.depending(cursor, relation, column.attnum)]
    owned = sequences.of_column(cursor, relation.database, relation.oid, column.attnum)
    if owned is not None:
        return [*dependant_functions.of_relation(alteration.session, relations.get(cursor, relation.database, owned)), *dependants]
    return dependants


def _triggers(alteration: Alteration, column: Column, table: str, on: str) -> list[dependency.Dependant]:
    """Return the triggers that name a column in UPDATE OF or in WHEN, in the order in which they were created."""
    relation, cursor = alteration.relation, alteration.cursor
    dependants = []
    for trigger in sorted(triggers.of_relation(cursor, relation.database, relation.oid), key=lambda trigger: trigger.oid):
        if column.attnum in trigger.columns or column.name in _columns_of_condition(trigger):

            def drop(oid: int = trigger.oid) -> None:
                triggers.drop(cursor, relation.database, oid)

            shown = f"trigger {trigger.name} on {table}"
            dependants.append(dependency.Dependant((2620, trigger.oid), shown, on, drop))
    return dependants


def _columns_of_condition(trigger: Trigger) -> set[str]:
    """Return the columns of OLD and NEW that a trigger's WHEN condition names."""
    if trigger.condition is None:
        return set()
    references = [part for part in walk(parse_expression(trigger.condition)) if part.DESCRIPTOR.name == "ColumnRef"]
    parts = [unwrap(reference.fields[-1]) for reference in references]
    return {part.sval for part in parts if part.DESCRIPTOR.name == "String"}


def _member(alteration: Alteration, table: str, on: str, member: membership.Membership) -> dependency.Dependant:
    text = f"publication of {table} in publication {member.publication}"
    key = (6106, member.publication_oid << 32 | member.relation)
    return dependency.Dependant(key, text, on, lambda: membership.remove(alteration.cursor, [member]))


def _columns_of(expression: str | None, relation: Relation) -> set[str]:
    return set() if expression is None else stored_expression.columns_of(expression, relation)


def set_default(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER COLUMN … SET or DROP DEFAULT."""
    column = alteration.column(command.name)
    relation = alteration.relation
    if column.identity:
        hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead." if not command.HasField("def") else None
        raise PostgresError("42601", f'column "{column.name}" of relation "{relation.name}" is an identity column', hint=hint)
    if column.generated is not None:
        hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead." if not command.HasField("def") else None
        raise PostgresError("42601", f'column "{column.name}" of relation "{relation.name}" is a generated column', hint=hint)
    default = None
    if command.HasField("def"):
        with without_position():
            default = stored_expression.default(getattr(command, "def"), column, alteration.session.context.forms)
    attribute.set_default(alteration.cursor, alteration.transaction.catalog.next_oid, relation, column.attnum, default)
    for child in alteration.children():
        set_default(child, command)


def set_not_null(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER COLUMN … SET NOT NULL. Raise 23502 if the column has NULLs."""
    column = alteration.column(command.name)
    if not column.not_null and not alteration.relation.is_partitioned:
        rewrite_table.check_no_nulls(alteration.transaction, alteration.relation, column)
    for child in alteration.children():
        set_not_null(child, command)
    if not column.not_null:
        attribute.set_not_null(alteration.cursor, alteration.relation, column.attnum, not_null=True)


def drop_not_null(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    column = alteration.column(command.name)
    relation = alteration.relation
    if column.attnum in relation.primary_key:
        raise PostgresError("42P16", f'column "{column.name}" is in a primary key')
    if column.identity:
        raise PostgresError("42601", f'column "{column.name}" of relation "{relation.name}" is an identity column')
    if relation.replica_identity == ReplicaIdentity.INDEX and column.attnum in (relation.identity_index or ()):
        raise PostgresError("42P16", f'column "{column.name}" is in index used as replica identity')
    attribute.set_not_null(alteration.cursor, relation, column.attnum, not_null=False)
    for child in alteration.children():
        drop_not_null(child, command)


def alter_type(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER COLUMN … TYPE … [USING …], in all tables below too."""
    alter_partition.refuse_other_parents(alteration, command.name, 'cannot alter inherited column "{}" of relation "{}"')
    altered = [alteration, *alteration.below()]
    for table in altered:
        _alter_type(table, command)
    for table in reversed(altered):
        _check_references(table, table.column(command.name))


def _alter_type(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    element = unwrap(getattr(command, "def"))
    column = alteration.column(command.name)
    relation = alteration.relation
    hold.use(alteration.cursor, "pg_type", names.type_name(element.type_name)[0])
    for dependent_view in dependency.views_of(alteration.cursor, alteration.session.context, relation, "", column.attnum)[:1]:
        raise PostgresError(
            "0A000",
            "cannot alter type of a column used by a view or rule",
            detail=f'rule _RETURN on {dependent_view.shown} depends on column "{column.name}"',
        )
    for member in membership.depending(alteration.cursor, relation, column.attnum):
        raise PostgresError(
            "0A000",
            "cannot alter type of a column used by a publication WHERE clause",
            detail=f'publication of table {relation.name} in publication {member.publication} depends on column "{column.name}"',
        )
    if column.identity:
        identity_column.change_type(alteration, column.attnum, element.type_name)
    rewrite_table.alter_type(alteration, column, element.type_name, element.raw_default if element.HasField("raw_default") else None)
    _check_constraints(alteration, relation, column)


def _check_constraints(alteration: Alteration, old: Relation, column: Column) -> None:
    """Check the rows of a table, in which a column has other values than in `old`, by the column's constraints, in PostgreSQL's order."""
    session, transaction, relation = alteration.session, alteration.transaction, alteration.relation
    if relation.kind != RelationKind.TABLE:
        return
    if column.not_null:
        rewrite_table.check_no_nulls(transaction, relation, column)
    for check in relation.checks:
        if check.validated and column.name in stored_expression.columns_of(check.expression, old):
            with without_position():
                rewrite_table.check_rows(session, transaction, relation, check)
    for index in relation.unique_indexes:
        if column.attnum in index_key.used_columns(old, index):
            uniqueness.check_table(transaction, relation, index)


def _check_references(alteration: Alteration, column: Column) -> None:
    """Check the foreign keys with a column that has another type: types and rows. The constraint that a clone belongs to covers it."""
    relation = alteration.relation
    for key in (*relation.foreign_keys, *relation.referenced):
        if column.attnum in (key.columns if key.relation == relation.oid else key.target_columns) and not key.parent:
            tables = [relations.get(alteration.cursor, relation.database, oid) for oid in (key.relation, key.target)]
            foreign_key.check_types(key, tables[0], tables[0].columns_at(key.columns), tables[1].columns_at(key.target_columns))
            partition_foreign_key.check_with_clones(alteration.session, alteration.transaction, key)


def drop_expression(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER COLUMN … DROP EXPRESSION [IF EXISTS], in all tables below too. The values stay."""
    for table in (alteration, *alteration.below()):
        _drop_expression(table, command)


def _drop_expression(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    column, relation, cursor = alteration.column(command.name), alteration.relation, alteration.cursor
    if column.generated is None:
        message = f'column "{column.name}" of relation "{relation.name}" is not a stored generated column'
        alteration.session.notices.skip(PostgresError("55000", message), allowed=command.missing_ok)
        return
    update(cursor, "pg_attribute", {"dbid": relation.database, "attrelid": relation.oid, "attnum": column.attnum}, attgenerated="")
    attribute.set_default(cursor, lambda: 0, relation, column.attnum, None)


_MOST_STATISTICS = 10_000
_STORAGES = {"plain": "p", "external": "e", "extended": "x", "main": "m"}


def set_statistics(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute SET STATISTICS of a column, or of an expression of an index by its name or number (ATExecSetStatistics)."""
    relation = alteration.relation
    target = unwrap(getattr(command, "def")).ival
    if not command.name and relation.kind not in INDEX_KINDS:
        raise PostgresError("0A000", "cannot refer to non-index column by number")
    if target < -1:
        raise PostgresError("22023", f"statistics target {target} is too low")
    if target > _MOST_STATISTICS:
        alteration.session.notices.warning(f"lowering statistics target to {_MOST_STATISTICS}", sqlstate="22023")
    column = alteration.column(command.name) if command.name else relation.numbered(command.num)
    if column is None:
        raise PostgresError("42703", f'column number {command.num} of relation "{relation.name}" does not exist')
    if relation.kind in INDEX_KINDS:
        _check_expression(alteration, column)
    attribute.set_statistics_target(alteration.cursor, relation, column.attnum, min(target, _MOST_STATISTICS))
    for child in alteration.children():
        set_statistics(child, command)


def _check_expression(alteration: Alteration, column: Column) -> None:
    """Raise 0A000 unless a column of an index is an expression."""
    index = alteration.relation
    sql = "SELECT indkey, indnkeyatts FROM hg.pg_index WHERE dbid = ? AND indexrelid = ?"
    [(attnums, width)] = rows(alteration.cursor, sql, [index.database, index.oid])
    if attnums[column.attnum - 1]:
        kind = "included" if column.attnum > width else "non-expression"
        raise PostgresError(
            "0A000",
            f'cannot alter statistics on {kind} column "{column.name}" of index "{index.name}"',
            hint="Alter statistics on table column instead.",
        )


def set_storage(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute SET STORAGE, which has no effect on the files of a table (ATExecSetStorage)."""
    word = names.strings([getattr(command, "def")])[0]
    storage = _STORAGES.get(word.lower())
    if storage is None:
        raise PostgresError("22023", f'invalid storage type "{word}"')
    column = alteration.column(command.name)
    if storage != "p" and attribute.storage_of(alteration.cursor, alteration.relation.database, column.type_oid) == "p":
        kind = registry.known().format_type(column.type_oid, -1)
        raise PostgresError("0A000", f"column data type {kind} can only have storage PLAIN")
    attribute.set_storage(alteration.cursor, alteration.relation, column.attnum, storage)
    for child in alteration.children():
        set_storage(child, command)
