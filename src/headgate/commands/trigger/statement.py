"""Fire the triggers of a statement: statement triggers around it, and AFTER row triggers after it has written all its rows.

`commands.dml` uses `firing_triggers` for each statement that changes rows. AFTER triggers wait in the planner. A statement has one `Firing`
for each table (`of_statement`), which collects the rows of transition tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from headgate.catalog.relation.relation import Relation
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.commands.trigger.firing import Firing, References
from headgate.commands.trigger.routed_firing import RoutedFiring


def of_statement(planner: Planner, relation: Relation) -> Firing | RoutedFiring | None:
    """Return the triggers of a table that fire in a statement, or None. A statement always gets the same object for a table."""
    if relation.oid not in planner.firings:
        planner.firings[relation.oid] = firing_of(planner.session, relation.alone, collects=True)
    firing: Firing | RoutedFiring | None = planner.firings[relation.oid]
    return firing


def firing_of(
    session: Session, relation: Relation, *, collects: bool = False, references: Callable[[Relation], References | None] = lambda _: None
) -> Firing | RoutedFiring | None:
    """Return the triggers of a table that fire in a session; None if there are none. `collects`, `references`: see `Firing`."""
    firing: Firing | RoutedFiring
    if relation.is_partitioned:
        table = session.begin_statement().partitioned(relation)
        if not relation.has_triggers and not any(leaf.has_triggers for leaf in table.leaves):
            return None
        firing = RoutedFiring(session, table, collects=collects, references=references)
    elif relation.has_triggers:
        firing = Firing(session, relation, collects=collects, references=references(relation))
    else:
        return None
    return firing if firing.fires else None


@contextlib.contextmanager
def firing_triggers(planner: Planner, relation: Relation, *events: tuple[int, set[str] | None]) -> Iterator[None]:
    """Fire the statement triggers around a statement that changes rows of a table, and the AFTER triggers after its rows.

    `events`: bits of tgtype, with the columns that an UPDATE sets.
    """
    if planner.describing:
        yield
        return
    firing = of_statement(planner, relation)
    own, before = {(relation.oid, event): columns for event, columns in events}, set(planner.changed_by_actions)
    planner.evaluation.changed = relation
    with contextlib.nullcontext() if firing is None else contextlib.closing(firing), _using(planner.session, relation):
        if firing is not None:
            for event, columns in events:
                firing.statement(event, before=True, columns=columns)
        planner.changed_by_actions |= own
        outermost = not planner.fires_later and not planner.is_firing
        yield
        if outermost:
            planner.is_firing = True
            try:
                while planner.fires_later:
                    planner.fires_later.pop(0)()
            finally:
                planner.is_firing = False
        if firing is not None:
            for event, columns in reversed(events):
                firing.statement(event, before=False, columns=columns)
        for key in [key for key in planner.changed_by_actions if key not in before and key not in own]:
            with contextlib.closing(planner.firings[key[0]]) as acted_on:
                acted_on.statement(key[1], before=False, columns=planner.changed_by_actions[key])


@contextlib.contextmanager
def _using(session: Session, relation: Relation) -> Iterator[None]:
    """Mark a table as used by a statement, so that the statements of triggers cannot alter it."""
    tables_in_use = session.deferral.tables_in_use
    tables_in_use.append(relation.oid)
    try:
        yield
    finally:
        tables_in_use.pop()


def change_by_action(planner: Planner, relation: Relation, event: int, columns: set[str] | None = None) -> None:
    """Fire the BEFORE STATEMENT triggers of a table that ON DELETE or ON UPDATE is about to change.

    As in PostgreSQL they fire once for the statement that changes the referenced table. Its end fires the AFTER STATEMENT triggers.
    """
    acted_on = of_statement(planner, relation)
    if acted_on is not None and (relation.oid, event) not in planner.changed_by_actions:
        planner.changed_by_actions[relation.oid, event] = columns
        acted_on.statement(event, before=True, columns=columns)
