-- GROUP BY, DISTINCT and ORDER BY name columns of the SELECT list, which is written in another form.
CREATE TABLE grouped (a int, x int, b int, c text);
ALTER TABLE grouped DROP COLUMN x;
INSERT INTO grouped VALUES (1, 2, 'x'), (1, 2, 'x'), (3, 4, 'y');
SELECT * FROM grouped GROUP BY a, b, c ORDER BY 1;
SELECT grouped.* FROM grouped GROUP BY a, b, c ORDER BY 1;
SELECT a, grouped.b FROM grouped GROUP BY grouped.a, b ORDER BY 1;
SELECT * FROM (SELECT a, a + 1 AS d FROM grouped) s GROUP BY a, d ORDER BY a;
SELECT * FROM grouped GROUP BY a, b;
SELECT DISTINCT * FROM grouped ORDER BY grouped.a, grouped.b;
SELECT DISTINCT ON (grouped.a) * FROM grouped ORDER BY a, grouped.c;
SELECT * FROM grouped JOIN grouped u USING (a) GROUP BY a, grouped.b, grouped.c, u.b, u.c ORDER BY a;
CREATE VIEW groups AS SELECT * FROM grouped GROUP BY a, b, c;
SELECT * FROM groups ORDER BY 1;
CREATE VIEW first AS SELECT a FROM grouped ORDER BY a FETCH FIRST (1) ROWS WITH TIES;
SELECT * FROM first;
SELECT pg_get_viewdef('first'::regclass);
CREATE VIEW every AS SELECT a FROM grouped ORDER BY a LIMIT NULL;
SELECT pg_get_viewdef('every'::regclass);
SELECT * FROM grouped ORDER BY a FETCH FIRST NULL ROWS WITH TIES;
INSERT INTO grouped VALUES (1, 2, 'x') ON CONFLICT DO UPDATE SET a = 1;
SELECT array_fill(1, ARRAY[2, 2], '{}');
SELECT count(*) OVER w FROM grouped WINDOW w AS (ORDER BY a), w AS (ORDER BY b);
INSERT INTO grouped (a) VALUES (1), (2) RETURNING *;
DROP TABLE grouped CASCADE;
-- a merged column is that of a side
CREATE TABLE g1 (f int, a int); CREATE TABLE g2 (f int, b int); INSERT INTO g1 VALUES (1, 1), (2, 2); INSERT INTO g2 VALUES (1, 1), (3, 3);
SELECT f, count(*) FROM g1 LEFT JOIN g2 USING (f) GROUP BY g1.f ORDER BY 1; SELECT f, g1.f FROM g1 JOIN g2 USING (f) GROUP BY f;
SELECT f FROM g1 RIGHT JOIN g2 USING (f) GROUP BY g2.f ORDER BY f; SELECT f FROM g1 LEFT JOIN g2 USING (f) GROUP BY g2.f;
-- an aggregate of the outer query in another one
SELECT (SELECT max(min(g1.f)) FROM g2) FROM g1; SELECT (SELECT max(g1.f) FILTER (WHERE sum(g1.a) > 0) FROM g2) FROM g1;
DROP TABLE g1, g2;
