"""The objects that a role owns or has privileges on, for DROP ROLE, DROP OWNED BY and REASSIGN OWNED BY (pg_shdepend.c).

A node has no pg_shdepend. The owners and ACLs in the catalogs are searched instead. Objects in the session's database are listed, those in
other databases are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import namespace
from headgate.catalog import user_type as usertypes
from headgate.catalog.physical import Cursor, delete, one, rows, run, update
from headgate.catalog.relation import relation as relations
from headgate.catalog.replication import publication as publications
from headgate.catalog.security import acl, policy
from headgate.catalog.session import SessionContext
from headgate.commands import dependency, privilege
from headgate.commands.function import dependant
from headgate.commands.publication import publication
from headgate.commands.result import CommandResult
from headgate.commands.schema_contents import SchemaContents
from headgate.commands.session import Session
from headgate.commands.table import drop_table
from headgate.commands.type import user_type
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.parser import unwrap
from headgate.types.registry import FIRST_USER_OID

T = TypeVar("T")

_COMPOSITE = "typtype = 'c' AND typrelid IN (SELECT c.oid FROM hg.pg_class c WHERE c.dbid = pg_type.dbid AND c.relkind = 'c')"
_OWNED = (
    ("pg_class", "relowner", "relname", "relkind IN ('r', 'p', 'v', 'm', 'S')"),
    ("pg_namespace", "nspowner", "nspname", "true"),
    ("pg_publication", "pubowner", "pubname", "true"),
    ("pg_proc", "proowner", "proname", "true"),
    ("pg_type", "typowner", "typname", f"(typtype IN ('e', 'd') OR {_COMPOSITE})"),
)


@dataclass(frozen=True)
class Tie:
    """A dependency of an object on a role: the role owns it (`owner`), or has privileges on it. `oid` is the object's."""

    database: int
    catalog: str
    oid: int
    shown: str
    owner: bool


def ties(session: Session, role: int) -> list[Tie]:
    """Return all dependencies on a role, ordered by the objects' oids."""
    cursor = session.begin_statement().cursor
    dependencies = [*_owned_objects(session, cursor, role), *_grants_to(session, cursor, acl.role_name(cursor, role))]
    dependencies += [
        Tie(database, "pg_policy", oid, f"target of policy {names.quote_ident(name)} on table {table_name}", owner=False)
        for database, oid, name, table_name, roles in rows(
            cursor,
            "SELECT p.dbid, p.oid, p.polname, c.relname, p.polroles FROM hg.pg_policy p JOIN hg.pg_class c ON c.oid = p.polrelid"
            " AND c.dbid = p.dbid",
        )
        if role in roles
    ]
    return sorted(set(dependencies), key=lambda dependency: (dependency.oid, not dependency.owner))


def _owned_objects(session: Session, cursor: Cursor, role: int) -> Iterator[Tie]:
    for oid, name in rows(cursor, "SELECT oid, datname FROM hg.pg_database WHERE datdba = ?", [role]):
        yield Tie(0, "pg_database", oid, f"owner of database {name}", owner=True)
    for oid, name in rows(cursor, "SELECT oid, subname FROM hg.pg_subscription WHERE subowner = ?", [role]):
        yield Tie(0, "pg_subscription", oid, f"owner of subscription {name}", owner=True)
    for database, oid in rows(cursor, "SELECT dbid, oid FROM hg.pg_default_acl WHERE defaclrole = ?", [role]):
        yield Tie(database, "pg_default_acl", oid, f"owner of {_default_privileges(cursor, database, oid)}", owner=True)
    for catalog, column, name_column, where in _OWNED:
        sql = f"SELECT dbid, oid, {name_column} FROM hg.{catalog} WHERE {column} = ? AND {where} AND oid >= {FIRST_USER_OID}"
        for database, oid, name in rows(cursor, sql, [role]):
            yield Tie(database, catalog, oid, f"owner of {_describe(session, cursor, database, catalog, oid, name)}", owner=True)


