-- ALTER TABLE of tables that inherit or have children: propagation, ONLY, columns of several parents, INHERIT and NO INHERIT.
CREATE TABLE p (a int, b text DEFAULT 'b', CONSTRAINT pos CHECK (a > 0), CONSTRAINT alone CHECK (a < 100) NO INHERIT);
CREATE TABLE c (x int) INHERITS (p);
CREATE TABLE g (y int) INHERITS (c);
CREATE TABLE q (a int, z int);
CREATE TABLE m (b text) INHERITS (p, q);
INSERT INTO p VALUES (1); INSERT INTO c VALUES (2); INSERT INTO g VALUES (3); INSERT INTO m VALUES (4);
CREATE VIEW parts AS SELECT c.oid::regclass::text AS t, attnum, attname, format_type(atttypid, atttypmod) AS ty, attinhcount AS n, attislocal AS l, attnotnull AS nn, pg_get_expr(adbin, adrelid) AS def FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum WHERE attnum > 0 AND NOT attisdropped AND relkind = 'r' AND c.oid >= 16384;
CREATE VIEW cons AS SELECT conrelid::regclass::text AS t, conname, coninhcount AS n, conislocal AS l, connoinherit AS ni, convalidated AS v, pg_get_constraintdef(oid) AS def FROM pg_constraint WHERE conrelid >= 16384;
ALTER TABLE p ADD COLUMN k int DEFAULT 7;
SELECT * FROM g; SELECT * FROM p ORDER BY a;
ALTER TABLE ONLY p ADD COLUMN l int;
ALTER TABLE c ADD COLUMN o text;
ALTER TABLE p ADD COLUMN o int;
ALTER TABLE p ADD COLUMN o text NOT NULL DEFAULT 'o';
SELECT * FROM parts WHERE attname IN ('k', 'o') ORDER BY t, attname;
ALTER TABLE p ADD COLUMN i int GENERATED ALWAYS AS IDENTITY;
ALTER TABLE c DROP COLUMN a;
ALTER TABLE c DROP COLUMN o;
ALTER TABLE p DROP COLUMN o;
SELECT * FROM parts WHERE attname IN ('k', 'o') ORDER BY t, attname;
ALTER TABLE ONLY p DROP COLUMN k;
SELECT * FROM parts WHERE attname IN ('k', 'o') ORDER BY t, attname;
ALTER TABLE c DROP COLUMN k;
SELECT * FROM parts WHERE attname IN ('k', 'o') ORDER BY t, attname;
ALTER TABLE p DROP COLUMN b;
SELECT * FROM parts ORDER BY t, attnum;
ALTER TABLE p ADD COLUMN b text;
SELECT * FROM parts WHERE attname = 'b' ORDER BY t, attnum;
ALTER TABLE p RENAME COLUMN a TO aa;
ALTER TABLE ONLY p RENAME COLUMN b TO bb;
ALTER TABLE c RENAME COLUMN b TO bb;
ALTER TABLE p RENAME COLUMN b TO bb;
SELECT * FROM parts WHERE attname LIKE 'b%' ORDER BY t, attnum;
ALTER TABLE q RENAME COLUMN z TO zz;
ALTER TABLE p ALTER bb SET DEFAULT 'new';
ALTER TABLE ONLY p ALTER bb SET DEFAULT 'own';
ALTER TABLE c ALTER bb DROP DEFAULT;
SELECT * FROM parts WHERE attname LIKE 'b%' ORDER BY t, attnum;
ALTER TABLE p ALTER bb SET NOT NULL;
UPDATE p SET bb = 'x';
ALTER TABLE p ALTER bb SET NOT NULL;
ALTER TABLE c ALTER bb DROP NOT NULL;
SELECT * FROM parts WHERE attname LIKE 'b%' ORDER BY t, attnum;
ALTER TABLE ONLY p ALTER bb DROP NOT NULL;
ALTER TABLE p ALTER a TYPE bigint;
ALTER TABLE c ALTER bb TYPE varchar;
ALTER TABLE ONLY p ALTER bb TYPE varchar;
ALTER TABLE p ALTER bb TYPE varchar(10) USING bb || a;
SELECT * FROM parts WHERE attname LIKE 'b%' ORDER BY t, attnum;
SELECT * FROM p ORDER BY a;
ALTER TABLE q ALTER zz TYPE bigint;
SELECT * FROM cons ORDER BY t, conname;
ALTER TABLE p ADD CONSTRAINT short CHECK (length(bb) < 5);
ALTER TABLE ONLY p ADD CONSTRAINT short CHECK (length(bb) < 3);
ALTER TABLE ONLY p ADD CONSTRAINT short CHECK (length(bb) < 3) NO INHERIT;
ALTER TABLE p DROP CONSTRAINT short;
ALTER TABLE g ADD CONSTRAINT short CHECK (length(bb) < 5);
ALTER TABLE p ADD CONSTRAINT short CHECK (length(bb) < 5);
ALTER TABLE p ADD CONSTRAINT short CHECK (length(bb) < 3);
ALTER TABLE p ADD CONSTRAINT nv CHECK (length(bb) < 1) NOT VALID;
SELECT * FROM cons ORDER BY t, conname;
ALTER TABLE p VALIDATE CONSTRAINT nv;
ALTER TABLE c DROP CONSTRAINT short;
ALTER TABLE p DROP CONSTRAINT short;
ALTER TABLE ONLY p DROP CONSTRAINT nv;
ALTER TABLE p DROP CONSTRAINT alone;
SELECT * FROM cons ORDER BY t, conname;
ALTER TABLE p RENAME CONSTRAINT pos TO positive;
ALTER TABLE ONLY p RENAME CONSTRAINT positive TO posi;
ALTER TABLE c RENAME CONSTRAINT positive TO posi;
SELECT * FROM cons ORDER BY t, conname;
ALTER TABLE p ADD PRIMARY KEY (bb);
ALTER TABLE p ADD UNIQUE (a);
SELECT * FROM parts WHERE attname LIKE 'b%' ORDER BY t, attnum;
SELECT * FROM cons ORDER BY t, conname;
INSERT INTO c (a) VALUES (1);
INSERT INTO c (a, bb) VALUES (1, 'x1'), (1, 'x1');
SELECT a, bb FROM p ORDER BY 1, 2;
CREATE TABLE s (a int, bb varchar(10), other int);
ALTER TABLE s INHERIT p;
ALTER TABLE s ADD CONSTRAINT positive CHECK (a > 1);
ALTER TABLE s INHERIT p;
ALTER TABLE s ALTER a SET NOT NULL, ALTER bb SET NOT NULL;
ALTER TABLE s INHERIT p;
ALTER TABLE s DROP CONSTRAINT positive;
ALTER TABLE s ADD CONSTRAINT positive CHECK (a > 0);
ALTER TABLE s INHERIT p;
ALTER TABLE s INHERIT p;
ALTER TABLE p INHERIT s;
ALTER TABLE p INHERIT p;
INSERT INTO s VALUES (50, 'fifty', 5);
SELECT a, bb, tableoid::regclass FROM p ORDER BY 1, 2;
SELECT * FROM parts WHERE t = 's' ORDER BY t, attnum;
SELECT * FROM cons WHERE t = 's' ORDER BY t, conname;
SELECT inhrelid::regclass, inhparent::regclass, inhseqno FROM pg_inherits ORDER BY inhrelid::regclass::text, 3;
ALTER TABLE s NO INHERIT q;
ALTER TABLE s NO INHERIT p;
ALTER TABLE s NO INHERIT p;
ALTER TABLE m NO INHERIT q;
SELECT * FROM parts WHERE t IN ('s', 'm') ORDER BY t, attnum;
SELECT * FROM cons WHERE t IN ('s', 'm') ORDER BY t, conname;
ALTER TABLE m INHERIT q;
SELECT inhrelid::regclass, inhparent::regclass, inhseqno FROM pg_inherits ORDER BY inhrelid::regclass::text, 3;
CREATE TABLE part (a int) PARTITION BY LIST (a);
CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1);
ALTER TABLE part INHERIT q;
ALTER TABLE part1 INHERIT q;
ALTER TABLE s INHERIT part;
ALTER TABLE s INHERIT part1;
ALTER TABLE part ATTACH PARTITION q FOR VALUES IN (2);
ALTER TABLE part ATTACH PARTITION m FOR VALUES IN (2);
ALTER TABLE s INHERIT parts;
ALTER TABLE parts INHERIT q;
DROP TABLE q;
CREATE TABLE gen (a int, b int GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE gen1 () INHERITS (gen);
INSERT INTO gen1 VALUES (4);
ALTER TABLE gen1 ALTER b DROP EXPRESSION;
ALTER TABLE ONLY gen ALTER b DROP EXPRESSION;
ALTER TABLE gen ALTER b DROP EXPRESSION;
SELECT * FROM gen1;
CREATE TABLE gen2 (a int, b int);
ALTER TABLE gen2 INHERIT gen;
CREATE TABLE x1 (a int);
CREATE TABLE x2 () INHERITS (x1);
CREATE TABLE x3 () INHERITS (x1);
CREATE TABLE x4 () INHERITS (x2, x3);
ALTER TABLE x1 ADD COLUMN b int DEFAULT 3;
SELECT * FROM parts WHERE t LIKE 'x_' ORDER BY t, attnum;
ALTER TABLE x1 ALTER b TYPE text USING b || 'x';
ALTER TABLE x1 ADD CHECK (a > 1);
SELECT * FROM cons WHERE t LIKE 'x_' ORDER BY t, conname;
ALTER TABLE x1 RENAME a TO aa;
ALTER TABLE x1 DROP CONSTRAINT x1_a_check;
ALTER TABLE x1 DROP COLUMN b;
SELECT * FROM parts WHERE t LIKE 'x_' ORDER BY t, attnum;
INSERT INTO x4 VALUES (9);
SELECT * FROM x1;
SELECT x1 FROM x1;
ALTER TABLE x1 ADD COLUMN r int REFERENCES x1x;
CREATE TYPE mood AS ENUM ('a', 'b');
ALTER TABLE x1 ADD COLUMN mo mood;
DROP TYPE mood;
DROP TYPE mood CASCADE;
SELECT * FROM parts WHERE t LIKE 'x_' ORDER BY t, attnum;
DROP TABLE x1, x2, x3, x4;
ALTER TABLE p OWNER TO pg_read_all_data;
SELECT relname, relowner = 'pg_read_all_data'::regrole FROM pg_class WHERE relname IN ('p', 'c', 'm') ORDER BY 1;
ALTER TABLE p RENAME TO pp;
SELECT count(*) FROM pp;
ALTER TABLE pp SET SCHEMA pg_toast;
ALTER TABLE c REPLICA IDENTITY FULL;
ALTER TABLE pp REPLICA IDENTITY FULL;
SELECT relname, relreplident FROM pg_class WHERE relname IN ('pp', 'c', 'm', 'g') ORDER BY 1;
ALTER TABLE pp ALTER bb SET STATISTICS 5;
CREATE INDEX ON pp (a);
DROP TABLE pp CASCADE;
CREATE TABLE inhta ();
CREATE TABLE inhtb () INHERITS (inhta);
CREATE TABLE inhtc () INHERITS (inhtb);
CREATE TABLE inhtd () INHERITS (inhta, inhtb, inhtc);
ALTER TABLE inhta ADD COLUMN i int, ADD COLUMN j bigint DEFAULT 1;
\d+ inhta
\d+ inhtd
DROP TABLE inhta, inhtb, inhtc, inhtd;
create table pp1 (f1 int);
create table cc1 (f2 text, f3 int) inherits (pp1);
alter table pp1 add column a1 int check (a1 > 0);
\d cc1
create table cc2(f4 float) inherits(pp1,cc1);
\d cc2
alter table pp1 add column a2 int check (a2 > 0);
\d cc2
drop table pp1 cascade;

select * from inh_fk_1 order by 1;
select * from inh_fk_2 order by 1, 2;
drop table inh_fk_1, inh_fk_2, inh_fk_2_child;

-- Test that parent and child CHECK constraints can be created in either order
create table p1(f1 int);
create table p1_c1() inherits(p1);

alter table p1 add constraint inh_check_constraint1 check (f1 > 0);
alter table p1_c1 add constraint inh_check_constraint1 check (f1 > 0);

alter table p1_c1 add constraint inh_check_constraint2 check (f1 < 10);
alter table p1 add constraint inh_check_constraint2 check (f1 < 10);

select conrelid::regclass::text as relname, conname, conislocal, coninhcount
from pg_constraint where conname like 'inh\_check\_constraint%'
order by 1, 2;

drop table p1 cascade;

-- Test that a valid child can have not-valid parent, but not vice versa
create table invalid_check_con(f1 int);
create table invalid_check_con_child() inherits(invalid_check_con);

alter table invalid_check_con_child add constraint inh_check_constraint check(f1 > 0) not valid;
alter table invalid_check_con add constraint inh_check_constraint check(f1 > 0); -- fail
alter table invalid_check_con_child drop constraint inh_check_constraint;

insert into invalid_check_con values(0);

alter table invalid_check_con_child add constraint inh_check_constraint check(f1 > 0);
alter table invalid_check_con add constraint inh_check_constraint check(f1 > 0) not valid;

insert into invalid_check_con values(0); -- fail
insert into invalid_check_con_child values(0); -- fail

select conrelid::regclass::text as relname, conname,
       convalidated, conislocal, coninhcount, connoinherit
from pg_constraint where conname like 'inh\_check\_constraint%'
order by 1, 2;

-- We don't drop the invalid_check_con* tables, to test dump/reload with

--
-- Test parameterized append plans for inheritance trees
--
create table pp (a text, b text) partition by list (a);
create table pc (b text, a text) partition by list (a);
create table pg (a text, b text);
alter table pc attach partition pg for values in ('a');
alter table pp attach partition pc for values in ('a');
create table mp (a int, constraint m check (a > 0));
create table mc () inherits (mp);
alter table mc add constraint m check (a > 0) no inherit;
alter table mc add constraint m check (a > 1);
alter table mc add constraint m check (a > 0) not valid;
alter table mc add constraint m check (a > 0);
alter table mp drop constraint m;
\d mc
