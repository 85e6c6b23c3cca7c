-- Functions of pg_catalog that are queries. In a macro, db is the oid of the database and p the list of the search path's namespace oids
-- (pg_catalog included). Aliases of columns start with an underscore, so that they cannot capture a caller's argument.
CREATE OR REPLACE MACRO hg.quote_literal(s) AS CASE WHEN contains(s, '\') THEN 'E''' || replace(replace(s, '\', '\\'), '''', '''''') || ''''
    ELSE '''' || replace(s, '''', '''''') || '''' END
CREATE OR REPLACE MACRO hg.lsn_out(x) AS printf('%X/%X', x >> 32, x & 4294967295)
CREATE OR REPLACE MACRO hg.lsn_in(s) AS (CAST('0x' || split_part(s, '/', 1) AS UBIGINT) << 32) | CAST('0x' || split_part(s, '/', 2) AS UBIGINT)
CREATE OR REPLACE MACRO hg.bytes_from(x, a, b) AS CASE WHEN b < greatest(a, 1) THEN CAST('' AS BLOB) ELSE x[greatest(a, 1):b] END
CREATE OR REPLACE MACRO hg.bool_out(x) AS CASE WHEN x THEN 't' WHEN NOT x THEN 'f' END
CREATE OR REPLACE MACRO hg.float_out(f) AS replace(replace(regexp_replace(regexp_replace(CAST(f AS VARCHAR), '\.0$', ''), '\.0e', 'e'), 'inf', 'Infinity'), 'nan', 'NaN')
CREATE OR REPLACE MACRO hg.element_out(s) AS CASE WHEN s IS NULL THEN 'NULL' WHEN s = '' OR lower(s) = 'null' OR regexp_matches(s, '[{}",\\\s]')
    THEN '"' || replace(replace(s, '\', '\\'), '"', '\"') || '"' ELSE s END
CREATE OR REPLACE MACRO hg.array_out(l) AS CASE WHEN l IS NOT NULL THEN '{' || array_to_string(list_transform(l, lambda e: hg.element_out(e)), ',') || '}' END
CREATE OR REPLACE MACRO hg.interval_out(i) AS replace(CAST(i AS VARCHAR), ' month', ' mon')
CREATE OR REPLACE MACRO hg.visible_class(o, db, p) AS (o IN (SELECT arg_min(_k.oid, list_position(p, _k.relnamespace)) FROM hg.pg_class _k
    WHERE _k.dbid IN (0, db) AND list_contains(p, _k.relnamespace) GROUP BY _k.relname))
CREATE OR REPLACE MACRO hg.table_is_visible(o, db, p) AS hg.visible_class(o, db, p)
CREATE OR REPLACE MACRO hg.visible_type(o, db, p) AS (o IN (SELECT arg_min(_k.oid, list_position(p, _k.typnamespace)) FROM hg.pg_type _k
    WHERE _k.dbid IN (0, db) AND list_contains(p, _k.typnamespace) GROUP BY _k.typname))
CREATE OR REPLACE MACRO hg.visible_function(o, db, p) AS (o IN (SELECT arg_min(_k.oid, list_position(p, _k.pronamespace)) FROM hg.pg_proc _k
    WHERE _k.dbid IN (0, db) AND list_contains(p, _k.pronamespace) GROUP BY _k.proname, _k.proargtypes))
CREATE OR REPLACE MACRO hg.type_is_visible(o, db, p) AS hg.visible_type(o, db, p)
CREATE OR REPLACE MACRO hg.function_is_visible(o, db, p) AS hg.visible_function(o, db, p)
CREATE OR REPLACE MACRO hg.operator_is_visible(o, db, p) AS (SELECT list_contains(p, _t.oprnamespace) FROM hg.pg_operator _t WHERE _t.oid = o AND _t.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.collation_is_visible(o, db, p) AS (SELECT list_contains(p, _t.collnamespace) FROM hg.pg_collation _t WHERE _t.oid = o AND _t.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.class_name(o, db, p) AS (SELECT CASE WHEN hg.visible_class(_c.oid, db, p) THEN hg.quote_ident(_c.relname)
    ELSE hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_c.relname) END
    FROM hg.pg_class _c JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, db) WHERE _c.oid = o AND _c.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.qualified_class(o, db) AS (SELECT hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_c.relname)
    FROM hg.pg_class _c JOIN hg.pg_namespace _n ON _n.oid = _c.relnamespace AND _n.dbid IN (0, db) WHERE _c.oid = o AND _c.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.reference(o) AS 'pg_oid."' || o || '"'
CREATE OR REPLACE MACRO hg.object_names(db, p) AS (SELECT map(list(hg.reference(_s.oid)), list(CASE WHEN _s.visible THEN '' ELSE hg.quote_ident(_n.nspname) || '.' END || hg.quote_ident(_s.name)))
    FROM (SELECT _t.oid, _t.typname AS name, _t.typnamespace AS namespace, hg.visible_type(_t.oid, db, p) AS visible FROM hg.pg_type _t WHERE _t.dbid = db
        UNION ALL SELECT _f.oid, _f.proname, _f.pronamespace, hg.visible_function(_f.oid, db, p) FROM hg.pg_proc _f WHERE _f.dbid = db
        UNION ALL SELECT _c.oid, _c.relname, _c.relnamespace, hg.visible_class(_c.oid, db, p) FROM hg.pg_class _c WHERE _c.dbid IN (0, db)
        UNION ALL SELECT _o.oid, _o.nspname, _o.oid, true FROM hg.pg_namespace _o WHERE _o.dbid IN (0, db)) _s
    JOIN hg.pg_namespace _n ON _n.oid = _s.namespace AND _n.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.expression_out(t, db, p) AS CASE WHEN contains(t, 'pg_oid."') THEN (SELECT list_reduce(list_prepend(t,
    list_concat(regexp_extract_all(t, '''pg_oid\."[0-9]+"'), regexp_extract_all(t, 'pg_oid\."[0-9]+"'))), lambda a, x: replace(a, x, CASE WHEN x[1] = ''''
    THEN coalesce('''' || replace(_m.names[x[2:]], '''', ''''''), x) ELSE coalesce(_m.names[x], x) END)) FROM (SELECT hg.object_names(db, p) AS names) _m) ELSE t END
CREATE OR REPLACE MACRO hg.get_expr(t, db, p) AS replace(hg.expression_out(t, db, p), chr(31) || ', ', ', ')
CREATE OR REPLACE MACRO hg.regclass_out(o, db, p) AS CASE WHEN o = 0 THEN '-' ELSE coalesce(hg.class_name(o, db, p), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.regproc_out(o, db, p) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT CASE WHEN list_contains(p, _f.pronamespace) AND
    (SELECT count(*) FROM hg.pg_proc _g WHERE _g.proname = _f.proname AND _g.dbid IN (0, db)) = 1 THEN hg.quote_ident(_f.proname)
    ELSE hg.quote_ident(_n.nspname) || '.' || hg.quote_ident(_f.proname) END
    FROM hg.pg_proc _f JOIN hg.pg_namespace _n ON _n.oid = _f.pronamespace AND _n.dbid IN (0, db) WHERE _f.oid = o AND _f.dbid IN (0, db)), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.regrole_out(o) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT hg.quote_ident(_r.rolname) FROM hg.pg_authid _r WHERE _r.oid = o), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.regnamespace_out(o, db) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT hg.quote_ident(_n.nspname) FROM hg.pg_namespace _n
    WHERE _n.oid = o AND _n.dbid IN (0, db)), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.regoper_out(o) AS CASE WHEN o = 0 THEN '0' ELSE coalesce((SELECT _o.oprname FROM hg.pg_operator _o WHERE _o.oid = o), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.regcollation_out(o) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT hg.quote_ident(_o.collname) FROM hg.pg_collation _o WHERE _o.oid = o), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.typmod_text(b, m) AS CASE WHEN b IN (1042, 1043) THEN '(' || CAST(m - 4 AS VARCHAR) || ')'
    WHEN b = 1700 THEN '(' || CAST(((m - 4) >> 16) & 65535 AS VARCHAR) || ',' || CAST(xor((m - 4) & 2047, 1024) - 1024 AS VARCHAR) || ')'
    WHEN b = 1186 THEN CASE m >> 16 WHEN 32767 THEN '' WHEN 4 THEN ' year' WHEN 2 THEN ' month' WHEN 8 THEN ' day' WHEN 1024 THEN ' hour'
        WHEN 2048 THEN ' minute' WHEN 4096 THEN ' second' WHEN 6 THEN ' year to month' WHEN 1032 THEN ' day to hour'
        WHEN 3080 THEN ' day to minute' WHEN 7176 THEN ' day to second' WHEN 3072 THEN ' hour to minute' WHEN 7168 THEN ' hour to second'
        WHEN 6144 THEN ' minute to second' ELSE '' END || CASE WHEN m & 65535 = 65535 THEN '' ELSE '(' || CAST(m & 65535 AS VARCHAR) || ')' END
    ELSE '(' || CAST(m AS VARCHAR) || ')' END
CREATE OR REPLACE MACRO hg.user_type(o, db, p) AS (SELECT CASE WHEN hg.visible_type(coalesce(_e.oid, _t.oid), db, p) THEN '' ELSE hg.quote_ident(_n.nspname) || '.' END ||
    CASE WHEN _e.oid IS NULL THEN hg.quote_ident(_t.typname) ELSE hg.quote_ident(_e.typname) || '[]' END
    FROM hg.pg_type _t JOIN hg.pg_namespace _n ON _n.oid = _t.typnamespace AND _n.dbid IN (0, db)
    LEFT JOIN hg.pg_type _e ON _e.oid = _t.typelem AND _e.typarray = _t.oid AND _e.dbid IN (0, db) WHERE _t.oid = o AND _t.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.format_type(o, m, db, p) AS CASE WHEN o IS NULL THEN NULL WHEN o = 0 THEN '-' ELSE coalesce((SELECT CASE WHEN m IS NULL THEN _x.plain
    WHEN m < 0 OR NOT _x.has_typmod THEN _x.unmodified ELSE _x.head || hg.typmod_text(_x.base, m) || _x.tail END
    FROM hg.type_text _x WHERE _x.oid = o), hg.user_type(o, db, p), '???') END
CREATE OR REPLACE MACRO hg.regprocedure_out(o, db, p) AS CASE WHEN o = 0 THEN '-' ELSE coalesce((SELECT
    CASE WHEN hg.function_is_visible(_f.oid, db, p) THEN '' ELSE hg.quote_ident(_n.nspname) || '.' END || hg.quote_ident(_f.proname) ||
    '(' || coalesce((SELECT string_agg(hg.format_type(_a.t, NULL, db, p), ',' ORDER BY _a.i) FROM (SELECT unnest(_f.proargtypes) AS t, generate_subscripts(_f.proargtypes, 1) AS i) _a), '') || ')'
    FROM hg.pg_proc _f JOIN hg.pg_namespace _n ON _n.oid = _f.pronamespace AND _n.dbid IN (0, db) WHERE _f.oid = o AND _f.dbid IN (0, db)), CAST(o AS VARCHAR)) END
CREATE OR REPLACE MACRO hg.userbyid(o) AS coalesce((SELECT _r.rolname FROM hg.pg_authid _r WHERE _r.oid = o), 'unknown (OID=' || CAST(o AS VARCHAR) || ')')
CREATE OR REPLACE MACRO hg.acl_default(k, o) AS CASE WHEN k = 'c' THEN CAST([] AS VARCHAR[]) WHEN k = 'd' THEN ['=Tc/' || o, o || '=CTc/' || o]
    WHEN k = 'f' THEN ['=X/' || o, o || '=X/' || o] WHEN k IN ('l', 'T') THEN ['=U/' || o, o || '=U/' || o]
    WHEN k = 's' THEN [o || '=rwU/' || o] WHEN k = 'n' THEN [o || '=UC/' || o] WHEN k = 't' THEN [o || '=C/' || o]
    WHEN k = 'L' THEN [o || '=rw/' || o] WHEN k = 'p' THEN [o || '=sA/' || o] WHEN k IN ('F', 'S') THEN [o || '=U/' || o]
    ELSE [o || '=arwdDxt/' || o] END
CREATE OR REPLACE MACRO hg.column_names(o, keys, db) AS (SELECT string_agg(hg.quote_ident(_a.attname), ', ' ORDER BY _u.i) FROM
    (SELECT unnest(keys) AS k, generate_subscripts(keys, 1) AS i) _u JOIN hg.pg_attribute _a ON _a.attnum = _u.k
    WHERE _a.attrelid = o AND _a.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.indexdef(o, c, pretty, db, p) AS (SELECT CASE WHEN c = 0 THEN 'CREATE ' || CASE WHEN _i.indisunique THEN 'UNIQUE ' ELSE '' END || 'INDEX ' ||
    hg.quote_ident(_x.relname) || ' ON ' || CASE WHEN _x.relkind = 'I' THEN 'ONLY ' ELSE '' END ||
    CASE WHEN pretty AND hg.visible_class(_r.oid, db, p) THEN '' ELSE hg.quote_ident(_n.nspname) || '.' END || hg.quote_ident(_r.relname) || ' USING ' || coalesce(_m.amname, 'btree') ||
    ' (' || hg.expression_out(CASE WHEN pretty THEN _i.indkeypretty ELSE _i.indkeytext END, db, p) || ')' || coalesce(' INCLUDE (' || _i.indincludetext || ')', '') ||
    CASE WHEN _i.indnullsnotdistinct THEN ' NULLS NOT DISTINCT' ELSE '' END ||
    coalesce(' WHERE ' || hg.expression_out(CASE WHEN pretty THEN _i.indpredpretty ELSE _i.indpred END, db, p), '')
    ELSE hg.expression_out(CASE WHEN pretty THEN _i.indcolumnspretty[c] ELSE _i.indcolumns[c] END, db, p) END
    FROM hg.pg_index _i JOIN hg.pg_class _x ON _x.oid = _i.indexrelid AND _x.dbid IN (0, db)
    JOIN hg.pg_class _r ON _r.oid = _i.indrelid AND _r.dbid IN (0, db) JOIN hg.pg_namespace _n ON _n.oid = _r.relnamespace AND _n.dbid IN (0, db) LEFT JOIN hg.pg_am _m ON _m.oid = _x.relam
    WHERE _i.indexrelid = o AND _i.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.constraintdef(o, pretty, db, p) AS (SELECT CASE _k.contype WHEN 'p' THEN 'PRIMARY KEY (' || _k.conkeytext || ')' || coalesce(' INCLUDE (' || _k.conincludetext || ')', '')
    WHEN 'u' THEN 'UNIQUE ' || CASE WHEN (SELECT _i.indnullsnotdistinct FROM hg.pg_index _i WHERE _i.indexrelid = _k.conindid AND _i.dbid = _k.dbid)
        THEN 'NULLS NOT DISTINCT ' ELSE '' END || '(' || _k.conkeytext || ')' || coalesce(' INCLUDE (' || _k.conincludetext || ')', '')
    WHEN 'c' THEN 'CHECK (' || hg.expression_out(CASE WHEN pretty THEN _k.conbinpretty ELSE _k.conbin END, db, p) || ')' || CASE WHEN _k.connoinherit THEN ' NO INHERIT' ELSE '' END
    WHEN 'f' THEN 'FOREIGN KEY (' || _k.conkeytext || ') REFERENCES ' || hg.class_name(_k.confrelid, db, p) || _k.conreference END ||
    CASE WHEN _k.condeferrable THEN ' DEFERRABLE' ELSE '' END || CASE WHEN _k.condeferred THEN ' INITIALLY DEFERRED' ELSE '' END ||
    CASE WHEN NOT _k.convalidated THEN ' NOT VALID' ELSE '' END
    FROM hg.pg_constraint _k WHERE _k.oid = o AND _k.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.description(o, c, s, db) AS (SELECT _d.description FROM hg.pg_description _d WHERE _d.objoid = o AND _d.classoid = c AND _d.objsubid = s
    AND _d.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.any_description(o, db) AS (SELECT any_value(_d.description) FROM hg.pg_description _d WHERE _d.objoid = o AND _d.objsubid = 0 AND _d.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.shared_description(o, c) AS (SELECT _d.description FROM hg.pg_shdescription _d WHERE _d.objoid = o AND _d.classoid = c)
CREATE OR REPLACE MACRO hg.is_publishable(o, db) AS coalesce((SELECT _c.relkind IN ('r', 'p') AND _c.relpersistence = 'p' AND _c.oid >= 16384 FROM hg.pg_class _c
    WHERE _c.oid = o AND _c.dbid IN (0, db)), false)
CREATE OR REPLACE MACRO hg.replica_index(o, db) AS (SELECT max(_i.indexrelid) FROM hg.pg_class _c JOIN hg.pg_index _i ON _i.indrelid = _c.oid AND _i.dbid = _c.dbid
    WHERE _c.oid = o AND _c.dbid IN (0, db) AND CASE _c.relreplident WHEN 'd' THEN _i.indisprimary AND _i.indimmediate
    WHEN 'i' THEN _i.indisreplident ELSE false END)
CREATE OR REPLACE MACRO hg.partition_key(o, db) AS (SELECT _t.partkeydef FROM hg.pg_partitioned_table _t WHERE _t.partrelid = o AND _t.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.partition_constraint(o, db, p) AS (SELECT hg.expression_out(_c.relpartconstraint, db, p) FROM hg.pg_class _c WHERE _c.oid = o AND _c.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.partition_root(o, db) AS (SELECT arg_max(_a.ancestor, _a.depth) FROM hg.partition_ancestor _a WHERE _a.relid = o AND _a.dbid = db)
CREATE OR REPLACE MACRO hg.viewdef(o, pretty, db, p) AS (SELECT hg.expression_out(CASE WHEN pretty THEN _w.ev_pretty ELSE _w.ev_action END, db, p) || ';'
    FROM hg.pg_rewrite _w WHERE _w.ev_class = o AND _w.rulename = '_RETURN' AND _w.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.function_arguments(o, db, p) AS coalesce((SELECT coalesce(list_aggregate(list_transform(generate_series(1, len(coalesce(_f.proallargtypes, _f.proargtypes))),
    lambda i: CASE coalesce(_f.proargmodes[i], 'i') WHEN 'o' THEN 'OUT ' WHEN 'b' THEN 'INOUT ' WHEN 'v' THEN 'VARIADIC ' ELSE '' END ||
    CASE WHEN coalesce(_f.proargnames[i], '') = '' THEN '' ELSE hg.quote_ident(_f.proargnames[i]) || ' ' END ||
    coalesce(_f.argtypenames[i], '???')), 'string_agg', ', '), '') FROM hg.function_type _f WHERE _f.oid = o),
    (SELECT hg.expression_out(_u.proargumentstext, db, p) FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db))
CREATE OR REPLACE MACRO hg.function_identity(o, db, p) AS coalesce((SELECT hg.expression_out(_u.proidentitytext, db, p) FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db), hg.function_arguments(o, db, p))
CREATE OR REPLACE MACRO hg.function_result(o, db, p) AS coalesce((SELECT _f.result FROM hg.function_type _f WHERE _f.oid = o),
    (SELECT hg.expression_out(_u.proresulttext, db, p) FROM hg.pg_proc _u WHERE _u.oid = o AND _u.dbid = db))
CREATE OR REPLACE MACRO hg.argument_default(o, n, db, p) AS (SELECT CASE WHEN coalesce(_u.proargmodes[n], 'i') IN ('i', 'b', 'v') AND _u.place > 0
    THEN hg.expression_out(string_split(_u.proargdefaults, chr(31) || ', ')[_u.place], db, p) END
    FROM (SELECT *, CASE WHEN _f.proargmodes IS NULL THEN n ELSE len(list_filter(_f.proargmodes[1:n], lambda m: m IN ('i', 'b', 'v'))) END
        - _f.pronargs + _f.pronargdefaults AS place FROM hg.pg_proc _f WHERE _f.oid = o AND _f.dbid = db) _u)
CREATE OR REPLACE MACRO hg.function_def(o, db, p) AS (SELECT 'CREATE OR REPLACE ' || CASE WHEN _u.prokind = 'p' THEN 'PROCEDURE ' ELSE 'FUNCTION ' END || hg.quote_ident(_n.nspname) || '.' ||
    hg.quote_ident(_u.proname) || hg.expression_out(_u.prodef, db, p) FROM hg.pg_proc _u JOIN hg.pg_namespace _n ON _n.oid = _u.pronamespace AND _n.dbid IN (0, db)
    WHERE _u.oid = o AND _u.dbid = db)
CREATE OR REPLACE MACRO hg.trigger_columns(relation, attnums, db) AS (SELECT string_agg(hg.quote_ident(_a.attname), ', ' ORDER BY list_position(attnums, _a.attnum))
    FROM hg.pg_attribute _a WHERE _a.attrelid = relation AND _a.dbid = db AND list_contains(attnums, _a.attnum))
CREATE OR REPLACE MACRO hg.trigger_def(o, pretty, db, p) AS (SELECT 'CREATE ' || CASE WHEN _g.tgconstraint <> 0 THEN 'CONSTRAINT ' ELSE '' END || 'TRIGGER ' || hg.quote_ident(_g.tgname) ||
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
    coalesce('WHEN (' || hg.expression_out(CASE WHEN pretty THEN _g.tgqualpretty ELSE _g.tgqual END, db, p) || ') ', '') ||
    'EXECUTE FUNCTION ' || hg.regproc_out(_g.tgfoid, db, p) || '(' || coalesce(_g.tgargstext, '') || ')'
    FROM hg.pg_trigger _g WHERE _g.oid = o AND _g.dbid = db)
CREATE OR REPLACE MACRO hg.array_lower(l, zero) AS CASE WHEN len(l) > 0 THEN CASE WHEN zero THEN 0 ELSE 1 END END
CREATE OR REPLACE MACRO hg.fitting(n, size, most) AS CASE WHEN size > most THEN CAST(error('headgate:54000:requested length too large') AS INTEGER)
    WHEN size > 131072 THEN CAST(error('headgate:53200:out of memory') AS INTEGER) ELSE n END
CREATE OR REPLACE MACRO hg.bytes_of(o, db, n) AS (SELECT CAST(coalesce(n, 0) AS BIGINT) FROM hg.pg_class _c WHERE _c.oid = o AND _c.dbid IN (0, db))
CREATE OR REPLACE MACRO hg.encode(b, form) AS CASE form WHEN 'hex' THEN lower(hex(b)) WHEN 'base64' THEN CASE WHEN octet_length(b) % 3 = 0
    THEN regexp_replace(to_base64(b), '(.{76})', '\1' || chr(10), 'g')
    ELSE rtrim(regexp_replace(to_base64(b), '(.{76})', '\1' || chr(10), 'g'), chr(10)) END
    WHEN 'escape' THEN coalesce(list_aggregate(list_transform(range(octet_length(b)), lambda i: hg.escaped(CAST('0x' || substr(hex(b), 2 * i + 1, 2) AS INTEGER))),
    'string_agg', ''), '') ELSE CAST(error('unrecognized encoding') AS VARCHAR) END
CREATE OR REPLACE MACRO hg.escaped(n) AS CASE WHEN n = 92 THEN chr(92) || chr(92) WHEN n = 0 OR n > 127 THEN chr(92) || (n // 64) || (n // 8 % 8) || (n % 8) ELSE chr(CAST(n AS INTEGER)) END
CREATE OR REPLACE MACRO hg.size_pretty(n) AS CASE WHEN abs(n) < 10240 THEN CAST(n AS VARCHAR) || ' bytes' WHEN abs(n) < 10485247 THEN CAST((n + 512) // 1024 AS VARCHAR) || ' kB'
    WHEN abs(n) < 10736893952 THEN CAST((n + 524288) // 1048576 AS VARCHAR) || ' MB' ELSE CAST((n + 536870912) // 1073741824 AS VARCHAR) || ' GB' END
CREATE OR REPLACE MACRO hg.serial_sequence(o, c, db) AS (SELECT hg.qualified_class(_d.objid, db) FROM hg.pg_depend _d JOIN hg.pg_attribute _a ON _a.attrelid = _d.refobjid
    AND _a.attnum = _d.refobjsubid AND _a.dbid = _d.dbid WHERE _d.dbid = db AND _d.classid = 1259 AND _d.refclassid = 1259 AND _d.refobjid = o
    AND _a.attname = c AND _d.deptype IN ('a', 'i'))
