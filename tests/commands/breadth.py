"""A wide range of SELECT, WITH and data-modifying statements, as users type them: the data of test_breadth."""

TABLES = r"""
CREATE TABLE t (id int PRIMARY KEY, a int, b text, n numeric, m numeric(10,2), d date, ts timestamp, f float8, ok boolean, arr int[], j jsonb, ip inet, tags text[])
INSERT INTO t VALUES (1,10,'x',1.0,1.50,'2024-01-01','2024-01-01 10:00',1.5,true,'{1,2,3}','{"k":1,"l":[1,2]}','10.0.0.1','{a,b}')
INSERT INTO t VALUES (2,20,'y',1.00,2.50,'2024-01-02','2024-01-01 11:00','NaN',false,'{}','{"k":"v"}','10.0.0.10','{}')
INSERT INTO t VALUES (3,NULL,'x',2.5,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)
INSERT INTO t VALUES (4,10,'it''s, "q"',-1,0.00,'2023-12-31','2023-12-31 23:59:59.5',-0,true,'{{1,2},{3,4}}','[1,2]','10.0.0.0/8','{"a b",NULL}')
INSERT INTO t VALUES (5,30,NULL,1e10,10.00,'2024-02-29','2024-02-29 00:00',1e300,false,'{3,NULL}','null','::1','{b}')
CREATE TABLE u (id int PRIMARY KEY, tid int, v text, n numeric)
INSERT INTO u VALUES (1,1,'one',1.0),(2,1,'uno',2),(3,2,'two',1.000),(4,NULL,'none',NULL),(5,9,'nine',9)
CREATE TABLE w (id int, b text)
INSERT INTO w VALUES (1,'x'),(1,'x'),(2,'y'),(7,NULL),(7,NULL)
"""

