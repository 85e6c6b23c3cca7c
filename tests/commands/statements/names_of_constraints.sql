-- names of constraints
CREATE TABLE nc (a int CONSTRAINT foo CHECK (a > 0), b int);
ALTER TABLE nc ADD CONSTRAINT foo UNIQUE (b);
CREATE TABLE nc2 (a int, CONSTRAINT foo CHECK (a > 0), CONSTRAINT foo UNIQUE (a));
CREATE UNIQUE INDEX foo ON nc (b);
ALTER TABLE nc ADD CONSTRAINT foo2 UNIQUE (b);
ALTER TABLE nc ADD CONSTRAINT foo2 CHECK (b > 0);
ALTER TABLE nc ADD CONSTRAINT bar UNIQUE USING INDEX foo;
ALTER TABLE nc RENAME CONSTRAINT foo2 TO foo;
ALTER TABLE nc ADD CONSTRAINT c2 CHECK (b > 1);
ALTER TABLE nc RENAME CONSTRAINT c2 TO foo;
ALTER TABLE nc RENAME CONSTRAINT c2 TO c3;
ALTER INDEX bar RENAME TO foo;
ALTER INDEX bar RENAME TO baz;
SELECT conname FROM pg_constraint WHERE conrelid = (SELECT oid FROM pg_class WHERE relname = 'nc') ORDER BY 1;
\d nc
-- the index of a foreign key belongs to the referenced table
CREATE TABLE ne (a int PRIMARY KEY);
CREATE TABLE nd (a int CONSTRAINT nd_key REFERENCES ne);
ALTER TABLE nd RENAME CONSTRAINT nd_key TO ne_pkey;
ALTER TABLE nd RENAME CONSTRAINT ne_pkey TO nd_key2;
SELECT relname FROM pg_class WHERE relkind = 'i' AND relname LIKE 'n%' ORDER BY 1;
SELECT conname FROM pg_constraint WHERE contype = 'f' ORDER BY 1;
-- a generated name is not that of another constraint in the schema
CREATE TABLE nf (a int, CONSTRAINT nf_pkey CHECK (a > 0), PRIMARY KEY (a)); ALTER TABLE nf ADD CONSTRAINT nf_a_key CHECK (a > 1);
ALTER TABLE nf ADD UNIQUE (a), ADD CONSTRAINT nf_a_idx CHECK (a > 2); CREATE INDEX ON nf (a);
SELECT relname FROM pg_class WHERE relkind = 'i' AND relname LIKE 'nf%' ORDER BY 1;
-- one index for equal keys of a definition
CREATE TABLE ng (a int UNIQUE PRIMARY KEY, b int UNIQUE, UNIQUE (b), CONSTRAINT ng_b UNIQUE (b), UNIQUE (b, a), UNIQUE (a, b), UNIQUE (b) INCLUDE (a), UNIQUE (b) DEFERRABLE);
CREATE TABLE nh (a int, CONSTRAINT k UNIQUE (a), PRIMARY KEY (a)); ALTER TABLE nh ADD b int UNIQUE UNIQUE;
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('ng'::regclass, 'nh'::regclass) ORDER BY 1;
