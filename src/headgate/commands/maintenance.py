"""VACUUM, ANALYZE, REINDEX.

ANALYZE has nothing to do: Spark plans by Delta's own statistics. VACUUM lets the storage remove what nobody can read any more. All
check their tables' names and privileges as PostgreSQL does.
"""

from __future__ import annotations

from typing import Any

from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.sql.parser import unwrap


def vacuum(node: Any, session: Session) -> CommandResult:
    """VACUUM and ANALYZE."""
    word = "VACUUM" if node.is_vacuumcmd else "ANALYZE"
    if node.is_vacuumcmd:
        session.prevent_in_block("VACUUM")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for item in node.rels:
        relation = lookup.target(cursor, context, unwrap(item).relation)
        if relation.kind not in "rpm":
            session.notices.warning(f'skipping "{relation.name}" --- cannot vacuum non-tables or special system tables')
        elif not privilege.owns(cursor, context.user, relation.owner):
            session.notices.warning(f'skipping "{relation.name}" --- only table or database owner can {word.lower()} it')
    if node.is_vacuumcmd:
        transaction.engine.clean()
    return CommandResult(word)


def reindex(node: Any, session: Session) -> CommandResult:
    """REINDEX: indexes hold no data of their own."""
    transaction = session.begin_statement()
    if node.HasField("relation"):
        lookup.target(transaction.cursor, session.context, node.relation)
    return CommandResult("REINDEX")
