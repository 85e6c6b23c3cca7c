"""Functions of pg_catalog that are queries, as DuckDB macros in schema hg, and the views behind publications.

`Catalog` calls `install` at open, which writes them into the catalog file. They are code, not data, so that a newer node replaces them.
In a macro, `db` is the oid of the database and `p` the list of the search path's namespace oids (pg_catalog included).
Aliases of columns start with an underscore, so that they cannot capture a caller's argument.
"""

# ruff: noqa: E501 (one definition a line)

from __future__ import annotations

import hashlib
import re

import pyarrow as pa

from headgate.catalog.function import PLPGSQL
from headgate.catalog.physical import EXTRA, Cursor, one, rows, run
from headgate.catalog.relation import key_text
from headgate.catalog.replication import slot, subscription_column, subscription_history
from headgate.settings.encoding import NUMBERED, numbers
from headgate.sql.names import KEYWORDS
from headgate.types import registry

_WORDS = f" {' '.join(sorted(KEYWORDS))} "

_MACROS = rf"""
quote_ident(s) AS CASE WHEN regexp_full_match(s, '[a-z_][a-z0-9_]*') AND NOT contains('{_WORDS}', ' ' || s || ' ') THEN s
    ELSE '"' || replace(s, '"', '""') || '"' END
quote_literal(s) AS CASE WHEN contains(s, '\') THEN 'E''' || replace(replace(s, '\', '\\'), '''', '''''') || ''''
    ELSE '''' || replace(s, '''', '''''') || '''' END
lsn_out(x) AS printf('%X/%X', x >> 32, x & 4294967295)
lsn_in(s) AS (CAST('0x' || split_part(s, '/', 1) AS UBIGINT) << 32) | CAST('0x' || split_part(s, '/', 2) AS UBIGINT)
bytes_from(x, a, b) AS CASE WHEN b < greatest(a, 1) THEN CAST('' AS BLOB) ELSE x[greatest(a, 1):b] END
bool_out(x) AS CASE WHEN x THEN 't' WHEN NOT x THEN 'f' END
float_out(f) AS replace(replace(regexp_replace(regexp_replace(CAST(f AS VARCHAR), '\.0$', ''), '\.0e', 'e'), 'inf', 'Infinity'), 'nan', 'NaN')
element_out(s) AS CASE WHEN s IS NULL THEN 'NULL' WHEN s = '' OR lower(s) = 'null' OR regexp_matches(s, '[{{}}",\\\s]')
    THEN '"' || replace(replace(s, '\', '\\'), '"', '\"') || '"' ELSE s END
array_out(l) AS CASE WHEN l IS NOT NULL THEN '{{' || array_to_string(list_transform(l, lambda e: hg.element_out(e)), ',') || '}}' END
interval_out(i) AS replace(CAST(i AS VARCHAR), ' month', ' mon')
visible_class(o, db, p) AS (o IN (SELECT arg_min(_k.oid, list_position(p, _k.relnamespace)) FROM hg.pg_class _k
    WHERE _k.dbid IN (0, db) AND list_contains(p, _k.relnamespace) GROUP BY _k.relname))
table_is_visible(o, db, p) AS hg.visible_class(o, db, p)
type_is_visible(o, db, p) AS (SELECT list_contains(p, _t.typnamespace) FROM hg.pg_type _t WHERE _t.oid = o AND _t.dbid IN (0, db))
function_is_visible(o, db, p) AS (SELECT list_contains(p, _t.pronamespace) FROM hg.pg_proc _t WHERE _t.oid = o AND _t.dbid IN (0, db))
operator_is_visible(o, db, p) AS (SELECT list_contains(p, _t.oprnamespace) FROM hg.pg_operator _t WHERE _t.oid = o AND _t.dbid IN (0, db))
collation_is_visible(o, db, p) AS (SELECT list_contains(p, _t.collnamespace) FROM hg.pg_collation _t WHERE _t.oid = o AND _t.dbid IN (0, db))
class_name(o, db, p) AS (SELECT CASE WHEN hg.visible_class(_c.oid, db, p) THEN hg.quote_ident(_c.relname)
    ELSE hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_c.relname) END
    FROM hg.pg_class _c JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, db) WHERE _c.oid = o AND _c.dbid IN (0, db))
qualified_class(o, db) AS (SELECT hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_c.relname)
    FROM hg.pg_class _c JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, db) WHERE _c.oid = o AND _c.dbid IN (0, db))
nextval_of(name) AS 'nextval(' || hg.quote_literal(name) || '::regclass)'
nextvals(db, p) AS (SELECT map(list(hg.nextval_of(_s.name)), list(hg.nextval_of(_s.shown)))
    FROM (SELECT hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_c.relname) AS name,
        CASE WHEN hg.visible_class(_c.oid, db, p) THEN hg.quote_ident(_c.relname) ELSE name END AS shown
        FROM hg.pg_class _c JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, db) WHERE _c.relkind = 'S' AND _c.dbid = db) _s)
nextval_in(t) AS regexp_extract(t, 'nextval\(E?''(?:[^'']|'''')*''::regclass\)')
expression_out(t, db, p) AS CASE WHEN t LIKE '%nextval(%' THEN coalesce(replace(t, hg.nextval_in(t), hg.nextvals(db, p)[hg.nextval_in(t)]), t) ELSE t END
regclass_out(o, db, p) AS CASE WHEN o = 0 THEN '-' ELSE coalesce(hg.class_name(o, db, p), CAST(o AS VARCHAR)) END
regproc_out(o, db, p) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT CASE WHEN list_contains(p, _f.pronamespace) AND
    (SELECT count(*) FROM hg.pg_proc _g WHERE _g.proname = _f.proname AND _g.dbid IN (0, db)) = 1 THEN hg.quote_ident(_f.proname)
    ELSE hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_f.proname) END
    FROM hg.pg_proc _f JOIN hg.pg_namespace _n ON _n.oid = _f.pronamespace AND _n.dbid IN (0, db) WHERE _f.oid = o AND _f.dbid IN (0, db)), CAST(o AS VARCHAR)) END
regrole_out(o) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT hg.quote_ident(_r.rolname) FROM hg.pg_authid _r WHERE _r.oid = o), CAST(o AS VARCHAR)) END
regnamespace_out(o, db) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT hg.quote_ident(_n.nspname) FROM hg.pg_namespace _n
    WHERE _n.oid = o AND _n.dbid IN (0, db)), CAST(o AS VARCHAR)) END
regoper_out(o) AS CASE WHEN o = 0 THEN '0' ELSE coalesce((SELECT _o.oprname FROM hg.pg_operator _o WHERE _o.oid = o), CAST(o AS VARCHAR)) END
regcollation_out(o) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT hg.quote_ident(_o.collname) FROM hg.pg_collation _o WHERE _o.oid = o), CAST(o AS VARCHAR)) END
typmod_text(b, m) AS CASE WHEN b IN (1042, 1043) THEN '(' || CAST(m - 4 AS VARCHAR) || ')'
    WHEN b = 1700 THEN '(' || CAST(((m - 4) >> 16) & 65535 AS VARCHAR) || ',' || CAST(xor((m - 4) & 2047, 1024) - 1024 AS VARCHAR) || ')'
    WHEN b = 1186 THEN CASE m >> 16 WHEN 32767 THEN '' WHEN 4 THEN ' year' WHEN 2 THEN ' month' WHEN 8 THEN ' day' WHEN 1024 THEN ' hour'
        WHEN 2048 THEN ' minute' WHEN 4096 THEN ' second' WHEN 6 THEN ' year to month' WHEN 1032 THEN ' day to hour'
        WHEN 3080 THEN ' day to minute' WHEN 7176 THEN ' day to second' WHEN 3072 THEN ' hour to minute' WHEN 7168 THEN ' hour to second'
        WHEN 6144 THEN ' minute to second' ELSE '' END || CASE WHEN m & 65535 = 65535 THEN '' ELSE '(' || CAST(m & 65535 AS VARCHAR) || ')' END
    ELSE '(' || CAST(m AS VARCHAR) || ')' END
user_type(o, db, p) AS (SELECT CASE WHEN list_contains(p, _t.typnamespace) THEN '' ELSE hg.quote_ident(_n.nspname) || '.' END ||
    CASE WHEN _e.oid IS NULL THEN hg.quote_ident(_t.typname) ELSE hg.quote_ident(_e.typname) || '[]' END
    FROM hg.pg_type _t JOIN hg.pg_namespace _n ON _n.oid = _t.typnamespace AND _n.dbid IN (0, db)
    LEFT JOIN hg.pg_type _e ON _e.oid = _t.typelem AND _e.typarray = _t.oid AND _e.dbid IN (0, db) WHERE _t.oid = o AND _t.dbid IN (0, db))
format_type(o, m, db, p) AS CASE WHEN o IS NULL THEN NULL WHEN o = 0 THEN '-' ELSE coalesce((SELECT CASE WHEN m IS NULL THEN _x.plain
    WHEN m < 0 OR NOT _x.has_typmod THEN _x.unmodified ELSE _x.head || hg.typmod_text(_x.base, m) || _x.tail END
    FROM hg.type_text _x WHERE _x.oid = o), hg.user_type(o, db, p), '???') END
userbyid(o) AS coalesce((SELECT _r.rolname FROM hg.pg_authid _r WHERE _r.oid = o), 'unknown (OID=' || CAST(o AS VARCHAR) || ')')
acl_default(k, o) AS CASE WHEN k = 'c' THEN CAST([] AS VARCHAR[]) WHEN k = 'd' THEN ['=Tc/' || o, o || '=CTc/' || o]
    WHEN k = 'f' THEN ['=X/' || o, o || '=X/' || o] WHEN k IN ('l', 'T') THEN ['=U/' || o, o || '=U/' || o]
    WHEN k = 's' THEN [o || '=rwU/' || o] WHEN k = 'n' THEN [o || '=UC/' || o] WHEN k = 't' THEN [o || '=C/' || o]
    WHEN k = 'L' THEN [o || '=rw/' || o] WHEN k = 'p' THEN [o || '=sA/' || o] WHEN k IN ('F', 'S') THEN [o || '=U/' || o]
    ELSE [o || '=arwdDxt/' || o] END
encoding_name(n) AS CASE WHEN n BETWEEN 0 AND {len(NUMBERED) - 1} THEN [{", ".join(f"'{name}'" for name in NUMBERED)}][n + 1] WHEN n IS NOT NULL THEN '' END
encoding_number(s) AS CASE WHEN s IS NOT NULL THEN coalesce([{", ".join(str(number) for number in numbers().values())}][list_position(
    [{", ".join(f"'{name}'" for name in numbers())}], regexp_replace(lower(s), '[^a-z0-9]', '', 'g'))], -1) END
column_names(o, keys, db) AS (SELECT string_agg(hg.quote_ident(_a.attname), ', ' ORDER BY _u.i) FROM
    (SELECT unnest(keys) AS k, generate_subscripts(keys, 1) AS i) _u JOIN hg.pg_attribute _a ON _a.attnum = _u.k
    WHERE _a.attrelid = o AND _a.dbid IN (0, db))
indexdef(o, c, pretty, db, p) AS (SELECT CASE WHEN c = 0 THEN 'CREATE ' || CASE WHEN _i.indisunique THEN 'UNIQUE ' ELSE '' END || 'INDEX ' ||
    hg.quote_ident(_x.relname) || ' ON ' || CASE WHEN _x.relkind = 'I' THEN 'ONLY ' ELSE '' END ||
    CASE WHEN pretty AND list_contains(p, _r.relnamespace) THEN '' ELSE hg.quote_ident(_n.nspname) || '.' END || hg.quote_ident(_r.relname) || ' USING ' || coalesce(_m.amname, 'btree') ||
    ' (' || CASE WHEN pretty THEN _i.indkeypretty ELSE _i.indkeytext END || ')' || coalesce(' INCLUDE (' || _i.indincludetext || ')', '') ||
    CASE WHEN _i.indnullsnotdistinct THEN ' NULLS NOT DISTINCT' ELSE '' END ||
    coalesce(' WHERE ' || CASE WHEN pretty THEN _i.indpredpretty ELSE _i.indpred END, '')
    ELSE CASE WHEN pretty THEN _i.indcolumnspretty[c] ELSE _i.indcolumns[c] END END
    FROM hg.pg_index _i JOIN hg.pg_class _x ON _x.oid = _i.indexrelid AND _x.dbid IN (0, db)
    JOIN hg.pg_class _r ON _r.oid = _i.indrelid AND _r.dbid IN (0, db) JOIN hg.pg_namespace _n ON _n.oid = _r.relnamespace AND _n.dbid IN (0, db) LEFT JOIN hg.pg_am _m ON _m.oid = _x.relam
    WHERE _i.indexrelid = o AND _i.dbid IN (0, db))
constraintdef(o, pretty, db, p) AS (SELECT CASE _k.contype WHEN 'p' THEN 'PRIMARY KEY (' || _k.conkeytext || ')' || coalesce(' INCLUDE (' || _k.conincludetext || ')', '')
    WHEN 'u' THEN 'UNIQUE ' || CASE WHEN (SELECT _i.indnullsnotdistinct FROM hg.pg_index _i WHERE _i.indexrelid = _k.conindid AND _i.dbid = _k.dbid)
        THEN 'NULLS NOT DISTINCT ' ELSE '' END || '(' || _k.conkeytext || ')' || coalesce(' INCLUDE (' || _k.conincludetext || ')', '')
    WHEN 'c' THEN 'CHECK (' || CASE WHEN pretty THEN _k.conbinpretty ELSE _k.conbin END || ')' || CASE WHEN _k.connoinherit THEN ' NO INHERIT' ELSE '' END
    WHEN 'f' THEN 'FOREIGN KEY (' || _k.conkeytext || ') REFERENCES ' || hg.class_name(_k.confrelid, db, p) || _k.conreference END ||
    CASE WHEN _k.condeferrable THEN ' DEFERRABLE' ELSE '' END || CASE WHEN _k.condeferred THEN ' INITIALLY DEFERRED' ELSE '' END ||
    CASE WHEN NOT _k.convalidated THEN ' NOT VALID' ELSE '' END
    FROM hg.pg_constraint _k WHERE _k.oid = o AND _k.dbid IN (0, db))
description(o, c, s, db) AS (SELECT _d.description FROM hg.pg_description _d WHERE _d.objoid = o AND _d.classoid = c AND _d.objsubid = s
    AND _d.dbid IN (0, db))
any_description(o, db) AS (SELECT any_value(_d.description) FROM hg.pg_description _d WHERE _d.objoid = o AND _d.objsubid = 0 AND _d.dbid IN (0, db))
shared_description(o, c) AS (SELECT _d.description FROM hg.pg_shdescription _d WHERE _d.objoid = o AND _d.classoid = c)
is_publishable(o, db) AS coalesce((SELECT _c.relkind IN ('r', 'p') AND _c.relpersistence = 'p' AND _c.oid >= {registry.FIRST_USER_OID} FROM hg.pg_class _c
    WHERE _c.oid = o AND _c.dbid IN (0, db)), false)
replica_index(o, db) AS (SELECT max(_i.indexrelid) FROM hg.pg_class _c JOIN hg.pg_index _i ON _i.indrelid = _c.oid AND _i.dbid = _c.dbid
    WHERE _c.oid = o AND _c.dbid IN (0, db) AND CASE _c.relreplident WHEN 'd' THEN _i.indisprimary AND _i.indimmediate
    WHEN 'i' THEN _i.indisreplident ELSE false END)
partition_key(o, db) AS (SELECT _t.partkeydef FROM hg.pg_partitioned_table _t WHERE _t.partrelid = o AND _t.dbid IN (0, db))
partition_constraint(o, db) AS (SELECT _c.relpartconstraint FROM hg.pg_class _c WHERE _c.oid = o AND _c.dbid IN (0, db))
partition_root(o, db) AS (SELECT arg_max(_a.ancestor, _a.depth) FROM hg.partition_ancestor _a WHERE _a.relid = o AND _a.dbid = db)
viewdef(o, pretty, db, p) AS (SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM hg.pg_namespace _n WHERE _n.nspname = 'public' AND _n.dbid IN (0, db)
    AND list_contains(p, _n.oid)) THEN coalesce(_w.ev_qualified, _w.ev_action)
    WHEN pretty THEN coalesce(_w.ev_pretty, _w.ev_action) ELSE _w.ev_action END || ';'
    FROM hg.pg_rewrite _w WHERE _w.ev_class = o AND _w.rulename = '_RETURN' AND _w.dbid IN (0, db))
function_arguments(o, db, p) AS coalesce((SELECT coalesce(list_aggregate(list_transform(generate_series(1, len(coalesce(_f.proallargtypes, _f.proargtypes))),
    lambda i: CASE coalesce(_f.proargmodes[i], 'i') WHEN 'o' THEN 'OUT ' WHEN 'b' THEN 'INOUT ' WHEN 'v' THEN 'VARIADIC ' ELSE '' END ||
    CASE WHEN coalesce(_f.proargnames[i], '') = '' THEN '' ELSE hg.quote_ident(_f.proargnames[i]) || ' ' END ||
    coalesce(_f.argtypenames[i], '???')), 'string_agg', ', '), '') FROM hg.function_type _f WHERE _f.oid = o),
    (SELECT _u.proargumentstext FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db))
function_identity(o, db, p) AS coalesce((SELECT _u.proidentitytext FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db), hg.function_arguments(o, db, p))
function_result(o, db, p) AS coalesce((SELECT _f.result FROM hg.function_type _f WHERE _f.oid = o),
    (SELECT _u.proresulttext FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db))
function_def(o, db) AS (SELECT _u.prodef FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db)
trigger_columns(relation, attnums, db) AS (SELECT string_agg(hg.quote_ident(_a.attname), ', ' ORDER BY list_position(attnums, _a.attnum))
    FROM hg.pg_attribute _a WHERE _a.attrelid = relation AND _a.dbid = db AND list_contains(attnums, _a.attnum))
trigger_def(o, pretty, db, p) AS (SELECT 'CREATE ' || CASE WHEN _g.tgconstraint <> 0 THEN 'CONSTRAINT ' ELSE '' END || 'TRIGGER ' || hg.quote_ident(_g.tgname) ||
    CASE WHEN (_g.tgtype & 2) <> 0 THEN ' BEFORE ' WHEN (_g.tgtype & 64) <> 0 THEN ' INSTEAD OF ' ELSE ' AFTER ' END ||
    array_to_string(list_filter([CASE WHEN (_g.tgtype & 4) <> 0 THEN 'INSERT' END, CASE WHEN (_g.tgtype & 8) <> 0 THEN 'DELETE' END,
    CASE WHEN (_g.tgtype & 16) <> 0 THEN 'UPDATE' || coalesce(' OF ' || hg.trigger_columns(_g.tgrelid, _g.tgattr, db), '') END,
    CASE WHEN (_g.tgtype & 32) <> 0 THEN 'TRUNCATE' END], lambda e: e IS NOT NULL), ' OR ') ||
    ' ON ' || CASE WHEN pretty THEN hg.class_name(_g.tgrelid, db, p) ELSE hg.qualified_class(_g.tgrelid, db) END ||
    CASE WHEN _g.tgconstrrelid <> 0 THEN ' FROM ' || hg.class_name(_g.tgconstrrelid, db, p) ELSE '' END ||
    CASE WHEN _g.tgconstraint <> 0 THEN CASE WHEN _g.tgdeferrable THEN ' DEFERRABLE' ELSE ' NOT DEFERRABLE' END ||
    CASE WHEN _g.tginitdeferred THEN ' INITIALLY DEFERRED' ELSE ' INITIALLY IMMEDIATE' END ELSE '' END ||
    CASE WHEN _g.tgoldtable IS NOT NULL OR _g.tgnewtable IS NOT NULL THEN ' REFERENCING' || coalesce(' OLD TABLE AS ' || hg.quote_ident(_g.tgoldtable), '')
    || coalesce(' NEW TABLE AS ' || hg.quote_ident(_g.tgnewtable), '') ELSE '' END ||
    CASE WHEN (_g.tgtype & 1) <> 0 THEN ' FOR EACH ROW ' ELSE ' FOR EACH STATEMENT ' END ||
    coalesce('WHEN (' || CASE WHEN pretty THEN _g.tgqualpretty ELSE _g.tgqual END || ') ', '') ||
    'EXECUTE FUNCTION ' || hg.regproc_out(_g.tgfoid, db, p) || '(' || coalesce(_g.tgargstext, '') || ')'
    FROM hg.pg_trigger _g WHERE _g.oid = o AND _g.dbid = db)
array_lower(l, zero) AS CASE WHEN len(l) > 0 THEN CASE WHEN zero THEN 0 ELSE 1 END END
fitting(n, size, most) AS CASE WHEN size > most THEN CAST(error('headgate:54000:requested length too large') AS INTEGER)
    WHEN size > 131072 THEN CAST(error('headgate:53200:out of memory') AS INTEGER) ELSE n END
bytes_of(o, db, n) AS (SELECT CAST(coalesce(n, 0) AS BIGINT) FROM hg.pg_class _c WHERE _c.oid = o AND _c.dbid IN (0, db))
encode(b, form) AS CASE form WHEN 'hex' THEN lower(hex(b)) WHEN 'base64' THEN CASE WHEN octet_length(b) % 3 = 0
    THEN regexp_replace(to_base64(b), '(.{{76}})', '\1' || chr(10), 'g')
    ELSE rtrim(regexp_replace(to_base64(b), '(.{{76}})', '\1' || chr(10), 'g'), chr(10)) END
    WHEN 'escape' THEN coalesce(list_aggregate(list_transform(range(octet_length(b)), lambda i: hg.escaped(CAST('0x' || substr(hex(b), 2 * i + 1, 2) AS INTEGER))),
    'string_agg', ''), '') ELSE CAST(error('unrecognized encoding') AS VARCHAR) END
escaped(n) AS CASE WHEN n = 92 THEN chr(92) || chr(92) WHEN n = 0 OR n > 127 THEN chr(92) || (n // 64) || (n // 8 % 8) || (n % 8) ELSE chr(CAST(n AS INTEGER)) END
size_pretty(n) AS CASE WHEN abs(n) < 10240 THEN CAST(n AS VARCHAR) || ' bytes' WHEN abs(n) < 10485247 THEN CAST((n + 512) // 1024 AS VARCHAR) || ' kB'
    WHEN abs(n) < 10736893952 THEN CAST((n + 524288) // 1048576 AS VARCHAR) || ' MB' ELSE CAST((n + 536870912) // 1073741824 AS VARCHAR) || ' GB' END
serial_sequence(o, c, db) AS (SELECT hg.qualified_class(_d.objid, db) FROM hg.pg_depend _d JOIN hg.pg_attribute _a ON _a.attrelid = _d.refobjid
    AND _a.attnum = _d.refobjsubid AND _a.dbid = _d.dbid WHERE _d.dbid = db AND _d.classid = 1259 AND _d.refclassid = 1259 AND _d.refobjid = o
    AND _a.attname = c AND _d.deptype IN ('a', 'i'))
"""

