-- The texts 'now' and 'today' stand for the start of the transaction.
CREATE TABLE moments (d timestamp(2), t timestamptz);
BEGIN;
INSERT INTO moments VALUES ('now', 'now');
INSERT INTO moments VALUES ('now', now());
INSERT INTO moments SELECT 'now', 'now';
COPY moments FROM stdin;
now	now
\.
SELECT count(DISTINCT d), count(DISTINCT t) FROM moments;
SELECT count(*) FROM moments WHERE d = timestamp(2) 'now' AND t = 'now';
SELECT 'now'::timestamptz = now(), timestamp 'now' = localtimestamp, time 'now' = localtime, 'today'::date = current_date;
UPDATE moments SET t = 'now';
SELECT count(*) FROM moments WHERE t = now();
COMMIT;
SELECT timestamptz 'now' = now();
SELECT DISTINCT timestamptz 'now' = now() FROM moments;
DROP TABLE moments;
SELECT make_timestamptz(1973, 07, 15, 08, 15, 55.33, '+2') = '1973-07-15 08:15:55.33+02'::timestamptz;
SELECT make_timestamptz(2014, 12, 10, 10, 10, 10, tz) AT TIME ZONE 'UTC', tz FROM (VALUES ('+1'), ('-0330'), ('+10:00:10'), ('EST'), ('UTC-3')) v (tz);
SELECT make_timestamptz(1973, 07, 15, 08, 15, 55.33, '2');
SELECT make_timestamptz(2014, 12, 10, 10, 10, 10, '+16');
SELECT '15:36:39 m2'::timetz;
SELECT '15:36:39 m2'::time;
SET TimeZone = 'Asia/Tokyo';
SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_start BETWEEN now() - interval '1 hour' AND now() + interval '1 min';
SET TimeZone = 'America/New_York';
SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_start BETWEEN now() - interval '1 hour' AND now() + interval '1 min';
SELECT rolname FROM pg_roles WHERE coalesce(rolvaliduntil, '2030-03-10 11:30+05:30') = '2030-03-10 02:00' AND rolname = 'pg_monitor';
SELECT rolname FROM pg_roles WHERE coalesce(rolvaliduntil, '-infinity') < '0001-01-01 00:00+02' AND rolname = 'pg_monitor';
SET TimeZone = 'UTC';
SELECT i, to_timestamp('2018-11-02 12:34:56.123456', 'YYYY-MM-DD HH24:MI:SS.FF' || i) FROM generate_series(1, 6) i;
SELECT i, to_timestamp('1918-11-02 12:34:56.15', 'YYYY-MM-DD HH24:MI:SS.FF' || i) FROM generate_series(1, 3) i;
SELECT to_timestamp('20181102123456123456', 'YYYYMMDDHH24MISSFF2'), to_timestamp('2018 12.9996', 'YYYY SS.FF3'), to_timestamp('2018 12.123456', 'YYYY SS.US');
SELECT to_timestamp('97/Feb/16', 'YYMonDD');
SELECT to_timestamp('2000 + + JUN', 'YYYY  MON');
SELECT to_timestamp('2005527', 'YYYYIWID');
SELECT to_timestamp('19971', 'YYYYMMDD');
SELECT to_timestamp('19971)24', 'YYYYMMDD');
SELECT to_timestamp('10000000000', 'FMYYYY');
RESET TimeZone;
-- the formats of ISO 8601
SELECT interval 'P00021015T103020', interval 'P0002-10-15T10:30:20', interval 'P0002', interval 'P0002-10T1S', interval 'PT10:30', interval 'P1D1Y', interval 'PT103020.6', interval 'P-00021015.6', interval 'P10.5e4Y';
SELECT interval 'P2147483648'; SELECT interval 'P1Y-2'; SELECT interval 'PT1:2:3:4'; SELECT interval 'P1-2147483647-2147483647';
