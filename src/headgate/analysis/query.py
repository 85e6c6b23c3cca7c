"""The analysed query: range table, typed expressions and clauses, without names to resolve and without an engine.

`Analyser` makes it, an engine runs it. All parts are frozen. Each column has a key that is unique in the statement, so that any two
relations of the statement can be joined.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, TypeVar, cast

from headgate.catalog.relation.relation import Relation
from headgate.expression import rewriting
from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable
from headgate.expression.node import Aggregate, ColumnRef, Const, Expression, Grouping, SubLink, TypeRef, walk
from headgate.sql.parser import ParseNode
from headgate.types import registry


@dataclass(frozen=True)
class PlanColumn:
    """A column of a query.

    `key` is its name in a frame, unique within the whole statement. `relation` and `attnum` are as in RowDescription. `literal` is the
    literal in the SELECT list if its type is undecided. Its type is text for now; in a set operation, the other side decides it.
    `attributes` are as in `ResultColumn`.
    """

    name: str
    type: TypeRef
    key: str
    relation: int = 0
    attnum: int = 0
    literal: Const | None = None
    attributes: tuple[registry.Attribute, ...] | None = None


@dataclass(frozen=True)
class Sort:
    """One item of ORDER BY."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class SelectItem:
    """An item of a SELECT list. `node` is its parse node (None for a column of ``*``)."""

    name: str
    expression: Expression
    node: ParseNode | None = None
    relation: int = 0
    attnum: int = 0


@dataclass(frozen=True)
class RowLock:
    """A locking clause: its strength, its wait policy, and the FROM items that it names (empty: all)."""

    strength: str
    policy: int
    names: frozenset[str] = frozenset()

    def of(self, alias: str) -> bool:
        return not self.names or alias in self.names


# ---- FROM -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FromItem:
    """A FROM clause, or a part of it: the names that it brings into scope, and the columns of ``*``. As such, one row without columns.

    An unqualified ``*`` leaves out the columns of the tables of a JOIN … USING, because `merged` has them. `hidden` are the tables whose
    names the alias of a join hides.
    """

    tables: tuple[ScopeTable, ...] = ()
    star: tuple[PlanColumn, ...] = ()
    merged: tuple[ScopeColumn, ...] = ()
    hidden: tuple[ScopeTable, ...] = ()

    def scope(self, outer: Scope | None) -> Scope:
        """Return the scope of expressions over this FROM clause."""
        return Scope(self.tables, outer, self.merged, hidden=self.hidden)

    @property
    def all_tables(self) -> tuple[ScopeTable, ...]:
        """The tables, those that an alias hides included."""
        return self.tables + self.hidden


@dataclass(frozen=True, kw_only=True)
class RelationItem(FromItem):
    """A table, view, sequence or system relation. `only`: without its partitions. `locks`: the locking clauses that apply to it."""

    relation: Relation
    alias: str
    only: bool
    locks: tuple[RowLock, ...] = ()
    location: int = -1


@dataclass(frozen=True, kw_only=True)
class TransitionItem(FromItem):
    """A transition table of the trigger whose function runs the query."""

    name: str


@dataclass(frozen=True, kw_only=True)
class CteItem(FromItem):
    """A reference to a WITH query."""

    cte: Cte


@dataclass(frozen=True, kw_only=True)
class SubqueryItem(FromItem):
    """A subquery in FROM, also VALUES."""

    query: Query
    lateral: bool


@dataclass(frozen=True, kw_only=True)
class FunctionItem(FromItem):
    """Calls of set-returning functions side by side. `tables` and `star` also have those of `left`, the items before it.

    `columns`: the columns of the functions. `keep_left`: keep a row of `left` for which the functions return no rows. `condition`: of the
    join with `left`. `listed` as in `JoinItem`.
    """

    calls: tuple[Expression, ...]
    columns: tuple[PlanColumn, ...]
    ordinality: bool
    left: FromItem | None = None
    keep_left: bool = False
    condition: Expression | None = None
    listed: bool = False

    @property
    def lateral(self) -> ColumnRef | None:
        """The first column in an argument that belongs to the items before the functions in FROM, or None."""
        references = (node for call in self.calls for node in walk(call) if isinstance(node, ColumnRef))
        return next((node for node in references if node.levels_up == 0), None)


@dataclass(frozen=True, kw_only=True)
class ChangesItem(FromItem):
    """A call of headgate.changes. `scan` is the value of `Names.changes`, `call` its text."""

    scan: Any
    call: str


