-- The domains of information_schema in casts
SELECT 'a'::information_schema.sql_identifier, pg_typeof('a'::information_schema.sql_identifier);
SELECT pg_typeof('a'::information_schema.sql_identifier || 'x');
SELECT 'YES'::information_schema.yes_or_no, 'b'::information_schema.character_data;
SELECT 'NOO'::information_schema.yes_or_no;
SELECT NULL::information_schema.yes_or_no, NULL::information_schema.cardinal_number;
SELECT '5'::information_schema.cardinal_number + 1;
SELECT (-5)::information_schema.cardinal_number;
SELECT '2020-01-01 00:00:00.126+00'::information_schema.time_stamp;
SELECT a::information_schema.cardinal_number FROM generate_series(-1, 1) AS a ORDER BY 1 DESC;
SELECT conname, contypid::regtype, pg_get_constraintdef(oid) FROM pg_constraint WHERE contypid <> 0 ORDER BY 1;
-- The same in PL/pgSQL: variables, arguments and results
do $$ declare x information_schema.yes_or_no := 'NOO'; begin raise notice '%', x; end $$;
do $$ declare x information_schema.yes_or_no; begin x := 'YES'; raise notice '%', x; x := 'nah'; end $$;
do $$ declare x information_schema.cardinal_number; begin x := 3; x := x - 5; raise notice '%', x; end $$;
do $$ declare x information_schema.cardinal_number; y int := -4; begin x := y; raise notice '%', x; end $$;
create function fd(information_schema.cardinal_number) returns int language plpgsql as 'begin return $1; end';
select fd(-3);
select fd(3);
create function fe(i int) returns information_schema.cardinal_number language plpgsql as 'begin return i; end';
select fe(-3);
select fe(g) from generate_series(1,2) g;
