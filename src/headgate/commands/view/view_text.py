"""Print the query of a view as pg_get_viewdef does (ruleutils.c), from the tree that `view_query` resolved.

Constructs without a printer here (subqueries in FROM, WITH, window functions, …) are printed on one line by libpg_query, with the same
meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.view import Texts
from headgate.commands import stored_expression
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import resolve_unknown
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import ColumnRef, Const, Expression
from headgate.sql import grammar, names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

SHOWN_BARE = ("public", "pg_catalog")
"""Schemas whose tables are printed unqualified if the search path has the schema."""


class _NoPrinterError(Exception):
    """The query has a construct that only libpg_query prints."""


def texts(node: pb.SelectStmt, cursor: Cursor, database: int, types: registry.TypeRegistry) -> Texts:
    """Return the texts of a resolved query."""
    query = _whole(node)
    printed = []
    for pretty, qualified in ((False, False), (True, False), (False, True)):
        try:
            printed.append(_Printer(cursor, database, types, pretty, qualified).query(node))
        except (_NoPrinterError, PostgresError):
            printed.append(f" {query}")
    return Texts(query, *printed)


def _whole(node: pb.SelectStmt) -> str:
    tree = pb.ParseResult()
    tree.stmts.add().stmt.select_stmt.CopyFrom(node)
    return grammar.deparse(tree)


def _outputs(node: ParseNode) -> list[str]:
    while node.op != pb.SETOP_NONE:
        node = node.larg
    return [unwrap(item).name for item in node.target_list]


@dataclass
class _Printer:
    cursor: Cursor
    database: int
    types: registry.TypeRegistry
    pretty: bool
    qualified: bool

    def query(self, node: pb.SelectStmt, named: Sequence[str] = ()) -> str:
        """Print a SELECT or set operation, with the blank before it. `named`: the column names of the outermost query."""
        if node.HasField("with_clause") or node.values_lists or node.window_clause or node.locking_clause:
            raise _NoPrinterError
        if node.op != pb.SETOP_NONE:
            return self._set_operation(node, named or _outputs(node))
        return self._select(node, named)

    def _set_operation(self, node: ParseNode, named: Sequence[str]) -> str:
        if node.sort_clause or node.HasField("limit_count") or node.HasField("limit_offset"):
            raise _NoPrinterError
        word = {pb.SETOP_UNION: "UNION", pb.SETOP_INTERSECT: "INTERSECT", pb.SETOP_EXCEPT: "EXCEPT"}[node.op]
        for side in (node.larg, node.rarg):
            if side.sort_clause or side.HasField("limit_count") or (side.op != pb.SETOP_NONE and (side is node.rarg or side.op != node.op)):
                raise _NoPrinterError
        return f"{self.query(node.larg, named)}\n{word}{' ALL' if node.all else ''}\n{self.query(node.rarg, named)}"

    def _select(self, node: pb.SelectStmt, named: Sequence[str] = ()) -> str:
        tables: list[ScopeTable] = []
        origin = ",\n    ".join(self._from(unwrap(item), tables) for item in node.from_clause)
        scope = Scope(tuple(tables), qualify=True)
        context = BindContext(types=self.types, aggregates=True, sets=True)
        targets = [
            (unwrap(item).name, resolve_unknown(binder.bind_raw(unwrap(item).val, scope, context), context)) for item in node.target_list
        ]
        text = (
            " SELECT "
            + self._distinct(node, targets, scope, context)
            + ",\n    ".join(
                self._target(named[place] if place < len(named) else name, value) for place, (name, value) in enumerate(targets)
            )
        )
        text += f"\n   FROM {origin}" if origin else ""
        if node.HasField("where_clause"):
            text += f"\n  WHERE {self._text(binder.bind_condition(node.where_clause, scope, 'WHERE', context=context))}"
        if node.group_clause:
            text += "\n  GROUP BY " + ", ".join(
                self._print_item(item, targets, scope, context, outputs_last=True) for item in node.group_clause
            )
        if node.HasField("having_clause"):
            text += f"\n HAVING {self._text(binder.bind_condition(node.having_clause, scope, 'HAVING', context=context))}"
        if node.sort_clause:
            text += "\n  ORDER BY " + ", ".join(self._sort(unwrap(item), targets, scope, context) for item in node.sort_clause)
        if node.HasField("limit_offset"):
            text += f"\n OFFSET {self._text(binder.bind_raw(node.limit_offset, scope, context))}"
        if node.HasField("limit_count"):
            count = binder.bind_raw(node.limit_count, scope, context)
            if node.limit_option == pb.LIMIT_OPTION_WITH_TIES:
                return f"{text}\n FETCH FIRST ({self._text(count)}) ROWS WITH TIES"
            is_all = isinstance(count, Const) and count.value is None
            text += "\n LIMIT ALL" if is_all else f"\n LIMIT {self._text(count)}"
        return text

    def _distinct(self, node: pb.SelectStmt, targets: Sequence[tuple[str, Expression]], scope: Scope, context: BindContext) -> str:
        if not node.distinct_clause:
            return ""
        if unwrap(node.distinct_clause[0]) is None:
            return "DISTINCT "
        return f"DISTINCT ON ({', '.join(self._print_item(item, targets, scope, context) for item in node.distinct_clause)}) "

    def _text(self, expression: Expression) -> str:
        return deparse(expression, self.pretty, self.types)

    def _target(self, name: str, value: Expression) -> str:
        shown = self._text(value)
        own = value.name if isinstance(value, ColumnRef) else None
        return shown if own == name else f"{shown} AS {names.quote_ident(name)}"

    def _print_item(
        self, node: ParseNode, targets: Sequence[tuple[str, Expression]], scope: Scope, context: BindContext, *, outputs_last: bool = False
    ) -> str:
        """Print an item of ORDER BY or GROUP BY: a target by its number or name, or an expression."""
        inner = unwrap(node)
        kind = inner.DESCRIPTOR.name
        if kind == "GroupingSet":
            raise _NoPrinterError
        if kind == "A_Const" and inner.HasField("ival"):
            return self._text(targets[inner.ival.ival - 1][1])
        if kind == "ColumnRef" and len(inner.fields) == 1 and not outputs_last:
            output_name = unwrap(inner.fields[0]).sval
            target = next((value for name, value in targets if name == output_name), None)
            if target is not None:
                return self._text(target)
        return self._text(binder.bind_raw(inner, scope, context))

    def _sort(self, node: ParseNode, targets: Sequence[tuple[str, Expression]], scope: Scope, context: BindContext) -> str:
        text = self._print_item(node.node, targets, scope, context)
        descending = node.sortby_dir == pb.SORTBY_DESC
        text += " DESC" if descending else ""
        if node.sortby_nulls == pb.SORTBY_NULLS_FIRST and not descending:
            text += " NULLS FIRST"
        if node.sortby_nulls == pb.SORTBY_NULLS_LAST and descending:
            text += " NULLS LAST"
        return text

    def _from(self, item: ParseNode, tables: list[ScopeTable]) -> str:
        kind = item.DESCRIPTOR.name
        if kind == "RangeVar":
            return self._table(item, tables)
        if kind != "JoinExpr" or item.HasField("alias"):
            raise _NoPrinterError
        left, right = self._from(unwrap(item.larg), tables), self._from(unwrap(item.rarg), tables)
        if unwrap(item.rarg).DESCRIPTOR.name == "JoinExpr" and self.pretty:
            right = f"({right})"
        word = {pb.JOIN_INNER: "JOIN", pb.JOIN_LEFT: "LEFT JOIN", pb.JOIN_RIGHT: "RIGHT JOIN", pb.JOIN_FULL: "FULL JOIN"}[item.jointype]
        condition = ""
        if item.using_clause:
            raise _NoPrinterError  # merged columns have no table of their own
        if item.HasField("quals"):
            context = BindContext(types=self.types)
            bound = binder.bind_condition(item.quals, Scope(tuple(tables), qualify=True), "JOIN/ON", context=context)
            shown = self._text(bound)
            condition = f" ON {shown}" if self.pretty else f" ON ({shown})"
        else:
            word = "CROSS JOIN" if item.jointype == pb.JOIN_INNER else word
        text = f"{left}\n     {word} {right}{condition}"
        return text if self.pretty else f"({text})"

    def _table(self, item: pb.RangeVar, tables: list[ScopeTable]) -> str:
        relation = relations.lookup(self.cursor, self.database, item.schemaname, item.relname)
        if relation is None or item.alias.colnames:
            raise _NoPrinterError
        tables.append(_scope_table(relation, item.alias.aliasname))
        bare = relation.schema == "pg_catalog" or (relation.schema in SHOWN_BARE and not self.qualified)
        shown = names.quote_ident(relation.name) if bare else names.qualified(relation.schema, relation.name)
        only = "" if item.inh else "ONLY "
        return only + shown + (f" {names.quote_ident(item.alias.aliasname)}" if item.alias.aliasname != relation.name else "")


def _scope_table(relation: Relation, alias: str) -> ScopeTable:
    columns = [ScopeColumn(column.name, column.attnum, stored_expression.type_of(column), column.name) for column in relation.columns]
    return ScopeTable(alias, tuple(columns), None, relation.oid)
