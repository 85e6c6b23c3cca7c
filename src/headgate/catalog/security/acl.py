"""Access privileges: the aclitem arrays of pg_class, pg_attribute, pg_namespace and pg_database (manual, 5.7; acl.c).

An item is ``grantee=rights/grantor``: the grantee is a role's name, "" for PUBLIC, each right a letter (table 5.1), followed by * where it
may be granted on. An ACL that is NULL stands for `default`. Called by GRANT and REVOKE, by the checks of commands, and by the functions
has_table_privilege and its like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headgate.catalog import physical
from headgate.catalog.physical import Cursor, run
from headgate.catalog.security.rights import one, rows
from headgate.errors import PostgresError

LETTERS = {
    "INSERT": "a", "SELECT": "r", "UPDATE": "w", "DELETE": "d", "TRUNCATE": "D", "REFERENCES": "x", "TRIGGER": "t", "EXECUTE": "X",
    "USAGE": "U", "CREATE": "C", "TEMPORARY": "T", "TEMP": "T", "CONNECT": "c", "SET": "s", "ALTER SYSTEM": "A",
}  # fmt: skip
"""The letters of rights."""
ORDER = "arwdDxtXUCTcsA"
EVERY = {"r": "arwdDxt", "s": "rwU", "c": "arwx", "n": "UC", "d": "CTc", "f": "X", "T": "U", "l": "U"}
"""All rights on a kind of object, by acldefault's letter: relation, sequence, column, schema, database, function, type, language."""
PUBLIC = {"d": "Tc", "f": "X", "T": "U", "l": "U"}
"""What PUBLIC may by default."""

OWNED = {"pg_class": ("relowner", "relacl"), "pg_namespace": ("nspowner", "nspacl"), "pg_database": ("datdba", "datacl")}
"""The catalogs whose rows have both an owner and an ACL: the columns of the two."""


@dataclass(frozen=True)
class Item:
    """What one grantor gave to one grantee; `options` are the rights that may be granted on."""

    grantee: str
    rights: str
    grantor: str
    options: str = ""


def letter(privilege: str) -> str:
    """The letter of a right's name; 42601 for a name that is none."""
    found = LETTERS.get(privilege.upper())
    if found is None:
        raise PostgresError("42601", f'unrecognized privilege type "{privilege.lower()}"')
    return found


def default(kind: str, owner: str) -> list[Item]:
    """acldefault: the owner may all; PUBLIC may what `PUBLIC` says."""
    public = [Item("", PUBLIC[kind], owner)] if kind in PUBLIC else []
    return public if kind == "c" else [*public, Item(owner, EVERY[kind], owner)]


def read(acl: Sequence[str] | None, kind: str, owner: str) -> list[Item]:
    """The items of an ACL, or the default ones."""
    return default(kind, owner) if acl is None else [_item(each) for each in acl]


def _item(text: str) -> Item:
    found = re.match(r'("(?:[^"]|"")*"|[^=]*)=([^/]*)/(.*)\Z', text, re.DOTALL)
    if found is None:
        raise PostgresError("22P02", f"invalid aclitem: {text}")
    marked = found[2]
    options = "".join(marked[place - 1] for place, char in enumerate(marked) if char == "*" and place)
    return Item(_unquoted(found[1]), marked.replace("*", ""), _unquoted(found[3]), options)


def write(items: Iterable[Item]) -> list[str]:
    """The array's texts."""
    found = []
    for each in items:
        rights = "".join(char + ("*" if char in each.options else "") for char in ORDER if char in each.rights)
        found.append(f"{_quoted(each.grantee)}={rights}/{_quoted(each.grantor)}")
    return found


def _quoted(name: str) -> str:
    return name if re.match(r"\w*\Z", name, re.ASCII) else '"' + name.replace('"', '""') + '"'


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def given(items: Sequence[Item], grantee: str, grantor: str, rights: str, *, option: bool) -> list[Item]:
    """The items after GRANT."""
    found = list(items)
    for place, each in enumerate(found):
        if (each.grantee, each.grantor) == (grantee, grantor):
            options = _union(each.options, rights if option else "")
            found[place] = replace(each, rights=_union(each.rights, rights), options=options)
            return found
    return [*found, Item(grantee, rights, grantor, rights if option else "")]


def taken(items: Sequence[Item], grantee: str, grantor: str, rights: str, *, option_only: bool, cascade: bool) -> list[Item]:
    """The items after REVOKE; 2BP01 where what the grantee granted on would lose its ground."""
    found: list[Item] = []
    lost = ""
    for each in items:
        if (each.grantee, each.grantor) != (grantee, grantor):
            found.append(each)
            continue
        lost = "".join(char for char in rights if char in each.options)
        left = replace(each, rights=each.rights if option_only else _minus(each.rights, rights), options=_minus(each.options, rights))
        if left.rights:
            found.append(left)
    lost = "".join(char for char in lost if not any(char in each.options for each in found if each.grantee == grantee))
    depending = [each for each in found if each.grantor == grantee and grantee and set(each.rights) & set(lost)]
    if grantee and grantee != grantor:
        for each in depending:
            if not cascade:
                raise PostgresError("2BP01", "dependent privileges exist", hint="Use CASCADE to revoke them too.")
            found = taken(found, each.grantee, grantee, lost, option_only=False, cascade=True)
    return found


