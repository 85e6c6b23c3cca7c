"""The same statements give the same results, notices and errors on PostgreSQL and on a node.

The rows of a SELECT without ORDER BY are compared in any order. Commands do not return rows.
"""

from __future__ import annotations

import pytest
from tests.commands.typed import differences
from tests.conftest import Server

TABLES = """
CREATE TABLE t (a int PRIMARY KEY, b text NOT NULL DEFAULT 'none', c int UNIQUE, d numeric DEFAULT 1.5)
INSERT INTO t (a) VALUES (1)
INSERT INTO t VALUES (2, DEFAULT, NULL, 2), (3, 'x', 30)
INSERT INTO t VALUES (1, 'y')
INSERT INTO t VALUES (4, 'y', 30)
INSERT INTO t VALUES (5, 'y', 50), (5, 'z', 51)
INSERT INTO t (b) VALUES ('y')
INSERT INTO t VALUES (6, NULL)
INSERT INTO t (nosuch) VALUES (1)
INSERT INTO t VALUES (1, 'x', 2, 3, 4)
INSERT INTO t (a, b) VALUES (1)
INSERT INTO t (a, a) VALUES (1, 2)
INSERT INTO t (a) VALUES ('x')
INSERT INTO t (a) VALUES (true)
UPDATE t SET b = NULL WHERE a = 3
UPDATE t SET a = 1 WHERE a = 3
UPDATE t SET nosuch = 1
UPDATE t SET b = DEFAULT WHERE a = 3
SELECT * FROM t
INSERT INTO t SELECT g + 10, 'g', g * 100, NULL FROM generate_series(1, 5) g
UPDATE t SET a = a + 100, d = a WHERE c > 200
SELECT a, b, c, d FROM t ORDER BY a DESC
DELETE FROM t WHERE b = 'g' AND c < 400 RETURNING a, c
INSERT INTO t (a, b) VALUES (1, 'dup'), (7, 'new') ON CONFLICT (a) DO NOTHING
INSERT INTO t (a, b) VALUES (1, 'dup') ON CONFLICT (a) DO UPDATE SET b = t.b || '+' || excluded.b RETURNING a, b
SELECT a, b FROM t ORDER BY a
TRUNCATE t
SELECT count(*) FROM t
CREATE TABLE bare ()
INSERT INTO bare SELECT FROM generate_series(1, 3)
INSERT INTO bare SELECT
SELECT count(*) FROM bare
SELECT FROM bare
CREATE TABLE defaulted (a int DEFAULT 7, b serial)
INSERT INTO defaulted SELECT FROM generate_series(1, 3)
SELECT * FROM defaulted
CREATE TABLE bare_copy AS SELECT FROM generate_series(1, 3)
SELECT count(*) FROM bare_copy
DROP TABLE t
DROP TABLE t
DROP TABLE IF EXISTS t
SELECT * FROM t
CREATE TABLE t (a int, a int)
CREATE TABLE t (a nosuch)
CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)
CREATE TABLE t (a int, PRIMARY KEY (b))
CREATE TABLE t (a int DEFAULT 'x')
CREATE TABLE t (a int CHECK (b > 0))
CREATE TABLE t (a int, g int DEFAULT 5 GENERATED ALWAYS AS (a) STORED)
"""

