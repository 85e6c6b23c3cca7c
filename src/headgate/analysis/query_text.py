"""Print an analysed query as SQL, as pg_get_viewdef does (get_query_def of ruleutils.c).

`commands.view` calls it for the texts of a view. Tables, columns and functions get the names that they have in the catalog when the query
is printed, so a query that was analysed before a rename is printed with the new names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import (
    AliasItem,
    ChangesItem,
    Cte,
    CteItem,
    FromItem,
    FunctionItem,
    GroupingClause,
    JoinItem,
    PlanColumn,
    Query,
    RelationItem,
    Select,
    SetOperation,
    SubqueryItem,
    Values,
    reference,
    rewritten,
)
from headgate.catalog.relation.relation import Relation
from headgate.errors import not_supported
from headgate.expression import rewriting
from headgate.expression.binding.scope import SYSTEM_COLUMNS, ScopeTable
from headgate.expression.builtin import operator
from headgate.expression.deparsing.deparse import StoredPrinter, direction, window
from headgate.expression.node import (
    ColumnRef,
    Const,
    Expression,
    OpExpr,
    RowCoerce,
    RowCompare,
    SubLink,
    WindowCall,
    conjuncts,
    walk,
)
from headgate.sql import names
from headgate.types import registry

_STEP = 8
_CTE_WORDS = {None: "", True: "MATERIALIZED ", False: "NOT MATERIALIZED "}
_JOIN_WORDS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "cross": "CROSS JOIN"}
_SET_WORDS = {pb.SETOP_UNION: "UNION", pb.SETOP_INTERSECT: "INTERSECT", pb.SETOP_EXCEPT: "EXCEPT"}
_VALUES = "*VALUES*"


Relations = Callable[[int], Relation]
"""Returns the present definition of a relation by its oid."""


def text(query: Query, columns: Sequence[str], relations: Relations, *, pretty: bool = False) -> str:
    """Return the text of a query, with the blank before it. `columns`: the names of its columns."""
    printer = _Printer(pretty, registry.known(), relations=relations)
    printer.query(query, columns, visible=True)
    return "".join(printer.parts)


@dataclass
class _Printer(StoredPrinter):
    """The text so far, and the names in scope.

    `column_names`: table and name of the columns in scope by their keys. `table_names`: the names of tables, also of enclosing queries.
    `aliases`: the names of FROM items by their ids. `inside`: what `column_names` is inside a join with an alias. `using`: the names of the
    columns of JOIN … USING. `group_values`: expressions by the keys of the columns of groups.
    """

    relations: Relations = field(kw_only=True)
    column_names: dict[str, tuple[str, str]] = field(default_factory=dict)
    table_names: AbstractSet[str] = frozenset({"old", "new"})  # PostgreSQL's views have relations of these names
    aliases: dict[int, str] = field(default_factory=dict)
    inside: dict[int, dict[str, tuple[str, str]]] = field(default_factory=dict)
    using: dict[int, list[str]] = field(default_factory=dict)
    group_values: Mapping[str, Expression] = field(default_factory=dict)

    # ---- queries ---------------------------------------------------------------------------------------------

    def query(self, query: Query, columns: Sequence[str] = (), values: Sequence[Expression] = (), *, visible: bool) -> None:
        """Print a query in its own scope.

        `columns`: the names of its columns, if they are not its own. `values`: its literals of unknown type as a set operation reads them.
        `visible`: the names matter, so a column gets one even if it is the default.
        """
        own = columns or [column.name for column in query.columns]
        saved = self.indent, self.column_names, self.table_names, self.group_values
        self.column_names, body = dict(self.column_names), query.body
        if isinstance(body, Select):
            self._enter(body.source, {})
        elif isinstance(body, Values):
            self.column_names |= {column.key: (_VALUES, column.name) for column in query.columns}
        self._with(query)
        match body:
            case SetOperation():
                self._set_operation(body, columns, visible=visible)
            case Values():
                self._values_query(query, body, own)
            case Select():
                self._select(query, body, own, values, visible=visible)
        self._tail(query)
        self.indent, self.column_names, self.table_names, self.group_values = saved

    def _clause(self, word: str, further: int) -> None:
        self.keyword(f" {word} ", -_STEP, _STEP, further)

    def _with(self, query: Query) -> None:
        if not query.ctes:
            return
        self.indent += _STEP
        self.say(" WITH RECURSIVE " if query.recursive else " WITH ")
        for cte in self.each(query.ctes):
            self._cte(cte)
        self.indent -= _STEP
        self.keyword("", 0, 0)

    def _cte(self, cte: Cte) -> None:
        assert cte.query is not None
        assert cte.columns is not None
        own = [column.name for column in cte.columns]
        self.say(names.quote_ident(cte.name) + (_listed(own) if own != [column.name for column in cte.query.columns] else ""))
        self.say(f" AS {_CTE_WORDS[cte.materialized]}(")
        self.keyword("", 0, 0)
        query = cte.query
        if cte.recursion is not None:
            union = SetOperation(pb.SETOP_UNION, cte.recursion.all, query, cte.recursion.term, (), cte.recursion.values)
            query = Query(union, query.columns)
        self.query(query, visible=True)
        self.keyword("", 0, 0)
        self.say(")")

    def _tail(self, query: Query) -> None:
        """Print ORDER BY, OFFSET, LIMIT and the locking clauses."""
        if query.sorts:
            self._clause("ORDER BY", 1)
        places = {column.key: place for place, column in enumerate(query.columns, 1)} if isinstance(query.body, SetOperation) else {}
        for sort in self.each(query.sorts):
            expression = self._ungrouped(sort.expression)
            if isinstance(expression, ColumnRef) and expression.key in places:
                self.say(str(places[expression.key]))
            else:
                self.item(expression)
            self.say(direction(sort.descending, sort.nulls_first))
        if query.limit is not None and query.limit.offset is not None:
            self._clause("OFFSET", 0)
            self.write(query.limit.offset, implicit=False)
        if query.limit is not None and query.limit.count is not None:
            self._limit(query.limit.count, with_ties=query.limit.with_ties)
        if isinstance(query.body, Select):
            self._locks(query.body)

    def _limit(self, count: Expression, *, with_ties: bool) -> None:
        self._clause("FETCH FIRST" if with_ties else "LIMIT", 0)
        self.say("(" if with_ties else "")
        if isinstance(count, Const) and count.value is None:
            self.say("ALL")
        else:
            self.write(count, implicit=False)
        self.say(") ROWS WITH TIES" if with_ties else "")

    def _locks(self, select: Select) -> None:
        for lock in select.locks:
            for item in _leaves(select.source):
                if isinstance(item, RelationItem | SubqueryItem) and lock.of(item.tables[0].name):
                    self.keyword(f" {lock.strength} OF {names.quote_ident(self.aliases[id(item)])}", -_STEP, _STEP)
                    self.say({pb.LockWaitError: " NOWAIT", pb.LockWaitSkip: " SKIP LOCKED"}.get(lock.policy, ""))

    def _set_operation(self, operation: SetOperation, columns: Sequence[str], *, visible: bool) -> None:
        """Print both sides (get_setop_query). A side that is a set operation of another kind is indented."""
        nested = _nested(operation.left)
        in_parentheses = nested is not None and (nested.op, nested.all) != (operation.op, operation.all)
        if in_parentheses:
            self.say("(")
            self.keyword("", _STEP, 0)
        self._side(operation.left, columns, operation.left_values, visible=visible)
        self.keyword(") " if in_parentheses else "", -_STEP if in_parentheses else 0, 0)
        self.say(f"{_SET_WORDS[operation.op]} {'ALL ' if operation.all else ''}")
        in_parentheses = _nested(operation.right) is not None
        self.say("(" if in_parentheses else "")
        self.keyword("", _STEP if in_parentheses else 0, 0)
        self._side(operation.right, columns, operation.right_values, visible=False)
        if in_parentheses:
            self.indent -= _STEP
            self.keyword(")", 0, 0)

    def _side(self, side: Query, columns: Sequence[str], values: Sequence[Expression], *, visible: bool) -> None:
        nested = _nested(side)
        if nested is not None:
            self._set_operation(nested, columns, visible=visible)
            return
        locked = isinstance(side.body, Select) and side.body.locks
        with self.parentheses(bool(side.ctes or side.sorts or side.limit or locked)):
            self.query(side, columns, values, visible=visible)

    def _values_query(self, query: Query, values: Values, columns: Sequence[str]) -> None:
        self.indent += _STEP
        own = [column.name for column in query.columns]
        if own == list(columns):
            self.say(" ")
            self._rows(values)
            return
        self.say(" SELECT")
        self._targets([reference(column) for column in query.columns], columns, visible=True)
        self._clause("FROM", 2)
        self.say("(")
        self._rows(values)
        self.say(f") {names.quote_ident(_VALUES)}")

    def _rows(self, values: Values) -> None:
        self.say("VALUES ")
        for row in self.each(zip(*values.cells, strict=True)):
            with self.parentheses(True):
                for cell in self.each(row, ","):
                    self.element(cell, implicit=False)

    # ---- SELECT ----------------------------------------------------------------------------------------------

    def _select(self, query: Query, select: Select, columns: Sequence[str], values: Sequence[Expression], *, visible: bool) -> None:
        grouped = select.grouped
        if grouped is not None:
            of_groups = [*grouped.items.items(), *grouped.masks.items(), *grouped.aggregates.items()]
            self.group_values = {**self.group_values, **{key: expression for expression, key in of_groups}}
            self.column_names |= {key: self.column_names[column.key] for column, key in grouped.dependent.items()}
        self.indent += _STEP
        self.say(" SELECT")
        if select.on:
            self.say(" DISTINCT ON (")
            self.items(self._ungrouped(sort.expression) for sort in select.on)
            self.say(")")
        self.say(" DISTINCT" if select.distinct else "")
        literals = [column.literal for column in query.columns]
        expressions = [
            values[place] if values and literal is not None else self._ungrouped(target.expression)
            for place, (target, literal) in enumerate(zip(select.targets, literals, strict=True))
        ]
        self._targets(expressions, columns, visible=visible)
        for place, item in enumerate(_listed_items(select.source)):
            if place:
                self._beside(item)
            else:
                self._clause("FROM", 2)
                self._item(item)
        if select.where is not None:
            self._clause("WHERE", 1)
            self.write(select.where, implicit=False)
        if grouped is not None and grouped.clause:
            self._clause("GROUP BY", 1)
            self.say("DISTINCT " if grouped.distinct else "")
            self._grouping(grouped.clause, bare=True)
        if grouped is not None and grouped.having is not None:
            self._clause("HAVING", 0)
            self.write(self._ungrouped(grouped.having), implicit=False)
        placed = [*expressions, *(self._ungrouped(sort.expression) for sort in query.sorts)]
        windows = {call.window: call for expression in placed for call in walk(expression) if isinstance(call, WindowCall) and call.window}
        for place, (name, call) in enumerate(windows.items()):
            if place:
                self.say(", ")
            else:
                self._clause("WINDOW", 1)
            self.say(f"{names.quote_ident(name)} AS ")
            window(self, call)

    def _ungrouped(self, expression: Expression) -> Expression:
        """Return an expression over the columns of the groups as one over the columns of FROM."""
        return rewriting.rewrite(expression, lambda node: self.group_values.get(node.key) if isinstance(node, ColumnRef) else None)

    def _targets(self, expressions: Sequence[Expression], columns: Sequence[str], *, visible: bool) -> None:
        """Print a SELECT list (get_target_list). Each target has its own line."""
        for place, (expression, column) in enumerate(zip(expressions, columns, strict=True)):
            self.say(", " if place else " ")
            with self._apart() as parts:
                if isinstance(expression, ColumnRef):
                    name = None if expression.attnum == 0 else self.column_names[expression.key][1]
                else:
                    name = None if visible else "?column?"
                self.element(expression, implicit=True)
                self.say("" if name == column else f" AS {names.quote_ident(column)}")
            self._wrapped("".join(parts), first=not place)

    @contextmanager
    def _apart(self) -> Iterator[list[str]]:
        before, self.parts = self.parts, []
        parts: list[str] = []
        yield parts
        parts += self.parts
        self.parts = before

    def _wrapped(self, line: str, *, first: bool = False) -> None:
        """Append a part of a list on a line of its own."""
        if line.startswith("\n"):
            self.parts = ["".join(self.parts).rstrip(" ")]
        elif not first:
            self.keyword("", -_STEP, _STEP, 4)
        self.say(line)

    def _grouping(self, items: Sequence[Expression | GroupingClause], *, bare: bool) -> None:
        """Print items of GROUP BY (get_rule_groupingset). `bare`: a single expression needs no parentheses."""
        for item in self.each(items):
            if not isinstance(item, GroupingClause):
                with self.parentheses(not bare):
                    self.item(item)
            else:
                self.say(f"{item.word}{' ' if item.word == 'GROUPING SETS' else ''}(")
                self._grouping(item.content, bare=item.word != "GROUPING SETS")
                self.say(")")

    # ---- FROM ------------------------------------------------------------------------------------------------

    def _enter(self, item: FromItem, required: dict[str, str]) -> None:
        """Give names to a FROM clause. `required`: the names that columns need because a JOIN … USING around them names them."""
        match item:
            case JoinItem():
                self._enter_join(item, required)
            case AliasItem():
                self._enter(item.item, {})
                self.inside[id(item)] = dict(self.column_names)
                self._add(item, item.tables[0], item.star, required)
            case RelationItem(relation=relation):
                before = {shown.key: column.name for column, shown in zip(relation.columns, item.star, strict=False)}
                present = {shown.key: name for name, shown in self._present(item) if shown.name == before[shown.key]}
                table = item.tables[0]
                if table.schema is not None:
                    table = replace(table, name=self.relations(relation.oid).name)
                columns = [replace(column, name=present.get(column.key, column.name)) for column in item.star]
                self._add(item, table, columns, required)
                system = {f"{item.tables[0].name}.{name}": (self.aliases[id(item)], name) for name in SYSTEM_COLUMNS}
                self.column_names |= system if table.system else {}
            case FunctionItem(left=left):
                if left is not None:
                    self._enter(left, required)
                self._add(item, item.tables[-1], item.columns, required)
            case FromItem(tables=(table,)):
                self._add(item, table, item.star, required)
            case _:
                pass

    def _enter_join(self, item: JoinItem, required: dict[str, str]) -> None:
        """Give names to the sides of a join. The columns of USING have the same name on both sides."""
        merged = [required.get(column.key, column.name) for column, _ in item.using]
        own = dict(required)
        for name, equality in zip(merged, conjuncts(item.condition) if item.using and item.condition else (), strict=True):
            own |= {node.key: name for node in walk(equality) if isinstance(node, ColumnRef)}
        self.using[id(item)] = merged
        self._enter(item.left, own)
        self._enter(item.right, own)
        for name, (column, value) in zip(merged, item.using, strict=True):
            self.column_names[column.key] = self.column_names[value.key] if isinstance(value, ColumnRef) else ("", name)

    def _present(self, item: RelationItem) -> list[tuple[str, PlanColumn]]:
        """Return the columns that a relation still has, with their present names."""
        present = {column.attnum: column.name for column in self.relations(item.relation.oid).columns if not column.dropped}
        columns = zip(item.relation.columns, item.star, strict=False)
        return [(present[column.attnum], shown) for column, shown in columns if column.attnum in present]

    def _add(self, item: FromItem, table: ScopeTable, columns: Sequence[PlanColumn], required: Mapping[str, str]) -> None:
        alias = self.aliases[id(item)] = _unique(table.name, self.table_names)
        self.table_names = self.table_names | {alias}
        used: set[str] = set()
        for column in columns:
            name = _unique(required.get(column.key, column.name), used)
            used.add(name)
            self.column_names[column.key] = (alias, name)
        self.column_names[table.row_key] = (alias, "*")

    def _beside(self, item: FromItem) -> None:
        self.say(", ")
        with self._apart() as parts:
            self._item(item)
        self._wrapped("".join(parts))

    def _item(self, item: FromItem) -> None:
        """Print an item of FROM (get_from_clause_item)."""
        match item:
            case JoinItem():
                self._join(item, aliased=False)
            case AliasItem(item=JoinItem() | FunctionItem() as joined):
                before, self.column_names = self.column_names, self.inside[id(item)]
                self._join(joined, aliased=True)
                self.column_names = before
                self._alias(item, [column.name for column in joined.star], item.star)
            case FunctionItem(left=left) if left is not None and not item.listed:
                self._join(item, aliased=False)
            case RelationItem(relation=relation):
                present, columns = self.relations(relation.oid), self._present(item)
                self.say(("ONLY " if item.only else "") + registry.reference(present.oid))
                implied = present.name if item.tables[0].schema is not None else None
                self._alias(item, [name for name, _ in columns], [column for _, column in columns], implied)
            case SubqueryItem(query=query):
                self.say("LATERAL (" if item.lateral else "(")
                self.query(query, visible=True)
                self.say(")")
                self._alias(item, [column.name for column in query.columns], item.star)
            case CteItem(cte=cte):
                self.say(names.quote_ident(cte.name))
                implied = cte.name if item.tables[0].name == cte.name else None
                self._alias(item, [column.name for column in cte.columns or ()], item.star, implied)
            case FunctionItem() | ChangesItem():
                self._function(item)
                self._alias(item, None, item.columns if isinstance(item, FunctionItem) else item.star)
            case _:
                raise not_supported(f"{type(item).__name__} in a view is not supported")

    def _alias(self, item: FromItem, own: Sequence[str] | None, columns: Sequence[PlanColumn], implied: str | None = None) -> None:
        """Print an alias, unless it is the `implied` name, and the names of columns that are not the item's `own`."""
        alias = self.aliases[id(item)]
        present = [self.column_names[column.key][1] for column in columns]
        if present != own:
            self.say(f" {names.quote_ident(alias)}{_listed(present)}")
        elif alias != implied:
            self.say(f" {names.quote_ident(alias)}")

    def _function(self, item: FunctionItem | ChangesItem) -> None:
        if isinstance(item, ChangesItem):
            self.say(item.call)
            return
        self.say("LATERAL " if item.lateral is not None else "")
        if len(item.calls) == 1:
            self.write(item.calls[0], implicit=True)
        else:
            self.say("UNNEST(")
            self.listed(argument for call in item.calls for argument in call.children())
            self.say(")")
        self.say(" WITH ORDINALITY" if item.ordinality else "")

    def _join(self, item: JoinItem | FunctionItem, *, aliased: bool) -> None:
        assert item.left is not None
        right: FromItem
        if isinstance(item, FunctionItem):
            how = "left" if item.keep_left else "cross" if item.condition is None else "inner"
            right, always = replace(item, left=None), item.keep_left and item.condition is None
            self.aliases[id(right)] = self.aliases[id(item)]
        else:
            how, right, always = item.how, item.right, False
        with self.parentheses(aliased or not self.pretty):
            self._item(item.left)
            self.keyword(f" {_JOIN_WORDS[how]} ", -_STEP, _STEP, 4)
            with self.parentheses(self.pretty and isinstance(right, JoinItem)):
                self._item(right)
            if isinstance(item, JoinItem) and item.using:
                self.say(f" USING {_listed(self.using[id(item)])}")
            elif item.condition is not None or always:
                self.say(" ON ")
                with self.parentheses():
                    if item.condition is None:
                        self.say("true")
                    else:
                        self.write(item.condition, implicit=False)

    # ---- parts of expressions --------------------------------------------------------------------------------

    def element(self, expression: Expression, *, implicit: bool) -> None:
        """See `Printer`. A whole row gets its type, so a cast to this type is not printed."""
        if isinstance(expression, RowCoerce) and isinstance(expression.arg, ColumnRef) and expression.arg.attnum == 0:
            row_type = self.types.of_relation(expression.arg.relation)
            if row_type is not None and row_type.oid == expression.type.oid:
                expression = expression.arg
        self.write(expression, implicit=implicit)
        if isinstance(expression, ColumnRef) and expression.attnum == 0:
            row_type = self.types.of_relation(expression.relation) if expression.relation else None
            self.say("::" + ("record" if row_type is None else self.type_name(row_type.oid, -1)))

    def column(self, node: ColumnRef) -> str:
        table, column = self.column_names[node.key]
        name = "*" if node.attnum == 0 else names.quote_ident(column)
        return f"{names.quote_ident(table)}.{name}" if table else name

    def sublink(self, node: SubLink) -> None:
        """Print a subquery in an expression (get_sublink_expr)."""
        query = rewritten(node.printed or node.query, lambda part: self.group_values.get(part.key) if isinstance(part, ColumnRef) else None)
        self.say("ARRAY(" if node.kind == "ARRAY" else "(")
        if node.kind == "EXISTS":
            self.say("EXISTS (")
        elif node.test is not None:
            name = self._test(node.test)
            self.say(" IN (" if node.kind == "ANY" and name == "=" else f" {name} {node.kind} (")
        self.query(query, visible=False)
        self.say(")" if node.kind in ("ARRAY", "EXPR") else "))")

    def _test(self, test: Expression) -> str:
        """Print the left side of a comparison with the rows of a subquery, and return the name of its operator."""
        if isinstance(test, OpExpr):
            self.write(test.args[0], implicit=True)
            return operator(test.operator).name
        self.say("(")
        if isinstance(test, RowCompare):
            self.listed(test.left)
            number = test.operators[0]
        else:
            comparisons = [part for part in test.children() if isinstance(part, OpExpr)]
            self.listed(comparison.args[0] for comparison in comparisons)
            number = comparisons[0].operator
        self.say(")")
        return operator(number).name


