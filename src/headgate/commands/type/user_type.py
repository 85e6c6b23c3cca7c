"""CREATE TYPE … AS ENUM, ALTER TYPE, DROP TYPE (manual, part VI; 8.7 Enumerated Types).

Called by `execute`. Columns keep an enum's labels as text, so that RENAME VALUE writes the rows of all columns of the type again,
as ALTER COLUMN … TYPE would: no stream sees a change. Expressions that the catalog keeps name types and labels: they are
written again when one is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from headgate.expression.spark.value import arrow_function
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse_expression, unwrap
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry
from headgate.types.registry import TypeRegistry
from headgate.types.text import array as arrays

Change = Callable[[Expression], Expression | None]


def create_enum(node: pb.CreateEnumStmt, session: Session) -> CommandResult:
    """CREATE TYPE name AS ENUM (…)."""
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
    """All sessions and workers read the types again: this one now, the others once the transaction has ended."""
    catalog = session.node.catalog
    catalog.types_changed()
    session.after_commit(catalog.types_changed)
    session.after_rollback(catalog.types_changed)
    session.use_types()


def alter_enum(node: pb.AlterEnumStmt, session: Session) -> CommandResult:
    """ALTER TYPE … ADD VALUE, RENAME VALUE."""
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    found = owned(node.type_name, session, cursor)
    if found.kind != "e":
        raise PostgresError("42809", f"{registry.format_type(found.oid) if not found.relation else found.name} is not an enum")
    if node.old_val:
        transaction.lock_object("pg_type", found.oid)
        before = registry.known()
        user_type.rename_label(cursor, database, found.oid, node.old_val, node.new_val)
        user_type.check_label(node.new_val)
        changed(session)
        with rendering.running(session, transaction):
            _rename_stored(session, transaction, found, node.old_val, node.new_val)
        _rewrite_expressions(transaction, database, before, _label_change(found, node.old_val, node.new_val))
        return CommandResult("ALTER TYPE")
    transaction.change_object("pg_type", found.oid)
    user_type.check_label(node.new_val)
    if any(label == node.new_val for label, _ in user_type.labels_of(cursor, database, found.oid)):
        message = f'enum label "{node.new_val}" already exists'
        if not node.skip_if_new_val_exists:
            raise PostgresError("42710", message)
        session.notices.notice(message + ", skipping", sqlstate="42710")
        return CommandResult("ALTER TYPE")
    next_oid = transaction.engine.catalog.next_oid
    user_type.add_label(
        cursor, next_oid, database, found.oid, node.new_val, node.new_val_neighbor or None, after=bool(node.new_val_is_after)
    )
    changed(session)
    return CommandResult("ALTER TYPE")


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    """ALTER TYPE … RENAME TO."""
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    found = owned(unwrap(node.object).items, session, cursor)
    _refuse_special(found, "cannot alter")
    transaction.lock_object("pg_type", found.oid)
    before = registry.known()
    user_type.rename(cursor, database, found, node.newname)
    changed(session)
    _rewrite_expressions(transaction, database, before)
    return CommandResult("ALTER DOMAIN" if node.rename_type == pb.OBJECT_DOMAIN else "ALTER TYPE")


def set_schema(node: ParseNode, session: Session) -> CommandResult:
    """ALTER TYPE … SET SCHEMA."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    found = owned(unwrap(node.object).items, session, cursor)
    _refuse_special(found, "cannot alter")
    transaction.lock_object("pg_type", found.oid)
    target = lookup.used_namespace(cursor, context.database, node.newschema)
    privilege.check_create_in_schema(cursor, context.user, context.database, target)
    before = registry.known()
    user_type.set_schema(cursor, context.database, found, target)
    changed(session)
    _rewrite_expressions(transaction, context.database, before)
    return CommandResult("ALTER DOMAIN" if node.object_type == pb.OBJECT_DOMAIN else "ALTER TYPE")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    """ALTER TYPE … OWNER TO."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    owner, oid = privilege.new_owner(cursor, context, node.newowner)
    found = owned(unwrap(node.object).items, session, cursor)
    _refuse_special(found, "cannot alter")
    if oid != found.owner and not privilege.is_superuser(cursor, context.user):
        privilege.check_member(cursor, context.user, owner)
        privilege.check_create_in_schema(cursor, owner, context.database, found.namespace)
    transaction.change_object("pg_type", found.oid)
    user_type.set_owner(cursor, context.database, found, oid)
    return CommandResult("ALTER DOMAIN" if node.object_type == pb.OBJECT_DOMAIN else "ALTER TYPE")


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    """DROP TYPE [IF EXISTS] a, b [CASCADE]."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    found: list[TypeRow] = []
    for item in node.objects:
        parts = unwrap(item).names
        each = find(parts, session, cursor, missing_ok=node.missing_ok)
        if each is None:
            continue
        if node.remove_type == pb.OBJECT_DOMAIN and each.kind != "d":
            raise PostgresError("42809", f'"{each.name}" is not a domain')
        _check_type_owner(each, session, cursor)
        _refuse_special(each, "cannot drop")
        found.append(each)
    if found:
        drop_all(session, transaction, found, cascade=node.behavior == pb.DROP_CASCADE)
        changed(session)
        transaction.catalog_changed()
    return CommandResult("DROP DOMAIN" if node.remove_type == pb.OBJECT_DOMAIN else "DROP TYPE")


