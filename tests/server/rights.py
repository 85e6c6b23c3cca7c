"""The matrix of privileges: the statements that `test_rights` runs as each role on PostgreSQL and on a node, and the objects for them.

`ROLES` are the columns. `STATEMENTS` are the rows, with one statement (or several in one string) per line. Each runs in a separate
transaction that is rolled back, so that no cell affects another. Statements that cannot run in a transaction are in `ALONE`, with the roles
that run them. `SEQUENCES` are statements that one session runs one after another. `REPLICATION` are statements for a walsender. ``{role}``
stands for the role and ``{database}`` for the database. Statements that a node does not support (0A000) are omitted. Intended differences
are in `DIFFERENT`, with the reason.
"""

from __future__ import annotations

ROLES = {
    "rights_super": "SUPERUSER",
    "rights_owner": "",
    "rights_reader": "",
    "rights_writer": "",
    "rights_maker": "CREATEROLE",
    "rights_copier": "REPLICATION",
    "rights_heir": "NOINHERIT",
    "rights_nobody": "",
}
"""The roles, all of which may log in; `rights_heir` is a member of the owner that does not inherit."""

OTHERS = {
    "rights_team": "", "rights_boss": "SUPERUSER", "rights_fresh": "", "rights_all_reader": "IN ROLE pg_read_all_data",
    "rights_all_writer": "IN ROLE pg_write_all_data", "rights_bypass": "BYPASSRLS", "rights_stream": "REPLICATION",
}  # fmt: skip
"""Roles that are granted, revoked and dropped."""

FIXTURE = """
GRANT rights_team TO rights_owner WITH ADMIN OPTION;
GRANT rights_team TO rights_reader;
GRANT rights_owner TO rights_heir;
GRANT CREATE ON DATABASE {database} TO rights_owner;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT CREATE ON SCHEMA public TO rights_owner;
SET SESSION AUTHORIZATION rights_owner;
CREATE TABLE t (a int PRIMARY KEY, b text, c int);
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, 'three', 30);
GRANT SELECT ON t TO rights_reader;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON t TO rights_writer;
CREATE TABLE cols (a int, b text, c int DEFAULT 0);
INSERT INTO cols VALUES (1, 'one', 10), (2, 'two', 20);
GRANT SELECT (a), REFERENCES (a) ON cols TO rights_reader;
GRANT SELECT (a, b), INSERT (a), UPDATE (b) ON cols TO rights_writer;
CREATE TABLE given (a int);
GRANT SELECT, INSERT ON given TO rights_reader WITH GRANT OPTION;
GRANT DELETE ON given TO rights_team;
GRANT INSERT ON given TO rights_writer;
CREATE TABLE secret (a int);
INSERT INTO secret VALUES (1);
CREATE TABLE part (a int, b int) PARTITION BY LIST (a);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
GRANT SELECT, INSERT ON part TO rights_writer;
CREATE TABLE rls (a int, who text);
INSERT INTO rls VALUES (1, 'rights_reader'), (2, 'rights_writer'), (3, 'rights_writer'), (4, 'rights_owner');
ALTER TABLE rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON rls USING (who = current_user);
CREATE POLICY small ON rls FOR SELECT TO rights_team USING (a < 3);
GRANT SELECT ON rls TO rights_reader, rights_nobody;
GRANT SELECT, INSERT, UPDATE, DELETE ON rls TO rights_writer;
CREATE TABLE forced (a int, who text);
INSERT INTO forced VALUES (1, 'rights_reader'), (2, 'rights_owner');
ALTER TABLE forced ENABLE ROW LEVEL SECURITY;
ALTER TABLE forced FORCE ROW LEVEL SECURITY;
CREATE POLICY mine ON forced USING (who = current_user);
GRANT SELECT ON forced TO rights_reader;
CREATE TABLE shown (a int, who text);
INSERT INTO shown VALUES (1, 'rights_reader'), (2, 'rights_super'), (3, 'rights_team'), (4, 'rights_nobody');
ALTER TABLE shown ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON shown USING (who = current_user);
GRANT SELECT ON shown TO PUBLIC;
CREATE VIEW v AS SELECT a, b FROM t;
GRANT SELECT ON v TO rights_reader, rights_nobody;
CREATE VIEW v_rls AS SELECT * FROM rls;
GRANT SELECT ON v_rls TO rights_reader, rights_nobody;
CREATE VIEW v_secret AS SELECT * FROM secret;
CREATE VIEW i WITH (security_invoker) AS SELECT a, b FROM t;
GRANT SELECT ON i TO rights_reader, rights_nobody;
CREATE VIEW i_rls WITH (security_invoker) AS SELECT * FROM rls;
GRANT SELECT ON i_rls TO rights_reader, rights_writer, rights_nobody;
CREATE VIEW i_secret WITH (security_invoker) AS SELECT * FROM secret;
GRANT SELECT ON i_secret TO rights_reader;
CREATE VIEW i_cols WITH (security_invoker) AS SELECT a, b FROM cols;
GRANT SELECT ON i_cols TO rights_reader, rights_writer;
CREATE VIEW over_i AS SELECT * FROM i_secret;
GRANT SELECT ON over_i TO rights_reader, rights_nobody;
CREATE VIEW i_over_v WITH (security_invoker) AS SELECT * FROM v_secret;
GRANT SELECT ON i_over_v TO rights_reader;
REVOKE USAGE ON LANGUAGE sql FROM PUBLIC;
GRANT USAGE ON LANGUAGE sql TO rights_writer;
GRANT USAGE ON LANGUAGE sql TO rights_owner WITH GRANT OPTION;
CREATE FUNCTION plain(x int) RETURNS int LANGUAGE sql AS 'SELECT x + 1';
CREATE FUNCTION closed(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN x + 1; END $$;
REVOKE EXECUTE ON FUNCTION closed(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION closed(int) TO rights_reader;
CREATE FUNCTION closed_by_plain(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN closed(x); END $$;
CREATE FUNCTION of_secret() RETURNS int LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS 'SELECT a FROM secret';
CREATE FUNCTION of_secret_by_caller() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT a FROM secret); END $$;
CREATE FUNCTION acts() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = open, pg_temp AS $$ BEGIN
    RETURN current_user || ' ' || session_user || ' ' || current_setting('search_path'); END $$;
CREATE PROCEDURE gives() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO given VALUES (9); END $$;
CREATE PROCEDURE gives_as_owner() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO given VALUES (9); END $$;
CREATE SEQUENCE q;
GRANT USAGE ON SEQUENCE q TO rights_writer;
GRANT SELECT ON SEQUENCE q TO rights_reader;
CREATE SEQUENCE hidden;
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE SCHEMA shut;
CREATE TABLE shut.t (a int);
GRANT ALL ON shut.t TO rights_reader, rights_writer;
CREATE TYPE shut.kind AS ENUM ('a');
CREATE SEQUENCE shut.q;
CREATE VIEW of_kind AS SELECT 'a'::shut.kind AS k;
GRANT SELECT ON of_kind TO rights_reader;
CREATE TABLE by_column (a int, who text);
INSERT INTO by_column VALUES (1, 'rights_reader'), (2, 'rights_writer');
ALTER TABLE by_column ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON by_column USING (who = current_user);
GRANT SELECT (a), UPDATE (a) ON by_column TO rights_reader, rights_writer;
CREATE TABLE touched (a int, who text);
INSERT INTO touched VALUES (1, 'rights_writer'), (2, 'rights_reader');
ALTER TABLE touched ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON touched FOR SELECT USING (true);
CREATE POLICY changed ON touched FOR UPDATE USING (who = current_user);
CREATE POLICY gone ON touched FOR DELETE USING (who = current_user);
GRANT ALL ON touched TO rights_writer;
GRANT ALL ON SEQUENCE shut.q TO rights_reader, rights_writer;
CREATE TABLE parent (a int PRIMARY KEY);
INSERT INTO parent VALUES (1), (2);
CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE);
INSERT INTO child VALUES (2);
GRANT INSERT ON child TO rights_writer;
GRANT SELECT, DELETE ON parent TO rights_reader;
CREATE SCHEMA open;
GRANT USAGE ON SCHEMA open TO rights_reader;
GRANT USAGE, CREATE ON SCHEMA open TO rights_writer;
CREATE TABLE open.t (a int);
GRANT SELECT ON open.t TO rights_reader, rights_nobody;
CREATE INDEX t_b ON t (b);
CREATE PUBLICATION p FOR TABLE t;
ALTER DEFAULT PRIVILEGES IN SCHEMA open GRANT SELECT ON TABLES TO rights_reader;
RESET SESSION AUTHORIZATION;
CREATE TABLE theirs (a int);
GRANT SELECT ON theirs TO rights_owner WITH GRANT OPTION;
ALTER TABLE theirs OWNER TO rights_super;
SET SESSION AUTHORIZATION rights_super;
CREATE SUBSCRIPTION rights_subscription CONNECTION 'dbname=none' PUBLICATION p WITH (connect = false, slot_name = NONE);
CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert');
RESET SESSION AUTHORIZATION;
"""
"""The statements with which the superuser creates the objects in a new database."""

