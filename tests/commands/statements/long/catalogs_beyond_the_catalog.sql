-- Queries on system relations that the engine of the catalogs does not support are run by Spark.
CREATE TABLE beyond (id int PRIMARY KEY, note text);
SELECT count(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname = 'beyond' AND a.attname ~ ('^' || left(c.relname, 0) || 'no') AND a.attnum > 0;
SELECT c.relname FROM pg_class c WHERE c.relname ~ ('^' || 'beyond' || '(_|$)') ORDER BY 1;
SELECT count(*) FROM pg_replication_origin o LEFT JOIN pg_subscription s ON roname ~ ('^pg_' || s.oid || '(_|$)') WHERE s.oid IS NULL AND roname ~ '^pg_';
PREPARE beyond (text) AS SELECT relname FROM pg_class WHERE relname ~ ('^' || $1 || '$');
EXECUTE beyond ('beyond');
DROP TABLE beyond;