@dataclass(frozen=True, kw_only=True)
class JoinItem(FromItem):
    """A join. `how`: inner, left, right, full or cross. `listed`: a comma in the FROM list joins the items.

    `using`: the merged columns of USING with their values. `using_alias`: the alias under which only these columns are in scope.
    """

    left: FromItem
    right: FromItem
    how: str
    condition: Expression | None = None
    using: tuple[tuple[PlanColumn, Expression], ...] = ()
    listed: bool = False
    using_alias: ScopeTable | None = None


@dataclass(frozen=True, kw_only=True)
class AliasItem(FromItem):
    """A join with an alias, which hides the names of its tables."""

    item: FromItem


# ---- the query --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupingClause:
    """ROLLUP, CUBE or GROUPING SETS (`word`), or a list of expressions in parentheses (an empty `word`), as GROUP BY has it."""

    word: str
    content: tuple[Expression | GroupingClause, ...]


@dataclass(frozen=True)
class Grouped:
    """GROUP BY. The SELECT list, ORDER BY and HAVING reference its columns by their keys.

    `clause`: the items of the clause. `sets`: the grouping sets, their product; `distinct`: without equal sets. `items`: the keys of the
    items of all sets. `masks`: the keys of the calls of GROUPING. `dependent`: the keys of the columns that depend on a grouped primary
    key.
    """

    clause: tuple[Expression | GroupingClause, ...]
    distinct: bool
    sets: tuple[tuple[Expression, ...], ...]
    items: Mapping[Expression, str]
    masks: Mapping[Grouping, str]
    aggregates: Mapping[Aggregate, str]
    dependent: Mapping[ColumnRef, str]
    having: Expression | None


@dataclass(frozen=True)
class Select:
    """A plain SELECT. `in_order`: its result shows the order in which the rows were written. `on`: DISTINCT ON.

    `multiplies`: its FROM clause makes pairs of rows in a nested loop (`from_clause.multiplies`). `locks`: its own locking clauses.
    """

    source: FromItem
    where: Expression | None = None
    grouped: Grouped | None = None
    targets: tuple[SelectItem, ...] = ()
    distinct: bool = False
    on: tuple[Sort, ...] = ()
    in_order: bool = False
    multiplies: bool = False
    locks: tuple[RowLock, ...] = ()


