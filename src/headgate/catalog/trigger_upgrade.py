"""Create the internal triggers of foreign keys in a catalog of format 4, which has none (`relation.foreign_key_trigger`).

Called by `upgrade`.
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, one, run

_TRIGGERS = """
WITH key AS (
    SELECT * FROM hg.pg_constraint c WHERE contype = 'f'
    AND NOT EXISTS (SELECT 1 FROM hg.pg_trigger t WHERE t.dbid = c.dbid AND t.tgconstraint = c.oid AND t.tgisinternal)
), event AS (
    SELECT dbid, oid AS key, 'c' AS side, unnest([1644, 1645]) AS function, unnest([5, 17]) AS type FROM key
    UNION ALL
    SELECT dbid, oid, 'a', unnest([list_extract([1654, 1648, 1646, 1650, 1652], instr('arcnd', confdeltype)),
        list_extract([1655, 1649, 1647, 1651, 1653], instr('arcnd', confupdtype))]), unnest([9, 17])
    FROM key WHERE conparentid = 0
), numbered AS (
    SELECT *, function IN (1644, 1645, 1654, 1655) AS is_deferrable, ? - 1 + row_number() OVER (ORDER BY dbid, event.key, side, type) AS oid
    FROM event
)
INSERT INTO hg.pg_trigger BY NAME
SELECT key.dbid, n.oid, CASE side WHEN 'c' THEN conrelid ELSE confrelid END AS tgrelid, 0 AS tgparentid,
    'RI_ConstraintTrigger_' || side || '_' || n.oid AS tgname, n.function AS tgfoid, n.type AS tgtype, 'O' AS tgenabled,
    true AS tgisinternal, CASE side WHEN 'c' THEN confrelid ELSE conrelid END AS tgconstrrelid, conindid AS tgconstrindid,
    key.oid AS tgconstraint, condeferrable AND is_deferrable AS tgdeferrable, condeferred AND is_deferrable AS tginitdeferred,
    0 AS tgnargs, []::SMALLINT[] AS tgattr, ''::BLOB AS tgargs, '' AS tgargstext
FROM numbered n JOIN key ON key.dbid = n.dbid AND key.oid = n.key
"""
_PARENTS = """
UPDATE hg.pg_trigger t SET tgparentid = parent.oid
FROM hg.pg_constraint key, hg.pg_trigger parent
WHERE t.tgisinternal AND key.dbid = t.dbid AND key.oid = t.tgconstraint AND parent.dbid = t.dbid
    AND parent.tgconstraint = key.conparentid AND parent.tgfoid = t.tgfoid
"""


def create_triggers(cursor: Cursor) -> None:
    """Create two triggers for the checks of each foreign key, and two for its actions, which the key of a partition does not have."""
    row = one(cursor, "SELECT value FROM hg.counter WHERE name = 'oid'")
    assert row is not None
    [(created,)] = run(cursor, _TRIGGERS, row).fetchall()
    run(cursor, "UPDATE hg.counter SET value = value + ? WHERE name = 'oid'", [created])
    run(cursor, _PARENTS)
