"""LOCK TABLE (manual, sql-lock): the required rights, and the modes that block writers.

Called by the server inside a block. Readers never block and are never blocked. So a mode only matters by its conflict with ROW EXCLUSIVE,
in which rows are written:

    ACCESS SHARE, ROW SHARE, ROW EXCLUSIVE, SHARE UPDATE EXCLUSIVE    no lock
    SHARE, SHARE ROW EXCLUSIVE, EXCLUSIVE, ACCESS EXCLUSIVE           the table's write lock, until the transaction ends
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.security import acl
from headgate.commands import lookup, privilege
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.transaction.transaction import Transaction

ACCESS_SHARE, ROW_EXCLUSIVE, SHARE = 1, 3, 5
_RIGHTS = {ACCESS_SHARE: ("SELECT",), ROW_EXCLUSIVE: ("INSERT", "UPDATE", "DELETE", "TRUNCATE")}
_RIGHTS_OF_OTHERS = ("UPDATE", "DELETE", "TRUNCATE")


def lock(node: ParseNode, session: Session) -> None:
    """Lock tables, those with leaves with all of them, views with the tables that they read.

    Raise 42P01, 42809, 42501, or with NOWAIT 55P03.
    """
    transaction = session.begin_command()
    for item in node.relations:
        relation = lookup.target(transaction.cursor, session.context, unwrap(item))
        relation = inheritance.expanded(transaction.cursor, relation) if unwrap(item).inh else relation
        if relation.kind not in TABLE_KINDS | {RelationKind.VIEW}:
            raise PostgresError(
                "42809",
                f'cannot lock relation "{relation.name}"',
                detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
            )
        _lock(transaction, session.context.user, session.context.user, relation, node.mode, wait=not node.nowait)


def _lock(transaction: Transaction, user: str, role: str, relation: Relation, mode: int, *, wait: bool) -> None:
    """Lock a relation with the rights of `role`, and a view's relations with those of its owner or of `user` (LockViewRecurse)."""
    cursor = transaction.cursor
    _check_right(cursor, role, relation, mode)
    if relation.kind != RelationKind.VIEW:
        if mode >= SHARE:
            _take(transaction, relation, wait=wait)
        return
    is_invokers = views.invokers_rights(views.options(cursor, relation.database, relation.oid))
    inner_role = user if is_invokers else acl.role_name(cursor, relation.owner)
    for oid in views.sources(cursor, relation.database, relation.oid):
        inner = relations.find(cursor, relation.database, oid)
        if inner is not None and inner.kind in TABLE_KINDS | {RelationKind.VIEW}:
            _lock(transaction, user, inner_role, inner, mode, wait=wait)


def _check_right(cursor: Cursor, role: str, relation: Relation, mode: int) -> None:
    rights = _RIGHTS.get(mode, _RIGHTS_OF_OTHERS)
    if not any(privilege.may_on_table(cursor, role, relation.database, relation.oid, right) for right in rights):
        raise privilege.denied(cursor, relation.database, relation.oid, relation.name)


def _take(transaction: Transaction, relation: Relation, *, wait: bool) -> None:
    try:
        transaction.lock(relation, wait=wait, alone=True)
    except PostgresError as error:
        if wait or error.sqlstate != "55P03":
            raise
        raise PostgresError("55P03", f'could not obtain lock on relation "{relation.name}"') from error
