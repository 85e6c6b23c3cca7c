"""ALTER SEQUENCE.

Called by `execute` for AlterSeqStmt, and by `table.identity_column` for the sequence of an identity column. Its numbers are kept as
`sequence.bounds` reads them; what ALTER does not name stays (init_params in sequence.c).
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, one, run
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.sequence import sequence, sequence_owner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.options import unique
from headgate.sql.parser import ParseNode


def alter(node: ParseNode, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = lookup.altered(cursor, session, node.sequence, missing_ok=node.missing_ok)
    if relation is None:
        return CommandResult("ALTER SEQUENCE")
    if relation.kind != RelationKind.SEQUENCE:
        raise PostgresError("42809", f'"{relation.name}" is not a sequence')
    privilege.check_owner(cursor, context.user, relation.owner, "sequence", relation.name)
    transaction.catalog.lock_object("pg_class", relation.oid)
    owners = [option.def_elem for option in node.options if option.def_elem.defname == "owned_by"]
    for owner in owners:
        sequence_owner.use_owner(cursor, session, names.strings(owner.arg.list.items))
    change(cursor, relation, [option for option in node.options if option.def_elem.defname != "owned_by"])
    for owner in owners:
        sequence_owner.own_by_name(cursor, session, relation, names.strings(owner.arg.list.items))
    return CommandResult("ALTER SEQUENCE")


def change(cursor: Cursor, relation: Relation, options: Sequence[pb.Node]) -> None:
    by_name = unique([option for option in options if option.def_elem.defname != "as"])
    scope = [relation.database, relation.oid]
    row = one(
        cursor,
        "SELECT s.seqtypid, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcycle, s.seqcache, t.last_value, t.is_called"
        " FROM hg.pg_sequence s JOIN hg.sequence_state t ON t.dbid = s.dbid AND t.seqrelid = s.seqrelid"
        " WHERE s.dbid = ? AND s.seqrelid = ?",
        scope,
    )
    assert row is not None
    kind, start, increment, maximum, minimum, cycle, cache, last, called = row
    typed = next((option.def_elem for option in options if option.def_elem.defname == "as"), None)
    if typed is not None:
        old, kind = kind, names.type_name(typed.arg.type_name)[0]
        if kind not in sequence.LARGEST:
            raise PostgresError("22023", "sequence type must be smallint, integer, or bigint")
        maximum = sequence.LARGEST[kind] if maximum == sequence.LARGEST[old] else maximum
        minimum = -sequence.LARGEST[kind] - 1 if minimum == -sequence.LARGEST[old] - 1 else minimum
    increment, minimum, maximum = sequence.limits(by_name, kind, (increment, minimum, maximum))
    start = by_name["start"].integer() if "start" in by_name else start
    sequence.check_within("START", start, minimum, maximum)
    if "restart" in by_name:
        last, called = (by_name["restart"].integer() if by_name["restart"].node is not None else start), False
    sequence.check_within("RESTART", last, minimum, maximum)
    cycle = by_name["cycle"].boolean() if "cycle" in by_name else cycle
    cache = sequence.cache(by_name, cache)
    run(
        cursor,
        "UPDATE hg.pg_sequence SET seqtypid = ?, seqstart = ?, seqincrement = ?, seqmax = ?, seqmin = ?, seqcycle = ?, seqcache = ?"
        " WHERE dbid = ? AND seqrelid = ?",
        [kind, start, increment, maximum, minimum, cycle, cache, *scope],
    )
    run(cursor, "UPDATE hg.sequence_state SET last_value = ?, is_called = ? WHERE dbid = ? AND seqrelid = ?", [last, called, *scope])
