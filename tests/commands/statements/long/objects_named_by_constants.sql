-- Constants of type regclass, regtype, regproc and regnamespace follow the object that they name.
CREATE SCHEMA s;
CREATE SEQUENCE s.q;
CREATE SEQUENCE r;
CREATE TABLE s.t (a int);
CREATE TABLE "o'd\d" (a int);
CREATE TYPE s.mood AS ENUM ('a');
CREATE FUNCTION s.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TABLE bad (a int DEFAULT nextval('missing'));
CREATE TABLE bad (a int DEFAULT nextval('missing.q'));
CREATE TABLE bad (a oid CHECK (a <> 'missing'::regtype));
CREATE TABLE bad (a oid CHECK (a <> 's.missing'::regproc));
CREATE TABLE bad (a oid CHECK (a <> 'f'::regproc));
CREATE TABLE bad (a oid CHECK (a <> 'pg_monitor'::regrole));
CREATE VIEW bad AS SELECT 'pg_monitor'::regrole;
CREATE TABLE d (
  a int DEFAULT nextval('s.q'), b bigint DEFAULT nextval('r'::regclass) + 10, c text DEFAULT 's.t'::regclass::text,
  d text DEFAULT 's.mood[]'::regtype, e text DEFAULT nextval('r'::text), f text DEFAULT '"o''d\d"'::regclass, g oid DEFAULT '-'::regclass
);
CREATE TABLE c (
  a oid CHECK (a <> 's.t'::regclass AND a <> 's.mood'::regtype AND a <> 's.f'::regproc AND a <> 's'::regnamespace AND a <> 'int4'::regtype),
  g boolean GENERATED ALWAYS AS (a = 's.t'::regclass) STORED
);
CREATE INDEX c_i ON c (a, (a = 's.t'::regclass)) WHERE a <> 's.t'::regclass;
CREATE POLICY p ON c USING (a <> 's.t'::regclass);
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER g BEFORE INSERT ON c FOR EACH ROW WHEN (NEW.a = 's.t'::regclass) EXECUTE FUNCTION fires();
CREATE VIEW v AS SELECT 's.t'::regclass AS k, 's.mood'::regtype AS l, 's.f'::regproc AS m, 's'::regnamespace AS n;
CREATE VIEW w AS SELECT nextval('s.q') AS n;
CREATE FUNCTION args(a oid DEFAULT 's.t'::regclass, b bigint DEFAULT nextval('s.q')) RETURNS text LANGUAGE sql AS 'SELECT $1::text';
CREATE DOMAIN number AS bigint DEFAULT nextval('s.q');
CREATE TABLE numbered (id serial, n number);
\d d
\d c
ALTER SEQUENCE s.q RENAME TO q2;
ALTER TABLE s.t RENAME TO u;
ALTER FUNCTION s.f RENAME TO g;
ALTER TYPE s.mood RENAME TO feeling;
ALTER SCHEMA s RENAME TO s2;
ALTER SEQUENCE s2.q2 SET SCHEMA public;
ALTER SEQUENCE r SET SCHEMA s2;
ALTER SEQUENCE numbered_id_seq RENAME TO numbers;
\d d
\d c
\d+ v
\d numbered
SELECT pg_get_function_arguments('args'::regproc);
INSERT INTO d (e) VALUES ('x');
SELECT a, b, c, d, f, g FROM d;
\set VERBOSITY sqlstate
INSERT INTO c VALUES ('s2.u'::regclass);
\set VERBOSITY default
INSERT INTO c VALUES (1);
SELECT a, g FROM c WHERE a <> 's2.u'::regclass;
SELECT * FROM v;
SELECT * FROM w;
INSERT INTO numbered DEFAULT VALUES RETURNING *;
DROP SEQUENCE q2;
DROP TABLE s2.u;
\set VERBOSITY terse
DROP TYPE s2.feeling;
\set VERBOSITY default
DROP FUNCTION s2.g;
DROP SEQUENCE s2.r CASCADE;
DROP TABLE s2.u CASCADE;
DROP SCHEMA s2 CASCADE;
CREATE TABLE reader (a int DEFAULT nextval('numbers'));
DROP TABLE numbered;
DROP TABLE numbered CASCADE;
\d d
\d c
\d reader
-- A default may name the sequence of another column of the same CREATE TABLE.
CREATE TABLE ser (id serial, b int DEFAULT nextval('ser_id_seq'), c int GENERATED ALWAYS AS IDENTITY);
INSERT INTO ser DEFAULT VALUES;
SELECT * FROM ser;
CREATE TABLE ser2 (id serial, a int DEFAULT 'nosuch'::regclass);
SELECT count(*) FROM pg_class WHERE relname LIKE 'ser2%';
DROP TABLE ser;
