-- names of tables and columns that a query has, but that the place of the name cannot use
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TABLE u (a int, c int);
CREATE SCHEMA s;
CREATE TABLE s.t (a int, z int);
CREATE TABLE near (aaaa int, aaab int, aaac int);
-- the table's own name instead of its alias
SELECT t.a FROM t x;
SELECT public.t.a FROM t x;
SELECT s.t.a FROM t;
SELECT absent.t.a FROM t x;
DELETE FROM t x WHERE t.a = 1;
UPDATE t x SET b = '' WHERE t.a = 1;
INSERT INTO t AS x VALUES (1) ON CONFLICT (a) DO UPDATE SET b = t.b;
WITH w AS (SELECT a FROM u) SELECT w.a FROM w v;
SELECT pg_class.relname FROM pg_class c;
-- a table of another part of FROM
SELECT * FROM t JOIN (SELECT t.a) q ON true;
SELECT * FROM t, (SELECT t.a) q;
SELECT * FROM t, (SELECT a) q;
SELECT * FROM t, u LEFT JOIN s.t q ON t.a = q.a;
SELECT * FROM t, u LEFT JOIN s.t q ON b = '1';
SELECT j.a, t.b FROM (t JOIN u USING (a)) j;
SELECT * FROM t x, (SELECT t.a) q;
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u x WHERE u.c = t.a);
SELECT * FROM pg_class c JOIN (SELECT c.oid) q ON true;
-- LATERAL
SELECT * FROM t FULL JOIN LATERAL (SELECT t.a) q ON true;
SELECT * FROM t RIGHT JOIN LATERAL (SELECT b) q ON true;
SELECT * FROM t RIGHT JOIN generate_series(1, t.a) g ON true;
-- names that nothing has, and the nearest ones
SELECT x.a FROM t;
SELECT * FROM t a JOIN u b ON c.x = 1;
SELECT * FROM t ORDER BY v.a;
SELECT bb FROM t;
SELECT t.bb FROM t;
SELECT x.b FROM t y;
SELECT y.c FROM t, u;
SELECT aaad FROM near;
SELECT near.aaad FROM near;
SELECT aaaa1 FROM near;
SELECT x.c FROM u x, t y WHERE x.b = '';
SELECT y.c FROM u x, t y;
SELECT count(*) FROM u WHERE u.cc = 1;
-- the target of MERGE in an action for rows that it does not have
MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED THEN INSERT VALUES (t.a, '');
MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED THEN INSERT VALUES (a, b);
MERGE INTO t x USING u ON t.a = u.a WHEN MATCHED THEN DELETE;
-- the values of SET before the names of its columns
UPDATE t SET absent = absent + 1;
UPDATE t SET absent = 1, b = absent;
UPDATE t SET absent = 1;
