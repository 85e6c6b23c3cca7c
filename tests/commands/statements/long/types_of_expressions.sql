-- Objects whose expressions use a type depend on it, and follow a new label.
CREATE TYPE mood AS ENUM ('sad','ok');
CREATE TABLE dt (i int, m mood DEFAULT 'ok' CHECK (m <> 'sad'), x text DEFAULT ('sad'::mood)::text CHECK (x <> ('ok'::mood)::text), y text);
CREATE INDEX dtj ON dt (i) WHERE m = 'ok';
CREATE VIEW dv AS SELECT i FROM dt WHERE m = 'ok';
CREATE VIEW dw AS SELECT 'ok'::mood::text AS a;
CREATE FUNCTION df(a text DEFAULT ('ok'::mood)::text) RETURNS text LANGUAGE sql AS 'SELECT a';
CREATE DOMAIN dd AS text CHECK (VALUE <> ('ok'::mood)::text);
CREATE TABLE dp (a int, z text);
ALTER TABLE dp ENABLE ROW LEVEL SECURITY;
CREATE POLICY pp ON dp USING (z <> ('ok'::mood)::text);
DROP TYPE mood;
BEGIN;
DROP TYPE mood CASCADE;
\d dt
ROLLBACK;
ALTER TYPE mood RENAME VALUE 'ok' TO 'fine';
\d dt
SELECT pg_get_viewdef('dw'), pg_get_function_arguments('df'::regproc);
SELECT * FROM dw;
SELECT df();
INSERT INTO dt (i) VALUES (1);
SELECT * FROM dv;
CREATE TABLE bounded (m mood, i int) PARTITION BY RANGE (m, i);
CREATE TABLE bounded_a PARTITION OF bounded FOR VALUES FROM ('sad', 1) TO ('fine', MAXVALUE);
CREATE TABLE listed (m mood) PARTITION BY LIST (m);
CREATE TABLE listed_a PARTITION OF listed FOR VALUES IN ('sad', 'fine');
ALTER TYPE mood RENAME VALUE 'sad' TO 'it''s';
\d+ bounded_a
\d+ listed_a
INSERT INTO listed VALUES ('it''s'), ('fine');
SELECT * FROM listed ORDER BY m;
DROP TYPE mood;
DROP TYPE mood CASCADE;
\d listed
CREATE FUNCTION three() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3';
CREATE DOMAIN small AS int DEFAULT three() CHECK (VALUE < three() + 10);
CREATE TABLE of_small (a small, b small, c int);
DROP FUNCTION three();
DROP FUNCTION three() CASCADE;
\d of_small
