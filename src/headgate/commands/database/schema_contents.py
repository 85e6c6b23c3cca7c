"""The objects in schemas that are to be dropped, for DROP SCHEMA and DROP OWNED BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.catalog import function as functions
from headgate.catalog import user_type as types
from headgate.catalog.function import UserFunction
from headgate.catalog.namespace import Namespace
from headgate.catalog.physical import rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import NAMED_KINDS, TABLE_KINDS
from headgate.catalog.replication import subscription as subscriptions
from headgate.commands import dependency
from headgate.commands.function import dependant as dependant_functions
from headgate.commands.session import Session
from headgate.commands.table import table
from headgate.sql import names
from headgate.types import registry


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

    def dependants(self, session: Session) -> list[dependency.Dependant]:
        """Return the contents, and the objects that depend on them, in PostgreSQL's order: the last schema first, then by oid."""
        cursor, context = session.begin_statement().cursor, session.context
        dropped_oids = {relation.oid for _, relation in self.relations}
        dependants = []
        for schema, relation in self.relations:
            if relation.parent not in dropped_oids:  # a partition is dropped with its parent, and not reported
                shown = dependency.shown(cursor, context, relation)
                dependants.append(dependency.Dependant((1259, relation.oid), shown, _shown(schema), lambda: None, relation))
            dependants += [
                dependant
                for dependant in dependency.of_relation(cursor, context, relation)
                if dependant.key[0] == 2606 or dependant.key[1] not in dropped_oids
            ]
        for schema, row in self.types:
            shown = f"type {registry.format_type(row.oid)}"
            dependants.append(dependency.Dependant((1247, row.oid), shown, _shown(schema), lambda: None))
        for schema, function in self.functions:
            dependants += dependant_functions.with_dependants(session, function, _shown(schema))
        dependants += dependant_functions.of_rows(session, (relation for _, relation in self.relations))
        dependants += dependant_functions.of_types(session, [oid for _, row in self.types for oid in (row.oid, row.array)])
        place = {schema.oid: index for index, schema in enumerate(self.schemas)}
        places = (
            {(1259, relation.oid): place[schema.oid] for schema, relation in self.relations}
            | {(1247, row.oid): place[schema.oid] for schema, row in self.types}
            | {(dependant_functions.PROC, function.oid): place[schema.oid] for schema, function in self.functions}
        )
        return sorted(dependants, key=lambda dependant: (-places.get(dependant.key, 0), dependant.key[1]))

    def drop_relations(self, session: Session) -> None:
        """Drop the tables, then the other relations."""
        transaction = session.begin_statement()
        cursor, database = transaction.cursor, session.context.database
        tables = {relation.oid: relation for _, relation in self.relations if relation.kind in TABLE_KINDS}
        for relation in tables.values():
            subscriptions.refuse_unfinished_sync(cursor, relation.database, relation.oid, relation.name)
        table.drop_all(transaction, [relation for relation in tables.values() if relation.parent not in tables])
        for _, relation in self.relations:
            if relation.kind not in TABLE_KINDS and relations.find(cursor, database, relation.oid) is not None:
                removal.drop(cursor, database, relation.oid)


def _shown(schema: Namespace) -> str:
    return f"schema {names.quote_ident(schema.name)}"


def _relations(session: Session, schema: Namespace) -> list[Relation]:
    cursor, database = session.begin_statement().cursor, session.context.database
    contents = sorted(relations.in_schema(cursor, database, schema.oid, NAMED_KINDS), key=lambda relation: relation.oid)
    of_columns = "SELECT objid FROM hg.pg_depend WHERE dbid = ? AND classid = 1259 AND deptype IN ('a', 'i') AND refobjsubid > 0"
    owned = {oid for (oid,) in rows(cursor, of_columns, [database])}
    return [relation for relation in contents if relation.oid not in owned]
