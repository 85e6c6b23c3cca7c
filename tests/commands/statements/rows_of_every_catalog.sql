-- What of the catalogs is the same for each relation or each server: system columns, tables of information_schema, extensions to install.
CREATE TABLE keyed (id int PRIMARY KEY, name text DEFAULT 'x');
CREATE TABLE parted (a int, b text) PARTITION BY LIST (a);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE VIEW seen AS SELECT id FROM keyed;
CREATE SEQUENCE counter;
SELECT attname, atttypid::regtype, attstattarget, attlen, attnum, attndims, attcacheoff, atttypmod, attbyval, attalign, attstorage, attcompression, attnotnull, atthasdef, atthasmissing, attidentity, attgenerated, attisdropped, attislocal, attinhcount, attcollation, attacl, attoptions, attfdwoptions, attmissingval FROM pg_attribute WHERE attrelid = 'keyed'::regclass ORDER BY attnum;
SELECT c.relname, count(*) FILTER (WHERE attnum < 0) AS of_system, count(*) FILTER (WHERE attnum > 0 AND relkind <> 'S') AS own FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'public'::regnamespace GROUP BY 1 ORDER BY 1;
SELECT attname FROM pg_attribute WHERE attrelid = 'pg_class'::regclass AND attnum < 0 ORDER BY attnum;
ALTER TABLE keyed DROP COLUMN name;
SELECT attname, attnum FROM pg_attribute WHERE attrelid = 'keyed'::regclass ORDER BY attnum;
SELECT column_name FROM information_schema.columns WHERE table_name = 'keyed';
SELECT count(*), min(feature_id), max(feature_name) FROM information_schema.sql_features;
SELECT feature_name, is_supported FROM information_schema.sql_features WHERE feature_id LIKE 'E011%' ORDER BY feature_id, sub_feature_id;
SELECT implementation_info_id, implementation_info_name, integer_value, comments FROM information_schema.sql_implementation_info ORDER BY 1;
SELECT * FROM information_schema.sql_sizing ORDER BY sizing_id;
SELECT * FROM information_schema.sql_parts ORDER BY feature_id;
SELECT name, default_version, installed_version, comment FROM pg_available_extensions WHERE name = 'no such';
SELECT name, comment FROM pg_catalog.pg_available_extensions() AS e WHERE e.name = 'no such';
SELECT * FROM pg_available_extension_versions() WHERE name = 'no such';
SELECT * FROM pg_available_extension_versions WHERE name = 'no such';
SELECT i, pg_encoding_to_char(i) FROM generate_series(-1, 43) i;
SELECT name, pg_char_to_encoding(name) FROM (VALUES ('utf8'), ('UTF-8'), ('Latin1'), ('iso-8859-15'), ('win1252'), ('unicode'), ('klingon'), (NULL)) v(name);
SELECT prsname, t.* FROM pg_ts_parser p, ts_token_type(p.oid) AS t;
SELECT (SELECT t.alias FROM pg_catalog.ts_token_type(cfgparser) AS t WHERE t.tokid = maptokentype) AS token, pg_catalog.array_agg(dictname) AS dictname FROM pg_ts_config_map LEFT JOIN pg_ts_config ON mapcfg = pg_ts_config.oid LEFT JOIN pg_ts_dict ON mapdict = pg_ts_dict.oid WHERE cfgname = 'english' GROUP BY token ORDER BY 1;
\dFp+ default
CREATE TABLE judged (a numeric CHECK (a >= 0), b text[], c text, d date, CONSTRAINT many CHECK (b[1]::int > 0 AND COALESCE(a, 1)::int > -1 AND (CASE WHEN a > 1 THEN 2 ELSE 3 END)::text <> '5' AND (a + 1)::int > 0), CHECK (c <> CURRENT_USER::text));
SELECT conname, pg_get_constraintdef(oid), pg_get_constraintdef(oid, true), pg_get_expr(conbin, conrelid, true) FROM pg_constraint WHERE conrelid = 'judged'::regclass ORDER BY 1;
