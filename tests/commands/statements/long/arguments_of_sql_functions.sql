-- In an SQL function a name of both a column and an argument means the column.
create table u(id int, name text); insert into u values (1,'a'),(2,'b');
create function n1(id int) returns text language sql as 'select name from u where u.id = n1.id';
create function n2(id int) returns text language sql as 'select name from u where id = $1';
create function n3(id int) returns bigint language sql as 'select count(*) from u where id = id';
create function n4(id int) returns bigint language sql as 'with d as (delete from u where id = $1 returning *) select count(*) from d';
create function n5(id int, name text) returns void language sql as 'insert into u(id, name) values (id, name)';
create function n6(id int, nm text) returns void language sql as 'update u set name = nm where u.id = n6.id';
create function n7(id int) returns int language sql as 'select id + 1';
create function n8(id int) returns setof u language sql as 'select * from u where id = n8.id order by id';
select n1(1), n2(2), n3(1), n7(4);
select n5(3, 'c'); select n6(3, 'd');
select * from n8(3);
select n4(2);
select id, n1(id), n7(id) from u order by id;
select * from u order by id;
