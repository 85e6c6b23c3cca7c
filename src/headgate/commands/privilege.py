"""Check privileges: superusers, ownership through membership, rights on databases, schemas, tables, columns and sequences.

Every command calls it before it changes anything. The errors are PostgreSQL's. `headgate.catalog.security.acl` interprets ACLs. The
predefined roles pg_read_all_data, pg_write_all_data and pg_database_owner have the same rights as in PostgreSQL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog import namespace as namespaces
from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one, rows
from headgate.catalog.security.role import READ_ALL_DATA, WRITE_ALL_DATA, Role
from headgate.catalog.session import SessionContext
from headgate.errors import PostgresError, existing
from headgate.sql import names
from headgate.types.registry import FIRST_USER_OID

FIRST_UNPINNED = 12000
"""Objects with lower oids belong to the database system (IsPinnedObject)."""


def role_oid(cursor: Cursor, name: str) -> int:
    """Return the role's oid. Raise 42704 `role "x" does not exist`."""
    row = existing(one(cursor, "SELECT oid FROM hg.pg_authid WHERE rolname = ?", [name]), "42704", f'role "{name}"')
    return int(row[0])


def used_role(cursor: Cursor, name: str) -> int:
    """Return the oid of a role that receives an object or a right, and protect the role from DROP meanwhile. Raise 42704."""
    oid = role_oid(cursor, name)
    hold.use(cursor, "pg_authid", oid)
    return oid


def is_pinned(oid: int) -> bool:
    """Return whether initdb created the role. Such a role and its objects cannot be dropped."""
    return oid < FIRST_UNPINNED


def is_superuser(cursor: Cursor, role: str) -> bool:
    row = one(cursor, "SELECT rolsuper FROM hg.pg_authid WHERE rolname = ?", [role])
    return bool(row and row[0])


@contextlib.contextmanager
def acting_as(role: int, cursor: Cursor, context: SessionContext) -> Iterator[None]:
    """Within it, the current user is another role."""
    before = context.user, context.user_oid, context.superuser, context.acts_as_other
    context.user, context.user_oid, context.acts_as_other = acl.role_name(cursor, role), role, True
    context.superuser = is_superuser(cursor, context.user)
    try:
        yield
    finally:
        context.user, context.user_oid, context.superuser, context.acts_as_other = before


def settable_role(cursor: Cursor, session_user: str, name: str) -> Role:
    """Return a role that a session may set. Raise 22023 if it does not exist, 42501 if the session user is not a member of it."""
    role, user = existing(roles.lookup(cursor, name), "22023", f'role "{name}"'), roles.get(cursor, session_user)
    if not user.superuser and role.oid not in roles.memberships(cursor, user.oid):
        raise PostgresError("42501", f'permission denied to set role "{name}"')
    return role


def roles_of(cursor: Cursor, role: str) -> set[int]:
    """Return the role's own oid and those of all roles of which it is a member, whether it inherits their rights or not."""
    return roles.memberships(cursor, role_oid(cursor, role))


def is_member(cursor: Cursor, role: str, of: str) -> bool:
    """Return whether `role` is a (direct or indirect) member of `of`, or a superuser."""
    return is_superuser(cursor, role) or role_oid(cursor, of) in roles_of(cursor, role)


def check_member(cursor: Cursor, role: str, of: str) -> None:
    """Raise 42501 `must be member of role "r"`."""
    if not is_member(cursor, role, of):
        raise PostgresError("42501", f'must be member of role "{of}"')


def new_owner(cursor: Cursor, context: SessionContext, node: pb.RoleSpec) -> tuple[str, int]:
    """Return the name and oid of the role in OWNER TO. Raise 42704, before the object is looked up."""
    name = names.role_name(node, context.user, context.session_user)
    return name, used_role(cursor, name)


def check_may_give(cursor: Cursor, user: str, owner: int, kind: str, name: str, new: str) -> None:
    """Raise 42501 unless the user owns the object and is a member of its new owner."""
    check_owner(cursor, user, owner, kind, name)
    check_member(cursor, user, new)