CONSTRAINTS = """
CREATE TABLE s (id serial PRIMARY KEY, x int GENERATED ALWAYS AS (id * 2) STORED, y int CHECK (y > 0), z int GENERATED ALWAYS AS IDENTITY)
INSERT INTO s (y) VALUES (1), (2), (3)
INSERT INTO s (y) VALUES (0)
INSERT INTO s (y, x) VALUES (1, 1)
INSERT INTO s (y, z) VALUES (1, 1)
UPDATE s SET x = 1
UPDATE s SET y = -1 WHERE id = 1
UPDATE s SET id = 100 WHERE id = 1
SELECT id, x, y, z FROM s ORDER BY id
ALTER TABLE s ADD COLUMN w int DEFAULT 5
ALTER TABLE s ADD COLUMN v int NOT NULL
ALTER TABLE s RENAME COLUMN y TO yy
ALTER TABLE s DROP COLUMN id
ALTER TABLE s DROP COLUMN x
ALTER TABLE s DROP COLUMN nosuch
INSERT INTO s (yy) VALUES (-5)
SELECT yy, z, w FROM s ORDER BY z
ALTER TABLE s ALTER COLUMN w TYPE text
ALTER TABLE s ALTER COLUMN w SET NOT NULL
INSERT INTO s (yy, w) VALUES (1, NULL)
ALTER TABLE s ALTER COLUMN w DROP DEFAULT
ALTER TABLE s ADD CONSTRAINT positive CHECK (yy > 2)
ALTER TABLE s DROP CONSTRAINT nosuch
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 's'::regclass ORDER BY 1
CREATE UNIQUE INDEX i ON s (w)
CREATE UNIQUE INDEX i ON s (yy)
CREATE UNIQUE INDEX i ON s (yy)
ALTER TABLE s REPLICA IDENTITY USING INDEX i
ALTER TABLE s REPLICA IDENTITY FULL
DROP INDEX i
DROP INDEX i
DROP INDEX nosuch.i
DROP INDEX IF EXISTS i, nosuch.i
DROP INDEX s
DROP SEQUENCE s
DROP SEQUENCE nosuch
DROP SEQUENCE nosuch.i
DROP SEQUENCE IF EXISTS nosuch, nosuch.i
CREATE SEQUENCE q
DROP INDEX q
DROP TABLE q
DROP VIEW q
DROP SEQUENCE q, nosuch
DROP SEQUENCE q
"""

REFERENCES = """
CREATE TABLE parent (a int PRIMARY KEY, t text UNIQUE)
CREATE TABLE child (x int PRIMARY KEY, y bigint REFERENCES parent)
INSERT INTO child VALUES (1, 1)
INSERT INTO parent VALUES (1, 'a'), (2, 'b'), (3, 'c')
INSERT INTO child VALUES (1, 1), (2, NULL), (3, 2)
UPDATE child SET y = 9 WHERE x = 1
DELETE FROM parent WHERE a = 1
UPDATE parent SET a = 10 WHERE a = 1
UPDATE parent SET t = 'z' WHERE a = 1
TRUNCATE parent
DROP TABLE parent
ALTER TABLE parent DROP CONSTRAINT parent_pkey
ALTER TABLE parent DROP COLUMN a
ALTER TABLE child DROP CONSTRAINT child_y_fkey
ALTER TABLE child ADD FOREIGN KEY (y) REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE
DELETE FROM parent WHERE a = 1
UPDATE parent SET a = 20 WHERE a = 2
SELECT x, y FROM child ORDER BY x
CREATE TABLE other (x int PRIMARY KEY, y int DEFAULT 9 REFERENCES parent ON DELETE SET DEFAULT ON UPDATE SET DEFAULT)
INSERT INTO parent VALUES (9, 'i'), (8, 'h')
INSERT INTO other VALUES (1, 8)
DELETE FROM parent WHERE a = 8
DELETE FROM parent WHERE a = 9
UPDATE parent SET a = 7 WHERE a = 9
SELECT x, y FROM other ORDER BY x
DROP TABLE other
CREATE TABLE wrong (a text REFERENCES parent (a))
CREATE TABLE wrong (a int REFERENCES child (y))
CREATE TABLE self (id int PRIMARY KEY, up int REFERENCES self DEFERRABLE INITIALLY DEFERRED)
INSERT INTO self VALUES (1, 2), (2, 1)
INSERT INTO self VALUES (3, 4)
DROP TABLE parent CASCADE
"""

ALONE = """
SELECT '    true   '::text::boolean, '     FALSE'::text::boolean
SELECT ' 1.5 '::text::numeric, 'Infinity'::text::float8, '-0'::text::float4
SELECT (-1::int2 << 15)::text, ((-1::int2 << 15) + 1::int2)::text, (-32768)::int2 % (-1)::int2
SELECT 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1
SELECT 7 / 2, 7 / 2.0, 1e3::float4 / 3, round(2.5), round(-2.5::float8)
SELECT 1 / 0
SELECT 9223372036854775807 + 1
SELECT format('Hello %x', 20)
SELECT format('%1$', 1)
SELECT format('%s %s', 'one')
SELECT concat_ws(',', 1, NULL, 'x', true)
SELECT concat_ws(',', VARIADIC 10)
SELECT concat_ws(',', VARIADIC NULL)
SELECT concat(VARIADIC '{1,2}'), format('%s', VARIADIC ARRAY[1])
SELECT concat(VARIADIC '{1,2}'::int[]), format('%s', VARIADIC ARRAY[1])
SELECT sind(x) IN (-1, -0.5, 0, 0.5, 1) FROM (VALUES (0), (30), (90)) AS v(x)
SELECT g, g * 1.5 FROM generate_series(1, 3) g
SELECT 'int4'::regtype, 1 + 1
SELECT b' 0'
EXPLAIN SELECT * FROM nosuch
SELECT x'0g'
SELECT '{"a" 1}'::json
SELECT (jsonb '{}')[:]
SELECT current_date = now()::date, current_user = session_user
SELECT pg_typeof(1 / 3.0), pg_typeof('a')
CREATE TYPE hue AS ENUM ('red', 'green')
CREATE DOMAIN shade AS int
CREATE TABLE paints (h hue, s shade)
CREATE UNIQUE INDEX ON paints (h, s)
CREATE INDEX ON paints USING hash (h)
SELECT indexdef FROM pg_indexes WHERE tablename = 'paints' ORDER BY indexname
"""

