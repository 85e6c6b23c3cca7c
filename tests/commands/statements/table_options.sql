-- WITH (…), SET (…) and RESET (…) of tables
CREATE TABLE t (a int, b text) WITH (fillfactor = 70, autovacuum_enabled, autovacuum_vacuum_scale_factor = 0.2, vacuum_index_cleanup = auto);
SELECT reloptions FROM pg_class WHERE relname = 't';
\d+ t
ALTER TABLE t SET (fillfactor = 80, parallel_workers = 2);
SELECT reloptions FROM pg_class WHERE relname = 't';
ALTER TABLE t RESET (fillfactor, autovacuum_enabled, nosuch);
SELECT reloptions FROM pg_class WHERE relname = 't';
ALTER TABLE t SET (nosuch = 1);
ALTER TABLE t SET (fillfactor = 5);
ALTER TABLE t SET (fillfactor = 'x');
ALTER TABLE t SET (autovacuum_enabled = perhaps);
ALTER TABLE t SET (autovacuum_vacuum_scale_factor = 101);
ALTER TABLE t SET (autovacuum_vacuum_scale_factor = 'x');
ALTER TABLE t SET (vacuum_index_cleanup = sometimes);
ALTER TABLE t SET (other.fillfactor = 50);
ALTER TABLE t SET (toast.nosuch = 50);
ALTER TABLE t SET (toast.fillfactor = 50);
ALTER TABLE t SET (fillfactor = 50, fillfactor = 60);
ALTER TABLE t RESET (fillfactor = 50);
ALTER TABLE t RESET (autovacuum_vacuum_scale_factor, vacuum_index_cleanup, parallel_workers);
SELECT reloptions FROM pg_class WHERE relname = 't';
CREATE TABLE u (a int) WITH (nosuch);
CREATE TABLE u (a int) WITH (oids = true);
CREATE TABLE u (a int) WITH (oids = false);
SELECT reloptions FROM pg_class WHERE relname = 'u';
CREATE TABLE p (a int) PARTITION BY LIST (a) WITH (fillfactor = 70);
CREATE TABLE p (a int) PARTITION BY LIST (a);
ALTER TABLE p SET (fillfactor = 70);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1) WITH (fillfactor = 70);
SELECT reloptions FROM pg_class WHERE relname = 'p1';

-- storage and statistics of columns
create table t9 (a int, b text); create index i9 on t9 (lower(b), a); create view v9 as select * from t9;
alter index i9 alter column 1 set statistics 100;
alter index i9 alter column 2 set statistics 100;
alter index i9 alter 3 set statistics 100;
alter index i9 alter column lower set statistics 100;
alter table t9 alter column 1 set statistics 100;
alter table t9 alter column a set statistics 100;
alter table t9 alter column zz set statistics 100;
alter table t9 alter column a set statistics 20000;
alter table t9 alter column a set statistics -1;
alter view v9 alter column a set statistics 1;
select attname, attstattarget from pg_attribute where attrelid in ('t9'::regclass, 'i9'::regclass) and attnum > 0 order by attrelid, attnum;
create table t2 (a int, b text, c numeric, d jsonb);
alter table t2 alter a set storage external;
alter table t2 alter b set storage external;
alter table t2 alter b set storage bogus;
alter table t2 alter c set storage plain;
alter table t2 alter d set storage EXTENDED;
alter table t2 alter zz set storage main;
select attname, attstorage from pg_attribute where attrelid = 't2'::regclass and attnum > 0 order by attnum;


set default_with_oids = off; set default_with_oids = on; show default_with_oids;
