"""Access privileges: the aclitem arrays of the catalogs in `COLUMNS` (manual, 5.7; acl.c).

An item is ``grantee=rights/grantor``. The grantee is a role's name, or "" for PUBLIC. Each right is a letter (table 5.1), followed by * if
it has the grant option. A NULL ACL stands for `default`. Called by GRANT and REVOKE, by the privilege checks of commands, and by the
functions has_table_privilege and similar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headgate.catalog import physical
from headgate.catalog.physical import Cursor, run
from headgate.catalog.security.rights import one, rows
from headgate.catalog.security.role import memberships
from headgate.errors import PostgresError, existing

LETTERS = {
    "INSERT": "a", "SELECT": "r", "UPDATE": "w", "DELETE": "d", "TRUNCATE": "D", "REFERENCES": "x", "TRIGGER": "t", "EXECUTE": "X",
    "USAGE": "U", "CREATE": "C", "TEMPORARY": "T", "TEMP": "T", "CONNECT": "c", "SET": "s", "ALTER SYSTEM": "A",
}  # fmt: skip
"""The letters of the privileges."""
ORDER = "arwdDxtXUCTcsA"
EVERY = {"r": "arwdDxt", "s": "rwU", "c": "arwx", "n": "UC", "d": "CTc", "f": "X", "T": "U", "l": "U"}
"""All privileges on a kind of object, by acldefault's letter: relation, sequence, column, schema, database, function, type, language."""
PUBLIC = {"d": "Tc", "f": "X", "T": "U", "l": "U"}
"""The privileges that PUBLIC has by default."""

OWNED = {
    "pg_class": ("relowner", "relacl"), "pg_namespace": ("nspowner", "nspacl"), "pg_proc": ("proowner", "proacl"),
    "pg_database": ("datdba", "datacl"), "pg_language": ("lanowner", "lanacl"),
}  # fmt: skip
"""The catalogs whose rows have both an owner and an ACL, with the names of these columns."""
COLUMNS = {
    **{catalog: column for catalog, (_, column) in OWNED.items()}, "pg_attribute": "attacl", "pg_default_acl": "defaclacl",
}  # fmt: skip
"""The catalogs with an ACL, and its column."""


@dataclass(frozen=True)
class Item:
    """The privileges that one grantor granted to one grantee. `options` are those with the grant option."""

    grantee: str
    rights: str
    grantor: str
    options: str = ""


def letter(privilege: str) -> str:
    """Return the letter of a privilege's name. Raise 42601 for an unknown name."""
    right = LETTERS.get(privilege.upper())
    if right is None:
        raise PostgresError("42601", f'unrecognized privilege type "{privilege.lower()}"')
    return right


def default(kind: str, owner: str) -> list[Item]:
    """Return the default ACL (acldefault): the owner has all privileges, PUBLIC those of `PUBLIC`."""
    public = [Item("", PUBLIC[kind], owner)] if kind in PUBLIC else []
    return public if kind == "c" else [*public, Item(owner, EVERY[kind], owner)]


def read(acl: Sequence[str] | None, kind: str, owner: str) -> list[Item]:
    """Return the items of an ACL, or the default ones for NULL."""
    return default(kind, owner) if acl is None else [_item(text) for text in acl]


def _item(text: str) -> Item:
    match = re.match(r'("(?:[^"]|"")*"|[^=]*)=([^/]*)/(.*)\Z', text, re.DOTALL)
    if match is None:
        raise PostgresError("22P02", f"invalid aclitem: {text}")
    rights = match[2]
    options = "".join(rights[index - 1] for index, char in enumerate(rights) if char == "*" and index)
    return Item(_unquote(match[1]), rights.replace("*", ""), _unquote(match[3]), options)


def write(items: Iterable[Item]) -> list[str]:
    texts = []
    for item in items:
        rights = "".join(char + ("*" if char in item.options else "") for char in ORDER if char in item.rights)
        texts.append(f"{_quote(item.grantee)}={rights}/{_quote(item.grantor)}")
    return texts


def _quote(name: str) -> str:
    return name if re.match(r"\w*\Z", name, re.ASCII) else '"' + name.replace('"', '""') + '"'


