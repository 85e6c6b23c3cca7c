"""nextval, currval, lastval and setval (manual, 9.17).

As in PostgreSQL a value that was taken is not given back when the transaction rolls back, and setval is not undone either.
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
from headgate.errors import PostgresError

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession


class SequenceFunctions:
    """Those of one session; a base of the session's functions."""

    node: Node
    session: ClientSession

    def _sequence(self, oid: int, *rights: str) -> tuple[Cursor, Relation]:
        """The sequence of this oid, on which the user has one of the rights."""
        context, cursor = self.session.context, self.session.begin_statement().cursor
        found = relations.find(cursor, context.database, int(oid))
        if found is None:
            raise PostgresError("42P01", f"relation with OID {oid} does not exist")
        if found.kind != RelationKind.SEQUENCE:
            raise PostgresError("42809", f'"{found.name}" is not a sequence')
        if not any(privilege.may_on_table(cursor, context.user, context.database, found.oid, right) for right in rights):
            raise PostgresError("42501", f"permission denied for sequence {found.name}")
        return cursor, found

    def _there(self, oid: int) -> bool:
        context = self.session.context
        return relations.find(self.session.begin_statement().cursor, context.database, oid) is not None

    def fn_nextval(self, regclass: int) -> int:
        """The next value of a sequence."""
        cursor, found = self._sequence(regclass, "USAGE", "UPDATE")
        read_only.check_function("nextval", found, read_only=self.session.read_only)
        value, _ = sequences.take(self.node.catalog.change, cursor, found.database, found.oid, 1)
        self.session.context.sequence_values[found.oid] = value
        self.session.context.last_sequence = found.oid
        return value

    def fn_currval(self, regclass: int) -> int:
        """The value that nextval gave last in this session."""
        _, found = self._sequence(regclass, "USAGE", "SELECT")
        values = self.session.context.sequence_values
        if found.oid not in values:
            raise PostgresError("55000", f'currval of sequence "{found.name}" is not yet defined in this session')
        return int(values[found.oid])

    def fn_lastval(self) -> int:
        """The value that nextval gave last in this session, of whichever sequence."""
        context = self.session.context
        if context.last_sequence == 0 or not self._there(context.last_sequence):
            raise PostgresError("55000", "lastval is not yet defined in this session")
        self._sequence(context.last_sequence, "USAGE", "SELECT")
        return int(context.sequence_values[context.last_sequence])

    def fn_setval(self, regclass: int, value: int, is_called: bool = True) -> int:
        """Sets where a sequence stands."""
        cursor, found = self._sequence(regclass, "UPDATE")
        read_only.check_function("setval", found, read_only=self.session.read_only)
        bounds = one(cursor, "SELECT seqmin, seqmax FROM hg.pg_sequence WHERE dbid = ? AND seqrelid = ?", [found.database, found.oid])
        assert bounds is not None
        if not bounds[0] <= value <= bounds[1]:
            raise PostgresError("22003", f'setval: value {value} is out of bounds for sequence "{found.name}" ({bounds[0]}..{bounds[1]})')

        def write(writer: Cursor) -> bool:
            scope = [found.database, found.oid]
            known = one(writer, "SELECT 1 FROM hg.sequence_state WHERE dbid = ? AND seqrelid = ?", scope)
            run(writer, "UPDATE hg.sequence_state SET last_value = ?, is_called = ? WHERE dbid = ? AND seqrelid = ?", [
                value, bool(is_called), *scope])  # fmt: skip
            return known is not None

        try:
            done = self.node.catalog.change(write)
        except PostgresError as error:
            if error.sqlstate != "40001":
                raise
            done = False  # this transaction has changed the sequence itself
        if not done:
            write(cursor)
        if is_called:
            self.session.context.sequence_values[found.oid] = value
        return value