QUERIES = r"""
SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM t t
SELECT t::text FROM t ORDER BY id
SELECT (t.*)::text FROM t ORDER BY id
SELECT md5(string_agg(id || ':' || coalesce(b,'-'), ',' ORDER BY id)) FROM t
SELECT string_agg(b, ',' ORDER BY id DESC) FROM t
SELECT string_agg(DISTINCT b, ',') FROM t
SELECT array_agg(id ORDER BY id) FROM t
SELECT array_agg(b ORDER BY id) FROM t
SELECT array_agg(DISTINCT a ORDER BY a DESC) FROM t
SELECT array_agg(arr) FROM t WHERE id IN (1)
SELECT json_agg(id ORDER BY id) FROM t
SELECT jsonb_agg(b ORDER BY id) FROM t
SELECT json_agg(u ORDER BY id) FROM u
SELECT row_to_json(u) FROM u ORDER BY id
SELECT to_jsonb(u) FROM u ORDER BY id
SELECT json_object_agg(id, v ORDER BY id) FROM u
SELECT jsonb_object_agg(id, v) FROM u
SELECT array_agg(x) FROM (VALUES ('a'), (NULL), (''), ('null'), ('NuLL'), ('a b'), ('q"\x'), ('{,}'), (E'\t'), ('é')) v(x)
SELECT json_agg(x), jsonb_agg(x), json_agg(DISTINCT x), string_agg(x, '"') FROM (VALUES ('a'), (NULL), ('q"\x'), (''), ('a')) v(x)
SELECT json_agg(arr), jsonb_agg(arr) FROM (SELECT * FROM t ORDER BY id) s
SELECT json_agg(s), jsonb_agg(s), array_agg(s) FROM (SELECT * FROM u ORDER BY id) s
SELECT jsonb_agg(DISTINCT j), array_agg(DISTINCT j), json_agg(j ORDER BY j DESC, id) FROM t
SELECT b, json_agg(arr ORDER BY id) FILTER (WHERE id < 4), json_object_agg(id, j ORDER BY id) FROM t GROUP BY b ORDER BY b
SELECT id, array_agg(b) OVER (ORDER BY id), json_agg(arr) OVER (ORDER BY id), jsonb_agg(j) OVER (ORDER BY id) FROM t ORDER BY id
SELECT array_agg(b), json_agg(b), jsonb_agg(b), json_agg(arr), string_agg(b, ','), json_object_agg(id, b) FROM t WHERE id < 0
SELECT json_object_agg(b, id) FROM t
SELECT jsonb_agg(1 / x) FROM (VALUES (1), (0)) v(x)
SELECT bool_and(ok), bool_or(ok), every(ok) FROM t
SELECT b, count(*), sum(a), avg(a), min(m), max(m), sum(n) FROM t GROUP BY b ORDER BY b
SELECT count(DISTINCT b), count(DISTINCT n), count(a) FROM t
SELECT count(*) FILTER (WHERE a > 10), sum(a) FILTER (WHERE ok) FROM t
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a) FROM t
SELECT mode() WITHIN GROUP (ORDER BY b) FROM t
SELECT stddev(a), variance(a), stddev_pop(a), var_pop(a) FROM t
SELECT bit_and(a), bit_or(a) FROM t
SELECT id, n FROM t EXCEPT SELECT id, n FROM u ORDER BY 1
SELECT id, v, n FROM u EXCEPT SELECT id, v, n FROM u
SELECT * FROM w EXCEPT ALL SELECT 1, 'x' ORDER BY 1
SELECT * FROM w INTERSECT ALL SELECT * FROM w ORDER BY 1,2
SELECT n FROM t UNION SELECT n FROM u ORDER BY 1
(SELECT id FROM t EXCEPT SELECT id FROM u) UNION ALL (SELECT id FROM u EXCEPT SELECT id FROM t)
SELECT id, row_number() OVER (ORDER BY id) FROM t ORDER BY id
SELECT id, a, rank() OVER (ORDER BY a), dense_rank() OVER (ORDER BY a DESC NULLS LAST) FROM t ORDER BY id
SELECT id, sum(a) OVER (PARTITION BY b ORDER BY id) FROM t ORDER BY id
SELECT id, lag(a) OVER (ORDER BY id), lead(a, 2, -1) OVER (ORDER BY id) FROM t ORDER BY id
SELECT id, first_value(b) OVER w, last_value(b) OVER w, count(*) OVER w FROM t WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) ORDER BY id
SELECT id, ntile(2) OVER (ORDER BY id), percent_rank() OVER (ORDER BY id), cume_dist() OVER (ORDER BY id) FROM t ORDER BY id
SELECT id, nth_value(b, 2) OVER (ORDER BY id) FROM t ORDER BY id
SELECT id, avg(m) OVER (), max(n) OVER (ORDER BY id) FROM t ORDER BY id
SELECT * FROM (SELECT id, b, row_number() OVER (PARTITION BY b ORDER BY id DESC) rn FROM t) s WHERE rn = 1 ORDER BY id
SELECT b, sum(count(*)) OVER () FROM t GROUP BY b ORDER BY b
SELECT DISTINCT ON (b) b, id FROM t ORDER BY b, id DESC
SELECT b, a, count(*) FROM t GROUP BY ROLLUP (b, a) ORDER BY 1,2,3
SELECT b, GROUPING(b) FROM t GROUP BY ROLLUP (b) ORDER BY 1,2
SELECT b, a, count(*), grouping(b,a) FROM t GROUP BY CUBE (b, a) ORDER BY 1,2,3,4
SELECT b, a, count(*) FROM t GROUP BY GROUPING SETS ((b),(a),()) ORDER BY 1,2,3
SELECT t.id, x.v FROM t, LATERAL (SELECT v FROM u WHERE u.tid = t.id) x ORDER BY 1,2
SELECT t.id, x.v FROM t LEFT JOIN LATERAL (SELECT v FROM u WHERE u.tid = t.id ORDER BY v LIMIT 1) x ON true ORDER BY 1
SELECT t.id, e FROM t, unnest(t.tags) e ORDER BY 1,2
SELECT t.id, e, o FROM t, unnest(t.arr) WITH ORDINALITY AS q(e,o) ORDER BY 1,3
SELECT t.id, k FROM t CROSS JOIN LATERAL jsonb_object_keys(CASE WHEN jsonb_typeof(j)='object' THEN j ELSE '{}' END) k ORDER BY 1,2
SELECT t.id, e.value FROM t, jsonb_each(CASE WHEN jsonb_typeof(j)='object' THEN j ELSE '{}' END) e ORDER BY 1, e.key
SELECT x FROM t, jsonb_array_elements(j->'l') x WHERE id = 1 ORDER BY x
SELECT unnest(arr) FROM t WHERE id = 1
SELECT id, unnest(tags) FROM t ORDER BY 1,2
SELECT * FROM unnest(ARRAY[1,2],ARRAY['a','b','c']) AS q(x,y)
SELECT * FROM generate_series(1,3) WITH ORDINALITY
SELECT g FROM generate_series(1.0,2.0,0.5) g
SELECT count(*) FROM t, generate_series(1,t.a) g
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.tid = t.id) ORDER BY id
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.tid = t.id) ORDER BY id
SELECT id FROM t WHERE id IN (SELECT tid FROM u) ORDER BY id
SELECT id FROM t WHERE id NOT IN (SELECT tid FROM u) ORDER BY id
SELECT id FROM t WHERE id NOT IN (SELECT tid FROM u WHERE tid IS NOT NULL) ORDER BY id
SELECT id FROM t WHERE (id, b) IN (SELECT id, b FROM w) ORDER BY id
SELECT id, (SELECT count(*) FROM u WHERE u.tid = t.id) FROM t ORDER BY id
SELECT id, (SELECT max(v) FROM u WHERE u.tid = t.id) FROM t ORDER BY id
SELECT id, ARRAY(SELECT v FROM u WHERE u.tid = t.id ORDER BY v) FROM t ORDER BY id
SELECT ARRAY(SELECT id FROM t ORDER BY id)
SELECT * FROM t JOIN u ON t.id = u.tid ORDER BY u.id
SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.tid ORDER BY 1,2
SELECT * FROM u NATURAL JOIN w ORDER BY 1,2,3
SELECT id, v, b FROM u JOIN w USING (id) ORDER BY 1,2,3
WITH q AS (SELECT id FROM t WHERE a > 10) SELECT * FROM q ORDER BY id
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 5) SELECT n FROM r ORDER BY n
WITH RECURSIVE r AS (SELECT id FROM t WHERE id = 1 UNION SELECT t.id FROM t JOIN r ON t.id = r.id + 1) SELECT * FROM r ORDER BY 1
SELECT id FROM t ORDER BY a DESC NULLS LAST, id LIMIT 2 OFFSET 1
SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES
SELECT id FROM t WHERE id = 1 FOR UPDATE
SELECT id FROM t WHERE (id, a) = (1, 10)
SELECT id FROM t WHERE (a, id) > (10, 1) ORDER BY id
SELECT ROW(1,'a'), ROW(t.id, t.b) FROM t WHERE id = 1
SELECT id FROM t WHERE t IS NOT NULL ORDER BY id
SELECT count(t) FROM t
SELECT id FROM t WHERE arr @> ARRAY[1] ORDER BY id
SELECT id FROM t WHERE 3 = ANY(arr) ORDER BY id
SELECT id, arr[1], arr[1:2], tags[1] FROM t ORDER BY id
SELECT id FROM t WHERE j @> '{"k":1}'
SELECT id, j->'k', j->>'k', j#>>'{l,0}' FROM t ORDER BY id
SELECT id FROM t WHERE ip << '10.0.0.0/8' ORDER BY ip
SELECT id FROM t ORDER BY j, id
SELECT id FROM t ORDER BY arr NULLS FIRST, id
SELECT arr, count(*) FROM t GROUP BY arr ORDER BY 1
SELECT j, count(*) FROM t GROUP BY j ORDER BY 1
SELECT '{1,2}'::int[] && '{2}'::int[], '{"a":1}'::jsonb @> '{}', '10.0.0.1'::inet << '10/8'::cidr
SELECT sum(hashtext(t::text)) FROM t
SELECT t1.* FROM t t1 WHERE t1.id = (SELECT max(id) FROM t t2 WHERE t2.b = t1.b) ORDER BY id
SELECT x.* FROM (SELECT id, b FROM t) x ORDER BY x
SELECT string_agg(b, ',') FILTER (WHERE b IS NOT NULL) FROM t WHERE id = 1
SELECT b, array_agg(id ORDER BY id) FROM t GROUP BY b ORDER BY b
SELECT * FROM t ORDER BY id
SELECT sum(x) FROM (SELECT unnest(arr) x FROM t) s
SELECT count(*) = (SELECT count(*) FROM u) FROM t
SELECT (j->>'k') AS kk, count(*) FROM t GROUP BY kk ORDER BY kk
SELECT (SELECT json_agg(x) FROM (SELECT id, b FROM t ORDER BY id) x)
SELECT jsonb_agg(to_jsonb(u) ORDER BY id) FROM u
SELECT u.* , count(*) OVER () FROM u ORDER BY id LIMIT 2
"""

