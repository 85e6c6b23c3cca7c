"""The rights that a new object has from ALTER DEFAULT PRIVILEGES (pg_default_acl; manual, 5.7).

Called by the statements that make a table, a view, a sequence or a schema; `role.grant` writes what is read here.
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, rows, run
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.security import acl
from headgate.commands import privilege


def default_acl(cursor: Cursor, database: int, owner: str, schema: int, kind: str) -> list[str] | None:
    """The ACL of a new object (get_user_default_acl): None where no default was altered."""
    shown, oid = "S" if kind == "s" else kind, privilege.role_oid(cursor, owner)
    found = dict(
        rows(
            cursor,
            "SELECT defaclnamespace, defaclacl FROM hg.pg_default_acl WHERE dbid = ? AND defaclrole = ? AND defaclobjtype = ?"
            " AND defaclnamespace IN (0, ?)",
            [database, oid, shown, schema],
        )
    )
    if not found:
        return None
    items = acl.read(found.get(0), kind, owner)
    for each in acl.read(found[schema], kind, owner) if schema and schema in found else ():
        items = acl.given(items, each.grantee, each.grantor, each.rights, option=bool(each.options))
    return None if items == acl.default(kind, owner) else acl.write(items)


def apply_default(cursor: Cursor, relation: Relation, owner: str) -> None:
    """Gives a new table, view or sequence the ACL that ALTER DEFAULT PRIVILEGES asked for."""
    items = default_acl(cursor, relation.database, owner, relation.namespace_oid, "s" if relation.kind == RelationKind.SEQUENCE else "r")
    if items is not None:
        run(cursor, "UPDATE hg.pg_class SET relacl = ? WHERE dbid = ? AND oid = ?", [items, relation.database, relation.oid])
