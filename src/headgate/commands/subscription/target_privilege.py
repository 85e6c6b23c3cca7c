"""What the owner of a subscription may do to the tables that its changes are applied to (worker.c, TargetPrivilegesCheck).

PostgreSQL 15's rule: the workers act as the subscription's owner; INSERT needs INSERT, UPDATE and DELETE need the right itself and
SELECT, TRUNCATE needs TRUNCATE, and row-level security must not apply to the owner. With run_as_owner = false (PostgreSQL 16) they
act as the table's owner, which the subscription's owner must be able to become. The server hands `check` to the subscriber.

As there (CheckCmdReplicaIdentity), a change of a table that is published on must bring what its publications ask of the replica identity.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.security.rights import one
from headgate.commands import privilege
from headgate.commands.publication import replica_identity
from headgate.errors import PostgresError, Severity

_NEEDED = {"I": ("INSERT",), "U": ("SELECT", "UPDATE"), "D": ("SELECT", "DELETE"), "T": ("TRUNCATE",)}
_PUBLISHED = {"U": "update", "D": "delete"}


def check(cursor: Cursor, subscription: Subscription, relation: Relation, ops: Iterable[str]) -> None:
    """42501 or 0A000 unless changes of these kinds (I, U, D, T) may be applied to the relation; 42P10, 55000 if not published on."""
    kinds = set(ops)
    _check_rights(cursor, subscription, relation, kinds)
    for op in sorted(kinds & _PUBLISHED.keys()):
        replica_identity.check(cursor, relation, _PUBLISHED[op])


def _check_rights(cursor: Cursor, subscription: Subscription, relation: Relation, ops: Iterable[str]) -> None:
    owner = privilege.role_name(cursor, subscription.owner)
    if not subscription.run_as_owner:
        owner = _table_owner(cursor, owner, relation)
    if privilege.is_superuser(cursor, owner):
        return
    for op in ops:
        privilege.check_table(cursor, owner, relation.database, relation.oid, relation.name, *_NEEDED[op])
    _check_row_security(cursor, owner, relation)


def check_login(cursor: Cursor, subscription: Subscription) -> None:
    """28000, FATAL, if the owner may not log in: then no worker starts."""
    found = one(cursor, "SELECT rolname, rolcanlogin FROM hg.pg_authid WHERE oid = ?", [subscription.owner])
    if found is not None and not found[1]:
        raise PostgresError("28000", f'role "{found[0]}" is not permitted to log in', severity=Severity.FATAL)


def _table_owner(cursor: Cursor, owner: str, relation: Relation) -> str:
    found = one(cursor, "SELECT relowner FROM hg.pg_class WHERE dbid = ? AND oid = ?", [relation.database, relation.oid])
    wanted = owner if found is None else privilege.role_name(cursor, int(found[0]))
    if wanted != owner and not privilege.is_member(cursor, owner, wanted):
        raise PostgresError("42501", f'role "{owner}" cannot SET ROLE to "{wanted}"')
    return wanted


def _check_row_security(cursor: Cursor, owner: str, relation: Relation) -> None:
    found = one(
        cursor,
        "SELECT c.relrowsecurity, c.relforcerowsecurity, c.relowner, r.rolbypassrls FROM hg.pg_class c, hg.pg_authid r"
        " WHERE c.dbid = ? AND c.oid = ? AND r.rolname = ?",
        [relation.database, relation.oid, owner],
    )
    if found is None or not found[0] or found[3]:
        return
    if privilege.owns(cursor, owner, int(found[2])) and not found[1]:
        return
    raise PostgresError("0A000", f'user "{owner}" cannot replicate into relation with row-level security enabled: "{relation.name}"')
