"""CREATE TYPE … AS ENUM, ALTER TYPE, DROP TYPE (manual, part VI; 8.7 Enumerated Types).

Called by `execute`. Columns store an enum's labels as text, so RENAME VALUE rewrites the rows of all columns of the type, as
ALTER COLUMN … TYPE would. Streams do not see that as a change. Stored expressions contain the names of types and labels, and are
rewritten when one is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.catalog import namespace, user_type
from headgate.catalog.physical import Cursor, one, rows, run
from headgate.catalog.relation import attribute, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.pretty import pretty
from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.user_type import TypeRow
from headgate.commands import dependency, lookup, privilege, stored_expression
from headgate.commands.function import dependant
from headgate.commands.query import rendering
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import alter_column, rewrite_table
from headgate.commands.table.alteration import Alteration
from headgate.errors import PostgresError, not_supported
from headgate.expression import rewriting
from headgate.expression.binding import binder
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import Const, Expression
from headgate.expression.rewriting import Substitute
from headgate.expression.spark.value import arrow_function
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse_expression, unwrap
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry
from headgate.types.registry import TypeRegistry
from headgate.types.text import array as arrays


def create_enum(node: pb.CreateEnumStmt, session: Session) -> CommandResult:
    """Execute CREATE TYPE name AS ENUM (…)."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    schema, name = names.split_name(node.type_name, context.database_name)
    oid, _ = lookup.creation_schema(cursor, context, schema or "")
    privilege.check_create_in_schema(cursor, context.user, context.database, oid)
    owner = privilege.used_role(cursor, context.user)
    labels = names.strings(node.vals)
    user_type.create_enum(cursor, transaction.engine.catalog.next_oid, context.database, oid, name, owner, labels)
    changed(session)
    return CommandResult("CREATE TYPE")


def changed(session: Session) -> None:
    """Make all sessions and workers read the types again: this session now, the others after the transaction has ended."""
    catalog = session.parts.catalog
    catalog.types_changed()
    session.after_commit(catalog.types_changed)
    session.after_rollback(catalog.types_changed)
    session.use_types()


def alter_enum(node: pb.AlterEnumStmt, session: Session) -> CommandResult:
    """Execute ALTER TYPE … ADD VALUE or RENAME VALUE."""
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    enum = owned(node.type_name, session, cursor)
    if enum.kind != "e":
        raise PostgresError("42809", f"{registry.format_type(enum.oid) if not enum.relation else enum.name} is not an enum")
    if node.old_val:
        transaction.catalog.lock_object("pg_type", enum.oid)
        before = registry.known()
        user_type.rename_label(cursor, database, enum.oid, node.old_val, node.new_val)
        user_type.check_label(node.new_val)
        changed(session)
        with rendering.running(session, transaction):
            _rename_stored(session, transaction, enum, node.old_val, node.new_val)
        _rewrite_expressions(transaction, database, before, _label_change(enum, node.old_val, node.new_val))
        return CommandResult("ALTER TYPE")
    transaction.catalog.change_object("pg_type", enum.oid)
    user_type.check_label(node.new_val)
    if any(label == node.new_val for label, _ in user_type.labels_of(cursor, database, enum.oid)):
        message = f'enum label "{node.new_val}" already exists'
        if not node.skip_if_new_val_exists:
            raise PostgresError("42710", message)
        session.notices.notice(message + ", skipping", sqlstate="42710")
        return CommandResult("ALTER TYPE")
    next_oid = transaction.engine.catalog.next_oid
    user_type.add_label(
        cursor, next_oid, database, enum.oid, node.new_val, node.new_val_neighbor or None, after=bool(node.new_val_is_after)
    )
    changed(session)
    return CommandResult("ALTER TYPE")


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    """Execute ALTER TYPE … RENAME TO."""
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    renamed_type = owned(unwrap(node.object).items, session, cursor)
    _refuse_special(renamed_type, "cannot alter")
    transaction.catalog.lock_object("pg_type", renamed_type.oid)
    before = registry.known()
    user_type.rename(cursor, database, renamed_type, node.newname)
    changed(session)
    _rewrite_expressions(transaction, database, before)
    return CommandResult("ALTER DOMAIN" if node.rename_type == pb.OBJECT_DOMAIN else "ALTER TYPE")