def _nested(side: Query) -> SetOperation | None:
    """Return the set operation that a side of another one is, unless it has clauses of its own."""
    own = side.ctes or side.sorts or side.limit is not None
    return side.body if isinstance(side.body, SetOperation) and not own else None


def _listed_items(source: FromItem) -> Iterator[FromItem]:
    if isinstance(source, JoinItem) and source.listed:
        yield from _listed_items(source.left)
        yield source.right
    elif isinstance(source, FunctionItem) and source.listed and source.left is not None:
        yield from _listed_items(source.left)
        yield source
    elif source.tables:
        yield source


def _leaves(source: FromItem) -> Iterator[FromItem]:
    """Yield the items of FROM without joins."""
    match source:
        case JoinItem(left=left, right=right):
            yield from _leaves(left)
            yield from _leaves(right)
        case FunctionItem(left=left) if left is not None:
            yield from _leaves(left)
        case _:
            yield source


def _listed(columns: Sequence[str]) -> str:
    return f"({', '.join(map(names.quote_ident, columns))})"


def _unique(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if it is taken (make_colname_unique)."""
    unique, number = name, 0
    while unique in taken:
        number += 1
        suffix = f"_{number}"
        unique = name.encode()[: 63 - len(suffix)].decode(errors="ignore") + suffix
    return unique
