-- Objects that depend on functions, types and relations through functions: DROP of each, of schemas, and of the objects of a role.
\set VERBOSITY verbose
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE SCHEMA s;
CREATE FUNCTION s.plain(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN x; END $$;
CREATE FUNCTION moods(m mood, n mood[] DEFAULT NULL::mood[]) RETURNS mood LANGUAGE sql AS 'SELECT m';
CREATE FUNCTION defaulted(x int DEFAULT s.plain(3)) RETURNS int LANGUAGE sql AS 'SELECT x';
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW WHEN (s.plain(new.a) > 0) EXECUTE FUNCTION fires();
CREATE CONSTRAINT TRIGGER ctr AFTER INSERT ON t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION fires();
CREATE TRIGGER upd BEFORE UPDATE OF b ON t FOR EACH ROW EXECUTE FUNCTION fires();
CREATE VIEW v AS SELECT s.plain(a) AS p FROM t;
CREATE TABLE u (a int DEFAULT s.plain(1) CHECK (s.plain(a) > 0), g int GENERATED ALWAYS AS (s.plain(a)) STORED);
CREATE INDEX ui ON u (s.plain(a));
CREATE POLICY pol ON u USING (s.plain(a) > 0);
CREATE DOMAIN dom AS int CHECK (s.plain(VALUE) > 0);
CREATE FUNCTION of_t(r t) RETURNS int LANGUAGE sql AS 'SELECT r.a';
CREATE VIEW w AS SELECT of_t(t.*) FROM t;
CREATE PROCEDURE s.proc(m mood) LANGUAGE sql AS 'SELECT 1';
DROP FUNCTION s.plain(int);
DROP FUNCTION fires();
DROP TYPE mood;
DROP SCHEMA s;
DROP TABLE t;
DROP VIEW v, w RESTRICT;
BEGIN;
DROP SCHEMA s CASCADE;
\df
\df s.*
ROLLBACK;
BEGIN;
DROP TYPE mood CASCADE;
ROLLBACK;
BEGIN;
DROP TABLE t CASCADE;
ROLLBACK;
DROP FUNCTION fires() CASCADE;
DROP FUNCTION s.plain(int) CASCADE;
\d u
\d t
DROP TYPE mood CASCADE;
DROP TABLE t CASCADE;
\df
DROP SCHEMA s;
CREATE SCHEMA s2;
CREATE FUNCTION s2.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION s2.g() RETURNS int LANGUAGE sql AS 'SELECT 2';
DROP SCHEMA s2;
DROP SCHEMA s2 CASCADE;
CREATE ROLE :"db";
CREATE FUNCTION owned() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION owned() OWNER TO :"db";
CREATE VIEW x AS SELECT owned();
DROP ROLE :"db";
DROP OWNED BY :"db";
DROP OWNED BY :"db" CASCADE;
DROP ROLE :"db";
\df
CREATE ROLE :"db";
CREATE TABLE k (a int);
CREATE FUNCTION owned(x int) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION other() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION of_k(x k) RETURNS int LANGUAGE sql AS 'SELECT 1';
GRANT EXECUTE ON FUNCTION owned(int) TO :"db";
REVOKE EXECUTE ON FUNCTION owned(int) FROM public;
ALTER FUNCTION owned(int) OWNER TO :"db";
SELECT proacl FROM pg_proc WHERE proname = 'owned';
GRANT EXECUTE ON FUNCTION other() TO :"db";
ALTER TABLE k OWNER TO :"db";
DROP ROLE :"db";
REASSIGN OWNED BY :"db" TO postgres;
SELECT proacl, proowner::regrole FROM pg_proc WHERE proname = 'owned';
ALTER TABLE k OWNER TO :"db";
DROP OWNED BY :"db";
DROP OWNED BY :"db" CASCADE;
DROP ROLE :"db";
\df
-- CASCADE drops what depends on a function, whoever owns it.
CREATE ROLE :"db"; GRANT CREATE ON SCHEMA public TO :"db";
CREATE TABLE of_others (c int);
SET ROLE :"db";
CREATE FUNCTION used_by_others() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
RESET ROLE;
ALTER TABLE of_others ADD a int DEFAULT used_by_others() CHECK (a > used_by_others());
ALTER TABLE of_others ADD z int GENERATED ALWAYS AS (used_by_others()) STORED;
CREATE INDEX index_of_others ON of_others ((c + used_by_others()));
CREATE VIEW view_of_others AS SELECT used_by_others();
CREATE POLICY policy_of_others ON of_others USING (a = used_by_others());
CREATE DOMAIN domain_of_others AS int DEFAULT used_by_others(); ALTER TABLE of_others ADD y domain_of_others;
SET ROLE :"db";
DROP FUNCTION used_by_others() CASCADE;
DROP TABLE of_others;
RESET ROLE;
\d of_others
DROP OWNED BY :"db"; DROP ROLE :"db";
