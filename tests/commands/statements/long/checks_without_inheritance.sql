-- NO INHERIT of CHECK constraints: stored, rejected for partitioned tables, and in conflict with a constraint of the partitioned table.
CREATE TABLE alone (a int CHECK (a > 0) NO INHERIT, b int, CONSTRAINT bb CHECK (b > 0) NO INHERIT);
SELECT conname, connoinherit, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'alone'::regclass ORDER BY 1;
INSERT INTO alone VALUES (0, 1);
CREATE TABLE parted (a int, CHECK (a>0) NO INHERIT) PARTITION BY LIST (a);
CREATE TABLE parted (a int CHECK (a>0)) PARTITION BY LIST (a);
ALTER TABLE parted ADD CONSTRAINT c CHECK (a < 10) NO INHERIT;
CREATE TABLE parted1 PARTITION OF parted FOR VALUES IN (1);
ALTER TABLE parted1 ADD CONSTRAINT c CHECK (a < 10) NO INHERIT;
ALTER TABLE parted ADD CONSTRAINT c CHECK (a < 10);
\d alone
\d parted1
CREATE TABLE copied (LIKE alone INCLUDING ALL);
\d copied
CREATE TABLE other (a int, CONSTRAINT parted_a_check CHECK (a > 0) NO INHERIT);
ALTER TABLE parted ATTACH PARTITION other FOR VALUES IN (2);
ALTER TABLE other DROP CONSTRAINT parted_a_check, ADD CONSTRAINT parted_a_check CHECK (a > 0);
ALTER TABLE parted ATTACH PARTITION other FOR VALUES IN (2);
