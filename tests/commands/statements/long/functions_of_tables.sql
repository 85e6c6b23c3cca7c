CREATE TABLE t (a int PRIMARY KEY, b text);
INSERT INTO t VALUES (1,'x'),(2,'y');
CREATE FUNCTION twice(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 2';
CREATE FUNCTION good(x int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN x > 0; END $$;
CREATE FUNCTION vol(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN x; END $$;
CREATE FUNCTION made() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 'made'; END $$;
CREATE TABLE u (a int PRIMARY KEY, b text DEFAULT made(), g int GENERATED ALWAYS AS (twice(a)) STORED, CHECK (good(a)));
INSERT INTO u (a) VALUES (1), (2);
INSERT INTO u (a) VALUES (-1);
INSERT INTO u (a) SELECT a + 10 FROM t;
UPDATE u SET a = a + 100 WHERE a = 2;
UPDATE u SET a = -5 WHERE a = 1;
SELECT * FROM u ORDER BY a;
COPY u (a) FROM stdin;
201
202
\.
SELECT * FROM u ORDER BY a;
CREATE TABLE w (a int, g int GENERATED ALWAYS AS (vol(a)) STORED);
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'u'::regclass ORDER BY 1;
SELECT adnum, pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'u'::regclass ORDER BY 1;
CREATE VIEW v AS SELECT a, twice(a) AS d FROM t WHERE good(a);
SELECT * FROM v ORDER BY a;
SELECT pg_get_viewdef('v'::regclass);
CREATE INDEX i ON t (twice(a));
CREATE INDEX j ON t (vol(a));
CREATE UNIQUE INDEX k ON t (twice(a % 2)) WHERE good(a);
SELECT pg_get_indexdef('i'::regclass);
CREATE VIEW over_v AS SELECT d FROM v;
ALTER TABLE t ADD CHECK (good(a));
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (twice(a) > 2) WITH CHECK (good(a));
SELECT polname, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid) FROM pg_policy;
DROP FUNCTION made();
DROP FUNCTION good(int);
DROP FUNCTION twice(int);
ALTER TABLE u ALTER b DROP DEFAULT;
DROP FUNCTION made();
CREATE DOMAIN dom AS int CHECK (good(VALUE));
SELECT 5::dom;
DROP FUNCTION good(int) CASCADE;
DROP FUNCTION twice(int) CASCADE;
\d u
\d t
SELECT * FROM u ORDER BY a;
