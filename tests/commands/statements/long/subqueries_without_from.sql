-- Subqueries of a SELECT without FROM run when its value needs them, and give PostgreSQL's types, errors and contexts.
\set VERBOSITY verbose
CREATE TABLE t (a int PRIMARY KEY, b text, n numeric(8,2), ts timestamptz);
INSERT INTO t VALUES (1, 'x', 1.5, '2024-01-01 00:00+00'), (2, 'y', 2.25, NULL), (3, NULL, NULL, NULL);
CREATE TABLE e (a int);
SET timezone = 'America/New_York';
SELECT (SELECT max(a) FROM t);
SELECT (SELECT b FROM t WHERE a = 1) || '!' AS x, EXISTS (SELECT FROM t WHERE a = 9), NOT EXISTS (SELECT * FROM e) AS y;
SELECT (SELECT a FROM t);
SELECT (SELECT a FROM e), (SELECT b FROM t WHERE a = 3) IS NULL AS n;
SELECT CASE WHEN EXISTS (SELECT 1 FROM t WHERE a = 1) THEN 'yes' ELSE (SELECT b FROM t) END;
SELECT coalesce((SELECT a FROM e), (SELECT count(*) FROM t)) AS c, (SELECT sum(n) FROM t) + 1 AS s, (SELECT avg(a) FROM t) AS av;
SELECT (SELECT ts FROM t WHERE a = 1) AS ts, (SELECT ts FROM t WHERE a = 1)::text AS txt;
SELECT 1 / (SELECT count(*) FROM e);
SELECT EXISTS (SELECT 1 / 0 FROM t), EXISTS (SELECT a FROM t ORDER BY 1 / 0) AS o, EXISTS (SELECT sum(a) FROM e) AS agg, EXISTS (SELECT a FROM t LIMIT 0) AS l;
SELECT (SELECT array_agg(a ORDER BY a) FROM t) AS ar, ARRAY(SELECT a FROM t ORDER BY 1) AS br, 2 IN (SELECT a FROM t) AS i;
SELECT (SELECT (SELECT max(a) FROM t) + 1) AS nested, (SELECT b FROM t WHERE a = (SELECT min(a) FROM t)) AS deep;
PREPARE p(int, text) AS SELECT (SELECT b FROM t WHERE a = $1) || $2 AS r, EXISTS (SELECT FROM t WHERE b = $2) AS q;
EXECUTE p(1, 'y');
EXECUTE p(7, 'z');
SELECT pg_typeof((SELECT n FROM t WHERE a = 1)), (SELECT n FROM t WHERE a = 2)::int AS i;
DO $$ DECLARE x int := 2; BEGIN
  IF EXISTS (SELECT FROM t WHERE a = x) AND (SELECT b FROM t WHERE a = x) = 'y' THEN RAISE NOTICE 'found %', (SELECT n FROM t WHERE a = x); END IF;
  x := (SELECT a FROM t WHERE a = x + 1); RAISE NOTICE '%', x;
  x := (SELECT a FROM t); END $$;
CREATE ROLE :"db"; SET ROLE :"db";
SELECT (SELECT max(a) FROM t);
SELECT EXISTS (SELECT FROM t);
RESET ROLE; DROP ROLE :"db";
INSERT INTO e VALUES ((SELECT max(a) FROM t)), ((SELECT a FROM t WHERE b = 'x'));
SELECT * FROM e ORDER BY 1;
