-- rows of tables and records in functions: the names of their fields in json, generic trigger functions, names of columns
\set VERBOSITY terse
create table a1 (id int primary key, name text);
create table a2 (k text primary key, v numeric, w date);
create table audit (n serial, tab text, op text, old_row jsonb, new_row jsonb);
create function audited() returns trigger language plpgsql as $$
begin
  if TG_OP = 'INSERT' then insert into audit (tab, op, new_row) values (TG_TABLE_NAME, TG_OP, to_jsonb(NEW)); return NEW;
  elsif TG_OP = 'UPDATE' then insert into audit (tab, op, old_row, new_row) values (TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW)); return NEW;
  else insert into audit (tab, op, old_row) values (TG_TABLE_NAME, TG_OP, to_jsonb(OLD)); return OLD; end if;
end $$;
create trigger t1 after insert or update or delete on a1 for each row execute function audited();
create trigger t2 after insert or update or delete on a2 for each row execute function audited();
insert into a1 values (1, 'x'); insert into a2 values ('k', 1.5, '2020-01-01'), ('l', null, null);
update a2 set v = v + 1; update a1 set name = 'y';
delete from a1; delete from a2 where k = 'k';
alter table a1 add column z int default 5;
insert into a1 values (2, 'n', 7); update a1 set z = 8;
alter table a1 drop column name;
insert into a1 values (3, 9);
select tab, op, old_row, new_row from audit order by n;
create function changed() returns trigger language plpgsql as $$
declare k text; v jsonb;
begin
  for k, v in select key, value from jsonb_each(to_jsonb(NEW)) loop
    if to_jsonb(OLD) -> k is distinct from v then raise notice '%.%: % -> %', TG_TABLE_NAME, k, to_jsonb(OLD) -> k, v; end if;
  end loop;
  return NEW;
end $$;
create trigger c1 before update on a1 for each row execute function changed('x');
create trigger c2 before update on a2 for each row execute function changed();
update a1 set z = z + 1 where id = 3; update a2 set w = '2021-01-01';
select * from a1 order by id; select * from a2;
create function loops() returns setof text language plpgsql as $$ declare r record; q text; begin
 foreach q in array array['select 1 as one', 'select 2 as two, ''b'' as three', 'select id, z from a1 order by id'] loop for r in execute q loop return next to_jsonb(r)::text || r::text; end loop; end loop; end $$;
select * from loops();
do $$ declare r record; s record; begin select 1 as a, 'x'::text as b into r; s := r; raise notice '% % %', to_jsonb(s), s, s.b; end $$;
drop table a1, a2, audit; drop function audited, changed, loops;
create table t (id int primary key, name text);
create table audit (op text, r jsonb, s json, x text);
create function fired() returns trigger language plpgsql as $$ begin insert into audit values (TG_OP, to_jsonb(NEW), row_to_json(NEW), NEW::text); return null; end $$;
create trigger fired after insert or update on t for each row execute function fired();
insert into t values (1,'a'), (2, 'b');
insert into t select g, 'n' from generate_series(3,5) g;
update t set name = 'z' where id = 1;
update t set name = 'y' where id > 1;
copy t from stdin;
100	c
101	d
\.
select * from audit;
create function f2() returns trigger language plpgsql as $$ declare r record; begin r := NEW; NEW.name := to_jsonb(NEW)::text || row_to_json(r) || to_jsonb(r); return NEW; end $$;
create trigger f2 before insert on t for each row execute function f2();
insert into t values (200,'q'), (201, 'r');
insert into t select g, 'n' from generate_series(300,301) g;
select * from t where id >= 200 order by id;
do $$ declare r record; begin for r in select id, name from t where id < 3 order by id loop raise notice '% % % %', row_to_json(r), to_jsonb(r), r::text, r; end loop; end $$;
do $$ declare r t%rowtype; begin select * into r from t where id = 1; raise notice '% %', row_to_json(r), to_json(r)->>'name'; r := null; raise notice '% %', row_to_json(r), r is null; end $$;
do $$ declare r record; s record; begin select 1 as a, 'x' as b into r; s := r; raise notice '% %', to_jsonb(s), r = s;  perform json_agg(r); raise notice '%', (select jsonb_agg(r)); raise notice '%', jsonb_build_object('row', r, 'n', 1); raise notice '%', json_build_array(r, s); raise notice '%', (select to_jsonb(w) from (select r.a, r.b) w); end $$;
create type pair as (x int, y text);
do $$ declare p pair := (1, 'u'); begin raise notice '% %', to_jsonb(p), p; end $$;
create function diff() returns trigger language plpgsql as $$ declare d jsonb; begin select jsonb_object_agg(n.key, n.value) into d from jsonb_each(to_jsonb(NEW)) n join jsonb_each(to_jsonb(OLD)) o on n.key = o.key where n.value is distinct from o.value; insert into audit values ('diff', d, to_json(OLD), (NEW is distinct from OLD)::text); return NEW; end $$;
create trigger diff before update on t for each row when (OLD.* is distinct from NEW.*) execute function diff();
update t set name = 'changed' where id = 1;
update t set name = name where id = 2;
delete from audit where op <> 'diff';
select * from audit;
create function del() returns trigger language plpgsql as $$ begin if TG_OP = 'DELETE' then insert into audit values (TG_OP, to_jsonb(OLD), row_to_json(OLD), OLD::text); else insert into audit values (TG_OP, jsonb_build_object('old', to_jsonb(OLD), 'new', to_jsonb(NEW)), null, null); end if; return coalesce(NEW, OLD); end $$;
create trigger del before update or delete on t for each row execute function del();
update t set name = 'again' where id in (1, 2);
delete from t where id = 1;
select * from audit where op <> 'diff';
drop table t, audit; drop function fired, f2, diff, del; drop type pair;
create table t (id int, b text); insert into t values (1,'q');
do $$ declare r record; q record; x int := 7; begin select 1 as a, 'x'::text as b into r;
 raise notice '%', (select to_jsonb(w) from (select r.a, r.b, x, x + 1, upper(r.b), coalesce(x, 1), r.a::text) w);
 for q in select r.a, x, id, x * 2 as d from t loop raise notice '% % % % %', q.a, q.x, q.id, q.d, to_jsonb(q); end loop;
 create table made as select r.a, x, r.b from t;
 insert into made select r.a + 1, x, r.b returning x, a into q; raise notice '%', q; 
 with w as (select r.b, x) select w.b, w.x into q from w; raise notice '%', to_jsonb(q);
 raise notice '%', (select jsonb_agg(s) from (select x union all select 2) s);
 raise notice '%', array(select x);
 raise notice '%', exists (select x from t where id = x);
end $$;
select * from made;
create function f(x int, y text) returns table (p int, q text) language plpgsql as $$ begin return query select x, y; return query select s.x, s.y from (select x, y) s; end $$;
select * from f(1, 'z');
drop table t, made; drop function f;