CHANGES = r"""
CREATE TABLE dm (id int PRIMARY KEY, a int, b text)
INSERT INTO dm VALUES (1,10,'x'),(2,20,'y'),(3,30,'z')
INSERT INTO dm VALUES (1,11,'xx') ON CONFLICT DO NOTHING
INSERT INTO dm VALUES (1,11,'xx'),(4,40,'w') ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = dm.b || excluded.b RETURNING *
INSERT INTO dm VALUES (2,21,'yy') ON CONFLICT (id) DO UPDATE SET a = excluded.a WHERE dm.a > 100
SELECT * FROM dm ORDER BY id
UPDATE dm SET a = u.id * 100 FROM u WHERE u.tid = dm.id AND u.id <> 2 RETURNING dm.id, dm.a, u.v
SELECT * FROM dm ORDER BY id
UPDATE dm SET (a, b) = (1, 'row') WHERE id = 3
UPDATE dm SET a = (SELECT max(id) FROM u WHERE u.tid = dm.id) WHERE id < 3
UPDATE dm SET (a, b) = (SELECT max(id), 'sub' FROM u WHERE u.tid = dm.id) WHERE id = 1
SELECT * FROM dm ORDER BY id
DELETE FROM dm USING u WHERE u.tid = dm.id AND u.v = 'two' RETURNING dm.*
DELETE FROM dm WHERE id IN (SELECT id FROM dm WHERE b = 'row') RETURNING id
SELECT * FROM dm ORDER BY id
INSERT INTO dm SELECT g, g*10, 'g'||g FROM generate_series(10,12) g RETURNING id
WITH ins AS (INSERT INTO dm VALUES (20,1,'cte') RETURNING id) SELECT * FROM ins
WITH del AS (DELETE FROM dm WHERE id = 20 RETURNING *) SELECT count(*), max(b) FROM del
WITH up AS (UPDATE dm SET a = a + 1 WHERE id >= 10 RETURNING id, a) SELECT * FROM up ORDER BY id
WITH moved AS (DELETE FROM dm WHERE id = 12 RETURNING *) INSERT INTO dm SELECT id + 100, a, b FROM moved RETURNING *
SELECT * FROM dm ORDER BY id
MERGE INTO dm USING (VALUES (1, 5), (50, 6)) s(id, a) ON dm.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.a)
MERGE INTO dm USING u ON dm.id = u.id WHEN MATCHED AND u.v = 'none' THEN DELETE WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED AND u.id < 4 THEN INSERT VALUES (u.id, 0, u.v)
SELECT * FROM dm ORDER BY id
CREATE TABLE cta AS SELECT id, b, n FROM t WHERE id < 4
SELECT * FROM cta ORDER BY id
CREATE TABLE ctb (x, y) AS SELECT id, a FROM t WITH NO DATA
SELECT count(*) FROM ctb
SELECT id, v INTO sit FROM u WHERE id < 3
SELECT * FROM sit ORDER BY id
CREATE TABLE IF NOT EXISTS cta AS SELECT 1
CREATE TABLE ctc AS VALUES (1,'a'),(2,'b')
SELECT * FROM ctc ORDER BY 1
CREATE TABLE ctd AS TABLE w
INSERT INTO dm (id, a) VALUES (70, DEFAULT) RETURNING id, a, b
INSERT INTO dm DEFAULT VALUES
UPDATE dm SET a = 0 WHERE dm.* IS NOT NULL AND id = 71
DROP TABLE dm
DROP TABLE cta
DROP TABLE IF EXISTS ctb, sit, ctc, ctd
"""

