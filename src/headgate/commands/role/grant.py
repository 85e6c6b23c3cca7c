"""GRANT and REVOKE of privileges on objects, and ALTER DEFAULT PRIVILEGES (aclchk.c).

The grantor is the owner if the user has the owner's privileges. Otherwise it is the user, who must have the grant option.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import namespace as namespaces
from headgate.catalog.function import UserFunction
from headgate.catalog.physical import Cursor, insert, one, rows, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, TABLE_KINDS, RelationKind
from headgate.catalog.security import acl
from headgate.commands import lookup, privilege
from headgate.commands.function import definition
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing, not_supported
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.transaction.transaction import Transaction

_WORDS = {"r": "relation", "s": "sequence", "n": "schema", "d": "database", "c": "column", "f": "function", "l": "language"}
_NAMED = {
    "n": ("pg_namespace", "nspacl", "nspowner", "nspname", "3F000"),
    "d": ("pg_database", "datacl", "datdba", "datname", "3D000"),
    "l": ("pg_language", "lanacl", "lanowner", "lanname", "42704"),
}
"""The kinds of objects without a schema: catalog, columns of the ACL, the owner and the name, SQLSTATE if the object is missing."""


@dataclass(frozen=True)
class GrantObject:
    """An object whose ACL is changed: the row and column of the catalog that contain the ACL."""

    kind: str
    name: str
    word: str
    holder: tuple[str, int]
    """The catalog and oid of the object that is held while its ACL is changed. For a column it is the table."""
    owner: int
    items: Sequence[str] | None
    catalog: str
    column: str
    where: str
    parameters: tuple[int | str, ...]
    above: Sequence[acl.Item] = ()
    """The ACL of a column's table. A privilege on the whole table, and its grant option, apply to each column."""


def grant(node: pb.GrantStmt, session: Session) -> CommandResult:
    """Execute GRANT … ON … TO, or REVOKE … ON … FROM."""
    tag = "GRANT" if node.is_grant else "REVOKE"
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    kind = {pb.OBJECT_TABLE: "r", pb.OBJECT_SEQUENCE: "s", pb.OBJECT_SCHEMA: "n", pb.OBJECT_DATABASE: "d",
            pb.OBJECT_LANGUAGE: "l", **dict.fromkeys(definition.ROUTINES, "f")}.get(node.objtype)  # fmt: skip
    if kind is None:
        raise not_supported(f"{tag} on objects of this kind is not supported")
    if node.HasField("grantor"):
        grantor = names.role_name(node.grantor, context.user, context.session_user)
        if grantor != context.user:
            raise PostgresError("0A000", "grantor must be current user")
    grantees = _grantees(node, session, cursor)
    targets = list(_targets(node, kind, session, cursor))
    for target, _ in targets:
        transaction.catalog.change_object(*target.holder)
    for target, letters in targets:
        _change(node, target, letters, grantees, session, cursor)
    return CommandResult(tag)


def _grantees(node: pb.GrantStmt, session: Session, cursor: Cursor) -> list[str]:
    grantees = []
    for item in node.grantees:
        spec = unwrap(item)
        public = spec.roletype == pb.ROLESPEC_PUBLIC
        name = "" if public else names.role_name(spec, session.context.user, session.context.session_user)
        if name and node.is_grant:
            privilege.used_role(cursor, name)
        elif name:
            privilege.role_oid(cursor, name)
        grantees.append(name)
    return grantees


def _refuse_option_for_public(node: pb.GrantStmt, grantees: Sequence[str]) -> None:
    """Raise 0LP01 for WITH GRANT OPTION to PUBLIC. Called after the check whether the user may grant at all."""
    if node.is_grant and node.grant_option and "" in grantees:
        raise PostgresError("0LP01", "grant options can only be granted to roles")