def set_schema(node: ParseNode, session: Session) -> CommandResult:
    """Execute ALTER TYPE … SET SCHEMA."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    moved_type = owned(unwrap(node.object).items, session, cursor)
    _refuse_special(moved_type, "cannot alter")
    transaction.catalog.lock_object("pg_type", moved_type.oid)
    target = lookup.used_namespace(cursor, context.database, node.newschema)
    privilege.check_create_in_schema(cursor, context.user, context.database, target)
    before = registry.known()
    user_type.set_schema(cursor, context.database, moved_type, target)
    changed(session)
    _rewrite_expressions(transaction, context.database, before)
    return CommandResult("ALTER DOMAIN" if node.object_type == pb.OBJECT_DOMAIN else "ALTER TYPE")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    """Execute ALTER TYPE … OWNER TO."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    owner, oid = privilege.new_owner(cursor, context, node.newowner)
    owned_type = owned(unwrap(node.object).items, session, cursor)
    _refuse_special(owned_type, "cannot alter")
    if oid != owned_type.owner and not privilege.is_superuser(cursor, context.user):
        privilege.check_member(cursor, context.user, owner)
        privilege.check_create_in_schema(cursor, owner, context.database, owned_type.namespace)
    transaction.catalog.change_object("pg_type", owned_type.oid)
    user_type.set_owner(cursor, context.database, owned_type, oid)
    return CommandResult("ALTER DOMAIN" if node.object_type == pb.OBJECT_DOMAIN else "ALTER TYPE")


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """Execute DROP TYPE [IF EXISTS] a, b [CASCADE]."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    types: list[TypeRow] = []
    for item in node.objects:
        parts = unwrap(item).names
        row = find(parts, session, cursor, missing_ok=node.missing_ok)
        if row is None:
            continue
        if node.remove_type == pb.OBJECT_DOMAIN and row.kind != "d":
            raise PostgresError("42809", f'"{row.name}" is not a domain')
        _check_type_owner(row, session, cursor)
        _refuse_special(row, "cannot drop")
        types.append(row)
    if types:
        drop_all(session, transaction, types, cascade=node.behavior == pb.DROP_CASCADE)
        changed(session)
        transaction.catalog_changed()
    return CommandResult("DROP DOMAIN" if node.remove_type == pb.OBJECT_DOMAIN else "DROP TYPE")


def drop_all(session: Session, transaction: Transaction, type_rows: Sequence[TypeRow], *, cascade: bool) -> None:
    """Drop types. With `cascade`, also drop the columns of these types. Otherwise raise 2BP01 if there are any."""
    cursor, database = transaction.cursor, session.context.database
    dropped_oids = [oid for row in type_rows for oid in (row.oid, row.array)]
    domains = [row for row in user_type.domains_over(cursor, database, dropped_oids) if row.oid not in dropped_oids]
    while further_domains := [
        row
        for row in user_type.domains_over(cursor, database, [oid for domain in domains for oid in (domain.oid, domain.array)] or [0])
        if row not in domains
    ]:
        domains += further_domains
    dropped_oids += [oid for row in domains for oid in (row.oid, row.array)]
    for oid in dropped_oids:
        if oid:
            transaction.catalog.lock_object("pg_type", oid)
    depending = user_type.columns_of(cursor, database, dropped_oids)
    for oid in dict.fromkeys(oid for oid, _, _ in depending):
        transaction.own(relations.get(cursor, database, oid))
    base_types = {row.oid: _base(cursor, database, row.oid) for row in domains}
    attributes = user_type.columns_of(cursor, database, dropped_oids, "c")
    attribute_dependants = [attribute_row for attribute_row in attributes if attribute_row[0] not in {kind.relation for kind in type_rows}]
    if attribute_dependants and cascade:
        raise not_supported("DROP … CASCADE of a type that a composite type has is not supported")
    lines = [(f"type {registry.format_type(row.oid)}", f"type {registry.format_type(base_types[row.oid])}") for row in domains]
    dependants = [(relation, f"column {column} of table", kind) for relation, column, kind in depending]
    dependants += [(relation, f"column {column} of composite type", kind) for relation, column, kind in attribute_dependants]
    lines += [
        (f"{what} {_table(cursor, session, relation)}", f"type {registry.format_type(kind)}")
        for relation, what, kind in sorted(dependants, key=_as_told)
    ]
    using = list({entry.key: entry for entry in dependant.of_types(session, [oid for oid in dropped_oids if oid])}.values())
    lines += [(entry.shown, entry.on) for entry in using]
    descriptions = [line for line, _ in lines]
    if lines and not cascade:
        subject = f"type {registry.format_type(type_rows[0].oid)}" if len(type_rows) == 1 else "desired object(s)"
        raise PostgresError(
            "2BP01",
            f"cannot drop {subject} because other objects depend on {'it' if len(type_rows) == 1 else 'them'}",
            detail="\n".join(f"{description} depends on {on}" for description, on in lines),
            hint=dependency.HINT,
        )
    if len(descriptions) == 1:
        session.notices.notice(f"drop cascades to {descriptions[0]}")
    elif descriptions:
        session.notices.notice(
            f"drop cascades to {len(descriptions)} other objects",
            detail="\n".join(f"drop cascades to {description}" for description in descriptions),
        )
    for entry in reversed(using):
        entry.drop()
    for oid, column, _ in depending:
        alteration = Alteration(session, transaction, relations.get(cursor, database, oid))
        command = pb.AlterTableCmd(subtype=pb.AT_DropColumn, name=column, behavior=pb.DROP_CASCADE, missing_ok=True)
        alter_column.drop_column(alteration, command)
    for row in [*type_rows, *domains]:
        if row.relation:
            removal.drop(cursor, database, row.relation)
        user_type.drop(cursor, database, row)


def _as_told(dependant: tuple[int, str, int]) -> tuple[bool, int]:
    """Return the sort key of a dependent object in PostgreSQL's order, which lists those of the array type first."""
    relation, _, kind = dependant
    return not registry.known().by_oid(kind).is_array, relation