_VIEWS = """
CREATE OR REPLACE VIEW hg.publication_member AS
    SELECT p.dbid, p.oid AS pubid, c.oid AS relid FROM hg.pg_publication p JOIN hg.pg_class c ON c.dbid = p.dbid
        WHERE p.puballtables AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
    UNION SELECT r.dbid, r.prpubid, r.prrelid FROM hg.pg_publication_rel r
    UNION SELECT n.dbid, n.pnpubid, c.oid FROM hg.pg_publication_namespace n JOIN hg.pg_class c ON c.dbid = n.dbid AND c.relnamespace = n.pnnspid
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p';
CREATE OR REPLACE VIEW hg.publication_leaf AS
    SELECT m.dbid, m.pubid, c.oid AS relid FROM hg.publication_member m JOIN hg.partition_ancestor a ON a.dbid = m.dbid AND a.ancestor = m.relid
        JOIN hg.pg_class c ON c.dbid = m.dbid AND c.oid = a.relid JOIN hg.pg_publication p ON p.dbid = m.dbid AND p.oid = m.pubid
        WHERE c.relkind = 'r' AND NOT p.puballtables
    UNION SELECT m.dbid, m.pubid, m.relid FROM hg.publication_member m JOIN hg.pg_class c ON c.dbid = m.dbid AND c.oid = m.relid
        WHERE c.relkind = 'r';
CREATE OR REPLACE VIEW hg.publication_table AS
    SELECT x.dbid, p.pubname, x.relid, CASE WHEN s.oid IS NULL AND NOT p.puballtables THEN r.prattrs END AS attrs,
        CASE WHEN s.oid IS NULL AND NOT p.puballtables THEN r.prqual END AS qual
    FROM hg.pg_publication p
    JOIN (SELECT l.dbid, l.pubid, l.relid, false AS root FROM hg.publication_leaf l
          UNION ALL SELECT m.dbid, m.pubid, m.relid, true FROM hg.publication_member m WHERE NOT EXISTS (
              SELECT 1 FROM hg.partition_ancestor a JOIN hg.pg_publication p ON p.dbid = m.dbid AND p.oid = m.pubid
              LEFT JOIN hg.publication_member o ON o.dbid = a.dbid AND o.relid = a.ancestor AND o.pubid = m.pubid
              WHERE a.dbid = m.dbid AND a.relid = m.relid AND a.depth > 0 AND (p.puballtables OR o.pubid IS NOT NULL))) x
        ON x.dbid = p.dbid AND x.pubid = p.oid AND x.root = p.pubviaroot
    JOIN hg.pg_class c ON c.dbid = x.dbid AND c.oid = x.relid
    LEFT JOIN hg.pg_publication_rel r ON r.dbid = x.dbid AND r.prpubid = p.oid AND r.prrelid = x.relid
    LEFT JOIN hg.pg_publication_namespace s ON s.dbid = x.dbid AND s.pnpubid = p.oid AND s.pnnspid = c.relnamespace;
CREATE OR REPLACE VIEW hg.every_attribute AS
    SELECT * FROM hg.pg_attribute
    UNION ALL BY NAME SELECT c.dbid, c.oid AS attrelid, s.attname, s.atttypid, s.attstattarget, s.attlen, s.attnum, s.attndims, s.attcacheoff,
        s.atttypmod, s.attbyval, s.attalign, s.attstorage, s.attcompression, s.attnotnull, s.atthasdef, s.atthasmissing, s.attidentity,
        s.attgenerated, s.attisdropped, s.attislocal, s.attinhcount, s.attcollation
        FROM hg.pg_attribute s CROSS JOIN hg.pg_class c
        WHERE s.dbid = 0 AND s.attrelid = 1259 AND s.attnum < 0 AND c.dbid <> 0 AND c.relkind IN ('r', 'p', 'S');
CREATE OR REPLACE VIEW hg.every_dependency AS
    SELECT dbid, classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype FROM hg.pg_depend
    UNION ALL SELECT k.dbid, 2606, k.oid, 0, 1259, k.conrelid, k.attnum, 'a'
        FROM (SELECT dbid, oid, conrelid, unnest(conkey) AS attnum FROM hg.pg_constraint WHERE dbid <> 0 AND conrelid <> 0) k
    UNION ALL SELECT k.dbid, 2606, k.oid, 0, 1259, k.confrelid, k.attnum, 'n'
        FROM (SELECT dbid, oid, confrelid, unnest(confkey) AS attnum FROM hg.pg_constraint WHERE dbid <> 0 AND contype = 'f') k
    UNION ALL SELECT k.dbid, 2606, k.oid, 0, 1259, k.conindid, 0, 'n' FROM hg.pg_constraint k WHERE k.dbid <> 0 AND k.contype = 'f'
    UNION ALL SELECT i.dbid, 1259, i.indexrelid, 0, 1259, i.indrelid, i.attnum, 'a'
        FROM (SELECT dbid, indexrelid, indrelid, unnest(indkey) AS attnum FROM hg.pg_index WHERE dbid <> 0) i
        WHERE i.attnum > 0 AND NOT EXISTS (SELECT 1 FROM hg.pg_constraint k WHERE k.dbid = i.dbid AND k.conindid = i.indexrelid
            AND k.contype IN ('p', 'u', 'x'))
    UNION ALL SELECT c.dbid, 1259, c.oid, 0, 2615, c.relnamespace, 0, 'n' FROM hg.pg_class c WHERE c.dbid <> 0 AND c.relkind = 'S'
    UNION ALL SELECT h.dbid, 1259, h.inhrelid, 0, 1259, h.inhparent, 0, 'a' FROM hg.pg_inherits h
        JOIN hg.pg_class c ON c.dbid = h.dbid AND c.oid = h.inhrelid AND c.relkind IN ('r', 'p') WHERE h.dbid <> 0
    UNION ALL SELECT c.dbid, 1247, c.reltype, 0, 1259, c.oid, 0, 'i' FROM hg.pg_class c WHERE c.dbid <> 0 AND c.reltype <> 0
    UNION ALL SELECT a.dbid, 1259, a.attrelid, a.attnum, 1247, a.atttypid, 0, 'n'
        FROM hg.pg_attribute a JOIN hg.pg_class c ON c.dbid = a.dbid AND c.oid = a.attrelid AND c.relkind NOT IN ('i', 'I')
        WHERE a.dbid <> 0 AND a.atttypid >= 16384
    UNION ALL SELECT p.dbid, 1255, p.oid, 0, 2615, p.pronamespace, 0, 'n' FROM hg.pg_proc p WHERE p.dbid <> 0
    UNION ALL SELECT p.dbid, 1255, p.oid, 0, 2612, p.prolang, 0, 'n' FROM hg.pg_proc p WHERE p.dbid <> 0 AND p.prolang >= 12000
    UNION ALL SELECT DISTINCT p.dbid, 1255, p.oid, 0, 1247, p.type, 0, 'n'
        FROM (SELECT dbid, oid, unnest(list_append(coalesce(proallargtypes, proargtypes), prorettype)) AS type FROM hg.pg_proc WHERE dbid <> 0) p
        WHERE p.type >= 16384
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1255, t.tgfoid, 0, 'n' FROM hg.pg_trigger t WHERE t.dbid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgrelid, 0, 'a' FROM hg.pg_trigger t WHERE t.dbid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgconstrrelid, 0, 'a' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND t.tgconstrrelid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgrelid, 0, 'S' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND t.tgparentid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 2620, t.tgparentid, 0, 'P' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND t.tgparentid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgrelid, t.attnum, 'n'
        FROM (SELECT dbid, oid, tgrelid, unnest(tgattr) AS attnum FROM hg.pg_trigger WHERE dbid <> 0) t;
CREATE OR REPLACE VIEW hg.type_name AS
    SELECT t.dbid, t.oid, t.typnamespace, n.nspname, coalesce(e.typname, t.typname) AS typname, CASE WHEN e.oid IS NULL THEN '' ELSE '[]' END AS brackets
    FROM hg.pg_type t JOIN hg.pg_namespace n ON n.oid = t.typnamespace AND n.dbid IN (0, t.dbid)
    LEFT JOIN hg.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid AND e.dbid IN (0, t.dbid)
"""
"""`every_attribute` is pg_attribute as PostgreSQL has it, with the system columns of users' relations. These are the same six for each, so
they are derived from pg_class instead of being stored. `every_dependency` is pg_depend with the dependencies that other catalogs imply: the
columns of constraints and indexes, the types of rows and columns. The node's own queries read hg.pg_attribute and hg.pg_depend."""


