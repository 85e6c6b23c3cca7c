-- Details of PL/pgSQL: domains, slices, records, contexts of errors, the settings and options of the language.
\set VERBOSITY default
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN sorted AS int[] CHECK (VALUE[1] < VALUE[2]);
DO $$ DECLARE v positive := 1; BEGIN v := 0; END $$;
DO $$ DECLARE v positive := 0; BEGIN NULL; END $$;
DO $$ DECLARE v sorted := '{1,2}'; BEGIN v[1] := 0; RAISE NOTICE '%', v; v[1] := 3; END $$;
DO $$ DECLARE s int[]; x int; y int; BEGIN FOREACH s SLICE 1 IN ARRAY '{{1,2},{3,4}}'::int[] LOOP RAISE NOTICE '%', s; END LOOP; END $$;
DO $$ DECLARE s int[]; BEGIN FOREACH s SLICE 3 IN ARRAY '{{1,2},{3,4}}'::int[] LOOP RAISE NOTICE '%', s; END LOOP; END $$;
DO $$ DECLARE s int; BEGIN FOREACH s SLICE 1 IN ARRAY '{1,2}'::int[] LOOP RAISE NOTICE '%', s; END LOOP; END $$;
CREATE TYPE pair AS (x int, y text);
DO $$ DECLARE x int; y text; BEGIN FOREACH x, y IN ARRAY ARRAY[(1, 'a'), (2, 'b')]::pair[] LOOP RAISE NOTICE '% %', x, y; END LOOP; END $$;
CREATE FUNCTION pairs() RETURNS SETOF pair LANGUAGE plpgsql AS $$ DECLARE p pair; BEGIN p := (1, 'a'); RETURN NEXT p; p.x := 2; RETURN NEXT p; RETURN NEXT NULL::pair; END $$;
SELECT * FROM pairs();
CREATE FUNCTION no_pair() RETURNS pair LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$;
SELECT no_pair();
CREATE FUNCTION records(n int) RETURNS SETOF record LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN SELECT 1, n INTO r; RETURN NEXT r; END $$;
SELECT * FROM records(5) AS (a int, b int);
CREATE FUNCTION cast_of(x text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN x; END $$;
SELECT cast_of('yes');
SELECT cast_of('perhaps');
DO $$ DECLARE b boolean := 1; d date := 20150717; BEGIN RAISE NOTICE '% %', b, d; END $$;
CREATE FUNCTION inner_one(x int) RETURNS text LANGUAGE plpgsql AS $$ DECLARE c text; BEGIN GET DIAGNOSTICS c = PG_CONTEXT; RETURN c; END $$;
CREATE FUNCTION outer_one(x int) RETURNS text LANGUAGE plpgsql AS $$ DECLARE r text; BEGIN r := inner_one(x); RETURN r; END $$;
SELECT outer_one(1);
DO $$ BEGIN BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN RAISE; END; END $$;
DO $$ DECLARE c text; BEGIN BEGIN PERFORM 1 / 0; EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS c = PG_EXCEPTION_CONTEXT; RAISE NOTICE '%', c; END; END $$;
DO $$ BEGIN RAISE NOTICE '%', nowhere + 1; END $$;
DO $$ BEGIN RAISE NOTICE '%', (SELECT nowhere FROM pg_class); END $$;
DO $$ DECLARE r record; BEGIN FOR r IN SELECT relname, nowhere FROM pg_class LOOP NULL; END LOOP; END $$;
DO $$ BEGIN EXECUTE 'SELECT nowhere FROM pg_class'; END $$;
CREATE TABLE foo (f1 int, f2 text);
INSERT INTO foo VALUES (1, 'one'), (2, 'two');
CREATE FUNCTION strict_one(p1 int) RETURNS void LANGUAGE plpgsql AS $$
#print_strict_params on
DECLARE r record; BEGIN SELECT * INTO STRICT r FROM foo WHERE f1 = p1 AND f2 = 'it''s'; END $$;
SELECT strict_one(3);
SET plpgsql.print_strict_params = on;
DO $$ DECLARE r record; BEGIN EXECUTE 'SELECT * FROM foo WHERE f1 > $1' INTO STRICT r USING 0; END $$;
RESET plpgsql.print_strict_params;
SET plpgsql.extra_warnings = 'too_many_rows, strict_multi_assignment';
DO $$ DECLARE x int; y int; BEGIN SELECT f1 FROM foo INTO x; SELECT 1, 2, 3 INTO x, y; END $$;
SET plpgsql.extra_errors = 'all';
DO $$ DECLARE x int; BEGIN SELECT f1 FROM foo INTO x; END $$;
DO $$ DECLARE x int; y int; BEGIN SELECT 1 INTO x, y; END $$;
RESET plpgsql.extra_errors; RESET plpgsql.extra_warnings;
CREATE FUNCTION which() RETURNS SETOF int LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE f1 int := 42; BEGIN RETURN QUERY SELECT f1 FROM foo; END $$;
SELECT * FROM which();
CREATE OR REPLACE FUNCTION which() RETURNS SETOF int LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE f1 int := 42; BEGIN RETURN QUERY SELECT f1 FROM foo ORDER BY f1; END $$;
SELECT * FROM which();
SET plpgsql.variable_conflict = use_column;
DO $$ DECLARE f1 int := 42; x int; BEGIN SELECT max(f1) INTO x FROM foo; RAISE NOTICE '%', x; END $$;
RESET plpgsql.variable_conflict;
DO $$ DECLARE f1 int := 42; x int; BEGIN SELECT max(f1) INTO x FROM foo; END $$;
SET plpgsql.check_asserts = off;
DO $$ BEGIN ASSERT false; END $$;
