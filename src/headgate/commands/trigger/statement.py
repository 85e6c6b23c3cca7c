"""Fire the triggers of a statement: statement triggers around it, and AFTER row triggers after it has written all its rows.

`commands.dml` uses `firing_triggers` for each statement that changes rows. AFTER triggers wait in `Planner.triggers`. A
statement has one `Firing` for each table (`of_statement`), which collects the rows of transition tables.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from headgate.catalog.relation.relation import Relation
from headgate.commands import disclosure
from headgate.commands.disclosure import RowShown
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.commands.trigger.firing import Firing, References
from headgate.commands.trigger.routed_firing import RoutedFiring


def of_statement(planner: Planner, relation: Relation) -> Firing | RoutedFiring | None:
    """Return the triggers of a table that fire in a statement, or None. A statement always gets the same object for a table."""
    firings = planner.triggers.firings
    if relation.oid not in firings:
        shown = functools.partial(disclosure.of_row, planner)
        firings[relation.oid] = firing_of(planner.session, relation.alone, collects=True, shown=shown)
    firing: Firing | RoutedFiring | None = firings[relation.oid]
    return firing


def firing_of(
    session: Session, relation: Relation, *, collects: bool = False,
    references: Callable[[Relation], References | None] = lambda _: None,
    shown: Callable[[Relation], RowShown] = disclosure.whole_row,
) -> Firing | RoutedFiring | None:  # fmt: skip
    """Return the triggers of a table that fire in a session; None if there are none. For the other arguments see `RoutedFiring`."""
    firing: Firing | RoutedFiring
    if relation.is_partitioned:
        table = session.begin_statement().partitioned(relation)
        if not relation.has_triggers and not any(leaf.has_triggers for leaf in table.leaves):
            return None
        firing = RoutedFiring(session, table, collects=collects, references=references, shown=shown)
    elif relation.has_triggers:
        firing = Firing(session, relation, collects=collects, references=references(relation))
    else:
        return None
    return firing if firing.fires else None


@contextlib.contextmanager
def firing_triggers(planner: Planner, relation: Relation, *events: tuple[int, set[str] | None]) -> Iterator[None]:
    """Fire the statement triggers around a statement that changes rows of a table, and the AFTER triggers after its rows.

    A statement in WITH leaves AFTER triggers and checks of foreign keys for the end of the whole statement.
    `events`: bits of tgtype, with the columns that an UPDATE sets.
    """
    if planner.describing:
        yield
        return
    state, firing = planner.triggers, of_statement(planner, relation)
    planner.evaluation.changed = relation
    with _using(planner.session, relation), state.statement() as is_part:
        for event, columns in events:
            if firing is not None and (relation.oid, event) not in state.begun:
                firing.statement(event, before=True, columns=columns)
        state.begun |= {(relation.oid, event) for event, _ in events}
        with planner.session.deferral.postponing(state.later if is_part else None):
            yield
        for event, columns in reversed(events):
            state.at_end(relation.oid, event, columns)
        state.end_actions()


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
    if acted_on is not None and (relation.oid, event) not in planner.triggers.begun:
        planner.triggers.begun.add((relation.oid, event))
        planner.triggers.acted_on[relation.oid, event] = columns
        acted_on.statement(event, before=True, columns=columns)