def install(cursor: Cursor) -> None:
    """Write macros, views and the texts of types, unless the file already has those of this version."""
    text = "\n".join(split_macros()) + _VIEWS + _PLPGSQL
    later = {**EXTRA, "replication_slot": slot.LATER_COLUMNS, "subscription_column": subscription_column.LATER_COLUMNS}
    later |= subscription_history.LATER_COLUMNS
    version = int.from_bytes(hashlib.sha256((text + str(later)).encode()).digest()[:7], "big")
    if one(cursor, "SELECT 1 FROM hg.counter WHERE name = 'macros' AND value = ?", [version]):
        return
    for table, columns in later.items():
        for name, kind in columns:
            run(cursor, f"ALTER TABLE hg.{table} ADD COLUMN IF NOT EXISTS {name} {kind}")
    run(cursor, "DROP TABLE IF EXISTS hg.type_text")
    run(
        cursor,
        "CREATE TABLE hg.type_text (oid UINTEGER, plain VARCHAR, unmodified VARCHAR, has_typmod BOOLEAN, base UINTEGER, head VARCHAR, tail VARCHAR)",
    )
    texts = [_type_text(pg_type) for pg_type in registry.builtin().all_types()]
    names = ["oid", "plain", "unmodified", "has_typmod", "base", "head", "tail"]
    cursor.register("hg_type_texts", pa.table(dict(zip(names, (list(column) for column in zip(*texts, strict=True)), strict=True))))
    run(cursor, "INSERT INTO hg.type_text SELECT * FROM hg_type_texts")
    cursor.unregister("hg_type_texts")
    if not one(cursor, "SELECT 1 FROM hg.pg_language WHERE lanname = 'plpgsql'"):  # not among the rows that initdb begins with
        run(cursor, _PLPGSQL)
    run(cursor, "DROP TABLE IF EXISTS hg.function_type")
    run(cursor, _FUNCTION_TYPE)
    for macro in split_macros():
        run(cursor, f"CREATE OR REPLACE MACRO hg.{macro}")
    _write_initial_privileges(cursor)
    for check in registry.INITIAL_CHECKS.values():
        values = [check.text, check.pretty, check.name]
        run(cursor, "UPDATE hg.pg_constraint SET conbin = ?, conbinpretty = ? WHERE dbid = 0 AND conname = ?", values)
    for (database,) in rows(cursor, "SELECT DISTINCT dbid FROM hg.pg_index"):
        key_text.write(cursor, database)
    for view in _VIEWS.split(";"):
        run(cursor, view)
    run(cursor, "DELETE FROM hg.counter WHERE name = 'macros'")
    run(cursor, "INSERT INTO hg.counter VALUES ('macros', ?)", [version])


