-- The WHERE of a subquery in FROM, of a WITH query and of a view is evaluated before the query around it. The patterns need Python on a node, the divisions do not.
CREATE TABLE words (id int PRIMARY KEY, v text);
INSERT INTO words SELECT i, repeat('x', i % 5) FROM generate_series(1, 40) i;
SELECT count(*), sum(length(v)) FROM (SELECT * FROM words WHERE v !~ '^(x)\1$') s WHERE 12 / (length(v) - 2) > 5;
SELECT count(*) FROM (SELECT id, v FROM words WHERE v !~ '^(x)\1$') s JOIN generate_series(1, 20) g ON g = s.id WHERE 12 / (length(v) - 2) > 5;
WITH others AS (SELECT v FROM words WHERE v !~ '^(x)\1$') SELECT max(v), min(v) FROM others WHERE 12 / (length(v) - 2) <> 0;
CREATE VIEW others AS SELECT id, v FROM words WHERE v !~ '^(x)\1$';
SELECT id FROM others WHERE 12 / (length(v) - 2) > 6 ORDER BY id;
SELECT id FROM words WHERE EXISTS (SELECT 1 FROM others n WHERE n.id = words.id AND 12 / (length(n.v) - 2) < 0) ORDER BY id;
SELECT id, (SELECT count(*) FROM (SELECT v FROM words w WHERE length(v) <> 2 AND w.id < n.id) s WHERE 12 / (length(v) - 2) > 5) FROM others n WHERE id < 9 ORDER BY id;
DELETE FROM words WHERE id IN (SELECT id FROM others WHERE 12 / (length(v) - 2) > 6);
UPDATE words SET v = v || '!' WHERE id IN (SELECT id FROM (SELECT * FROM words WHERE v !~ '^(x)\1$') s WHERE 12 / (length(v) - 2) < -6);
SELECT * FROM words WHERE id < 6 OR id > 35 ORDER BY id;
DROP TABLE words CASCADE;
