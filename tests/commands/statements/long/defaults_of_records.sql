-- defaults of variables of row types
CREATE TYPE c AS (n numeric(4,1), s varchar(3), i int);
CREATE TABLE t (a int, v text);
INSERT INTO t VALUES (1, 'one');
DO $$ DECLARE x c := (1,'a', 2); y c := ROW(2.26, 'b', 3); z c DEFAULT (SELECT ROW(3, 'c', 4)::c); w t%ROWTYPE = (SELECT t FROM t WHERE a = 1); r record := ROW(1, 'x'); q record NOT NULL := ROW(5); BEGIN RAISE NOTICE '% % % % % %', x, y, z, w, r, q; END $$;
DO $$ DECLARE x record := 5; BEGIN END $$;
DO $$ DECLARE x c := '(1,ab,3)'; BEGIN RAISE NOTICE '%', x; END $$;
DO $$ DECLARE x c := (1, 'abcd', 3); BEGIN END $$;
DO $$ DECLARE x CONSTANT c := (1, 'b', 3); i int = 3; j CONSTANT int := i + 1; k varchar(3) COLLATE "C" NOT NULL DEFAULT 'a' || 'b'; BEGIN RAISE NOTICE '% % %', x, j, k; END $$;
DO $$ DECLARE a int[] := ARRAY[1,2]; b numeric(4, 2) := 1.239; l int := CASE WHEN a[1] = 1 THEN 5 ELSE 6 END; f text := format('%s;%s', 1, 2); BEGIN RAISE NOTICE '% % % %', a, b, l, f; END $$;
CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE o t := OLD; n t := NEW; r record := NEW; BEGIN RAISE NOTICE '% % %', o, n, r; RETURN n; END $$;
CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION tr();
UPDATE t SET a = 100 WHERE a = 1;