def _write_initial_privileges(cursor: Cursor) -> None:
    """Fill pg_init_privs with the initial ACLs of built-in objects, so that a dump omits those that were not changed."""
    if one(cursor, "SELECT 1 FROM hg.pg_init_privs LIMIT 1"):
        return
    columns = "INSERT INTO hg.pg_init_privs (dbid, objoid, classoid, objsubid, privtype, initprivs)"
    for catalog, number, acl, oid, sub in (
        ("pg_class", 1259, "relacl", "oid", "0"),
        ("pg_attribute", 1259, "attacl", "attrelid", "attnum"),
        ("pg_proc", 1255, "proacl", "oid", "0"),
        ("pg_namespace", 2615, "nspacl", "oid", "0"),
        ("pg_language", 2612, "lanacl", "oid", "0"),
    ):
        run(cursor, f"{columns} SELECT 0, {oid}, {number}, {sub}, 'i', {acl} FROM hg.{catalog} WHERE dbid = 0 AND {acl} IS NOT NULL")
    public = "['pg_database_owner=UC/pg_database_owner', '=U/pg_database_owner']"
    run(cursor, f"{columns} VALUES (0, 2200, 2615, 0, 'i', {public})")


_PLPGSQL = f"""
INSERT INTO hg.pg_language (dbid, oid, lanname, lanowner, lanispl, lanpltrusted, lanplcallfoid, laninline, lanvalidator)
    VALUES (0, {PLPGSQL}, 'plpgsql', 10, true, true, 0, 0, 0)
"""