def _unquote(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def given(items: Sequence[Item], grantee: str, grantor: str, rights: str, *, option: bool) -> list[Item]:
    result = list(items)
    for index, item in enumerate(result):
        if (item.grantee, item.grantor) == (grantee, grantor):
            options = _union(item.options, rights if option else "")
            result[index] = replace(item, rights=_union(item.rights, rights), options=options)
            return result
    return [*result, Item(grantee, rights, grantor, rights if option else "")]


def taken(items: Sequence[Item], grantee: str, grantor: str, rights: str, *, option_only: bool, cascade: bool) -> list[Item]:
    """Return the items after REVOKE. Raise 2BP01 if privileges that the grantee granted depend on the revoked ones."""
    result: list[Item] = []
    lost = ""
    for item in items:
        if (item.grantee, item.grantor) != (grantee, grantor):
            result.append(item)
            continue
        lost = "".join(char for char in rights if char in item.options)
        left = replace(item, rights=item.rights if option_only else _minus(item.rights, rights), options=_minus(item.options, rights))
        if left.rights:
            result.append(left)
    lost = "".join(char for char in lost if not any(char in item.options for item in result if item.grantee == grantee))
    depending = [item for item in result if item.grantor == grantee and grantee and set(item.rights) & set(lost)]
    if grantee and grantee != grantor:
        for item in depending:
            if not cascade:
                raise PostgresError("2BP01", "dependent privileges exist", hint="Use CASCADE to revoke them too.")
            result = taken(result, item.grantee, grantee, lost, option_only=False, cascade=True)
    return result


def _union(left: str, right: str) -> str:
    return "".join(char for char in ORDER if char in left or char in right)


def _minus(left: str, right: str) -> str:
    return "".join(char for char in left if char not in right)


@dataclass(frozen=True)
class RoleRights:
    """A role's privileges. `roles` (oids) and `names` are the roles whose privileges it has, including itself."""

    name: str
    oid: int
    superuser: bool
    roles: frozenset[int]
    names: frozenset[str]

    def owns(self, owner: int) -> bool:
        """Return whether the role has the privileges of an owner."""
        return self.superuser or owner in self.roles

    def may(self, right: str, owner: int, items: Sequence[Item], *, option: bool = False) -> bool:
        """Return whether the role has a privilege (a letter), or with `option` its grant option. The owner may always grant."""
        if self.superuser or (option and owner in self.roles):
            return True
        return any(
            right in (item.options if option else item.rights)
            for item in items
            if item.grantee in self.names or (not item.grantee and not option)
        )


EVERYBODY = RoleRights("public", 0, superuser=False, roles=frozenset(), names=frozenset())
"""PUBLIC as a role, which has only the privileges granted to PUBLIC."""


def role(cursor: Cursor, name: str) -> RoleRights:
    """Return a role with all roles whose privileges it inherits (has_privs_of_role). Raise 42704 if the role does not exist."""
    own = one(cursor, "SELECT oid, rolsuper FROM hg.pg_authid WHERE rolname = ?", [name])
    oid, superuser = existing(own, "42704", f'role "{name}"')
    role_oids = frozenset(memberships(cursor, oid, inherited=True))
    names = rows(cursor, "SELECT oid, rolname FROM hg.pg_authid")
    return RoleRights(name, oid, superuser, role_oids, frozenset(role_name for role_oid, role_name in names if role_oid in role_oids))


def role_name(cursor: Cursor, oid: int) -> str:
    """Return a role's name, as pg_get_userbyid does."""
    row = one(cursor, "SELECT rolname FROM hg.pg_authid WHERE oid = ?", [oid])
    return f"unknown (OID={oid})" if row is None else str(row[0])


def give(cursor: Cursor, catalog: str, oid: int, owner: int, database: int | None = None) -> None:
    """Change the owner of a row of a catalog in `OWNED`, and replace the old owner in its ACL."""
    owner_column, column = OWNED[catalog]
    where, values = ("oid = ?", [oid]) if database is None else ("oid = ? AND dbid = ?", [oid, database])
    row = physical.one(cursor, f"SELECT {owner_column}, {column} FROM hg.{catalog} WHERE {where}", values)
    if row is None or row[0] == owner:
        return
    old, new = role_name(cursor, row[0]), role_name(cursor, owner)
    after = handed_over(row[1], old, new)
    run(cursor, f"UPDATE hg.{catalog} SET {owner_column} = ?, {column} = ? WHERE {where}", [owner, after, *values])
    if catalog == "pg_class":
        columns = "dbid = ? AND attrelid = ?"
        for attnum, items in physical.rows(
            cursor, f"SELECT attnum, attacl FROM hg.pg_attribute WHERE {columns} AND attacl IS NOT NULL", [database, oid]
        ):
            sql = f"UPDATE hg.pg_attribute SET attacl = ? WHERE {columns} AND attnum = ?"
            run(cursor, sql, [handed_over(items, old, new), database, oid, attnum])


def handed_over(acl: Sequence[str] | None, old: str, new: str) -> list[str] | None:
    """Return an ACL in which one role replaces another. Items with the same grantee and grantor are merged (aclnewowner)."""
    if acl is None:
        return None
    items: list[Item] = []
    for item in _with_name(acl, old, new):
        items = given(items, item.grantee, item.grantor, item.rights, option=False)
        items = given(items, item.grantee, item.grantor, item.options, option=True) if item.options else items
    return write(items)


def _with_name(acl: Sequence[str], old: str, new: str) -> list[Item]:
    return [
        replace(item, grantee=new if item.grantee == old else item.grantee, grantor=new if item.grantor == old else item.grantor)
        for item in map(_item, acl)
    ]


def renamed(cursor: Cursor, old: str, new: str) -> list[tuple[str, str, list[str], list[str]]]:
    """Return (catalog, column, ACL before, ACL after) for all ACLs that name a role that is being renamed."""
    changes = []
    for catalog, column in COLUMNS.items():
        for (acl,) in physical.rows(cursor, f"SELECT DISTINCT {column} FROM hg.{catalog} WHERE {column} IS NOT NULL"):
            if any(old in (item.grantee, item.grantor) for item in map(_item, acl)):
                changes.append((catalog, column, acl, write(_with_name(acl, old, new))))
    return changes