_LINES = {
    "whose rights": """
SELECT * FROM i
SELECT count(*) FROM i
SELECT * FROM i_rls ORDER BY a
SELECT * FROM i_secret
SELECT * FROM i_cols
SELECT a FROM i_cols
SELECT * FROM over_i
SELECT * FROM i_over_v
SELECT i.a FROM i JOIN i_rls USING (a)
SELECT * FROM of_kind
ALTER VIEW i SET (security_invoker = false); SELECT * FROM i
ALTER VIEW v_secret SET (security_invoker); SELECT * FROM v_secret
SELECT a FROM by_column
SELECT a, who FROM by_column
SELECT tableoid IS NULL FROM by_column
UPDATE by_column SET a = 7 WHERE a = 1
UPDATE by_column SET a = 7 RETURNING tableoid IS NULL
DELETE FROM by_column WHERE a = 1
MERGE INTO by_column USING given ON by_column.a = given.a WHEN NOT MATCHED THEN DO NOTHING
MERGE INTO by_column USING (VALUES (1), (2)) n (x) ON a = x WHEN MATCHED THEN UPDATE SET a = 9
MERGE INTO by_column USING (VALUES (1), (2)) n (x) ON a = x WHEN MATCHED THEN UPDATE SET who = 'x'
MERGE INTO cols USING (VALUES (1)) n (x) ON a = x WHEN MATCHED THEN UPDATE SET b = 'x'
MERGE INTO cols USING (VALUES (1)) n (x) ON a = x WHEN MATCHED AND c = 10 THEN UPDATE SET b = 'x'
MERGE INTO cols USING (VALUES (1)) n (x) ON a = x WHEN MATCHED THEN DELETE
MERGE INTO cols USING (VALUES (7)) n (x) ON a = x WHEN NOT MATCHED THEN INSERT (a) VALUES (x)
MERGE INTO cols USING (VALUES (7)) n (x) ON a = x WHEN NOT MATCHED THEN INSERT (a, c) VALUES (x, 1)
MERGE INTO cols USING (VALUES (7)) n (x) ON a = x WHEN NOT MATCHED THEN INSERT VALUES (x, 'x', 1)
MERGE INTO rls USING (VALUES (1), (2)) n (x) ON a = x WHEN MATCHED THEN DELETE
MERGE INTO rls USING (VALUES (1), (2)) n (x) ON a = x WHEN MATCHED THEN UPDATE SET a = a + 10
MERGE INTO rls USING (VALUES (1), (2)) n (x) ON a = x WHEN MATCHED THEN UPDATE SET who = 'x'
MERGE INTO rls USING (VALUES (9)) n (x) ON a = x WHEN NOT MATCHED THEN INSERT VALUES (x, current_user)
MERGE INTO rls USING (VALUES (9)) n (x) ON a = x WHEN NOT MATCHED THEN INSERT VALUES (x, 'x')
MERGE INTO touched USING (VALUES (1)) n (x) ON a = x WHEN MATCHED THEN DELETE
MERGE INTO touched USING (VALUES (2)) n (x) ON a = x WHEN MATCHED THEN DELETE
MERGE INTO touched USING (VALUES (1), (2)) n (x) ON a = x WHEN MATCHED THEN UPDATE SET a = a + 10
SET LOCAL row_security = off; MERGE INTO touched USING (VALUES (1)) n (x) ON a = x WHEN MATCHED THEN DELETE
SELECT 'a'::shut.kind::text
SELECT NULL::shut.kind[]
ALTER VIEW information_schema.tables RENAME TO mine
SELECT to_regtype('shut.kind') IS NULL
SELECT to_regtype('kind') IS NULL
SELECT to_regtype('numeric(8,2)')::text, to_regtype('nosuch')::text, 'timestamp with time zone'::regtype::text
SELECT 'shut.kind[]'::regtype::text
SELECT 'kind'::regtype
SELECT shut.kind 'a'
SELECT a FROM t WHERE b = 'a'::shut.kind::text
ALTER TABLE t ALTER b TYPE shut.kind USING 'a'
DROP TABLE pg_catalog.pg_class
ALTER TABLE pg_class ADD COLUMN x int
TRUNCATE pg_class
CREATE INDEX ON pg_class (relpages)
CREATE DOMAIN open.d AS shut.kind
""",
    "reading": """
SELECT * FROM t
SELECT count(*) FROM t
SELECT 1 FROM t
TABLE cols
SELECT a FROM cols
SELECT a, b FROM cols
SELECT c FROM cols
SELECT count(*) FROM cols
SELECT a FROM cols ORDER BY c
SELECT a FROM cols WHERE c > 0
SELECT * FROM secret
SELECT * FROM shut.t
SELECT * FROM open.t
SELECT * FROM t JOIN secret USING (a)
SELECT * FROM t WHERE a IN (SELECT a FROM secret)
WITH s AS (SELECT * FROM secret) SELECT 1
SELECT * FROM t FOR UPDATE
SELECT * FROM t FOR SHARE
SELECT a FROM cols FOR UPDATE
SELECT * FROM part
SELECT * FROM part_1
SELECT * FROM given
SELECT * FROM theirs
SELECT * FROM no_such_table
SELECT * FROM shut.no_such_table
SELECT * FROM no_such_schema.t
PREPARE s AS SELECT * FROM secret
DECLARE c CURSOR FOR SELECT * FROM secret
COPY t TO STDOUT
COPY cols TO STDOUT
COPY cols (a) TO STDOUT
COPY secret TO STDOUT
COPY (SELECT a FROM secret) TO STDOUT
SELECT rolname FROM pg_authid WHERE rolname = 'rights_owner'
SELECT rolname, rolpassword FROM pg_roles WHERE rolname = 'rights_owner'
SELECT passwd FROM pg_shadow WHERE usename = 'rights_owner'
SELECT subname FROM pg_subscription WHERE subname = 'rights_subscription'
SELECT subconninfo FROM pg_subscription WHERE subname = 'rights_subscription'
SELECT * FROM pg_subscription WHERE false
SELECT count(*) FROM pg_statistic WHERE false
SELECT count(*) FROM pg_hba_file_rules WHERE false
SELECT count(*) FROM pg_file_settings WHERE false
SELECT count(*) FROM pg_user_mapping WHERE false
SELECT count(*) FROM pg_replication_origin WHERE false
SELECT count(*) FROM pg_replication_origin_status WHERE false
SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
SELECT table_name, column_name FROM information_schema.columns WHERE table_schema IN ('public', 'open', 'shut')
""",
    "writing": """
INSERT INTO t VALUES (9, 'nine', 90)
INSERT INTO t VALUES (9, 'nine', 90) RETURNING a
INSERT INTO given VALUES (1)
INSERT INTO given VALUES (1) RETURNING a
INSERT INTO cols (a) VALUES (1)
INSERT INTO cols (a, b) VALUES (1, 'b')
INSERT INTO cols (a) VALUES (1) RETURNING a
INSERT INTO cols (a) VALUES (1) RETURNING c
INSERT INTO cols DEFAULT VALUES
INSERT INTO given SELECT a FROM secret
INSERT INTO part VALUES (1, 1)
INSERT INTO part_1 VALUES (1, 1)
INSERT INTO shut.t VALUES (1)
INSERT INTO open.t VALUES (1)
UPDATE t SET b = 'x'
UPDATE t SET b = 'x' WHERE a = 1
UPDATE given SET a = 1
UPDATE cols SET b = 'x'
UPDATE cols SET b = 'x' WHERE a = 1
UPDATE cols SET b = 'x' WHERE c = 10
UPDATE cols SET b = c::text
UPDATE cols SET a = 1
UPDATE cols SET b = 'x' RETURNING c
UPDATE t SET b = 'x' FROM secret WHERE t.a = secret.a
DELETE FROM t
DELETE FROM t WHERE a = 1
DELETE FROM given
DELETE FROM given WHERE a = 1
DELETE FROM cols
DELETE FROM t USING secret WHERE t.a = secret.a
DELETE FROM open.t
TRUNCATE t
TRUNCATE given
TRUNCATE secret
TRUNCATE t, secret
MERGE INTO t USING given ON t.a = given.a WHEN MATCHED THEN DELETE
MERGE INTO t USING theirs ON t.a = theirs.a WHEN NOT MATCHED THEN INSERT VALUES (9, 'x', 1)
MERGE INTO given USING t ON t.a = given.a WHEN MATCHED THEN UPDATE SET a = 1
COPY t FROM STDIN
COPY given FROM STDIN
COPY cols (a) FROM STDIN
COPY cols FROM STDIN
COPY cols (a) FROM STDIN WHERE a > 1
COPY given FROM STDIN WHERE true
LOCK TABLE t IN ACCESS SHARE MODE
LOCK TABLE t IN ROW EXCLUSIVE MODE
LOCK TABLE t IN ACCESS EXCLUSIVE MODE
LOCK TABLE given IN ROW EXCLUSIVE MODE
LOCK TABLE secret IN ACCESS SHARE MODE
LOCK TABLE v IN ACCESS SHARE MODE
LOCK TABLE cols IN ROW SHARE MODE
CREATE TABLE open.copied AS SELECT * FROM secret
CREATE TEMP TABLE temporary AS SELECT * FROM t
""",
    "columns": """
SELECT count(c) FROM cols
SELECT count(cols) FROM cols
SELECT cols.* FROM cols
SELECT max(a) FROM cols GROUP BY c
SELECT max(a) FROM cols HAVING max(c) > 0
SELECT DISTINCT ON (c) a FROM cols
SELECT a, rank() OVER (ORDER BY c) FROM cols
SELECT x FROM (SELECT c AS x FROM cols) s
SELECT 1 FROM (SELECT c FROM cols) s
SELECT x.a FROM cols x, cols y WHERE x.c = y.c
SELECT x.a FROM cols x JOIN cols y USING (a)
SELECT x.a FROM cols x JOIN cols y USING (c)
SELECT x.a FROM cols x NATURAL JOIN cols y
SELECT x.a FROM cols x LEFT JOIN cols y ON x.a = y.a AND y.c > 0
SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM cols WHERE c > 0)
SELECT (SELECT max(c) FROM cols)
SELECT x.a FROM cols x, LATERAL (SELECT x.c) y
WITH w AS (SELECT c FROM cols) SELECT * FROM w
SELECT a FROM cols UNION SELECT c FROM cols
SELECT CASE WHEN a > 0 THEN c END FROM cols
SELECT a FROM cols LIMIT (SELECT max(c) FROM cols)
SELECT renamed.z FROM cols AS renamed (x, y, z)
SELECT tableoid IS NULL FROM cols
INSERT INTO given SELECT c FROM cols
INSERT INTO given SELECT a FROM cols
UPDATE t SET b = 'x' FROM cols WHERE t.a = cols.c
UPDATE t SET b = 'x' FROM cols WHERE t.a = cols.a
UPDATE cols SET b = (SELECT 'x')
UPDATE cols SET (a, b) = (1, 'x')
UPDATE cols SET b = 'x' RETURNING a
UPDATE cols SET b = 'x' RETURNING *
DELETE FROM t USING cols WHERE t.a = cols.c
MERGE INTO t USING cols ON t.a = cols.a WHEN MATCHED THEN UPDATE SET b = 'x'
MERGE INTO t USING cols ON t.a = cols.a WHEN MATCHED THEN UPDATE SET c = cols.c
MERGE INTO t USING cols ON t.a = cols.c WHEN MATCHED THEN DO NOTHING
MERGE INTO cols USING t ON t.a = cols.a WHEN MATCHED THEN UPDATE SET b = 'x'
MERGE INTO cols USING t ON t.a = cols.a WHEN MATCHED THEN UPDATE SET c = 1
COPY (SELECT c FROM cols) TO STDOUT
COPY cols (b, a) TO STDOUT
COPY cols (c) FROM STDIN
CREATE TEMP TABLE n AS SELECT c FROM cols
GRANT SELECT (c) ON cols TO rights_nobody
GRANT SELECT (a) ON given TO rights_nobody; SELECT attacl::text FROM pg_attribute WHERE attrelid = 'given'::regclass AND attname = 'a'
REVOKE SELECT (a) ON cols FROM rights_reader
REVOKE SELECT ON cols FROM rights_reader; SELECT a FROM cols
""",
    "row security": """
SELECT * FROM rls ORDER BY a
SELECT count(*) FROM rls
SELECT * FROM forced
SELECT * FROM v_rls
SELECT row_security_active('rls'), row_security_active('forced')
SET LOCAL row_security = off; SELECT * FROM rls
SET LOCAL row_security = off; SELECT * FROM forced
INSERT INTO rls VALUES (5, 'rights_writer')
INSERT INTO rls VALUES (5, 'rights_owner')
INSERT INTO rls VALUES (5, current_user) RETURNING a
UPDATE rls SET a = a + 10
UPDATE rls SET who = 'rights_owner'
DELETE FROM rls
COPY rls TO STDOUT
COPY rls FROM STDIN
TRUNCATE rls
ALTER TABLE rls DISABLE ROW LEVEL SECURITY
ALTER TABLE rls FORCE ROW LEVEL SECURITY; SELECT * FROM rls
ALTER TABLE rls NO FORCE ROW LEVEL SECURITY
ALTER TABLE secret ENABLE ROW LEVEL SECURITY; SELECT * FROM secret
CREATE POLICY wide ON rls USING (true); SELECT count(*) FROM rls
CREATE POLICY narrow ON rls AS RESTRICTIVE USING (a = 2)
ALTER POLICY mine ON rls USING (true)
ALTER POLICY mine ON rls RENAME TO yours
DROP POLICY mine ON rls
DROP POLICY IF EXISTS no_such_policy ON rls
SET LOCAL ROLE rights_bypass; SELECT * FROM rls
SELECT polname FROM pg_policy ORDER BY 1
ALTER TABLE rls OWNER TO rights_team
""",
    "views": """
SELECT * FROM v
SELECT count(*) FROM v
SELECT * FROM v_secret
CREATE VIEW open.w AS SELECT * FROM secret
CREATE VIEW open.w AS SELECT * FROM secret; SELECT * FROM open.w
CREATE VIEW open.w AS SELECT a FROM cols; SELECT * FROM open.w
CREATE OR REPLACE VIEW v AS SELECT a, b FROM t WHERE a > 1
ALTER VIEW v RENAME TO w
ALTER VIEW v OWNER TO rights_team
ALTER VIEW v SET SCHEMA open
DROP VIEW v
REVOKE SELECT ON t FROM rights_owner; SELECT * FROM v
GRANT INSERT ON v TO rights_nobody
COMMENT ON VIEW v IS 'x'
""",
    "tables": """
CREATE TABLE n (a int)
CREATE TABLE open.n (a int)
CREATE TABLE shut.n (a int)
CREATE TABLE pg_catalog.n (a int)
CREATE TABLE IF NOT EXISTS t (a int)
CREATE TABLE IF NOT EXISTS open.t (a int)
CREATE TEMP TABLE n (a int)
CREATE TABLE n (LIKE secret)
CREATE TABLE open.n (LIKE secret)
CREATE TABLE open.n (a int REFERENCES t)
CREATE TEMP TABLE n (a mood)
CREATE TABLE open.n (a int); GRANT SELECT ON open.n TO rights_nobody; SELECT relacl::text FROM pg_class WHERE oid = 'open.n'::regclass
ALTER TABLE t ADD COLUMN d int
ALTER TABLE t DROP COLUMN c
ALTER TABLE t ALTER COLUMN c SET NOT NULL
ALTER TABLE t ALTER COLUMN c SET DEFAULT 1
ALTER TABLE t ALTER COLUMN c TYPE bigint
ALTER TABLE t RENAME TO n
ALTER TABLE t RENAME COLUMN c TO d
ALTER TABLE t ADD CHECK (c > 0)
ALTER TABLE t DROP CONSTRAINT t_pkey
ALTER TABLE t REPLICA IDENTITY FULL
ALTER TABLE t SET SCHEMA open
ALTER TABLE t SET SCHEMA shut
ALTER TABLE t OWNER TO rights_team
ALTER TABLE t OWNER TO rights_nobody
ALTER TABLE t OWNER TO rights_heir
ALTER TABLE theirs OWNER TO rights_owner
ALTER TABLE IF EXISTS no_such_table ADD COLUMN d int
ALTER TABLE part ATTACH PARTITION given DEFAULT
ALTER TABLE part DETACH PARTITION part_1
CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2)
CREATE TABLE open.part_2 PARTITION OF part FOR VALUES IN (2)
CREATE TABLE open.n (a int REFERENCES t (a))
ALTER TABLE secret ADD FOREIGN KEY (a) REFERENCES t
DROP TABLE t
DROP TABLE secret
DROP TABLE theirs
DROP TABLE open.t
DROP TABLE shut.t
DROP TABLE IF EXISTS no_such_table
DROP TABLE IF EXISTS shut.no_such_table
DROP TABLE secret, theirs
CREATE INDEX n ON t (c)
CREATE INDEX n ON theirs (a)
DROP INDEX t_b
ALTER INDEX t_b RENAME TO n
REINDEX TABLE t
REINDEX INDEX t_b
COMMENT ON TABLE t IS 'x'
COMMENT ON COLUMN t.a IS 'x'
COMMENT ON TABLE theirs IS 'x'
ANALYZE t
ANALYZE secret
""",
    "more of tables": """
INSERT INTO child VALUES (1)
INSERT INTO child VALUES (77)
DELETE FROM parent
DELETE FROM parent WHERE a = 2
CREATE INDEX n ON shut.t (a)
DROP INDEX shut.no_such_index
COMMENT ON INDEX t_b IS 'x'
COMMENT ON SEQUENCE q IS 'x'
COMMENT ON TYPE mood IS 'x'
COMMENT ON DOMAIN positive IS 'x'
COMMENT ON CONSTRAINT t_pkey ON t IS 'x'
CREATE TEMP TABLE n (a shut.kind)
SELECT NULL::shut.kind
SELECT nextval('shut.q')
SELECT setval('shut.q', 1)
CREATE SEQUENCE open.n OWNED BY t.a
ALTER SEQUENCE hidden OWNED BY theirs.a
LOCK TABLE v_secret IN ACCESS SHARE MODE
ALTER TABLE part ATTACH PARTITION theirs DEFAULT
ALTER TABLE t SET (fillfactor = 70)
ALTER TABLE t VALIDATE CONSTRAINT t_pkey
ALTER TABLE t CLUSTER ON t_pkey
ALTER TABLE t DISABLE TRIGGER ALL
ALTER TABLE t ADD PRIMARY KEY USING INDEX t_b
ALTER TABLE part_1 ADD COLUMN d int
SELECT pg_relation_size('secret') IS NULL
SELECT pg_get_serial_sequence('secret', 'a')
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 't_pkey'
SELECT obj_description('secret'::regclass)
CREATE TABLE open.n (a int); ALTER TABLE open.n SET SCHEMA public
CREATE TABLE open.n (a int); ALTER TABLE open.n OWNER TO rights_reader
CREATE TABLE open.n (a int); DROP SCHEMA open CASCADE
CREATE TABLE open.n (a int); REVOKE CREATE ON SCHEMA open FROM rights_writer
CREATE TEMP TABLE n (a int); GRANT SELECT ON n TO rights_nobody; ALTER TABLE n RENAME TO m; DROP TABLE m
CREATE TEMP TABLE n (a int); INSERT INTO pg_temp.n VALUES (1); SELECT * FROM pg_temp.n
SET LOCAL ROLE rights_nobody; CREATE TEMP TABLE n (a int); RESET ROLE; SELECT * FROM n
SET CONSTRAINTS ALL DEFERRED
NOTIFY n
LISTEN n
""",
    "sequences": """
SELECT nextval('q')
SELECT currval('q')
SELECT setval('q', 5)
SELECT last_value FROM q
SELECT nextval('hidden')
SELECT lastval()
CREATE SEQUENCE n
CREATE SEQUENCE open.n
ALTER SEQUENCE q RESTART
ALTER SEQUENCE q OWNED BY t.a
ALTER SEQUENCE q OWNER TO rights_team
ALTER SEQUENCE q RENAME TO n
DROP SEQUENCE q
GRANT USAGE ON SEQUENCE q TO rights_nobody
CREATE TEMP TABLE n (a serial); INSERT INTO n DEFAULT VALUES
""",
    "types and schemas": """
CREATE SCHEMA n
CREATE SCHEMA IF NOT EXISTS open
CREATE SCHEMA n AUTHORIZATION rights_owner
CREATE SCHEMA n AUTHORIZATION rights_nobody
CREATE SCHEMA AUTHORIZATION CURRENT_USER
CREATE SCHEMA pg_n
ALTER SCHEMA open RENAME TO n
ALTER SCHEMA open OWNER TO rights_team
ALTER SCHEMA open OWNER TO rights_nobody
ALTER SCHEMA public OWNER TO rights_owner
DROP SCHEMA open
DROP SCHEMA open CASCADE
DROP SCHEMA shut CASCADE
DROP SCHEMA public CASCADE
COMMENT ON SCHEMA open IS 'x'
CREATE TYPE n AS ENUM ('a')
CREATE TYPE open.n AS ENUM ('a')
ALTER TYPE mood ADD VALUE 'calm'
ALTER TYPE mood RENAME TO n
ALTER TYPE mood OWNER TO rights_team
DROP TYPE mood
CREATE DOMAIN n AS int
CREATE DOMAIN open.n AS int
ALTER DOMAIN positive DROP NOT NULL
ALTER DOMAIN positive OWNER TO rights_nobody
DROP DOMAIN positive
SELECT 'happy'::mood, 1::positive
SET LOCAL search_path = shut, public; SELECT count(*) FROM t
SET LOCAL search_path = shut, open; SELECT count(*) FROM t
SET LOCAL search_path = shut, open; CREATE TABLE n (a int)
SET LOCAL search_path = open, public; SELECT 't'::regclass::text
SELECT 'shut.t'::regclass::text
SELECT to_regclass('shut.t')::text
SELECT current_schemas(false)
""",
    "databases": """
ALTER DATABASE {database} OWNER TO rights_owner
ALTER DATABASE {database} RENAME TO rights_renamed
COMMENT ON DATABASE {database} IS 'x'
GRANT CREATE ON DATABASE {database} TO rights_nobody
GRANT CONNECT, TEMP ON DATABASE {database} TO rights_nobody
REVOKE CONNECT ON DATABASE {database} FROM PUBLIC
REVOKE TEMP ON DATABASE {database} FROM PUBLIC; CREATE TEMP TABLE n (a int)
CREATE DATABASE rights_in_a_block
DROP DATABASE no_such_database
CHECKPOINT
SET LOCAL log_statement = 'all'
SET LOCAL session_replication_role = 'replica'
SET LOCAL log_min_duration_statement = 0
SET LOCAL work_mem = '5MB'
SET LOCAL wal_level = 'logical'
""",
    "grants": """
GRANT SELECT ON t TO rights_nobody
GRANT SELECT ON t TO PUBLIC
GRANT ALL ON t TO rights_nobody
GRANT SELECT ON t TO rights_nobody WITH GRANT OPTION
GRANT SELECT ON t TO PUBLIC WITH GRANT OPTION
GRANT SELECT (a) ON t TO rights_nobody
GRANT SELECT (no_such_column) ON t TO rights_nobody
GRANT SELECT ON given TO rights_nobody; SELECT relacl::text FROM pg_class WHERE oid = 'given'::regclass
GRANT SELECT, UPDATE ON given TO rights_nobody; SELECT relacl::text FROM pg_class WHERE oid = 'given'::regclass
GRANT ALL ON given TO rights_nobody; SELECT relacl::text FROM pg_class WHERE oid = 'given'::regclass
GRANT UPDATE ON given TO rights_nobody
GRANT SELECT ON given TO rights_nobody GRANTED BY CURRENT_USER
GRANT SELECT ON given TO rights_nobody GRANTED BY rights_owner
GRANT SELECT ON theirs TO rights_nobody; SELECT relacl::text FROM pg_class WHERE oid = 'theirs'::regclass
GRANT SELECT ON theirs TO no_such_role
GRANT SELECT ON no_such_table TO rights_nobody
GRANT SELECT ON shut.t TO rights_nobody
GRANT SELECT ON ALL TABLES IN SCHEMA open TO rights_nobody
GRANT SELECT ON ALL TABLES IN SCHEMA public TO rights_nobody
REVOKE SELECT ON t FROM rights_reader
REVOKE SELECT ON given FROM rights_reader
REVOKE SELECT ON given FROM rights_reader CASCADE
REVOKE GRANT OPTION FOR SELECT ON given FROM rights_reader
REVOKE ALL ON given FROM rights_owner; SELECT * FROM given
REVOKE ALL ON t FROM rights_owner; GRANT SELECT ON t TO rights_owner
REVOKE SELECT ON theirs FROM rights_owner
GRANT USAGE ON SCHEMA shut TO rights_nobody
GRANT USAGE ON SCHEMA open TO rights_nobody
GRANT CREATE ON SCHEMA public TO rights_nobody
REVOKE USAGE ON SCHEMA public FROM PUBLIC; SELECT * FROM public.t
GRANT SELECT ON pg_authid TO rights_nobody
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO rights_nobody
ALTER DEFAULT PRIVILEGES FOR ROLE rights_owner GRANT SELECT ON TABLES TO rights_nobody
ALTER DEFAULT PRIVILEGES FOR ROLE rights_team GRANT SELECT ON TABLES TO rights_nobody
ALTER DEFAULT PRIVILEGES IN SCHEMA shut GRANT SELECT ON TABLES TO rights_nobody
ALTER DEFAULT PRIVILEGES IN SCHEMA open GRANT SELECT ON TABLES TO rights_nobody
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO rights_nobody
DROP OWNED BY rights_owner
DROP OWNED BY rights_nobody
DROP OWNED BY CURRENT_USER
DROP OWNED BY postgres
DROP OWNED BY pg_monitor
REASSIGN OWNED BY postgres TO CURRENT_USER
REASSIGN OWNED BY CURRENT_USER TO rights_nobody
REASSIGN OWNED BY rights_super TO rights_owner
REASSIGN OWNED BY rights_owner TO rights_team
REASSIGN OWNED BY rights_team TO rights_owner
REASSIGN OWNED BY rights_nobody TO CURRENT_USER
""",
    "roles": """
CREATE ROLE rights_new
CREATE ROLE rights_new SUPERUSER
CREATE ROLE rights_new NOSUPERUSER NOREPLICATION NOBYPASSRLS
CREATE ROLE rights_new REPLICATION
CREATE ROLE rights_new BYPASSRLS
CREATE ROLE rights_new CREATEROLE CREATEDB LOGIN
CREATE ROLE rights_new IN ROLE rights_owner
CREATE ROLE rights_new IN ROLE rights_boss
CREATE ROLE rights_new ROLE rights_owner
CREATE ROLE rights_new ADMIN CURRENT_USER
CREATE ROLE rights_new SYSID 5
CREATE ROLE rights_nobody
CREATE ROLE pg_rights
CREATE USER rights_new PASSWORD 'x'
ALTER ROLE CURRENT_USER PASSWORD 'x'
ALTER ROLE CURRENT_USER PASSWORD NULL
ALTER ROLE CURRENT_USER SUPERUSER
ALTER ROLE CURRENT_USER NOSUPERUSER
ALTER ROLE CURRENT_USER CREATEROLE
ALTER ROLE CURRENT_USER CREATEDB
ALTER ROLE CURRENT_USER REPLICATION
ALTER ROLE CURRENT_USER BYPASSRLS
ALTER ROLE CURRENT_USER INHERIT
ALTER ROLE CURRENT_USER CONNECTION LIMIT 5
ALTER ROLE CURRENT_USER VALID UNTIL 'infinity'
ALTER ROLE CURRENT_USER RENAME TO rights_renamed
ALTER ROLE {role} RENAME TO rights_renamed
ALTER ROLE rights_fresh PASSWORD 'x'
ALTER ROLE rights_fresh PASSWORD 'x' LOGIN
ALTER ROLE rights_fresh CREATEDB
ALTER ROLE rights_fresh SUPERUSER
ALTER ROLE rights_fresh NOREPLICATION
ALTER ROLE rights_fresh RENAME TO rights_renamed
ALTER ROLE rights_boss PASSWORD 'x'
ALTER ROLE rights_stream PASSWORD 'x'
ALTER ROLE rights_bypass LOGIN
ALTER ROLE rights_bypass NOBYPASSRLS
ALTER ROLE no_such_role LOGIN
ALTER ROLE pg_monitor LOGIN
ALTER GROUP rights_team ADD USER rights_fresh
ALTER GROUP rights_team DROP USER rights_reader
DROP ROLE rights_fresh
DROP ROLE rights_boss
DROP ROLE rights_stream
DROP ROLE rights_owner
DROP ROLE CURRENT_USER
DROP ROLE pg_monitor
DROP ROLE postgres
ALTER ROLE postgres NOSUPERUSER
ALTER ROLE postgres PASSWORD 'x'
ALTER ROLE rights_boss NOSUPERUSER
ALTER ROLE rights_boss RENAME TO rights_renamed
DROP ROLE no_such_role
DROP ROLE IF EXISTS no_such_role
COMMENT ON ROLE rights_fresh IS 'x'
COMMENT ON ROLE rights_boss IS 'x'
GRANT rights_team TO rights_fresh
GRANT rights_team TO rights_fresh WITH ADMIN OPTION
GRANT rights_owner TO rights_fresh
GRANT rights_heir TO rights_owner
GRANT rights_boss TO rights_fresh
GRANT rights_fresh TO CURRENT_USER
GRANT CURRENT_USER TO rights_fresh
GRANT pg_read_all_data TO rights_fresh
GRANT pg_database_owner TO rights_fresh
GRANT rights_team TO rights_team
GRANT rights_team TO PUBLIC
GRANT rights_team TO rights_fresh GRANTED BY rights_owner
REVOKE rights_team FROM rights_reader
REVOKE rights_team FROM CURRENT_USER
REVOKE ADMIN OPTION FOR rights_team FROM rights_owner
REVOKE rights_owner FROM rights_heir
REVOKE rights_boss FROM rights_fresh
SELECT grantee, role_name FROM information_schema.applicable_roles
SELECT role_name FROM information_schema.enabled_roles WHERE role_name LIKE 'rights%'
""",
    "acting": """
SET LOCAL ROLE rights_owner; SELECT * FROM secret
SET LOCAL ROLE rights_team; DELETE FROM given
SET LOCAL ROLE rights_boss; CREATE ROLE rights_new SUPERUSER
SET LOCAL ROLE rights_all_reader; SELECT * FROM shut.t
SET LOCAL ROLE rights_all_reader; INSERT INTO t VALUES (9, 'x', 1)
SET LOCAL ROLE rights_all_reader; SELECT last_value FROM q
SET LOCAL ROLE rights_all_reader; SELECT * FROM rls
SET LOCAL ROLE rights_all_reader; SELECT rolname FROM pg_authid WHERE rolname = 'rights_owner'
SET LOCAL ROLE rights_all_writer; INSERT INTO shut.t VALUES (1)
SET LOCAL ROLE rights_all_writer; DELETE FROM given
SET LOCAL ROLE rights_all_writer; SELECT * FROM given
SET LOCAL ROLE rights_all_writer; TRUNCATE given
SET LOCAL ROLE rights_all_writer; SELECT nextval('q')
SET LOCAL ROLE no_such_role
SET LOCAL ROLE pg_monitor; SELECT current_user::text
SET ROLE NONE; SELECT current_user::text, session_user::text
SET LOCAL SESSION AUTHORIZATION rights_owner; SELECT * FROM secret
SET LOCAL SESSION AUTHORIZATION rights_boss
SET LOCAL SESSION AUTHORIZATION {role}; SELECT current_user::text
SET LOCAL SESSION AUTHORIZATION no_such_role
SET LOCAL ROLE rights_owner; SET LOCAL ROLE rights_team; SELECT current_user::text
SET LOCAL ROLE rights_owner; SET LOCAL SESSION AUTHORIZATION rights_nobody; SELECT current_user::text
SELECT set_config('role', 'rights_owner', true); SELECT current_user::text
SELECT set_config('session_authorization', 'rights_boss', true)
SELECT set_config('log_statement', 'all', true)
SELECT current_setting('is_superuser'), current_user::text, session_user::text
DISCARD ALL
DISCARD TEMP
SELECT pg_has_role('rights_owner', 'MEMBER'), pg_has_role('rights_owner', 'USAGE'), pg_has_role('rights_team', 'USAGE')
SELECT pg_has_role('rights_team', 'MEMBER WITH ADMIN OPTION'), pg_has_role('rights_team', 'USAGE WITH GRANT OPTION')
SELECT pg_has_role('rights_heir', 'rights_team', 'USAGE'), pg_has_role('rights_heir', 'rights_team', 'MEMBER')
SELECT pg_has_role(oid, 'USAGE') FROM pg_roles WHERE rolname LIKE 'rights%' ORDER BY rolname
SELECT pg_has_role('no_such_role', 'USAGE')
SELECT pg_has_role('rights_owner', 'READ')
SELECT has_table_privilege('t', 'SELECT'), has_table_privilege('t', 'TRUNCATE'), has_table_privilege('given', 'INSERT WITH GRANT OPTION')
SELECT has_table_privilege('rights_heir', 't', 'SELECT'), has_table_privilege('given', 'DELETE, UPDATE')
SELECT has_table_privilege('shut.t', 'SELECT')
SELECT has_table_privilege(0::oid, 'SELECT')
SELECT has_table_privilege('no_such_table', 'SELECT')
SELECT has_table_privilege('public', 't', 'SELECT')
SELECT has_column_privilege('cols', 'a', 'SELECT'), has_column_privilege('cols', 'b', 'UPDATE'), has_column_privilege('cols', 2::int2, 'INSERT')
SELECT has_column_privilege('cols', 'no_such_column', 'SELECT')
SELECT has_any_column_privilege('cols', 'SELECT'), has_any_column_privilege('secret', 'SELECT')
SELECT has_sequence_privilege('q', 'USAGE'), has_sequence_privilege('q', 'SELECT'), has_sequence_privilege('q', 'UPDATE')
SELECT has_sequence_privilege('t', 'USAGE')
SELECT has_schema_privilege('shut', 'USAGE'), has_schema_privilege('open', 'CREATE'), has_schema_privilege('public', 'USAGE')
SELECT has_schema_privilege('no_such_schema', 'USAGE')
SELECT has_database_privilege(current_database(), 'CREATE'), has_database_privilege('{database}', 'TEMP'), has_database_privilege('postgres', 'CONNECT')
SELECT has_database_privilege('no_such_database', 'CREATE')
""",
    "functions": """
SELECT plain(1)
SELECT closed(1)
SELECT closed_by_plain(1)
SELECT plain(a) FROM t ORDER BY 1
SELECT closed(a) FROM t ORDER BY 1
SELECT a FROM t WHERE closed(a) > 2 ORDER BY 1
UPDATE t SET c = closed(a)
SELECT of_secret()
SELECT of_secret_by_caller()
SELECT acts()
SELECT acts(), current_user::text, current_setting('search_path')
CALL gives()
CALL gives_as_owner()
DO $$ BEGIN INSERT INTO given VALUES (9); END $$
DO $$ BEGIN PERFORM closed(1); END $$
CREATE FUNCTION n() RETURNS int LANGUAGE sql AS 'SELECT 1'
CREATE FUNCTION open.n() RETURNS int LANGUAGE sql AS 'SELECT 1'
CREATE FUNCTION shut.n() RETURNS int LANGUAGE sql AS 'SELECT 1'
CREATE FUNCTION n() RETURNS int LANGUAGE sql LEAKPROOF AS 'SELECT 1'
CREATE OR REPLACE FUNCTION plain(x int) RETURNS int LANGUAGE sql AS 'SELECT 1'
ALTER FUNCTION plain(int) STABLE
ALTER FUNCTION plain(int) LEAKPROOF
ALTER FUNCTION plain(int) SECURITY DEFINER
ALTER FUNCTION plain(int) SET search_path = open
ALTER FUNCTION plain(int) OWNER TO rights_team
ALTER FUNCTION plain(int) OWNER TO rights_boss
GRANT CREATE ON SCHEMA public TO rights_team; ALTER FUNCTION plain(int) OWNER TO rights_team
ALTER FUNCTION plain(int) RENAME TO n
ALTER FUNCTION plain(int) SET SCHEMA open
ALTER FUNCTION plain(int) SET SCHEMA shut
DROP FUNCTION plain(int)
DROP PROCEDURE gives()
GRANT EXECUTE ON FUNCTION plain(int) TO rights_writer
GRANT EXECUTE ON FUNCTION closed(int) TO rights_writer
REVOKE EXECUTE ON FUNCTION closed(int) FROM rights_reader
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO rights_nobody
GRANT USAGE ON LANGUAGE sql TO rights_reader
REVOKE USAGE ON LANGUAGE sql FROM rights_writer
SELECT has_language_privilege('sql', 'USAGE'), has_language_privilege('plpgsql', 'USAGE'), has_language_privilege('c', 'USAGE')
ALTER DEFAULT PRIVILEGES FOR ROLE rights_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC
SELECT has_function_privilege('closed(int)', 'EXECUTE'), has_function_privilege('plain(int)', 'EXECUTE')
CREATE TABLE n (a int DEFAULT closed(1))
CREATE TABLE n (a int CHECK (plain(a) > 1)); DROP FUNCTION plain(int)
""",
    "replication": """
CREATE PUBLICATION n
CREATE PUBLICATION n FOR TABLE t
CREATE PUBLICATION n FOR TABLE theirs
CREATE PUBLICATION n FOR TABLE shut.t
CREATE PUBLICATION n FOR TABLE t WHERE (a > 1)
CREATE PUBLICATION n FOR ALL TABLES
CREATE PUBLICATION n FOR TABLES IN SCHEMA open
ALTER PUBLICATION p ADD TABLE secret
ALTER PUBLICATION p ADD TABLE theirs
ALTER PUBLICATION p ADD TABLES IN SCHEMA open
ALTER PUBLICATION p SET TABLE secret
ALTER PUBLICATION p DROP TABLE t
ALTER PUBLICATION p SET (publish = 'insert')
ALTER PUBLICATION p RENAME TO n
ALTER PUBLICATION p OWNER TO rights_team
ALTER PUBLICATION p OWNER TO rights_super
ALTER PUBLICATION everything SET (publish = 'insert')
ALTER PUBLICATION everything OWNER TO rights_owner
DROP PUBLICATION p
DROP PUBLICATION everything
COMMENT ON PUBLICATION p IS 'x'
SELECT pubname FROM pg_publication_tables WHERE tablename = 'secret'
SELECT relid::regclass::text FROM pg_get_publication_tables('p')
CREATE SUBSCRIPTION n CONNECTION 'dbname=none' PUBLICATION p WITH (connect = false, slot_name = NONE)
ALTER SUBSCRIPTION rights_subscription CONNECTION 'dbname=other'
ALTER SUBSCRIPTION rights_subscription SET (binary = true)
ALTER SUBSCRIPTION rights_subscription SET PUBLICATION p WITH (refresh = false)
ALTER SUBSCRIPTION rights_subscription DISABLE
ALTER SUBSCRIPTION rights_subscription RENAME TO n
ALTER SUBSCRIPTION rights_subscription OWNER TO rights_boss
ALTER SUBSCRIPTION rights_subscription SKIP (lsn = '0/1')
DROP SUBSCRIPTION rights_subscription
DROP SUBSCRIPTION IF EXISTS no_such_subscription
COMMENT ON SUBSCRIPTION rights_subscription IS 'x'
SELECT slot_name FROM pg_create_logical_replication_slot('{role}', 'pgoutput', true); SELECT pg_drop_replication_slot('{role}')
SELECT pg_drop_replication_slot('no_such_slot')
SELECT pg_replication_slot_advance('no_such_slot', '0/1')
SELECT * FROM pg_logical_slot_get_binary_changes('no_such_slot', '0/1', 1)
SELECT * FROM pg_logical_slot_peek_binary_changes('no_such_slot', '0/1', 1)
SELECT pg_replication_origin_create('rights_{role}'); SELECT 1
SELECT pg_replication_origin_drop('no_such_origin')
SELECT pg_replication_origin_oid('no_such_origin')
SELECT pg_replication_origin_session_is_setup()
SELECT pg_replication_origin_session_setup('no_such_origin')
SELECT pg_replication_origin_session_reset()
SELECT pg_replication_origin_progress('no_such_origin', false)
SELECT pg_replication_origin_advance('no_such_origin', '0/1')
SELECT 1 FROM pg_logical_emit_message(true, 'p', 'x')
SELECT pg_current_wal_lsn() IS NULL
SELECT slot_name FROM pg_replication_slots WHERE false
SELECT pg_terminate_backend(0)
SELECT pg_cancel_backend(pg_backend_pid() + 100000)
SELECT pg_reload_conf()
SELECT pg_switch_wal() IS NULL
SELECT pg_is_in_recovery()
SELECT pg_export_snapshot() IS NULL
""",
}

