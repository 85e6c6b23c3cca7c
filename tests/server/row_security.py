"""The matrix of row security: sets of policies, tables, and the statements that `test_row_security` runs on a PostgreSQL and on a node.

Every statement runs as the role `guarded`, in a transaction that is rolled back, under each set of policies and for each table (``{t}``).
"""

from __future__ import annotations

from headgate.catalog.security.policy import DELETE, INSERT, SELECT, UPDATE
from headgate.commands.query.row_security import Clause, Rows, Rule, Statement

FIXTURE = """
CREATE TABLE plain (id int PRIMARY KEY, who text, v int NOT NULL CHECK (v < 1000), UNIQUE (v));
CREATE TABLE parted (id int PRIMARY KEY, who text, v int NOT NULL CHECK (v < 1000)) PARTITION BY RANGE (id);
CREATE TABLE leaf (v int NOT NULL, who text, gone int, id int NOT NULL);
ALTER TABLE leaf DROP COLUMN gone;
ALTER TABLE leaf ADD CONSTRAINT parted_v_check CHECK (v < 1000);
ALTER TABLE parted ATTACH PARTITION leaf FOR VALUES FROM (0) TO (100);
CREATE TABLE leaf_2 PARTITION OF parted FOR VALUES FROM (100) TO (100000);
INSERT INTO plain VALUES (1, 'me', 5), (2, 'other', 6), (3, 'me', 7);
INSERT INTO parted VALUES (1, 'me', 5), (2, 'other', 6), (3, 'me', 7), (101, 'me', 8);
CREATE TABLE single (id int PRIMARY KEY, v int);
INSERT INTO single VALUES (2, 6);
ALTER TABLE single ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON single USING (true);
CREATE TABLE source (id int, who text, v int);
INSERT INTO source VALUES (1, 'me', 15), (2, 'other', 16), (4, 'other', 17), (5, 'me', 18);
CREATE TABLE target (id int, who text, v int);
CREATE TABLE referring (id int REFERENCES plain ON DELETE CASCADE ON UPDATE CASCADE, who text);
INSERT INTO referring VALUES (1, 'other');
ALTER TABLE referring ENABLE ROW LEVEL SECURITY;
CREATE VIEW shown AS SELECT * FROM plain;
CREATE VIEW invoked WITH (security_invoker) AS SELECT * FROM plain;
GRANT ALL ON plain, single, parted, leaf, leaf_2, source, target, shown, invoked TO guarded;
"""
"""The statements with which the superuser creates the objects. `leaf` has its columns in a different order than its root."""

TABLES = {
    "plain": ("plain", "plain"),
    "root": ("parted", "parted"),
    "leaf": ("leaf", "leaf"),
    "root whose leaf hides all": ("parted", "parted", "leaf"),
    "leaf whose root hides all": ("leaf", "leaf", "parted"),
    "root of a leaf with policies": ("parted", "leaf"),
}
"""The table that the statements name, the table that has the policies, and a table with row security and without policies."""

MINE = "(who = 'me')"
_OPEN = {"SELECT": "USING (true)", "INSERT": "WITH CHECK (true)", "UPDATE": "USING (true) WITH CHECK (true)", "DELETE": "USING (true)"}
_NARROW = {
    "SELECT": f"USING {MINE}",
    "INSERT": f"WITH CHECK {MINE}",
    "UPDATE": f"USING {MINE} WITH CHECK (true)",
    "UPDATE check": f"USING (true) WITH CHECK {MINE}",
    "UPDATE using": f"USING {MINE}",
    "DELETE": f"USING {MINE}",
}

POLICIES = {
    "none": [],
    "all": [f"p ON {{t}} USING {MINE}"],
    "no expression": ["p ON {t}", "q ON {t} AS RESTRICTIVE"],
    "restrictive alone": ["p ON {t} AS RESTRICTIVE USING (true)"],
    "another role's": ["p ON {t} TO elsewhere USING (true)"],
    "two permissive": ["p ON {t} USING (id = 2)", f"q ON {{t}} FOR SELECT USING {MINE}"],
    **{
        f"narrow {name}": [
            f"p_{command} ON {{t}} FOR {command} {_NARROW[name] if name.startswith(command) else clause}"
            for command, clause in _OPEN.items()
        ]
        for name in _NARROW
    },
    **{
        f"restrictive {name}": ["p ON {t} USING (true)", f"r ON {{t}} AS RESTRICTIVE FOR {name.split()[0]} {clause}"]
        for name, clause in _NARROW.items()
    },
}
"""The sets of policies of one table. Each policy is the text after CREATE POLICY."""

