-- COMMIT and ROLLBACK in procedures and DO.
CREATE TABLE t (a int, b text);
CREATE PROCEDURE every_second(n int, INOUT kept int DEFAULT 0) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..n LOOP
    INSERT INTO t VALUES (i, 'p');
    IF i % 2 = 0 THEN COMMIT; kept := kept + 1; ELSE ROLLBACK; END IF;
  END LOOP;
END $$;
CALL every_second(5, 0);
SELECT * FROM t ORDER BY 1;
CREATE PROCEDURE outer_one() LANGUAGE plpgsql AS $$
DECLARE k int;
BEGIN
  INSERT INTO t VALUES (10, 'outer');
  CALL every_second(2, k);
  INSERT INTO t VALUES (11, 'outer');
  ROLLBACK;
  RAISE NOTICE 'now %', (SELECT count(*) FROM t);
  INSERT INTO t VALUES (12, 'outer');
  RAISE EXCEPTION 'end';
END $$;
CALL outer_one();
SELECT * FROM t ORDER BY 1;
BEGIN;
CALL every_second(2, 0);
COMMIT;
DO $$ BEGIN INSERT INTO t VALUES (20, 'do'); COMMIT; INSERT INTO t VALUES (21, 'do'); ROLLBACK; END $$;
SELECT a FROM t WHERE b = 'do';
DO $$ BEGIN BEGIN INSERT INTO t VALUES (30, 'x'); COMMIT; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$;
DO $$ BEGIN BEGIN ROLLBACK; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$;
DO $$ BEGIN BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN INSERT INTO t VALUES (31, 'handler'); COMMIT; END; PERFORM 1 / 0; END $$;
SELECT a FROM t WHERE b = 'handler';
CREATE FUNCTION ends() RETURNS int LANGUAGE plpgsql AS $$ BEGIN COMMIT; RETURN 1; END $$;
SELECT ends();
DO $$ BEGIN PERFORM ends(); END $$;
CREATE PROCEDURE defined() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN COMMIT; END $$;
CALL defined();
CREATE PROCEDURE configured() LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN COMMIT; END $$;
CALL configured();
CREATE PROCEDURE sql_one() LANGUAGE sql AS $$ INSERT INTO t VALUES (40, 'sql'); COMMIT $$;
CALL sql_one();
DO $$
DECLARE r record;
BEGIN
  FOR r IN SELECT a FROM t ORDER BY a LOOP
    UPDATE t SET b = b || '!' WHERE a = r.a;
    COMMIT;
  END LOOP;
END $$;
SELECT * FROM t ORDER BY 1;
DO $$ DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a; x int; BEGIN OPEN c; FETCH c INTO x; COMMIT; FETCH c INTO x; END $$;
DO $$ BEGIN SET LOCAL work_mem = '3MB'; COMMIT; RAISE NOTICE '%', current_setting('work_mem'); SET work_mem = '5MB'; ROLLBACK; RAISE NOTICE '%', current_setting('work_mem'); END $$;
DO $$ BEGIN SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; COMMIT AND CHAIN; RAISE NOTICE '%', current_setting('transaction_isolation'); COMMIT; RAISE NOTICE '%', current_setting('transaction_isolation'); END $$;
DO $$ DECLARE a timestamptz := now(); BEGIN COMMIT; RAISE NOTICE '%', now() > a; END $$;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
DO $$ BEGIN INSERT INTO child VALUES (1); COMMIT; EXCEPTION WHEN foreign_key_violation THEN NULL; END $$;
DO $$ BEGIN INSERT INTO child VALUES (1); COMMIT; RAISE NOTICE 'not reached'; END $$;
SELECT count(*) FROM child;
-- Statements of the session in functions.
CREATE FUNCTION settings_of() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  SET LOCAL work_mem = '7MB';
  SET search_path = pg_catalog;
  LOCK TABLE public.t IN SHARE MODE;
  RETURN current_setting('work_mem') || current_setting('search_path');
