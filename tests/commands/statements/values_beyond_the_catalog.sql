-- What the engine of the catalogs refuses while it runs, Spark answers: also in a transaction that has written to the catalogs.
SELECT 1e30::numeric * relnatts * 1e12::numeric FROM pg_class WHERE relname = 'pg_class';
SELECT (relname || repeat('z', 80))::name FROM pg_class WHERE relname = 'pg_class';
BEGIN;
CREATE TABLE written (a int);
SELECT relname::text || repeat('y', 100)::name FROM pg_class WHERE relname = 'written';
INSERT INTO written VALUES (1);
SELECT 1e30::numeric * relnatts * 1e12::numeric FROM pg_class WHERE relname = 'written';
SELECT * FROM written;
COMMIT;
SELECT relname, relnatts FROM pg_class WHERE relname = 'written';
