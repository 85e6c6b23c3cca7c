-- Foreign keys of partitioned tables and partitions: declared, cloned, attached, checked, enforced, dropped.
\set VERBOSITY verbose
\set SHOW_CONTEXT never
CREATE TABLE c (id int PRIMARY KEY, u int UNIQUE);
INSERT INTO c SELECT g, g*10 FROM generate_series(1, 20) g;
CREATE TABLE p (k int, cid int REFERENCES c, v text) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 (v text, cid int, k int);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (40) PARTITION BY LIST (k);
CREATE TABLE p3a PARTITION OF p3 DEFAULT;
SELECT conrelid::regclass, conname, confrelid::regclass, conislocal, coninhcount, connoinherit, conparentid <> 0 AS cloned, conkey, confkey FROM pg_constraint WHERE contype = 'f' ORDER BY conrelid::regclass::text, conname;
INSERT INTO p VALUES (1, 1, 'a'), (11, 2, 'b'), (21, 3, 'c'), (2, NULL, 'n');
INSERT INTO p VALUES (1, 99, 'a');
INSERT INTO p VALUES (12, 98, 'a');
INSERT INTO p VALUES (22, 97, 'a');
INSERT INTO p1 VALUES (3, 96, 'a');
INSERT INTO p VALUES (3, 1, 'ok'), (13, 77, 'a'), (4, 2, 'b');
UPDATE p SET cid = 50 WHERE k = 11;
UPDATE p SET k = 12 WHERE k = 11;
UPDATE p SET k = k + 10, cid = 60 WHERE k = 1;
UPDATE p SET k = k + 10 WHERE k = 1;
UPDATE p3 SET cid = 61;
DELETE FROM c WHERE id = 1;
DELETE FROM c WHERE id = 20;
UPDATE c SET id = 100 WHERE id = 2;
TRUNCATE c;
TRUNCATE c, p;
SELECT count(*) FROM c;
INSERT INTO c SELECT g, g*10 FROM generate_series(1, 20) g;
COPY p FROM STDIN;
1	1	x
11	2	y
21	3	z
\.
COPY p FROM STDIN;
1	1	x
15	200	y
\.
ALTER TABLE p1 DROP CONSTRAINT p_cid_fkey;
ALTER TABLE p1 ALTER CONSTRAINT p_cid_fkey DEFERRABLE;
ALTER TABLE p ALTER CONSTRAINT p_cid_fkey DEFERRABLE INITIALLY DEFERRED;
BEGIN; INSERT INTO p VALUES (5, 300, 'later'); INSERT INTO c VALUES (300, 3000); COMMIT;
BEGIN; INSERT INTO p VALUES (5, 301, 'later'); COMMIT;
BEGIN; SET CONSTRAINTS p_cid_fkey IMMEDIATE; INSERT INTO p VALUES (15, 302, 'later'); COMMIT;
SELECT * FROM p ORDER BY k, cid;
ALTER TABLE p DROP CONSTRAINT p_cid_fkey;
SELECT count(*) FROM pg_constraint WHERE contype = 'f';
ALTER TABLE p ADD CONSTRAINT f FOREIGN KEY (cid) REFERENCES c (id) ON DELETE CASCADE ON UPDATE CASCADE NOT VALID;
ALTER TABLE ONLY p ADD CONSTRAINT f FOREIGN KEY (cid) REFERENCES c (id);
ALTER TABLE p ADD CONSTRAINT f FOREIGN KEY (cid) REFERENCES c (id) ON DELETE CASCADE ON UPDATE CASCADE;
DELETE FROM c WHERE id = 1;
UPDATE c SET id = 222 WHERE id = 2;
SELECT * FROM p ORDER BY k, cid;
ALTER TABLE p DETACH PARTITION p2;
SELECT conrelid::regclass, conname, conislocal, coninhcount, connoinherit, conparentid <> 0 AS cloned FROM pg_constraint WHERE contype = 'f' ORDER BY conrelid::regclass::text, conname;
INSERT INTO p2 VALUES ('x', 400, 1);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
SELECT conrelid::regclass, conname, conislocal, coninhcount, connoinherit, conparentid <> 0 AS cloned FROM pg_constraint WHERE contype = 'f' ORDER BY conrelid::regclass::text, conname;
ALTER TABLE p DETACH PARTITION p2;
ALTER TABLE p2 DROP CONSTRAINT f;
INSERT INTO p2 VALUES ('x', 400, 11);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
DELETE FROM p2 WHERE cid = 400;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
\d p
\d p1
\d p3a
\d c
DROP TABLE c;
DROP TABLE p1;
SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = 'f' ORDER BY conrelid::regclass::text, conname;
INSERT INTO p VALUES (21, 500, '');
DROP TABLE c CASCADE;
SELECT count(*) FROM pg_constraint WHERE contype = 'f';
CREATE TABLE c2 (id int PRIMARY KEY);
ALTER TABLE p3a ADD CONSTRAINT own FOREIGN KEY (cid) REFERENCES c2;
DELETE FROM p;
ALTER TABLE p3a ADD CONSTRAINT own FOREIGN KEY (cid) REFERENCES c2;
INSERT INTO p VALUES (22, 1, '');
ALTER TABLE p ADD FOREIGN KEY (cid) REFERENCES c2;
SELECT conrelid::regclass, conname, conislocal, coninhcount, connoinherit, conparentid <> 0 AS cloned FROM pg_constraint WHERE contype = 'f' ORDER BY conrelid::regclass::text, conname;
INSERT INTO c2 VALUES (1);
INSERT INTO p VALUES (22, 1, '') RETURNING *;
INSERT INTO p VALUES (22, 2, '') ON CONFLICT DO NOTHING;
-- many rows, which Spark processes
INSERT INTO c2 SELECT g FROM generate_series(3, 20000) g;
INSERT INTO p SELECT g % 40, g, 'many' FROM generate_series(3, 20000) g;
INSERT INTO p SELECT g % 40, g, 'many' FROM generate_series(3, 20001) g;
UPDATE p SET cid = cid + 1;
UPDATE p SET cid = 1, k = (k + 10) % 40;
SELECT k, count(*), sum(cid) FROM p WHERE k % 10 = 0 GROUP BY k ORDER BY k;
DELETE FROM c2;
DROP TABLE p;
DROP TABLE c2;
