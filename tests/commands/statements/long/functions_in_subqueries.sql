-- A function that reads a table, called in a subquery with columns of the query around it.
CREATE TABLE t (id int PRIMARY KEY, a int);
CREATE TABLE u (id int, b int);
CREATE TABLE map (k int, m int);
INSERT INTO t SELECT i, i % 4 FROM generate_series(1, 8) i;
INSERT INTO t VALUES (9, NULL);
INSERT INTO u VALUES (1, 10), (2, 20), (3, 21), (4, NULL);
INSERT INTO map VALUES (0, 0), (1, 10), (2, 20), (3, 30);
CREATE FUNCTION f(k int) RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT m FROM map WHERE map.k = f.k); END $$;
CREATE FUNCTION s(k int) RETURNS int LANGUAGE sql STABLE AS $$ SELECT m FROM map WHERE map.k = s.k $$;
CREATE FUNCTION of_row(t) RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT m FROM map WHERE k = $1.a); END $$;
CREATE FUNCTION positive(n int) RETURNS int LANGUAGE plpgsql STABLE AS $$
BEGIN IF n <= 0 THEN RAISE 'not positive: %', n; END IF; RETURN (SELECT max(m) FROM map WHERE k <= n); END $$;

-- in WHERE
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE s(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE of_row(t) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE of_row(t.*) = u.b) ORDER BY 1;
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND f(u.id) > 5) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE f(u.id) = t.a * 10) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND f(u.id) = t.a * 10) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND f(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND f(t.a) + f(u.id) = u.b * 2) ORDER BY 1;
SELECT id FROM t WHERE a IN (SELECT u.id FROM u WHERE u.b = f(t.a)) ORDER BY 1;
SELECT id FROM t WHERE f(t.a) IN (SELECT b FROM u) ORDER BY 1;
SELECT id FROM t WHERE f(t.a) NOT IN (SELECT b FROM u) ORDER BY 1;
SELECT id FROM t WHERE f(t.a) NOT IN (SELECT b FROM u WHERE b IS NOT NULL) ORDER BY 1;
SELECT id FROM t WHERE f(t.a) = 30 OR EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE a > 0 AND EXISTS (SELECT 1 FROM u WHERE positive(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE positive(t.a) = u.b) ORDER BY 1;
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE CASE WHEN t.a > 0 THEN positive(t.a) END = u.b) ORDER BY 1;
SELECT x.id FROM (SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b)) x JOIN u ON u.id = x.id ORDER BY 1;

-- in the SELECT list, ORDER BY and HAVING
SELECT id, f(a), EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b) AS x FROM t ORDER BY x, 1;
SELECT id, (SELECT max(b) FROM u WHERE u.b <= f(t.a)) FROM t ORDER BY 1;
SELECT id, (SELECT u.b + f(t.a) FROM u WHERE u.id = t.id) FROM t ORDER BY 1;
SELECT id, (SELECT count(*) FROM u WHERE b <= f(t.a)) FROM t ORDER BY 2 DESC, 1 LIMIT 3;
SELECT id FROM t ORDER BY (SELECT count(*) FROM u WHERE b <= f(t.a)), id;
SELECT id, ARRAY(SELECT u.id FROM u WHERE b <= f(t.a) ORDER BY 1) FROM t ORDER BY 1;
SELECT id, f(t.a) IN (SELECT b FROM u WHERE b IS NOT NULL) AS x FROM t WHERE a IS NOT NULL ORDER BY 1;
SELECT id, f(t.a) > ALL (SELECT b FROM u WHERE u.id < 3) AS x FROM t ORDER BY 1;

-- in statements that change rows
UPDATE t SET a = a + 1 WHERE EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b) RETURNING id, a;
DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b) RETURNING id;
INSERT INTO u SELECT id, a FROM t WHERE f(a) IN (SELECT m FROM map) RETURNING *;
SELECT * FROM t ORDER BY 1;

-- a function that fails is called once
CREATE FUNCTION fails(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'called'; PERFORM 1 / (n - n); RETURN n; END $$;
SELECT fails((SELECT max(k) FROM map));
SELECT fails((SELECT m FROM map WHERE k = abs(1)));
SELECT fails((SELECT m FROM map)), 1;
