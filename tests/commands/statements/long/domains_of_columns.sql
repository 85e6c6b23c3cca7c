-- domains of columns and of the elements of arrays; a row of a subquery in SET; CREATE TABLE ... ON COMMIT ... AS
CREATE DOMAIN vc4 AS varchar(4); CREATE TABLE vt (f vc4[]); INSERT INTO vt VALUES (array['too long']); INSERT INTO vt VALUES ('{too long}'); SELECT * FROM vt;
SELECT array['too long']::vc4[]; SELECT 'too long'::vc4; SELECT '{too long}'::vc4[];
CREATE DOMAIN num AS numeric(4,2); SELECT array[121.00]::num[]; CREATE TABLE nt (f num[]); INSERT INTO nt VALUES (array[121.00]); SELECT 12.345::num, array[12.345]::num[];
CREATE DOMAIN sd AS text NOT NULL; CREATE TABLE dt (a int); INSERT INTO dt VALUES (1); ALTER TABLE dt ADD c sd;
CREATE DOMAIN sd2 AS text CHECK (value <> 'foo') DEFAULT 'foo'; ALTER TABLE dt ADD d sd2; SELECT * FROM dt;
CREATE DOMAIN short AS varchar(3); CREATE TABLE shorts (id int PRIMARY KEY, f short[]); INSERT INTO shorts VALUES (1, ARRAY['abc']::text[]), (2, ARRAY['abcd']::text[]);
INSERT INTO shorts SELECT 3, ARRAY[repeat('x', 4)]; INSERT INTO shorts SELECT 4, ARRAY[repeat('x', 4)]::short[]; UPDATE shorts SET f = f || 'long'::text; SELECT * FROM shorts;
CREATE TABLE r (a int, b int); INSERT INTO r VALUES (1, 2), (3, 4);
UPDATE r SET (b, a) = (SELECT a + 1, b FROM r);
UPDATE r SET (b, a) = (SELECT x.a + 1, x.b FROM r x WHERE x.a = r.a);
SELECT * FROM r ORDER BY 1, 2;
UPDATE r SET (b, a) = (SELECT 1, 2, 3);
UPDATE r SET (b, a) = (SELECT 1);
UPDATE r SET (b, a) = (v.*) FROM (VALUES (1, 2)) v (x, y);
UPDATE r SET (a, b) = (SELECT 7, NULL) WHERE a = 2; UPDATE r SET (a, b) = (SELECT 1, 2 WHERE false) WHERE a = 4; SELECT * FROM r ORDER BY 1, 2;
INSERT INTO r VALUES (9, 9); UPDATE r SET (a, b) = (SELECT max(x.a) + r.b, count(*) FROM r x WHERE x.a <= r.a) WHERE b = 9; SELECT * FROM r ORDER BY 1, 2;
MERGE INTO r USING (VALUES (18)) s(k) ON a = k WHEN MATCHED THEN UPDATE SET (a, b) = (SELECT k + 1, 5); SELECT * FROM r ORDER BY 1, 2;
CREATE TABLE kr (k int PRIMARY KEY, v text, w int); INSERT INTO kr VALUES (1, 'a', 1);
INSERT INTO kr VALUES (1, 'b', 2) ON CONFLICT (k) DO UPDATE SET (v, w) = (SELECT kr.v || excluded.v, kr.w + excluded.w) RETURNING *;
CREATE TEMP TABLE tt (a) ON COMMIT DELETE ROWS AS SELECT 1;
BEGIN; CREATE TEMP TABLE tt2 (a) ON COMMIT DROP AS SELECT 1; SELECT * FROM tt2; COMMIT; SELECT * FROM tt2;
SELECT * FROM tt;
-- A domain that DROP names is not one of the objects that depend on another.
CREATE DOMAIN over_none AS int; CREATE DOMAIN over_one AS over_none; CREATE DOMAIN over_two AS over_one;
CREATE TABLE of_domains (a over_two, b over_none);
DROP DOMAIN over_none, over_two;
DROP DOMAIN over_none, over_one;
DROP DOMAIN over_none, over_two CASCADE;
-- A domain over a domain takes its default when it is created.
CREATE DOMAIN dom1 AS int DEFAULT 5 CHECK (VALUE > 0);
CREATE DOMAIN dom2 AS dom1;
ALTER DOMAIN dom1 SET DEFAULT 9;
CREATE TABLE td (a dom1, b dom2, z int);
INSERT INTO td (z) VALUES (1); SELECT * FROM td;
ALTER DOMAIN dom2 DROP DEFAULT; INSERT INTO td (z) VALUES (2); SELECT * FROM td ORDER BY z;
SELECT typname, typdefault FROM pg_type WHERE typname IN ('dom1', 'dom2') ORDER BY 1;
CREATE DOMAIN dom3 AS dom1 DEFAULT NULL; ALTER TABLE td ADD c dom3; INSERT INTO td (z) VALUES (3); SELECT * FROM td ORDER BY z;
CREATE DOMAIN dom4 AS dom1 CHECK (VALUE < 100) NOT NULL;
CREATE DOMAIN dom5 AS dom4;
CREATE TABLE te (a dom4, b dom5, z int);
INSERT INTO te (z) VALUES (1); SELECT * FROM te;
INSERT INTO te (a) VALUES (-1);
INSERT INTO te (b) VALUES (NULL);
\dD dom*
-- NOT VALID, VALIDATE and RENAME of a constraint, and the place in an error
CREATE DOMAIN things AS integer; CREATE TABLE of_things (a things); INSERT INTO of_things VALUES (55);
ALTER DOMAIN things ADD CONSTRAINT below CHECK (VALUE < 11);
ALTER DOMAIN things ADD CONSTRAINT below CHECK (VALUE < 11) NOT VALID;
INSERT INTO of_things VALUES (12); ALTER DOMAIN things ADD CONSTRAINT above CHECK (VALUE > 9); ALTER DOMAIN things SET NOT NULL;
SELECT conname, convalidated, pg_get_constraintdef(oid) FROM pg_constraint WHERE contypid = 'things'::regtype ORDER BY conname;
ALTER DOMAIN things VALIDATE CONSTRAINT below; ALTER DOMAIN things VALIDATE CONSTRAINT absent;
UPDATE of_things SET a = 10; ALTER DOMAIN things VALIDATE CONSTRAINT below; ALTER DOMAIN things VALIDATE CONSTRAINT below;
ALTER DOMAIN things RENAME CONSTRAINT below TO above; ALTER DOMAIN things RENAME CONSTRAINT absent TO x;
ALTER DOMAIN things RENAME CONSTRAINT below TO under; ALTER TYPE things RENAME CONSTRAINT below TO under; ALTER DOMAIN absent RENAME CONSTRAINT a TO b;
INSERT INTO of_things VALUES (12); SELECT conname, convalidated FROM pg_constraint WHERE contypid = 'things'::regtype ORDER BY conname;
-- A composite type contains values of the domain
CREATE DOMAIN inside AS integer; CREATE TYPE holder AS (a inside); CREATE TABLE of_holders (h holder[]); INSERT INTO of_holders VALUES (ARRAY[ROW(-1)::holder]);
ALTER DOMAIN inside ADD CHECK (VALUE > 0); ALTER DOMAIN inside SET NOT NULL; DROP TABLE of_holders; ALTER DOMAIN inside ADD CHECK (VALUE > 0);
