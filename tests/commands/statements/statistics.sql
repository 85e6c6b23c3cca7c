-- The statements of other sessions are shown to members of pg_read_all_stats, and to members of the session's role.
\set plain :db _plain
\set stats :db _stats
\set monitor :db _monitor
CREATE ROLE :plain;
CREATE ROLE :stats;
CREATE ROLE :monitor;
GRANT pg_read_all_stats TO :stats;
GRANT pg_monitor TO :monitor;
SELECT query LIKE 'SELECT query%', backend_start IS NOT NULL, state FROM pg_stat_activity WHERE pid = pg_backend_pid();
SET ROLE :plain;
SELECT query, backend_start, xact_start, state, wait_event, usename, application_name FROM pg_stat_activity WHERE pid = pg_backend_pid();
SET ROLE :stats;
SELECT query LIKE 'SELECT query%', backend_start IS NOT NULL, state FROM pg_stat_activity WHERE pid = pg_backend_pid();
SET ROLE :monitor;
SELECT query LIKE 'SELECT query%', backend_start IS NOT NULL, state FROM pg_stat_activity WHERE pid = pg_backend_pid();
RESET ROLE;
GRANT postgres TO :plain;
SET ROLE :plain;
SELECT query LIKE 'SELECT query%', backend_start IS NOT NULL, state FROM pg_stat_activity WHERE pid = pg_backend_pid();
RESET ROLE;
REVOKE postgres FROM :plain;
DROP ROLE :plain;
DROP ROLE :stats;
DROP ROLE :monitor;
