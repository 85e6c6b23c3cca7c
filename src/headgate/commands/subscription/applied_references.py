"""Check the foreign keys of applied changes whose triggers are enabled as REPLICA or ALWAYS.

`applied_triggers` creates an `AppliedReferences` for each table with such a trigger. `trigger.firing` calls it like an AFTER trigger. As
in PostgreSQL, a worker checks no other foreign keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow as pa

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import ForeignKey, Relation
from headgate.commands.constraint import referential_action
from headgate.commands.constraint.referential_action import NO_ACTION, RESTRICT
from headgate.commands.dml.rows import changed_rows
from headgate.commands.query import rendering
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import Session
from headgate.commands.trigger.access import Access
from headgate.commands.trigger.statement import firing_triggers

ROLE = "replica"
"""session_replication_role of workers."""


def checked(relation: Relation) -> bool:
    """Return whether workers check a foreign key of a table."""
    return any(key.fires_on_update(ROLE) or key.fires_otherwise(ROLE) for key in (*relation.foreign_keys, *relation.referenced))


def of_relation(session: Session, relation: Relation) -> AppliedReferences | None:
    """Return the foreign keys of a table that workers check, or None if there are none."""
    return AppliedReferences(session, relation) if checked(relation) else None


class AppliedReferences:
    """The foreign keys of one table, for the changes that a worker applies."""

    def __init__(self, session: Session, relation: Relation) -> None:
        self._session, self._relation = session, relation

    def accessed(self, event: int) -> Access | None:
        """Return the tables that the checks of an event read, or None if they change tables or read the table itself."""
        relation, used = self._relation, set[int]()
        if event != triggers.DELETE:
            used |= {key.target for key in relation.foreign_keys if self._fires(key, event)}
        for key in relation.referenced if event != triggers.INSERT else ():
            if self._fires(key, event):
                if (key.on_delete if event == triggers.DELETE else key.on_update) not in (NO_ACTION, RESTRICT):
                    return None
                used.add(key.relation)
        return None if relation.oid in used else Access(frozenset(used))

    @staticmethod
    def _fires(key: ForeignKey, event: int) -> bool:
        return key.fires_on_update(ROLE) if event == triggers.UPDATE else key.fires_otherwise(ROLE)

    def checks(self, event: int, old: pa.Table | None, new: pa.Table | None) -> list[Callable[[], None]]:
        """Return the function to call after the rows of an event are written."""
        return [functools.partial(self._check, event, old, new)]

    def _check(self, event: int, old: pa.Table | None, new: pa.Table | None) -> None:
        session, relation = self._session, self._relation
        transaction = session.begin_statement()
        planner = QueryPlanner(session, transaction)
        referential_action.lock(transaction, relation)
        with rendering.running(session, transaction), firing_triggers(planner, relation):
            if event == triggers.INSERT and new is not None:
                referential_action.inserted(session, transaction, relation, new)
                return
            sides = {name: rows.to_struct_array() for name, rows in (("old", old), ("new", new)) if rows is not None}
            changed_rows.check_references(planner, relation, pa.table(sides), deleting=event == triggers.DELETE)
