-- pg_get_viewdef prints each clause of a view's query, and the names that its objects have now.
CREATE TABLE t (a int, b int, c text);
CREATE TABLE u (a int, b int, d text);
CREATE TABLE k (id int PRIMARY KEY, x int);
CREATE TABLE old (a int);
CREATE SCHEMA other;
CREATE TABLE other.t (a int, z int);
CREATE TYPE other.mood AS ENUM ('sad', 'happy');
CREATE FUNCTION other.twice(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN x * 2; END $$;
CREATE VIEW v1 AS SELECT 1 AS a UNION SELECT 2 AS b;
CREATE VIEW v2 AS VALUES (2, 'x'), (1.5, 'y') ORDER BY 1;
CREATE VIEW v3 (p, q) AS VALUES (2, 'x'), (1, 'y') ORDER BY 1;
CREATE VIEW v4 AS SELECT a, t.b, u.b AS ub FROM t FULL JOIN u USING (a);
CREATE VIEW v5 AS SELECT * FROM t JOIN u USING (a, b) WHERE c = 'x';
CREATE VIEW v6 AS SELECT t.*, CASE WHEN a = 1 THEN 'x' ELSE 'y' END AS z FROM t t ORDER BY a DESC NULLS LAST, 2 LIMIT 10 OFFSET 2;
CREATE VIEW v7 AS WITH x(q) AS MATERIALIZED (SELECT a FROM t), y AS (SELECT * FROM t)
    SELECT q, (SELECT max(b) FROM t WHERE t.a = q) FROM x, y
    WHERE EXISTS (SELECT 1 FROM t WHERE t.a = x.q) AND q IN (SELECT a FROM u) AND (q, q) NOT IN (SELECT a, b FROM u);
CREATE VIEW v8 AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r;
CREATE VIEW v9 AS SELECT a, rank() OVER (PARTITION BY b ORDER BY a DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW),
    sum(a) OVER w, count(b) FILTER (WHERE a > 1) OVER (ORDER BY a ROWS UNBOUNDED PRECEDING) FROM t WINDOW w AS (PARTITION BY b);
CREATE VIEW v10 AS SELECT a, grouping(a, b), count(*) FROM t GROUP BY rollup(a), cube(b, (a, c)), GROUPING SETS ((), (a, b), c);
CREATE VIEW v11 AS (SELECT a FROM t LIMIT 1) UNION ALL (SELECT 'x'::text::int UNION SELECT b FROM u) EXCEPT SELECT a FROM u ORDER BY 1 LIMIT 3;
CREATE VIEW v12 AS SELECT j.a, s.x, f.*, g.* FROM (t JOIN u ON t.a = u.a) j(a, b1, c, a2) CROSS JOIN (SELECT 1 AS x, 'q') s(x, y),
    generate_series(1, j.a2) f, unnest(ARRAY[1], ARRAY['x']) WITH ORDINALITY g(m, n), LATERAL (SELECT t2.a AS l FROM t t2 WHERE t2.a = j.a) l;
CREATE VIEW v13 AS SELECT id, x, upper('a') FROM k GROUP BY id HAVING count(*) > 1;
CREATE VIEW v14 AS SELECT DISTINCT ON (a, lower(c)) a, lower(c), sum(b) OVER () FROM t ORDER BY a, lower(c), b;
CREATE VIEW v15 AS SELECT a FROM t FOR UPDATE OF t SKIP LOCKED;
CREATE VIEW v16 AS SELECT count(*), a + 1 AS q FROM t GROUP BY a + 1, lower(c) ORDER BY a + 1;
CREATE VIEW v17 AS SELECT t.a FROM (t LEFT JOIN u ON t.a = u.a) RIGHT JOIN (k FULL JOIN t t2 ON k.id = t2.a) ON true, (VALUES (1, 2)) v(p, q);
CREATE VIEW v18 AS SELECT a FROM t UNION SELECT a FROM u ORDER BY a;
CREATE VIEW v19 AS SELECT NOT (a = 1 AND b = 2) AS x, a BETWEEN 1 AND 2 AS y, c LIKE 'x%' AS z, a IN (1, 2, 3) AS w, c IS NULL, c || 'x' AS cc,
    array(SELECT a FROM u) FROM ONLY t;
CREATE VIEW v20 AS SELECT t.c::varchar(10), interval '1 day' AS i, date '2020-01-02' AS d, current_date, extract(year FROM now()),
    coalesce(a, b, 0), nullif(a, 1), 1.5 AS n, -1 AS m, true AS t, NULL AS u FROM t;
CREATE VIEW v21 AS SELECT t.a, o.z FROM t, other.t o WHERE t.a = o.a AND other.twice(o.a) > 1;
CREATE VIEW v22 AS SELECT 'sad'::other.mood AS m, other.twice(t.a) FROM other.t WHERE z > ALL (SELECT b FROM u);
CREATE VIEW v23 AS SELECT * FROM old;
CREATE VIEW v24 AS SELECT DISTINCT a FROM t GROUP BY DISTINCT a, b;
CREATE VIEW v25 AS SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a), string_agg(c, ',' ORDER BY b DESC), count(DISTINCT a) FROM t;
CREATE VIEW v26 AS SELECT s.a FROM (SELECT a, a, b FROM t) s(x) WHERE (a, b) > (1, 2);
CREATE VIEW v27 AS SELECT * FROM (SELECT a, a FROM t) s(x, y) NATURAL JOIN (SELECT 1 AS x UNION SELECT 2 AS w) z;
CREATE VIEW v28 AS SELECT relname, c.relkind FROM pg_class c WHERE oid > 16384;
CREATE VIEW v29 AS SELECT x.a, y.a AS ya FROM t x LEFT JOIN LATERAL generate_series(1, x.a) y(a) ON true;
CREATE VIEW v31 AS SELECT t AS whole, row_to_json(row(t, b))::text AS listed, t.c IS NOT NULL AND count(t.*) OVER () > 0 AS counted FROM t;
CREATE VIEW v30 AS SELECT a FROM v6 WHERE z = 'x';
SELECT relname, pg_get_viewdef(oid) FROM pg_class WHERE relname ~ '^v\d+$' ORDER BY substr(relname, 2)::int;
SELECT relname, pg_get_viewdef(oid, true) FROM pg_class WHERE relname ~ '^v\d+$' ORDER BY substr(relname, 2)::int;
SET search_path = '';
SELECT relname, pg_get_viewdef(oid) FROM pg_catalog.pg_class WHERE relname ~ '^v\d+$' ORDER BY substr(relname, 2)::int;
RESET search_path;
ALTER TABLE t RENAME TO "tT";
ALTER TABLE "tT" RENAME a TO aa;
ALTER VIEW v6 RENAME COLUMN z TO "Zz";
ALTER SCHEMA other RENAME TO more;
ALTER TABLE u SET SCHEMA more;
SELECT relname, pg_get_viewdef(oid) FROM pg_class WHERE relname ~ '^v\d+$' ORDER BY substr(relname, 2)::int;
SELECT refobjid::regclass, refobjsubid FROM pg_depend WHERE objid = (SELECT oid FROM pg_rewrite WHERE ev_class = 'v5'::regclass)
    AND deptype = 'n' AND refobjid <> 'v5'::regclass ORDER BY 1, 2;
SELECT * FROM v22 ORDER BY 1;
SELECT * FROM v30 ORDER BY 1;
CREATE VIEW w AS SELECT id INTO z FROM k;
CREATE VIEW w AS WITH z AS (DELETE FROM more.u RETURNING *) SELECT * FROM z;
CREATE VIEW w (p, q) AS SELECT 1;
CREATE VIEW w AS SELECT 1 AS a, 2 AS a;
ALTER TABLE k DROP COLUMN x;
-- parameters
CREATE VIEW v AS SELECT $1::int;
CREATE VIEW v AS SELECT 1 FROM (SELECT $2) x WHERE $1 = 2;
CREATE OR REPLACE VIEW v AS SELECT 1 ORDER BY $1;