def check_subscription_owner(cursor: Cursor, subscription: str, new: str) -> None:
    """Raise 42501 unless the new owner of a subscription is a superuser."""
    if not is_superuser(cursor, new):
        raise PostgresError(
            "42501",
            f'permission denied to change owner of subscription "{subscription}"',
            hint="The owner of a subscription must be a superuser.",
        )


def may_create_databases(cursor: Cursor, role: str) -> bool:
    """Return whether the role may create databases: with CREATEDB, or as a superuser."""
    row = one(cursor, "SELECT rolcreatedb OR rolsuper FROM hg.pg_authid WHERE rolname = ?", [role])
    return bool(row and row[0])


def owns(cursor: Cursor, role: str, owner: int) -> bool:
    """Return whether the role has the rights of another role: it is that role, inherits from it, or is a superuser."""
    return acl.role(cursor, role).owns(owner)


def check_owner(cursor: Cursor, role: str, owner: int, kind: str, name: str) -> None:
    """Raise 42501 `must be owner of table t`."""
    if not owns(cursor, role, owner):
        raise PostgresError("42501", f"must be owner of {kind} {name}")


# ---- databases and schemas -----------------------------------------------------------------------------------


def may_on_database(cursor: Cursor, role: str, database: int, privilege: str) -> bool:
    row = one(cursor, "SELECT datdba, datacl FROM hg.pg_database WHERE oid = ?", [database])
    if row is None:
        return True
    return acl.role(cursor, role).may(acl.letter(privilege), row[0], acl.read(row[1], "d", acl.role_name(cursor, row[0])))


def check_create_on_database(cursor: Cursor, role: str, database: int) -> None:
    """Raise 42501 `permission denied for database d` without CREATE on the database."""
    row = one(cursor, "SELECT datname FROM hg.pg_database WHERE oid = ?", [database])
    if row is not None and not may_on_database(cursor, role, database, "CREATE"):
        raise PostgresError("42501", f"permission denied for database {row[0]}")


def may_in_schema(cursor: Cursor, role: str, database: int, namespace: int, privilege: str) -> bool:
    """Return whether the role has a right (CREATE, USAGE) on a schema."""
    return is_superuser(cursor, role) or namespaces.may(cursor, role, database, namespace, privilege)


def check_owner_of_schema(cursor: Cursor, role: str, database: int, schema: namespaces.Namespace) -> None:
    """Raise 42501 `must be owner of schema s`. The owner of the database owns the schemas of pg_database_owner."""
    row = one(cursor, "SELECT datdba FROM hg.pg_database WHERE oid = ?", [database])
    rights = acl.role(cursor, role)
    if not (rights if row is None else namespaces.with_database_owner(cursor, rights, row[0])).owns(schema.owner):
        raise PostgresError("42501", f"must be owner of schema {schema.name}")


def check_create_in_schema(cursor: Cursor, role: str, database: int, namespace: int) -> None:
    """Raise 42501 `permission denied for schema s` without CREATE on the schema."""
    if not may_in_schema(cursor, role, database, namespace, "CREATE"):
        raise PostgresError("42501", f"permission denied for schema {namespaces.name_of(cursor, database, namespace)}")


def check_new_name(cursor: Cursor, role: str, relation: Relation) -> None:
    """Raise 42501 `permission denied for schema s` unless the role may give a relation, or an index of it, a name in its schema."""
    if not relation.schema.startswith("pg_temp_"):
        check_create_in_schema(cursor, role, relation.database, relation.namespace_oid)


# ---- tables, columns, sequences ------------------------------------------------------------------------------

_OF_ALL = {READ_ALL_DATA: ("SELECT",), WRITE_ALL_DATA: ("INSERT", "UPDATE", "DELETE")}


