-- Arguments of functions and procedures by name.
\set VERBOSITY verbose
CREATE FUNCTION f(a int, b int DEFAULT 2, c text DEFAULT 'c') RETURNS text LANGUAGE sql AS $$ SELECT concat_ws(' ', $1, $2, $3) $$;
CREATE PROCEDURE p(a int, b text DEFAULT 'b') LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% %', a, b; END $$;
SELECT f(a => 1), f(1, c => 'x'), f(c => 'x', a => 1), f(b := 3, a := 1);
SELECT f(a => 1, 2);
SELECT f(a => 1, 1 + 2);
SELECT f(a => 1, f(2));
SELECT f(b => 1, b => 2);
SELECT f(1, a => 2);
SELECT f(1, d => 2);
SELECT f(b => 2);
SELECT nothing(a => 1, 2);
CALL p(a => 1, 'x');
CALL p(a => 1, a => 2);
CALL p(b => 'x', a => 1);
CALL p(1, b => 'y');
CALL p(b => 'y');