END $$;
SELECT settings_of();
SHOW work_mem;
SHOW search_path;
RESET search_path;
DO $$ BEGIN RESET search_path; SET TIME ZONE 'Europe/Rome'; EXECUTE 'SET LOCAL DateStyle = German'; RAISE NOTICE '%', date '2020-03-04'; END $$;
SHOW TimeZone;
SHOW DateStyle;
DO $$ BEGIN SET nosuch = 1; END $$;
DO $$ BEGIN SET work_mem = 'nonsense'; END $$;
DO $$ BEGIN SET ROLE nosuch; END $$;
-- The procedure that CALL resolves to.
CREATE PROCEDURE pick(a int) LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'int %', a; END $$;
CREATE PROCEDURE pick(a text) LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'text %', a; END $$;
CREATE PROCEDURE more(a int, b int DEFAULT 7, VARIADIC c int[] DEFAULT '{}') LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % %', a, b, c; END $$;
CALL pick(1);
CALL pick('x');
CALL pick('x'::text);
CALL more(1);
CALL more(1, 2);
CALL more(1, 2, 3, 4);
CALL more(1, c => '{5}', b => 3);
CALL more(1, b => 3);
CREATE PROCEDURE by_name(a int, b int DEFAULT 7, c text DEFAULT 'x') LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % %', a, b, c; END $$;
CALL by_name(c => 'z', a => 1);
CALL by_name(1, c => 'z');
CALL by_name(b => 1);
CALL by_name(1, a => 2);
CALL more(1, 2, VARIADIC '{8,9}');
CALL pick(1.5);
CALL pick();
CREATE PROCEDURE outs(a int, OUT b int, INOUT c text DEFAULT 'd') LANGUAGE plpgsql AS $$ BEGIN b := a + 1; c := c || '!'; END $$;
CALL outs(1, NULL);
CALL outs(1, NULL, 'x');
CALL outs(c => 'y', a => 2, b => NULL);
CALL outs(1);
CALL ends();
-- The order of arguments is checked before any is evaluated.
CREATE FUNCTION says(a int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'says %', a; RETURN a; END $$;
CALL by_name(a => says(1), 2);
CALL by_name(a => says(1), a => says(2));
CALL by_name(a => says(1), b => says(2));
-- An argument that calls a volatile function is evaluated once for each row.
CREATE FUNCTION twice(a int) RETURNS int LANGUAGE sql AS 'SELECT a + a';
SELECT twice(says(x)) FROM (VALUES (1), (2)) v(x);
-- The arguments of CALL are analysed, the procedure is resolved, and the privilege to call it is checked before any argument is evaluated.
CREATE PROCEDURE secret(a int) LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'secret'; END $$;
CREATE FUNCTION of_set() RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
REVOKE ALL ON PROCEDURE secret FROM public;
CREATE ROLE role_of_procedures;
CALL no_such(says(1));
CALL no_such(1 / 0);
CALL secret(says(1), 2);
CALL says(says(1));
CALL secret('x'::text || says(1));
CALL secret(says(1) + missing(2));
CALL secret(ARRAY[says(1)]);
CALL secret(says('abc'));
CALL secret(1 / 0);
CALL secret((SELECT 1));
CALL secret(sum(1));
CALL secret(of_set());
CALL secret(x);
SET ROLE role_of_procedures;
CALL secret(says(1));
CALL secret(1 / 0);
RESET ROLE;
DROP ROLE role_of_procedures;
CALL secret(CASE WHEN true THEN says(1) ELSE says(2) END);
CALL secret(coalesce(says(1), says(2)));
DO $$ DECLARE v int := 5; BEGIN CALL secret(v); CALL secret(v + says(1)); END $$;
DO $$ BEGIN CALL secret((SELECT 1)); END $$;
-- The OUT and INOUT parameters of a CALL in a function are stored in the variables that are its arguments.
CREATE PROCEDURE pq(INOUT a int, b int DEFAULT 7) LANGUAGE plpgsql AS $$ BEGIN a := a + b; END $$;
CREATE PROCEDURE po(a int, OUT b int, INOUT c text DEFAULT 'd') LANGUAGE plpgsql AS $$ BEGIN b := a + 1; c := c || '!'; COMMIT; END $$;
CREATE PROCEDURE pn(int, OUT int, INOUT text) LANGUAGE plpgsql AS $$ BEGIN $2 := $1 + 1; $3 := $3 || '?'; END $$;
CREATE TYPE pair2 AS (x int, y text);
CREATE PROCEDURE pc(INOUT p pair2, INOUT q int) LANGUAGE plpgsql AS $$ BEGIN p := (q, 'new'); q := q + 1; END $$;
CREATE PROCEDURE of_sql(INOUT a int) LANGUAGE sql AS $$ SELECT a * 2 $$;
CREATE PROCEDURE recurse(INOUT n int, INOUT total int) LANGUAGE plpgsql AS $$ BEGIN IF n > 0 THEN total := total + n; n := n - 1; CALL recurse(n, total); END IF; END $$;
DO $$ DECLARE v int := 5; t text := 'q'; n numeric := 1.5; b int; r record; s smallint; k CONSTANT int := 1;
BEGIN
  CALL pq(v); RAISE NOTICE '%', v;
  CALL pq(v, v + 1); RAISE NOTICE '%', v;
  CALL po(v, b, t); RAISE NOTICE '% %', b, t;
  CALL po(c => t, a => 3, b => b); RAISE NOTICE '% %', b, t;
  CALL pn(1, b, t); RAISE NOTICE '% %', b, t;
  CALL of_sql(v); RAISE NOTICE '%', v;
  SELECT 1 AS one, 2 AS two INTO r; CALL pq(r.one, 4); RAISE NOTICE '%', r;
  s := 3; CALL pq(v, s::int); RAISE NOTICE '%', v;
  CALL pq(a => v, b => 1); RAISE NOTICE '%', v;
END $$;
DO $$ DECLARE p pair2; q int := 4; BEGIN CALL pc(p, q); RAISE NOTICE '% % %', p, p.y, q; END $$;
DO $$ DECLARE n int := 4; total int := 0; BEGIN CALL recurse(n, total); RAISE NOTICE '% %', n, total; END $$;
DO $$ DECLARE v int := 5; BEGIN CALL pq(v + 1); END $$;
DO $$ BEGIN CALL pq(1); END $$;
DO $$ DECLARE b int; BEGIN CALL po(1, b); END $$;
DO $$ DECLARE b int; BEGIN CALL pn(1, b, 'x'); END $$;
DO $$ DECLARE b int; BEGIN CALL po(1, NULL, 'x'); END $$;
DO $$ DECLARE k CONSTANT int := 1; BEGIN CALL pq(k); END $$;
DO $$ DECLARE b int; BEGIN CALL no_such(b); END $$;
DO $$ DECLARE n int; BEGIN FOR i IN 1..3 LOOP n := i; CALL pq(n, 1); RAISE NOTICE '%', n; END LOOP; END $$;
-- FOUND after utility commands, and what EXECUTE refuses.
CREATE TABLE seen (a int);
INSERT INTO seen VALUES (1), (2);
DO $$ BEGIN
  PERFORM 1; CREATE TABLE seen2 (a int); RAISE NOTICE '%', FOUND;
  TRUNCATE seen2; RAISE NOTICE '%', FOUND;
  CREATE TABLE seen3 AS SELECT 1 WHERE false; RAISE NOTICE '%', FOUND;
  SET LOCAL work_mem = '8MB'; RAISE NOTICE '%', FOUND;
  UPDATE seen SET a = 0 WHERE false; RAISE NOTICE '%', FOUND;
  CREATE TABLE seen4 AS SELECT * FROM seen; RAISE NOTICE '%', FOUND;
  MERGE INTO seen USING (VALUES (1)) v(x) ON x = a WHEN MATCHED THEN DELETE; RAISE NOTICE '%', FOUND;
END $$;
DO $$ BEGIN EXECUTE 'SELECT 1 INTO seen5'; END $$;
DO $$ BEGIN EXECUTE 'COMMIT'; END $$;
DO $$ BEGIN EXECUTE 'CREATE TABLE seen6 (a int); SELEC'; END $$;
DO $$ BEGIN EXECUTE 'CREATE TABLE seen7 (a int); SELECT 1/0'; END $$;
-- a value of EXECUTE is assigned to its parameter
PREPARE of_int (int) AS SELECT $1; EXECUTE of_int (2.7); EXECUTE of_int ('5'); EXECUTE of_int ('5'::text); EXECUTE of_int (true);
PREPARE of_bool (boolean) AS SELECT $1; EXECUTE of_bool (1); EXECUTE of_bool (NULL); EXECUTE of_bool ('yes');
DEALLOCATE ALL;
