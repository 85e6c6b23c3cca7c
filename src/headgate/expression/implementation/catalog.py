"""Functions with which clients read the system catalogs. Only queries on the catalogs call them, so they have only a DuckDB form.

`duckdb.template` describes the placeholders in a template.
"""

# ruff: noqa: E501 (one definition a line)

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression.duckdb.value import DuckdbForm, Env, refuse
from headgate.expression.implementation.implementation import Guarded, Implementation, Table
from headgate.expression.node import ColumnRef, Expression, Relabel, RowCoerce

_TEMPLATES: dict[str, str] = {
    "format_type": "hg.format_type({0}, {1}, {db}, {p})",
    "oidvectortypes": "coalesce(array_to_string((SELECT list(hg.format_type(x, NULL, {db}, {p}) ORDER BY n) FROM (SELECT unnest({0}) AS x, generate_subscripts({0}, 1) AS n)), ', '), '')",
    "pg_get_expr": "hg.get_expr({0}, {db}, {p})",
    "pg_get_expr_ext": "hg.get_expr({0}, {db}, {p})",
    "nameconcatoid": "left({0}, 62 - len(CAST({1} AS VARCHAR))) || '_' || CAST({1} AS VARCHAR)",
    "pg_get_userbyid": "hg.userbyid({0})",
    "pg_table_is_visible": "hg.table_is_visible({0}, {db}, {p})",
    "pg_type_is_visible": "hg.type_is_visible({0}, {db}, {p})",
    "pg_function_is_visible": "hg.function_is_visible({0}, {db}, {p})",
    "pg_operator_is_visible": "hg.operator_is_visible({0}, {db}, {p})",
    "pg_collation_is_visible": "hg.collation_is_visible({0}, {db}, {p})",
    "pg_opclass_is_visible": "({0} IS NOT NULL)",
    "pg_opfamily_is_visible": "({0} IS NOT NULL)",
    "pg_conversion_is_visible": "({0} IS NOT NULL)",
    "pg_ts_config_is_visible": "({0} IS NOT NULL)",
    "pg_ts_dict_is_visible": "({0} IS NOT NULL)",
    "pg_ts_parser_is_visible": "({0} IS NOT NULL)",
    "pg_ts_template_is_visible": "({0} IS NOT NULL)",
    "pg_statistics_obj_is_visible": "({0} IS NOT NULL)",
    "pg_get_indexdef": "hg.indexdef({0}, 0, false, {db}, {p})",
    "pg_get_indexdef_ext": "hg.indexdef({0}, {1}, {2}, {db}, {p})",
    "pg_get_constraintdef": "hg.constraintdef({0}, false, {db}, {p})",
    "pg_get_constraintdef_ext": "hg.constraintdef({0}, {1}, {db}, {p})",
    "pg_get_partkeydef": "hg.partition_key({0}, {db})",
    "pg_get_partition_constraintdef": "hg.partition_constraint({0}, {db}, {p})",
    "pg_partition_root": "hg.partition_root({0}, {db})",
    "pg_get_viewdef": "hg.viewdef({0}, false, {db}, {p})",
    "pg_get_viewdef_ext": "hg.viewdef({0}, {1}, {db}, {p})",
    "pg_get_viewdef_wrap": "hg.viewdef({0}, true, {db}, {p})",
    "pg_get_viewdef_name": "hg.viewdef({regclass0}, false, {db}, {p})",
    "pg_get_viewdef_name_ext": "hg.viewdef({regclass0}, {1}, {db}, {p})",
    "pg_get_ruledef": "CAST(NULL AS VARCHAR)",
    "pg_get_ruledef_ext": "CAST(NULL AS VARCHAR)",
    "pg_get_triggerdef": "hg.trigger_def({0}, false, {db}, {p})",
    "pg_get_triggerdef_ext": "hg.trigger_def({0}, {1}, {db}, {p})",
    "pg_get_statisticsobjdef": "CAST(NULL AS VARCHAR)",
    "pg_get_statisticsobjdef_columns": "CAST(NULL AS VARCHAR)",
    "pg_get_function_arguments": "hg.function_arguments({0}, {db}, {p})",
    "pg_get_function_identity_arguments": "hg.function_identity({0}, {db}, {p})",
    "pg_get_function_result": "hg.function_result({0}, {db}, {p})",
    "pg_get_function_sqlbody": "CAST(NULL AS VARCHAR)",
    "pg_get_functiondef": "hg.function_def({0}, {db}, {p})",
    "pg_get_function_arg_default": "hg.argument_default({0}, {1}, {db}, {p})",
    "pg_get_serial_sequence": "hg.serial_sequence({regclass0}, {1}, {db})",
    "pg_get_replica_identity_index": "hg.replica_index({0}, {db})",
    "pg_relation_is_publishable": "hg.is_publishable({0}, {db})",
    "PG_encoding_to_char": "hg.encoding_name({0})",
    "PG_char_to_encoding": "hg.encoding_number({0})",
    "col_description/26,23": "hg.description({0}, 1259, {1}, {db})",
    "obj_description/26,19": "hg.description({0}, (SELECT _o.oid FROM hg.pg_class _o WHERE _o.relname = {1} AND _o.dbid = 0), 0, {db})",
    "obj_description/26": "hg.any_description({0}, {db})",
    "shobj_description/26,19": "hg.shared_description({0}, (SELECT _o.oid FROM hg.pg_class _o WHERE _o.relname = {1} AND _o.dbid = 0))",
    "acldefault_sql": "hg.acl_default({0}, hg.userbyid({1}))",
    "pg_wal_lsn_diff": "CAST(CAST({0} AS HUGEINT) - CAST({1} AS HUGEINT) AS DECIMAL(38,0))",
    "pg_walfile_name": "printf('00000001%08X%08X', CAST({0} >> 32 AS BIGINT), CAST(({0} & 4294967295) >> 24 AS BIGINT))",
    "getdatabaseencoding": "'UTF8'",
    "pg_is_in_recovery": "false",
    "pg_is_other_temp_schema": "false",
    "pg_jit_available": "false",
    # views and sequences of a node cannot be written to
    "pg_relation_is_updatable": "CASE WHEN {0} IS NOT NULL THEN coalesce((SELECT 28 FROM hg.pg_class _c WHERE _c.oid = {0} AND _c.dbid IN (0, {db}) AND _c.relkind IN ('r', 'p')), 0) END",
    "pg_column_is_updatable": "CASE WHEN {0} IS NOT NULL THEN {1} > 0 AND coalesce((SELECT true FROM hg.pg_class _c WHERE _c.oid = {0} AND _c.dbid IN (0, {db}) AND _c.relkind IN ('r', 'p')), false) END",
    "pg_relation_size/2205": "hg.bytes_of({0}, {db}, (SELECT sum(_s.c3) FROM {sizes} _s WHERE 'main' = 'main' AND _s.c1 = {db} AND _s.c2 = {0}))",
    "pg_relation_size": "hg.bytes_of({0}, {db}, (SELECT sum(_s.c3) FROM {sizes} _s WHERE {1} = 'main' AND _s.c1 = {db} AND _s.c2 = {0}))",
    "pg_table_size": "hg.bytes_of({0}, {db}, (SELECT sum(_s.c4) FROM {sizes} _s WHERE _s.c1 = {db} AND _s.c2 = {0}))",
    "pg_indexes_size": "hg.bytes_of({0}, {db}, 0)",
    "pg_total_relation_size": "hg.bytes_of({0}, {db}, (SELECT sum(_s.c4) FROM {sizes} _s WHERE _s.c1 = {db} AND _s.c2 = {0}))",
    "pg_database_size_name": Guarded(
        "(SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE _s.c1 = (SELECT _d.oid FROM hg.pg_database _d WHERE _d.datname = {0}))"
    ),
    "pg_database_size_oid": Guarded("(SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE _s.c1 = {0})"),
    "pg_tablespace_size_oid": "(SELECT CAST(coalesce(sum(_s.c4), 0) AS BIGINT) FROM {sizes} _s WHERE {0} = 1663)",
    # the transaction numbers of a node are never reused, so there is nothing to freeze
    "xid_age": "CASE WHEN {0} IS NOT NULL THEN 0 END",
    "mxid_age": "CASE WHEN {0} IS NOT NULL THEN 0 END",
    # statistics that a node does not collect
    **dict.fromkeys(
        (
            "pg_stat_get_numscans",
            "pg_stat_get_tuples_returned",
            "pg_stat_get_tuples_fetched",
            "pg_stat_get_blocks_fetched",
            "pg_stat_get_blocks_hit",
        ),
        "CAST(NULL AS BIGINT)",
    ),
    "pg_sequence_last_value": "(SELECT _s.last_value FROM hg.sequence_state _s WHERE _s.dbid = {db} AND _s.seqrelid = {0} AND _s.is_called)",
    "pg_blocking_pids": "CASE WHEN {0} IS NOT NULL THEN coalesce((SELECT _b.c2 FROM {blockers} _b WHERE _b.c1 = {0}), CAST([] AS INTEGER[])) END",
    "pg_isolation_test_session_is_blocked": Guarded(
        "coalesce((SELECT list_has_any(_b.c2, {1}) FROM {blockers} _b WHERE _b.c1 = {0}), false)"
    ),
    "pg_tablespace_location": "CASE WHEN {0} IS NOT NULL THEN '' END",
    "pg_relation_filenode": "(SELECT coalesce(nullif(_c.relfilenode, 0), _c.oid) FROM hg.pg_class _c WHERE _c.oid = {0} AND _c.dbid IN (0, {db}) AND _c.relkind IN ('r', 'i', 'S', 't', 'm'))",
    "pg_relation_filepath": "(SELECT 'base/' || CAST({db} AS VARCHAR) || '/' || CAST(_c.oid AS VARCHAR) FROM hg.pg_class _c WHERE _c.oid = {0} AND _c.dbid IN (0, {db}) AND _c.relkind IN ('r', 'i', 'S', 't', 'm'))",
    "pg_size_pretty": "hg.size_pretty({0})",
    "pg_size_pretty_numeric": "hg.size_pretty(CAST({0} AS BIGINT))",
    "_pg_char_max_length/26,23": "CASE WHEN {1} = -1 THEN NULL WHEN {0} IN (1042, 1043) THEN {1} - 4 WHEN {0} IN (1560, 1562) THEN {1} END",
    "_pg_char_octet_length/26,23": "CASE WHEN {0} IN (25, 1042, 1043) THEN CASE WHEN {1} = -1 THEN 1073741824 ELSE ({1} - 4) * 4 END END",
    "_pg_numeric_precision/26,23": "CASE {0} WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 1700 THEN CASE WHEN {1} <> -1 THEN (({1} - 4) >> 16) & 65535 END WHEN 700 THEN 24 WHEN 701 THEN 53 END",
    "_pg_numeric_precision_radix/26,23": "CASE WHEN {0} IN (21, 23, 20, 700, 701) THEN 2 WHEN {0} = 1700 THEN 10 END",
    "_pg_numeric_scale/26,23": "CASE WHEN {0} IN (21, 23, 20) THEN 0 WHEN {0} = 1700 AND {1} <> -1 THEN ({1} - 4) & 65535 END",
    "_pg_datetime_precision/26,23": "CASE WHEN {0} = 1082 THEN 0 WHEN {0} IN (1083, 1114, 1184, 1266) THEN CASE WHEN {1} < 0 THEN 6 ELSE {1} END WHEN {0} = 1186 THEN CASE WHEN {1} < 0 OR {1} & 65535 = 65535 THEN 6 ELSE {1} & 65535 END END",
    "_pg_interval_type/26,23": "CASE WHEN {0} = 1186 THEN upper(nullif(regexp_extract(hg.format_type({0}, {1}, {db}, {p}), '^interval[()0-9]* (.*)$', 1), '')) END",
    "_pg_index_position/26,21": "(SELECT CAST(list_position(_i.indkey, {1}) AS INTEGER) FROM hg.pg_index _i WHERE _i.indexrelid = {0} AND _i.dbid IN (0, {db}))",
    "pg_xact_commit_timestamp": "CAST(NULL AS TIMESTAMP)",
    "pg_index_has_property": "CAST(NULL AS BOOLEAN)",
    "pg_index_column_has_property": "CASE {2} WHEN 'asc' THEN true WHEN 'desc' THEN false WHEN 'orderable' THEN true WHEN 'nulls_first' THEN false WHEN 'nulls_last' THEN true END",
    "pg_indexam_has_property": "CASE {1} WHEN 'can_order' THEN {0} = 403 WHEN 'can_unique' THEN {0} = 403 WHEN 'can_multi_col' THEN true ELSE false END",
}


def _true_type(field: str, domain: str) -> DuckdbForm:
    """Return the form of information_schema's functions that look through a domain, over a row of pg_attribute and one of pg_type."""

    def build(node: Expression, operands: Sequence[Expression], args: Sequence[str], env: Env) -> str:
        attribute, kind = (_fields(operand, node, env) for operand in operands)
        return f"CASE WHEN {kind['typtype']} = 'd' THEN {kind[domain]} ELSE {attribute[field]} END"

    return build


def _fields(row: Expression, call: Expression, env: Env) -> dict[str, str]:
    """Return the SQL of a row's columns by their names."""
    while isinstance(row, (RowCoerce, Relabel)):
        row = row.arg
    if not isinstance(row, ColumnRef) or row.key not in env.rows:
        raise refuse("this row", call)
    return {column.name: env.column(column.key) for column in env.rows[row.key]}


IMPLEMENTATIONS: Table = {
    **{key: Implementation(duckdb=template) for key, template in _TEMPLATES.items()},
    "_pg_truetypid/75,71": Implementation(duckdb=_true_type("atttypid", "typbasetype")),
    "_pg_truetypmod/75,71": Implementation(duckdb=_true_type("atttypmod", "typtypmod")),
}