ROW_BY_ROW = r"""
CREATE TABLE counted (a int, b text DEFAULT 'd')
INSERT INTO counted VALUES (generate_series(1, 3))
INSERT INTO counted (b, a) VALUES ('k', generate_series(4, 5) * 10)
INSERT INTO counted (a, b) VALUES (generate_series(6, 7), DEFAULT)
INSERT INTO counted VALUES (8), (generate_series(1, 2))
INSERT INTO counted VALUES (generate_series(1, 2), 'x', 3)
INSERT INTO counted (a, b) VALUES (generate_series(1, 2))
INSERT INTO counted VALUES (generate_series(9, 10), generate_series(1, 3)) RETURNING b
INSERT INTO counted (b) VALUES (unnest(ARRAY['p', 'q']))
INSERT INTO counted VALUES ((SELECT count(*) FROM generate_series(1, 4)), 'sub')
SELECT * FROM counted ORDER BY a, b
DROP TABLE counted
CREATE TABLE two (a int PRIMARY KEY, b int, c text, UNIQUE (b, c))
INSERT INTO two VALUES (9, 9, 'z')
INSERT INTO two VALUES (3,4,'x'),(6,4,'x'),(6,5,''),(4,0,NULL),(5,0,NULL),(9,1,'y'),(7,9,'z'),(7,1,'y'),(5,6,'x'),(8,1,'y') ON CONFLICT DO NOTHING RETURNING a, b
SELECT * FROM two ORDER BY a
INSERT INTO two VALUES (1,1,'a'),(2,1,'a'),(2,2,'b'),(1,2,'b'),(3,2,'b'),(10,2,'b') ON CONFLICT (a) DO NOTHING
DROP TABLE two
CREATE TABLE parts (a int, b int CHECK (b < 100), c text NOT NULL, PRIMARY KEY (a, b)) PARTITION BY RANGE (a)
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (3)
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (3) TO (9)
INSERT INTO parts VALUES (5, 5, ''), (1, 1, '')
INSERT INTO parts VALUES (4, 5, ''), (5, 5, ''), (0, 1, ''), (1, 1, 'y'), (1, 2, NULL)
INSERT INTO parts VALUES (4, 5, ''), (0, 2, ''), (1, 2, NULL), (5, 5, ''), (20, 1, '')
INSERT INTO parts VALUES (4, 5, ''), (20, 1, ''), (0, 200, ''), (1, 2, NULL)
INSERT INTO parts VALUES (4, 5, ''), (0, 200, ''), (20, 1, ''), (1, 2, NULL)
INSERT INTO parts_low VALUES (2, 2, 'x'), (2, 2, 'y'), (1, 3, NULL), (7, 1, ''), (0, 200, '')
INSERT INTO parts_low VALUES (2, 2, 'x'), (7, 1, ''), (2, 2, 'y'), (1, 3, NULL)
INSERT INTO parts VALUES (4, 5, ''), (1, 2, NULL), (20, 1, '') ON CONFLICT DO NOTHING
INSERT INTO parts VALUES (4, 5, ''), (20, 1, ''), (1, 2, NULL) ON CONFLICT DO NOTHING
INSERT INTO parts VALUES (4, 5, ''), (0, 200, ''), (1, 2, NULL), (5, 5, '') ON CONFLICT (a, b) DO UPDATE SET c = 'u'
SELECT * FROM parts ORDER BY a, b
INSERT INTO parts VALUES (6, 0, ''), (0, 0, ''), (5, 1, '') RETURNING *
ALTER TABLE parts ADD CONSTRAINT short CHECK (a < 6) NOT VALID
INSERT INTO parts VALUES (7, 1, '')
SELECT conrelid::regclass, convalidated, pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'short' ORDER BY 1
ALTER TABLE parts VALIDATE CONSTRAINT short
DELETE FROM parts WHERE a = 6
ALTER TABLE parts VALIDATE CONSTRAINT short
SELECT conrelid::regclass, convalidated, pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'short' ORDER BY 1
ALTER TABLE parts_low ADD CONSTRAINT even CHECK (a <> 3) NOT VALID
ALTER TABLE parts ADD CONSTRAINT even CHECK (a <> 3)
ALTER TABLE parts ADD CONSTRAINT even CHECK (a <> 3) NOT VALID
SELECT conrelid::regclass, convalidated, coninhcount, conislocal FROM pg_constraint WHERE conname = 'even' ORDER BY 1
ALTER TABLE parts VALIDATE CONSTRAINT even
ALTER TABLE parts VALIDATE CONSTRAINT even
SELECT conrelid::regclass, convalidated FROM pg_constraint WHERE conname = 'even' ORDER BY 1
DROP TABLE parts
"""

