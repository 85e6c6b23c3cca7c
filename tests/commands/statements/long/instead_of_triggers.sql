\set VERBOSITY default
CREATE TABLE city (id int PRIMARY KEY, name text, people bigint);
CREATE TABLE country (code text PRIMARY KEY, capital int);
INSERT INTO city VALUES (1, 'Bern', 133), (2, 'Wien', 1900), (3, 'Graz', 290);
INSERT INTO country VALUES ('CH', 1), ('AT', 2);
CREATE VIEW seat AS SELECT c.id, c.name, c.people, k.code FROM city c LEFT JOIN country k ON k.capital = c.id;
CREATE FUNCTION write_seat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE NOTICE '% % %', TG_WHEN, TG_LEVEL, TG_OP;
    IF TG_OP = 'DELETE' THEN
        IF OLD.code IS NOT NULL THEN RETURN NULL; END IF;
        DELETE FROM city WHERE id = OLD.id; RETURN OLD;
    ELSIF TG_OP = 'UPDATE' THEN
        NEW.name := upper(NEW.name);
        UPDATE city SET name = NEW.name, people = NEW.people WHERE id = OLD.id;
        IF NOT FOUND OR NEW.people < 0 THEN RETURN NULL; END IF;
        RETURN NEW;
    END IF;
    INSERT INTO city VALUES (NEW.id, NEW.name, NEW.people); RETURN NEW;
END $$;
CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % % %', TG_NAME, TG_WHEN, TG_LEVEL, TG_OP; RETURN NULL; END $$;
UPDATE seat SET people = 1;
DELETE FROM seat;
CREATE TRIGGER rows INSTEAD OF INSERT OR UPDATE OR DELETE ON seat FOR EACH ROW EXECUTE FUNCTION write_seat();
UPDATE seat SET nope = 1;
UPDATE seat SET people = 'x';
CREATE TRIGGER before BEFORE UPDATE OR DELETE ON seat EXECUTE FUNCTION say();
CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON seat FOR EACH STATEMENT EXECUTE FUNCTION say();
INSERT INTO seat VALUES (4, 'Linz', 210);
UPDATE seat SET people = people + 1 WHERE code = 'AT';
UPDATE seat SET people = people * 2, name = name || '!' WHERE id < 3 RETURNING id, name, people, code;
UPDATE seat s SET people = -v.n FROM (VALUES (3, 7), (4, -8)) AS v (k, n) WHERE s.id = v.k RETURNING s.id, s.people, v.n;
UPDATE seat SET people = 0 WHERE false;
UPDATE seat SET id = DEFAULT, people = 5 WHERE id = 4 RETURNING *;
DELETE FROM seat WHERE id IN (1, 3) RETURNING *;
DELETE FROM seat USING country WHERE country.code = seat.code;
DELETE FROM seat WHERE id = (SELECT max(id) FROM city);
WITH gone AS (UPDATE seat SET people = 77 WHERE id = 2 RETURNING people) SELECT * FROM gone;
SELECT * FROM city ORDER BY id;
SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgname;
\d seat
PREPARE p (int) AS UPDATE seat SET people = $1 WHERE id = 1 RETURNING id, people;
EXECUTE p (42);
CREATE ROLE viewer_DB;
SET ROLE viewer_DB;
UPDATE seat SET people = 1;
DELETE FROM seat;
RESET ROLE;
DROP ROLE viewer_DB;
DROP TRIGGER rows ON seat;
DELETE FROM seat;
CREATE TRIGGER x INSTEAD OF UPDATE OF people ON seat FOR EACH ROW EXECUTE FUNCTION say();
CREATE TRIGGER x INSTEAD OF UPDATE ON seat FOR EACH ROW WHEN (NEW.people > 1) EXECUTE FUNCTION say();
CREATE TRIGGER x INSTEAD OF UPDATE ON seat EXECUTE FUNCTION say();
CREATE TRIGGER x BEFORE UPDATE ON seat FOR EACH ROW EXECUTE FUNCTION say();
CREATE TRIGGER x AFTER TRUNCATE ON seat EXECUTE FUNCTION say();
CREATE TRIGGER x AFTER UPDATE ON seat REFERENCING OLD TABLE AS o EXECUTE FUNCTION say();