STATEMENTS = """
SELECT * FROM {t} ORDER BY id
SELECT id FROM {t} ORDER BY id FOR UPDATE
SELECT id FROM {t} WHERE v = 6 FOR SHARE
SELECT count(*) FROM shown
SELECT count(*) FROM invoked
COPY {t} TO STDOUT
COPY {t} FROM STDIN
INSERT INTO {t} VALUES (9, 'me', 9)
INSERT INTO {t} VALUES (9, 'other', 9)
INSERT INTO {t} VALUES (9, NULL, 9)
INSERT INTO {t} (id, who, v) VALUES (9, 'other', 9999)
INSERT INTO {t} VALUES (9, 'other', NULL)
INSERT INTO {t} (id, who, v) VALUES (9, 'other', 9), (9, 'me', 10), (2, 'me', 11)
INSERT INTO {t} VALUES (9, 'me', 9) RETURNING id
INSERT INTO {t} VALUES (9, 'other', 9) RETURNING id
INSERT INTO {t} VALUES (9, 'other', 9) RETURNING *
INSERT INTO {t} VALUES (9, 'other', 9) RETURNING 1
INSERT INTO {t} VALUES (9, 'other', 9) RETURNING (SELECT max(source.v) FROM source)
INSERT INTO {t} VALUES (9, 'other', 9) RETURNING (SELECT max(source.v) FROM source WHERE source.id < {t}.id)
INSERT INTO {t} (id, who, v) SELECT id + 20, who, v FROM source
INSERT INTO {t} (id, who, v) SELECT id + 20, 'me', v FROM source RETURNING id
INSERT INTO {t} (id, who, v) SELECT id + 20, who, v + 20 FROM {t}
INSERT INTO target SELECT * FROM {t}
INSERT INTO target SELECT * FROM shown
INSERT INTO target SELECT * FROM invoked
INSERT INTO {t} (id, who, v) SELECT g, 'other', g FROM generate_series(20, 25) g
WITH n AS (INSERT INTO {t} VALUES (9, 'other', 9) RETURNING *) SELECT count(*) FROM n
INSERT INTO {t} VALUES (9, 'other', 9) ON CONFLICT DO NOTHING
INSERT INTO {t} VALUES (2, 'other', 9) ON CONFLICT DO NOTHING
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT DO NOTHING
INSERT INTO {t} VALUES (2, 'other', 9) ON CONFLICT (id) DO NOTHING
INSERT INTO {t} VALUES (9, 'other', 9) ON CONFLICT (id) DO NOTHING
INSERT INTO {t} VALUES (9, 'me', 9) ON CONFLICT (id) DO UPDATE SET who = 'other'
INSERT INTO {t} VALUES (9, 'other', 9) ON CONFLICT (id) DO UPDATE SET who = 'me'
INSERT INTO {t} VALUES (1, 'me', 9) ON CONFLICT (id) DO UPDATE SET v = excluded.v
INSERT INTO {t} VALUES (1, 'me', 9) ON CONFLICT (id) DO UPDATE SET who = 'other'
INSERT INTO {t} VALUES (1, 'other', 9) ON CONFLICT (id) DO UPDATE SET v = 99
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT (id) DO UPDATE SET v = 99
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT (id) DO UPDATE SET who = excluded.who
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT (id) DO UPDATE SET who = 'me' RETURNING v
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT (id) DO UPDATE SET who = 'me' WHERE {t}.v = 6
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT (id) DO UPDATE SET who = 'me' WHERE {t}.v = 7
INSERT INTO {t} VALUES (2, 'me', 9) ON CONFLICT (id) DO UPDATE SET v = 1 / ({t}.v - 6)
INSERT INTO {t} VALUES (9, 'me', 6) ON CONFLICT (v) DO UPDATE SET who = 'me'
INSERT INTO {t} (id, who, v) VALUES (9, 'me', 9), (1, 'me', 10), (2, 'me', 11) ON CONFLICT (id) DO UPDATE SET v = excluded.v
UPDATE {t} SET v = v + 20
UPDATE {t} SET who = 'me'
UPDATE {t} SET who = 'other'
UPDATE {t} SET who = 'other' WHERE true
UPDATE {t} SET who = 'other' WHERE id = 1
UPDATE {t} SET who = 'other' WHERE v > 5
UPDATE {t} SET who = 'me' WHERE id = 2
UPDATE {t} SET who = 'other' WHERE id = 1 RETURNING *
UPDATE {t} SET who = 'other' RETURNING 1
UPDATE {t} SET who = 'other' RETURNING v
UPDATE {t} AS x SET who = 'other' RETURNING x IS NULL
UPDATE {t} SET who = 'other', v = 9999 WHERE id = 1
UPDATE {t} SET who = who
UPDATE {t} SET who = 'other' FROM source WHERE source.id = 1
UPDATE {t} SET who = source.who FROM source WHERE source.id = {t}.id
UPDATE {t} SET who = 'other' FROM invoked WHERE invoked.id = {t}.id
UPDATE {t} SET who = (SELECT max(who) FROM source)
UPDATE {t} SET who = (SELECT max(source.who) FROM source WHERE source.id = {t}.id)
UPDATE {t} SET id = id + 100 WHERE id = 1
UPDATE {t} SET id = 150, who = 'other' WHERE id = 1
UPDATE {t} SET id = 10 WHERE id = 1
DELETE FROM {t}
DELETE FROM {t} WHERE id = 2
DELETE FROM {t} WHERE v > 0 RETURNING id
DELETE FROM {t} RETURNING 1
DELETE FROM {t} USING source WHERE source.id = 1
DELETE FROM {t} USING source WHERE source.id = {t}.id
MERGE INTO {t} USING source s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v
MERGE INTO {t} USING source s ON {t}.id = s.id WHEN MATCHED AND s.id = 2 THEN UPDATE SET who = 'other'
MERGE INTO {t} USING source s ON {t}.id = s.id AND s.id = 1 WHEN MATCHED THEN UPDATE SET who = 'other'
MERGE INTO {t} USING source s ON {t}.id = s.id WHEN MATCHED AND s.id = 2 THEN DELETE
MERGE INTO {t} USING source s ON {t}.id = s.id WHEN MATCHED THEN DELETE
MERGE INTO {t} USING (SELECT id + 40 AS id, who, v FROM source) s ON {t}.id = s.id WHEN NOT MATCHED THEN INSERT (id, who, v) VALUES (s.id, s.who, s.v)
MERGE INTO {t} USING (VALUES (1)) s (id) ON false WHEN NOT MATCHED THEN INSERT (id, who, v) VALUES (70, 'other', 70)
MERGE INTO {t} USING (VALUES (1)) s (id) ON true WHEN MATCHED THEN DELETE
MERGE INTO {t} USING source s ON {t}.id = s.id WHEN MATCHED THEN DO NOTHING
MERGE INTO target USING shown s ON target.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.who, s.v)
MERGE INTO target USING invoked s ON target.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.who, s.v)
UPDATE {t} SET id = 150, v = NULL WHERE id = 1
SET LOCAL row_security = off; INSERT INTO {t} SELECT * FROM source WHERE false
SET LOCAL row_security = off; UPDATE {t} SET v = 1 WHERE false
SET LOCAL row_security = off; COPY {t} FROM STDIN
""".strip().splitlines()

