-- sequences: CYCLE, CACHE, bounds of the type, and the effect of DISCARD
CREATE SEQUENCE q MAXVALUE 3 CYCLE; SELECT nextval('q'), nextval('q'), nextval('q'), nextval('q');
SELECT nextval('q'); SELECT nextval('q'); SELECT nextval('q');
CREATE SEQUENCE q2 INCREMENT 4 START 5; ALTER SEQUENCE q2 RESTART WITH 24 INCREMENT BY 4 MAXVALUE 36 MINVALUE 5 CYCLE;
SELECT nextval('q2'); SELECT nextval('q2'); SELECT nextval('q2'); SELECT nextval('q2'); SELECT nextval('q2');
ALTER SEQUENCE q2 RESTART WITH -24 START WITH -24 INCREMENT BY -4 MINVALUE -36 MAXVALUE -5 CYCLE;
SELECT nextval('q2'); SELECT nextval('q2'); SELECT nextval('q2'); SELECT nextval('q2'); SELECT nextval('q2');
CREATE SEQUENCE z CACHE 0;
CREATE SEQUENCE z CACHE 10;
\d z
CREATE SEQUENCE z1 OWNED BY nobody;
CREATE SEQUENCE z1 AS smallint MAXVALUE 100000;
CREATE SEQUENCE z1 AS smallint MINVALUE -100000;
CREATE SEQUENCE z1 AS smallint START 5 MINVALUE 10;
CREATE SEQUENCE z8 AS integer MAXVALUE 100000; ALTER SEQUENCE z8 AS smallint; ALTER SEQUENCE z8 AS smallint MAXVALUE 20000;
CREATE SEQUENCE z10 AS integer MINVALUE -100000; ALTER SEQUENCE z10 AS smallint;
SELECT nextval('z8'); DROP SEQUENCE z8; CREATE SEQUENCE z8; SELECT currval('z8'); SELECT lastval();
SELECT nextval('z8'); DISCARD SEQUENCES; SELECT currval('z8'); SELECT lastval();
CREATE TABLE cycled (id int, n int DEFAULT nextval('q')); ALTER SEQUENCE q RESTART;
INSERT INTO cycled SELECT i FROM generate_series(1, 8) i; INSERT INTO cycled VALUES (9), (10), (11); SELECT * FROM cycled ORDER BY id;
SELECT nextval('q'); DISCARD ALL; SELECT lastval();
CREATE TEMP TABLE kept (a int); CREATE TEMP SEQUENCE kept_too; DISCARD TEMP; SELECT * FROM kept; SELECT nextval('kept_too');
CREATE TEMP TABLE kept (a int); INSERT INTO kept VALUES (1); SELECT * FROM kept; BEGIN; DISCARD TEMP; ROLLBACK; SELECT * FROM kept; DISCARD ALL; SELECT * FROM kept;
-- currval and lastval return the number of their own row
CREATE SEQUENCE own;
CREATE TABLE own_numbers (x integer DEFAULT nextval('own'), y text, z integer DEFAULT -currval('own'));
INSERT INTO own_numbers (y) VALUES ('values'), ('values');
INSERT INTO own_numbers (y) SELECT 'select' FROM generate_series(1, 2);
INSERT INTO own_numbers VALUES (nextval('own'), 'called', currval('own')), (nextval('own'), 'called', lastval());
INSERT INTO own_numbers (x, z) VALUES (DEFAULT, DEFAULT), (0, DEFAULT), (DEFAULT, currval('own'));
INSERT INTO own_numbers (z) VALUES (currval('own')); INSERT INTO own_numbers (z, x) VALUES (lastval(), DEFAULT);
INSERT INTO own_numbers (y, z) VALUES ('list', currval('own')), ('list', currval('own'));
SELECT * FROM own_numbers ORDER BY x;
