-- Types and functions in a schema, used by expressions of two schemas.
CREATE SCHEMA app;
CREATE SCHEMA other;
SET search_path = app, public;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'Happy one');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int DEFAULT 3 CHECK (VALUE > 0);
CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i * 2';
CREATE FUNCTION "Odd Name"(i int, j int DEFAULT 4) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + j';
CREATE FUNCTION label(m mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN m::text; END $$;
CREATE FUNCTION several(VARIADIC i int[]) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i[1]';
CREATE DOMAIN evenint AS posint DEFAULT twice(1) CHECK (twice(VALUE) > 3);
CREATE DOMAIN moody AS text CHECK (VALUE = 'sad'::mood::text);
CREATE FUNCTION with_defaults(
  p mood DEFAULT 'ok', q int DEFAULT twice(3), r posint DEFAULT 5, s int[] DEFAULT '{1}', t text DEFAULT 'x' || 'y'
) RETURNS mood LANGUAGE sql AS 'SELECT p';
CREATE FUNCTION outputs(p mood, OUT q pair, OUT r app.posint) LANGUAGE sql AS 'SELECT ROW(1,NULL)::app.pair, 2::app.posint';
CREATE FUNCTION sets(m mood[]) RETURNS SETOF mood LANGUAGE sql AS 'SELECT unnest(m)';
CREATE FUNCTION columns() RETURNS TABLE (m mood, n int) LANGUAGE sql AS $$ SELECT 'ok'::app.mood, 1 $$;
CREATE PROCEDURE acts(m mood DEFAULT 'ok', INOUT n posint DEFAULT 1) LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TABLE t (
  id int PRIMARY KEY,
  m mood DEFAULT 'ok' CHECK (m <> 'Happy one'),
  ms mood[] DEFAULT '{sad,ok}',
  d posint DEFAULT twice(2),
  e evenint,
  p pair DEFAULT ROW(1, 'x')::pair,
  g int GENERATED ALWAYS AS (twice(id)) STORED,
  h text GENERATED ALWAYS AS (label(m)) STORED,
  f int DEFAULT "Odd Name"(1),
  n int DEFAULT "Odd Name"(j => 2, i => several(1, 2)),
  CONSTRAINT c1 CHECK (twice(d) > 1 AND m IN ('sad', 'ok')),
  CONSTRAINT c2 CHECK ((p).a > 0)
);
CREATE INDEX t_expr ON t (twice(id), lower(label(m)));
CREATE INDEX t_pred ON t (id) WHERE m = 'sad' AND twice(id) > 3;
CREATE UNIQUE INDEX t_u ON t ((id + twice(id)));
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY pol ON t USING (m = 'sad' AND twice(id) > 2) WITH CHECK (label(m) <> 'x');
CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.m <> NEW.m AND twice(NEW.id) > 1) EXECUTE FUNCTION fires();
CREATE TABLE other.t (id int PRIMARY KEY DEFAULT app.twice(7), m app.mood DEFAULT 'sad', d app.posint, CHECK (app.twice(id) > 1));
CREATE TABLE other.part (m app.mood, i app.posint, x int DEFAULT app.twice(1)) PARTITION BY LIST (m);
CREATE TABLE other.part_a PARTITION OF other.part FOR VALUES IN ('sad');
CREATE TABLE other.part_b PARTITION OF other.part FOR VALUES IN ('ok', 'Happy one');
CREATE TABLE other.rng (i int, m app.mood) PARTITION BY RANGE (m, i);
CREATE TABLE other.rng_a PARTITION OF other.rng FOR VALUES FROM ('sad', 1) TO ('ok', MAXVALUE);
CREATE TABLE other.lk (LIKE app.t INCLUDING ALL);
CREATE VIEW other.v AS SELECT app.twice(t.id) AS a, m, label(m) AS l FROM app.t WHERE m = 'sad';
CREATE VIEW w AS SELECT v.a, x.id, 'other.t'::regclass AS c FROM other.v JOIN other.t x ON x.m = v.m AND x.m IN ('sad', 'ok');
CREATE TABLE numbered (id serial, j int DEFAULT app.twice(3));
CREATE TABLE parent (a int PRIMARY KEY, b text DEFAULT 'b' NOT NULL, CONSTRAINT pos CHECK (a > 0), CONSTRAINT own CHECK (b <> '') NO INHERIT);
CREATE TABLE second_parent (a int, z date, g int GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE child (c int, a int, CONSTRAINT pos CHECK (a > 0)) INHERITS (parent, second_parent);
CREATE TABLE grandchild (b text DEFAULT 'other') INHERITS (child);
CREATE TABLE late_child (a int NOT NULL, b text NOT NULL, d int, CONSTRAINT pos CHECK (a > 0));
ALTER TABLE late_child INHERIT parent;
ALTER TABLE ONLY second_parent DROP COLUMN z;
INSERT INTO parent VALUES (1);
INSERT INTO grandchild (a) VALUES (3);
CREATE VIEW rows_of_all AS SELECT a FROM parent;
CREATE VIEW own_rows AS SELECT a FROM ONLY parent;
RESET search_path;