def drop_all(session: Session, transaction: Transaction, found: Sequence[TypeRow], *, cascade: bool) -> None:
    """Drops types; with `cascade` the columns of these types too, otherwise they are 2BP01."""
    cursor, database = transaction.cursor, session.context.database
    gone = [oid for each in found for oid in (each.oid, each.array)]
    domains = [each for each in user_type.domains_over(cursor, database, gone) if each.oid not in gone]
    while more := [
        each
        for each in user_type.domains_over(cursor, database, [oid for known in domains for oid in (known.oid, known.array)] or [0])
        if each not in domains
    ]:
        domains += more
    gone += [oid for each in domains for oid in (each.oid, each.array)]
    for oid in gone:
        if oid:
            transaction.lock_object("pg_type", oid)
    depending = user_type.columns_of(cursor, database, gone)
    for oid in dict.fromkeys(oid for oid, _, _ in depending):
        transaction.own(relations.get(cursor, database, oid))
    over = {each.oid: _base(cursor, database, each.oid) for each in domains}
    attributes = user_type.columns_of(cursor, database, gone, "c")
    holding = [each for each in attributes if each[0] not in {kind.relation for kind in found}]
    if holding and cascade:
        raise not_supported("DROP … CASCADE of a type that a composite type has is not supported")
    lines = [(f"type {registry.format_type(each.oid)}", over[each.oid]) for each in domains]
    where = [(relation, f"column {column} of table", kind) for relation, column, kind in depending]
    where += [(relation, f"column {column} of composite type", kind) for relation, column, kind in holding]
    lines += [(f"{what} {_table(cursor, session, relation)}", kind) for relation, what, kind in sorted(where, key=_as_told)]
    shown = [line for line, _ in lines]
    if lines and not cascade:
        subject = f"type {registry.format_type(found[0].oid)}" if len(found) == 1 else "desired object(s)"
        raise PostgresError(
            "2BP01",
            f"cannot drop {subject} because other objects depend on {'it' if len(found) == 1 else 'them'}",
            detail="\n".join(f"{each} depends on type {registry.format_type(kind)}" for each, kind in lines),
            hint=dependency.HINT,
        )
    if len(shown) == 1:
        session.notices.notice(f"drop cascades to {shown[0]}")
    elif shown:
        session.notices.notice(
            f"drop cascades to {len(shown)} other objects", detail="\n".join(f"drop cascades to {each}" for each in shown)
        )
    for oid, column, _ in depending:
        alteration = Alteration(session, transaction, relations.get(cursor, database, oid))
        command = pb.AlterTableCmd(subtype=pb.AT_DropColumn, name=column, behavior=pb.DROP_CASCADE, missing_ok=True)
        alter_column.drop_column(alteration, command)
    for each in [*found, *domains]:
        if each.relation:
            removal.drop(cursor, database, each.relation)
        user_type.drop(cursor, database, each)


