-- Types, functions and schemas can be renamed and moved while expressions and views use them.
\i tests/commands/user_defined.sql
INSERT INTO app.t (id, m, d) VALUES (6, 'sad', 1);
CREATE DOMAIN app.nested AS app.mood DEFAULT 'sad';
CREATE DOMAIN app.nested_twice AS app.nested DEFAULT 'sad';
CREATE DOMAIN app.list AS app.mood[];
CREATE TYPE app.felt AS (m app.nested_twice, ms app.mood[], n int);
CREATE TABLE other.felt (
  n app.nested PRIMARY KEY, t app.nested_twice, l app.list, f app.felt, fs app.felt[] DEFAULT '{"(sad,\"{sad,ok}\",1)"}',
  d app.felt DEFAULT '(sad,{},3)', CHECK (d <> '(sad,{},4)'::app.felt)
);
INSERT INTO other.felt VALUES ('sad', 'sad', '{sad,NULL,ok}', '(sad,"{ok,sad}",1)'), ('ok', NULL, '{ok}', '(ok,,)');
CREATE TABLE other.nested (n app.nested, i int) PARTITION BY LIST (n);
CREATE TABLE other.nested_a PARTITION OF other.nested FOR VALUES IN ('sad');
INSERT INTO other.nested VALUES ('sad', 1);
CREATE VIEW other.felt_view AS SELECT n FROM other.felt WHERE f = '(sad,"{ok,sad}",1)'::app.felt AND fs <> '{"(sad,,)"}'::app.felt[];
ALTER FUNCTION app.twice(int) RENAME TO double;
ALTER TYPE app.mood RENAME TO feeling;
ALTER TYPE app.feeling RENAME VALUE 'sad' TO 'it''s blue';
ALTER DOMAIN app.posint RENAME TO positive;
ALTER TYPE app.pair SET SCHEMA other;
ALTER FUNCTION app.label(app.feeling) SET SCHEMA public;
ALTER FUNCTION app."Odd Name"(int, int) SET SCHEMA other;
ALTER SCHEMA app RENAME TO apps;
\d apps.t
\d other.v
\d+ apps.w
\sf apps.with_defaults
\df apps.*
\dD apps.*
\d+ other.part_a
INSERT INTO apps.t (id, m) VALUES (7, 'it''s blue'), (8, 'ok');
INSERT INTO apps.t (id, d) VALUES (9, -1);
SELECT id, m, ms, d, p, g, h, f, n FROM apps.t ORDER BY id;
SELECT a, m, l FROM other.v ORDER BY a;
INSERT INTO other.part (m, i) VALUES ('it''s blue', 1);
SELECT tableoid::regclass, * FROM other.part;
INSERT INTO other.felt VALUES ('it''s blue');
INSERT INTO other.felt VALUES (NULL), ('Happy one');
INSERT INTO other.felt (n, d) VALUES ('ok', '("it''s blue",{},4)');
SELECT * FROM other.felt ORDER BY n;
SELECT * FROM other.felt_view;
INSERT INTO other.nested VALUES (DEFAULT, 2);
SELECT tableoid::regclass, * FROM other.nested WHERE n::apps.feeling = 'it''s blue' ORDER BY i;
\d other.nested_a
\d other.felt
SELECT apps.with_defaults();
ALTER FUNCTION other."Odd Name"(int, int) RENAME TO "Odd Name";
CREATE FUNCTION other.double(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION apps.double(int) SET SCHEMA other;
DROP FUNCTION other."Odd Name"(int, int);
DROP FUNCTION apps.double(int);
