\set VERBOSITY default
CREATE TABLE many (id int PRIMARY KEY, v text, n int, at timestamptz, parity text GENERATED ALWAYS AS (v || '!') STORED);
CREATE TABLE many_log (n serial, op text, id int, v text, by_default int DEFAULT 7);
CREATE FUNCTION of_many() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE half int := NEW.id / 2; word text DEFAULT 'odd';
BEGIN
    IF NEW.id % 5 = 0 THEN RETURN NULL; END IF;
    IF half * 2 = NEW.id THEN word := 'even'; NEW.n := 100 / NEW.id; ELSIF NEW.id = 3 THEN NEW.v := NULL; END IF;
    NEW.v := upper(NEW.v) || ' ' || word;
    IF TG_OP = 'UPDATE' AND OLD.n IS NOT NULL THEN NEW.n := OLD.n + 1; END IF;
    NEW.at := '2020-01-01';
    RETURN NEW;
END $$;
CREATE FUNCTION log_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN INSERT INTO many_log (op, id, v) VALUES (TG_OP, OLD.id, OLD.v); RETURN OLD;
    ELSIF NEW.n > 20 THEN INSERT INTO many_log (op, id, v, by_default) VALUES ('large', NEW.id, NEW.v, DEFAULT);
    ELSE INSERT INTO many_log (op, id, v, by_default) SELECT TG_OP, NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.v END, NEW.n; END IF;
    IF NOT FOUND THEN RAISE EXCEPTION 'nothing was inserted'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER a BEFORE INSERT OR UPDATE ON many FOR EACH ROW WHEN (NEW.id <> 7) EXECUTE FUNCTION of_many();
CREATE TRIGGER b AFTER INSERT OR UPDATE OR DELETE ON many FOR EACH ROW EXECUTE FUNCTION log_many();
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(1, 24) g;
UPDATE many SET n = n + 1 WHERE id > 2;
SELECT * FROM many ORDER BY id;
DELETE FROM many WHERE id > 12;
SELECT * FROM many_log ORDER BY n;
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(-12, 0) g ORDER BY g;
ALTER TABLE many_log DROP COLUMN n;
ALTER TABLE many_log ADD CHECK (id < 108);
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(101, 112) g;
SELECT max(id), count(*) FROM many;
CREATE FUNCTION zero() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 1 / (NEW.id - 205); RETURN NEW; END $$;
CREATE TRIGGER z BEFORE INSERT ON many FOR EACH ROW EXECUTE FUNCTION zero();
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(206, 216) g;
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(191, 208) g WHERE g % 5 > 0 OR g = 205;
DROP TRIGGER a ON many;
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(191, 208) g;
CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 309 THEN RAISE NOTICE 'row %', NEW.id; END IF; RETURN NEW; END $$;
CREATE TRIGGER l BEFORE INSERT ON many FOR EACH ROW EXECUTE FUNCTION loud();
ALTER TABLE many_log DROP CONSTRAINT many_log_id_check;
INSERT INTO many (id, v) SELECT g, 'v' || g FROM generate_series(300, 310) g;
SELECT id, v, n FROM many WHERE id > 200 ORDER BY id;
SELECT op, id, v, by_default FROM many_log WHERE id > 200 ORDER BY id;
DROP TABLE many, many_log;