DIFFERENT = {
    "MERGE INTO {t}": "a node does not support MERGE into a partitioned table",
    "COPY {t} TO": "PostgreSQL copies no row of a partitioned table under row security; a node refuses it as without row security",
}
"""The statements on a partitioned table (their beginnings) that have other results on a node, with the reason."""

RULED = {
    Statement.SELECT: ("SELECT id FROM single", ""),
    Statement.LOCK: ("SELECT id FROM single FOR UPDATE", ""),
    Statement.INSERT: ("INSERT INTO single VALUES (9, 9) RETURNING id", "INSERT INTO single VALUES (9, 9)"),
    Statement.UPSERT: ("INSERT INTO single VALUES (2, 9) ON CONFLICT (id) DO UPDATE SET v = 99", ""),
    Statement.UPDATE: ("UPDATE single SET v = 99 WHERE id = 2", "UPDATE single SET v = 99"),
    Statement.DELETE: ("DELETE FROM single WHERE id = 2", "DELETE FROM single"),
    Statement.MERGE: (
        "MERGE INTO single USING (VALUES (2)) s (x) ON id = x {action}",
        "MERGE INTO single USING (VALUES (2)) s (x) ON true {action}",
    ),
}
"""For each kind of statement, one that reads the table `single` and one that does not. They insert v = 9, and change v = 6 to v = 99."""

_ACTIONS = {
    Rows.MERGE_DELETE: "WHEN MATCHED THEN DELETE",
    Rows.INSERTED: "AND id = 9 WHEN NOT MATCHED THEN INSERT VALUES (9, 9)",
}
_VALUES = {Rows.INSERTED: 9, Rows.UPDATED: 99}
_COMMANDS = {SELECT: "SELECT", INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE"}


def ruled(rule: Rule) -> tuple[str, str]:
    """Return the statements of `RULED` to which a rule applies."""
    action = _ACTIONS.get(rule.rows, "WHEN MATCHED THEN UPDATE SET v = 99")
    reading, blind = (template.format(action=action) for template in RULED[rule.statement])
    return reading, blind


def broken(rule: Rule) -> str:
    """Return CREATE POLICY of a policy that only the rows of a rule violate, in only the clause of the rule."""
    condition = f"(v <> {_VALUES.get(rule.rows, 6)})"
    if rule.clause is Clause.CHECK:
        clauses = f"WITH CHECK {condition}" if rule.command == INSERT else f"USING (true) WITH CHECK {condition}"
    else:
        clauses = f"USING {condition} WITH CHECK (true)" if rule.command == UPDATE else f"USING {condition}"
    return f"CREATE POLICY r ON single AS RESTRICTIVE FOR {_COMMANDS[rule.command]} {clauses}"
