-- The dependencies in pg_depend, which programs show, and by which they find sequences, indexes and views.
CREATE TYPE mood AS ENUM ('a');
CREATE DOMAIN pos AS int CHECK (VALUE > 0);
CREATE TABLE parent (id int PRIMARY KEY, name text UNIQUE, m mood, p pos, CHECK (id > 0));
CREATE TABLE child (a bigint GENERATED ALWAYS AS IDENTITY, parent int REFERENCES parent ON DELETE CASCADE, s serial, ms mood[]);
CREATE SEQUENCE child_other;
CREATE INDEX plain ON child (parent, s);
CREATE UNIQUE INDEX including ON child (s) INCLUDE (a);
CREATE TABLE parted (k int, v text) PARTITION BY RANGE (v);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('a') TO ('b');
SELECT d.classid::regclass, coalesce(c.relname, k.conname, t.typname, ad.adrelid::regclass::text) AS object, objsubid, d.refclassid::regclass, coalesce(rc.relname, rk.conname, rt.typname, rn.nspname) AS needs, refobjsubid, deptype FROM pg_depend d LEFT JOIN pg_class c ON d.classid = 1259 AND c.oid = d.objid LEFT JOIN pg_constraint k ON d.classid = 2606 AND k.oid = d.objid LEFT JOIN pg_type t ON d.classid = 1247 AND t.oid = d.objid LEFT JOIN pg_attrdef ad ON d.classid = 2604 AND ad.oid = d.objid LEFT JOIN pg_class rc ON d.refclassid = 1259 AND rc.oid = d.refobjid LEFT JOIN pg_constraint rk ON d.refclassid = 2606 AND rk.oid = d.refobjid LEFT JOIN pg_type rt ON d.refclassid = 1247 AND rt.oid = d.refobjid LEFT JOIN pg_namespace rn ON d.refclassid = 2615 AND rn.oid = d.refobjid WHERE d.classid IN (1259, 2604, 2606) AND coalesce(c.relname, k.conname, ad.adrelid::regclass::text) ~ '^(parent|child|plain|incl|parted)' AND NOT (d.classid = 2606 AND k.contype = 'c' AND deptype = 'n') AND NOT (rc.relname = 'parted' AND refobjsubid = 0 AND objsubid > 0) ORDER BY 1, 2, 3, 4, 5, 6, 7;
SELECT t.typname, c.relname, d.deptype FROM pg_depend d JOIN pg_type t ON t.oid = d.objid JOIN pg_class c ON c.oid = d.refobjid WHERE d.classid = 'pg_type'::regclass AND d.refclassid = 'pg_class'::regclass AND c.relnamespace = 'public'::regnamespace ORDER BY 1;
SELECT seq.relname, tbl.relname, attr.attname FROM pg_sequence s JOIN pg_class seq ON seq.oid = s.seqrelid JOIN pg_depend dep ON dep.objid = seq.oid JOIN pg_class tbl ON tbl.oid = dep.refobjid JOIN pg_attribute attr ON attr.attrelid = tbl.oid AND attr.attnum = dep.refobjsubid WHERE dep.deptype IN ('a', 'i') ORDER BY 1;
ALTER TABLE child DROP COLUMN ms;
SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_type'::regclass AND refobjid = 'mood[]'::regtype;
-- What a role owns, and what others have in its schemas.
CREATE ROLE owner_of_contents;
CREATE SCHEMA owned_schema AUTHORIZATION owner_of_contents;
CREATE TYPE owned_type AS (a int); ALTER TYPE owned_type OWNER TO owner_of_contents;
CREATE DOMAIN owned_schema.d AS int; CREATE TYPE owned_schema.c AS (a int); CREATE TABLE owned_schema.t (a int, s serial);
CREATE TABLE owned_schema.p (a int) PARTITION BY LIST (a); CREATE TABLE owned_schema.p1 PARTITION OF owned_schema.p FOR VALUES IN (1);
CREATE FUNCTION owned_schema.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
DROP ROLE owner_of_contents;
DROP OWNED BY owner_of_contents;
DROP OWNED BY owner_of_contents CASCADE;
SELECT typname FROM pg_type WHERE typname IN ('owned_type', 'c', 'd');
DROP ROLE owner_of_contents;
