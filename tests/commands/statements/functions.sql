\set VERBOSITY terse
DO $$ DECLARE x int := 1; BEGIN FOR i IN 1..5 LOOP x := x + i; END LOOP; RAISE NOTICE 'x is % and %', x, upper('abc') || x; END $$;
DO $$ DECLARE x int := 0; BEGIN x := 1 / x; END $$;
DO $$ DECLARE a int[] := '{1,2}'; s text := ''; e int; BEGIN
    a[3] := 5;
    FOREACH e IN ARRAY a LOOP s := s || e || ','; END LOOP;
    RAISE NOTICE '%', s;
    IF s LIKE '1%' AND length(s) > 2 THEN RAISE NOTICE 'ok'; END IF;
    CASE WHEN s = 'x' THEN NULL; ELSE RAISE EXCEPTION 'bad %', s USING errcode = '22012', hint = 'h'; END CASE;
END $$;
CREATE TABLE t (a int PRIMARY KEY, b text);
DO $$ DECLARE r record; n bigint; BEGIN
    INSERT INTO t VALUES (1, 'x'), (2, 'y');
    FOR r IN SELECT * FROM t ORDER BY a LOOP RAISE NOTICE '% %', r.a, r.b; END LOOP;
    SELECT count(*) INTO n FROM t;
    UPDATE t SET b = 'z' WHERE a = n;
    GET DIAGNOSTICS n = row_count;
    RAISE NOTICE 'changed % found %', n, found;
    BEGIN
        INSERT INTO t VALUES (3, 'gone');
        INSERT INTO t VALUES (1, 'dup');
    EXCEPTION WHEN unique_violation THEN RAISE NOTICE 'caught % %', sqlstate, sqlerrm;
    END;
