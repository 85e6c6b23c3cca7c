"""The objects whose expressions call a user-defined function, for DROP FUNCTION: defaults, checks, indexes, policies, views.

The expressions are found by their text, because the catalog does not record which functions an expression calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headgate.catalog.function import UserFunction
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.commands import dependency, stored_expression
from headgate.commands.dependency import Dependant
from headgate.commands.session import Session
from headgate.expression.node import UserCall
from headgate.expression.node import walk as expressions
from headgate.sql import names
from headgate.sql.parser import parse, walk
from headgate.types import registry


def of_function(session: Session, function: UserFunction, on: str) -> list[Dependant]:
    """Return the objects that call a function, in the order in which they were made. `on`: the function as messages show it."""
    uses = _Uses(session, function, on)
    alone = [[dependant] for dependant in (*uses.columns(), *uses.checks(), *uses.indexes(), *uses.policies())]
    return [dependant for group in sorted([*alone, *uses.views()], key=lambda group: group[0].key[1]) for dependant in group]


class _Uses:
    """The uses of one function."""

    def __init__(self, session: Session, function: UserFunction, on: str) -> None:
        self._session, self._function, self._on = session, function, on
        self._cursor: Cursor = session.begin_statement().cursor
        self._database = session.context.database

    def columns(self) -> Iterator[Dependant]:
        """Return defaults, and generated columns."""
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
        """Return indexes with expressions or a predicate."""
        for oid, table, listed, predicate in self._rows("pg_index", "indexrelid, indrelid, indexprlist, indpred", "indexprs", "indpred"):
            relation = relations.get(self._cursor, self._database, table)
            if any(self._is_in(text, relation) for text in (*(listed or ()), predicate) if text is not None):
                index = relations.get(self._cursor, self._database, oid)
                yield self._dependant(1259, oid, self._shown(index), f"DROP INDEX {_name(index)} CASCADE", relation)

    def policies(self) -> Iterator[Dependant]:
        """Return policies."""
        for oid, name, table, using, check in self._rows(
            "pg_policy", "oid, polname, polrelid, polqual, polwithcheck", "polqual", "polwithcheck"
        ):
            relation = relations.get(self._cursor, self._database, table)
            if any(self._is_in(text, relation) for text in (using, check) if text is not None):
                policy = f"policy {names.quote_ident(name)} on"
                statement = f"DROP {policy} {_name(relation)}"
                yield self._dependant(3256, oid, f"{policy} {self._shown(relation)}", statement, relation)

    def views(self) -> Iterator[list[Dependant]]:
        """Return views, each with the views that read it."""
        for oid, text in self._rows("pg_rewrite", "ev_class, ev_query", "ev_query"):
            if self._is_in(text, None):
                view = relations.get(self._cursor, self._database, oid)
                shown = self._shown(view)
                readers = dependency.views_of(self._cursor, self._session.context, view, shown)
                yield [self._dependant(1259, oid, shown, f"DROP VIEW {_name(view)}", view), *readers]

    def _rows(self, catalog: str, columns: str, *texts: str) -> list[tuple[Any, ...]]:
        """Return the rows of a catalog with the function's name in one of the texts."""
        condition = " OR ".join(f"contains({text}, ?)" for text in texts)
        parameters = [self._database, *[self._function.name] * len(texts)]
        return rows(self._cursor, f"SELECT {columns} FROM hg.{catalog} WHERE dbid = ? AND ({condition}) ORDER BY 1", parameters)

    def _is_in(self, text: str, relation: Relation | None) -> bool:
        """Return whether an expression of a relation, or a query, calls the function; of a query, whether it may."""
        statements = parse(
            text if relation is None and text.lstrip().split(None, 1)[0].upper() in ("SELECT", "WITH", "VALUES") else f"SELECT {text}"
        )
        calls = [part for part in walk(statements[0].node) if part.DESCRIPTOR.name == "FuncCall"]
        called = [part for part in calls if names.strings(part.funcname)[-1] == self._function.name]
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
