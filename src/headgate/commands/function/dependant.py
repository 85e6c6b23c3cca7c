"""Find the objects that depend on users' functions, and the functions that depend on types.

Called by DROP of functions, types, relations and schemas. On a function depend triggers, and objects whose expressions call it: defaults,
checks, indexes, policies, views, conditions of triggers and defaults of arguments. The expressions are found by their text, because the
catalog does not record which functions an expression calls.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from headgate.catalog import function as functions
from headgate.catalog.cursor import Rows
from headgate.catalog.function import UserFunction
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.commands import dependency, lookup, stored_expression
from headgate.commands.dependency import Dependant
from headgate.commands.function import definition_text
from headgate.commands.session import Session
from headgate.errors import not_supported
from headgate.expression.node import UserCall
from headgate.expression.node import walk as expressions
from headgate.sql import names
from headgate.sql.parser import parse, walk
from headgate.types import registry

PROC = 1255
"""The oid of pg_proc."""


def shown(session: Session, function: UserFunction) -> str:
    """Return a function as messages about dependencies show it: ``function f(integer)``, also for a procedure."""
    path = lookup.search_path(session.begin_statement().cursor, session.context)
    return f"function {definition_text.visible_signature(function, path)}"


def of_function(session: Session, function: UserFunction) -> list[Dependant]:
    """Return the objects that depend on a function, in the order in which they were made."""
    uses = _Uses(session, function, shown(session, function))
    alone = [[dependant] for dependant in (*uses.columns(), *uses.checks(), *uses.indexes(), *uses.policies(), *uses.triggers())]
    groups = sorted([*alone, *uses.views(), *uses.functions()], key=lambda group: group[0].key[1])
    return [dependant for group in groups for dependant in group]


def of_types(session: Session, types: Sequence[int]) -> list[Dependant]:
    """Return the functions that have one of these types as that of an argument or the result, each with the objects that depend on it."""
    dependants = []
    for function in functions.of_types(session.begin_statement().cursor, session.context.database, types):
        oid = next(oid for oid in types if oid in (function.result, *(argument.type_oid for argument in function.arguments)))
        dependants += with_dependants(session, function, f"type {registry.format_type(oid)}")
    return dependants


def of_rows(session: Session, relations_dropped: Iterable[Relation]) -> list[Dependant]:
    """Return the functions that depend on the row types of relations."""
    types = (registry.known().of_relation(relation.oid) for relation in relations_dropped)
    return of_types(session, [oid for row_type in types if row_type is not None for oid in (row_type.oid, row_type.array)])


def of_relations(session: Session, dropped: Sequence[Relation]) -> list[Dependant]:
    """Return the objects that depend on relations: first the functions that depend on their row types, then foreign keys and views."""
    cursor, context = session.begin_statement().cursor, session.context
    others = [entry for relation in dropped for entry in dependency.of_relation(cursor, context, relation)]
    return sorted([*others, *of_rows(session, dropped)], key=lambda entry: entry.key[0] != PROC)


def with_dependants(session: Session, function: UserFunction, on: str) -> list[Dependant]:
    """Return a function that depends on an object `on`, and the objects that depend on the function."""

    def drop() -> None:
        functions.drop(session.begin_statement().cursor, session.context.database, function.oid)

    return [Dependant((PROC, function.oid), shown(session, function), on, drop), *of_function(session, function)]


def refuse_new_name(session: Session, function: UserFunction, *, qualified: bool, views: bool = True) -> None:
    """Raise 0A000 if a text of the catalog names a function that is about to get another name or schema.

    `qualified`: only texts that name it with its schema matter, because only the schema changes. `views`: whether those of views matter.
    """
    uses = _Uses(session, function, shown(session, function), qualified=qualified)
    alone = (uses.columns(), uses.checks(), uses.indexes(), uses.policies(), uses.triggers(fired=False))
    groups = itertools.chain(uses.views() if views else (), uses.functions())
    dependant = next(itertools.chain(*alone, (dependant for group in groups for dependant in group)), None)
    if dependant is not None:
        message = f"another name or schema of {shown(session, function)} is not supported"
        raise not_supported(message, detail=f"{dependant.shown} depends on it by its name.")


class _Uses:
    """The uses of one function. `qualified`: only those that name it with its schema."""

    def __init__(self, session: Session, function: UserFunction, on: str, *, qualified: bool = False) -> None:
        self._session, self._function, self._on, self._qualified = session, function, on, qualified
        self._cursor: Cursor = session.begin_statement().cursor
        self._database = session.context.database

    def columns(self) -> Iterator[Dependant]:
        for oid, table, attnum, text in self._rows("pg_attrdef", "oid, adrelid, adnum, adbin", "adbin"):
            relation = relations.get(self._cursor, self._database, table)
            column = relation.numbered(attnum)
            if column is None or not self._is_in(text, relation):
                continue
            name = names.quote_ident(column.name)
            shown = f"column {name} of {self._shown(relation)}"
            action = f"ALTER COLUMN {name} DROP DEFAULT" if column.generated is None else f"DROP COLUMN {name} CASCADE"
            shown = shown if column.generated is not None else f"default value for {shown}"
            yield self._dependant(2604, oid, shown, f"ALTER TABLE {_name(relation)} {action}", relation)

    def checks(self) -> Iterator[Dependant]:
        """Return CHECK constraints of tables and domains."""
        for oid, name, table, domain, text in self._rows("pg_constraint", "oid, conname, conrelid, contypid, conbin", "conbin"):
            shown, action = f"constraint {names.quote_ident(name)}", f"DROP CONSTRAINT {names.quote_ident(name)}"
            if table:
                relation = relations.get(self._cursor, self._database, table)
                if self._is_in(text, relation):
                    yield self._dependant(
                        2606, oid, f"{shown} on {self._shown(relation)}", f"ALTER TABLE {_name(relation)} {action}", relation
                    )
            elif self._is_in(text, None):
                kind = registry.known().by_oid(domain)
                yield self._dependant(2606, oid, shown, f"ALTER DOMAIN {names.qualified(kind.schema, kind.name)} {action}", None)

    def indexes(self) -> Iterator[Dependant]:
        for oid, table, listed, predicate in self._rows("pg_index", "indexrelid, indrelid, indexprlist, indpred", "indexprs", "indpred"):
            relation = relations.get(self._cursor, self._database, table)
            if any(self._is_in(text, relation) for text in (*(listed or ()), predicate) if text is not None):
                index = relations.get(self._cursor, self._database, oid)
                yield self._dependant(1259, oid, self._shown(index), f"DROP INDEX {_name(index)} CASCADE", relation)

    def policies(self) -> Iterator[Dependant]:
        for oid, name, table, using, check in self._rows(
            "pg_policy", "oid, polname, polrelid, polqual, polwithcheck", "polqual", "polwithcheck"
        ):
            relation = relations.get(self._cursor, self._database, table)
            if any(self._is_in(text, relation) for text in (using, check) if text is not None):
                policy = f"policy {names.quote_ident(name)} on"
                statement = f"DROP {policy} {_name(relation)}"
                yield self._dependant(3256, oid, f"{policy} {self._shown(relation)}", statement, relation)

    def triggers(self, *, fired: bool = True) -> Iterator[Dependant]:
        """Return triggers whose WHEN calls the function, and with `fired` those that fire it."""
        sql = "SELECT oid, tgname, tgrelid, tgfoid, tgqual FROM hg.pg_trigger WHERE dbid = ? AND (tgfoid = ? OR contains(tgqual, ?))"
        for oid, name, table, called, condition in rows(self._cursor, sql, [self._database, self._function.oid, self._function.name]):
            is_fired = fired and called == self._function.oid
            if is_fired or (condition is not None and self._is_in(condition, None)):
                relation = relations.get(self._cursor, self._database, table)
                trigger = f"trigger {names.quote_ident(name)} on {self._shown(relation)}"
                yield Dependant((2620, oid), trigger, self._on, functools.partial(triggers.drop, self._cursor, self._database, oid))

    def functions(self) -> Iterator[list[Dependant]]:
        """Return functions whose arguments have defaults that call the function, each with the objects that depend on it."""
        for (oid,) in self._rows("pg_proc", "oid", "proargdefaults"):
            function = functions.find(self._cursor, self._database, oid)
            defaults = [] if function is None else [argument.default for argument in function.inputs if argument.default is not None]
            if function is not None and any(self._is_in(default, None) for default in defaults):
                yield with_dependants(self._session, function, self._on)

    def views(self) -> Iterator[list[Dependant]]:
        for oid, text in self._rows("pg_rewrite", "ev_class, ev_query", "ev_query"):
            if self._is_in(text, None):
                view = relations.get(self._cursor, self._database, oid)
                shown = self._shown(view)
                readers = dependency.views_of(self._cursor, self._session.context, view, shown)
                yield [self._dependant(1259, oid, shown, f"DROP VIEW {_name(view)}", view), *readers]

    def _rows(self, catalog: str, columns: str, *texts: str) -> Rows:
        condition = " OR ".join(f"contains({text}, ?)" for text in texts)
        parameters = [self._database, *[self._function.name] * len(texts)]
        return rows(self._cursor, f"SELECT {columns} FROM hg.{catalog} WHERE dbid = ? AND ({condition}) ORDER BY 1", parameters)

    def _is_in(self, text: str, relation: Relation | None) -> bool:
        """Return whether an expression of a relation, or a query, calls the function; of a query, whether it may."""
        statements = parse(
            text if relation is None and text.lstrip().split(None, 1)[0].upper() in ("SELECT", "WITH", "VALUES") else f"SELECT {text}"
        )
        calls = [part for part in walk(statements[0].node) if part.DESCRIPTOR.name == "FuncCall"]
        is_oldest = lookup.oldest_schema(self._cursor, self._session.context, self._function.name, self._function.schema)
        is_short = is_oldest and not self._qualified
        spellings = [[self._function.schema, self._function.name], *([[self._function.name]] if is_short else [])]
        called = [part for part in calls if names.strings(part.funcname)[-2:] in spellings]
        if not called or relation is None:
            inputs = self._function.inputs
            fewest = sum(argument.default is None and argument.mode != "v" for argument in inputs)
            most = 1000 if inputs and inputs[-1].mode == "v" else len(inputs)
            return any(fewest <= len(part.args) <= most for part in called)
        bound = stored_expression.indexed(text, relation)
        return any(isinstance(part, UserCall) and part.function == self._function.oid for part in expressions(bound))

    def _shown(self, relation: Relation) -> str:
        return dependency.shown(self._cursor, self._session.context, relation)

    def _dependant(self, catalog: int, oid: int, shown: str, statement: str, owner: Relation | None) -> Dependant:
        return Dependant((catalog, oid), shown, self._on, self._running(statement), owner)

    def _running(self, statement: str) -> Callable[[], None]:
        def run() -> None:
            [parsed] = parse(statement)
            self._session.parts.run_statement(parsed.node, self._session)

        return run


def _name(relation: Relation) -> str:
    return names.qualified(relation.schema, relation.name)