SEQUENCES = r"""
CREATE SCHEMA q1
SET search_path = q1
CREATE SEQUENCE q
CREATE TABLE t (a int DEFAULT nextval('q'), b int, c serial)
RESET search_path
INSERT INTO q1.t (b) VALUES (1), (2)
ALTER SEQUENCE q1.q RENAME TO "Q 2"
INSERT INTO q1.t (b) VALUES (3)
ALTER SCHEMA q1 RENAME TO q3
INSERT INTO q3.t (b) VALUES (4)
CREATE SCHEMA q4
ALTER SEQUENCE q3."Q 2" SET SCHEMA q4
ALTER TABLE q3.t SET SCHEMA q4
INSERT INTO q4.t (b) VALUES (5)
SELECT column_default FROM information_schema.columns WHERE table_schema = 'q4' ORDER BY 1
SELECT * FROM q4.t ORDER BY b
DROP SEQUENCE q4."Q 2"
ALTER TABLE q4.t ADD COLUMN d int DEFAULT nextval('nonesuch')
CREATE SEQUENCE pubq
ALTER TABLE q4.t ADD COLUMN d int DEFAULT nextval('pubq') * 2, ALTER COLUMN b SET DEFAULT nextval('public.pubq'::regclass)
SET search_path = ''
SET search_path = q4
INSERT INTO t DEFAULT VALUES
DROP TABLE t CASCADE
DROP SEQUENCE public.pubq
DROP SCHEMA q4 CASCADE
RESET search_path
create table cv (id serial, b int)
insert into cv (b) values (1),(2)
create table cv2 (id int generated always as identity, b int)
insert into cv2 (b) values (1), (2)
create sequence other
create table cv3 (id text default 'A' || nextval('cv_id_seq'), b int, c int default nextval('other') * 100)
insert into cv3 (b) values (1),(2)
select * from cv3 order by b
insert into cv3 (b) select i from generate_series(3, 5) i
select count(distinct id), min(c % 100) from cv3
insert into cv3 (b) select i from generate_series(6, 30000) i
select count(distinct id), count(distinct c), max(c) from cv3
create sequence free
alter table cv add column c int default nextval('free'), add column d bigserial, add column e text default 'x' || nextval('other')
select * from cv order by id
insert into cv (id, b) values (default, 7), (default, 8), (50, 9)
select * from cv order by b
update cv set c = default where b = 9
select c from cv where b = 9
select b, id is not null, e from cv where b > 9 order by b
create domain dseq as int default nextval('free')
create table cv4 (a dseq, b int)
insert into cv4 (b) values (1), (2)
select b, a is null from cv4 order by b
drop table cv, cv2, cv3, cv4 cascade
drop domain dseq
drop sequence free, other
CREATE SCHEMA pubme CREATE VIEW v AS SELECT a, b FROM t CREATE INDEX t_b ON t (b) CREATE TABLE t (a int PRIMARY KEY DEFAULT nextval('s'), b text) CREATE SEQUENCE s
CREATE SCHEMA owned CREATE TABLE t (a int) CREATE TABLE u (a int)
INSERT INTO pubme.t (b) VALUES ('x'), ('y')
SELECT * FROM pubme.v ORDER BY a
CREATE SCHEMA other CREATE TABLE pubme.u (a int)
CREATE SCHEMA failing CREATE TABLE t (a int) CREATE TABLE t (b int)
CREATE PUBLICATION pe FOR ALL TABLES WITH (publish = 'insert', foo, publish = 'update')
CREATE PUBLICATION pe FOR ALL TABLES WITH (publish = 'insert', publish = 'update', foo)
CREATE PUBLICATION pe FOR ALL TABLES WITH (publish_via_partition_root = maybe, foo)
CREATE TABLE ta (a int PRIMARY KEY)
CREATE TABLE tc (a int PRIMARY KEY)
CREATE TABLE td (a int REFERENCES tc)
ALTER TABLE ta ADD FOREIGN KEY (a) REFERENCES tc
TRUNCATE tc
CREATE TABLE ip (id int NOT NULL) PARTITION BY LIST (id)
CREATE TABLE ip1 (id int NOT NULL)
ALTER TABLE ONLY ip ATTACH PARTITION ip1 FOR VALUES IN (1)
ALTER TABLE ONLY ip ADD CONSTRAINT ip_pkey PRIMARY KEY (id)
ALTER TABLE ONLY ip1 ADD CONSTRAINT ip1_pkey PRIMARY KEY (id)
ALTER INDEX ip_pkey ATTACH PARTITION ip1_pkey
ALTER INDEX ip1_pkey ATTACH PARTITION ip_pkey
DROP TABLE ip, ta, td, tc
DROP SCHEMA pubme, owned CASCADE
"""