_FUNCTION_TYPE = """
CREATE TABLE hg.function_type AS SELECT f.oid, f.proargnames, f.proargmodes, f.proallargtypes, f.proargtypes,
    (SELECT list(x.plain ORDER BY u.i) FROM (SELECT unnest(coalesce(f.proallargtypes, f.proargtypes)) AS k,
        generate_subscripts(coalesce(f.proallargtypes, f.proargtypes), 1) AS i) u JOIN hg.type_text x ON x.oid = u.k) AS argtypenames,
    CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END || r.plain AS result
    FROM hg.pg_proc f LEFT JOIN hg.type_text r ON r.oid = f.prorettype
"""


def split_macros() -> list[str]:
    """Return the definitions, one per macro. A line that does not start with a blank begins a new one.

    Aliases get the macro's number, so that a macro that calls another does not capture its arguments.
    """
    macros: list[str] = []
    for line in _MACROS.strip().splitlines():
        if line.startswith(" "):
            macros[-1] += "\n" + line
        else:
            macros.append(line)
    return [re.sub(r'(?<![\w"])_([a-z])\b', rf"_{number}\1", macro) for number, macro in enumerate(macros)]


def _type_text(pg_type: registry.PgType) -> tuple[object, ...]:
    element = registry.builtin().find(pg_type.element) if pg_type.is_array else pg_type
    base = pg_type if element is None else element
    text = base.unmodified
    head, tail = text, ""
    for suffix in (" without time zone", " with time zone"):
        if text.endswith(suffix):
            head, tail = text.removesuffix(suffix), suffix
    if base.oid in (registry.BPCHAR, registry.BIT):
        head = {registry.BPCHAR: "character", registry.BIT: "bit"}[base.oid]
    return (pg_type.oid, pg_type.plain, pg_type.unmodified, base.has_typmod, base.oid, head, tail + ("[]" if pg_type.is_array else ""))
