-- Types, functions and schemas can be renamed and moved while expressions and views use them.
\i tests/commands/user_defined.sql
INSERT INTO app.t (id, m, d) VALUES (6, 'sad', 1);
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
SELECT apps.with_defaults();
ALTER FUNCTION other."Odd Name"(int, int) RENAME TO "Odd Name";
CREATE FUNCTION other.double(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION apps.double(int) SET SCHEMA other;
DROP FUNCTION other."Odd Name"(int, int);
DROP FUNCTION apps.double(int);
