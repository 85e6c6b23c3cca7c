-- every_attribute is pg_attribute as PostgreSQL has it, with the system columns of users' relations. These are the same six for each, so
-- they are derived from pg_class instead of being stored. every_dependency is pg_depend with the dependencies that other catalogs imply: the
-- columns of constraints and indexes, the types of rows and columns, the references in texts. The node's own queries read hg.pg_attribute
-- and hg.pg_depend.
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
CREATE OR REPLACE VIEW hg.text_reference AS
    SELECT DISTINCT t.dbid, t.classid, t.objid, CAST(unnest(regexp_extract_all(t.text, 'pg_oid[.]"([0-9]+)"', 1)) AS UINTEGER) AS refobjid FROM (
        SELECT dbid, 2604 AS classid, oid AS objid, adbin AS text FROM hg.pg_attrdef
        UNION ALL SELECT dbid, 2606, oid, conbin FROM hg.pg_constraint
        UNION ALL SELECT dbid, 1259, indexrelid, concat_ws(' ', indexprs, indpred) FROM hg.pg_index
        UNION ALL SELECT dbid, 3256, oid, concat_ws(' ', polqual, polwithcheck) FROM hg.pg_policy
        UNION ALL SELECT dbid, 2620, oid, tgqual FROM hg.pg_trigger
        UNION ALL SELECT dbid, 1247, oid, typdefaultbin FROM hg.pg_type
        UNION ALL SELECT dbid, 1255, oid, proargdefaults FROM hg.pg_proc
        UNION ALL SELECT dbid, 2618, oid, ev_action FROM hg.pg_rewrite) t WHERE t.dbid <> 0;
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
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1255, t.tgfoid, 0, 'n' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND NOT t.tgisinternal
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgrelid, 0, 'a' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND NOT t.tgisinternal
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgconstrrelid, 0, 'a' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND NOT t.tgisinternal AND t.tgconstrrelid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgrelid, 0, 'S' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND NOT t.tgisinternal AND t.tgparentid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 2620, t.tgparentid, 0, 'P' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND NOT t.tgisinternal AND t.tgparentid <> 0
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 2606, t.tgconstraint, 0, 'i' FROM hg.pg_trigger t WHERE t.dbid <> 0 AND t.tgisinternal
    UNION ALL SELECT t.dbid, 2620, t.oid, 0, 1259, t.tgrelid, t.attnum, 'n'
        FROM (SELECT dbid, oid, tgrelid, unnest(tgattr) AS attnum FROM hg.pg_trigger WHERE dbid <> 0) t
    UNION ALL SELECT t.dbid, 1247, t.oid, 0, 1247, t.typbasetype, 0, 'n' FROM hg.pg_type t WHERE t.dbid <> 0 AND t.typbasetype >= 16384
    UNION ALL SELECT r.dbid, r.classid, r.objid, 0, 1247, t.oid, 0, 'n' FROM hg.text_reference r
        JOIN hg.pg_type t ON t.dbid = r.dbid AND t.oid = r.refobjid
    UNION ALL SELECT r.dbid, r.classid, r.objid, 0, 1255, p.oid, 0, 'n' FROM hg.text_reference r
        JOIN hg.pg_proc p ON p.dbid = r.dbid AND p.oid = r.refobjid;
CREATE OR REPLACE VIEW hg.type_name AS
    SELECT t.dbid, t.oid, t.typnamespace, n.nspname, coalesce(e.typname, t.typname) AS typname, CASE WHEN e.oid IS NULL THEN '' ELSE '[]' END AS brackets
    FROM hg.pg_type t JOIN hg.pg_namespace n ON n.oid = t.typnamespace AND n.dbid IN (0, t.dbid)
    LEFT JOIN hg.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid AND e.dbid IN (0, t.dbid)
