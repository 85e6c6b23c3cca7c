-- Errors of the analysis of a statement are raised before its BEFORE STATEMENT triggers fire, even if it has no rows.
\set VERBOSITY verbose
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % %', tg_when, tg_op, tg_level; RETURN NULL; END $$;
CREATE TRIGGER s BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION tells();
CREATE TRIGGER e AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION tells();
CREATE FUNCTION noisy(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'noisy %', x; RETURN x; END $$;
INSERT INTO t (nothing) VALUES (1);
INSERT INTO t VALUES (1, nothing);
INSERT INTO t VALUES ('x');
INSERT INTO t VALUES (1, 2, 3);
INSERT INTO t SELECT nothing FROM t;
INSERT INTO t SELECT noisy(a + 1), 'b' FROM t;
INSERT INTO t VALUES (NULL, 'n');
INSERT INTO t VALUES (1, 'dup');
INSERT INTO t VALUES (5) RETURNING nothing;
INSERT INTO t VALUES (5) ON CONFLICT (b) DO NOTHING;
INSERT INTO t VALUES (5) ON CONFLICT (a) DO UPDATE SET nothing = 1;
INSERT INTO t VALUES (1, 'c') ON CONFLICT (a) DO UPDATE SET b = 'u';
UPDATE t SET nothing = 1;
UPDATE t SET a = 'x';
UPDATE t SET a = a / 0;
UPDATE t SET b = 'q' WHERE nothing;
DELETE FROM t WHERE nothing = 1;
DELETE FROM t WHERE a / 0 = 1;
DELETE FROM nothing;
INSERT INTO t VALUES (generate_series(7, 8));
INSERT INTO t DEFAULT VALUES;
COPY t FROM stdin;
x	y
\.
COPY t (nothing) FROM stdin;
COPY t FROM stdin;
50	y
\.
SELECT * FROM t ORDER BY a;
MERGE INTO t USING (VALUES (1, 'm'), (60, 'n')) s(a, b) ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = s.b WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b);
MERGE INTO t USING nothing s ON t.a = s.a WHEN MATCHED THEN DELETE;
MERGE INTO t USING (VALUES (1)) t(a) ON t.a = t.a WHEN MATCHED THEN DELETE;
MERGE INTO t USING (VALUES (1)) s(a) ON t.nothing = s.a WHEN MATCHED THEN DELETE;
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN MATCHED AND nothing THEN DELETE;
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN NOT MATCHED AND nothing = 'x' THEN DO NOTHING;
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN MATCHED THEN UPDATE SET nothing = 1;
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = s.nothing;
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = 'x';
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN NOT MATCHED THEN INSERT VALUES (1, 'b', 3);
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN NOT MATCHED THEN INSERT (nothing) VALUES (1);
MERGE INTO t USING (VALUES (1)) s(a) ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a) VALUES (nothing);
UPDATE t SET b = s.nothing FROM (VALUES (1)) s(a) WHERE t.a = s.a;
UPDATE t SET nothing = 1 FROM (VALUES (1)) s(a) WHERE t.a = s.a;
UPDATE t SET b = 'x' FROM nothing;
UPDATE t SET b = 'x' FROM (VALUES (1)) s(a) WHERE t.a = s.nothing;
UPDATE t SET b = 'x' FROM (VALUES (1)) s(a) WHERE t.a = s.a RETURNING s.nothing;
UPDATE t SET b = 'from' FROM (VALUES (1)) s(a) WHERE t.a = s.a;
DELETE FROM t USING (VALUES (1)) s(a) WHERE t.a = s.nothing;
CREATE ROLE :"db"; SET ROLE :"db";
INSERT INTO t VALUES (1);
UPDATE t SET b = '1';
DELETE FROM t;
RESET ROLE; DROP ROLE :"db";

-- The privileges to write columns are checked before the triggers fire.
CREATE ROLE role_of_triggers;
CREATE TABLE s (a int, b text);
GRANT SELECT ON s TO role_of_triggers;
GRANT SELECT, UPDATE (a), INSERT (a) ON t TO role_of_triggers;
SET ROLE role_of_triggers;
UPDATE t SET b = 'x';
UPDATE t SET a = a WHERE false;
INSERT INTO t (a, b) VALUES (1, 'x');
INSERT INTO t VALUES (1, 'x');
INSERT INTO t (a) SELECT a FROM s;
INSERT INTO t (a) SELECT a FROM s ON CONFLICT (a) DO UPDATE SET b = 'x';
DELETE FROM t;
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = s.b;
MERGE INTO t USING s ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (s.a, s.b);
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE;
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a);

-- So are the rights to read columns.
RESET ROLE;
CREATE TABLE o (x int, y text);
REVOKE ALL ON t FROM role_of_triggers;
GRANT SELECT (a), UPDATE (a), INSERT, DELETE ON t TO role_of_triggers;
SET ROLE role_of_triggers;
UPDATE t SET a = length(b);
UPDATE t SET a = 1 WHERE b = 'x';
UPDATE t SET a = (SELECT x FROM o);
UPDATE t SET a = x FROM o;
UPDATE t SET a = 1 WHERE a IN (SELECT a FROM s WHERE EXISTS (SELECT FROM o));
WITH w AS (SELECT x FROM o) UPDATE t SET a = x FROM w;
UPDATE t SET a = a + 0 RETURNING b;
UPDATE t SET a = a + 0 WHERE a IN (SELECT a FROM s) RETURNING a;
DELETE FROM t WHERE b = 'x';
DELETE FROM t USING o WHERE a = x;
INSERT INTO t (a) SELECT x FROM o;
INSERT INTO t (a) VALUES ((SELECT x FROM o)), (1);
INSERT INTO t (a, b) VALUES (2, DEFAULT) RETURNING b;
INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = length(t.b);
INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE t.b = 'x';
MERGE INTO t USING o ON t.a = o.x WHEN MATCHED THEN DELETE;
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED AND t.b = 'x' THEN DELETE;
MERGE INTO t USING s ON t.b = s.b WHEN MATCHED THEN DELETE;
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = length(t.b);
DO $$ BEGIN UPDATE t SET a = length(b); END $$;
RESET ROLE;
DROP OWNED BY role_of_triggers;
DROP ROLE role_of_triggers;
