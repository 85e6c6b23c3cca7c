-- A literal without a type in one query of UNION gets the type of the column in the other.
CREATE TABLE listed (a int, b text, c numeric(6,2), d timestamptz);
INSERT INTO listed VALUES (1, 'one', 1.50, '2024-01-01 00:00+00'), (2, NULL, NULL, NULL);
SELECT a, c FROM listed UNION SELECT NULL, NULL FROM listed ORDER BY 1, 2;
SELECT NULL, NULL, NULL FROM listed UNION ALL SELECT a, c, d IS NULL FROM listed ORDER BY 1, 2;
SELECT 1.5 UNION SELECT NULL ORDER BY 1;
SELECT NULL AS x UNION ALL SELECT 1.5;
SELECT a, '7' FROM listed UNION ALL SELECT '5', 6 ORDER BY 1;
SELECT a FROM listed EXCEPT SELECT '2' ORDER BY 1;
SELECT a FROM listed INTERSECT SELECT '2';
SELECT d, '2020-01-01' < d FROM listed UNION SELECT '2021-01-01', NULL ORDER BY 1;
SELECT a FROM listed UNION SELECT 'x';
SELECT NULL UNION SELECT NULL;
SELECT a, count(*), NULL AS of FROM listed GROUP BY a UNION ALL SELECT NULL, NULL, 1.25 ORDER BY 1;
\set VERBOSITY sqlstate
SELECT 1 UNION (SELECT NULL UNION SELECT NULL);
SELECT DISTINCT NULL UNION SELECT 1;
\set VERBOSITY default
SELECT x, pg_typeof(x) FROM (SELECT NULL AS x UNION ALL SELECT a FROM listed) s ORDER BY 1;
SELECT c FROM listed UNION ALL SELECT 3.7::numeric UNION SELECT 12.123456789012345678901234567890 ORDER BY 1;
SELECT c = 1.5 FROM (SELECT c FROM listed INTERSECT SELECT 1.5) s;
SELECT c FROM listed EXCEPT SELECT 1.50000::numeric(8,5) ORDER BY 1;
SELECT x FROM (VALUES (1.5::numeric(6,2)), (3::numeric), (NULL), ('7')) v(x) ORDER BY 1;
SELECT x FROM (VALUES (1.5::numeric(6,2)), (3.7::numeric(8,4))) v(x) ORDER BY 1;
CREATE VIEW both_sides AS SELECT a, NULL AS c FROM listed UNION ALL SELECT NULL, c FROM listed;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'both_sides'::regclass AND attnum > 0 ORDER BY attnum;
SELECT * FROM both_sides ORDER BY 1, 2;
SELECT name, min_val FROM (SELECT 'role'::text AS name, NULL AS min_val UNION ALL SELECT name, min_val::numeric FROM pg_show_all_settings() WHERE name = 'work_mem') s ORDER BY 1;
SELECT relname, reltuples::numeric IS NULL FROM pg_class WHERE relname = 'pg_class' UNION SELECT NULL, NULL FROM pg_class WHERE relname = 'pg_type' ORDER BY 1;
SELECT relname, 1.5 AS n FROM pg_class WHERE relname = 'pg_class' UNION ALL SELECT relname, NULL FROM pg_class WHERE relname = 'pg_type' ORDER BY 1;
CREATE TABLE modified (a char(5), b varchar(3), c numeric(4,1)[], d timestamp(0), e bit(3));
INSERT INTO modified VALUES ('ab', 'xyz', '{1.5}', '2024-01-01 01:02:03', B'101');
SELECT a, b, c, d, length(b) FROM modified UNION ALL SELECT 'c'::char(3), 'longer', '{2.25}'::numeric[], '2024-01-01 01:02:03.75', 1 FROM modified ORDER BY 2;
SELECT a || '|' FROM (SELECT a FROM modified UNION SELECT 'ab'::char(3) UNION SELECT NULL) s ORDER BY 1;
