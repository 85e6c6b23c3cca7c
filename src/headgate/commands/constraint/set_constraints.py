"""SET CONSTRAINTS: decide when the deferrable constraints of the transaction are checked (foreign keys, unique keys, constraint triggers).

The modes are stored in the session's `deferral` until its transaction ends. Outside a transaction block the command warns and has no
effect, because its own transaction ends with it. The names are looked up nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace as namespaces
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.session import SessionContext
from headgate.commands import lookup
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.parser import ParseNode, unwrap


def set_constraints(node: ParseNode, session: Session) -> CommandResult:
    """Run SET CONSTRAINTS { ALL | c, … } { DEFERRED | IMMEDIATE }. IMMEDIATE runs the waiting checks at once."""
    transaction = session.begin_command()
    if not session.in_block:
        session.notices.warning("SET CONSTRAINTS can only be used in transaction blocks", sqlstate="25P01")
    if node.constraints:
        chosen: set[int] = set()
        for item in node.constraints:
            chosen |= _constraints_of_name(transaction.cursor, session.context, unwrap(item), deferred=node.deferred)
        session.deferral.set_some(chosen, deferred=node.deferred)
    else:
        session.deferral.set_all(deferred=node.deferred)
    if not node.deferred:
        session.deferral.check()
    return CommandResult("SET CONSTRAINTS")


def _constraints_of_name(cursor: Cursor, context: SessionContext, name: pb.RangeVar, *, deferred: bool) -> set[int]:
    """Return the oids of the deferrable constraints of a name, and of their clones on partitions.

    They are in the first schema of the search path that has the name. A constraint that is not deferrable is rejected only with DEFERRED
    (AfterTriggerSetState).
    """
    lookup.check_database(name, context)
    for schema in [name.schemaname] if name.schemaname else ["pg_catalog", *lookup.search_path(cursor, context)]:
        constraints = rows(
            cursor,
            "SELECT oid, condeferrable FROM hg.pg_constraint WHERE dbid IN (0, ?) AND conname = ? AND connamespace = ?"
            " UNION ALL SELECT t.oid, t.tgdeferrable FROM hg.pg_trigger t JOIN hg.pg_class c ON c.dbid = t.dbid AND c.oid = t.tgrelid"
            " WHERE t.tgconstraint <> 0 AND NOT t.tgisinternal AND t.dbid = ? AND t.tgname = ? AND c.relnamespace = ?",
            2 * [context.database, name.relname, namespaces.get(cursor, context.database, schema).oid],
        )
        if deferred and not all(deferrable for _, deferrable in constraints):
            raise PostgresError("42809", f'constraint "{name.relname}" is not deferrable')
        if constraints:
            return _with_partitions(cursor, context.database, {oid for oid, deferrable in constraints if deferrable})
    raise PostgresError("42704", f'constraint "{name.relname}" does not exist')


def _with_partitions(cursor: Cursor, database: int, constraints: Iterable[int]) -> set[int]:
    """Return constraints and constraint triggers together with their clones on partitions."""
    all_oids: set[int] = set()
    more = set(constraints)
    while more:
        all_oids |= more
        marks = ", ".join("?" for _ in more)
        sql = (
            f"SELECT oid FROM hg.pg_constraint WHERE dbid = ? AND conparentid IN ({marks})"
            f" UNION ALL SELECT oid FROM hg.pg_trigger WHERE dbid = ? AND NOT tgisinternal AND tgparentid IN ({marks})"
        )
        clones = rows(cursor, sql, 2 * [database, *more])
        more = {oid for (oid,) in clones} - all_oids
    return all_oids