VIEWS = """
CREATE TABLE t (a int PRIMARY KEY, b text, c int NOT NULL, d int)
CREATE UNIQUE INDEX part ON t (c) WHERE d > 5
CREATE UNIQUE INDEX expr ON t (lower(b))
CREATE INDEX ON t (c DESC, (c + d) NULLS FIRST) INCLUDE (a)
CREATE INDEX ON t (random())
INSERT INTO t VALUES (1, 'A', 1, 1), (2, 'B', 1, 2), (3, 'x', 5, 7)
INSERT INTO t VALUES (4, 'y', 5, 8)
INSERT INTO t VALUES (4, 'a', 6, 9)
ALTER TABLE t REPLICA IDENTITY USING INDEX part
ALTER TABLE t REPLICA IDENTITY USING INDEX expr
CREATE VIEW v AS SELECT a, lower(b) AS low FROM t WHERE a > 1
CREATE OR REPLACE VIEW v AS SELECT a FROM t
CREATE VIEW w (n) AS SELECT count(*) FROM v
SELECT a, low FROM v ORDER BY a
SELECT n FROM w
INSERT INTO w VALUES (1)
CREATE PUBLICATION p FOR TABLE v
ALTER TABLE t DROP COLUMN b
ALTER TABLE t ALTER COLUMN a TYPE bigint
ALTER TABLE t RENAME COLUMN a TO key
SELECT a FROM v ORDER BY a
CREATE VIEW alone AS SELECT ' 1.5 '::text::numeric AS a, 7 / 2 AS b, 'Infinity'::text::float8 AS c, current_user AS d
SELECT * FROM alone
SELECT t.key, alone.a FROM t, alone ORDER BY 1
DROP VIEW v
DROP TABLE t
DROP TABLE t CASCADE
"""