def _base(cursor: Cursor, database: int, domain: int) -> int:
    row = one(cursor, "SELECT typbasetype FROM hg.pg_type WHERE dbid = ? AND oid = ?", [database, domain])
    return 0 if row is None else int(row[0])


def _table(cursor: Cursor, session: Session, oid: int) -> str:
    relation = relations.get(cursor, session.context.database, oid)
    path = lookup.search_path(cursor, session.context)
    visible = relations.lookup(cursor, session.context.database, None, relation.name, path)
    return names.qualified(None if visible is not None and visible.oid == oid else relation.schema, relation.name)


def find(parts: Iterable[pb.Node], session: Session, cursor: Cursor, *, missing_ok: bool = False) -> TypeRow | None:
    """Return the type with a name (String nodes). If it does not exist, raise 42704, or return None with a NOTICE if `missing_ok`."""
    context = session.context
    schema, name = names.split_name(parts, context.database_name)
    if schema is not None and namespace.lookup(cursor, context.database, schema) is None:
        if not missing_ok:
            raise PostgresError("3F000", f'schema "{schema}" does not exist')
        session.notices.notice(f'schema "{schema}" does not exist, skipping', sqlstate="00000")
        return None
    path = [schema] if schema is not None else _path(cursor, session)
    for schema_name in path:
        candidate_schema = namespace.lookup(cursor, context.database, schema_name)
        candidate = user_type.lookup(cursor, context.database, candidate_schema.oid, name) if candidate_schema is not None else None
        if candidate is not None:
            return candidate
    type_text = name if schema is None else f"{schema}.{name}"
    if not missing_ok:
        raise PostgresError("42704", f'type "{type_text}" does not exist')
    session.notices.notice(f'type "{type_text}" does not exist, skipping', sqlstate="00000")
    return None


def _path(cursor: Cursor, session: Session) -> list[str]:
    path = lookup.search_path(cursor, session.context)
    return path if "pg_catalog" in path else ["pg_catalog", *path]


def owned(parts: Iterable[pb.Node], session: Session, cursor: Cursor) -> TypeRow:
    """Return the type as `find` does. Raise 42501 if the user does not own it."""
    type_row = find(parts, session, cursor)
    assert type_row is not None
    _check_type_owner(type_row, session, cursor)
    return type_row


def _check_type_owner(type_row: TypeRow, session: Session, cursor: Cursor) -> None:
    privilege.check_owner(cursor, session.context.user, type_row.owner, "type", registry.format_type(type_row.oid))


def _refuse_special(type_row: TypeRow, verb: str) -> None:
    """Raise an error for built-in types, row types of tables and array types."""
    if type_row.builtin:
        if verb == "cannot drop":
            type_text = registry.format_type(type_row.oid)
            raise PostgresError("2BP01", f"cannot drop type {type_text} because it is required by the database system")
        raise not_supported("changing a built-in type is not supported")
    if type_row.relation and registry.known().by_oid(type_row.oid).of_table:
        if verb == "cannot drop":
            raise PostgresError(
                "2BP01",
                f"cannot drop type {type_row.name} because table {type_row.name} requires it",
                hint=f"You can drop table {type_row.name} instead.",
            )
        raise PostgresError("42809", f"{type_row.name} is a table's row type", hint="Use ALTER TABLE instead.")
    element = registry.known().find(type_row.oid)
    if element is not None and element.is_array:
        element_text = registry.format_type(element.element)
        hint = f"You can alter type {element_text}, which will alter the array type as well."
        if verb == "cannot drop":
            type_text, hint = registry.format_type(type_row.oid), f"You can drop type {element_text} instead."
            raise PostgresError("2BP01", f"cannot drop type {type_text} because type {element_text} requires it", hint=hint)
        raise PostgresError("42809", f"cannot alter array type {registry.format_type(type_row.oid)}", hint=hint)