@dataclass(frozen=True)
class Values:
    """VALUES. `cells`: the values of each column, in its type."""

    cells: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT. `left_values` and `right_values` are the columns of both sides in the types of the result."""

    op: int
    all: bool
    left: Query
    right: Query
    left_values: tuple[Expression, ...]
    right_values: tuple[Expression, ...]


@dataclass(frozen=True)
class Limit:
    """LIMIT and OFFSET as bigint expressions."""

    count: Expression | None
    offset: Expression | None
    with_ties: bool


@dataclass(frozen=True)
class Query:
    """An analysed SELECT, VALUES or set operation. `ctes`: the queries of its WITH clause, `recursive` if that is WITH RECURSIVE."""

    body: Select | Values | SetOperation
    columns: tuple[PlanColumn, ...] = ()
    sorts: tuple[Sort, ...] = ()
    limit: Limit | None = None
    ctes: tuple[Cte, ...] = ()
    recursive: bool = False

    @property
    def only_projects(self) -> bool:
        """Return whether the query has no other clause than its SELECT list and FROM."""
        select = self.body
        if not isinstance(select, Select) or self.sorts or self.limit is not None:
            return False
        return select.where is None and select.grouped is None and not select.distinct and not select.on


@dataclass(frozen=True, eq=False)
class Cte:
    """A WITH query. `columns` is None for a data-modifying statement without RETURNING. `rows`: the value of `Names.modify`.

    The recursive term of a WITH RECURSIVE query references a Cte without a query, the working table. `materialized` is None if the query
    does not say it.
    """

    name: str
    columns: tuple[PlanColumn, ...] | None
    query: Query | None = None
    recursion: Recursion | None = None
    rows: Any = None
    materialized: bool | None = None

    @property
    def is_working_table(self) -> bool:
        return self.columns is not None and self.query is None and self.rows is None


@dataclass(frozen=True)
class Recursion:
    """The recursive term of a WITH RECURSIVE query. `values`: its columns in the types of the first term."""

    working: Cte
    term: Query
    values: tuple[Expression, ...]
    all: bool


_PARTS = (Query, Select, Values, SetOperation, Grouped, FromItem, SelectItem, Sort, Limit, Cte, Recursion)


P = TypeVar("P")
Part: TypeAlias = FromItem | Grouped | Expression
_LISTS = frozenset({"tables", "star", "merged", "hidden", "columns", "using_alias"})
"""The fields that `parts` does not visit, because they only list columns."""


@functools.cache
def _visited(kind: type) -> tuple[str, ...]:
    """Return the fields that `parts` visits of a class of `_PARTS`."""
    return tuple(field.name for field in fields(kind) if field.name not in _LISTS)


def parts(part: object) -> Iterator[Part]:
    """Yield the FROM items, groups and the nodes of all expressions of a query or of a part of it, also those of its subqueries."""
    if isinstance(part, FromItem | Grouped):
        yield part
    if isinstance(part, Expression):
        for node in walk(part):
            yield node
            if isinstance(node, SubLink):
                yield from parts(node.query)
    elif isinstance(part, tuple | Mapping):
        for item in part:
            yield from parts(item)
    elif isinstance(part, _PARTS):
        kind: type = type(part)
        for name in _visited(kind):
            yield from parts(getattr(part, name))


def used_keys(query: Query, needed: Collection[int]) -> frozenset[str]:
    """Return the keys of the columns and rows that a query references if only the columns of its SELECT list at these places are needed."""
    used: object = query
    if isinstance(query.body, Select):
        targets = tuple(target for place, target in enumerate(query.body.targets) if place in needed)
        used = replace(query, body=replace(query.body, targets=targets))
    return frozenset(node.key for node in parts(used) if isinstance(node, ColumnRef))


def rewritten(part: P, substitute: rewriting.Substitute, known: dict[int, Cte] | None = None) -> P:
    """Return a query, or a part of it, in which nodes of expressions are replaced, also those of its subqueries.

    A part without such a node is returned unchanged. `known`: the new WITH queries by the ids of the old ones.
    """
    known = {} if known is None else known
    new: Any = part
    if isinstance(part, Expression):
        new = rewriting.rewrite(part, in_subqueries(substitute, known))
    elif isinstance(part, tuple):
        items = tuple(rewritten(item, substitute, known) for item in part)
        new = items if any(item is not old for item, old in zip(items, part, strict=True)) else part
    elif isinstance(part, Mapping):
        items = tuple(rewritten(item, substitute, known) for item in part)
        new = dict(zip(items, part.values(), strict=True)) if any(item is not old for item, old in zip(items, part, strict=True)) else part
    elif isinstance(part, (*_PARTS, GroupingClause)) and id(part) not in known:
        kind: type = type(part)
        values = {name: getattr(part, name) for name in _visited(kind)}
        changes = {name: value for name, old in values.items() if (value := rewritten(old, substitute, known)) is not old}
        new = replace(part, **changes) if changes else part
    if isinstance(part, Cte):
        new = known.setdefault(id(part), new)
    return cast("P", new)


def in_subqueries(substitute: rewriting.Substitute, known: dict[int, Cte]) -> rewriting.Substitute:
    """Return the substitution that also replaces nodes in the queries of SubLinks."""

    def replaced(node: Expression) -> Expression | None:
        replacement = substitute(node)
        if replacement is not None or not isinstance(node, SubLink):
            return replacement
        return rewritten_sublink(node, substitute, replaced, known)

    return replaced


def rewritten_sublink(
    node: SubLink, in_query: rewriting.Substitute, in_test: rewriting.Substitute, known: dict[int, Cte] | None = None
) -> SubLink | None:
    """Return a SubLink with its query and its test rewritten, or None if the query stays the same. `known`: as for `rewritten`."""
    query = rewritten(node.query, in_query, known)
    if query is node.query:
        return None
    return replace(node, query=query, test=None if node.test is None else rewriting.rewrite(node.test, in_test))


def reference(column: PlanColumn) -> ColumnRef:
    return ColumnRef(type=column.type, name=column.name, attnum=max(column.attnum, 1), key=column.key)


def renamed(columns: Sequence[PlanColumn], aliases: Sequence[str]) -> list[PlanColumn]:
    """Return the columns with the names of an alias list. Columns beyond the list keep their names."""
    named = zip(columns[: len(aliases)], aliases, strict=True)
    return [*(replace(column, name=alias) for column, alias in named), *columns[len(aliases) :]]


def scope_table(alias: str, columns: Sequence[PlanColumn], schema: str | None = None, row_key: str = "") -> ScopeTable:
    """Return a scope entry for planned columns. It has no system columns."""
    return ScopeTable(
        alias,
        tuple(ScopeColumn(column.name, place, column.type, column.key) for place, column in enumerate(columns, 1)),
        schema,
        0,
        system=False,
        row_key=row_key,
    )
