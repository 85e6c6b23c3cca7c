-- LISTEN, NOTIFY, UNLISTEN in one session. Run on both servers by test_notifications.py.
\set VERBOSITY sqlstate
LISTEN a; NOTIFY a; NOTIFY a, 'x'; SELECT pg_notify('a','y'); SELECT pg_notify('b','z'); NOTIFY "A b", 'q'; LISTEN "A b"; NOTIFY "A b", 'q2';
SELECT * FROM pg_listening_channels() ORDER BY 1;
BEGIN; NOTIFY a,'1'; NOTIFY a,'1'; NOTIFY a,'2'; SAVEPOINT s; NOTIFY a,'3'; ROLLBACK TO s; NOTIFY a,'4'; SELECT 1; COMMIT;
BEGIN; NOTIFY a,'5'; ROLLBACK; SELECT 1;
BEGIN; LISTEN c; SELECT * FROM pg_listening_channels() ORDER BY 1; ROLLBACK; SELECT * FROM pg_listening_channels() ORDER BY 1;
BEGIN; LISTEN c; NOTIFY c,'in'; COMMIT; UNLISTEN c; NOTIFY c; UNLISTEN nosuch; UNLISTEN *; NOTIFY a; SELECT count(*) FROM pg_listening_channels();
SELECT pg_notify('',''), 1; SELECT pg_notify(null,'x'); LISTEN a; SELECT pg_notify('a',null); SELECT pg_notify(repeat('x',64),''); SELECT length(pg_notify('a',repeat('x',7999))::text); SELECT pg_notify('a',repeat('x',8000));
SELECT pg_notification_queue_usage();
BEGIN; NOTIFY a; PREPARE TRANSACTION 'nn'; ROLLBACK; BEGIN READ ONLY; NOTIFY a,'ro'; COMMIT;
NOTIFY a,'m1'\; NOTIFY a,'m2'\; SELECT 1; NOTIFY a,'m3'\; SELECT 1/0; SELECT 1;
DISCARD ALL; NOTIFY a; SELECT * FROM pg_listening_channels();