def _union(one_set: str, other: str) -> str:
    return "".join(char for char in ORDER if char in one_set or char in other)


def _minus(one_set: str, other: str) -> str:
    return "".join(char for char in one_set if char not in other)


@dataclass(frozen=True)
class RoleRights:
    """A role as far as rights go: `roles` (oids) and `names` are those whose rights it has, itself among them."""

    name: str
    oid: int
    superuser: bool
    roles: frozenset[int]
    names: frozenset[str]

    def owns(self, owner: int) -> bool:
        """Whether it has the rights of an owner."""
        return self.superuser or owner in self.roles

    def may(self, right: str, owner: int, items: Sequence[Item], *, option: bool = False) -> bool:
        """Whether it has a right (a letter); `option`: whether it may grant it on. The owner may always grant."""
        if self.superuser or (option and owner in self.roles):
            return True
        return any(
            right in (each.options if option else each.rights)
            for each in items
            if each.grantee in self.names or (not each.grantee and not option)
        )


EVERYBODY = RoleRights("public", 0, superuser=False, roles=frozenset(), names=frozenset())
"""PUBLIC as a role: it has what has been granted to PUBLIC, and nothing else."""


def role(cursor: Cursor, name: str) -> RoleRights:
    """A role with all whose rights it inherits (has_privs_of_role); 42704 if there is none."""
    known = {oid: (own, superuser, inherit) for oid, own, superuser, inherit in rows(
        cursor, "SELECT oid, rolname, rolsuper, rolinherit FROM hg.pg_authid")}  # fmt: skip
    oid = next((each for each, (own, _, _) in known.items() if own == name), None)
    if oid is None:
        raise PostgresError("42704", f'role "{name}" does not exist')
    edges = rows(cursor, "SELECT member, roleid FROM hg.pg_auth_members")
    reached, waiting = {oid}, [oid]
    while waiting:
        at = waiting.pop()
        if not known.get(at, ("", False, True))[2]:
            continue
        for member, granted in edges:
            if member == at and granted not in reached:
                reached.add(granted)
                waiting.append(granted)
    names = frozenset(known[each][0] for each in reached if each in known)
    return RoleRights(name, oid, bool(known[oid][1]), frozenset(reached), names)


def role_name(cursor: Cursor, oid: int) -> str:
    """A role's name, as pg_get_userbyid gives it."""
    found = one(cursor, "SELECT rolname FROM hg.pg_authid WHERE oid = ?", [oid])
    return f"unknown (OID={oid})" if found is None else str(found[0])


def give(cursor: Cursor, catalog: str, oid: int, owner: int, database: int | None = None) -> None:
    """Gives a row of pg_class, pg_namespace or pg_database to another role; its ACL says of it what it said of the old owner."""
    owner_column, column = OWNED[catalog]
    where, values = ("oid = ?", [oid]) if database is None else ("oid = ? AND dbid = ?", [oid, database])
    found = physical.one(cursor, f"SELECT {owner_column}, {column} FROM hg.{catalog} WHERE {where}", values)
    if found is None or found[0] == owner:
        return
    old, new = role_name(cursor, found[0]), role_name(cursor, owner)
    after = handed_over(found[1], old, new)
    run(cursor, f"UPDATE hg.{catalog} SET {owner_column} = ?, {column} = ? WHERE {where}", [owner, after, *values])
    if catalog == "pg_class":
        columns = "dbid = ? AND attrelid = ?"
        for attnum, items in physical.rows(
            cursor, f"SELECT attnum, attacl FROM hg.pg_attribute WHERE {columns} AND attacl IS NOT NULL", [database, oid]
        ):
            sql = f"UPDATE hg.pg_attribute SET attacl = ? WHERE {columns} AND attnum = ?"
            run(cursor, sql, [handed_over(items, old, new), database, oid, attnum])


def handed_over(acl: Sequence[str] | None, old: str, new: str) -> list[str] | None:
    """An ACL with one role in the place of another; what two items then say of the same grantee and grantor is one (aclnewowner)."""
    if acl is None:
        return None
    found: list[Item] = []
    for each in _with_name(acl, old, new):
        found = given(found, each.grantee, each.grantor, each.rights, option=False)
        found = given(found, each.grantee, each.grantor, each.options, option=True) if each.options else found
    return write(found)


def _with_name(acl: Sequence[str], old: str, new: str) -> list[Item]:
    return [
        replace(each, grantee=new if each.grantee == old else each.grantee, grantor=new if each.grantor == old else each.grantor)
        for each in map(_item, acl)
    ]


def renamed(cursor: Cursor, old: str, new: str) -> list[tuple[str, str, list[str], list[str]]]:
    """(catalog, column, ACL before, ACL after) of all ACLs that name a role which is renamed."""
    found = []
    for catalog, column in (("pg_class", "relacl"), ("pg_attribute", "attacl"), ("pg_namespace", "nspacl"), ("pg_database", "datacl")):
        for (acl,) in physical.rows(cursor, f"SELECT DISTINCT {column} FROM hg.{catalog} WHERE {column} IS NOT NULL"):
            if any(old in (each.grantee, each.grantor) for each in map(_item, acl)):
                found.append((catalog, column, acl, write(_with_name(acl, old, new))))
    return found
