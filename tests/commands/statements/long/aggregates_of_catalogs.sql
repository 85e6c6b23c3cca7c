-- Aggregates, windows and sets on system relations, as on tables.
CREATE TABLE gathered (id int PRIMARY KEY, kind text, note text);
SELECT string_agg(attname, ',' ORDER BY attnotnull DESC, attname) FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0;
SELECT json_agg(attname ORDER BY attnum DESC) FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0;
SELECT attname, json_agg(attnum) OVER (ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, sum(attnum) OVER (ORDER BY attnum), sum(attnum::bigint) FILTER (WHERE attnotnull) OVER (ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, row_number() OVER w, lag(attname) OVER w, lead(attname, 2) OVER w, lag(attname, 1, 'none') OVER w, ntile(2) OVER w FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0 WINDOW w AS (ORDER BY attnum) ORDER BY 2;
SELECT count(DISTINCT atttypid), min(attname), max(attnum), bool_and(attnotnull), every(attnotnull), bit_or(attnum), bit_xor(attnum), avg(attnum), percentile_disc(0.5) WITHIN GROUP (ORDER BY attname), mode() WITHIN GROUP (ORDER BY atttypid::int) FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0;
SELECT array_agg(DISTINCT atttypid::int ORDER BY atttypid::int DESC) FROM pg_attribute WHERE attrelid = 'gathered'::regclass AND attnum > 0;
SELECT (information_schema._pg_expandarray(indkey)).n FROM pg_index WHERE indrelid = 'gathered'::regclass;
SELECT generate_subscripts(conkey, 1) FROM pg_constraint WHERE conrelid = 'gathered'::regclass;
INSERT INTO gathered VALUES (1, 'a', 'x'), (2, 'a', 'y'), (3, 'b', NULL);
SELECT kind, string_agg(note, ',' ORDER BY note DESC, id), json_agg(id ORDER BY id), array_agg(note ORDER BY id), count(note), mode() WITHIN GROUP (ORDER BY note) FROM gathered GROUP BY kind ORDER BY kind;
SELECT id, json_agg(id) OVER (ORDER BY id), nth_value(note, 2) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), first_value(note) OVER (ORDER BY id DESC) FROM gathered ORDER BY id;
SELECT count(*) WITHIN GROUP (ORDER BY id) FROM gathered;
SELECT key, value FROM jsonb_each('{"a": 1, "b": [2]}') ORDER BY key;
SELECT k.key, k.value FROM json_each_text('{"a": 1, "b": null}') k ORDER BY 1;
SELECT value FROM jsonb_array_elements('[1, {"a": 2}]');
DROP TABLE gathered;
