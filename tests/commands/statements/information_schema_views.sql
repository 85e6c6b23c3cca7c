-- information_schema.triggers
create table t (a int primary key, b text, c int[], d varchar(3)[]);
create function f() returns trigger language plpgsql as 'begin return new; end';
create trigger t1 before insert or update on t for each row when (new.a > 7 and new.b <> ') EXECUTE FUNCTION x') execute function f();
create trigger t2 after update of b on t referencing old table as o new table as n for each statement execute function f('x', 'WHEN (1) EXECUTE FUNCTION');
create view v as select * from t;
create trigger t3 instead of delete on v for each row execute function f();
select trigger_schema, trigger_name, event_manipulation, event_object_table, action_order, action_condition, action_statement, action_orientation, action_timing, action_reference_old_table, action_reference_new_table, created from information_schema.triggers order by 1, 2, 3;
select event_manipulation, count(*) from information_schema.triggers group by 1 order by 1;
-- regexp_match on names of the catalogs
select regexp_match(relname, '^pg_(.+)s$') from pg_class where relname in ('pg_class', 'pg_types', 'pg_attribute', 'pg_statistic', 'pg_foreign_tables') order by relname;
select regexp_match(relname, 'pg_.*_.{2,}a(.*)e.') from pg_class where relname like 'pg\_stat\_a%' order by relname collate "C";
select regexp_match(relname, 's.*') from pg_class where relname in ('pg_class', 'pg_types') order by relname;
-- Some columns of a view, and none
select object_name, object_type, collection_type_identifier, data_type, udt_name, dtd_identifier from information_schema.element_types where object_schema = 'public' order by 1, 3;
select count(*), min(column_name), max(s.is_nullable) from (select * from information_schema.columns where table_name = 't') s;
select count(*) from information_schema.columns where table_schema = 'public';
select s from (select column_name, data_type from information_schema.columns where table_name = 'v') s order by s.column_name;
select 1 from information_schema.table_constraints where table_name = 't' and constraint_type = 'PRIMARY KEY';
select count(*) from (select table_name from information_schema.tables where table_schema = 'public' union select 'x') s;
select count(*) from (select distinct object_type from information_schema.data_type_privileges where object_schema = 'public') s;
create role r;
set role r;
select count(*) from (select rolname, rolpassword from pg_authid) s;
select count(*) from information_schema.columns where table_schema = 'public';
select count(*) from information_schema.triggers;
reset role;
drop role r;
-- a view of an aggregate, which neither server can write to; intervals with fields
CREATE TABLE written (a int PRIMARY KEY, i interval, d interval day to second(2), y interval year to month, p interval(3));
CREATE VIEW read_only AS SELECT a, count(*) AS n FROM written GROUP BY a;
SELECT table_name, is_insertable_into FROM information_schema.tables WHERE table_name IN ('written', 'read_only') ORDER BY 1;
SELECT table_name, is_updatable, is_insertable_into FROM information_schema.views WHERE table_name = 'read_only';
SELECT table_name, column_name, is_updatable, interval_type, datetime_precision FROM information_schema.columns WHERE table_name IN ('written', 'read_only') ORDER BY 1, 2;
SELECT pg_relation_is_updatable(c.oid, false), pg_column_is_updatable(c.oid, 1::int2, false), pg_column_is_updatable(c.oid, 0::int2, false) FROM pg_class c WHERE relname IN ('written', 'read_only', 'written_pkey') ORDER BY relname;
SELECT pg_relation_is_updatable(0, false), pg_relation_is_updatable(NULL, false);
DROP VIEW read_only; DROP TABLE written;
