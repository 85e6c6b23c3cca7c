-- Window frames with large offsets, frames without rows, and the clauses that allow no window functions.
SELECT x, last_value(x) OVER (ORDER BY x::smallint RANGE BETWEEN CURRENT ROW AND 2147450884 FOLLOWING) FROM generate_series(32764, 32766) x;
SELECT x, last_value(x) OVER (ORDER BY x RANGE BETWEEN CURRENT ROW AND 4 FOLLOWING) FROM generate_series(2147483644, 2147483646) x;
SELECT x, last_value(x) OVER (ORDER BY x DESC RANGE BETWEEN CURRENT ROW AND 5 FOLLOWING)
  FROM generate_series(-9223372036854775806, -9223372036854775804) x;
SELECT x, sum(x) OVER (ROWS BETWEEN 9223372036854775807 FOLLOWING AND 1 FOLLOWING) FROM generate_series(1, 3) x;
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 FOLLOWING AND 9223372036854775807 FOLLOWING) FROM generate_series(1, 3) x;
SELECT x, count(x) OVER (ORDER BY x RANGE BETWEEN 2 FOLLOWING AND 1 FOLLOWING) FROM generate_series(1, 3) x;
SELECT x, count(*) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM (VALUES (1), (2), (NULL), (4)) v (x) ORDER BY x;
SELECT rank() OVER (ORDER BY rank() OVER (ORDER BY x)) FROM generate_series(1, 3) x;
SELECT sum(x) OVER (PARTITION BY rank() OVER (ORDER BY x)) FROM generate_series(1, 3) x;
SELECT * FROM generate_series(1, 3) x JOIN generate_series(1, 3) y ON row_number() OVER (ORDER BY x) < 2;
SELECT * FROM generate_series(1, 3) x JOIN generate_series(1, 3) y ON sum(x) < 2;
SELECT rank() OVER (ORDER BY 1), count(*) FROM generate_series(1, 3) x GROUP BY 1;
SELECT count(*) AS n FROM generate_series(1, 3) x GROUP BY n;
SELECT max(min(x)) FROM generate_series(1, 3) x;
SELECT string_agg(DISTINCT x::text, ',' ORDER BY x) FROM generate_series(1, 3) x;
SELECT no_aggregate(x ORDER BY x, x) FROM generate_series(1, 3) x;
SELECT sum() WITHIN GROUP (ORDER BY x::float8) FROM generate_series(1, 3) x;
