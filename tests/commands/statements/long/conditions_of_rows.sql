-- CHECK, generated columns, CASE and now() of changes that the driver computes.
create table cs (id int primary key, a int, kind text, at timestamptz, u timestamptz, n numeric(10,2), g text generated always as (case kind when 'a' then 'first' when 'b' then 'second' else 'other' end) stored,
  h int generated always as (case when a > 10 then a / (a - 10) else 0 end) stored, check (a < 100), check (kind <> 'zz'), check (case when kind = 'neg' then a < 0 else a >= 0 end), check (n is null or n > 0));
insert into cs(id,a,kind,n) values (1,1,'a',1),(2,20,'b',2.5),(3,10,'c',null),(4,null,null,null),(5,-5,'neg',3);
insert into cs(id,a,kind) values (6,100,'a');
insert into cs(id,a,kind) values (6,-1,'a');
insert into cs(id,a,kind) values (6,1,'neg');
insert into cs(id,a,kind,n) values (6,1,'a',0);
insert into cs(id,a,kind,n) values (6,1,'a',0.001);
insert into cs(id,a,kind) values (6,1,'zz'),(7,1,'a');
select id, a, kind, n, g, h from cs order by id;
update cs set at = now(), u = now();
update cs set at = now() - interval '1 hour' where a > 50;
select id, at = u, at is null, at <= now() from cs order by id;
begin; update cs set at = now() where id = 2; select at = now() from cs where id = 2; commit;
update cs set kind = lower(upper(kind) || 'X'), a = coalesce(a, 0) + length(kind) where id in (2, 3);
update cs set a = case id when 1 then 5 when 2 then 6 else a end;
update cs set at = null, u = null where id = 1; update cs set a = case when id = 1 then 1000 end where id = 1;
update cs set n = case when id = 1 then 1.5 else 2 end, kind = case kind when 'a' then null when 'first' then 'x' else kind end;
select id, a, kind, n, g, h from cs order by id;
select case id when 1 then 1.50 when 2 then 2 else n end, case when n > 2 then 'big' end from cs order by id;
select id from cs where case when a > 5 then kind = 'b' else n > 1 end order by id;
select count(*), sum(case when a > 5 then 1 else 0 end), max(case when a > 5 then kind end) from cs;
select case when a > 5 then 'hi' else 'lo' end, count(*) from cs group by 1 order by 1;
select case a when 7 then 1 when 'x' then 2 end from cs;
delete from cs where at < now() - interval '1 hour';
delete from cs where length(kind) > 100 or now() < '2000-01-01';
select count(*) from cs where u <= now();
drop table cs;
-- Rows are sorted and compared field by field, not as texts.
CREATE TABLE n (a int, b numeric);
INSERT INTO n VALUES (9, 1.0), (10, 2), (9, 1.00);
SELECT row(a, b) AS r FROM n WHERE b <> 1.0 OR scale(b) = 1 ORDER BY r DESC;
SELECT r FROM (SELECT row(a) AS r FROM n GROUP BY a) s ORDER BY r;
SELECT count(DISTINCT row(a, b)) FROM n;
SELECT count(*) FROM (SELECT DISTINCT row(a, row(b)) FROM n) s;
SELECT count(*) FROM (SELECT row(a, b) FROM n UNION SELECT row(9, 1.000)) s;
DROP TABLE n;
