-- A function without a schema is found on the search path only, also in a database without types of its users.
create function own(int) returns int language sql as 'select 7';
create function pg_get_replica_identity_index(int) returns regclass language sql as 'select 1/0';
create table t (a int primary key); insert into t values (2);
set search_path = '';
select own(2);
select own(a) from public.t;
select oid, own(1) from pg_class where relname = 'pg_class';
select pg_get_replica_identity_index('public.t'::regclass::oid::int);
select public.own(a) from public.t;
reset search_path;
select own(2);
select 'a'::sql_identifier;
