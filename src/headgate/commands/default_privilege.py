"""The rights that a new object gets from ALTER DEFAULT PRIVILEGES (pg_default_acl; manual, 5.7).

Called by the statements that create a table, view, sequence or schema. `role.grant` writes the catalog.
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, rows, update
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.security import acl
from headgate.commands import privilege


def default_acl(cursor: Cursor, database: int, owner: str, schema: int, kind: str) -> list[str] | None:
    """Return the ACL of a new object (get_user_default_acl), or None if no default was altered."""
    shown, oid = "S" if kind == "s" else kind, privilege.role_oid(cursor, owner)
    acls = dict(
        rows(
            cursor,
            "SELECT defaclnamespace, defaclacl FROM hg.pg_default_acl WHERE dbid = ? AND defaclrole = ? AND defaclobjtype = ?"
            " AND defaclnamespace IN (0, ?)",
            [database, oid, shown, schema],
        )
    )
    if not acls:
        return None
    items = acl.read(acls.get(0), kind, owner)
    for item in acl.read(acls[schema], kind, owner) if schema and schema in acls else ():
        items = acl.given(items, item.grantee, item.grantor, item.rights, option=bool(item.options))
    return None if items == acl.default(kind, owner) else acl.write(items)


def apply_default(cursor: Cursor, relation: Relation, owner: str) -> None:
    """Give a new table, view or sequence its default ACL."""
    items = default_acl(cursor, relation.database, owner, relation.namespace_oid, "s" if relation.kind == RelationKind.SEQUENCE else "r")
    if items is not None:
        update(cursor, "pg_class", {"dbid": relation.database, "oid": relation.oid}, relacl=items)
