"""CREATE TYPE … AS ENUM, ALTER TYPE, DROP TYPE (manual, part VI; 8.7 Enumerated Types).

Called by `execute`. `enum_label` renames a label in stored values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace, user_type
from headgate.catalog.physical import Cursor, one, rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation.relation import Relation
from headgate.catalog.user_type import TypeRow
from headgate.commands import dependency, lookup, privilege, stored_expression
from headgate.commands.alteration import Alteration
from headgate.commands.dependency import Dependant
from headgate.commands.function import dependant
from headgate.commands.query import rendering
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import alter_column, drop_table
from headgate.commands.type import enum_label
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry


def create_enum(node: pb.CreateEnumStmt, session: Session) -> CommandResult:
    """Execute CREATE TYPE name AS ENUM (…)."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    schema, name = names.split_name(node.type_name, context.database_name)
    oid, _ = lookup.creation_schema(cursor, context, schema or "")
    owner = privilege.used_role(cursor, context.user)
    labels = names.strings(node.vals)
    user_type.create_enum(cursor, transaction.catalog.next_oid, context.database, oid, name, owner, labels)
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
        user_type.rename_label(cursor, database, enum.oid, node.old_val, node.new_val)
        user_type.check_label(node.new_val)
        changed(session)
        renaming = enum_label.Renaming(registry.known(), enum.oid, node.old_val, node.new_val)
        with rendering.running(session, transaction):
            enum_label.rename_in_rows(transaction, database, renaming)
        enum_label.rename_in_texts(cursor, database, renaming)
        enum_label.rename_in_bounds(cursor, database, renaming)
        return CommandResult("ALTER TYPE")
    transaction.catalog.change_object("pg_type", enum.oid)
    user_type.check_label(node.new_val)
    if any(label == node.new_val for label, _ in user_type.labels_of(cursor, database, enum.oid)):
        message = f'enum label "{node.new_val}" already exists'
        session.notices.skip(PostgresError("42710", message), allowed=node.skip_if_new_val_exists, sqlstate="42710")
        return CommandResult("ALTER TYPE")
    next_oid = transaction.catalog.next_oid
    user_type.add_label(
        cursor, next_oid, database, enum.oid, node.new_val, node.new_val_neighbor or None, after=bool(node.new_val_is_after)
    )
    changed(session)
    return CommandResult("ALTER TYPE")


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    type_row = _altered(node, session)
    transaction.catalog.lock_object("pg_type", type_row.oid)
    user_type.rename(transaction.cursor, session.context.database, type_row, node.newname)
    changed(session)
    return CommandResult(_ALTERED[node.rename_type])


_ALTERED = {pb.OBJECT_TYPE: "ALTER TYPE", pb.OBJECT_DOMAIN: "ALTER DOMAIN"}


def _altered(node: ParseNode, session: Session) -> TypeRow:
    """Return the type that ALTER TYPE names. Raise 42501 unless the user owns it."""
    type_row = owned(unwrap(node.object).items, session, session.begin_statement().cursor)
    _refuse_special(type_row, "cannot alter")
    return type_row


