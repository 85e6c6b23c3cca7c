-- The texts 'now' and 'today' mean the start of the transaction.
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
