-- Names of types, roles and defaults by oid. The oid is a column of the row, of an outer query or of a group, NULL, 0 or unknown.
CREATE SCHEMA "Odd One";
CREATE TYPE "Odd One"."select" AS ENUM ('a');
CREATE DOMAIN "Odd One".plain AS numeric(8,3);
CREATE SEQUENCE "Odd One"."it's";
CREATE SEQUENCE "Odd One".away;
CREATE SEQUENCE shown;
CREATE TABLE "Odd One"."table" (a "Odd One"."select", b "Odd One"."select"[], c "Odd One".plain, d numeric(5,2), e varchar(7)[], f timestamp(3), g interval hour to minute, i int DEFAULT nextval('"Odd One"."it''s"'), j bigint DEFAULT nextval('"Odd One".away') + 1, k bigint DEFAULT nextval('shown'), l text DEFAULT 'nextval(', m bit(3), n "char", o char(4));
SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, NULL), format_type(a.atttypid, -1), pg_get_expr(d.adbin, d.adrelid), pg_get_expr(d.adbin, d.adrelid, true) FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = '"Odd One"."table"'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SET search_path = "Odd One";
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = '"table"'::regclass AND a.attnum > 0 ORDER BY a.attnum;
RESET search_path;
SELECT t.typname, format_type(e.oid, t.typtypmod), format_type(t.typbasetype, t.typtypmod), format_type(t.typelem, NULL), pg_get_userbyid(t.typowner), pg_get_userbyid(t.typelem) LIKE 'unknown (OID=%)' FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem WHERE t.typname IN ('select', '_select', 'plain', 'table', '_table', 'int4', '_int4', 'pg_class', 'oidvector') ORDER BY 1;
SELECT format_type(a.atttypid, NULL), count(*) FROM pg_attribute a WHERE a.attrelid = '"Odd One"."table"'::regclass AND a.attnum > 0 GROUP BY a.atttypid ORDER BY 1;
SELECT string_agg(format_type(a.atttypid, a.atttypmod), '; ' ORDER BY a.attnum), min(pg_get_userbyid(c.relowner)) FROM pg_attribute a, pg_class c WHERE c.oid = a.attrelid AND c.relname = 'table' AND a.attnum > 0;
SELECT string_agg(format_type(a.atttypid, a.atttypmod), '; ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = '"Odd One"."table"'::regclass AND a.attnum > 0;
SELECT c.relname, pg_get_userbyid(c.relowner), (SELECT string_agg(format_type(a.atttypid, a.atttypmod) || pg_get_userbyid(c.relowner), '; ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) FROM pg_class c WHERE c.relname = 'table';
SELECT DISTINCT ON (pg_get_userbyid(n.nspowner)) pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname IN ('Odd One', 'pg_catalog') ORDER BY pg_get_userbyid(n.nspowner);
SELECT n.nspname FROM pg_namespace n WHERE pg_get_userbyid(n.nspowner) = current_user AND n.nspname IN ('Odd One', 'pg_catalog') ORDER BY format_type(n.nspowner, NULL), 1 LIMIT 5;
SELECT v.o, format_type(v.o, v.m), pg_get_userbyid(v.o) FROM (VALUES (0::oid, 3), (NULL::oid, 3), (1043::oid, 24), (1700::oid, 655366), (4294967295::oid, -1), (23::oid, 5)) v(o, m) JOIN pg_class c ON c.relname = 'pg_class' ORDER BY 1;
SELECT count(*), count(format_type(x.oid, NULL)) FROM pg_class c LEFT JOIN LATERAL (SELECT t.oid, format_type(t.oid, NULL) AS f FROM pg_type t WHERE t.typrelid = c.oid) x ON true WHERE c.relname IN ('table', 'shown');
SELECT conname, pg_get_constraintdef(oid), pg_get_constraintdef(oid, true) FROM pg_constraint WHERE contypid <> 0 AND connamespace = 'information_schema'::regnamespace ORDER BY 1;
DROP SCHEMA "Odd One" CASCADE;
DROP SEQUENCE shown;

-- Literals of these types in queries on tables.
CREATE TYPE planet AS ENUM ('venus', 'earth', 'mars');
SELECT enumlabel FROM pg_enum WHERE enumtypid = 'planet'::regtype ORDER BY enumlabel::planet;
CREATE TABLE named (a int);
INSERT INTO named VALUES (1);
SELECT 'int4'::regtype, 'int4'::regtype = a::oid, 'public.named'::regclass, 'named'::regclass::oid = 'public.named'::regclass FROM named;
SELECT 'pg_catalog'::regnamespace, 'postgres'::regrole, 'now'::regproc, 'int4[]'::regtype, '-'::regclass, '23'::regtype FROM named;
SELECT a FROM named WHERE tableoid::regclass = 'named'::regclass;
SELECT a FROM named WHERE 'nosuch'::regclass::oid > 5;
SELECT a FROM named WHERE 'nosuch'::regtype::oid > 5;
CREATE TABLE checked (a int CONSTRAINT own CHECK (a > 0 OR tableoid::regclass::text <> 'checked'));
INSERT INTO checked VALUES (1);
INSERT INTO checked VALUES (0);
DROP TABLE checked, named;
DROP TYPE planet;
-- a text that is not a literal
CREATE TABLE "Mixed" (a int); CREATE TABLE plain (a int);
SELECT 'plain'::text::regclass, 'PLAIN'::text::regclass, 'public.plain'::text::regclass, '"Mixed"'::text::regclass, NULL::text::regclass;
SELECT relname FROM pg_class WHERE oid = 'absent.plain'::text::regclass;
SELECT relname FROM pg_class WHERE oid = ('public.' || 'absent')::regclass;
SELECT 'Mixed'::text::regclass;
SELECT count(*) FROM (SELECT (quote_ident(schemaname) || '.' || quote_ident(tablename))::regclass::oid FROM pg_tables WHERE schemaname = 'public') t;
SELECT to_regclass('absent.plain'), 'integer'::text::regtype;
CREATE FUNCTION oid_of(text) RETURNS text LANGUAGE sql AS 'SELECT relname::text FROM pg_class WHERE oid = $1::regclass'; SELECT oid_of('plain'); SELECT oid_of('absent');

-- regprocedure: the name with the types of the arguments, and the schema if it is not visible
CREATE SCHEMA rp; CREATE FUNCTION rp.f(a int, b varchar(5)[], OUT c int) LANGUAGE sql AS 'SELECT 1'; CREATE FUNCTION rp."G g"() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE FUNCTION rp.now() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT oid::regprocedure, 'x' || oid::regprocedure, array[oid::regprocedure] FROM pg_proc WHERE pronamespace = 'rp'::regnamespace ORDER BY proname;
SELECT oid::regprocedure FROM pg_proc WHERE proname IN ('now', 'abs', 'format') AND pronamespace = 11 ORDER BY 1;
SET search_path = rp, pg_catalog;
SELECT oid::regprocedure FROM pg_proc WHERE proname IN ('now', 'G g') ORDER BY oid;
RESET search_path;
SELECT 0::regprocedure, 999::regprocedure, aggtransfn::regprocedure FROM pg_aggregate WHERE aggfnoid = 'bool_and'::regproc;
DROP SCHEMA rp CASCADE;
-- Queries that read system relations and tables compare and cast the names of oids as the catalogs do.
CREATE TABLE parts (a integer) PARTITION BY RANGE (a);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (10);
CREATE TABLE one (id integer, name text);
INSERT INTO one VALUES (1);
SELECT relname, level, id FROM pg_partition_tree('parts') tree JOIN pg_class c ON c.oid = tree.relid, one ORDER BY 1;
SELECT level, id FROM pg_partition_tree('parts') tree, one WHERE tree.relid::oid > 0 ORDER BY 1;
SELECT tree.relid, id FROM pg_partition_tree('parts') tree LEFT JOIN one ON tree.relid = 'part'::regclass ORDER BY level;
SELECT count(*), sum(level) FROM pg_partition_tree('parts') tree, one WHERE tree.relid IN ('one'::regclass, 'part'::regclass);
SELECT count(*) FROM one WHERE tableoid = ANY ('{parts,one}'::regclass[]);
SELECT typname, id FROM pg_type JOIN pg_proc p ON p.oid = typinput, one WHERE typname = 'int4';
INSERT INTO one SELECT 2, typname FROM pg_type WHERE typinput = 'int4in'::regproc RETURNING *;
DELETE FROM one WHERE name IN (SELECT typname FROM pg_type WHERE typinput = 'int4in'::regproc) RETURNING id;
UPDATE one SET id = 3 WHERE EXISTS (SELECT FROM pg_type WHERE typinput = 'int4in'::regproc) RETURNING id;
