-- oids of constants and variables as the names of objects
DO $$ DECLARE r text; o oid := 1259; BEGIN r := o::regclass; RAISE NOTICE '%', r; END $$;
DO $$ DECLARE r text; o oid := 1259; BEGIN RAISE NOTICE '%', o::regclass; END $$;
DO $$ DECLARE r text; o oid := 1259; BEGIN r := o::regclass::text; RAISE NOTICE '%', r; END $$;
DO $$ DECLARE r regclass; o oid := 1259; BEGIN r := o; RAISE NOTICE '%', r; r := 'pg_type'; RAISE NOTICE '%', r; END $$;
CREATE TABLE t (a int, o oid);
CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% %', TG_RELID::regclass, TG_RELID::regclass::text = 't'; EXECUTE format('SELECT count(*) FROM %s', TG_RELID::regclass); RETURN NEW; END $$;
CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tr();
INSERT INTO t VALUES (1, 1259);
SELECT a, 1259::regclass, '1259'::oid::regclass::text FROM t;
SELECT a, 23::oid::regtype FROM t WHERE 23::regtype = 'int4'::regtype;
DO $$ DECLARE n oid; BEGIN RAISE NOTICE '%', n::regclass; n := 99999999; RAISE NOTICE '%', n::regclass; END $$;
