-- Settings that only members of pg_read_all_settings see, and ALTER SYSTEM's values.
\set plain :db _plain
\set reader :db _reader
\set monitor :db _monitor
CREATE ROLE :plain;
CREATE ROLE :reader;
CREATE ROLE :monitor;
GRANT pg_read_all_settings TO :reader;
GRANT pg_monitor TO :monitor;
SET ROLE :plain;
SHOW hba_file;
SHOW Data_Directory;
SELECT current_setting('config_file');
SELECT current_setting('config_file', true);
SHOW unix_socket_directories;
SELECT count(*) FROM pg_settings WHERE name IN ('config_file', 'data_directory', 'hba_file', 'ident_file', 'external_pid_file', 'unix_socket_directories',
  'log_directory', 'log_filename', 'dynamic_library_path', 'session_preload_libraries', 'shared_preload_libraries', 'ssl_passphrase_command',
  'krb_server_keyfile', 'primary_conninfo', 'port', 'work_mem');
SELECT name FROM pg_settings WHERE name IN ('config_file', 'data_directory', 'hba_file', 'ident_file', 'external_pid_file', 'unix_socket_directories',
  'log_directory', 'log_filename', 'dynamic_library_path', 'session_preload_libraries', 'shared_preload_libraries', 'port', 'work_mem') ORDER BY 1;
SELECT count(sourcefile), count(sourceline) FROM pg_settings;
SELECT current_setting('hba_file') FROM pg_class WHERE relname = 'pg_class';
SELECT setting FROM pg_settings WHERE name = 'hba_file';
RESET ROLE;
SET ROLE :reader;
SELECT current_setting('hba_file') IS NOT NULL, current_setting('data_directory') IS NOT NULL;
SELECT count(*) FROM pg_settings WHERE name IN ('config_file', 'data_directory', 'hba_file');
SELECT count(sourcefile) > 0 FROM pg_settings;
RESET ROLE;
SET ROLE :monitor;
SELECT current_setting('hba_file') IS NOT NULL, current_setting('data_directory') IS NOT NULL;
SELECT count(*) FROM pg_settings WHERE name IN ('config_file', 'data_directory', 'hba_file');
RESET ROLE;
ALTER SYSTEM SET application_name = E'a\nb';
ALTER SYSTEM SET search_path = E'a\n', b;
ALTER SYSTEM SET work_mem = E'4MB\n';

ALTER SYSTEM SET application_name = E'a\tb''c\\d';
ALTER SYSTEM RESET application_name;
DROP ROLE :plain;
DROP ROLE :reader;
DROP ROLE :monitor;
-- A custom setting that has been set is empty after its value ends.
SHOW my.x;
BEGIN; SET LOCAL my.x = 'a'; SHOW my.x; COMMIT; SHOW my.x; SELECT current_setting('my.x', true) IS NULL, current_setting('my.x') = '';
BEGIN; SET my.y = 'a'; ROLLBACK; SHOW my.y; SELECT name, setting, source FROM pg_settings WHERE name LIKE 'my.%' ORDER BY 1;
SET my.z = 'q'; RESET my.z; SHOW my.z;
SET "My.Q" = 'q'; SHOW my.q;
SELECT set_config('my.w', 'v', true); SHOW my.w;
RESET ALL; SHOW my.z;
DISCARD ALL; SHOW my.z;
SELECT current_setting('my.never', true) IS NULL; SHOW my.never;
BEGIN; SAVEPOINT a; SET my.s = 's'; ROLLBACK TO a; SHOW my.s; COMMIT;
SET my.shown = 'q'; SELECT name, setting FROM pg_settings WHERE name LIKE 'my.%';
SELECT current_setting('my.x', true) = '';
BEGIN; SET LOCAL my.late = 'a'; SELECT 1/0; ROLLBACK; SELECT current_setting('my.late');
