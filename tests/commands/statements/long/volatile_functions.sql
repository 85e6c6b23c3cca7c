-- Functions that have a different value for each row, in every place of an expression.
SELECT sum(random()) BETWEEN 0 AND 10 FROM generate_series(1, 10);
SELECT count(*) FILTER (WHERE random() < 2), length(string_agg(random()::text, '|')) > 20 FROM generate_series(1, 10);
SELECT g % 2, sum(random()) > 0, count(DISTINCT random()) FROM generate_series(1, 10) g GROUP BY 1 ORDER BY 1;
SELECT g % 2, count(*) FROM generate_series(1, 10) g GROUP BY g % 2, random() < 2 ORDER BY 1;
SELECT g % 2, count(*) FROM generate_series(1, 10) g GROUP BY ROLLUP (g % 2) HAVING sum(random()) < 100 ORDER BY 1;
SELECT array_length(array_agg(g ORDER BY random()), 1), max(random()) + random() < 5 FROM generate_series(1, 10) g;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY random()) < 1 FROM generate_series(1, 10) g;
SELECT g, sum(random()) OVER () > 0, count(*) FILTER (WHERE random() < 2) OVER () FROM generate_series(1, 3) g ORDER BY g;
SELECT count(*) FROM (SELECT DISTINCT ON (random()) g FROM generate_series(1, 10) g) t;
SELECT a, b FROM (VALUES (1), (2)) v(a) JOIN (VALUES (1), (2)) w(b) ON a = b AND random() < 2 ORDER BY 1;
SELECT a, b FROM (VALUES (1), (2)) v(a) JOIN (VALUES (1), (2)) w(b) ON random() < 2 ORDER BY 1, 2;