def _grants_to(session: Session, cursor: Cursor, name: str) -> Iterator[Tie]:
    for oid, database, items in rows(cursor, "SELECT oid, datname, datacl FROM hg.pg_database WHERE datacl IS NOT NULL"):
        if _names(items, name):
            yield Tie(0, "pg_database", oid, f"privileges for database {database}", owner=False)
    for catalog, column in acl.COLUMNS.items():
        if catalog == "pg_database":
            continue
        oid_column, label = {
            "pg_attribute": ("attrelid", "attname"),
            "pg_namespace": ("oid", "nspname"),
            "pg_class": ("oid", "relname"),
            "pg_proc": ("oid", "proname"),
            "pg_language": ("oid", "lanname"),
        }.get(catalog, ("oid", "''"))
        for database, oid, object_name, items in rows(
            cursor, f"SELECT dbid, {oid_column}, {label}, {column} FROM hg.{catalog} WHERE {column} IS NOT NULL"
        ):
            if _names(items, name) and not _is_owner(cursor, catalog, database, oid, name):
                text = _describe(session, cursor, database, catalog, oid, object_name)
                yield Tie(database, catalog, oid, f"privileges for {text}", owner=False)


def _names(items: list[str], name: str) -> bool:
    return any(name in (item.grantee, item.grantor) for item in acl.read(items, "r", ""))


def _is_owner(cursor: Cursor, catalog: str, database: int, oid: int, name: str) -> bool:
    column = {"pg_class": "relowner", "pg_namespace": "nspowner", "pg_proc": "proowner", "pg_default_acl": "defaclrole"}.get(catalog)
    if column is None:
        return False
    row = one(cursor, f"SELECT {column} FROM hg.{catalog} WHERE dbid = ? AND oid = ?", [database, oid])
    return row is not None and acl.role_name(cursor, row[0]) == name


def _describe(session: Session, cursor: Cursor, database: int, catalog: str, oid: int, name: str) -> str:
    if catalog in ("pg_class", "pg_attribute"):
        relation = relations.find(cursor, database, oid) if database == session.context.database else None
        table_text = f"table {name}" if relation is None else dependency.shown(cursor, session.context, relation)
        return f"column {name} of {table_text}" if catalog == "pg_attribute" else table_text
    if catalog == "pg_default_acl":
        return _default_privileges(cursor, database, oid)
    if catalog == "pg_proc":
        function = functions.find(cursor, database, oid) if database == session.context.database else None
        return f"function {name}" if function is None else dependant.shown(session, function)
    word = {"pg_namespace": "schema ", "pg_publication": "publication ", "pg_type": "type ", "pg_language": "language "}.get(catalog, "")
    return word + names.quote_ident(name)


def _default_privileges(cursor: Cursor, database: int, oid: int) -> str:
    sql = (
        "SELECT d.defaclobjtype, d.defaclrole, n.nspname FROM hg.pg_default_acl d LEFT JOIN hg.pg_namespace n ON n.oid = d.defaclnamespace"
        " AND n.dbid IN (0, d.dbid) WHERE d.dbid = ? AND d.oid = ?"
    )
    [(kind, role, schema)] = rows(cursor, sql, [database, oid])
    what = {"r": "relations", "S": "sequences", "n": "schemas", "f": "functions"}[kind]
    where = "" if schema is None else f" in schema {names.quote_ident(schema)}"
    return f"default privileges on new {what} belonging to role {names.quote_ident(acl.role_name(cursor, role))}{where}"


def refuse_tied(session: Session, name: str, role: int) -> None:
    """Raise 2BP01 `role "x" cannot be dropped because some objects depend on it` if there are any."""
    tied = ties(session, role)
    if not tied:
        return
    cursor = session.begin_statement().cursor
    lines = [tie.shown for tie in tied if tie.database in (0, session.context.database)]
    elsewhere: dict[int, int] = {}
    for tie in tied:
        if tie.database not in (0, session.context.database):
            elsewhere[tie.database] = elsewhere.get(tie.database, 0) + 1
    for database, count in elsewhere.items():
        row = one(cursor, "SELECT datname FROM hg.pg_database WHERE oid = ?", [database])
        lines.append(f"{count} object{'s' if count > 1 else ''} in database {row[0] if row else database}")
    raise PostgresError("2BP01", f'role "{name}" cannot be dropped because some objects depend on it', detail="\n".join(lines))