STATEMENTS = {group: lines.strip().splitlines() for group, lines in _LINES.items()}
"""The rows of the matrix, by group."""

REFUSED = ("rights_owner", "rights_reader", "rights_writer", "rights_maker", "rights_copier", "rights_heir", "rights_nobody")

ALONE = {
    "CREATE DATABASE rights_database": REFUSED,
    "CREATE DATABASE rights_database TEMPLATE {database}": REFUSED,
    "CREATE DATABASE rights_database OWNER rights_owner": REFUSED,
    "DROP DATABASE {database}": REFUSED,
    "DROP DATABASE IF EXISTS no_such_database": tuple(ROLES),
    "ALTER SYSTEM SET work_mem = '5MB'": REFUSED,
    "ALTER SYSTEM RESET ALL": REFUSED,
    "CREATE SUBSCRIPTION n CONNECTION 'dbname=none' PUBLICATION p": REFUSED,
    "ALTER SUBSCRIPTION rights_subscription REFRESH PUBLICATION": REFUSED,
    "ALTER SUBSCRIPTION rights_subscription ENABLE": tuple(ROLES),
    "VACUUM secret": tuple(ROLES),
    "VACUUM theirs": tuple(ROLES),
    "REINDEX DATABASE {database}": REFUSED,
    "REINDEX SCHEMA open": REFUSED,
    "ALTER DATABASE {database} RENAME TO rights_renamed": REFUSED,
    "SELECT pg_drop_replication_slot('no_such_slot')": tuple(ROLES),
}
"""Statements that run outside a transaction, with the roles that run them: all roles, or only the rejected ones if it would do harm."""

