-- x IN (SELECT ...) is NULL if x or a value of the subquery is NULL, and no value equals x.
\pset null NULL
CREATE TABLE t (id int PRIMARY KEY, a int, n numeric, c text);
CREATE TABLE u (b int, n numeric, c text);
INSERT INTO t VALUES (1, 10, 1.0, 'x'), (2, 30, 3.0, 'z'), (3, NULL, NULL, NULL);
INSERT INTO u VALUES (10, 1.00, 'x'), (20, 2.00, 'y'), (NULL, NULL, NULL);
SELECT id, a IN (SELECT b FROM u), a NOT IN (SELECT b FROM u), NOT a IN (SELECT b FROM u) FROM t ORDER BY 1;
SELECT id, n IN (SELECT n FROM u), c IN (SELECT c FROM u), c <> ALL (SELECT c FROM u), c = ANY (SELECT c FROM u) FROM t ORDER BY 1;
SELECT id, a IN (SELECT b FROM u WHERE b > 10), a IN (SELECT b FROM u WHERE b > 100), a NOT IN (SELECT b FROM u WHERE b > 100) FROM t ORDER BY 1;
SELECT id, CASE WHEN a IN (SELECT b FROM u) THEN 'in' WHEN a NOT IN (SELECT b FROM u) THEN 'not' ELSE '?' END FROM t ORDER BY 1;
SELECT id, coalesce(a IN (SELECT b FROM u), id = 3) FROM t ORDER BY 1;
SELECT id FROM t WHERE (a IN (SELECT b FROM u)) IS NULL ORDER BY 1;
SELECT id FROM t WHERE (a IN (SELECT b FROM u)) IS NOT TRUE ORDER BY 1;
SELECT id FROM t WHERE NOT (id = 5 OR a IN (SELECT b FROM u)) ORDER BY 1;
SELECT id FROM t WHERE id = 5 OR a NOT IN (SELECT b FROM u) ORDER BY 1;
SELECT id FROM t WHERE a NOT IN (SELECT b FROM u) ORDER BY 1;
SELECT id FROM t WHERE a NOT IN (SELECT b FROM u WHERE b IS NOT NULL) ORDER BY 1;
SELECT id FROM t WHERE a IN (SELECT b FROM u) ORDER BY 1;
SELECT (a IN (SELECT b FROM u)) AS x, count(*) FROM t GROUP BY 1 ORDER BY 1;
SELECT id FROM t ORDER BY a IN (SELECT b FROM u), id;
SELECT bool_and(a IN (SELECT b FROM u)), bool_or(a IN (SELECT b FROM u)), count(a IN (SELECT b FROM u)) FROM t;
SELECT t.id, u.b FROM t LEFT JOIN u ON t.a IN (SELECT b FROM u) ORDER BY 1, 2;
UPDATE t SET c = (a IN (SELECT b FROM u))::text RETURNING id, c;
SELECT NULL IN (SELECT 1), 1 IN (SELECT NULL::int), NULL IN (SELECT 1 WHERE false), 2 NOT IN (SELECT 1);

-- comparisons with each row of a subquery
CREATE TABLE pairs (a int, b int);
INSERT INTO pairs VALUES (1,2),(2,NULL),(NULL,3);
CREATE TABLE singles (x int, y numeric, c char(5));
INSERT INTO singles VALUES (1,1.0,'a'),(2,2.50,'b  '),(NULL,3,NULL),(4,NULL,'zz');
SELECT x, x IN (SELECT a FROM pairs WHERE pairs.b > x) FROM generate_series(1,4) x ORDER BY 1;
SELECT x, x NOT IN (SELECT a FROM pairs WHERE pairs.b > x) FROM generate_series(1,4) x ORDER BY 1;
SELECT x, x IN (SELECT a FROM pairs WHERE pairs.b > x) IS NULL AS u FROM generate_series(1,4) x WHERE (x IN (SELECT a FROM pairs WHERE pairs.b > x)) IS NULL ORDER BY 1;
SELECT x, (x, 2) IN (SELECT a, b FROM pairs), (x,9) NOT IN (SELECT a, b FROM pairs) FROM generate_series(1,4) x ORDER BY 1;
SELECT x, (x, 2) IN (SELECT a, b FROM pairs WHERE pairs.a IS DISTINCT FROM x) FROM generate_series(1,4) x ORDER BY 1;
SELECT x, (x, 2) NOT IN (SELECT a, b FROM pairs WHERE pairs.a IS DISTINCT FROM x) FROM singles ORDER BY 1;
SELECT x FROM singles WHERE (x, 2) NOT IN (SELECT a, b FROM pairs WHERE a IS NOT NULL) ORDER BY 1;
SELECT x, (x, 2) < ANY (SELECT a, b FROM pairs), (x,9) >= ALL (SELECT a, b FROM pairs) FROM singles ORDER BY 1;
SELECT x, y > ANY (SELECT y FROM singles), y <= ALL (SELECT y FROM singles WHERE y < 3), c < ANY (SELECT c FROM singles), c = ANY (SELECT c FROM singles WHERE x <> singles.x) FROM singles ORDER BY 1;
SELECT x, y > ANY (SELECT t.y FROM singles t WHERE t.x <= singles.x), x < ALL (SELECT a + singles.x FROM pairs) FROM singles ORDER BY 1;
SELECT x, x = ANY (SELECT a FROM pairs), x > ALL (SELECT a FROM pairs), x < ANY(SELECT a FROM pairs WHERE b>x), x <> ALL (SELECT a FROM pairs) FROM generate_series(0,4) x ORDER BY 1;
SELECT x FROM singles WHERE y > ALL (SELECT t.y FROM singles t WHERE t.x < singles.x) ORDER BY 1;
SELECT x, (SELECT max(a) FROM pairs) IN (SELECT a FROM pairs WHERE pairs.b > x) FROM singles ORDER BY 1;
UPDATE singles SET c = 'q' WHERE (x, y) NOT IN (SELECT a, b FROM pairs WHERE b IS NOT NULL AND a IS NOT NULL) RETURNING *;
SELECT count(*) FILTER (WHERE (x, 2) IN (SELECT a, b FROM pairs)) FROM singles;
SELECT x, CASE WHEN (x, 2) IN (SELECT a, b FROM pairs) THEN 1 ELSE 0 END FROM singles ORDER BY (x,2) IN (SELECT a,b FROM pairs), x;
