"""Determine which tables the functions of triggers read, and into which tables they insert rows.

`firing` uses it to decide whether the triggers can fire for all rows of a statement at once. Row triggers read only OLD and NEW, insert
rows into other tables, or read other tables. Anything else is unknown (None), and such triggers fire row by row.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import lookup
from headgate.commands.function import call as function_call
from headgate.commands.session import Session
from headgate.commands.trigger.call import TriggerCalls
from headgate.plpgsql import reach
from headgate.types import registry

Access = tuple[set[int], set[int]]
"""The tables that triggers read, and those into which they insert rows."""


class TriggerAccess:
    """The tables that the triggers of one table use."""

    def __init__(self, calls: TriggerCalls) -> None:
        """Create the object. The functions are examined when they are first needed."""
        self._session, self._relation, self._calls = calls.session, calls.relation, calls
        self._known_tables: dict[tuple[int, bool], set[int] | None] = {}

    def of_event(self, table_triggers: Sequence[Trigger], event: int) -> Access | None:
        """Return the tables that the row triggers of an event use, or None if they are unknown."""
        read, inserted = set[int](), set[int]()
        for trigger in table_triggers:
            if not trigger.kind & event or not trigger.is_row:
                continue
            tables = self._inserted(trigger)
            if tables is not None:
                inserted |= tables
            elif (tables := self._read(trigger)) is not None:
                read |= tables
            else:
                return None
        return read, inserted

    def reads_rows_only(self, trigger: Trigger) -> bool:
        """Return whether a trigger reads only OLD and NEW, and at most inserts rows into tables without triggers."""
        return self._inserted(trigger) is not None

    def _inserted(self, trigger: Trigger) -> set[int] | None:
        """Return the tables into which a trigger inserts rows that may be written together, or None if it does anything else."""
        return self._tables_of(trigger, reads=False)

    def _read(self, trigger: Trigger) -> set[int] | None:
        """Return the tables that a trigger reads, or None if it does anything else, or may see the rows of its own table."""
        return self._tables_of(trigger, reads=True)

    def _tables_of(self, trigger: Trigger, *, reads: bool) -> set[int] | None:
        key = trigger.oid, reads
        if key not in self._known_tables:
            self._known_tables[key] = self._found_tables(trigger, reads=reads)
        return self._known_tables[key]

    def _found_tables(self, trigger: Trigger, *, reads: bool) -> set[int] | None:
        function, function_body, _ = self._calls.function(trigger)
        inserts = function_body.inserts
        nodes = function_body.reads if reads else None if inserts is None else [statement.relation for statement in inserts]
        if nodes is None or (trigger.condition is not None and not reach.is_plain(trigger.condition)):
            return None
        tables, is_allowed = set[int](), self._is_elsewhere if reads else self._takes_rows
        with function_call.acting(function, self._session) if nodes else contextlib.nullcontext():
            for node in nodes:
                target = lookup.find(self._session.begin_statement().cursor, self._session.context, node)
                if target is None or target.oid == self._relation.oid or not is_allowed(target):
                    return None
                tables.add(target.oid)
        return tables

    def _is_elsewhere(self, target: Relation) -> bool:
        """Return whether the rows of a relation do not depend on those of other tables: a plain table without policies."""
        is_plain = target.kind == RelationKind.TABLE and target.oid >= registry.FIRST_USER_OID
        return is_plain and not target.parent and not target.has_children and not target.row_security

    def _takes_rows(self, target: Relation) -> bool:
        """Return whether rows can be inserted into a table together and later, with the same result as inserting them one by one."""
        is_table = target.kind in (RelationKind.TABLE, RelationKind.PARTITIONED_TABLE)
        return is_table and not any_fires(self._session, target)


def firing_in(session: Session, relation: Relation) -> list[Trigger]:
    """Return the triggers of a table, without those of its partitions, that fire in a session."""
    if not relation.has_triggers:
        return []
    role = session.settings.text("session_replication_role")
    cursor = session.begin_statement().cursor
    return [trigger for trigger in triggers.of_relation(cursor, relation.database, relation.oid) if trigger.fires(role)]


def any_fires(session: Session, relation: Relation) -> bool:
    """Return whether a trigger of a table, or of one of its partitions, fires in a session."""
    leaves = session.begin_statement().partitioned(relation).leaves if relation.is_partitioned else ()
    return any(firing_in(session, table) for table in (relation, *leaves))


def are_independent(accesses: Sequence[Access | None]) -> bool:
    """Return whether none of the triggers with these accesses reads a table into which one of them inserts rows."""
    known = [access for access in accesses if access is not None]
    read, inserted = (set[int]().union(*tables) for tables in ([reads for reads, _ in known], [inserts for _, inserts in known]))
    return len(known) == len(accesses) and not read & inserted


def all_used(accesses: Sequence[Access | None]) -> set[int] | None:
    """Return the tables of all accesses, or None if one is unknown."""
    known = [access for access in accesses if access is not None]
    return set[int]().union(*itertools.chain.from_iterable(known)) if len(known) == len(accesses) else None
