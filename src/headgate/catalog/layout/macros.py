"""Functions of pg_catalog that are queries, as DuckDB macros in schema hg, and the views behind publications.

`Catalog` calls `install` at open, which writes them into the catalog file. They are code, not data, so that a newer node replaces them.
macros.sql and views.sql have those that contain nothing from Python's code.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources

import pyarrow as pa

from headgate.catalog.physical import Cursor, one, rows, run
from headgate.catalog.relation import key_text
from headgate.settings.encoding import NUMBERED, numbers
from headgate.sql.names import KEYWORDS
from headgate.types import registry


def install(cursor: Cursor) -> None:
    """Write macros, views and the texts of types, unless the file already has those of this version."""
    macros, views = statements(), _file_statements("views.sql")
    text = "".join((*macros, *views))
    version = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    if one(cursor, "SELECT 1 FROM hg.counter WHERE name = 'macros' AND value = ?", [version]):
        return
    run(cursor, "DROP TABLE IF EXISTS hg.type_text")
    definition = "oid UINTEGER, plain VARCHAR, unmodified VARCHAR, has_typmod BOOLEAN, base UINTEGER, head VARCHAR, tail VARCHAR"
    run(cursor, f"CREATE TABLE hg.type_text ({definition})")
    texts = [_type_text(pg_type) for pg_type in registry.builtin().all_types()]
    cursor.register("hg_type_texts", pa.table([list(column) for column in zip(*texts, strict=True)], names=[*"abcdefg"]))
    run(cursor, "INSERT INTO hg.type_text SELECT * FROM hg_type_texts")
    cursor.unregister("hg_type_texts")
    run(cursor, "DROP TABLE IF EXISTS hg.function_type")
    run(cursor, _FUNCTION_TYPE)
    for macro in macros:
        run(cursor, macro)
    _write_initial_privileges(cursor)
    for check in registry.INITIAL_CHECKS.values():
        values = [check.text, check.pretty, check.name]
        run(cursor, "UPDATE hg.pg_constraint SET conbin = ?, conbinpretty = ? WHERE dbid = 0 AND conname = ?", values)
    for (database,) in rows(cursor, "SELECT DISTINCT dbid FROM hg.pg_index"):
        key_text.write(cursor, database)
    for view in views:
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
    ):
        run(cursor, f"{columns} SELECT 0, {oid}, {number}, {sub}, 'i', {acl} FROM hg.{catalog} WHERE dbid = 0 AND {acl} IS NOT NULL")
    public = "['pg_database_owner=UC/pg_database_owner', '=U/pg_database_owner']"
    run(cursor, f"{columns} VALUES (0, 2200, 2615, 0, 'i', {public})")


_FUNCTION_TYPE = """
CREATE TABLE hg.function_type AS SELECT f.oid, f.proargnames, f.proargmodes, f.proallargtypes, f.proargtypes,
    (SELECT list(x.plain ORDER BY u.i) FROM (SELECT unnest(coalesce(f.proallargtypes, f.proargtypes)) AS k,
        generate_subscripts(coalesce(f.proallargtypes, f.proargtypes), 1) AS i) u JOIN hg.type_text x ON x.oid = u.k) AS argtypenames,
    CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END || r.plain AS result
    FROM hg.pg_proc f LEFT JOIN hg.type_text r ON r.oid = f.prorettype WHERE f.dbid = 0
"""


def statements() -> list[str]:
    """Return the statements for the macros.

    Aliases get the macro's number, so that a macro that calls another does not capture its arguments.
    """
    macros = [*map("CREATE OR REPLACE MACRO hg.{}".format, _computed_macros()), *_file_statements("macros.sql")]
    return [re.sub(r'(?<![\w"])_([a-z])\b', rf"_{number}\1", macro) for number, macro in enumerate(macros)]


def _computed_macros() -> list[str]:
    """Return the macros that contain lists which Python's code has too."""
    words = f" {' '.join(sorted(KEYWORDS))} "
    encodings = numbers()
    return [
        rf"""quote_ident(s) AS CASE WHEN regexp_full_match(s, '[a-z_][a-z0-9_]*') AND NOT contains('{words}', ' ' || s || ' ') THEN s
            ELSE '"' || replace(s, '"', '""') || '"' END""",
        f"""encoding_name(n) AS CASE WHEN n BETWEEN 0 AND {len(NUMBERED) - 1} THEN {[*NUMBERED]}[n + 1] WHEN n IS NOT NULL THEN '' END""",
        f"""encoding_number(s) AS CASE WHEN s IS NOT NULL THEN coalesce({[*encodings.values()]}[list_position({[*encodings]},
            regexp_replace(lower(s), '[^a-z0-9]', '', 'g'))], -1) END""",
    ]


def _file_statements(name: str) -> list[str]:
    """Return the statements in a file, which begin with a comment."""
    return re.split(r"^(?=CREATE )", (resources.files("headgate.catalog.layout") / name).read_text("utf-8"), flags=re.MULTILINE)[1:]


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