def _as_told(dependant: tuple[int, str, int]) -> tuple[bool, int]:
    """The order in which PostgreSQL names dependants: those of the array type first."""
    relation, _, kind = dependant
    return not registry.known().by_oid(kind).is_array, relation


def _base(cursor: Cursor, database: int, domain: int) -> int:
    found = one(cursor, "SELECT typbasetype FROM hg.pg_type WHERE dbid = ? AND oid = ?", [database, domain])
    return 0 if found is None else int(found[0])


def _table(cursor: Cursor, session: Session, oid: int) -> str:
    relation = relations.get(cursor, session.context.database, oid)
    path = lookup.search_path(cursor, session.context)
    visible = relations.lookup(cursor, session.context.database, None, relation.name, path)
    return names.qualified(None if visible is not None and visible.oid == oid else relation.schema, relation.name)


def find(parts: Iterable[pb.Node], session: Session, cursor: Cursor, *, missing_ok: bool = False) -> TypeRow | None:
    """The type that names (String nodes) stand for; 42704, or None with a NOTICE where it may be missing."""
    context = session.context
    schema, name = names.split_name(parts, context.database_name)
    if schema is not None and namespace.lookup(cursor, context.database, schema) is None:
        if not missing_ok:
            raise PostgresError("3F000", f'schema "{schema}" does not exist')
        session.notices.notice(f'schema "{schema}" does not exist, skipping', sqlstate="00000")
        return None
    path = [schema] if schema is not None else _path(cursor, session)
    for each in path:
        place = namespace.lookup(cursor, context.database, each)
        found = user_type.lookup(cursor, context.database, place.oid, name) if place is not None else None
        if found is not None:
            return found
    shown = name if schema is None else f"{schema}.{name}"
    if not missing_ok:
        raise PostgresError("42704", f'type "{shown}" does not exist')
    session.notices.notice(f'type "{shown}" does not exist, skipping', sqlstate="00000")
    return None


def _path(cursor: Cursor, session: Session) -> list[str]:
    found = lookup.search_path(cursor, session.context)
    return found if "pg_catalog" in found else ["pg_catalog", *found]


def owned(parts: Iterable[pb.Node], session: Session, cursor: Cursor) -> TypeRow:
    """As `find`; 42501 for a type of another owner."""
    found = find(parts, session, cursor)
    assert found is not None
    _check_type_owner(found, session, cursor)
    return found


def _check_type_owner(found: TypeRow, session: Session, cursor: Cursor) -> None:
    privilege.check_owner(cursor, session.context.user, found.owner, "type", registry.format_type(found.oid))


def _refuse_special(found: TypeRow, verb: str) -> None:
    """Types that the system, a table or another type owns."""
    if found.builtin:
        if verb == "cannot drop":
            shown = registry.format_type(found.oid)
            raise PostgresError("2BP01", f"cannot drop type {shown} because it is required by the database system")
        raise not_supported("changing a built-in type is not supported")
    if found.relation and registry.known().find(found.oid) is None:
        if verb == "cannot drop":
            raise PostgresError(
                "2BP01",
                f"cannot drop type {found.name} because table {found.name} requires it",
                hint=f"You can drop table {found.name} instead.",
            )
        raise PostgresError("42809", f"{found.name} is a table's row type", hint="Use ALTER TABLE instead.")
    element = registry.known().find(found.oid)
    if element is not None and element.is_array:
        below = registry.format_type(element.element)
        hint = f"You can alter type {below}, which will alter the array type as well."
        if verb == "cannot drop":
            shown, hint = registry.format_type(found.oid), f"You can drop type {below} instead."
            raise PostgresError("2BP01", f"cannot drop type {shown} because type {below} requires it", hint=hint)
        raise PostgresError("42809", f"cannot alter array type {registry.format_type(found.oid)}", hint=hint)


