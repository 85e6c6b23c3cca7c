-- Triggers of foreign keys: rows of pg_trigger that ALTER TABLE disables and enables, each side by itself.
CREATE VIEW internal AS SELECT t.oid, tgrelid::regclass::text AS "table", regexp_replace(tgname, '\d+', 'N') AS name, tgfoid::regproc::text AS function, tgtype, tgenabled AS state,
    tgconstrrelid::regclass::text AS other, tgconstrindid::regclass::text AS index, conname, tgdeferrable AS d, tginitdeferred AS i, tgparentid <> 0 AS p
    FROM pg_trigger t JOIN pg_constraint k ON k.oid = tgconstraint WHERE tgisinternal;
CREATE FUNCTION said(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE command; RETURN 'done';
EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, '\d+', 'N'); END $$;
CREATE TABLE p (id int PRIMARY KEY);
CREATE TABLE c (a int REFERENCES p ON DELETE CASCADE ON UPDATE SET NULL, b int, CONSTRAINT d FOREIGN KEY (b) REFERENCES p DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE q (id int PRIMARY KEY, a int REFERENCES p) PARTITION BY RANGE (id);
CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (10);
CREATE TABLE q2 (id int PRIMARY KEY, a int, CONSTRAINT own FOREIGN KEY (a) REFERENCES p);
ALTER TABLE q ATTACH PARTITION q2 FOR VALUES FROM (10) TO (20);
SELECT "table", name, function, tgtype, state, other, index, conname, d, i, p FROM internal ORDER BY oid;
SELECT regexp_replace(pg_get_triggerdef(oid), '\d+', 'N') FROM pg_trigger WHERE tgisinternal AND tgrelid = 'c'::regclass ORDER BY oid;
SELECT deptype, refclassid::regclass, count(*) FROM pg_depend WHERE classid = 'pg_trigger'::regclass AND deptype = 'i' GROUP BY 1, 2;
ALTER TABLE c ALTER CONSTRAINT d NOT DEFERRABLE;
ALTER TABLE c ALTER CONSTRAINT c_a_fkey DEFERRABLE;
SELECT "table", function, conname, d, i FROM internal WHERE conname IN ('d', 'c_a_fkey') ORDER BY oid;
ALTER TABLE c ALTER CONSTRAINT c_a_fkey NOT DEFERRABLE;

-- the referencing side
INSERT INTO p SELECT generate_series(1, 9);
SELECT tgname AS ins FROM pg_trigger JOIN internal USING (oid) WHERE conname = 'c_a_fkey' AND function LIKE '%check_ins%' \gset
SELECT tgname AS del FROM pg_trigger JOIN internal USING (oid) WHERE conname = 'c_a_fkey' AND function LIKE '%cascade_del%' \gset
ALTER TABLE c DISABLE TRIGGER :"ins";
INSERT INTO c VALUES (100);
UPDATE c SET a = 101;
UPDATE c SET a = 1;
INSERT INTO c VALUES (102, 103);
ALTER TABLE c ENABLE TRIGGER :"ins", DISABLE TRIGGER "none";
ALTER TABLE c DISABLE TRIGGER ALL;
INSERT INTO c VALUES (104, 105);
UPDATE c SET a = 106 WHERE a = 104;
COPY c FROM stdin;
107	108
\.
DELETE FROM p WHERE id = 1;
SELECT * FROM c ORDER BY a;
SELECT conname, convalidated FROM pg_constraint WHERE conrelid = 'c'::regclass ORDER BY 1;
ALTER TABLE c ENABLE TRIGGER ALL;
INSERT INTO c VALUES (109);
DELETE FROM c;

-- the referenced side
INSERT INTO c VALUES (2, NULL), (3, 4), (NULL, 5);
ALTER TABLE p DISABLE TRIGGER :"del";
DELETE FROM p WHERE id = 2;
UPDATE p SET id = 30 WHERE id = 3;
DELETE FROM p WHERE id = 5;
SELECT * FROM c ORDER BY a, b;
ALTER TABLE p DISABLE TRIGGER ALL;
DELETE FROM p WHERE id = 4;
ALTER TABLE p ENABLE TRIGGER USER;
DELETE FROM p WHERE id = 5;
SELECT "table", state, count(*) FROM internal GROUP BY 1, 2 ORDER BY 1, 2;
INSERT INTO c VALUES (200);
ALTER TABLE p ENABLE TRIGGER ALL;
DELETE FROM p WHERE id = 6;
DELETE FROM c;

-- session_replication_role
ALTER TABLE c ENABLE REPLICA TRIGGER :"ins";
INSERT INTO c VALUES (201);
SET session_replication_role = replica;
INSERT INTO c VALUES (202);
INSERT INTO c VALUES (NULL, 202);
ALTER TABLE c ENABLE ALWAYS TRIGGER :"ins";
INSERT INTO c VALUES (203);
SET session_replication_role = origin;
INSERT INTO c VALUES (204);
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
ALTER TABLE c ALTER CONSTRAINT d DEFERRABLE;
SET CONSTRAINTS d DEFERRED;
INSERT INTO c VALUES (7, 205);
ALTER TABLE c DISABLE TRIGGER ALL;
ROLLBACK;

-- partitions
ALTER TABLE q DISABLE TRIGGER ALL;
INSERT INTO q VALUES (1, 300), (11, 300);
ALTER TABLE ONLY q ENABLE TRIGGER ALL;
INSERT INTO q VALUES (2, 301);
ALTER TABLE q2 ENABLE TRIGGER ALL;
INSERT INTO q VALUES (3, 302);
INSERT INTO q VALUES (12, 302);
UPDATE q SET id = 13 WHERE id = 1;
SELECT "table", state, count(*) FROM internal WHERE "table" LIKE 'q%' GROUP BY 1, 2 ORDER BY 1, 2;
ALTER TABLE q DETACH PARTITION q2;
SELECT "table", name, function, state, conname, p FROM internal ORDER BY name, conname, function, "table";
DELETE FROM q;
DELETE FROM p WHERE id = 7;

-- rights
CREATE ROLE owner_of_keys;
ALTER TABLE c OWNER TO owner_of_keys;
SET ROLE owner_of_keys;
SELECT said('ALTER TABLE c DISABLE TRIGGER ALL');
SELECT said('ALTER TABLE c DISABLE TRIGGER USER');
SELECT said(format('ALTER TABLE c DISABLE TRIGGER %I', :'ins'));
RESET ROLE;
SELECT said(format('DROP TRIGGER %I ON c', :'ins'));
ALTER TABLE c DROP CONSTRAINT d;
SELECT count(*) FROM internal WHERE conname = 'd';
DROP TABLE q, q2;
SELECT "table", name, other FROM internal ORDER BY oid;
DROP TABLE p CASCADE;
SELECT count(*) FROM internal;
DROP TABLE c;
DROP ROLE owner_of_keys;
