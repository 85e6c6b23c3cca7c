"""Find the objects that depend on users' functions, types, relations and schemas.

Called by DROP of these objects. On a function depend triggers, and objects whose expressions call it: defaults, checks, indexes, policies,
views, conditions of triggers and defaults of arguments. The expressions are found by the references in their texts. So are those with
constants that name an object, such as the sequence of nextval.

The order is that of PostgreSQL's messages: by oid, each object followed by those that depend on it (findDependentObjects).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from headgate.catalog import function as functions
from headgate.catalog import user_type as types
from headgate.catalog.cursor import Rows
from headgate.catalog.function import UserFunction
from headgate.catalog.layout.bootstrap import BOOTSTRAP_SUPERUSER
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import inheritance, removal, sequence
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.commands import dependency, lookup, privilege
from headgate.commands.dependency import Dependant
from headgate.commands.function import definition_text
from headgate.commands.session import Session
from headgate.sql import names
from headgate.sql.parser import parse
from headgate.types import registry

PROC = 1255
"""The oid of pg_proc."""


def shown(session: Session, function: UserFunction) -> str:
    """Return a function as messages about dependencies show it: ``function f(integer)``, also for a procedure."""
    path = lookup.search_path(session.begin_statement().cursor, session.context)
    return f"function {definition_text.visible_signature(function, path)}"


def of_function(session: Session, function: UserFunction) -> list[Dependant]:
    """Return the objects that depend on a function, in the order in which they were made."""
    return _flat(_Uses(session, function.oid, shown(session, function)).groups())


def _flat(groups: Iterable[Sequence[Dependant]]) -> list[Dependant]:
    """Return the objects of groups in the order in which the first ones of the groups were made."""
    return [dependant for group in sorted(groups, key=lambda group: group[0].place) for dependant in group]


def of_types(session: Session, types: Sequence[int]) -> list[Dependant]:
    """Return the functions that have one of these types as that of an argument or the result, and the objects whose expressions use one.

    Each of them is followed by the objects that depend on it.
    """
    groups = []
    for function in functions.of_types(session.begin_statement().cursor, session.context.database, types):
        oid = next(oid for oid in types if oid in (function.result, *(argument.type_oid for argument in function.arguments)))
        groups.append(with_dependants(session, function, f"type {registry.format_type(oid)}"))
    for oid in types:
        groups += _Uses(session, oid, f"type {registry.format_type(oid)}").groups()
    return _flat(groups)


def of_relations(session: Session, dropped: Sequence[Relation]) -> list[Dependant]:
    """Return the objects that depend on relations that a command drops. Those of the last relation come first."""
    return [entry for relation in reversed(dropped) for entry in of_relation(session, relation)]


def of_relation(session: Session, relation: Relation) -> list[Dependant]:
    """Return the objects that depend on a relation, its row type, its partitions and the sequences that its columns own.

    They include the tables that inherit from it.
    """
    cursor, context = session.begin_statement().cursor, session.context
    keys = [[key] for key in dependency.keys_of(cursor, context, relation)]
    on = dependency.shown(cursor, context, relation)
    uses = of_reference(session, relation.oid, on)
    placed = [(group[0].place, group) for group in [*keys, *uses]]
    row_type = registry.known().of_relation(relation.oid)
    if row_type is not None:
        placed.append((row_type.oid, of_types(session, [row_type.oid, row_type.array])))
    owned = [oid for oid, _ in sequence.of_columns(cursor, relation.database, relation.oid)]
    for child in inheritance.children(cursor, relation) if relation.has_children else ():
        drop = _running(session, f"DROP TABLE {_name(child)}")
        own = Dependant((1259, child.oid), dependency.shown(cursor, context, child), on, drop, child)
        placed.append((child.oid, [own, *of_relation(session, child)]))
    inside = [*owned, *relations.descendants(cursor, relation.database, relation.oid)]
    placed += [(part.oid, of_relation(session, part)) for part in relations.load_many(cursor, relation.database, inside)]
    return [entry for _, group in sorted(placed, key=lambda item: item[0]) for entry in group]


def of_reference(session: Session, oid: int, on: str) -> list[list[Dependant]]:
    """Return the objects with a reference to an object, each with the objects that depend on it. `on`: the object in messages."""
    return _Uses(session, oid, on).groups()


def with_dependants(session: Session, function: UserFunction, on: str) -> list[Dependant]:
    """Return a function that depends on an object `on`, and the objects that depend on the function."""

    def drop() -> None:
        functions.drop(session.begin_statement().cursor, session.context.database, function.oid)

    return [Dependant((PROC, function.oid), shown(session, function), on, drop), *of_function(session, function)]


def columns_of_type(session: Session, oid: int) -> list[Dependant]:
    """Return the columns of tables that have a type or its array type. Of one table, PostgreSQL lists the last column first."""
    cursor, database, kind = session.begin_statement().cursor, session.context.database, registry.known().by_oid(oid)
    columns = []
    for table, name, type_oid in types.columns_of(cursor, database, [oid, kind.array]):
        relation = relations.get(cursor, database, table)
        attnum = next(column.attnum for column in relation.columns if column.name == name)
        shown = f"column {names.quote_ident(name)} of {dependency.shown(cursor, session.context, relation)}"
        drop = _running(session, f"ALTER TABLE {_name(relation)} DROP COLUMN {names.quote_ident(name)} CASCADE")
        key = (dependency.COLUMN, table << 11 | attnum)
        columns.append(Dependant(key, shown, f"type {registry.format_type(type_oid)}", drop, relation))
    return sorted(columns, key=lambda column: (column.place, -column.key[1]))


class _Uses:
    """The uses of a function or type, found by the references to it in the texts of the catalog (`registry.reference`)."""

    def __init__(self, session: Session, oid: int, on: str) -> None:
        self._session, self._oid, self._on = session, oid, on
        self._cursor: Cursor = session.begin_statement().cursor
        self._database = session.context.database

    def groups(self) -> list[list[Dependant]]:
        """Return all uses, each with the objects that depend on it."""
        alone = (*self.columns(), *self.checks(), *self.indexes(), *self.policies(), *self.triggers())
        return [*([dependant] for dependant in alone), *self.domains(), *self.views(), *self.functions()]

    def columns(self) -> Iterator[Dependant]:
        """Return defaults, and generated columns."""
        for oid, table, attnum in self._rows("pg_attrdef", "oid, adrelid, adnum", "adbin"):
            relation = relations.get(self._cursor, self._database, table)
            column = relation.numbered(attnum)
            if column is None:
                continue
            name = names.quote_ident(column.name)
            shown = f"column {name} of {self._shown(relation)}"
            action = f"ALTER COLUMN {name} DROP DEFAULT" if column.generated is None else f"DROP COLUMN {name} CASCADE"
            shown = shown if column.generated is not None else f"default value for {shown}"
            yield self._dependant(2604, oid, shown, f"ALTER TABLE {_name(relation)} {action}", relation)

    def checks(self) -> Iterator[Dependant]:
        dropped_domains = {domain for (domain,) in self._rows("pg_type", "oid", "typdefaultbin")}
        for oid, name, table, domain in self._rows("pg_constraint", "oid, conname, conrelid, contypid", "conbin"):
            shown, action = f"constraint {names.quote_ident(name)}", f"DROP CONSTRAINT {names.quote_ident(name)}"
            if table:
                relation = relations.get(self._cursor, self._database, table)
                shown = f"{shown} on {self._shown(relation)}"
                yield self._dependant(2606, oid, shown, f"ALTER TABLE {_name(relation)} {action}", relation)
            elif domain not in dropped_domains:
                kind = registry.known().by_oid(domain)
                yield self._dependant(2606, oid, shown, f"ALTER DOMAIN {names.qualified(kind.schema, kind.name)} {action}", None)

    def domains(self) -> Iterator[list[Dependant]]:
        """Return domains whose defaults use the function or type, each with the columns of the domain."""
        for (oid,) in self._rows("pg_type", "oid", "typdefaultbin"):
            kind = registry.known().by_oid(oid)
            statement = f"DROP DOMAIN {names.qualified(kind.schema, kind.name)} CASCADE"
            columns = columns_of_type(self._session, oid)
            yield [self._dependant(1247, oid, f"type {kind.plain}", statement, None), *columns]

    def indexes(self) -> Iterator[Dependant]:
        """Return indexes with expressions or a predicate."""
        for oid, table in self._rows("pg_index", "indexrelid, indrelid", "indexprs", "indpred"):
            index, relation = relations.get(self._cursor, self._database, oid), relations.get(self._cursor, self._database, table)
            yield self._dependant(1259, oid, self._shown(index), f"DROP INDEX {_name(index)} CASCADE", relation)

    def policies(self) -> Iterator[Dependant]:
        for oid, name, table in self._rows("pg_policy", "oid, polname, polrelid", "polqual", "polwithcheck"):
            relation = relations.get(self._cursor, self._database, table)
            policy = f"policy {names.quote_ident(name)} on"
            yield self._dependant(3256, oid, f"{policy} {self._shown(relation)}", f"DROP {policy} {_name(relation)}", relation)

    def triggers(self) -> Iterator[Dependant]:
        """Return triggers that fire the function, and those whose WHEN uses the function or type."""
        sql = "SELECT oid, tgname, tgrelid FROM hg.pg_trigger WHERE dbid = ? AND (tgfoid = ? OR contains(tgqual, ?))"
        parameters = [self._database, self._oid, registry.reference(self._oid)]
        for oid, name, table in rows(self._cursor, sql, parameters):
            relation = relations.get(self._cursor, self._database, table)
            trigger = f"trigger {name} on {self._shown(relation)}"
            yield Dependant((2620, oid), trigger, self._on, functools.partial(triggers.drop, self._cursor, self._database, oid), relation)

    def functions(self) -> Iterator[list[Dependant]]:
        """Return functions whose arguments have defaults that use the function or type, each with the objects that depend on it."""
        for (oid,) in self._rows("pg_proc", "oid", "proargdefaults"):
            if (function := functions.find(self._cursor, self._database, oid)) is not None:
                yield with_dependants(self._session, function, self._on)

    def views(self) -> Iterator[list[Dependant]]:
        """Return views, each with the views that read it."""
        for (oid,) in self._rows("pg_rewrite", "ev_class", "ev_action"):
            view = relations.get(self._cursor, self._database, oid)
            shown = self._shown(view)
            readers = dependency.views_of(self._cursor, self._session.context, view, shown)
            drop = functools.partial(removal.drop, self._cursor, self._database, oid)
            yield [Dependant((1259, oid), shown, self._on, drop, view), *readers]

    def _rows(self, catalog: str, columns: str, *texts: str) -> Rows:
        """Return the rows of a catalog with a reference to the function or type in one of the texts."""
        condition = " OR ".join(f"contains({text}, ?)" for text in texts)
        parameters = [self._database, *[registry.reference(self._oid)] * len(texts)]
        return rows(self._cursor, f"SELECT {columns} FROM hg.{catalog} WHERE dbid = ? AND ({condition}) ORDER BY 1", parameters)

    def _shown(self, relation: Relation) -> str:
        return dependency.shown(self._cursor, self._session.context, relation)

    def _dependant(self, catalog: int, oid: int, shown: str, statement: str, owner: Relation | None) -> Dependant:
        return Dependant((catalog, oid), shown, self._on, _running(self._session, statement), owner)


def _running(session: Session, statement: str) -> Callable[[], None]:
    def run() -> None:
        [parsed] = parse(statement)
        with privilege.acting_as(BOOTSTRAP_SUPERUSER, session.begin_statement().cursor, session.context):  # others may own the object
            session.parts.run_statement(parsed.node, session)

    return run


def _name(relation: Relation) -> str:
    return names.qualified(relation.schema, relation.name)
