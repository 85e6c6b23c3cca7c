"""ALTER SEQUENCE.

Called by `execute` for AlterSeqStmt, and by `table.identity_column` for the sequence of an identity column. Its numbers are kept as
`sequence.bounds` reads them; what ALTER does not name stays (init_params in sequence.c).
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.physical import Cursor, one, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.sequence import sequence
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing
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
        use_owner(cursor, session, names.strings(owner.arg.list.items))
    change(cursor, relation, [option for option in node.options if option.def_elem.defname != "owned_by"])
    for owner in owners:
        own(cursor, session, relation, names.strings(owner.arg.list.items))
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


def use_owner(cursor: Cursor, session: Session, parts: Sequence[str]) -> None:
    """Protect the table that OWNED BY names, if it exists, from DROP and changes until the transaction ends."""
    schema = parts[-3] if len(parts) > 2 else None
    path = lookup.search_path(cursor, session.context)
    table = relations.lookup(cursor, session.context.database, schema, parts[-2], path) if len(parts) > 1 else None
    if table is not None:
        hold.use(cursor, "pg_class", table.oid)


def own(cursor: Cursor, session: Session, relation: Relation, parts: Sequence[str]) -> None:
    """OWNED BY t.c, or NONE (process_owned_by)."""
    if list(parts) == ["none"]:
        _disown(cursor, relation)
        return
    if len(parts) < 2:
        raise PostgresError("42601", "invalid OWNED BY option", hint="Specify OWNED BY table.column or OWNED BY NONE.")
    *path, column_name = parts
    schema = path[-2] if len(path) > 1 else None
    found = relations.lookup(cursor, relation.database, schema, path[-1], lookup.search_path(cursor, session.context))
    table = existing(found, "42P01", f'relation "{".".join(path)}"')
    if table.kind not in TABLE_KINDS | {RelationKind.VIEW, RelationKind.FOREIGN_TABLE}:
        raise PostgresError("42809", f'sequence cannot be owned by relation "{table.name}"')
    if table.owner != relation.owner:
        raise PostgresError("55000", "sequence must have same owner as table it is linked to")
    if table.namespace_oid != relation.namespace_oid:
        raise PostgresError("55000", "sequence must be in same schema as table it is linked to")
    column = table.existing_column(column_name)
    _disown(cursor, relation)
    sequence.own(cursor, relation.database, relation.oid, table.oid, column.attnum, identity=False)


def _disown(cursor: Cursor, relation: Relation) -> None:
    scope = "dbid = ? AND classid = 1259 AND objid = ? AND refclassid = 1259"
    table = one(cursor, f"SELECT refobjid FROM hg.pg_depend WHERE {scope} AND deptype = 'i'", [relation.database, relation.oid])
    if table is not None:
        name = relations.get(cursor, relation.database, int(table[0])).name
        detail = f'Sequence "{relation.name}" is linked to table "{name}".'
        raise PostgresError("0A000", "cannot change ownership of identity sequence", detail=detail)
    run(cursor, f"DELETE FROM hg.pg_depend WHERE {scope} AND deptype = 'a'", [relation.database, relation.oid])