def _change(node: pb.GrantStmt, target: GrantObject, letters: str, grantees: Sequence[str], session: Session, cursor: Cursor) -> None:
    owner = acl.role_name(cursor, target.owner)
    who = acl.role(cursor, session.context.user)
    items = acl.read(target.items, target.kind, owner)
    is_owner = who.superuser or target.owner in who.roles
    grantor = owner if is_owner else who.name
    applicable_items = [*items, *target.above]
    allowed = letters if is_owner else "".join(letter for letter in letters if who.may(letter, target.owner, applicable_items, option=True))
    if (
        not allowed
        and not is_owner
        and not any(who.may(privilege_letter, target.owner, applicable_items) for privilege_letter in acl.EVERY[target.kind])
    ):
        raise PostgresError("42501", f"permission denied for {target.word} {target.name}")
    _refuse_option_for_public(node, grantees)
    if allowed != letters:
        verb = "granted" if node.is_grant else "could be revoked"
        how = (
            "no privileges were"
            if node.is_grant and not allowed
            else "not all privileges were"
            if node.is_grant
            else ("no privileges" if not allowed else "not all privileges")
        )
        session.notices.warning(f'{how} {verb} for "{target.name}"', sqlstate="01007" if node.is_grant else "01006")
        if not allowed:
            return
    for grantee in grantees:
        if node.is_grant:
            items = acl.given(items, grantee, grantor, allowed, option=node.grant_option)
        else:
            cascade = node.behavior == pb.DROP_CASCADE
            items = acl.taken(items, grantee, grantor, allowed, option_only=node.grant_option, cascade=cascade)
    texts: list[str] | None = acl.write(items)
    if target.kind == "c" and not texts:
        texts = None
    run(cursor, f"UPDATE hg.{target.catalog} SET {target.column} = ? WHERE {target.where}", [texts, *target.parameters])


def _targets(node: pb.GrantStmt, kind: str, session: Session, cursor: Cursor) -> Iterator[tuple[GrantObject, str]]:
    """Yield the objects, each with the privileges (letters) that are granted or revoked. Columns follow their table."""
    database = session.context.database
    if kind in "rs":
        for relation in _relations(node, session, cursor):
            own = "s" if relation.kind == RelationKind.SEQUENCE else "r"
            if kind == "s" and own == "r":
                raise PostgresError("42809", f'"{relation.name}" is not a sequence')
            if relation.kind in INDEX_KINDS | {RelationKind.COMPOSITE_TYPE}:
                article = {"i": "an index", "I": "an index", "c": "a composite type"}[relation.kind]
                raise PostgresError("42809", f'"{relation.name}" is {article}')
            whole, columns = _letters(node, own)
            if whole:
                yield _relation_target(cursor, relation, own), whole
            of_columns = dict(columns)
            if whole and not node.is_grant:
                column_letters = "".join(letter for letter in whole if letter in acl.EVERY["c"])
                of_columns |= {name: columns.get(name, "") + column_letters for name in _granted_columns(cursor, relation)}
            for name, letters in of_columns.items():
                yield _column_target(cursor, relation, name), letters
        return
    if kind == "f":
        letters, columns = _letters(node, kind)
        if columns:
            raise PostgresError("0LP01", "column privileges are only valid for relations")
        for function in _functions(node, session, cursor):
            yield _function_target(cursor, database, function), letters
        return
    letters, columns = _letters(node, kind)
    if columns:
        raise PostgresError("0LP01", "column privileges are only valid for relations")
    for item in node.objects:
        yield _named_target(cursor, database, kind, unwrap(item).sval), letters


def _named_target(cursor: Cursor, database: int, kind: str, name: str) -> GrantObject:
    catalog, acl_column, owner_column, name_column, missing = _NAMED[kind]
    where, parameters = (f"{name_column} = ?", (name,)) if kind == "d" else (f"{name_column} = ? AND dbid IN (0, ?)", (name, database))
    trusted = "lanpltrusted" if kind == "l" else "true"
    row = one(cursor, f"SELECT {owner_column}, {acl_column}, oid, {trusted} FROM hg.{catalog} WHERE {where}", list(parameters))
    owner, items, oid, is_trusted = existing(row, missing, f'{_WORDS[kind]} "{name}"')
    if not is_trusted:
        detail = "GRANT and REVOKE are not allowed on untrusted languages, because only superusers can use untrusted languages."
        raise PostgresError("42809", f'language "{name}" is not trusted', detail=detail)
    return GrantObject(kind, name, _WORDS[kind], (catalog, oid), owner, items, catalog, acl_column, where, parameters)