def _roles(node: pb.DropOwnedStmt | pb.ReassignOwnedStmt, session: Session, cursor: Cursor, deed: str) -> list[tuple[str, int]]:
    roles = []
    for item in node.roles:
        name = names.role_name(unwrap(item), session.context.user, session.context.session_user)
        oid = privilege.role_oid(cursor, name)
        if not privilege.owns(cursor, session.context.user, oid):
            raise PostgresError("42501", f"permission denied to {deed} objects")
        if privilege.is_pinned(oid):
            what = "drop objects" if deed == "drop" else "reassign ownership of objects"
            message = f"cannot {what} owned by role {names.quote_ident(name)} because they are required by the database system"
            raise PostgresError("2BP01", message)
        roles.append((name, oid))
    return roles


def drop_owned(node: pb.DropOwnedStmt, session: Session) -> CommandResult:
    """Execute DROP OWNED BY: drop the objects of the roles in this database, and revoke their privileges there."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for name, role in _roles(node, session, cursor, "drop"):
        owned = [tie for tie in ties(session, role) if tie.owner and tie.database == context.database]
        _drop(session, owned, cascade=node.behavior == pb.DROP_CASCADE)
        _revoke_all(cursor, context.database, name, role)
    transaction.catalog_changed()
    return CommandResult("DROP OWNED")


def _drop(session: Session, owned: list[Tie], *, cascade: bool) -> None:
    transaction = session.begin_statement()
    cursor, database = transaction.cursor, session.context.database
    own_relations = _found(relations.find, owned, "pg_class", cursor, database)
    own_functions = _found(functions.find, owned, "pg_proc", cursor, database)
    own_types = _found(usertypes.find, owned, "pg_type", cursor, database)
    schemas = _found(namespace.find, owned, "pg_namespace", cursor, database)
    contents = SchemaContents.of(session, schemas)
    dependants = dependant.of_relations(session, own_relations)
    for function in own_functions:
        dependants += dependant.of_function(session, function)
    dependants += contents.dependants(session)
    tables = [*own_relations, *(relation for _, relation in contents.relations)]
    going = [(1259, relation.oid) for relation in own_relations] + [(2606, key.oid) for relation in tables for key in relation.foreign_keys]
    going += [(dependant.PROC, function.oid) for function in own_functions]
    going += contents.partitions(cursor)
    going += [(1247, row.oid) for row in own_types]
    for relation in own_relations:
        transaction.own(relation)
    for tie in owned:
        if tie.catalog in ("pg_namespace", "pg_publication"):
            transaction.catalog.lock_object(tie.catalog, tie.oid)
    subjects = [tie.shown.removeprefix("owner of ") for tie in owned if tie.catalog != "pg_default_acl"]
    dependency.settle(transaction, dependants, subjects, session.notices, cascade=cascade, going=going)
    drop_table.refuse_replicated(session, tables)
    contents.drop_relations(session)
    for relation in own_relations:
        drop_table.drop_relation(transaction, relation)
    for function in own_functions:
        functions.drop(cursor, database, function.oid)
    types = {row.oid: row for row in (*own_types, *(row for _, row in contents.types))}
    if types:
        in_order = sorted(types.values(), key=lambda row: (row.namespace, row.oid))
        user_type.drop_all(session, transaction, in_order, cascade=cascade)
        user_type.changed(session)
    for schema in schemas:
        namespace.drop(cursor, database, schema.oid)
    for tie in owned:
        if tie.catalog == "pg_publication":
            publications.drop(cursor, database, tie.oid)
        elif tie.catalog == "pg_default_acl":
            delete(cursor, "pg_default_acl", dbid=database, oid=tie.oid)


def _found(find: Callable[[Cursor, int, int], T | None], owned: list[Tie], catalog: str, cursor: Cursor, database: int) -> list[T]:
    """Return the owned objects of a catalog."""
    oids = [tie.oid for tie in owned if tie.catalog == catalog]
    return [found for oid in oids if (found := find(cursor, database, oid)) is not None]


def _revoke_all(cursor: Cursor, database: int, name: str, role: int) -> None:
    for catalog, column in acl.COLUMNS.items():
        scope = f"oid = {int(database)}" if catalog == "pg_database" else f"dbid IN (0, {int(database)})"
        for (items,) in rows(cursor, f"SELECT DISTINCT {column} FROM hg.{catalog} WHERE {column} IS NOT NULL AND {scope}"):
            remaining = [item for item in acl.read(items, "r", "") if name not in (item.grantee, item.grantor)]
            if len(remaining) != len(items):
                value = acl.write(remaining) if remaining or catalog != "pg_attribute" else None
                run(cursor, f"UPDATE hg.{catalog} SET {column} = ? WHERE {column} = ? AND {scope}", [value, items])
    run(cursor, "DELETE FROM hg.pg_default_acl WHERE dbid = ? AND defaclnamespace <> 0 AND len(defaclacl) = 0", [database])
    for oid, roles in rows(cursor, "SELECT oid, polroles FROM hg.pg_policy WHERE dbid = ?", [database]):
        if role in roles:
            remaining_roles = [role_oid for role_oid in roles if role_oid != role]
            if remaining_roles:
                update(cursor, "pg_policy", {"dbid": database, "oid": oid}, polroles=remaining_roles)
            else:
                policy.remove(cursor, database, oid)


def reassign_owned(node: pb.ReassignOwnedStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    new = names.role_name(node.newrole, context.user, context.session_user)
    oid = privilege.used_role(cursor, new)
    roles = _roles(node, session, cursor, "reassign")
    if not privilege.owns(cursor, context.user, oid):
        raise PostgresError("42501", "permission denied to reassign objects")
    for _, role in roles:
        _check_reassigned(cursor, context, role, new, oid)
        for catalog, column, _, _ in _OWNED:
            if catalog in acl.OWNED:
                for (object_oid,) in rows(
                    cursor, f"SELECT oid FROM hg.{catalog} WHERE dbid = ? AND {column} = ?", [context.database, role]
                ):
                    acl.give(cursor, catalog, object_oid, oid, context.database)
            else:
                run(cursor, f"UPDATE hg.{catalog} SET {column} = ? WHERE dbid = ? AND {column} = ?", [oid, context.database, role])
        for (owned,) in rows(cursor, "SELECT oid FROM hg.pg_database WHERE datdba = ?", [role]):
            acl.give(cursor, "pg_database", owned, oid)
        update(cursor, "pg_subscription", {"subdbid": context.database, "subowner": role}, subowner=oid)
    transaction.catalog_changed()
    return CommandResult("REASSIGN OWNED")


def _check_reassigned(cursor: Cursor, context: SessionContext, role: int, new: str, oid: int) -> None:
    """Raise 42501 for objects that the user may not give to the role. Publications, schemas and subscriptions as by OWNER TO."""
    if role == oid:
        return
    for name, owner in rows(cursor, "SELECT pubname, pubowner FROM hg.pg_publication WHERE dbid = ?", [context.database]):
        if owner == role:
            publication.check_new_owner(cursor, context, publications.get(cursor, context.database, name), new)
    for name, owner in rows(cursor, "SELECT nspname, nspowner FROM hg.pg_namespace WHERE dbid = ?", [context.database]):
        if owner == role:
            privilege.check_may_give(cursor, context.user, owner, "schema", name, new)
            privilege.check_create_on_database(cursor, context.user, context.database)
    sql = "SELECT subname FROM hg.pg_subscription WHERE subdbid = ? AND subowner = ?"
    for (name,) in rows(cursor, sql, [context.database, role]):
        privilege.check_subscription_owner(cursor, name, new)