def may_on_table(cursor: Cursor, role: str, database: int, relation: int, privilege: str) -> bool:
    """Return whether the role has a right on a whole table, view or sequence."""
    if is_superuser(cursor, role):
        return True
    row = one(cursor, "SELECT relowner, relacl, relkind FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?", [database, relation])
    if row is None:
        return True
    role_rights = acl.role(cursor, role)
    if any(oid in role_rights.roles and privilege in rights for oid, rights in _OF_ALL.items()) and relation >= FIRST_USER_OID:
        return True
    owner, acl_items, kind = row
    items = acl.read(acl_items, "s" if kind == "S" else "r", acl.role_name(cursor, owner))
    return role_rights.may(acl.letter(privilege), owner, items)


def check_table(cursor: Cursor, role: str, database: int, relation: int, name: str, *privileges: str) -> None:
    """Raise 42501 `permission denied for table t` unless the role has all the privileges on it."""
    for privilege in privileges:
        if not may_on_table(cursor, role, database, relation, privilege):
            raise denied(cursor, database, relation, name)


def has_row_security(cursor: Cursor, relation: Relation) -> bool:
    """Return whether row security is enabled for a table now, whatever its definition in the transaction's snapshot says."""
    secured = _row_security(cursor, relation)
    return secured is not None and bool(secured[0])


def _row_security(cursor: Cursor, relation: Relation) -> Row | None:
    sql = "SELECT relrowsecurity, relforcerowsecurity, relowner FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?"
    return one(cursor, sql, [relation.database, relation.oid])


def under_row_security(cursor: Cursor, role: str, relation: Relation) -> bool:
    """Return whether row security applies to this role on this table (check_enable_rls)."""
    secured = _row_security(cursor, relation)
    if secured is None or not secured[0]:
        return False
    row = one(cursor, "SELECT rolsuper OR rolbypassrls FROM hg.pg_authid WHERE rolname = ?", [role])
    if row and row[0]:
        return False
    return bool(secured[1]) or not owns(cursor, role, secured[2])


def denied(cursor: Cursor, database: int, relation: int, name: str) -> PostgresError:
    """Return the error 42501 `permission denied for table t`, or view, or sequence."""
    row = one(cursor, "SELECT relkind FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?", [database, relation])
    word = {"v": "view", "S": "sequence", "m": "materialized view", "f": "foreign table"}.get(row[0] if row else "r", "table")
    return PostgresError("42501", f"permission denied for {word} {name}")


def refuse_system(relation: Relation) -> None:
    """Raise 42501 for a system table, which must not be changed."""
    if relation.oid < FIRST_USER_OID:
        raise PostgresError("42501", f'permission denied: "{relation.name}" is a system catalog')


def columns_with(cursor: Cursor, role: str, relation: Relation, privilege: str) -> set[int]:
    """Return the attnums of the columns on which the role has a right by a grant on the column itself."""
    column_acls = rows(
        cursor, "SELECT attnum, attacl FROM hg.pg_attribute WHERE dbid = ? AND attrelid = ? AND attacl IS NOT NULL AND NOT attisdropped",
        [relation.database, relation.oid],
    )  # fmt: skip
    if not column_acls:
        return set()
    role_rights, right = acl.role(cursor, role), acl.letter(privilege)
    return {attnum for attnum, items in column_acls if role_rights.may(right, 0, acl.read(items, "c", ""))}


def check_columns(cursor: Cursor, role: str, relation: Relation, privilege: str, attnums: Iterable[int]) -> None:
    """Raise 42501 unless the role has a right on the table, or on each of these columns."""
    if may_on_table(cursor, role, relation.database, relation.oid, privilege):
        return
    if set(attnums) - columns_with(cursor, role, relation, privilege):
        raise denied(cursor, relation.database, relation.oid, relation.name)


def readable(cursor: Cursor, role: str, relation: Relation) -> Sequence[int] | None:
    """Return the attnums of the columns that the role may SELECT, or None for all. Raise 42501 if there are none."""
    if may_on_table(cursor, role, relation.database, relation.oid, "SELECT"):
        return None
    attnums = columns_with(cursor, role, relation, "SELECT")
    if not attnums:
        raise denied(cursor, relation.database, relation.oid, relation.name)
    return sorted(attnums)
