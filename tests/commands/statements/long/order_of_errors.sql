-- A query is analysed as a whole before the privileges on its relations are checked.
\set who :db _who
CREATE ROLE :who;
CREATE TABLE t (a int PRIMARY KEY, b numeric, c text);
INSERT INTO t VALUES (1, 1.0, 'x'), (2, 1.00, 'y'), (3, 2, 'z');
CREATE TABLE u (a int);
INSERT INTO u VALUES (1), (2), (2);
CREATE VIEW v AS SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a);
GRANT SELECT ON v TO :who;
SET ROLE :who;
SELECT nope FROM t;
SELECT a FROM t GROUP BY b;
SELECT a FROM t ORDER BY 2;
SELECT a FROM t LIMIT 'x';
SELECT a FROM t JOIN nope USING (a);
SELECT a FROM t, u;
SELECT (SELECT nope FROM u) FROM t;
WITH w AS (SELECT a FROM t) SELECT b FROM w;
SELECT 1 FROM t WHERE nosuch(a) = 1;
SELECT a FROM t;
SELECT v.a FROM v WHERE EXISTS (SELECT 1 FROM u WHERE u.a = v.a);
-- the subquery of a view is read with the privileges of the view's owner
SELECT a FROM v ORDER BY a;
RESET ROLE;
-- only CREATE TABLE points at the schema
CREATE TABLE nosuch.t (a int);
CREATE VIEW nosuch.v AS SELECT 1;
-- a WITH query is analysed in the scope in which it is written, even if it is read several times
WITH w AS (SELECT a FROM u) SELECT x.a, y.a AS b FROM w x JOIN w y ON x.a = y.a ORDER BY 1, 2;
WITH w AS (SELECT a FROM u) SELECT * FROM (WITH w AS (SELECT a + 10 AS a FROM t) SELECT a FROM w) s, w WHERE s.a = w.a + 10 ORDER BY 1;
WITH RECURSIVE r (n, m) AS (
  SELECT a, 0 FROM t UNION ALL SELECT n, m + 1 FROM r WHERE EXISTS (SELECT 1 FROM u WHERE u.a = r.m + 1)
) SELECT * FROM r ORDER BY n, m;
WITH w AS (SELECT count(*) AS n FROM t), d AS (DELETE FROM t WHERE a = 3 RETURNING a) SELECT w.n, d.a, (SELECT count(*) FROM t) FROM w, d;
-- the rows of a set operation that sort equal to the last one
SELECT a FROM u UNION ALL SELECT a FROM t ORDER BY a DESC FETCH FIRST 2 ROWS WITH TIES;
DROP VIEW v;
DROP ROLE :who;
