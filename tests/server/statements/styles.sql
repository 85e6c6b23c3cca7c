-- Run by test_styles under several settings of DateStyle, IntervalStyle and TimeZone.
SELECT date '03/02/2011', timestamp '03/02/2011 10:11:12.5', timestamptz '03/02/2011 10:11:12.25', '{03/02/2011,NULL}'::date[];
SELECT date '0044-03-15 BC', timestamptz '0044-03-15 12:00 BC', date 'infinity', timestamp '-infinity', timestamptz '12345-06-07 01:02:03.456789';
SELECT interval '1 year 2 mons 3 days 04:05:06.7', interval '-1 2:03:04', interval '-1-2', '{"-1 2:03:04","1 mon"}'::interval[], interval '0';
SELECT (date '2024-02-03')::text, (timestamptz '2024-02-03 10:11:12+00')::text, (interval '1 day 2 hours')::text, (array[date '2024-02-03'])::text;
SELECT 'x' || date '2024-02-03', concat(date '2024-02-03', ' ', interval '1 day 01:00'), format('%s %s', date '2024-02-03', interval '-1 day');
SELECT to_json(date '2024-02-03'), to_jsonb(timestamp '2024-02-03 10:11:12'), to_json(interval '1 day'), to_json(array[date '2024-02-03']);
CREATE TABLE s (id int PRIMARY KEY, d date DEFAULT '03/02/2011', tz timestamptz DEFAULT '04/05/2011 01:02:03', i interval DEFAULT '-1 2:03:04',
                da date[], ia interval[], t text, CHECK (d <> '01/02/2003'));
INSERT INTO s(id) VALUES (1);
INSERT INTO s VALUES (2, '01/02/2011', '01/02/2011 03:04:05+00', '1-2', '{01/02/2011}', '{-1 2:03}', 'x'), (3, '0044-03-15 BC', 'infinity', '-1 day', '{}', NULL, NULL),
                     (4, '12345-01-02', '1900-01-01 00:00', 'PT1.5S', NULL, '{1 day,NULL}', date '2024-03-04');
INSERT INTO s(id, d) VALUES (5, '01/02/2003');
SELECT * FROM s ORDER BY id;
COPY (SELECT * FROM s ORDER BY id) TO STDOUT;
COPY s (id, d, i) FROM STDIN;
6	05/06/2011	-3 4:05
\.
SELECT id, d::text, tz::text, i::text, da::text, ia::text, d || '', concat(i, d), format('%s/%s', tz, i), array_to_string(da, ';') FROM s ORDER BY id;
SELECT array_agg(d ORDER BY id), string_agg(d::text, ',' ORDER BY id), json_agg(d ORDER BY id), max(tz), min(d) FROM s;
SELECT s, row_to_json(ROW(s.d, s.i)) FROM s WHERE id < 3 ORDER BY id;
SELECT id FROM s WHERE d = '01/02/2011' OR i = '-1 2:03:04' ORDER BY id;
SELECT id, ('0' || id || '/02/2011')::date, ('-' || id || ' 2:03:04')::interval, ('{' || d || '}')::date[] FROM s WHERE id IN (1, 2, 4) ORDER BY id;
UPDATE s SET d = '05/06/2011', t = d WHERE id = 2 RETURNING d, t, d - date '01/02/2011', d + 1;
INSERT INTO s(id, d) VALUES (2, '01/01/2011');
CREATE VIEW v AS SELECT date '03/02/2011' AS d, interval '-1 2:03:04' AS i;
SELECT '31/12/2024'::date;
SELECT '12/31/2024'::date;
SELECT '24-12-31'::date;
SELECT now() - interval '1 day' = '03/02/2011' FROM pg_class LIMIT 1;
BEGIN;
DECLARE c CURSOR FOR SELECT d, i FROM s ORDER BY id;
FETCH 1 FROM c;
SET LOCAL datestyle = 'German';
SET LOCAL intervalstyle = 'iso_8601';
FETCH 1 FROM c;
COMMIT;
SHOW datestyle;
SET datestyle = 'ISO, MDY';
SET intervalstyle = 'postgres';
SET timezone = 'UTC';
INSERT INTO s(id) VALUES (9);
SELECT d, tz, i, da, ia, t FROM s ORDER BY id;
SELECT * FROM v;
SET timezone = 'Europe/Berlin';
SELECT g FROM generate_series('2024-03-30'::date, '2024-04-01', '1 day') g;
SELECT generate_series('2024-10-28 00:00'::timestamptz, '2024-10-25', '-1 day');
SELECT count(*) FROM generate_series('2024-01-31'::timestamp, '2024-06-01', '1 mon') g WHERE g < '2024-04-30';
SELECT generate_series('2024-01-31'::timestamp, '2024-06-01', '1 mon -30 days');
SELECT generate_series('2024-02-01'::timestamp, '2024-01-01', '1 mon');