_WHO = "SELECT current_user::text, session_user::text, current_setting('is_superuser'), current_setting('role')"

SEQUENCES = {
    "SET ROLE for the session": ("SET ROLE rights_owner", _WHO, "SELECT * FROM secret", "RESET ROLE", _WHO, "SELECT * FROM secret"),
    "SET ROLE rolled back": ("BEGIN", "SET ROLE rights_team", _WHO, "ROLLBACK", _WHO),
    "SET ROLE committed": ("BEGIN", "SET ROLE rights_team", "COMMIT", _WHO, "DELETE FROM given", "SET ROLE NONE", _WHO),
    "SET LOCAL ROLE": ("BEGIN", "SET LOCAL ROLE rights_team", "DELETE FROM given", "COMMIT", _WHO, "DELETE FROM given"),
    "SET LOCAL ROLE outside a transaction": ("SET LOCAL ROLE rights_team", _WHO),
    "SET ROLE after a savepoint": ("BEGIN", "SAVEPOINT s", "SET ROLE rights_team", _WHO, "ROLLBACK TO s", _WHO, "SELECT * FROM secret", "ROLLBACK", _WHO),
    "SET ROLE rejected": ("BEGIN", "SET ROLE rights_boss", _WHO, "ROLLBACK", _WHO),
    "SET SESSION AUTHORIZATION": ("SET SESSION AUTHORIZATION rights_owner", _WHO, "SET ROLE rights_team", _WHO, "RESET SESSION AUTHORIZATION", _WHO),
    "SET SESSION AUTHORIZATION does not return privileges": ("SET SESSION AUTHORIZATION rights_reader", "SET ROLE rights_owner", "SET SESSION AUTHORIZATION rights_owner", _WHO),
    "SET SESSION AUTHORIZATION rolled back": ("BEGIN", "SET SESSION AUTHORIZATION rights_reader", "SET LOCAL ROLE rights_team", "ROLLBACK", _WHO),
    "DISCARD ALL": ("SET ROLE rights_team", "DISCARD ALL", _WHO, "SELECT * FROM secret"),
    "DISCARD ALL in a transaction": ("BEGIN", "SET ROLE rights_team", "DISCARD ALL", "ROLLBACK", _WHO),
    "RESET ALL": ("SET ROLE rights_team", "RESET ALL", _WHO),
    "set_config": ("SELECT set_config('role', 'rights_team', false)", _WHO, "SELECT set_config('role', 'none', false)", _WHO),
    "a privilege revoked in the transaction": ("BEGIN", "REVOKE SELECT ON t FROM rights_reader", "SET ROLE rights_reader", "SELECT * FROM t", "ROLLBACK", "SELECT * FROM t"),
    "a privilege granted in the transaction": ("BEGIN", "GRANT SELECT ON secret TO rights_reader", "SET ROLE rights_reader", "SELECT * FROM secret", "ROLLBACK", "SELECT * FROM secret"),
    "a privilege rolled back to a savepoint": ("BEGIN", "SAVEPOINT s", "GRANT SELECT ON secret TO rights_team", "ROLLBACK TO s", "SET ROLE rights_team", "SELECT * FROM secret", "ROLLBACK"),
    "an attribute removed in the transaction": ("BEGIN", "ALTER ROLE CURRENT_USER NOSUPERUSER", _WHO, "SELECT rolname FROM pg_authid WHERE false", "ROLLBACK", _WHO),
    "a membership granted in the transaction": ("BEGIN", "GRANT rights_owner TO rights_nobody", "SET SESSION AUTHORIZATION rights_nobody", "SELECT * FROM secret", "ROLLBACK"),
    "a membership revoked in the transaction": ("BEGIN", "SET ROLE rights_owner", "REVOKE rights_team FROM rights_owner", "DELETE FROM given", "SET ROLE rights_team", "ROLLBACK"),
    "a table with a new owner": ("BEGIN", "ALTER TABLE secret OWNER TO rights_team", "SELECT * FROM secret", "SET ROLE rights_reader", "SELECT * FROM secret", "ROLLBACK"),
    "a prepared statement": (
        "PREPARE s AS SELECT who FROM shown ORDER BY a", "EXECUTE s", "SET ROLE rights_owner", "EXECUTE s", "SET ROLE rights_team", "EXECUTE s",
        "RESET ROLE", "EXECUTE s",
    ),
    "a cursor": ("BEGIN", "DECLARE c CURSOR FOR SELECT a FROM rls ORDER BY a", "SET ROLE rights_team", "FETCH ALL FROM c", "ROLLBACK"),
    "a cursor WITH HOLD": ("BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a", "COMMIT", "SET ROLE rights_team", "FETCH ALL FROM c", "CLOSE c"),
    "a temporary table": ("CREATE TEMP TABLE mine (a int)", "SET ROLE rights_team", "INSERT INTO mine VALUES (1)", "DROP TABLE mine", "RESET ROLE", "DROP TABLE mine"),
    "two-phase": (
        "BEGIN", "SET ROLE rights_team", "PREPARE TRANSACTION '{role}'", _WHO, "RESET ROLE", "ROLLBACK PREPARED '{role}'",
        "SET ROLE rights_team", "ROLLBACK PREPARED '{role}'",
    ),
    "settings of roles": ("SET ROLE rights_owner", "SHOW work_mem", "SET SESSION AUTHORIZATION rights_nobody", _WHO, "RESET SESSION AUTHORIZATION"),
}  # fmt: skip
"""Statements that a session of each role runs one after another. All results are compared."""

