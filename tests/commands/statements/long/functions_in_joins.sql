-- functions in joins whose arguments use no column of the items before them, and functions of the catalog
CREATE TABLE t (a int PRIMARY KEY, b text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (5, 'five');
SELECT * FROM t LEFT JOIN generate_series(1, 3) g ON g = t.a ORDER BY a;
SELECT * FROM t JOIN generate_series(1, 3) g(a) USING (a) ORDER BY a;
SELECT * FROM t LEFT JOIN generate_series(1, 3) g(a) USING (a) ORDER BY a;
SELECT * FROM t NATURAL JOIN unnest(ARRAY[2, 5], ARRAY['x', 'y']) WITH ORDINALITY u(a, c, n) ORDER BY a;
SELECT * FROM t RIGHT JOIN generate_series(1, 3) g ON g = t.a ORDER BY g;
SELECT * FROM t FULL JOIN generate_series(1, 3) g ON g = t.a ORDER BY a, g;
SELECT * FROM t JOIN generate_series(1, a) g ON g > 1 ORDER BY a, g;
SELECT * FROM t LEFT JOIN generate_series(3, a) g ON true ORDER BY a, g;
SELECT * FROM t RIGHT JOIN generate_series(1, a) g ON true;
SELECT t.a, o.* FROM t LEFT JOIN pg_options_to_table(ARRAY['one=1', 'two=2']) WITH ORDINALITY o(name, value, n) ON o.name = t.b ORDER BY a;
SELECT * FROM t JOIN generate_series(1, 3) t ON true;
-- without relations
SELECT * FROM (VALUES (1), (2)) v(a) LEFT JOIN generate_series(2, 3) g ON g = v.a ORDER BY a;
SELECT * FROM (VALUES (1)) v(a) JOIN generate_series(1, 3) g(a) USING (a);
SELECT * FROM pg_options_to_table(ARRAY['a=b', 'c=d']) WITH ORDINALITY;
SELECT grantee, privilege_type, ordinality FROM aclexplode('{=r/postgres}'::aclitem[]) WITH ORDINALITY;
SELECT * FROM (SELECT 1 AS x) s LEFT JOIN LATERAL pg_options_to_table(ARRAY['a=b']) o ON o.option_name = 'b';
