"""SET CONSTRAINTS: when the deferrable foreign keys of the transaction are checked."""

from __future__ import annotations

from typing import Any

from headgate.catalog.physical import rows
from headgate.commands import lookup
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.parser import unwrap


def set_constraints(node: Any, session: Session) -> CommandResult:
    """SET CONSTRAINTS { ALL | c, … } { DEFERRED | IMMEDIATE }; IMMEDIATE checks at once what has waited."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    chosen: set[int] = set()
    if not session.in_block:
        session.notices.warning("SET CONSTRAINTS can only be used in transaction blocks", sqlstate="25P01")
        return CommandResult("SET CONSTRAINTS")
    if not node.constraints:
        transaction.constraint_modes = {0: node.deferred}
    else:
        for item in node.constraints:
            name = unwrap(item)
            schemas = [name.schemaname] if name.schemaname else lookup.search_path(cursor, context)
            found = rows(
                cursor,
                "SELECT k.oid, k.condeferrable FROM hg.pg_constraint k JOIN hg.pg_namespace n ON n.oid = k.connamespace"
                " AND n.dbid IN (0, ?)"
                f" WHERE k.dbid = ? AND k.conname = ? AND n.nspname IN ({', '.join('?' for _ in schemas) or 'NULL'})",
                [context.database, context.database, name.relname, *schemas],
            )
            if not found:
                raise PostgresError("42704", f'constraint "{name.relname}" does not exist')
            if not any(deferrable for _, deferrable in found):
                raise PostgresError("42809", f'constraint "{name.relname}" is not deferrable')
            chosen |= {oid for oid, deferrable in found if deferrable}
        transaction.constraint_modes |= dict.fromkeys(chosen, node.deferred)
    if not node.deferred:
        transaction.check_now(lambda key: not node.constraints or (isinstance(key, tuple) and key[0] in chosen))
    return CommandResult("SET CONSTRAINTS")
