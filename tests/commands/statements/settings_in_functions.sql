-- Settings, the role, cursors and locks that a function changes, and their end with an EXCEPTION block or a SET clause.
\set low :db _low
CREATE ROLE :low;
CREATE TABLE secret (a int);
INSERT INTO secret VALUES (1);
GRANT CREATE ON SCHEMA public TO :low;
SET my.g = 'start';
DO $$ BEGIN BEGIN SET my.g = 'x'; SET LOCAL work_mem = '11MB'; RAISE EXCEPTION 'a'; EXCEPTION WHEN OTHERS THEN NULL; END; RAISE NOTICE '% %', current_setting('my.g'), current_setting('work_mem'); END $$;
DO $$ BEGIN BEGIN PERFORM set_config('my.g', 'x', false), set_config('search_path', 'pg_catalog', true); RAISE EXCEPTION 'a'; EXCEPTION WHEN OTHERS THEN NULL; END; RAISE NOTICE '% %', current_setting('my.g'), current_setting('my.l', true), current_setting('search_path'); END $$;
SELECT format('DO $f$ BEGIN BEGIN SET ROLE %I; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END; RAISE NOTICE ''%%'', current_user = session_user; END $f$', :'low') \gexec
DO $$ BEGIN BEGIN PERFORM set_config('my.g', 'x', false); EXCEPTION WHEN OTHERS THEN NULL; END; RAISE NOTICE '%', current_setting('my.g'); END $$;
DO $$ BEGIN BEGIN SET TRANSACTION READ ONLY; EXCEPTION WHEN OTHERS THEN NULL; END; INSERT INTO secret VALUES (2); END $$;
CREATE FUNCTION locks() RETURNS SETOF oid LANGUAGE plpgsql AS $$ BEGIN
BEGIN PERFORM pg_advisory_xact_lock(5); PERFORM pg_advisory_lock(6); PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END;
RETURN QUERY SELECT objid FROM pg_locks WHERE locktype = 'advisory'; END $$;
SELECT * FROM locks();
SELECT pg_advisory_unlock_all();
DO $$ DECLARE c CURSOR FOR SELECT 1; BEGIN FOR i IN 1..2 LOOP BEGIN OPEN c; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', SQLERRM; END; END LOOP; BEGIN OPEN c; EXCEPTION WHEN OTHERS THEN NULL; END; CLOSE c; END $$;
-- The user of a SECURITY DEFINER function stays after calls of functions with SET, and after errors.
CREATE FUNCTION sets() RETURNS name LANGUAGE plpgsql SET work_mem = '7MB' AS $$ BEGIN RETURN current_user; END $$;
SET ROLE :low;
CREATE FUNCTION definer() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN PERFORM sets(); BEGIN PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN (SELECT a FROM secret WHERE a = 1); END $$;
RESET ROLE;
SELECT definer();
ALTER FUNCTION definer() OWNER TO CURRENT_USER;
GRANT EXECUTE ON FUNCTION definer() TO :low;
SET ROLE :low;
SELECT definer(), current_user = :'low';
SELECT a FROM secret;
RESET ROLE;
CREATE FUNCTION chooses() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN SET ROLE pg_monitor; END $$;
SELECT chooses();
CREATE FUNCTION replicates() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET session_replication_role = replica AS $$ BEGIN SET log_min_messages = 'error'; RETURN current_setting('session_replication_role'); END $$;
CREATE FUNCTION acts() RETURNS name LANGUAGE plpgsql SET role = pg_monitor AS $$ BEGIN RETURN current_user; END $$;
SELECT acts(), current_user = session_user;
SET ROLE :low;
SELECT replicates();
SELECT current_user = :'low', current_setting('session_replication_role');
RESET ROLE;
-- SET in a function stays in force, also if the function has a SET clause. SET LOCAL of the same setting ends with the function.
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere.w (a int);
INSERT INTO elsewhere.w VALUES (42);
CREATE FUNCTION searches() RETURNS void LANGUAGE plpgsql AS $$ BEGIN SET search_path = elsewhere, public; END $$;
SELECT searches();
SELECT a FROM w;
RESET search_path;
CREATE FUNCTION sets_both() RETURNS text LANGUAGE plpgsql SET my.q = 'a' SET my.l = 'a' SET search_path = public AS $$ BEGIN SET my.q = 'b'; SET my.r = 'kept'; SET LOCAL my.g = 'local'; SET LOCAL my.l = 'ends'; PERFORM searches(); RETURN current_setting('my.q') || (SELECT a FROM w); END $$;
SELECT sets_both(), current_setting('my.q'), current_setting('my.r'), current_setting('my.g'), current_setting('search_path');
BEGIN;
SAVEPOINT s;
SET my.q = 'c';
SELECT sets_both();
ROLLBACK TO s;
SHOW my.q;
COMMIT;
CREATE FUNCTION makes() RETURNS void LANGUAGE plpgsql SET search_path = public AS $$ BEGIN CREATE TEMP TABLE made (a int); INSERT INTO made VALUES (7); END $$;
CREATE FUNCTION reads() RETURNS int LANGUAGE plpgsql SET search_path = public AS $$ BEGIN RETURN (SELECT a FROM made); END $$;
BEGIN;
SELECT makes();
SELECT * FROM made;
COMMIT;
SELECT reads();
DROP OWNED BY :low;
DROP ROLE :low;
