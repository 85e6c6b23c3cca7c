-- Tables that inherit: their rows are rows of the parent too, and ONLY leaves them out.
CREATE TABLE parent (a int, b text DEFAULT 'b', CHECK (a > 0));
CREATE TABLE child (c int, a int) INHERITS (parent);
\d child
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (2, 'two', 22), (3, 'three', 33);
INSERT INTO child (a) VALUES (0);
SELECT a, b, tableoid::regclass FROM parent ORDER BY a;
SELECT a, b FROM ONLY parent;
UPDATE parent SET b = b || '!' WHERE a < 3 RETURNING a, b, tableoid::regclass;
DELETE FROM parent WHERE a = 3;
SELECT * FROM child;
COPY parent TO STDOUT;
TRUNCATE ONLY parent;
SELECT * FROM parent;
DROP TABLE parent;
DROP TABLE parent, child;
