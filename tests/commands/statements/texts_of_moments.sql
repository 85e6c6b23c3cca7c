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
