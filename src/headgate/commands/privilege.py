"""Who may do what: superusers, ownership through membership, CREATE on a database or schema, privileges on tables.

Called by every command before it changes something; the errors are PostgreSQL's. Works on the catalog rows pg_authid,
pg_auth_members and the ACL columns. An ACL that is NULL is PostgreSQL's default: the owner may do all, and PUBLIC may
connect, create temporary tables, and use the schema public.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog.physical import Cursor, one, run
from headgate.catalog.relation import Relation
from headgate.errors import PostgresError

_LETTERS = {
    "INSERT": "a", "SELECT": "r", "UPDATE": "w", "DELETE": "d", "TRUNCATE": "D", "REFERENCES": "x", "TRIGGER": "t", "EXECUTE": "X",
    "USAGE": "U", "CREATE": "C", "CONNECT": "c", "TEMPORARY": "T", "TEMP": "T",
}  # fmt: skip
"""The letters of aclitem (manual, table 5.1)."""


def letter(privilege: str) -> str:
    """The letter of a privilege's name; 42601 for a name that is none."""
    found = _LETTERS.get(privilege.upper())
    if found is None:
        raise PostgresError("42601", f'unrecognized privilege type "{privilege.lower()}"')
    return found


def role_oid(cursor: Cursor, name: str) -> int:
    """The role's oid; 42704 `role "x" does not exist`."""
    found = one(cursor, "SELECT oid FROM hg.pg_authid WHERE rolname = ?", [name])
    if found is None:
        raise PostgresError("42704", f'role "{name}" does not exist')
    return int(found[0])


def role_name(cursor: Cursor, oid: int) -> str:
    """The role's name, as pg_get_userbyid gives it."""
    found = one(cursor, "SELECT rolname FROM hg.pg_authid WHERE oid = ?", [oid])
    return f"unknown (OID={oid})" if found is None else str(found[0])


def is_superuser(cursor: Cursor, role: str) -> bool:
    """Whether the role is a superuser."""
    found = one(cursor, "SELECT rolsuper FROM hg.pg_authid WHERE rolname = ?", [role])
    return bool(found and found[0])


def roles_of(cursor: Cursor, role: str) -> set[int]:
    """The role's own oid and those of all roles that it is a member of."""
    own = role_oid(cursor, role)
    rows = run(cursor, "SELECT member, roleid FROM hg.pg_auth_members").fetchall()
    reached, waiting = {own}, [own]
    while waiting:
        current = waiting.pop()
        for member, granted in rows:
            if member == current and granted not in reached:
                reached.add(granted)
                waiting.append(granted)
    return reached


def is_member(cursor: Cursor, role: str, of: str) -> bool:
    """Whether `role` is (indirectly) a member of `of`, or a superuser."""
    return is_superuser(cursor, role) or role_oid(cursor, of) in roles_of(cursor, role)


def owns(cursor: Cursor, role: str, owner: int) -> bool:
    """Whether the role has the owner's rights: is it, is a member of it, or is a superuser."""
    return is_superuser(cursor, role) or owner in roles_of(cursor, role)


def check_owner(cursor: Cursor, role: str, owner: int, kind: str, name: str) -> None:
    """42501 `must be owner of table t`."""
    if not owns(cursor, role, owner):
        raise PostgresError("42501", f"must be owner of {kind} {name}")


def allowed(cursor: Cursor, role: str, privilege: str, owner: int, acl: list[str] | None, public: str = "") -> bool:
    """Whether the role has a privilege (by name) under an ACL; `public` has the letters that PUBLIC has by default."""
    if is_superuser(cursor, role):
        return True
    roles = roles_of(cursor, role)
    if owner in roles and acl is None:
        return True
    wanted = letter(privilege)
    if acl is None:
        return wanted in public
    names = {role_name(cursor, each) for each in roles} | {""}
    for item in acl:
        grantee, _, rest = item.partition("=")
        if grantee.strip('"') in names and wanted in rest.split("/")[0].replace("*", ""):
            return True
    return False


def check_create_on_database(cursor: Cursor, role: str, database: int) -> None:
    """42501 `permission denied for database d`."""
    found = one(cursor, "SELECT datname, datdba, datacl FROM hg.pg_database WHERE oid = ?", [database])
    if found is not None and not allowed(cursor, role, "CREATE", int(found[1]), found[2], "cT"):
        raise PostgresError("42501", f"permission denied for database {found[0]}")


def check_create_in_schema(cursor: Cursor, role: str, database: int, namespace: int) -> None:
    """42501 `permission denied for schema s`."""
    found = one(
        cursor,
        "SELECT n.nspname, CASE WHEN n.nspowner = 6171 THEN d.datdba ELSE n.nspowner END, n.nspacl FROM hg.pg_namespace n"
        " LEFT JOIN hg.pg_database d ON d.oid = ? WHERE n.oid = ? AND n.dbid IN (0, ?)",
        [database, namespace, database],
    )
    if found is None:
        return
    owner = int(found[1])
    if owns(cursor, role, owner):
        return
    if not allowed(cursor, role, "CREATE", owner, found[2]):
        raise PostgresError("42501", f"permission denied for schema {found[0]}")


def check_table(cursor: Cursor, role: str, database: int, relation: int, name: str, *privileges: str) -> None:
    """42501 `permission denied for table t` unless the role has all the privileges on it."""
    found = one(cursor, "SELECT relowner, relacl FROM hg.pg_class WHERE dbid = ? AND oid = ?", [database, relation])
    if found is None:
        return
    for privilege in privileges:
        if not allowed(cursor, role, privilege, int(found[0]), found[1]):
            raise PostgresError("42501", f"permission denied for table {name}")


def check_columns(cursor: Cursor, role: str, relation: Relation, privilege: str, attnums: Sequence[int]) -> None:
    """42501 unless the role has a privilege on the table, or on each of these columns."""
    check_table(cursor, role, relation.database, relation.oid, relation.name, privilege)
