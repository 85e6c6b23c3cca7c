-- Publications of tables with children: the present children are members with the filter and the column list, unless ONLY is written.
CREATE TABLE parent (a int PRIMARY KEY, b text);
CREATE TABLE child (c int, b text, a int) INHERITS (parent);
CREATE TABLE grandchild (PRIMARY KEY (a)) INHERITS (child);
CREATE PUBLICATION plain FOR TABLE parent;
CREATE PUBLICATION alone FOR TABLE ONLY parent;
CREATE PUBLICATION lists FOR TABLE parent (a) WHERE (a > 5);
\dRp+ plain
\dRp+ alone
\dRp+ lists
SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables ORDER BY 1, 2;
\d child
CREATE TABLE later () INHERITS (parent);
ALTER PUBLICATION plain ADD TABLE parent;
ALTER PUBLICATION plain ADD TABLE later;
ALTER PUBLICATION plain DROP TABLE ONLY child;
ALTER PUBLICATION plain DROP TABLE child;
ALTER PUBLICATION plain DROP TABLE parent;
ALTER PUBLICATION plain SET TABLE parent (a, b);
ALTER PUBLICATION alone SET TABLE parent *, ONLY child;
ALTER PUBLICATION lists ADD TABLE child;
ALTER PUBLICATION lists SET TABLE ONLY parent WHERE (a > 1), child WHERE (c > 1);
SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables ORDER BY 1, 2;
CREATE PUBLICATION twice FOR TABLE parent, child;
CREATE PUBLICATION twice2 FOR TABLE parent WHERE (a > 1), child;
CREATE PUBLICATION twice2 FOR TABLE child, parent WHERE (a > 1);
CREATE PUBLICATION twice2 FOR TABLE child (a), parent;
CREATE PUBLICATION twice3 FOR TABLE parent, parent;
CREATE PUBLICATION via FOR TABLE parent WITH (publish_via_partition_root);
CREATE PUBLICATION whole FOR ALL TABLES;
CREATE PUBLICATION schema FOR TABLES IN SCHEMA public;
SELECT pubname, tablename FROM pg_publication_tables WHERE pubname IN ('twice', 'twice3', 'via', 'whole', 'schema') ORDER BY 1, 2;
SELECT relid, pg_relation_is_publishable(relid) FROM pg_partition_tree('parent');
SELECT * FROM pg_partition_ancestors('child');
SELECT pg_partition_root('child');
ALTER TABLE child REPLICA IDENTITY NOTHING;
UPDATE parent SET b = 'x';
UPDATE ONLY parent SET b = 'x';
UPDATE child SET b = 'x';
DELETE FROM parent;
ALTER TABLE child REPLICA IDENTITY DEFAULT;
UPDATE parent SET b = 'x';
ALTER TABLE parent DROP COLUMN b;
ALTER TABLE parent DROP COLUMN b CASCADE;
SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables WHERE pubname IN ('plain', 'lists') ORDER BY 1, 2;
ALTER TABLE parent RENAME a TO aa;
SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables WHERE pubname IN ('plain', 'lists') ORDER BY 1, 2;
DROP TABLE parent CASCADE;
SELECT pubname, tablename FROM pg_publication_tables ORDER BY 1, 2;
CREATE TABLE many (a int, b int, g int GENERATED ALWAYS AS (b) STORED);
CREATE TABLE many1 () INHERITS (many);
CREATE TABLE many2 () INHERITS (many);
CREATE TABLE many3 () INHERITS (many1, many2);
CREATE VIEW seen AS SELECT b FROM many;
CREATE VIEW seen1 AS SELECT b FROM many1;
CREATE VIEW seen3 AS SELECT b FROM many3;
ALTER TABLE many DROP COLUMN b;
ALTER TABLE many DROP COLUMN b CASCADE;
SELECT * FROM many;