REPLICATION = (
    "IDENTIFY_SYSTEM",
    "SHOW wal_level",
    "SHOW data_directory",
    "CREATE_REPLICATION_SLOT {role} TEMPORARY LOGICAL pgoutput",
    "DROP_REPLICATION_SLOT {role}",
    "START_REPLICATION SLOT no_such_slot LOGICAL 0/0 (proto_version '1', publication_names 'p')",
    "READ_REPLICATION_SLOT no_such_slot",
    "SELECT count(*) FROM t",
    "SELECT count(*) FROM secret",
    "COPY t TO STDOUT",
    "DROP_REPLICATION_SLOT no_such_slot",
)

_GRANTS = ";".join(line.removesuffix(";") for line in FIXTURE.splitlines() if line.startswith("GRANT"))
_SCHEMAS = "public, open, shut"
_NO_GRANTS = ";".join(f"REVOKE ALL ON ALL {kind} IN SCHEMA {_SCHEMAS} FROM {{role}}" for kind in ("TABLES", "SEQUENCES"))

REVOKED = {
    "rights_super": ("ALTER ROLE {role} NOSUPERUSER", "ALTER ROLE {role} SUPERUSER"),
    "rights_owner": ("REVOKE rights_team FROM {role}; REVOKE CREATE ON DATABASE {database} FROM {role}; REVOKE CREATE ON SCHEMA public FROM {role}", _GRANTS),
    "rights_reader": (f"{_NO_GRANTS}; REVOKE rights_team FROM {{role}}; REVOKE USAGE ON SCHEMA open FROM {{role}}", _GRANTS),
    "rights_writer": (f"{_NO_GRANTS}; REVOKE USAGE, CREATE ON SCHEMA open FROM {{role}}", _GRANTS),
    "rights_maker": ("ALTER ROLE {role} NOCREATEROLE", "ALTER ROLE {role} CREATEROLE"),
    "rights_copier": ("ALTER ROLE {role} NOREPLICATION", "ALTER ROLE {role} REPLICATION"),
    "rights_heir": ("REVOKE rights_owner FROM {role}", _GRANTS),
    "rights_nobody": ("ALTER TABLE given OWNER TO {role}; REVOKE SELECT ON rls, shown, forced FROM {role}, PUBLIC",
                      "ALTER TABLE given OWNER TO rights_owner; " + _GRANTS),
}  # fmt: skip
"""For each role, the privilege that a superuser revokes while the role has a transaction open, and the statement that restores it."""

