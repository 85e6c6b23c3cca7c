\set VERBOSITY terse
CREATE TABLE t (a int PRIMARY KEY, b text, c numeric, d date);
INSERT INTO t VALUES (1, 'one', 1.50, '2024-01-31'), (2, 'two', NULL, '2024-02-29'), (3, NULL, 3.25, NULL);
CREATE FUNCTION twice(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 2';
CREATE FUNCTION shown(x int, y text DEFAULT 'none') RETURNS text LANGUAGE sql AS $$ SELECT coalesce(y, 'null') || ':' || x $$;
CREATE FUNCTION only(x text) RETURNS text STRICT LANGUAGE sql AS $$ SELECT upper(x) || coalesce(x, 'never') $$;
SELECT a, twice(a), shown(a, b), shown(a), only(b) FROM t ORDER BY a;
SELECT a FROM t WHERE twice(a) > 2 ORDER BY twice(a) DESC;
SELECT twice(a) % 4, count(*), sum(twice(a)) FROM t GROUP BY twice(a) % 4 ORDER BY 1;
SELECT twice(count(*)::int), max(twice(a)) FROM t;
SELECT shown(y => b, x => a) FROM t ORDER BY a;
SELECT twice(b) FROM t;
CREATE FUNCTION grade(x int) RETURNS text LANGUAGE plpgsql AS $$ DECLARE s text := ''; BEGIN
  FOR i IN 1..x LOOP s := s || i; END LOOP;
  IF x = 1 THEN RETURN 'first'; ELSIF x = 2 THEN RETURN upper('second') || length(s); END IF;
  RETURN s; END $$;
SELECT a, grade(a) FROM t ORDER BY a;
SELECT a FROM t WHERE grade(a) LIKE '%1%' ORDER BY a;
CREATE FUNCTION halved(x numeric) RETURNS numeric STRICT IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN round(x / 2, 2); END $$;
SELECT a, halved(c), halved(a) FROM t ORDER BY a;
CREATE FUNCTION month_end(x date) RETURNS date LANGUAGE plpgsql AS $$ BEGIN RETURN (date_trunc('month', x) + interval '1 month')::date - 1; END $$;
SELECT a, month_end(d) FROM t ORDER BY a;
CREATE FUNCTION factorial(n int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN IF n <= 1 THEN RETURN 1; END IF; RETURN n * factorial(n - 1); END $$;
SELECT a, factorial(a + 3) FROM t ORDER BY a;
CREATE FUNCTION guarded(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 6 / (x - 2); EXCEPTION WHEN division_by_zero THEN RETURN NULL; END $$;
SELECT a, guarded(a) FROM t ORDER BY a;
CREATE FUNCTION checked(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  IF x > 2 THEN RAISE EXCEPTION 'too large: %', x USING ERRCODE = '22003', DETAIL = 'At most 2.', HINT = 'Try less.'; END IF;
  RETURN x; END $$;
SELECT checked(a) FROM t WHERE a < 3 ORDER BY a;
SELECT checked(a) FROM t ORDER BY a;
\set VERBOSITY default
SELECT checked(a) FROM t ORDER BY a;
CREATE FUNCTION divides(x int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE y int; BEGIN
  y := 10 / (x - 1);
  RETURN y; END $$;
SELECT divides(a) FROM t;
\set VERBOSITY terse
SELECT CASE WHEN a > 1 THEN divides(a) END FROM t ORDER BY a;
UPDATE t SET b = shown(a, b), c = halved(c) WHERE twice(a) >= 4;
SELECT * FROM t ORDER BY a;
INSERT INTO t SELECT a + 10, grade(a), halved(c), month_end(d) FROM t RETURNING a, grade(a - 10), twice(a);
DELETE FROM t WHERE twice(a) > 20;
SELECT * FROM t ORDER BY a;
SELECT x.a, y.a FROM t x JOIN t y ON twice(x.a) = y.a ORDER BY 1;
CREATE FUNCTION nothing(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN END $$;
SELECT nothing(a) FROM t;
CREATE FUNCTION arrays(x int[], y int) RETURNS int[] LANGUAGE plpgsql AS $$ DECLARE e int; n int := 0; BEGIN
  FOREACH e IN ARRAY x LOOP n := n + e; END LOOP; RETURN x || (n + y); END $$;
SELECT arrays(ARRAY[a, 5], a) FROM t ORDER BY a;
CREATE FUNCTION outer_one(x int) RETURNS int LANGUAGE sql AS 'SELECT twice(x) + divides(x)';
SELECT outer_one(a) FROM t WHERE a > 1 ORDER BY a;
CREATE FUNCTION calls_sql(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN twice(x) + 1; END $$;
SELECT calls_sql(a) FROM t ORDER BY a;
