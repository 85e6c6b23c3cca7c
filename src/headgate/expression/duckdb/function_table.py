"""PostgreSQL's functions in DuckDB's SQL, by signature; read by `call`.

A line is ``name(argument types): template``. In a template {0} {1} … are the arguments, {db} the database's oid, {p} the search path, {sizes}
what relations take on disk, {texts0} the elements of the array {0} as text, {shift0} 1 if that counts from 0, else 0, {regclass0} a text
as regclass, and <22011 message> raises that error. A name with ! is NULL for a NULL argument, which its template would not be by itself.
"""

# ruff: noqa: E501 (one definition a line)

FUNCTIONS = r"""
format_type(oid, int4): hg.format_type({0}, {1}, {db}, {p})
pg_get_expr(pg_node_tree, oid): hg.expression_out({0}, {db}, {p})
pg_get_expr(pg_node_tree, oid, bool): hg.expression_out({0}, {db}, {p})
pg_get_userbyid(oid): hg.userbyid({0})
pg_table_is_visible(oid): hg.table_is_visible({0}, {db}, {p})
pg_type_is_visible(oid): hg.type_is_visible({0}, {db}, {p})
pg_function_is_visible(oid): hg.function_is_visible({0}, {db}, {p})
pg_operator_is_visible(oid): hg.operator_is_visible({0}, {db}, {p})
pg_collation_is_visible(oid): hg.collation_is_visible({0}, {db}, {p})
pg_opclass_is_visible(oid): ({0} IS NOT NULL)
pg_opfamily_is_visible(oid): ({0} IS NOT NULL)
pg_conversion_is_visible(oid): ({0} IS NOT NULL)
pg_ts_config_is_visible(oid): ({0} IS NOT NULL)
pg_ts_dict_is_visible(oid): ({0} IS NOT NULL)
pg_ts_parser_is_visible(oid): ({0} IS NOT NULL)
pg_ts_template_is_visible(oid): ({0} IS NOT NULL)
pg_statistics_obj_is_visible(oid): ({0} IS NOT NULL)
pg_get_indexdef(oid): hg.indexdef({0}, 0, false, {db}, {p})
pg_get_indexdef(oid, int4, bool): hg.indexdef({0}, {1}, {2}, {db}, {p})
pg_get_constraintdef(oid): hg.constraintdef({0}, false, {db}, {p})
pg_get_constraintdef(oid, bool): hg.constraintdef({0}, {1}, {db}, {p})
pg_get_partkeydef(oid): hg.partition_key({0}, {db})
pg_get_partition_constraintdef(oid): hg.partition_constraint({0}, {db})
pg_partition_root(regclass): hg.partition_root({0}, {db})
pg_get_viewdef(oid): hg.viewdef({0}, false, {db}, {p})
pg_get_viewdef(oid, bool): hg.viewdef({0}, {1}, {db}, {p})
pg_get_viewdef(oid, int4): hg.viewdef({0}, true, {db}, {p})
pg_get_ruledef(oid): CAST(NULL AS VARCHAR)
pg_get_ruledef(oid, bool): CAST(NULL AS VARCHAR)
pg_get_triggerdef(oid): CAST(NULL AS VARCHAR)
pg_get_triggerdef(oid, bool): CAST(NULL AS VARCHAR)
pg_get_statisticsobjdef(oid): CAST(NULL AS VARCHAR)
pg_get_statisticsobjdef_columns(oid): CAST(NULL AS VARCHAR)
pg_get_function_arguments(oid): hg.function_arguments({0}, {db}, {p})
pg_get_function_identity_arguments(oid): hg.function_arguments({0}, {db}, {p})
pg_get_function_result(oid): hg.function_result({0}, {db}, {p})
pg_get_function_sqlbody(oid): CAST(NULL AS VARCHAR)
pg_get_functiondef(oid): CAST(NULL AS VARCHAR)
pg_get_function_arg_default(oid, int4): CAST(NULL AS VARCHAR)
pg_get_serial_sequence(text, text): hg.serial_sequence({regclass0}, {1}, {db})
pg_get_replica_identity_index(regclass): hg.replica_index({0}, {db})
pg_relation_is_publishable(regclass): hg.is_publishable({0}, {db})
pg_encoding_to_char(int4): hg.encoding_name({0})
pg_char_to_encoding(name): CASE upper({0}) WHEN 'UTF8' THEN 6 WHEN 'SQL_ASCII' THEN 0 ELSE -1 END
col_description(oid, int4): hg.description({0}, 1259, {1}, {db})
obj_description(oid, name): hg.description({0}, (SELECT _o.oid FROM hg.pg_class _o WHERE _o.relname = {1} AND _o.dbid = 0), 0, {db})
obj_description(oid): hg.any_description({0}, {db})
shobj_description(oid, name): hg.shared_description({0}, (SELECT _o.oid FROM hg.pg_class _o WHERE _o.relname = {1} AND _o.dbid = 0))
quote_ident(text): hg.quote_ident({0})
quote_literal(text): hg.quote_literal({0})
quote_nullable(text): coalesce(hg.quote_literal({0}), 'NULL')
acldefault(char, oid): hg.acl_default({0}, hg.userbyid({1}))
pg_wal_lsn_diff(pg_lsn, pg_lsn): CAST(CAST({0} AS HUGEINT) - CAST({1} AS HUGEINT) AS DECIMAL(38,0))
pg_walfile_name(pg_lsn): printf('00000001%08X%08X', CAST({0} >> 32 AS BIGINT), CAST(({0} & 4294967295) >> 24 AS BIGINT))
get_byte!(bytea, int4): CASE WHEN {1} < 0 OR {1} >= octet_length({0}) THEN <2202E index out of valid range> ELSE CAST('0x' || substr(hex({0}), 2 * {1} + 1, 2) AS INTEGER) END
int2send(int2): unhex(printf('%04X', CAST({0} AS INTEGER) & 65535))
int4send(int4): unhex(printf('%08X', CAST({0} AS BIGINT) & 4294967295))
int8send(int8): unhex(printf('%016X', CAST((CAST({0} AS HUGEINT) + 18446744073709551616) % 18446744073709551616 AS UBIGINT)))
octet_length(bytea): CAST(octet_length({0}) AS INTEGER)
length(bytea): CAST(octet_length({0}) AS INTEGER)
encode!(bytea, text): hg.encode({0}, lower({1}))
convert_from!(bytea, name): CASE WHEN regexp_matches(hex({0}), '^(..)*00') THEN <22021 invalid byte sequence for encoding "UTF8": 0x00> WHEN lower(replace({1}, '-', '')) IN ('utf8', 'unicode') THEN decode({0}) ELSE error('unrecognized encoding: "' || {1} || '"') END
getdatabaseencoding(): 'UTF8'
pg_is_in_recovery(): false
pg_is_other_temp_schema(oid): false
pg_trigger_depth(): 0
pg_jit_available(): false
pg_relation_is_updatable(regclass, bool): 28
pg_column_is_updatable(regclass, int2, bool): true
pg_relation_size(regclass): hg.bytes_of({0}, {db}, (SELECT sum(_s.c3) FROM {sizes} _s WHERE 'main' = 'main' AND _s.c1 = {db} AND _s.c2 = {0}))
pg_relation_size(regclass, text): hg.bytes_of({0}, {db}, (SELECT sum(_s.c3) FROM {sizes} _s WHERE {1} = 'main' AND _s.c1 = {db} AND _s.c2 = {0}))
pg_table_size(regclass): hg.bytes_of({0}, {db}, (SELECT sum(_s.c4) FROM {sizes} _s WHERE _s.c1 = {db} AND _s.c2 = {0}))
pg_indexes_size(regclass): hg.bytes_of({0}, {db}, 0)
pg_total_relation_size(regclass): hg.bytes_of({0}, {db}, (SELECT sum(_s.c4) FROM {sizes} _s WHERE _s.c1 = {db} AND _s.c2 = {0}))
pg_database_size(name): (SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE _s.c1 = (SELECT _d.oid FROM hg.pg_database _d WHERE _d.datname = {0}))
pg_database_size(oid): (SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE _s.c1 = {0})
pg_tablespace_size(oid): (SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE {0} = 1663)
pg_tablespace_location(oid): CASE WHEN {0} IS NOT NULL THEN '' END
pg_relation_filenode(regclass): {0}
pg_relation_filepath(regclass): (SELECT 'base/' || CAST({db} AS VARCHAR) || '/' || CAST(_c.oid AS VARCHAR) FROM hg.pg_class _c WHERE _c.oid = {0} AND _c.dbid IN (0, {db}) AND _c.relkind IN ('r', 'i', 'S', 't', 'm'))
pg_size_pretty(int8): hg.size_pretty({0})
pg_size_pretty(numeric): hg.size_pretty(CAST({0} AS BIGINT))
_pg_char_max_length(oid, int4): CASE WHEN {1} = -1 THEN NULL WHEN {0} IN (1042, 1043) THEN {1} - 4 WHEN {0} IN (1560, 1562) THEN {1} END
_pg_char_octet_length(oid, int4): CASE WHEN {0} IN (25, 1042, 1043) THEN CASE WHEN {1} = -1 THEN 1073741824 ELSE ({1} - 4) * 4 END END
_pg_numeric_precision(oid, int4): CASE {0} WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 1700 THEN CASE WHEN {1} <> -1 THEN (({1} - 4) >> 16) & 65535 END WHEN 700 THEN 24 WHEN 701 THEN 53 END
_pg_numeric_precision_radix(oid, int4): CASE WHEN {0} IN (21, 23, 20, 700, 701) THEN 2 WHEN {0} = 1700 THEN 10 END
_pg_numeric_scale(oid, int4): CASE WHEN {0} IN (21, 23, 20) THEN 0 WHEN {0} = 1700 AND {1} <> -1 THEN ({1} - 4) & 65535 END
_pg_datetime_precision(oid, int4): CASE WHEN {0} = 1082 THEN 0 WHEN {0} IN (1083, 1114, 1184, 1266) THEN CASE WHEN {1} < 0 THEN 6 ELSE {1} END WHEN {0} = 1186 THEN CASE WHEN {1} < 0 OR {1} & 65535 = 65535 THEN 6 ELSE {1} & 65535 END END
_pg_interval_type(oid, int4): CAST(NULL AS VARCHAR)
_pg_index_position(oid, int2): (SELECT CAST(list_position(_i.indkey, {1}) AS INTEGER) FROM hg.pg_index _i WHERE _i.indexrelid = {0} AND _i.dbid IN (0, {db}))
array_to_string(anyarray, text): array_to_string(list_filter({texts0}, lambda x: x IS NOT NULL), {1})
array_to_string(anyarray, text, text): array_to_string(list_transform({texts0}, lambda x: coalesce(x, {2})), {1})
array_length(anyarray, int4): CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) END
array_upper(anyarray, int4): CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) - {shift0} END
array_lower(anyarray, int4): CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 - {shift0} END
array_ndims(anyarray): CASE WHEN len({0}) > 0 THEN 1 END
array_remove(anycompatiblearray, anycompatible): list_filter({0}, lambda x: x IS DISTINCT FROM {1})
array_append(anycompatiblearray, anycompatible): list_append(coalesce({0}, []), {1})
array_prepend(anycompatible, anycompatiblearray): list_prepend({0}, coalesce({1}, []))
array_cat(anycompatiblearray, anycompatiblearray): CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE list_concat({0}, {1}) END
cardinality(anyarray): CAST(len({0}) AS INTEGER)
array_position(anycompatiblearray, anycompatible): CAST(list_position({0}, {1}) AS INTEGER) - {shift0}
string_to_array(text, text): CASE WHEN {0} = '' THEN [] WHEN {1} IS NULL OR {0} IS NULL THEN string_split({0}, '') WHEN {1} = '' THEN [{0}] ELSE string_split({0}, {1}) END
upper(text): translate({0}, 'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ')
lower(text): translate({0}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')
length(text): CAST(length({0}) AS INTEGER)
char_length(text): CAST(length({0}) AS INTEGER)
octet_length(text): CAST(strlen({0}) AS INTEGER)
btrim(text): trim({0}, ' ')
btrim(text, text): trim({0}, {1})
ltrim(text): ltrim({0}, ' ')
ltrim(text, text): ltrim({0}, {1})
rtrim(text): rtrim({0}, ' ')
rtrim(text, text): rtrim({0}, {1})
replace(text, text, text): replace({0}, {1}, {2})
translate(text, text, text): translate({0}, {1}, {2})
strpos(text, text): CAST(instr({0}, {1}) AS INTEGER)
starts_with(text, text): starts_with({0}, {1})
left(text, int4): left({0}, {1})
right(text, int4): right({0}, {1})
repeat(text, int4): repeat({0}, hg.fitting({1}, strlen({0}) * CAST({1} AS BIGINT), 1073741819))
reverse(text): CASE WHEN strlen({0}) = length({0}) THEN reverse({0}) WHEN {0} IS NOT NULL THEN <0A000 reverse of text that is not plain ASCII is not supported here> END
md5(text): md5({0})
ascii(text): ascii({0})
abs(int4): abs({0})
abs(int8): abs({0})
abs(numeric): abs({0})
abs(float8): abs({0})
mod(int4, int4): ({0} % {1})
mod(int8, int8): ({0} % {1})
floor(float8): floor({0})
ceil(float8): ceil({0})
ceiling(float8): ceil({0})
sign(float8): CAST(sign({0}) AS DOUBLE)
pi(): pi()
gen_random_uuid(): CAST(uuid() AS VARCHAR)
pg_xact_commit_timestamp(xid): CAST(NULL AS TIMESTAMP)
pg_index_has_property(regclass, text): CAST(NULL AS BOOLEAN)
pg_index_column_has_property(regclass, int4, text): CASE {2} WHEN 'asc' THEN true WHEN 'desc' THEN false WHEN 'orderable' THEN true WHEN 'nulls_first' THEN false WHEN 'nulls_last' THEN true END
pg_indexam_has_property(oid, text): CASE {1} WHEN 'can_order' THEN {0} = 403 WHEN 'can_unique' THEN {0} = 403 WHEN 'can_multi_col' THEN true ELSE false END
substr!(bytea, int4): hg.bytes_from({0}, {1}, octet_length({0}))
substring!(bytea, int4): hg.bytes_from({0}, {1}, octet_length({0}))
substr!(bytea, int4, int4): CASE WHEN {2} < 0 THEN <22011 negative substring length not allowed> ELSE hg.bytes_from({0}, {1}, CAST({1} AS BIGINT) + {2} - 1) END
substring!(bytea, int4, int4): CASE WHEN {2} < 0 THEN <22011 negative substring length not allowed> ELSE hg.bytes_from({0}, {1}, CAST({1} AS BIGINT) + {2} - 1) END
substr!(text, int4): substr({0}, greatest({1}, 1))
substring!(text, int4): substr({0}, greatest({1}, 1))
substr!(text, int4, int4): CASE WHEN {2} < 0 THEN <22011 negative substring length not allowed> ELSE substr({0}, greatest({1}, 1), greatest(CAST({1} AS BIGINT) + {2} - greatest({1}, 1), 0)) END
substring!(text, int4, int4): CASE WHEN {2} < 0 THEN <22011 negative substring length not allowed> ELSE substr({0}, greatest({1}, 1), greatest(CAST({1} AS BIGINT) + {2} - greatest({1}, 1), 0)) END
position(text, text): CAST(instr({0}, {1}) AS INTEGER)
to_hex(int4): printf('%x', CAST({0} AS BIGINT) & 4294967295)
to_hex(int8): lower(hex(CAST((CAST({0} AS HUGEINT) + 18446744073709551616) % 18446744073709551616 AS UBIGINT)))
lpad!(text, int4): lpad({0}, hg.fitting({1}, {1}, 268435454), ' ')
lpad!(text, int4, text): CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE lpad({0}, hg.fitting({1}, {1}, 268435454), {2}) END
rpad!(text, int4): rpad({0}, hg.fitting({1}, {1}, 268435454), ' ')
rpad!(text, int4, text): CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE rpad({0}, hg.fitting({1}, {1}, 268435454), {2}) END
split_part!(text, text, int4): CASE WHEN {2} = 0 THEN <22023 field position must not be zero> WHEN {1} = '' THEN CASE WHEN {2} IN (1, -1) THEN {0} ELSE '' END ELSE split_part({0}, {1}, {2}) END
sqrt!(float8): CASE WHEN {0} < 0 THEN <2201F cannot take square root of a negative number> ELSE sqrt({0}) END
chr!(int4): CASE WHEN {0} < 0 THEN <54000 character number must be positive> WHEN {0} = 0 THEN <54000 null character not permitted> WHEN {0} > 1114111 OR {0} BETWEEN 55296 AND 57343 THEN <54000 requested character not valid for encoding> ELSE chr({0}) END
random(): random()
abs(int2): abs({0})
"""
