"""Publications: pg_publication, pg_publication_rel, pg_publication_namespace.

The row filter is stored twice: `prqual` is its text as pg_get_expr prints it, `prqualtree` the bound tree as JSON, which this package does
not interpret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from headgate.catalog.json_form import Dumped, from_json
from headgate.catalog.physical import Cursor, Oids, delete, insert, rows, run, update
from headgate.errors import PostgresError, existing


@dataclass(frozen=True)
class Member:
    """A table of a publication. `filter`: deparsed text. `tree`: the bound filter as JSON. `columns`: attnums of the column list."""

    relation: int
    filter: str | None = None
    tree: str | None = None
    columns: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Publication:
    """A publication with its tables (by oid) and schemas (oids).

    `gencols`: stored generated columns are published (PostgreSQL 18).
    `reconcile`: streams follow an alteration of the publication (`publisher.alteration`). This option exists only in headgate.
    """

    oid: int
    name: str
    owner: int = 10
    all_tables: bool = False
    insert: bool = True
    update: bool = True
    delete: bool = True
    truncate: bool = True
    via_root: bool = False
    members: tuple[Member, ...] = ()
    schemas: tuple[int, ...] = ()
    reconcile: bool = False
    gencols: bool = False

    def member(self, relation: int) -> Member | None:
        return next((member for member in self.members if member.relation == relation), None)

    def dump(self) -> Dumped:
        """Return a JSON value that `load` reads."""
        value = asdict(self)
        for option in ("reconcile", "gencols"):
            if not value[option]:
                del value[option]  # as recorded by versions without the option
        return value

    @classmethod
    def load(cls, value: Dumped) -> Publication:
        """Return the publication that `dump` wrote, in this version or an earlier one."""
        members = tuple(
            Member(item["relation"], item["filter"], item["tree"], None if item["columns"] is None else tuple(item["columns"]))
            for item in value["members"]
        )
        return from_json(cls, {**value, "members": members})


_COLUMNS = (
    "oid, pubname, pubowner, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, coalesce(pubreconcile, false),"
    " pubgencols"
)
_OPTIONS = {
    "insert": "pubinsert", "update": "pubupdate", "delete": "pubdelete", "truncate": "pubtruncate", "via_root": "pubviaroot",
    "reconcile": "pubreconcile", "gencols": "pubgencols",
}  # fmt: skip


def lookup(cursor: Cursor, database: int, name: str) -> Publication | None:
    publications = _read(cursor, database, "AND pubname = ?", [name])
    return publications[0] if publications else None


def find(cursor: Cursor, database: int, oid: int) -> Publication | None:
    publications = _read(cursor, database, "AND oid = ?", [oid])
    return publications[0] if publications else None


def get(cursor: Cursor, database: int, name: str) -> Publication:
    """Return the publication with this name. Raise 42704 if it does not exist."""
    return existing(lookup(cursor, database, name), "42704", f'publication "{name}"')


def all_publications(cursor: Cursor, database: int) -> list[Publication]:
    """Return all publications of a database, ordered by name."""
    return _read(cursor, database, "", [])


def create(cursor: Cursor, oids: Oids, database: int, publication: Publication) -> None:
    """Create a publication. An oid of 0 is replaced by a new one. Raise 42710 if the name is in use."""
    if lookup(cursor, database, publication.name) is not None:
        raise PostgresError("42710", f'publication "{publication.name}" already exists')
    oid = publication.oid or oids()
    insert(
        cursor, "pg_publication", dbid=database, oid=oid, pubname=publication.name, pubowner=publication.owner,
        puballtables=publication.all_tables, pubinsert=publication.insert, pubupdate=publication.update, pubdelete=publication.delete,
        pubtruncate=publication.truncate, pubviaroot=publication.via_root, pubreconcile=publication.reconcile,
        pubgencols=_letter(publication.gencols),
    )  # fmt: skip
    for member in publication.members:
        add_member(cursor, oids, database, oid, member)
    for schema in publication.schemas:
        add_schema(cursor, oids, database, oid, schema)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    delete(cursor, "pg_publication_rel", dbid=database, prpubid=oid)
    delete(cursor, "pg_publication_namespace", dbid=database, pnpubid=oid)
    delete(cursor, "pg_publication", dbid=database, oid=oid)


def set_options(cursor: Cursor, database: int, oid: int, **options: bool) -> None:
    """Set options of a publication: any of insert, update, delete, truncate, via_root, reconcile, gencols."""
    for option, value in options.items():
        stored = _letter(value) if option == "gencols" else value
        run(cursor, f"UPDATE hg.pg_publication SET {_OPTIONS[option]} = ? WHERE dbid = ? AND oid = ?", [stored, database, oid])


def rename(cursor: Cursor, database: int, oid: int, name: str) -> None:
    """Rename a publication. Raise 42710 if the name is in use."""
    if lookup(cursor, database, name) is not None:
        raise PostgresError("42710", f'publication "{name}" already exists')
    update(cursor, "pg_publication", {"dbid": database, "oid": oid}, pubname=name)


def set_owner(cursor: Cursor, database: int, oid: int, owner: int) -> None:
    update(cursor, "pg_publication", {"dbid": database, "oid": oid}, pubowner=owner)


def add_member(cursor: Cursor, oids: Oids, database: int, oid: int, member: Member) -> None:
    """Add a table. The caller has checked that it is not a member yet."""
    insert(
        cursor, "pg_publication_rel", dbid=database, oid=oids(), prpubid=oid, prrelid=member.relation, prqual=member.filter,
        prattrs=None if member.columns is None else sorted(member.columns), prqualtree=member.tree,
    )  # fmt: skip


def drop_member(cursor: Cursor, database: int, oid: int, relation: int) -> None:
    delete(cursor, "pg_publication_rel", dbid=database, prpubid=oid, prrelid=relation)


def set_members(cursor: Cursor, oids: Oids, database: int, oid: int, members: Sequence[Member], schemas: Sequence[int]) -> None:
    """Replace the lists of tables and schemas (ALTER PUBLICATION … SET). Unchanged memberships keep their oids."""
    current = find(cursor, database, oid)
    before = {member.relation: member for member in current.members} if current else {}
    for relation, member in before.items():
        if member not in members:
            drop_member(cursor, database, oid, relation)
    for member in members:
        if before.get(member.relation) != member:
            add_member(cursor, oids, database, oid, member)
    current_schemas = set(current.schemas) if current else set()
    for schema in current_schemas - set(schemas):
        drop_schema(cursor, database, oid, schema)
    for schema in schemas:
        if schema not in current_schemas:
            add_schema(cursor, oids, database, oid, schema)


def add_schema(cursor: Cursor, oids: Oids, database: int, oid: int, schema: int) -> None:
    insert(cursor, "pg_publication_namespace", dbid=database, oid=oids(), pnpubid=oid, pnnspid=schema)


def drop_schema(cursor: Cursor, database: int, oid: int, schema: int) -> None:
    delete(cursor, "pg_publication_namespace", dbid=database, pnpubid=oid, pnnspid=schema)


def of_relation(cursor: Cursor, database: int, relation: int) -> list[Publication]:
    """Return the publications that list a table itself (not its schema, and not FOR ALL TABLES)."""
    sql = "AND oid IN (SELECT prpubid FROM hg.pg_publication_rel WHERE dbid = ? AND prrelid = ?)"
    return _read(cursor, database, sql, [database, relation])


def _letter(gencols: bool) -> str:
    return "s" if gencols else "n"


def _read(cursor: Cursor, database: int, condition: str, parameters: list[object]) -> list[Publication]:
    publication_rows = rows(
        cursor, f"SELECT {_COLUMNS} FROM hg.pg_publication WHERE dbid = ? {condition} ORDER BY pubname", [database, *parameters]
    )
    if not publication_rows:
        return []
    members: dict[int, list[Member]] = {}
    sql = "SELECT prpubid, prrelid, prqual, prqualtree, prattrs FROM hg.pg_publication_rel WHERE dbid = ? ORDER BY prpubid, prrelid"
    for publication, relation, text, tree, columns in rows(cursor, sql, [database]):
        members.setdefault(publication, []).append(Member(relation, text, tree, None if columns is None else tuple(columns)))
    schemas: dict[int, list[int]] = {}
    sql = "SELECT pnpubid, pnnspid FROM hg.pg_publication_namespace WHERE dbid = ? ORDER BY pnpubid, pnnspid"
    for publication, schema in rows(cursor, sql, [database]):
        schemas.setdefault(publication, []).append(schema)
    return [
        replace(
            Publication(*row[:-2]),
            members=tuple(members.get(row[0], ())),
            schemas=tuple(schemas.get(row[0], ())),
            reconcile=row[-2],
            gencols=row[-1] == _letter(gencols=True),
        )
        for row in publication_rows
    ]