# ---- renaming in rows and expressions -----------------------------------------------------------------------


def _rename_stored(session: Session, transaction: Transaction, type_row: TypeRow, label: str, new_label: str) -> None:
    """Rewrite the rows of all columns of the type, and of its array type, with the new label."""
    for oid, name, kind in user_type.columns_of(transaction.cursor, session.context.database, [type_row.oid, type_row.array]):
        relation = relations.get(transaction.cursor, session.context.database, oid)
        column = relation.column(name)
        if relation.kind != RelationKind.TABLE or column is None:
            continue
        value = F.col(quoted(name))
        if kind == type_row.oid:
            changed = F.when(value == F.lit(label), F.lit(new_label)).otherwise(value)
            is_affected = value == F.lit(label)
        else:
            changed = relabelled(value, label, new_label)
            is_affected = value.contains(label.replace("\\", "\\\\").replace('"', '\\"'))
        transaction.lock(relation)
        with transaction.snapshot.seeing_newest():
            rows = transaction.frame(relation)
        if not rows.where(is_affected).limit(1).isEmpty():
            rewrite_table.replace_column(transaction, relation, column, changed)


def relabelled(value: Column, label: str, new_label: str) -> Column:
    """Replace a label in the elements of arrays of an enum."""

    def new_labels(texts: pa.Array) -> pa.Array:
        return arrays.read_array(texts, ",", lambda items: pc.if_else(pc.equal(items, label), new_label, items))

    return arrow_function(new_labels, StringType())(value)


def _label_change(type_row: TypeRow, label: str, new_label: str) -> Substitute:
    def change(node: Expression) -> Expression | None:
        if not isinstance(node, Const) or node.value is None:
            return None
        if node.type.oid == type_row.oid and node.value == label:
            return replace(node, value=new_label)
        if node.type.oid == type_row.array:
            shape, items = arrays.parse(node.value, ",")
            return replace(node, value=arrays.print_array(shape, [new_label if item == label else item for item in items], ","))
        return None

    return change


def _rewrite_expressions(transaction: Transaction, database: int, before: TypeRegistry, change: Substitute | None = None) -> None:
    """Rewrite the DEFAULT, CHECK and GENERATED expressions of the database that contain a type's name, with the types' current names."""
    cursor = transaction.cursor
    sql = (
        "SELECT adrelid FROM hg.pg_attrdef WHERE dbid = ? AND contains(adbin, '::')"
        " UNION SELECT conrelid FROM hg.pg_constraint WHERE dbid = ? AND contype = 'c' AND contains(conbin, '::')"
    )
    for (oid,) in rows(cursor, sql, [database, database]):
        relation = relations.find(cursor, database, oid)
        if relation is not None:
            _rewrite_relation(transaction, relation, before, change)


def _rewrite_relation(transaction: Transaction, relation: Relation, before: TypeRegistry, change: Substitute | None) -> None:
    cursor, oids = transaction.cursor, transaction.engine.catalog.next_oid
    scope = stored_expression.scope_of(relation.columns, relation.name)
    reading = stored_expression.context().within(types=before.anywhere(), stored=True)

    def rewritten(text: str, column: TableColumn | None = None) -> str:
        bound = binder.bind_raw(parse_expression(text), scope, reading)
        if column is not None:
            bound = binder.assign(bound, stored_expression.type_of(column), column.name, reading)
        return deparse(rewriting.rewrite(bound, change) if change is not None else bound)

    for constraint in relation.checks:
        text = rewritten(constraint.expression)
        if text != constraint.expression:
            sql = "UPDATE hg.pg_constraint SET conbin = ?, conbinpretty = ? WHERE dbid = ? AND oid = ?"
            run(cursor, sql, [text, pretty(text), relation.database, constraint.oid])
    for column in relation.columns:
        old = column.generated if column.generated is not None else column.default
        if old is not None and "::" in old and not old.startswith("nextval(") and (text := rewritten(old, column)) != old:
            attribute.set_default(cursor, oids, relation, column.attnum, text)
