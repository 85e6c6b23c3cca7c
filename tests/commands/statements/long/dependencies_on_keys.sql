-- a view whose columns depend on a primary key
CREATE TABLE t (a int PRIMARY KEY, b int, c text);
CREATE TABLE r (a int REFERENCES t);
CREATE VIEW grouped AS SELECT a, b, count(*) FROM t GROUP BY a;
CREATE VIEW reader AS SELECT count(*) FROM grouped;
CREATE VIEW inside AS SELECT 1 AS x WHERE EXISTS (SELECT b FROM t GROUP BY a);
CREATE VIEW complete AS SELECT a, count(*) FROM t GROUP BY a;
ALTER TABLE t DROP CONSTRAINT t_pkey;
SELECT classid::regclass, refclassid::regclass, deptype, count(*) FROM pg_depend WHERE refobjid = (SELECT oid FROM pg_constraint WHERE conname = 't_pkey') GROUP BY 1, 2, 3 ORDER BY 1;
ALTER TABLE t DROP COLUMN c;
ALTER TABLE t DROP COLUMN a;
CREATE OR REPLACE VIEW grouped AS SELECT a, max(b) AS b, count(*) FROM t GROUP BY a;
ALTER TABLE t DROP CONSTRAINT t_pkey;
ALTER TABLE t DROP CONSTRAINT t_pkey CASCADE;
SELECT * FROM reader; SELECT * FROM inside;
DROP TABLE t CASCADE;
CREATE TABLE d (a int PRIMARY KEY DEFERRABLE, b int);
SELECT a, b FROM d GROUP BY a;