# ---- what names labels and types ----------------------------------------------------------------------------


def _rename_stored(session: Session, transaction: Transaction, found: TypeRow, label: str, new_label: str) -> None:
    """Writes the rows of all columns of the type, and of arrays of it, with the new label."""
    for oid, name, kind in user_type.columns_of(transaction.cursor, session.context.database, [found.oid, found.array]):
        relation = relations.get(transaction.cursor, session.context.database, oid)
        column = relation.column(name)
        if relation.kind != RelationKind.TABLE or column is None:
            continue
        value = F.col(quoted(name))
        if kind == found.oid:
            changed = F.when(value == F.lit(label), F.lit(new_label)).otherwise(value)
            concerned = value == F.lit(label)
        else:
            changed = relabelled(value, label, new_label)
            concerned = value.contains(label.replace("\\", "\\\\").replace('"', '\\"'))
        transaction.lock(relation)
        with transaction.seeing_newest():
            rows = transaction.frame(relation)
        if not rows.where(concerned).limit(1).isEmpty():
            rewrite_table.replace_column(transaction, relation, column, changed)


def relabelled(value: Column, label: str, new_label: str) -> Column:
    """Arrays of an enum with one label in place of another."""

    def new_labels(texts: pa.Array) -> pa.Array:
        return arrays.read_array(texts, ",", lambda items: pc.if_else(pc.equal(items, label), new_label, items))

    return arrow_function(new_labels, StringType())(value)


def _label_change(found: TypeRow, label: str, new_label: str) -> Change:
    def change(node: Expression) -> Expression | None:
        if not isinstance(node, Const) or node.value is None:
            return None
        if node.type.oid == found.oid and node.value == label:
            return replace(node, value=new_label)
        if node.type.oid == found.array:
            shape, items = arrays.parse(node.value, ",")
            return replace(node, value=arrays.print_array(shape, [new_label if each == label else each for each in items], ","))
        return None

    return change


def _rewrite_expressions(transaction: Transaction, database: int, before: TypeRegistry, change: Change | None = None) -> None:
    """Writes the DEFAULT, CHECK and GENERATED expressions of the database that name a type again, as the types are now named."""
    cursor = transaction.cursor
    sql = (
        "SELECT adrelid FROM hg.pg_attrdef WHERE dbid = ? AND contains(adbin, '::')"
        " UNION SELECT conrelid FROM hg.pg_constraint WHERE dbid = ? AND contype = 'c' AND contains(conbin, '::')"
    )
    for (oid,) in rows(cursor, sql, [database, database]):
        relation = relations.find(cursor, database, oid)
        if relation is not None:
            _rewrite_relation(transaction, relation, before, change)


def _rewrite_relation(transaction: Transaction, relation: Relation, before: TypeRegistry, change: Change | None) -> None:
    cursor, oids = transaction.cursor, transaction.engine.catalog.next_oid
    scope = stored_expression.scope_of(relation.columns, relation.name)
    reading = stored_expression.context().within(types=before.anywhere())

    def again(text: str, column: TableColumn | None = None) -> str:
        bound = binder.bind_raw(parse_expression(text), scope, reading)
        if column is not None:
            bound = binder.assign(bound, stored_expression.type_of(column), column.name, reading)
        return deparse(rewriting.rewrite(bound, change) if change is not None else bound)

    for each in relation.checks:
        text = again(each.expression)
        if text != each.expression:
            sql = "UPDATE hg.pg_constraint SET conbin = ?, conbinpretty = ? WHERE dbid = ? AND oid = ?"
            run(cursor, sql, [text, pretty(text), relation.database, each.oid])
    for column in relation.columns:
        old = column.generated if column.generated is not None else column.default
        if old is not None and "::" in old and not old.startswith("nextval(") and (text := again(old, column)) != old:
            attribute.set_default(cursor, oids, relation, column.attnum, text)
