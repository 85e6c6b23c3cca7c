"""The planner of a statement on system relations as its clauses use it: the session, and what is known about columns.

`select.CatalogQueryPlanner` compiles queries. `from_item` and `session_call` import only this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from headgate.analysis.query import Cte, Query
from headgate.catalog import namespace, system_view
from headgate.catalog.physical import Cursor
from headgate.catalog.session import SessionContext
from headgate.commands.query.catalog.relation_source import Lookups
from headgate.commands.session import Parameter
from headgate.errors import PostgresError
from headgate.expression.binding import literal
from headgate.expression.binding.context import BindContext
from headgate.expression.duckdb import compiler, value
from headgate.expression.duckdb.value import NOTHING_KNOWN, Env, Facts
from headgate.expression.node import Const, Expression, FuncExpr, Param
from headgate.types import registry as t


class CatalogPlanner(Env):
    """The planner of one statement."""

    def __init__(
        self,
        context: SessionContext,
        cursor: Cursor,
        dynamic: Mapping[str, system_view.Provider],
        functions: Mapping[str, Callable[..., object]],
        parameters: Sequence[Parameter],
    ) -> None:
        self.context = context
        self.cursor = cursor
        self.dynamic = dynamic
        self.functions = functions
        self.parameters = parameters
        self.tables: dict[str, pa.Table] = {}
        self.called: dict[int, str] = {}
        """The tables with the rows of the functions with side effects in FROM, by the identity of the call (`from_item.call_functions`)."""
        self.columns: dict[str, str] = {}
        """The SQL of the columns of the FROM items and queries that have been compiled, by their keys."""
        self.used: frozenset[str] | None = None
        """The keys of the columns that the statement, or the view that is compiled, references. None: not known."""
        self.restricted: dict[str, str] = {}
        """The columns that the user may not read, by their keys, with the names of their relations."""
        self.facts = {}
        self.rows = {}
        self.view_depth = 0
        self.kept_view = True
        """Whether the compiled part of a view depends only on values that do not change within the session."""
        self.path_cache: dict[tuple[str, ...], dict[str, int]] = {}
        self.lookups: Lookups | None = None
        """The lookup rows that may be joined to the SELECT being compiled (`relation_source`), or None."""
        self.announced = context.announced
        self.ctes: dict[Cte, str] = {}
        """The names of the WITH queries in the SQL."""
        self.beside: dict[FuncExpr, str] = {}
        """Set-returning calls of the current SELECT list that are evaluated in FROM, with their aliases there."""
        self._aliases = 0
        self.binding = BindContext(forms=context.forms)
        schemas = self.schema_oids()
        oids = (schemas if "pg_catalog" in schemas else {"pg_catalog": namespace.PG_CATALOG, **schemas}).values()
        self.path = f"[{', '.join(map(str, oids))}]"
        self.database = str(context.database)
        self.time_zone = context.time_zone
        self.in_utc = context.time_zone in ("UTC", "Etc/UTC", "GMT")

    def sizes(self) -> str:
        """Return the name of the table with the disk sizes of relations."""
        return self._table_of("relation_sizes", [pa.int64()] * 4)

    def blockers(self) -> str:
        """Return the name of the table of processes and the processes that block them."""
        return self._table_of("blockers", [pa.int32(), pa.list_(pa.int32())])

    def _table_of(self, subject: str, kinds: Sequence[pa.DataType]) -> str:
        """Return the name of a table with the rows that the node computes about a subject now. It is filled once for a query."""
        name = f"hg_{subject}"
        self.kept_view = False
        if name not in self.tables:
            provider = self.dynamic.get(subject)
            rows = [] if provider is None else list(provider())
            self.tables[name] = pa.table({f"c{n + 1}": pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)})
        return name

    def alias(self, letter: str = "t") -> str:
        """Return a name that is unique in the statement."""
        self._aliases += 1
        return f"{letter}{self._aliases}"

    def sql(self, expression: Expression) -> str:
        return compiler.compile(expression, self)

    def column(self, key: str) -> str:
        """Return the SQL of a column. Raise 42501 if the user may not read it."""
        if key in self.restricted:
            raise PostgresError("42501", f"permission denied for table {self.restricted[key]}")
        return self.columns.get(key, key)

    def schema_oids(self) -> dict[str, int]:
        """Return the oids of the existing schemas of the search path, by name."""
        key = tuple(self.context.search_path)
        if key not in self.path_cache:
            context = self.context
            self.path_cache[key] = namespace.effective(self.cursor, context.database, context.user, key, context.temp_schema)
        return self.path_cache[key]

    def parameter(self, node: Param) -> Const:
        self.kept_view = False
        text = self.parameters[node.number - 1].text
        read_value = None if text is None else literal.read(text, node.type.oid, node.type.typmod, self.binding)
        return Const(type=node.type, value=read_value, location=node.location)

    def facts_of(self, expression: Expression) -> Facts:
        """Return facts about an expression that its type does not have: array bounds and numeric scale."""
        scale = value.scale(expression, self) if expression.type.oid == t.NUMERIC else None
        return Facts(value.zero_based(expression, self), scale)

    def know(self, key: str, facts: Facts) -> None:
        """Record facts about a column."""
        if facts != NOTHING_KNOWN:
            self.facts[key] = facts

    def query(self, query: Query, *, keep_order: bool = False, needed: Collection[int] | None = None) -> str:
        """Return the SQL of a query, whose columns are named c1, c2, …. Record the facts about its columns.

        Columns whose places are not in `needed` are NULL, if that does not change the number of rows. None: all are needed.
        """
        raise NotImplementedError