QUERIES = """
CREATE TABLE q (a int PRIMARY KEY, b text, c numeric(10,2), d date, e timestamptz, f bool, g float8)
INSERT INTO q VALUES (1, 'one', 1.239, '2024-01-01', '2024-01-01 12:00+02', true, 1.5), (2, 'two', -5, NULL, NULL, false, 'NaN'), (3, NULL, NULL, NULL, NULL, NULL, NULL)
SELECT * FROM q ORDER BY a
SELECT b, a FROM q ORDER BY b
SELECT b, a FROM q ORDER BY b DESC
SELECT b, a FROM q ORDER BY b NULLS FIRST, 2
SELECT x.a, y.b FROM q x JOIN q y ON x.a = y.a + 1 ORDER BY 1
SELECT x.a, y.b FROM q x LEFT JOIN q y ON x.a = y.a + 1 ORDER BY 1
SELECT a, x.b FROM q x JOIN q y USING (a) WHERE y.f ORDER BY a
SELECT count(*), count(b), sum(a), avg(a), min(c), max(b), bool_and(f) FROM q
SELECT f, count(*) FROM q GROUP BY f ORDER BY f
SELECT f, count(*) AS n FROM q GROUP BY 1 HAVING count(*) > 5 ORDER BY n
SELECT a FROM q WHERE a IN (SELECT a + 1 FROM q) ORDER BY a
SELECT a FROM q WHERE a NOT IN (SELECT 1) ORDER BY a
SELECT a FROM q x WHERE EXISTS (SELECT 1 FROM q y WHERE y.a = x.a + 1) ORDER BY a
SELECT x.a, (SELECT count(*) FROM q y WHERE y.a < x.a) FROM q x ORDER BY 1
SELECT (SELECT a FROM q)
SELECT a FROM q UNION SELECT 5 ORDER BY 1
SELECT a FROM q UNION ALL SELECT 1 ORDER BY 1 LIMIT 2
SELECT a FROM q INTERSECT SELECT 2
SELECT a FROM q EXCEPT SELECT 2 ORDER BY a
WITH w AS (SELECT a, b FROM q WHERE a > 1) SELECT w.b, v.a FROM w, w v ORDER BY 2, 1 NULLS FIRST
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v (x, y) JOIN q ON q.a = v.x ORDER BY x
SELECT DISTINCT f IS NULL FROM q ORDER BY 1
SELECT a, generate_series(1, 2) FROM q WHERE a < 3 ORDER BY 1, 2
SELECT a, make_interval(days => a, secs => 1.5), make_interval(1, hours := a) FROM q ORDER BY 1
SELECT make_date(day => 5, month => a, year => 2020) FROM q ORDER BY 1
SELECT jsonb_set('{"a":1}', '{b}', '2', create_if_missing => false), jsonb_insert('[1,2]', '{0}', '0', insert_after => true)
SELECT make_interval(foo => 3)
SELECT make_interval(days => 3, 4)
SELECT make_interval(days => 3, days => 4)
SELECT make_interval(1, years => 4)
SELECT make_date(year => 2, day => 3)
SELECT make_interval(days => 'x'::text)
SELECT CASE WHEN a > 1 THEN 'big' ELSE 'small' END, coalesce(b, '-') FROM q ORDER BY a
SELECT a / 2, a % 2, a * 1.5, -a, a::text || 'x', b LIKE 'o%' FROM q ORDER BY a
SELECT a FROM q ORDER BY a OFFSET 1 LIMIT 1
SELECT 1 / (a - 1) FROM q
SELECT a FROM q WHERE nullif(a, a) > 0 AND 1 / (a - a) > 0
SELECT a FROM q WHERE b = 'none' AND 1 / (a - a) > 0
SELECT nullif(a, a) > 0 AND 1 / (a - a) > 0 FROM q
SELECT a FROM q WHERE (nullif(a, a) > 0 AND 1 / (a - a) > 0) IS NULL
SELECT a FROM q WHERE nullif(a, a) > 0 OR 1 / (a - a) > 0
SELECT nosuch FROM q
SELECT q.nosuch FROM q
SELECT x.a FROM q
SELECT a FROM q, q y
SELECT a FROM q x JOIN q y ON true
SELECT a, count(*) FROM q
SELECT a FROM q WHERE a
SELECT a FROM q WHERE b = 1
SELECT a FROM q WHERE count(*) > 1
SELECT a FROM q ORDER BY 3
SELECT a FROM q GROUP BY nosuch
SELECT a FROM q LIMIT -1
SELECT a FROM q UNION SELECT a, b FROM q
SELECT * FROM nosuch.q
"""