def set_schema(node: ParseNode, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    type_row = _altered(node, session)
    transaction.catalog.lock_object("pg_type", type_row.oid)
    target = lookup.used_namespace(cursor, context.database, node.newschema)
    privilege.check_create_in_schema(cursor, context.user, context.database, target)
    user_type.set_schema(cursor, context.database, type_row, target)
    changed(session)
    return CommandResult(_ALTERED[node.object_type])


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    owner, oid = privilege.new_owner(cursor, context, node.newowner)
    type_row = find(unwrap(node.object).items, session, cursor)
    assert type_row is not None
    if oid != type_row.owner:
        _check_type_owner(type_row, session, cursor)
    _refuse_special(type_row, "cannot alter")
    if oid != type_row.owner and not privilege.is_superuser(cursor, context.user):
        privilege.check_member(cursor, context.user, owner)
        privilege.check_create_in_schema(cursor, owner, context.database, type_row.namespace)
    transaction.catalog.change_object("pg_type", type_row.oid)
    user_type.set_owner(cursor, context.database, type_row, oid)
    return CommandResult(_ALTERED[node.object_type])


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
    going = _with_domains(cursor, database, type_rows)
    oids = [oid for row in going for oid in (row.oid, row.array) if oid]
    for oid in oids:
        transaction.catalog.lock_object("pg_type", oid)
    depending = [row for row in user_type.columns_of(cursor, database, oids) if not relations.get(cursor, database, row[0]).parent]
    for oid in dict.fromkeys(oid for oid, _, _ in depending):
        transaction.own(relations.get(cursor, database, oid))
    dropped_relations = {row.relation for row in type_rows}
    attributes = [row for row in user_type.columns_of(cursor, database, oids, "c") if row[0] not in dropped_relations]
    if attributes and cascade:
        raise not_supported("DROP … CASCADE of a type that a composite type has is not supported")
    tables = {oid: key for oid, name, _ in depending if (key := _partitioned_by(relations.get(cursor, database, oid), name)) is not None}
    dependants = [(oid, "table" if oid in tables else f"column {column} of table", kind) for oid, column, kind in depending]
    dependants += [(relation, f"column {column} of composite type", kind) for relation, column, kind in attributes]
    entries = {entry.key: entry for entry in dependant.of_types(session, oids)}
    using = [entry for key, entry in entries.items() if key not in {(1247, row.oid) for row in type_rows}]
    lines = [
        (f"type {registry.format_type(row.oid)}", f"type {registry.format_type(_base(cursor, database, row.oid))}")
        for row in going[len(type_rows) :]
    ]
    lines += _lines(session, dict.fromkeys(dependants), using, parts_of_columns(cursor, database, depending))
    subjects = [f"type {registry.format_type(row.oid)}" for row in type_rows]
    dependency.tell(subjects, lines, session.notices, cascade=cascade)
    for entry in reversed(using):
        entry.drop()
    drop_table.drop_all(transaction, list(tables.values()))
    for oid, column in ((oid, column) for oid, column, _ in depending if oid not in tables):
        alteration = Alteration(session, transaction, relations.get(cursor, database, oid))
        if alteration.relation.column(column) is None:  # it was dropped with the column of a parent
            continue
        command = pb.AlterTableCmd(subtype=pb.AT_DropColumn, name=column, behavior=pb.DROP_CASCADE, missing_ok=True)
        alter_column.drop_column(alteration, command)
    for row in going:
        if row.relation:
            removal.drop(cursor, database, row.relation)
        user_type.drop(cursor, database, row)


def _with_domains(cursor: Cursor, database: int, type_rows: Sequence[TypeRow]) -> list[TypeRow]:
    """Return the types, then the domains over them, and over those."""
    going = list(type_rows)
    known = {row.oid for row in going}
    while further := [
        row
        for row in user_type.domains_over(cursor, database, [oid for row in going for oid in (row.oid, row.array)])
        if row.oid not in known
    ]:
        going += further
        known |= {row.oid for row in further}
    return going


def _lines(
    session: Session, dependants: Iterable[tuple[int, str, int]], using: Iterable[Dependant], silent: AbstractSet[tuple[int, int]]
) -> list[tuple[str, str]]:
    """Return each dependent object and the object that it depends on, as messages show them, in the order in which they were made.

    `dependants`: relation, words before its name, and type. `silent`: the keys of those of `using` that are not listed.
    """
    cursor = session.begin_statement().cursor
    ordered = [
        (_as_told(entry), (f"{entry[1]} {_table(cursor, session, entry[0])}", f"type {registry.format_type(entry[2])}"))
        for entry in dependants
    ]
    leader = 0
    for entry in using:
        leader = entry.key[1] if entry.on.startswith("type ") else leader  # the others depend on the last one that depends on a type
        if entry.key not in silent:
            ordered.append(((True, leader), (entry.shown, entry.on)))
    return [line for _, line in sorted(ordered, key=lambda entry: entry[0])]


def _partitioned_by(relation: Relation, column: str) -> Relation | None:
    """Return the relation if a column is part of its partition key, so that it is dropped with the column."""
    key_column = relation.column(column)
    is_key = relation.partition_key is not None and key_column is not None and key_column.attnum in relation.partition_key.attnums
    return relation if is_key else None


def parts_of_columns(cursor: Cursor, database: int, columns: Iterable[tuple[int, str, int]]) -> set[tuple[int, int]]:
    """Return the keys of the defaults, checks and indexes that are dropped with columns (relation, name, type)."""
    names_by_relation: dict[int, set[str]] = {}
    for oid, name, _ in columns:
        names_by_relation.setdefault(oid, set()).add(name)
    keys = set()
    for oid, column_names in names_by_relation.items():
        relation = relations.get(cursor, database, oid)
        attnums = {column.attnum for column in relation.columns if column.name in column_names}
        sql = "SELECT oid, adnum FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ?"
        keys |= {(2604, default) for default, attnum in rows(cursor, sql, [database, oid]) if attnum in attnums}
        keys |= {(2606, check.oid) for check in relation.checks if stored_expression.columns_of(check.expression, relation) & column_names}
        for index in relation.indexes:
            texts = [*index.expressions, *([] if index.predicate is None else [index.predicate])]
            read = {name for text in texts for name in stored_expression.columns_of(text, relation)}
            if read & column_names or not attnums.isdisjoint(index.attnums):
                keys.add((1259, index.oid))
    return keys


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
        session.notices.skip(PostgresError("3F000", f'schema "{schema}" does not exist'), allowed=missing_ok)
        return None
    path = [schema] if schema is not None else _path(cursor, session)
    for schema_name in path:
        candidate_schema = namespace.lookup(cursor, context.database, schema_name)
        candidate = user_type.lookup(cursor, context.database, candidate_schema.oid, name) if candidate_schema is not None else None
        if candidate is not None:
            return candidate
    type_text = name if schema is None else f"{schema}.{name}"
    session.notices.skip(PostgresError("42704", f'type "{type_text}" does not exist'), allowed=missing_ok)
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
