"""Check the rights of a subscription's owner on the tables to which its changes are applied (worker.c, TargetPrivilegesCheck).

The rules are those of PostgreSQL 15. The workers act as the subscription's owner. INSERT needs INSERT, UPDATE and DELETE need the right
itself and SELECT, TRUNCATE needs TRUNCATE. Row-level security must not apply to the owner. With run_as_owner = false (PostgreSQL 16), they
act as the table's owner, and the subscription's owner must be able to SET ROLE to it. The server passes `check` to the subscriber.

As in PostgreSQL (CheckCmdReplicaIdentity), a change of a table that is also published must satisfy the replica identity that its
publications need.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one
from headgate.commands import privilege
from headgate.commands.publication import replica_identity
from headgate.errors import PostgresError, Severity

_NEEDED = {"I": ("INSERT",), "U": ("SELECT", "UPDATE"), "D": ("SELECT", "DELETE"), "T": ("TRUNCATE",)}
_PUBLISHED = {"U": "update", "D": "delete"}


def check(cursor: Cursor, subscription: Subscription, relation: Relation, ops: Iterable[str]) -> None:
    """Raise 42501 or 0A000 unless changes of these kinds (I, U, D, T) may be applied to the relation.

    Raise 42P10 or 55000 if its publications do not allow them.
    """
    kinds = set(ops)
    _check_rights(cursor, subscription, relation, kinds)
    for op in sorted(kinds & _PUBLISHED.keys()):
        replica_identity.check(cursor, relation, _PUBLISHED[op])


def _check_rights(cursor: Cursor, subscription: Subscription, relation: Relation, ops: Iterable[str]) -> None:
    owner = acl.role_name(cursor, subscription.owner)
    if not subscription.run_as_owner:
        owner = _table_owner(cursor, owner, relation)
    if privilege.is_superuser(cursor, owner):
        return
    for op in ops:
        privilege.check_table(cursor, owner, relation.database, relation.oid, relation.name, *_NEEDED[op])
    if privilege.under_row_security(cursor, owner, relation):
        raise PostgresError("0A000", f'user "{owner}" cannot replicate into relation with row-level security enabled: "{relation.name}"')


def check_login(cursor: Cursor, subscription: Subscription) -> None:
    """Raise 28000 with severity FATAL if the owner may not log in, so that no worker starts."""
    role = roles.find(cursor, subscription.owner)
    if role is not None and not role.can_login:
        raise PostgresError("28000", f'role "{role.name}" is not permitted to log in', severity=Severity.FATAL)


def owner_of(cursor: Cursor, relation: Relation) -> int | None:
    """Return the owner of a relation, or None if the relation does not exist."""
    table = one(cursor, "SELECT relowner FROM hg.pg_class WHERE dbid = ? AND oid = ?", [relation.database, relation.oid])
    return None if table is None else int(table[0])


def _table_owner(cursor: Cursor, owner: str, relation: Relation) -> str:
    oid = owner_of(cursor, relation)
    table_owner = owner if oid is None else acl.role_name(cursor, oid)
    if table_owner != owner and not privilege.is_member(cursor, owner, table_owner):
        raise PostgresError("42501", f'role "{owner}" cannot SET ROLE to "{table_owner}"')
    return table_owner