VALUES = """
CREATE TABLE q (a int PRIMARY KEY, b text)
INSERT INTO q VALUES (1, 'one'), (2, 'two'), (3, NULL)
VALUES (1, 'a'), (2, NULL), (NULL, 'c')
VALUES (1), (2.50), (-0.0)
VALUES (1), (2::smallint), (3000000000)
VALUES (1.0::float8), ('NaN'), ('-0'), ('-Infinity')
VALUES ('x'::char(3)), ('yz'), (NULL)
VALUES ('a'::varchar(2)), ('b')
VALUES ('{{1,NULL,3}}'::int[]), (ARRAY[4]), ('{{}}')
VALUES (ARRAY['a', 'b,c']), (NULL)
VALUES (true), ('f'), (NULL)
VALUES (DATE '2024-02-29'), ('infinity'), ('0044-03-15 BC')
VALUES (TIMESTAMP '2024-01-01 12:00:00.123456'), ('-infinity'), (NULL)
VALUES (TIMESTAMPTZ '2024-01-01 12:00+02'), ('2024-07-01 00:00+00')
VALUES (TIME '12:00'), ('23:59:59.999999')
VALUES (INTERVAL '1 day'), ('2 hours'), ('1 mon -3 days')
VALUES ('\\x00ff'::bytea), ('\\000a'), (NULL)
VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid), ('{{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12}}')
VALUES ('{{"b": 1, "a": [1.0]}}'::jsonb), ('null'), (NULL)
VALUES ('{{"b" : 1}}'::json), ('[]')
VALUES ('[1,5]'::int4range), ('empty'), ('(,)')
VALUES ('(1,2)'::point), ('(3,4)')
VALUES ('10.0.0.1/8'::inet), ('::1')
VALUES (B'101'), ('0')
VALUES ('12.34'::money), ('-1')
VALUES (16::oid), (4294967295)
VALUES ('pg_class'::regclass), ('pg_type')
VALUES (1 + 1), (abs(-7)), (length('abc'))
VALUES (now() = now()), (current_user IS NULL)
VALUES (1, 'a'), (2)
VALUES (1), ('x')
VALUES (1 / 0), (2)
VALUES (1), (ARRAY[2])
VALUES ((SELECT 5)), (6)
VALUES (1, DEFAULT)
VALUES (3), (1), (2) ORDER BY 1 DESC LIMIT 2
SELECT v.a, v.b, q.b FROM (VALUES (1, 'x'), (2, 'y'), (9, 'z')) v (a, b) LEFT JOIN q ON q.a = v.a ORDER BY v.a
WITH w (a, n) AS (VALUES (1, 1.5), (2, NULL)) SELECT sum(n), count(*), max(a) FROM w
SELECT a FROM q WHERE (a, b) IN (VALUES (1, 'one'), (2, 'three'))
SELECT * FROM (VALUES (1, 'a'), (1, 'a'), (2, 'b')) v GROUP BY 1, 2 ORDER BY 1
VALUES (1), (2) UNION VALUES (2), (3) ORDER BY 1
UPDATE q SET b = v.b FROM (VALUES (1, 'uno'), (3, 'tres')) v (a, b) WHERE q.a = v.a RETURNING q.a, q.b
DELETE FROM q USING (VALUES (1), (77)) v (a) WHERE q.a = v.a RETURNING q.a
MERGE INTO q USING (VALUES (2, 'zwei'), (4, 'vier')) v (a, b) ON q.a = v.a WHEN MATCHED THEN UPDATE SET b = v.b WHEN NOT MATCHED THEN INSERT (a, b) VALUES (v.a, v.b)
SELECT a, b FROM q ORDER BY a
PREPARE p (int, text) AS VALUES ($1, $2), ($1 + 1, upper($2)), (NULL, 'c')
EXECUTE p (7, 'seven')
CREATE TABLE made (a int PRIMARY KEY, b text, c timestamp, d float8 DEFAULT random(), e uuid DEFAULT gen_random_uuid())
INSERT INTO made (a, b, c) VALUES {many}
SELECT a, b, c FROM made WHERE a % 10 = 3 ORDER BY a
SELECT count(*), count(DISTINCT b), count(DISTINCT d), count(DISTINCT e) FROM made
INSERT INTO made (a, b) VALUES {failing}
SELECT count(*), sum(a), max(b) FROM (VALUES {called}) v (a, b)
CREATE VIEW listed AS VALUES (1, 'a'), (2, 'b')
SELECT * FROM listed ORDER BY 1 DESC
CREATE TABLE of_values AS VALUES (1, 1.50, 'x'), (2, NULL, 'y')
SELECT * FROM of_values ORDER BY 1
""".format(
    many=", ".join(
        f"({number}, upper('v{number % 7}') || '{number % 3}', TIMESTAMP '2024-01-01' + {number} * INTERVAL '1 hour')"
        for number in range(60)
    ),
    failing=", ".join(f"({number} / ({number} - 130), 'x')" for number in range(100, 160)),
    called=", ".join(f"({number} + 1, repeat('x', {number}))" for number in range(40)),
)
PUBLICATIONS = """
CREATE SCHEMA sc
CREATE TABLE t (a int PRIMARY KEY, b int, c int NOT NULL)
CREATE TABLE sc.t2 (x int)
CREATE PUBLICATION p FOR TABLE t (a, b) WHERE (b > 5), sc.t2
CREATE PUBLICATION p
CREATE PUBLICATION q FOR TABLE t, t
CREATE PUBLICATION q2 FOR TABLE t WHERE (a > 1), t
CREATE PUBLICATION q2 FOR TABLE t (a, nosuch)
CREATE PUBLICATION q2 FOR TABLE t (a, a)
CREATE PUBLICATION q2 FOR TABLE t (ctid)
CREATE PUBLICATION q2 FOR TABLE pg_class
CREATE PUBLICATION q2 FOR TABLES IN SCHEMA pg_catalog
CREATE PUBLICATION q2 FOR TABLE t (a), TABLES IN SCHEMA sc
CREATE PUBLICATION q2 WITH (publish = 'x')
CREATE PUBLICATION q2 FOR TABLE nosuch
SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables ORDER BY 1, 2
INSERT INTO t VALUES (1, 1, 1)
UPDATE t SET b = 2
DELETE FROM t
ALTER PUBLICATION p SET TABLE t WHERE (a > 0)
UPDATE t SET b = 2
ALTER PUBLICATION p ADD TABLE t
ALTER PUBLICATION p DROP TABLE sc.t2
ALTER PUBLICATION p ADD TABLES IN SCHEMA sc
ALTER PUBLICATION p SET (publish = 'insert')
ALTER TABLE t REPLICA IDENTITY NOTHING
UPDATE t SET b = 3
DROP PUBLICATION q
UPDATE t SET b = 3
ALTER TABLE t DROP COLUMN a
DROP SCHEMA sc
DROP SCHEMA sc CASCADE
DROP PUBLICATION p, nosuch
DROP PUBLICATION IF EXISTS nosuch
COMMENT ON PUBLICATION p IS 'x'
COMMENT ON TABLE nosuch IS 'x'
GRANT SELECT ON nosuch TO postgres
CREATE ROLE postgres
DROP ROLE nosuch
"""


TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')
CREATE TYPE mood AS ENUM ('a')
CREATE TABLE mood (a int)
ALTER TYPE mood ADD VALUE 'sad'
ALTER TYPE mood ADD VALUE IF NOT EXISTS 'sad'
ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'
ALTER TYPE mood ADD VALUE 'x' AFTER 'nope'
ALTER TYPE mood RENAME VALUE 'sad' TO 'ok'
CREATE TABLE e (id int PRIMARY KEY, a mood DEFAULT 'ok', b mood[] DEFAULT '{sad}', c mood CHECK (c > 'ok'))
INSERT INTO e VALUES (1, DEFAULT, DEFAULT, 'happy'), (2, 'sad', '{{ok},{NULL}}', NULL), (3, 'meh', NULL, NULL)
INSERT INTO e VALUES (4, 'bad')
INSERT INTO e VALUES (4, 'ok', '{bad}')
INSERT INTO e VALUES (4, 'ok'::text)
INSERT INTO e VALUES (4, 'ok', NULL, 'sad')
ALTER TYPE mood RENAME VALUE 'sad' TO 'SAD'
ALTER TYPE mood RENAME TO feel
SELECT id, a, b, c FROM e ORDER BY a DESC
SELECT b FROM e ORDER BY b
SELECT min(a), max(a), count(DISTINCT a) FROM e
SELECT a::text || 'x', 'meh'::text::feel, a < 'happy', a IN ('SAD', 'happy') FROM e ORDER BY a
SELECT enum_first(a), enum_last(a), enum_range(a), enum_range(a, 'happy') FROM e ORDER BY id
SELECT adbin FROM (SELECT pg_get_expr(adbin, adrelid) AS adbin FROM pg_attrdef WHERE adrelid = 'e'::regclass) d ORDER BY 1
CREATE DOMAIN positive AS int NOT NULL CHECK (VALUE > 0)
CREATE DOMAIN code AS varchar(3) DEFAULT 'ab' CONSTRAINT long CHECK (length(VALUE) > 1)
CREATE DOMAIN bad AS int CHECK (VALUE)
CREATE DOMAIN bad AS int PRIMARY KEY
CREATE TABLE d (a positive, b code, c feel)
INSERT INTO d (a) VALUES (1)
INSERT INTO d VALUES (0, 'abc')
INSERT INTO d VALUES (NULL, 'abc')
INSERT INTO d VALUES (2, 'abcd')
INSERT INTO d VALUES (2, 'a')
UPDATE d SET a = -1
SELECT a + 1, b || 'x', length(b) FROM d
SELECT (a - 5)::positive FROM d
CREATE PUBLICATION p FOR TABLE d WHERE (a > 1)
CREATE PUBLICATION p FOR TABLE d WHERE (c = 'ok')
ALTER DOMAIN positive ADD CONSTRAINT large CHECK (VALUE > 100)
DROP DOMAIN code CASCADE
DROP TYPE IF EXISTS nosuch
DROP TYPE int4
SELECT * FROM d
"""

SESSION = """
CREATE TABLE r (id int PRIMARY KEY, a float8, b text, c uuid DEFAULT gen_random_uuid(), d timestamptz DEFAULT clock_timestamp())
INSERT INTO r SELECT g, random(), md5(random()::text) FROM generate_series(1, 40) g
INSERT INTO r VALUES (100, random(), current_schema), (101, random(), gen_random_uuid()::text)
SELECT count(DISTINCT a), count(DISTINCT b), count(DISTINCT c), min(a) >= 0 AND max(a) < 1, count(*) FILTER (WHERE d < now()) FROM r
UPDATE r SET a = random() * 10, b = 'x' || round(random() * 1000)
SELECT count(*) FROM r WHERE b !~ '^x[0-9]+$'
SELECT count(*) FROM (SELECT random() AS x, random() AS y FROM r) s WHERE x = y
SELECT current_schema, CURRENT_SCHEMA(), current_setting('search_path') IS NULL, id FROM r WHERE id = 100
CREATE TABLE f (id int PRIMARY KEY, f float8, g float4, d date, t timestamptz)
INSERT INTO f VALUES (1, 1, 1, '2020-01-01', now()), (2, 'NaN', 'NaN', 'infinity', 'infinity'), (3, '-0', '-0', '-infinity', '-infinity'), (4)
SELECT id FROM f WHERE f > 5 ORDER BY id
SELECT id FROM f WHERE g = 'NaN' OR f = 0 ORDER BY id
SELECT id FROM f WHERE d = '-infinity' OR d > '2100-01-01' ORDER BY id
SELECT id FROM f WHERE t < '1900-01-01' OR t = 'infinity' ORDER BY id
SELECT id FROM f WHERE id > 2 AND f < 1 ORDER BY id
UPDATE f SET g = 7 WHERE f > 5
DELETE FROM f WHERE f >= 1
SELECT now() = transaction_timestamp(), statement_timestamp() >= now(), clock_timestamp() > now()
SELECT jsonb_agg(id ORDER BY id DESC), json_object_agg(id, b) FROM (VALUES (1, 'a'), (2, 'b')) v (id, b)
SELECT pg_relation_size('r') > 0, pg_table_size('r') > pg_relation_size('r'), pg_relation_size(1), pg_database_size(current_database()) > 0
CREATE TEMP TABLE t (x int)
CREATE PUBLICATION here FOR TABLES IN SCHEMA CURRENT_SCHEMA
BEGIN
CREATE TABLE n AS SELECT now() AS at
SELECT at = now(), at = current_timestamp, at < clock_timestamp(), at::date = current_date FROM n
COMMIT
SELECT at < now() FROM n
"""

DEEP = "\n".join([
    "CREATE TABLE t (a int, v text)",
    "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 3) i",
    "SELECT count(*), sum(n) FROM (" + " UNION ALL ".join(f"SELECT {number} AS n" for number in range(60)) + ") u",
    "SELECT " + " || ".join(["v"] * 150) + " FROM t",
    "SELECT " + " + ".join(["a"] * 150) + " FROM t",
    "SELECT " + " + ".join(["1"] * 60),
    "SELECT " + " + ".join(["oid::bigint"] * 60) + " FROM pg_am ORDER BY 1",
    "SELECT a FROM t WHERE " + " OR ".join(f"a = {number}" for number in range(3, 500)),
])  # fmt: skip
"""Statements with more than 46 operators or UNIONs in a row."""

NAMES = ["tables", "constraints", "references", "alone", "views", "queries", "values", "publications", "types", "session", "deep"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(TABLES, marks=pytest.mark.slow),
        CONSTRAINTS,
        pytest.param(REFERENCES, marks=pytest.mark.slow),
        pytest.param(ALONE, marks=pytest.mark.slow),
        pytest.param(VIEWS, marks=pytest.mark.slow),
        QUERIES,
        pytest.param(VALUES, marks=pytest.mark.slow),
        PUBLICATIONS,
        pytest.param(TYPES, marks=pytest.mark.slow),
        pytest.param(SESSION, marks=pytest.mark.slow),
        pytest.param(DEEP, marks=pytest.mark.slow),
    ],
    ids=NAMES,
)
def test_statements_answer_as_in_postgresql(node: Server, postgres: Server, script: str) -> None:
    different = differences(node, postgres, script.strip().split("\n"))
    assert not different, different