_NEWEST_LOGIN = "SET SESSION AUTHORIZATION asks whether the role that logged in is a superuser now, not whether it was at login"

DIFFERENT_AFTER_REVOKE: dict[tuple[str, str], tuple[object, str]] = {
    ("SET LOCAL SESSION AUTHORIZATION rights_owner; SELECT * FROM secret", "rights_super"): ("42501", _NEWEST_LOGIN),
    ("SET LOCAL SESSION AUTHORIZATION rights_boss", "rights_super"): ("42501", _NEWEST_LOGIN),
    ("SELECT set_config('session_authorization', 'rights_boss', true)", "rights_super"): ("42501", _NEWEST_LOGIN),
    **{
        ("SELECT grantee, role_name FROM information_schema.applicable_roles", role): (
            [],
            "after ROLLBACK TO a savepoint since which the catalog has changed, system relations show the current state",
        )
        for role in ("rights_owner", "rights_reader", "rights_heir")
    },
    ("SELECT last_value FROM q", "rights_owner"): ([(1,)], "the row of a sequence is shown as of the snapshot"),
    **{
        ("CREATE ROLE rights_new", role): (
            "42501",
            "PostgreSQL checks the first statement by the session's cached privileges, until it acquires a lock",
        )
        for role in ("rights_super", "rights_maker")
    },
}
"""The results of `REVOKED` that differ from PostgreSQL's, with the reason."""

_EARLY = "privileges on relations that are read are checked when a statement is analysed, not when it runs"

DIFFERENT: dict[tuple[str, str], tuple[object, str]] = {
    ("WITH s AS (SELECT * FROM secret) SELECT 1", ""): ("42501", _EARLY),
    ("PREPARE s AS SELECT * FROM secret", ""): ("42501", _EARLY),
    ("CREATE VIEW open.w AS SELECT * FROM secret", "rights_writer"): ("42501", _EARLY),
    ("ALTER VIEW information_schema.tables RENAME TO mine", "rights_super"): ("42501", "a node's built-in views cannot be altered"),
    ("DROP OWNED BY CURRENT_USER", "rights_reader"): ("DROP OWNED", "a role's privileges are revoked; PostgreSQL keeps them with warnings, or raises an error"),
    ("DROP OWNED BY CURRENT_USER", "rights_writer"): ("DROP OWNED", "likewise"),
}  # fmt: skip
"""The cells that are intended to differ, by statement and role ("" for all): the node's result, and the reason."""