def _function_target(cursor: Cursor, database: int, function: UserFunction) -> GrantObject:
    row = one(cursor, "SELECT proacl FROM hg.pg_proc WHERE dbid = ? AND oid = ?", [database, function.oid])
    return GrantObject(
        "f", function.name, "function", ("pg_proc", function.oid), function.owner, row[0] if row else None, "pg_proc", "proacl",
        "dbid = ? AND oid = ?", (database, function.oid),
    )  # fmt: skip


def _functions(node: pb.GrantStmt, session: Session, cursor: Cursor) -> list[UserFunction]:
    word = definition.ROUTINES[node.objtype]
    if node.targtype == pb.ACL_TARGET_ALL_IN_SCHEMA:
        schemas = [namespaces.get(cursor, session.context.database, unwrap(item).sval) for item in node.objects]
        return [function for schema in schemas for function in functions.in_schema(cursor, session.context.database, schema.oid)]
    named_functions = [definition.named(unwrap(item), session, cursor, word) for item in node.objects]
    return [function for function in named_functions if function is not None]


def _granted_columns(cursor: Cursor, relation: Relation) -> list[str]:
    """Return the columns with rights of their own: a REVOKE on the table revokes them too (expand_all_col_privileges)."""
    sql = "SELECT attnum FROM hg.pg_attribute WHERE dbid IN (0, ?) AND attrelid = ? AND attacl IS NOT NULL"
    granted = {attnum for (attnum,) in rows(cursor, sql, [relation.database, relation.oid])}
    return [column.name for column in relation.columns if column.attnum in granted]


def _relation_target(cursor: Cursor, relation: Relation, kind: str) -> GrantObject:
    row = one(cursor, "SELECT relacl FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?", [relation.database, relation.oid])
    word = {"v": "view", "S": "sequence"}.get(relation.kind, "table")
    return GrantObject(
        kind, relation.name, word, ("pg_class", relation.oid), relation.owner, row[0] if row else None, "pg_class", "relacl",
        "dbid IN (0, ?) AND oid = ?", (relation.database, relation.oid),
    )  # fmt: skip


def _column_target(cursor: Cursor, relation: Relation, name: str) -> GrantObject:
    column = relation.existing_column(name)
    parameters = (relation.database, relation.oid, column.attnum)
    where = "dbid IN (0, ?) AND attrelid = ? AND attnum = ?"
    row = one(cursor, f"SELECT attacl FROM hg.pg_attribute WHERE {where}", list(parameters))
    items = row[0] if row else None
    table = one(cursor, "SELECT relacl FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?", [relation.database, relation.oid])
    above = acl.read(table[0] if table else None, "r", acl.role_name(cursor, relation.owner))
    return GrantObject(
        "c", relation.name, "table", ("pg_class", relation.oid), relation.owner, items, "pg_attribute", "attacl", where, parameters, above
    )


def _letters(node: pb.GrantStmt, kind: str) -> tuple[str, dict[str, str]]:
    """Return (privileges on the whole object, privileges by column)."""
    all_letters = acl.EVERY[kind]
    if not node.privileges:
        return all_letters, {}
    whole, columns = "", {}  # type: tuple[str, dict[str, str]]
    for item in node.privileges:
        access_privilege = unwrap(item)
        for column in names.strings(access_privilege.cols):
            if kind != "r":
                raise PostgresError("0LP01", "column privileges are only valid for relations")
            columns[column] = columns.get(column, "") + (_letter(access_privilege, "c") if access_privilege.priv_name else acl.EVERY["c"])
        if not access_privilege.cols:
            whole += _letter(access_privilege, kind)
    return whole, columns


def _letter(item: pb.AccessPriv, kind: str) -> str:
    right = acl.letter(item.priv_name)
    if right not in acl.EVERY[kind]:
        word = "table" if kind == "r" and right in acl.EVERY["s"] else _WORDS[kind]
        raise PostgresError("0LP01", f"invalid privilege type {item.priv_name.upper()} for {word}")
    return right


