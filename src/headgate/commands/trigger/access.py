"""Determine which tables the functions of triggers read, into which they insert rows, and which they change otherwise.

`firing` uses it to decide whether the triggers can fire for all rows of a statement after all of them are written. A row trigger reads only
OLD and NEW and inserts rows into other tables, which are written together, or it reads and changes other tables, row by row. Anything else
is unknown (None), and such triggers fire after each row is written.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

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


@dataclass(frozen=True)
class Access:
    """The tables that triggers use. The rows of `inserted` are written together, those of `changed` by one call after the other."""

    read: frozenset[int] = frozenset()
    inserted: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()

    @property
    def all(self) -> frozenset[int]:
        return self.read | self.inserted | self.changed

    def __or__(self, other: Access) -> Access:
        return Access(self.read | other.read, self.inserted | other.inserted, self.changed | other.changed)


class TriggerAccess:
    """The tables that the triggers of one table use."""

    def __init__(self, calls: TriggerCalls) -> None:
        """Create the object. The functions are examined when they are first needed."""
        self._session, self._relation, self._calls = calls.session, calls.relation, calls
        self._known: dict[int, tuple[Access | None, Access | None]] = {}

    def of_event(self, table_triggers: Sequence[Trigger], event: int) -> Access | None:
        """Return the tables that the row triggers of an event use, or None if they are unknown or the order of the triggers counts.

        The BEFORE triggers of all rows are called before the AFTER triggers of all rows.
        """
        before, after = Access(), Access()
        for trigger in table_triggers:
            if not trigger.kind & event or not trigger.is_row:
                continue
            inserts, uses = self._of(trigger)
            access = inserts or uses
            if access is None:
                return None
            if trigger.kind & triggers.BEFORE:
                before |= access
            else:
                after |= access
        return None if before.changed & after.all or after.changed & before.all else before | after

    def reads_rows_only(self, trigger: Trigger) -> bool:
        """Return whether a trigger reads only OLD and NEW, and at most inserts rows into tables without triggers."""
        return self._of(trigger)[0] is not None

    def _of(self, trigger: Trigger) -> tuple[Access | None, Access | None]:
        """Return the tables into which a trigger inserts rows, if it does nothing else. Otherwise return those that it uses, if known."""
        known = self._known.get(trigger.oid)
        if known is None:
            inserted = self._inserted(trigger)
            known = self._known[trigger.oid] = inserted, self._used(trigger) if inserted is None else None
        return known

    def _inserted(self, trigger: Trigger) -> Access | None:
        function, function_body, _ = self._calls.function(trigger)
        inserts = function_body.inserts
        if inserts and function.volatility != "v":
            return None  # the call for the first row raises the error
        relations = None if inserts is None else self._relations(trigger, [statement.relation for statement in inserts])
        if relations is None or not all(map(self._takes_rows, relations)):
            return None
        return Access(inserted=frozenset(relation.oid for relation in relations))

    def _used(self, trigger: Trigger) -> Access | None:
        uses = self._calls.function(trigger)[1].uses
        relations = None if uses is None else self._relations(trigger, [*uses.changed, *uses.read])
        if uses is None or relations is None or not all(map(self._is_elsewhere, relations)):
            return None
        changed, read = relations[: len(uses.changed)], relations[len(uses.changed) :]
        if not all(map(self._is_alone, changed)):
            return None
        return Access(read=frozenset(relation.oid for relation in read), changed=frozenset(relation.oid for relation in changed))

    def _relations(self, trigger: Trigger, nodes: Sequence[pb.RangeVar]) -> list[Relation] | None:
        """Return the relations that a trigger's function names, or None if it names its own table, or its WHEN reads tables."""
        if trigger.condition is not None and not reach.is_plain(trigger.condition):
            return None
        relations = []
        with function_call.acting(self._calls.function(trigger)[0], self._session) if nodes else contextlib.nullcontext():
            for node in nodes:
                target = lookup.find(self._session.begin_statement().cursor, self._session.context, node)
                if target is None or target.oid == self._relation.oid:
                    return None
                relations.append(target)
        return relations

    def _is_elsewhere(self, target: Relation) -> bool:
        """Return whether the rows of a relation do not depend on those of other tables: a plain table without policies."""
        is_plain = target.kind == RelationKind.TABLE and target.oid >= registry.FIRST_USER_OID
        return is_plain and not target.parent and not target.has_children and not target.row_security

    def _is_alone(self, target: Relation) -> bool:
        """Return whether a change of a table changes no other one: it has no triggers that fire and no foreign keys."""
        return not target.foreign_keys and not target.referenced and not any_fires(self._session, target)

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
    """Return whether the triggers with these accesses may fire for the rows of one access after those of another.

    None of them reads or changes a table into which one of them inserts rows, or one that another access changes.
    """
    known = [access for access in accesses if access is not None]
    every = functools.reduce(Access.__or__, known, Access())
    shared = any(one.changed & other.all for one, other in itertools.permutations(known, 2))
    return len(known) == len(accesses) and not shared and not every.inserted & (every.read | every.changed)


def all_used(accesses: Sequence[Access | None]) -> set[int] | None:
    """Return the tables of all accesses, or None if one is unknown."""
    known = [access for access in accesses if access is not None]
    return set(functools.reduce(Access.__or__, known, Access()).all) if len(known) == len(accesses) else None
