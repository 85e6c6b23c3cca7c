"""The texts of expressions and queries in the catalog, which have references to users' objects (`registry.reference`).

Called by commands that look for the texts with a reference, or change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.catalog.physical import Cursor, rows, run

Texts = tuple[str, str, tuple[str, ...]]

TEXTS: tuple[Texts, ...] = (
    ("pg_attrdef", "oid", ("adbin", "adbinpretty")),
    ("pg_constraint", "oid", ("conbin", "conbinpretty")),
    (
        "pg_index", "indexrelid",
        ("indexprs", "indexprlist", "indpred", "indpredpretty", "indkeytext", "indkeypretty", "indcolumns", "indcolumnspretty"),
    ),
    ("pg_policy", "oid", ("polqual", "polwithcheck")),
    ("pg_trigger", "oid", ("tgqual", "tgqualpretty")),
    ("pg_type", "oid", ("typdefaultbin",)),
    ("pg_class", "oid", ("relpartconstraint",)),
    ("pg_proc", "oid", ("proargdefaults", "proargumentstext", "prodef")),
    ("pg_rewrite", "oid", ("ev_action", "ev_pretty")),
)  # fmt: skip
"""Catalogs with texts: the name, the key, and the columns with texts, or lists of texts."""


def change(cursor: Cursor, database: int, part: str, changed: Callable[[str], str]) -> None:
    """Change all texts of a database that contain a part."""
    for catalog, key, columns in TEXTS:
        containing = " OR ".join(f"contains(CAST({column} AS VARCHAR), ?)" for column in columns)
        rewrite(cursor, database, (catalog, key, columns), changed, f"AND ({containing})", [part] * len(columns))


def rewrite(
    cursor: Cursor, database: int, texts_of: Texts, changed: Callable[[str], str], condition: str = "", parameters: Sequence[object] = ()
) -> None:
    """Change the texts of a catalog in the rows of a database that meet a condition."""
    catalog, key, columns = texts_of
    sql = f"SELECT {key}, {', '.join(columns)} FROM hg.{catalog} WHERE dbid = ? {condition}"
    for oid, *texts in rows(cursor, sql, [database, *parameters]):
        values = [[changed(item) for item in text] if isinstance(text, list) else text and changed(text) for text in texts]
        if values != texts:
            assignments = ", ".join(f"{column} = ?" for column in columns)
            run(cursor, f"UPDATE hg.{catalog} SET {assignments} WHERE dbid = ? AND {key} = ?", [*values, database, oid])
