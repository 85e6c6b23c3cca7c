-- lengths and precisions of variables, fields and elements
DO $$ declare x varchar(3); y text := 'abcd'; begin x := y; raise notice '%', x; end $$;
DO $$ declare x numeric(4,2); begin x := 1.239; raise notice '%', x; end $$;
DO $$ declare x numeric(4,2) := 1.239; begin raise notice '%', x; end $$;
DO $$ declare x char(3) := 'a'; begin raise notice '[%]', x; end $$;
DO $$ declare x varchar(3)[]; y text := 'abcd'; begin x[1] := 'abc '::text; raise notice '%', x; x[2] := y; end $$;
DO $$ declare x numeric(4,2)[]; begin x[1] := 1.239; raise notice '%', x; x := array[1.239]; raise notice '%', x; end $$;
CREATE TYPE short AS (n numeric(4,2), v varchar(3)); CREATE TABLE lengths (id int PRIMARY KEY, v varchar(3), c char(3), n numeric(4,2));
DO $$ declare x short; y text := 'abcd'; begin x.n := 1.239; raise notice '%', x; x.v := y; end $$;
DO $$ declare x lengths; y text := 'abcd'; begin x.c := 'a'; x.n := 1.239; raise notice '%', x; x.v := y; end $$;
DO $$ declare x lengths%ROWTYPE; y text := 'abc   '; v lengths.v%TYPE; begin v := y; raise notice '[%]', v; SELECT 1, y, 'b', 1.239 INTO x; raise notice '%', x; end $$;
CREATE FUNCTION shorten() RETURNS trigger LANGUAGE plpgsql AS $$ declare y text := 'abcd'; begin if new.id = 2 then new.v := y; end if; new.c := 'z'; new.n := 1.239; return new; end $$;
CREATE TRIGGER shorten BEFORE INSERT ON lengths FOR EACH ROW EXECUTE FUNCTION shorten();
INSERT INTO lengths VALUES (1, 'a', 'b', 2); INSERT INTO lengths VALUES (2, 'a', 'b', 2); INSERT INTO lengths SELECT i, 'c', 'd', 3 FROM generate_series(3, 9) i; SELECT id, v, c || '|', n FROM lengths ORDER BY id;
