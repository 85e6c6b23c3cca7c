-- Joins without an equality are nested loops. The checks for a cancelled task in the loop lose no row.
CREATE TABLE one (a int, b text);
CREATE TABLE other (c int, d text);
INSERT INTO one SELECT g, 'x' || g FROM generate_series(1, 5) g;
INSERT INTO other SELECT g, 'y' || g FROM generate_series(3, 7) g;
SELECT count(*), sum(a), sum(c) FROM one, other;
SELECT a, c FROM one, other WHERE a + 4 < c ORDER BY 1, 2;
SELECT a, c FROM one JOIN other ON a > c ORDER BY 1, 2;
SELECT a, c FROM one LEFT JOIN other ON a > c + 1 ORDER BY 1, 2 NULLS FIRST;
SELECT a, c FROM one FULL JOIN other ON a = c ORDER BY 1, 2;
SELECT count(*) FROM one, other, generate_series(1, 3) g WHERE a = c;
SELECT count(*) FROM (SELECT a FROM one WHERE a > 1) s, (SELECT c FROM other WHERE c < 7) t;
SELECT a, s.n FROM one, LATERAL (SELECT count(*) AS n FROM other WHERE c < a) s ORDER BY 1;
SELECT a FROM one WHERE EXISTS (SELECT FROM other WHERE c < a) ORDER BY 1;
SELECT o.a, p.a FROM one o CROSS JOIN one p WHERE o.a = 1 AND p.a = 2;
SELECT a FROM one, other WHERE c = 3 ORDER BY a LIMIT 2 FOR UPDATE;
DROP TABLE one;
DROP TABLE other;