END $$;
SELECT * FROM t ORDER BY a;
DO $$ DECLARE t t%ROWTYPE; BEGIN SELECT * INTO t FROM t WHERE t.a = 1; END $$;
DO $$ DECLARE v t.b%TYPE; w t%ROWTYPE; BEGIN SELECT b INTO STRICT v FROM t WHERE a = 2; SELECT * INTO w FROM t WHERE a = 1; RAISE NOTICE '% %', v, w; END $$;
DO $$ DECLARE v text; BEGIN SELECT b INTO STRICT v FROM t WHERE a = 9; END $$;
DO $$ DECLARE v text; BEGIN SELECT b INTO STRICT v FROM t; END $$;
DO $$ BEGIN SELECT 1; END $$;
DO $$ DECLARE c CONSTANT int := 1; n int NOT NULL := 1; BEGIN n := NULL; END $$;
DO $$ DECLARE x int := 5; BEGIN <<outside>> LOOP LOOP x := x - 1; EXIT outside WHEN x < 2; CONTINUE WHEN x > 3; END LOOP; END LOOP; RAISE NOTICE '%', x; END $$;
DO $$ DECLARE x text; BEGIN EXECUTE 'SELECT b FROM t WHERE a = $1' INTO x USING 1; RAISE NOTICE '%', x; EXECUTE 'DELETE FROM t WHERE a = 1'; END $$;
CREATE FUNCTION f(a int, b int DEFAULT 2) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN a + b; END $$;
CREATE FUNCTION f(a text) RETURNS text LANGUAGE sql AS 'SELECT upper($1)';
SELECT f(1), f(1, 5), f('x'::text), f(a => 3, b => 4);
SELECT f();
SELECT f(1, 2, 3);
CREATE FUNCTION f(a int, b int DEFAULT 2) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 0; END $$;
CREATE OR REPLACE FUNCTION f(a int, b int DEFAULT 2) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 0; END $$;
CREATE FUNCTION pair(x int, OUT a int, OUT b int) LANGUAGE plpgsql AS $$ BEGIN a := x; b := x * 2; END $$;
SELECT * FROM pair(4);
CREATE FUNCTION some(n int) RETURNS SETOF int LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..n LOOP RETURN NEXT i * i; END LOOP; RETURN QUERY SELECT 100; END $$;
SELECT * FROM some(3);
CREATE FUNCTION rows_of(n int) RETURNS TABLE (k int, v text) LANGUAGE sql AS 'SELECT a, b FROM t WHERE a <= n ORDER BY a';
SELECT * FROM rows_of(5);
CREATE FUNCTION strict_one(a int) RETURNS int STRICT LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'called'; RETURN a; END $$;
SELECT strict_one(NULL), strict_one(1);
CREATE FUNCTION nothing() RETURNS int LANGUAGE plpgsql AS $$ BEGIN END $$;
SELECT nothing();
CREATE FUNCTION nested(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF n = 0 THEN RETURN 1 / n; END IF; RETURN nested(n - 1); END $$;
SELECT nested(2);
CREATE PROCEDURE double(INOUT x int) LANGUAGE plpgsql AS $$ BEGIN x := x * 2; END $$;
CALL double(4);
SELECT double(4);
CALL f(1, 2);
CREATE FUNCTION c_function() RETURNS int LANGUAGE nosuch AS 'x';
DROP FUNCTION f;
DROP FUNCTION f(int, int);
DROP FUNCTION IF EXISTS gone(int);
DROP FUNCTION gone(int);
SELECT proname, prokind, provolatile, proretset, pronargs, pronargdefaults, proargnames, proargmodes FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY proname, pronargs;
SELECT pg_get_function_arguments(oid), pg_get_function_identity_arguments(oid), pg_get_function_result(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY proname;
SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname IN ('strict_one', 'rows_of', 'double') ORDER BY proname;
SELECT lanname, lanpltrusted FROM pg_language ORDER BY lanname;
CREATE FUNCTION passes(a int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT a > 1';
CREATE PUBLICATION filtered FOR TABLE t WHERE (passes(a));
CREATE FUNCTION unsubscribe() RETURNS void LANGUAGE sql AS 'DROP SUBSCRIPTION IF EXISTS none';
SELECT unsubscribe();
CREATE FUNCTION cleaned() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'VACUUM t'; END $$;
SELECT cleaned();
DO $$ DECLARE a int[]; b int[] := '[2:3]={1,2}'; c text[] := '{x}'; BEGIN
a[1] := 5; a[2] := 6; a[5] := 7; b[2] := 9; b[0] := 4; c[1] := NULL; RAISE NOTICE '% % %', a, b, c; END $$;
DO $$ DECLARE a int[] := '{{1,2},{3,4}}'; BEGIN a[1] := 5; END $$;
DO $$ DECLARE a int[]; i int; BEGIN a[i] := 5; END $$;

-- Blocks with a label or an EXCEPTION clause in functions that return nothing, several rows or parameters.
CREATE FUNCTION hidden(p int) RETURNS void AS $$
<<around>>
DECLARE p int := 1;
BEGIN
  <<inside>>
  DECLARE p int := 2;
  BEGIN
    RAISE NOTICE '% % % %', p, hidden.p, around.p, inside.p;
  END;
END $$ LANGUAGE plpgsql;
SELECT hidden(42);
CREATE FUNCTION late() RETURNS void AS $$
DECLARE a int;
BEGIN
  a := 5;
  DECLARE b int := a;
  BEGIN
    RAISE NOTICE 'b = %', b;
  END;
  RAISE EXCEPTION 'end';
EXCEPTION WHEN raise_exception THEN
  DECLARE c int := a + 1;
  BEGIN
    RAISE NOTICE 'c = %', c;
  END;
END $$ LANGUAGE plpgsql;
SELECT late();
CREATE PROCEDURE outs(INOUT x int) AS $$
<<l>>
DECLARE y int := x + 1;
BEGIN
  x := l.y;
  DECLARE z int := x;
  BEGIN
    x := z + 10;
  END;
END $$ LANGUAGE plpgsql;
CALL outs(1);
CREATE FUNCTION several() RETURNS SETOF int AS $$
<<l>>
BEGIN
  FOR i IN 1..2 LOOP
    DECLARE j int := i * 10;
    BEGIN
      RETURN NEXT j;
    END;
  END LOOP;
END $$ LANGUAGE plpgsql;
SELECT * FROM several();
DO $$ <<d>> DECLARE v int := 1; BEGIN DECLARE v int := d.v + 1; BEGIN RAISE NOTICE '% %', v, d.v; END; END $$;
-- Assignment to elements and slices of arrays.
CREATE FUNCTION parts() RETURNS text AS $$
DECLARE a text[]; b int[] := '{1,2,3,4}'; m int[] := '{{1,2},{3,4}}'; r record; e int[];
BEGIN
  a := array[array['foo','bar'], array['baz', 'quux']];
  a[(SELECT 1)][(SELECT 1 + 1)] := (SELECT 'fool');
  b[2:3] := '{20,30}'; b[6] := 60; b[:1] := array[10];
  m[2][1:2] := '{7,8}'; m[1][b[2] - 19] := 9;
  e[3:4] := '{1,2}';
  SELECT array[1,2] AS x INTO r;
  r.x[2] := 5; r.x[4] := 6;
  RETURN concat_ws(' ', a, b, m, r, e);
END $$ LANGUAGE plpgsql;
SELECT parts();
DO $$ DECLARE m int[] := '{{1,2},{3,4}}'; BEGIN m[1] := 3; END $$;
DO $$ DECLARE m int[] := '{{1,2},{3,4}}'; BEGIN m[1][3] := 3; END $$;
DO $$ DECLARE m int[] := '{1,2}'; BEGIN m[NULL] := 3; END $$;
DO $$ DECLARE m int[]; BEGIN m[:2] := '{1,2}'; END $$;
DO $$ DECLARE m int; BEGIN m[1] := 2; END $$;
-- Functions that return a set, in the SELECT list.
CREATE FUNCTION upto(n int) RETURNS SETOF int AS $$ BEGIN FOR i IN 1..n LOOP RETURN NEXT i * i; END LOOP; END $$ LANGUAGE plpgsql;
CREATE FUNCTION words() RETURNS SETOF text AS $$ SELECT unnest(ARRAY['a,b', NULL, '{"x"}']) $$ LANGUAGE sql;
CREATE FUNCTION onecolumn() RETURNS TABLE (w text) AS $$ BEGIN w := 'x'; RETURN NEXT; w := 'y'; RETURN NEXT; END $$ LANGUAGE plpgsql;
SELECT upto(3);
SELECT upto(0);
SELECT upto(2) + 1 AS more, 'c' AS c;
SELECT words();
SELECT onecolumn();
SELECT count(*) FROM (SELECT upto(5)) s;
WITH w AS (SELECT upto(2) AS x) SELECT a.x, b.x FROM w a, w b ORDER BY 1, 2;
ALTER FUNCTION upto STABLE;
SELECT a, upto(2) FROM (VALUES (1), (2)) v(a) ORDER BY a, 2;
SELECT * FROM upto(3) u WHERE u > 1;

-- a volatile default is evaluated for each row, also if a user's function hides it
CREATE FUNCTION chance() RETURNS double precision LANGUAGE sql VOLATILE AS $$ SELECT random() $$;
CREATE DOMAIN chances AS double precision DEFAULT chance();
CREATE TABLE drawn (a int, b chances, c double precision DEFAULT chance());
INSERT INTO drawn (a) VALUES (1), (2), (3);
SELECT count(DISTINCT b), count(DISTINCT c) FROM drawn;
-- VARIADIC arrays
SELECT num_nonnulls(VARIADIC '{1,2,NULL,3}'::int[]), num_nulls(VARIADIC '{1,2,NULL,3}'::int[]), num_nulls(VARIADIC NULL::text[]), num_nonnulls(VARIADIC '{}'::int[]), num_nulls(NULL, 1, NULL);
CREATE TABLE vn (id int, a int[]); INSERT INTO vn VALUES (1, '{1,NULL}'), (2, NULL), (3, '{{NULL,2},{3,NULL}}'); SELECT id, num_nulls(VARIADIC a), num_nonnulls(VARIADIC a) FROM vn ORDER BY id;
-- a cancel has the context of the function, and can be caught by its name
SET statement_timeout = '100ms';
DO $$ BEGIN LOOP NULL; END LOOP; END $$;
DO $$ BEGIN BEGIN PERFORM pg_sleep(5); EXCEPTION WHEN others THEN RAISE NOTICE 'caught'; END; END $$;
DO $$ BEGIN BEGIN PERFORM pg_sleep(5); EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'caught'; END; PERFORM 1; END $$;
RESET statement_timeout;
-- statements that return no rows, where rows are needed
CREATE TABLE written (a int);
CREATE FUNCTION no_rows() RETURNS SETOF int LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT 10 INTO made; END'; SELECT * FROM no_rows(); SELECT * FROM made;
CREATE OR REPLACE FUNCTION no_rows() RETURNS SETOF int LANGUAGE plpgsql AS 'BEGIN RETURN QUERY INSERT INTO written VALUES (1); END'; SELECT * FROM no_rows(); SELECT * FROM written;
CREATE OR REPLACE FUNCTION no_rows() RETURNS SETOF int LANGUAGE plpgsql AS 'DECLARE r record; BEGIN FOR r IN DELETE FROM written LOOP END LOOP; END'; SELECT * FROM no_rows();
-- the fields of OUT parameters
CREATE FUNCTION two(a int, OUT x int, OUT y text) LANGUAGE plpgsql AS 'BEGIN x := a; y := a + 1; END';
SELECT (two(1)).x, (two(1)).y, row_to_json(two(2)), two(3); SELECT (two(1)).z;
DO $$ BEGIN RAISE NOTICE '%', (two(5)).y; END $$; DO $$ DECLARE r record; BEGIN r := two(6); RAISE NOTICE '% %', r.y, pg_typeof(r.x); END $$;
-- the SQLSTATE of errors of the grammar
DO $$ DECLARE body text; BEGIN
FOREACH body IN ARRAY ARRAY['BEGIN RETURN 5; END', 'BEGIN RETURN NEXT; END', 'DECLARE a CONSTANT int := 1; BEGIN a := 2; END', 'DECLARE a int NOT NULL; BEGIN END', 'DECLARE a int; BEGIN OPEN a FOR SELECT 1; END', 'BEGIN RAISE absent; END', 'BEGIN EXIT; END'] LOOP
BEGIN EXECUTE format('CREATE FUNCTION wrong() RETURNS void LANGUAGE plpgsql AS %L', body); EXCEPTION WHEN others THEN RAISE NOTICE '% %', SQLSTATE, SQLERRM; END; END LOOP; END $$;
\set VERBOSITY default
DO $$ DECLARE a int[]; BEGIN a[2] := nosuch + 1; END $$;
DO $$ DECLARE r bigint; BEGIN r := 1 + nextval('nosuch'); END $$;
DO $$ DECLARE r int := nosuch; BEGIN NULL; END $$;
-- commands that change a table which a cursor or a loop of the session reads
CREATE TABLE used (a int); CREATE TABLE unused (a int); INSERT INTO used VALUES (1), (2); CREATE VIEW of_used AS SELECT a FROM used;
CREATE TABLE parts (a int) PARTITION BY LIST (a); CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1); CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2);
BEGIN; DECLARE c CURSOR FOR SELECT * FROM used; FETCH ALL c; TRUNCATE used; ROLLBACK;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM used; TRUNCATE unused; ALTER TABLE used RENAME a TO b; CLOSE c; TRUNCATE used; ROLLBACK;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM unused WHERE a IN (SELECT a FROM of_used); ALTER TABLE used ADD b int; ROLLBACK;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM used; CREATE INDEX ON used (a); ROLLBACK;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM unused; DROP TABLE unused; ROLLBACK;
BEGIN; SAVEPOINT s; DECLARE c CURSOR FOR SELECT * FROM used; ROLLBACK TO s; TRUNCATE used; ROLLBACK;
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM used; COMMIT; TRUNCATE used; CLOSE c; INSERT INTO used VALUES (1), (2);
BEGIN; DECLARE c CURSOR FOR SELECT * FROM parts; DROP TABLE parts; ROLLBACK;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM part1; TRUNCATE parts; ROLLBACK;
DO $$ DECLARE r record; BEGIN FOR r IN SELECT * FROM used LOOP ALTER TABLE used ADD b int; END LOOP; END $$;
DO $$ DECLARE c CURSOR FOR SELECT * FROM used; BEGIN OPEN c; TRUNCATE used; END $$;
DO $$ DECLARE r record; BEGIN FOR r IN EXECUTE 'SELECT * FROM used' LOOP BEGIN TRUNCATE used; EXCEPTION WHEN object_in_use THEN RAISE NOTICE '%', SQLERRM; END; EXIT; END LOOP; TRUNCATE used; END $$;
DROP VIEW of_used; DROP TABLE used, unused, parts;
-- the context of notices
\set SHOW_CONTEXT always
CREATE FUNCTION noticed(a int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''in noticed''; RETURN 1; END';
DO $$ DECLARE x int; BEGIN
  PERFORM noticed(1); x := noticed(2); EXECUTE 'SELECT noticed(3)';
  DROP TABLE IF EXISTS nosuch; RAISE WARNING 'b' USING DETAIL = 'd'; END $$;
SELECT noticed(4); DROP TABLE IF EXISTS nosuch;
