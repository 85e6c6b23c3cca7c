-- Settings that are stored for roles and databases: the privileges to store them, and the settings of new sessions.
\set one :db _one
\set two :db _two
\set maker :db _maker
CREATE ROLE :one LOGIN;
CREATE ROLE :two LOGIN;
CREATE ROLE :maker LOGIN CREATEROLE;
ALTER ROLE :one SET statement_timeout = '2s';
ALTER ROLE :one SET search_path = public, "A b";
ALTER ROLE :one SET Work_Mem TO '8MB';
ALTER ROLE :one SET nosuch = 1;
ALTER ROLE :one SET port = 1;
ALTER ROLE :one SET statement_timeout = 'x';
ALTER ROLE :one SET my.own = 'x y';
ALTER ROLE :one IN DATABASE :db SET statement_timeout = '3s';
ALTER ROLE ALL SET lock_timeout = '5s';
ALTER DATABASE :db SET idle_in_transaction_session_timeout = '1min';
SELECT rolconfig FROM pg_roles WHERE rolname = :'one';
SELECT r.rolname, d.datname, setconfig FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid=setrole LEFT JOIN pg_database d ON d.oid=setdatabase WHERE setdatabase = 0 OR d.datname = :'db' ORDER BY 1, 2;
\c - :one
SHOW statement_timeout;
SHOW search_path;
SHOW work_mem;
SHOW lock_timeout;
SHOW idle_in_transaction_session_timeout;
SHOW my.own;
SELECT name, setting, source FROM pg_settings WHERE name IN ('statement_timeout','work_mem','lock_timeout','idle_in_transaction_session_timeout') ORDER BY 1;
SET statement_timeout = 0;
RESET statement_timeout;
SHOW statement_timeout;
ALTER ROLE :one SET work_mem = '9MB';
ALTER ROLE CURRENT_USER SET work_mem = '9MB';
ALTER ROLE :two SET work_mem = '9MB';
ALTER ROLE postgres SET work_mem = '9MB';
ALTER ROLE ALL SET work_mem = '9MB';
ALTER ROLE :one RESET work_mem;
ALTER ROLE :one RESET ALL;
ALTER DATABASE :db SET work_mem = '9MB';
ALTER ROLE :one IN DATABASE :db RESET ALL;
ALTER ROLE ALL IN DATABASE :db SET work_mem = '9MB';
\c - :maker
ALTER ROLE :two SET work_mem = '7MB';
ALTER ROLE postgres SET work_mem = '7MB';
ALTER ROLE pg_monitor SET work_mem = '7MB';
ALTER ROLE nosuch SET work_mem = '7MB';
ALTER ROLE :two IN DATABASE nosuch SET work_mem = '7MB';
SET work_mem = '11MB';
ALTER ROLE :two SET work_mem FROM CURRENT;
ALTER ROLE :two SET work_mem TO DEFAULT;
\c - postgres
SELECT r.rolname, d.datname, setconfig FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid=setrole LEFT JOIN pg_database d ON d.oid=setdatabase WHERE setdatabase = 0 OR d.datname = :'db' ORDER BY 1, 2;
ALTER ROLE :one IN DATABASE :db SET statement_timeout = '50ms';
\c - :one
SELECT pg_sleep(10);
\c - postgres
ALTER ROLE :one IN DATABASE :db RESET statement_timeout;
ALTER ROLE ALL RESET ALL;
ALTER DATABASE :db RESET ALL;
DROP ROLE :one;
DROP ROLE :two;
DROP ROLE :maker;
SELECT s.* FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = setdatabase WHERE setdatabase = 0 OR d.datname = :'db';
