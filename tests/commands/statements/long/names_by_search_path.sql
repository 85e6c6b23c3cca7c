-- Texts of the catalog name types, functions and relations as the search path requires.
\i tests/commands/user_defined.sql
\pset format unaligned
CREATE FUNCTION other.twice(i bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT i * 2';
CREATE TYPE other.mood AS ENUM ('other');
\set texts 'SELECT relnamespace::regnamespace, relname, adnum, pg_get_expr(adbin, adrelid), pg_get_expr(adbin, adrelid, true) FROM pg_attrdef JOIN pg_class c ON c.oid = adrelid ORDER BY relnamespace::regnamespace::text, 2, 3; SELECT k.connamespace::regnamespace, conname, conrelid::regclass, pg_get_constraintdef(k.oid), pg_get_constraintdef(k.oid, true), pg_get_expr(k.conbin, k.conrelid) FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid WHERE k.oid >= 16384 ORDER BY k.connamespace::regnamespace::text, 2, relname; SELECT conname, contypid::regtype, pg_get_constraintdef(oid) FROM pg_constraint WHERE contypid >= 16384 ORDER BY 1; SELECT pg_get_indexdef(indexrelid), pg_get_indexdef(indexrelid, 1, true), pg_get_indexdef(indexrelid, 0, true), pg_get_expr(indpred, indrelid), pg_get_expr(indexprs, indrelid) FROM pg_index JOIN pg_class c ON c.oid = indrelid WHERE indrelid >= 16384 AND relkind IN (\'r\', \'p\') ORDER BY relnamespace::regnamespace::text, indexrelid::regclass::text; SELECT tgname, pg_get_triggerdef(oid), pg_get_triggerdef(oid, true) FROM pg_trigger ORDER BY 1; SELECT polname, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid) FROM pg_policy ORDER BY 1; SELECT proname, pronamespace::regnamespace, pg_get_function_arguments(oid), pg_get_function_identity_arguments(oid), pg_get_function_result(oid), pg_get_functiondef(oid), pg_get_expr(proargdefaults, 0), pg_get_function_arg_default(oid, 1), pg_get_function_arg_default(oid, 2) FROM pg_proc WHERE oid >= 16384 ORDER BY 1, pronamespace::regnamespace::text; SELECT typname, format_type(typbasetype, typtypmod), typdefault, pg_get_expr(typdefaultbin, 0) FROM pg_type WHERE oid >= 16384 AND typtype = \'d\' ORDER BY 1; SELECT relname, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid), pg_get_partition_constraintdef(oid) FROM pg_class c WHERE (relispartition OR relkind = \'p\') AND oid >= 16384 ORDER BY 1; SELECT relname, pg_get_viewdef(oid), pg_get_viewdef(oid, true) FROM pg_class WHERE relkind = \'v\' AND oid >= 16384 ORDER BY 1; SELECT relname, pg_type_is_visible(reltype) FROM pg_class WHERE oid >= 16384 AND relkind IN (\'r\', \'c\', \'v\') ORDER BY relnamespace::regnamespace::text, 1;'
SET search_path = '';
:texts
SELECT table_schema, table_name, column_name, column_default, generation_expression FROM information_schema.columns WHERE table_schema IN ('app', 'other') ORDER BY 1, 2, 3;
SELECT constraint_name, check_clause FROM information_schema.check_constraints WHERE constraint_schema IN ('app', 'other') AND check_clause NOT LIKE '%NOT NULL' ORDER BY 1, 2;
SELECT domain_name, domain_default FROM information_schema.domains WHERE domain_schema = 'app' ORDER BY 1;
SELECT routine_name, data_type, type_udt_name FROM information_schema.routines WHERE routine_schema = 'app' ORDER BY 1;
SELECT parameter_name, parameter_default FROM information_schema.parameters WHERE specific_schema = 'app' ORDER BY 1, 2;
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname IN ('app', 'other') ORDER BY 1, 2;
SET search_path = app, other;
:texts
SET search_path = other, app;
:texts
SET search_path = public;
INSERT INTO app.t (id) VALUES (2), (5);
INSERT INTO app.t (id, m, d) VALUES (6, 'sad', 1), (7, 'sad', 2);
SELECT * FROM app.t ORDER BY id;
INSERT INTO app.t (id, m) VALUES (9, 'Happy one');
INSERT INTO app.t (id, e) VALUES (9, 1);
UPDATE app.t SET m = 'sad' WHERE id = 5 RETURNING id, m, h;
INSERT INTO other.t VALUES (DEFAULT), (0, 'ok', -1);
INSERT INTO other.t VALUES (DEFAULT);
INSERT INTO other.part VALUES ('ok', 1), ('sad', 2), ('Happy one', 3);
SELECT tableoid::regclass, * FROM other.part ORDER BY i;
SELECT * FROM other.v ORDER BY a;
SELECT a, id FROM app.w ORDER BY a;
SELECT app.with_defaults(), app.with_defaults('sad'), app.with_defaults(q => 1, p => 'Happy one');
INSERT INTO other.lk (id) VALUES (3), (4);
INSERT INTO other.lk (id) VALUES (4) ON CONFLICT (((id + app.twice(id)))) DO NOTHING;
SELECT id, m, g, h FROM other.lk ORDER BY id;