def _relations(node: pb.GrantStmt, session: Session, cursor: Cursor) -> list[Relation]:
    context = session.context
    if node.targtype == pb.ACL_TARGET_ALL_IN_SCHEMA:
        kinds = {RelationKind.SEQUENCE} if node.objtype == pb.OBJECT_SEQUENCE else TABLE_KINDS | {RelationKind.VIEW}
        schemas = [namespaces.get(cursor, context.database, unwrap(item).sval) for item in node.objects]
        for schema in schemas:
            namespaces.check_use(cursor, context.user, context.database, schema.name)
        return [relation for schema in schemas for relation in relations.in_schema(cursor, context.database, schema.oid, kinds)]
    return [lookup.target(cursor, context, unwrap(item)) for item in node.objects]


def rename_role(cursor: Cursor, old: str, new: str) -> None:
    """Replace a role's old name by the new one in all ACLs."""
    for catalog, column, before, after in acl.renamed(cursor, old, new):
        run(cursor, f"UPDATE hg.{catalog} SET {column} = ? WHERE {column} = ?", [after, before])


# ---- defaults ------------------------------------------------------------------------------------------------


def alter_default(node: ParseNode, session: Session) -> CommandResult:
    """Execute ALTER DEFAULT PRIVILEGES [FOR ROLE r] [IN SCHEMA s] GRANT … | REVOKE … (pg_default_acl)."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    action = node.action
    kind = {pb.OBJECT_TABLE: "r", pb.OBJECT_SEQUENCE: "s", pb.OBJECT_SCHEMA: "n", pb.OBJECT_FUNCTION: "f"}.get(action.objtype)
    if kind is None:
        raise not_supported("ALTER DEFAULT PRIVILEGES on objects of this kind is not supported")
    options = {unwrap(option).defname: unwrap(unwrap(option).arg).items for option in node.options}
    owners = [names.role_name(unwrap(role_spec), context.user, context.session_user) for role_spec in options.get("roles", ())] or [
        context.user
    ]
    schemas = [lookup.used_namespace(cursor, context.database, unwrap(schema_node).sval) for schema_node in options.get("schemas", ())]
    if kind == "n" and schemas:
        raise PostgresError("0LP01", "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS")
    letters, _ = _letters(action, kind)
    grantees = _grantees(action, session, cursor)
    _refuse_option_for_public(action, grantees)
    for owner in owners:
        privilege.check_member(cursor, context.user, owner)
        privilege.used_role(cursor, owner)
    for owner in owners:
        for schema in schemas or [0]:
            _set_default(transaction, owner, schema, kind, action, letters, grantees)
    return CommandResult("ALTER DEFAULT PRIVILEGES")


def _set_default(
    transaction: Transaction, owner: str, schema: int, kind: str, action: pb.GrantStmt, letters: str, grantees: Sequence[str]
) -> None:
    cursor, database = transaction.cursor, transaction.database
    object_type = "S" if kind == "s" else kind
    key = [database, privilege.role_oid(cursor, owner), schema, object_type]
    where = "dbid = ? AND defaclrole = ? AND defaclnamespace = ? AND defaclobjtype = ?"
    row = one(cursor, f"SELECT defaclacl FROM hg.pg_default_acl WHERE {where}", key)
    plain = [] if schema else acl.default(kind, owner)
    items = acl.read(row[0], kind, owner) if row else plain
    for grantee in grantees:
        if action.is_grant:
            items = acl.given(items, grantee, owner, letters, option=action.grant_option)
        else:
            items = acl.taken(items, grantee, owner, letters, option_only=action.grant_option, cascade=True)
    run(cursor, f"DELETE FROM hg.pg_default_acl WHERE {where}", key)
    if items != plain:
        insert(
            cursor, "pg_default_acl", dbid=database, oid=transaction.catalog.next_oid(), defaclrole=key[1], defaclnamespace=schema,
            defaclobjtype=object_type, defaclacl=acl.write(items),
        )  # fmt: skip
