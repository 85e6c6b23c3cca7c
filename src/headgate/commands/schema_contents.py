"""The objects in schemas that are to be dropped, for DROP SCHEMA and DROP OWNED BY."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from headgate.catalog import function as functions
from headgate.catalog import user_type as types
from headgate.catalog.function import UserFunction
from headgate.catalog.namespace import Namespace
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import NAMED_KINDS, TABLE_KINDS
from headgate.commands import dependency
from headgate.commands.dependency import Dependant
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.session import Session
from headgate.commands.table import drop_table
from headgate.sql import names
from headgate.types import registry

Object = TypeVar("Object")


@dataclass(frozen=True)
class SchemaContents:
    """The objects in schemas, each with its schema. Sequences of columns are not listed."""

    schemas: Sequence[Namespace]
    relations: list[tuple[Namespace, Relation]]
    types: list[tuple[Namespace, types.TypeRow]]
    functions: list[tuple[Namespace, UserFunction]]

    @classmethod
    def of(cls, session: Session, schemas: Sequence[Namespace]) -> SchemaContents:
        cursor, database = session.begin_statement().cursor, session.context.database
        return cls(
            schemas,
            [(schema, relation) for schema in schemas for relation in _relations(session, schema)],
            [(schema, row) for schema in schemas for row in types.of_schema(cursor, database, schema.oid)],
            [(schema, function) for schema in schemas for function in functions.in_schema(cursor, database, schema.oid)],
        )

    def dependants(self, session: Session) -> list[Dependant]:
        """Return the contents, and the objects that depend on them, in the order of PostgreSQL's messages: the last schema first."""
        dropped = {relation.oid for _, relation in self.relations}
        return [dependant for schema in reversed(self.schemas) for dependant in self._dependants(session, schema, dropped)]

    def _dependants(self, session: Session, schema: Namespace, dropped: AbstractSet[int]) -> list[Dependant]:
        """Return what a schema contains, each object with those that depend on it, by oid.

        `dropped`: the relations of all schemas. A partition of one of them is dropped with it, and not reported.
        """
        cursor, on = session.begin_statement().cursor, f"schema {names.quote_ident(schema.name)}"
        groups = dependant_functions.of_reference(session, schema.oid, on)
        for relation in _of(schema, self.relations):
            own = Dependant((1259, relation.oid), dependency.shown(cursor, session.context, relation), on, lambda: None, relation)
            groups.append([*([] if relation.parent in dropped else [own]), *dependant_functions.of_relation(session, relation)])
        for row in _of(schema, self.types):
            own = Dependant((1247, row.oid), f"type {registry.format_type(row.oid)}", on, lambda: None)
            uses = [*dependant_functions.of_types(session, [row.oid, row.array]), *dependant_functions.columns_of_type(session, row.oid)]
            groups.append([own, *sorted(uses, key=lambda dependant: dependant.place)])
        groups += [dependant_functions.with_dependants(session, function, on) for function in _of(schema, self.functions)]
        return [dependant for group in sorted(filter(None, groups), key=lambda group: group[0].place) for dependant in group]

    def partitions(self, cursor: Cursor) -> list[tuple[int, int]]:
        """Return the keys of the partitions of the tables. They are dropped with their tables, and not reported."""
        return [(1259, oid) for _, relation in self.relations for oid in relations.descendants(cursor, relation.database, relation.oid)]

    def drop_relations(self, session: Session) -> None:
        """Drop the tables, then the other relations. The caller has called `drop_table.refuse_replicated`."""
        transaction = session.begin_statement()
        tables = {relation.oid: relation for _, relation in self.relations if relation.kind in TABLE_KINDS}
        drop_table.drop_all(transaction, [relation for relation in tables.values() if relation.parent not in tables])
        for _, relation in self.relations:
            if relation.kind not in TABLE_KINDS:
                drop_table.drop_relation(transaction, relation)


def _of(schema: Namespace, objects: Iterable[tuple[Namespace, Object]]) -> list[Object]:
    return [content for owner, content in objects if owner.oid == schema.oid]


def _relations(session: Session, schema: Namespace) -> list[Relation]:
    cursor, database = session.begin_statement().cursor, session.context.database
    contents = sorted(relations.in_schema(cursor, database, schema.oid, NAMED_KINDS), key=lambda relation: relation.oid)
    of_columns = "SELECT objid FROM hg.pg_depend WHERE dbid = ? AND classid = 1259 AND deptype IN ('a', 'i') AND refobjsubid > 0"
    owned = {oid for (oid,) in rows(cursor, of_columns, [database])}
    return [relation for relation in contents if relation.oid not in owned]
