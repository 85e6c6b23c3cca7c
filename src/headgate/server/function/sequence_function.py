"""nextval, currval, lastval and setval (manual, 9.17).

As in PostgreSQL, a rollback does not return values to the sequence and does not undo setval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor, one, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.commands.transaction import read_only
from headgate.errors import PostgresError, existing

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


def _sequence(session: ClientSession, oid: int, *rights: str) -> tuple[Cursor, Relation]:
    """Return the sequence of this OID. Raise 42P01 or 42809 if it is not one, 42501 if the user has none of the privileges `rights`."""
    context, cursor = session.context, session.begin_statement().cursor
    sequence = existing(relations.find(cursor, context.database, int(oid)), "42P01", f"relation with OID {oid}")
    if sequence.kind != RelationKind.SEQUENCE:
        raise PostgresError("42809", f'"{sequence.name}" is not a sequence')
    if not any(privilege.may_on_table(cursor, context.user, context.database, sequence.oid, right) for right in rights):
        raise PostgresError("42501", f"permission denied for sequence {sequence.name}")
    return cursor, sequence


def _there(session: ClientSession, oid: int) -> bool:
    context = session.context
    return relations.find(session.begin_statement().cursor, context.database, oid) is not None


def nextval(session: ClientSession, regclass: int) -> int:
    cursor, sequence = _sequence(session, regclass, "USAGE", "UPDATE")
    read_only.check_function("nextval", sequence, read_only=session.read_only)
    value = sequences.take(session.node.catalog.change, cursor, sequence.database, sequence.oid, 1).value(0)
    session.context.sequence_values[sequence.oid] = value
    session.context.last_sequence = sequence.oid
    return value


def currval(session: ClientSession, regclass: int) -> int:
    """Return the last value of nextval for this sequence in this session. Raise 55000 if there is none."""
    _, sequence = _sequence(session, regclass, "USAGE", "SELECT")
    values = session.context.sequence_values
    if sequence.oid not in values:
        raise PostgresError("55000", f'currval of sequence "{sequence.name}" is not yet defined in this session')
    return int(values[sequence.oid])


def lastval(session: ClientSession) -> int:
    """Return the last value of nextval in this session, for any sequence. Raise 55000 if there is none."""
    context = session.context
    if context.last_sequence == 0 or not _there(session, context.last_sequence):
        raise PostgresError("55000", "lastval is not yet defined in this session")
    _sequence(session, context.last_sequence, "USAGE", "SELECT")
    return int(context.sequence_values[context.last_sequence])


def setval(session: ClientSession, regclass: int, value: int, is_called: bool = True) -> int:
    """Set the value of a sequence. Raise 22003 if it is out of bounds."""
    cursor, sequence = _sequence(session, regclass, "UPDATE")
    read_only.check_function("setval", sequence, read_only=session.read_only)
    bounds = one(cursor, "SELECT seqmin, seqmax FROM hg.pg_sequence WHERE dbid = ? AND seqrelid = ?", [sequence.database, sequence.oid])
    assert bounds is not None
    if not bounds[0] <= value <= bounds[1]:
        raise PostgresError("22003", f'setval: value {value} is out of bounds for sequence "{sequence.name}" ({bounds[0]}..{bounds[1]})')

    def write(writer: Cursor) -> bool:
        scope = [sequence.database, sequence.oid]
        row = one(writer, "SELECT 1 FROM hg.sequence_state WHERE dbid = ? AND seqrelid = ?", scope)
        run(writer, "UPDATE hg.sequence_state SET last_value = ?, is_called = ? WHERE dbid = ? AND seqrelid = ?", [
            value, bool(is_called), *scope])  # fmt: skip
        return row is not None

    try:
        is_written = session.node.catalog.change(write)
    except PostgresError as error:
        if error.sqlstate != "40001":
            raise
        is_written = False  # this transaction has changed the sequence itself
    if not is_written:
        write(cursor)
    if is_called:
        session.context.sequence_values[sequence.oid] = value
    return value
