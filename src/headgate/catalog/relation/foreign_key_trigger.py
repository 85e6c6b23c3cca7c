"""The internal triggers of foreign keys: rows of pg_trigger with tgisinternal (tablecmds.c: createForeignKeyActionTriggers).

Written by `foreign_key`. They have no function to call: `commands.constraint.referential_action` reads only their tgenabled, which
`relation` loads into `ForeignKey.enabled`.

    on the referenced table     RI_ConstraintTrigger_a_<oid>    DELETE and UPDATE: the actions
    on the referencing table    RI_ConstraintTrigger_c_<oid>    INSERT and UPDATE: the checks

The triggers of a partition's constraint have those of the partitioned table's constraint as parents.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.catalog.physical import Cursor, Oids, delete, insert_all, rows, update
from headgate.catalog.relation.relation import CHECK_FUNCTIONS, ForeignKey
from headgate.catalog.relation.trigger import DELETE, INSERT, ROW, UPDATE

_ACTIONS = {"a": 1654, "r": 1648, "c": 1646, "n": 1650, "d": 1652}
"""The function for DELETE of each action, RI_FKey_noaction_del and others. That for UPDATE follows it."""
_DEFERRABLE = (*CHECK_FUNCTIONS, _ACTIONS["a"], _ACTIONS["a"] + 1)
"""The functions of the triggers that are deferrable if their constraint is: checks and NO ACTION."""


def create_actions(cursor: Cursor, oids: Oids, database: int, key: ForeignKey) -> None:
    """Create the triggers of the referenced table."""
    functions = ((DELETE, _ACTIONS[key.on_delete]), (UPDATE, _ACTIONS[key.on_update] + 1))
    insert_all(cursor, "pg_trigger", [_row(cursor, oids(), database, key, event, function) for event, function in functions])


def create_checks(cursor: Cursor, oids: Oids, database: int, key: ForeignKey) -> None:
    """Create the triggers of the referencing table."""
    functions = zip((INSERT, UPDATE), CHECK_FUNCTIONS, strict=True)
    insert_all(cursor, "pg_trigger", [_row(cursor, oids(), database, key, event, function) for event, function in functions])


def _row(cursor: Cursor, oid: int, database: int, key: ForeignKey, event: int, function: int) -> dict[str, object]:
    is_deferrable = function in _DEFERRABLE
    letter, table, other = ("c", key.relation, key.target) if function in CHECK_FUNCTIONS else ("a", key.target, key.relation)
    return {
        "dbid": database, "oid": oid, "tgrelid": table, "tgparentid": _of_function(cursor, database, key.parent, function),
        "tgname": f"RI_ConstraintTrigger_{letter}_{oid}", "tgfoid": function, "tgtype": ROW | event, "tgenabled": "O",
        "tgisinternal": True, "tgconstrrelid": other, "tgconstrindid": key.index, "tgconstraint": key.oid,
        "tgdeferrable": key.deferrable and is_deferrable, "tginitdeferred": key.deferred and is_deferrable, "tgnargs": 0, "tgattr": [],
        "tgargs": b"", "tgargstext": "",
    }  # fmt: skip


def _of_function(cursor: Cursor, database: int, constraint: int, function: int) -> int:
    """Return the trigger of a constraint (oid, or 0 for none) that has this function, or 0."""
    triggers = _triggers(cursor, database, constraint) if constraint else []
    return next((oid for oid, trigger_function in triggers if trigger_function == function), 0)


def attach(cursor: Cursor, database: int, constraint: int, parent: int) -> None:
    """Make the triggers of a partition's own constraint those of a clone of `parent`, which has the actions."""
    for oid, function in _triggers(cursor, database, constraint):
        if function in CHECK_FUNCTIONS:
            update(cursor, "pg_trigger", {"dbid": database, "oid": oid}, tgparentid=_of_function(cursor, database, parent, function))
        else:
            delete(cursor, "pg_trigger", dbid=database, oid=oid)


def detach(cursor: Cursor, oids: Oids, database: int, key: ForeignKey) -> None:
    """Make the triggers of a clone those of a constraint of its own."""
    for oid, _ in _triggers(cursor, database, key.oid):
        update(cursor, "pg_trigger", {"dbid": database, "oid": oid}, tgparentid=0)
    create_actions(cursor, oids, database, replace(key, parent=0))


def set_deferrable(cursor: Cursor, database: int, oid: int, *, deferrable: bool, deferred: bool) -> None:
    """Set whether the triggers of a constraint (oid) are deferrable."""
    for trigger, function in _triggers(cursor, database, oid):
        if function in _DEFERRABLE:
            update(cursor, "pg_trigger", {"dbid": database, "oid": trigger}, tgdeferrable=deferrable, tginitdeferred=deferred)


def _triggers(cursor: Cursor, database: int, constraint: int) -> list[tuple[int, int]]:
    """Return the oids of the triggers of a constraint, each with that of its function."""
    sql = "SELECT oid, tgfoid FROM hg.pg_trigger WHERE dbid = ? AND tgconstraint = ? AND tgisinternal ORDER BY oid"
    return [(oid, function) for oid, function in rows(cursor, sql, [database, constraint])]
