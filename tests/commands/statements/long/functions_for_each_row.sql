-- Functions that read tables, write, send messages, or have OUT parameters, called for each row in every place of an expression.
CREATE TABLE t (a int PRIMARY KEY, b text);
INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z');
CREATE TABLE limits (name text PRIMARY KEY, most int);
INSERT INTO limits VALUES ('a', 2), ('b', 10);
CREATE TABLE written (a int, at serial);
CREATE FUNCTION most(n text) RETURNS int STABLE LANGUAGE sql AS 'SELECT most FROM limits WHERE name = n';
CREATE FUNCTION allowed(x int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ DECLARE m int; BEGIN SELECT most INTO m FROM limits WHERE name = 'a'; RETURN x <= m; END $$;
CREATE FUNCTION tells(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'x = %', x; RETURN x + 1; END $$;
CREATE FUNCTION writes(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written (a) VALUES (x); RETURN x * 2; END $$;
CREATE FUNCTION setting(x int) RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN current_setting('work_mem') || x; END $$;
CREATE FUNCTION fails(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF x > (SELECT most FROM limits WHERE name = 'a') THEN RAISE EXCEPTION 'too large: %', x USING ERRCODE = '22003', HINT = 'Try less.'; END IF; RETURN x; END $$;
-- SELECT and WHERE
SELECT a, allowed(a), most('a') + a FROM t ORDER BY a;
SELECT a FROM t WHERE allowed(a) ORDER BY a;
SELECT a FROM t WHERE NOT allowed(a) OR tells(a) = 2 ORDER BY a;
SELECT a, tells(a) FROM t ORDER BY a DESC LIMIT 2;
SELECT a, tells(a) FROM t ORDER BY a OFFSET 1;
SELECT a FROM t ORDER BY tells(-a);
SELECT DISTINCT allowed(a) FROM t ORDER BY 1;
SELECT allowed(a), count(*), sum(tells(a)) FROM t GROUP BY 1 ORDER BY 1;
SELECT allowed(a), count(*) FROM t GROUP BY 1 HAVING allowed(count(*)::int - 1) AND allowed(min(a));
SELECT a, row_number() OVER (ORDER BY most('a') - a) FROM t ORDER BY a;
SELECT x.a, y.name FROM t x JOIN limits y ON most(y.name) > x.a + 1 ORDER BY 1, 2;
SELECT x.a, y.name FROM t x LEFT JOIN limits y ON most(y.name) = x.a ORDER BY 1;
SELECT x.a, y.name FROM t x FULL JOIN limits y ON most(y.name) = x.a + 1 AND allowed(x.a) ORDER BY 1, 2;
SELECT x.a, y.name FROM t x LEFT JOIN limits y ON y.most = x.a WHERE coalesce(most(y.name), 0) = 0 ORDER BY 1;
SELECT a FROM t WHERE a IN (SELECT most(name) FROM limits) ORDER BY a;
SELECT a, CASE WHEN a > 2 THEN fails(a) ELSE -1 END FROM t WHERE a < 3 ORDER BY a;
SELECT fails(a) FROM t ORDER BY a;
SELECT a, setting(a) FROM t ORDER BY a;
SELECT a, writes(a) FROM t ORDER BY a;
SELECT a FROM written ORDER BY at;
SELECT a FROM t WHERE a = 1 AND allowed(a) UNION ALL SELECT tells(a) FROM t WHERE a = 2;
WITH w AS (SELECT a, most('b') * a AS m FROM t) SELECT * FROM w WHERE m > 10 ORDER BY a;
SELECT a, generate_series(1, most('a')) FROM t WHERE a < 3 ORDER BY 1, 2;
-- OUT parameters and rows
CREATE FUNCTION both(x int, OUT doubled int, OUT shown text) LANGUAGE plpgsql AS $$ BEGIN doubled := x * 2; shown := 'n' || x || (SELECT count(*) FROM limits); END $$;
SELECT a, both(a) FROM t ORDER BY a;
SELECT a, (both(a)).shown FROM t ORDER BY a;
SELECT a, (both(a)).* FROM t ORDER BY a;
CREATE TYPE pair AS (x int, y text);
CREATE FUNCTION as_pair(x int) RETURNS pair LANGUAGE plpgsql AS $$ BEGIN RETURN ROW(x, (SELECT max(name) FROM limits)); END $$;
CREATE FUNCTION y_of(p pair) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN p.y || p.x; END $$;
SELECT a, as_pair(a) FROM t ORDER BY a;
SELECT a, (as_pair(a)).y, y_of(as_pair(a)) FROM t ORDER BY a;
-- UPDATE, DELETE, INSERT … SELECT, RETURNING, MERGE
UPDATE t SET b = most('b') || b WHERE allowed(a) RETURNING a, b, tells(a);
UPDATE t SET b = fails(a)::text;
INSERT INTO t SELECT a + 10, setting(a) FROM t WHERE NOT allowed(a) RETURNING *;
MERGE INTO t USING limits l ON t.a = most(l.name) WHEN MATCHED THEN UPDATE SET b = 'm' || most(l.name) WHEN NOT MATCHED THEN INSERT VALUES (most(l.name), l.name);
MERGE INTO t USING limits l ON t.a = l.most WHEN MATCHED AND allowed(t.a) THEN UPDATE SET b = b || tells(t.a) WHEN MATCHED THEN DELETE;
SELECT * FROM t ORDER BY a;
INSERT INTO t VALUES (1, 'k') ON CONFLICT (a) DO UPDATE SET b = excluded.b || most('a') WHERE allowed(t.a);
DELETE FROM t WHERE a > 9 AND most('a') = 2;
SELECT * FROM t ORDER BY a;
-- DEFAULT, CHECK, generated columns
CREATE TABLE u (a int CHECK (allowed(a)), d int DEFAULT most('b'), e int DEFAULT writes(7));
INSERT INTO u (a) VALUES (1), (2);
INSERT INTO u (a) VALUES (3);
INSERT INTO u (a) SELECT a FROM t WHERE a < 3 ORDER BY a;
UPDATE u SET a = a + 1 WHERE a = 2;
COPY u (a) FROM stdin;
1
9
\.
SELECT * FROM u ORDER BY a;
SELECT count(*) FROM written;
ALTER TABLE t ADD CHECK (allowed(a));
ALTER TABLE t ADD COLUMN c int DEFAULT most('b');
SELECT * FROM t ORDER BY a;
UPDATE limits SET most = 3 WHERE name = 'a';
INSERT INTO u (a) VALUES (3);
SELECT * FROM u ORDER BY a;
-- views
CREATE VIEW v AS SELECT a, most('a') AS m, tells(a) AS told FROM t WHERE allowed(a);
SELECT a, m FROM v ORDER BY a;
SELECT m, told FROM v ORDER BY m DESC, a;
SELECT count(*) FROM v;
-- policies
CREATE TABLE p (a int, owner text);
INSERT INTO p VALUES (1, 'o'), (2, 'o'), (3, 'q'), (4, 'q');
ALTER TABLE p ENABLE ROW LEVEL SECURITY;
CREATE POLICY sees ON p FOR SELECT USING (allowed(a));
CREATE POLICY adds ON p FOR INSERT WITH CHECK (allowed(a) AND most('b') > a);
CREATE POLICY changes ON p FOR UPDATE USING (allowed(a));
CREATE ROLE :"db";
GRANT ALL ON p TO :"db";
GRANT SELECT ON limits TO :"db";
SET ROLE :"db";
SELECT * FROM p ORDER BY a;
SELECT a FROM p WHERE a % 2 = 1 ORDER BY a;
INSERT INTO p VALUES (2, 'new');
INSERT INTO p VALUES (5, 'new');
INSERT INTO p SELECT a + 3, 'new' FROM p WHERE a = 1;
UPDATE p SET owner = 'changed' WHERE a > 1;
UPDATE p SET a = a + 3 WHERE a = 1;
SELECT * FROM p ORDER BY a, owner;
RESET ROLE;
REVOKE ALL ON p, limits FROM :"db";
DROP ROLE :"db";
-- WHEN of triggers
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% %', tg_name, coalesce(new.a, old.a); RETURN coalesce(new, old); END $$;
CREATE TABLE w (a int, b text);
CREATE TRIGGER w_before BEFORE INSERT OR UPDATE ON w FOR EACH ROW WHEN (allowed(new.a)) EXECUTE FUNCTION noted();
CREATE TRIGGER w_after AFTER INSERT ON w FOR EACH ROW WHEN (most('b') > new.a AND tells(new.a) > 1) EXECUTE FUNCTION noted();
CREATE TRIGGER w_deleted AFTER DELETE ON w FOR EACH ROW WHEN (y_of(ROW(old.a, old.b)::pair) <> 'x1') EXECUTE FUNCTION noted();
INSERT INTO w VALUES (1, 'x'), (5, 'y'), (20, 'z');
UPDATE w SET a = a - 4 WHERE a = 5;
DELETE FROM w;
-- privileges and contexts
CREATE FUNCTION deep(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN fails(x) + fails(x + 1); END $$;
SELECT deep(a) FROM t ORDER BY a;
INSERT INTO u (a) SELECT deep(a) FROM t;
CREATE FUNCTION secret(x int) RETURNS int SECURITY DEFINER SET search_path = pg_catalog LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT most + x FROM public.limits WHERE name = 'a'); END $$;
SELECT a, secret(a) FROM t ORDER BY a;
CREATE FUNCTION no_rows(x int) RETURNS int STRICT LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'called'; RETURN (SELECT 1 FROM limits LIMIT 1); END $$;
SELECT no_rows(NULLIF(a, 1)) FROM t WHERE a < 3 ORDER BY a;
SELECT tells(a) FROM t WHERE false;
EXPLAIN (COSTS OFF) SELECT writes(1000) \g /dev/null
SELECT count(*) FROM written WHERE a = 1000;
PREPARE q(int) AS SELECT a, most('a') + $1 FROM t WHERE allowed(a - $1) ORDER BY a;
EXECUTE q(0);
EXECUTE q(1);
BEGIN;
DECLARE c CURSOR FOR SELECT a, most('b') FROM t ORDER BY a;
FETCH 2 FROM c;
FETCH 2 FROM c;
COMMIT;
