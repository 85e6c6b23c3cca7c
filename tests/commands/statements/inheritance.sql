-- Tables that inherit: their rows are rows of the parent too, and ONLY leaves them out.
CREATE TABLE parent (a int, b text DEFAULT 'b', CHECK (a > 0));
CREATE TABLE child (c int, a int) INHERITS (parent);
\d child
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (2, 'two', 22), (3, 'three', 33);
INSERT INTO child (a) VALUES (0);
SELECT a, b, tableoid::regclass FROM parent ORDER BY a;
SELECT a, b FROM ONLY parent;
UPDATE parent SET b = b || '!' WHERE a < 3 RETURNING a, b, tableoid::regclass;
DELETE FROM parent WHERE a = 3;
SELECT * FROM child;
COPY parent TO STDOUT;
TRUNCATE ONLY parent;
SELECT * FROM parent;
DROP TABLE parent;
-- A row of the child as a row of the parent.
CREATE TABLE grandchild (d int) INHERITS (child);
CREATE TABLE apart (a int, b text);
INSERT INTO grandchild (a, d) VALUES (5, 55);
INSERT INTO apart VALUES (1, 'x');
SELECT child::parent, (child::parent).b FROM child ORDER BY 1;
SELECT grandchild::child, grandchild::parent, grandchild FROM grandchild;
SELECT child::parent IS NULL FROM (VALUES (1)) v LEFT JOIN child ON false;
SELECT apart::parent FROM apart;
SELECT parent::child FROM parent;
DROP TABLE grandchild;
-- Row triggers with transition tables are not for children.
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER t AFTER INSERT ON child REFERENCING NEW TABLE AS n FOR EACH ROW EXECUTE FUNCTION nothing();
CREATE TRIGGER t AFTER INSERT ON child REFERENCING NEW TABLE AS n EXECUTE FUNCTION nothing();
CREATE TRIGGER t AFTER INSERT ON apart REFERENCING NEW TABLE AS n FOR EACH ROW EXECUTE FUNCTION nothing();
ALTER TABLE apart INHERIT parent;
CREATE TABLE divided (a int, b text) PARTITION BY LIST (a);
ALTER TABLE divided ATTACH PARTITION apart DEFAULT;
DROP TABLE parent, child;
-- the partition key of a partition below; temporary tables and permanent ones
CREATE TABLE divided (a int, b char) PARTITION BY LIST (a);
CREATE TABLE part PARTITION OF divided FOR VALUES IN (1) PARTITION BY LIST (b);
ALTER TABLE divided DROP COLUMN b; ALTER TABLE divided ALTER COLUMN b TYPE text; ALTER TABLE divided DROP COLUMN IF EXISTS c;
CREATE TEMP TABLE passing (a int, b char) PARTITION BY LIST (a); CREATE TABLE permanent (a int, b char); CREATE TEMP TABLE passing2 (a int, b char);
ALTER TABLE passing ATTACH PARTITION permanent DEFAULT; ALTER TABLE divided ATTACH PARTITION passing2 DEFAULT; ALTER TABLE passing ATTACH PARTITION passing2 DEFAULT;
CREATE TABLE permanent2 PARTITION OF passing FOR VALUES IN (1); CREATE TEMP TABLE passing3 PARTITION OF divided FOR VALUES IN (2);
DROP TABLE divided, passing, permanent;
-- temporary tables at the end of a transaction
BEGIN; CREATE TEMP TABLE divided (a int) PARTITION BY LIST (a) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE part1 PARTITION OF divided FOR VALUES IN (1) ON COMMIT PRESERVE ROWS; CREATE TEMP TABLE part2 PARTITION OF divided FOR VALUES IN (2) ON COMMIT DROP;
INSERT INTO divided VALUES (1), (2); COMMIT; SELECT * FROM divided; SELECT * FROM part2;
BEGIN; INSERT INTO divided VALUES (1); PREPARE TRANSACTION 'temporary'; BEGIN; DROP TABLE divided; PREPARE TRANSACTION 'temporary';
BEGIN; CREATE TEMP TABLE divided2 (a int) PARTITION BY LIST (a); PREPARE TRANSACTION 'temporary'; SELECT * FROM divided;
