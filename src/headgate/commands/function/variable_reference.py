"""Which names in a statement of a function mean variables: they become its parameters (PostgreSQL's plpgsql_post_column_ref).

Called by `host`. A name means a column where a table in FROM has it, else a variable; where both have it, it is ambiguous (42702), as with
plpgsql.variable_conflict = error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.commands.query.clause import select_list
from headgate.errors import PostgresError
from headgate.plpgsql.scope import Row, Scope
from headgate.plpgsql.tree import Names
from headgate.sql import names
from headgate.sql.parser import ParseNode, position, unwrap

Columns = Callable[[pb.RangeVar], Sequence[str]]
"""The columns of a table that a statement names."""
_QUERIES = ("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt")


@dataclass
class _Level:
    """What a query's FROM gives to its expressions, and its WITH to its FROM."""

    columns: set[str] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)
    with_names: dict[str, Sequence[str]] = field(default_factory=dict)


class References:
    """Replaces the variables in one statement, in place; `found` are the variables in the order of their parameters."""

    def __init__(self, scope: Scope, columns: Columns) -> None:
        self._scope, self._columns = scope, columns
        self._levels: list[_Level] = []
        self.found: list[Names] = []

    def replace(self, node: ParseNode) -> None:
        """Replaces what is inside of a node."""
        kind = node.DESCRIPTOR.name
        level = None
        if kind in _QUERIES:
            level = _Level()
            self._levels.append(level)
            self._open(node, level)
        try:
            for described, value in node.ListFields():
                if described.message_type is None:
                    continue
                if described.is_repeated:
                    self._spread(value)
                for each in value if described.is_repeated else (value,):
                    self._visit(each)
        finally:
            if level is not None:
                self._levels.pop()

    def _visit(self, node: ParseNode) -> None:
        """A node of a list or a field: a reference is replaced, what else there is, visited."""
        if node.DESCRIPTOR.name != "Node":
            self.replace(node)
            return
        inner = unwrap(node)
        if inner is None:
            return
        kind = inner.DESCRIPTOR.name
        if kind == "ColumnRef":
            parts = [unwrap(each) for each in inner.fields]
            if all(part.DESCRIPTOR.name == "String" for part in parts):
                found = self._variable(tuple(part.sval for part in parts), inner.location)
                if found is not None:
                    self._put(node, found, inner.location)
        elif kind == "ParamRef":
            if self._scope.find((f"${inner.number}",)) is None:
                raise PostgresError("42P02", f"there is no parameter ${inner.number}", position=position(inner.location))
            self._put(node, (f"${inner.number}",), inner.location)
        else:
            self.replace(inner)

    def _put(self, node: ParseNode, found: Names, location: int) -> None:
        if found not in self.found:
            self.found.append(found)
        number = self.found.index(found) + 1
        node.Clear()
        node.param_ref.number, node.param_ref.location = number, location

    def _variable(self, written: Names, location: int) -> Names | None:
        """The variable that a name means; None: it is a column's."""
        is_column = any(
            written[0] in level.columns if len(written) == 1 else written[0] in level.aliases for level in reversed(self._levels)
        )
        if self._scope.find(written) is None:
            return None
        if is_column:
            raise PostgresError(
                "42702", f'column reference "{".".join(written)}" is ambiguous',
                detail="It could refer to either a PL/pgSQL variable or a table column.", position=position(location),
            )  # fmt: skip
        return written

    def _spread(self, items: ParseNode) -> None:
        """``record.*`` in a list becomes the record's fields."""
        made, changed = [], False
        for item in items:
            inner = unwrap(item)
            target = unwrap(inner.val) if inner is not None and inner.DESCRIPTOR.name == "ResTarget" else inner
            row = self._starred(target)
            if row is None:
                made.append(item)
                continue
            changed = True
            for name in row.fields:
                copied = pb.Node()
                reference = copied.res_target.val if inner is not target else copied
                if inner is not target:
                    copied.res_target.name = name
                    copied.res_target.location = inner.location
                for part in (unwrap(target.fields[0]).sval, name):
                    reference.column_ref.fields.add().string.sval = part
                reference.column_ref.location = target.location
                made.append(copied)
        if changed:
            kept = [type(each).FromString(each.SerializeToString()) for each in made]
            del items[:]
            items.extend(kept)

    def _starred(self, node: ParseNode) -> Row | None:
        if (
            node is None
            or node.DESCRIPTOR.name != "ColumnRef"
            or len(node.fields) != 2
            or unwrap(node.fields[1]).DESCRIPTOR.name != "A_Star"
        ):
            return None
        name = unwrap(node.fields[0]).sval
        if any(name in level.aliases for level in self._levels):
            return None
        found = self._scope.find((name,))
        if found is None or not found[0].row:
            return None
        if not isinstance(found[0].value, Row):
            raise PostgresError("55000", f'record "{name}" is not assigned yet')
        return found[0].value

    # ---- what FROM gives ----------------------------------------------------------------------------------

    def _open(self, node: ParseNode, level: _Level) -> None:
        kind = node.DESCRIPTOR.name
        if node.HasField("with_clause"):
            for item in node.with_clause.ctes:
                query = unwrap(item)
                given = names.strings(query.aliascolnames)
                level.with_names[query.ctename] = given or self._outputs(unwrap(query.ctequery))
        if kind in ("SelectStmt", "UpdateStmt"):
            for item in node.from_clause:
                self._item(unwrap(item), level)
        if kind == "DeleteStmt":
            for item in node.using_clause:
                self._item(unwrap(item), level)
        if kind in ("UpdateStmt", "DeleteStmt", "MergeStmt"):
            self._item(node.relation, level)
        if kind == "MergeStmt":
            self._item(unwrap(node.source_relation), level)
        if kind == "InsertStmt" and (node.HasField("on_conflict_clause") or node.HasField("returning_clause")):
            self._item(node.relation, level)
            level.aliases.add("excluded")

    def _item(self, node: ParseNode, level: _Level) -> None:
        kind = node.DESCRIPTOR.name
        if kind == "JoinExpr":
            self._item(unwrap(node.larg), level)
            self._item(unwrap(node.rarg), level)
            return
        if kind == "RangeVar":
            found: Sequence[str] = next(
                (
                    each.with_names[node.relname]
                    for each in reversed(self._levels)
                    if not node.schemaname and node.relname in each.with_names
                ),
                (),
            ) or self._columns(node)
            name = node.relname
        elif kind == "RangeSubselect":
            found, name = self._outputs(unwrap(node.subquery)), ""
        elif kind == "RangeFunction":
            called = unwrap(unwrap(node.functions[0]).items[0])
            name = select_list.figure_name(called)
            found = [node.alias.aliasname or name, *(unwrap(each).colname for each in node.coldeflist)]
        else:
            return
        if node.HasField("alias"):
            name = node.alias.aliasname
            given = names.strings(node.alias.colnames)
            found = [*given, *list(found)[len(given) :]]
        level.columns.update(found)
        level.aliases.add(name)

    def _outputs(self, node: ParseNode) -> Sequence[str]:
        """The names of a query's columns."""
        if node.DESCRIPTOR.name != "SelectStmt":
            return [unwrap(each).name or select_list.figure_name(unwrap(each).val) for each in _returning(node)]
        if node.op != pb.SETOP_NONE:
            return self._outputs(node.larg)
        if node.values_lists:
            return [f"column{place}" for place in range(1, len(unwrap(node.values_lists[0]).items) + 1)]
        level, found = _Level(), []
        self._levels.append(level)
        self._open(node, level)
        self._levels.pop()
        for item in node.target_list:
            target = unwrap(item)
            value = unwrap(target.val)
            if value.DESCRIPTOR.name == "ColumnRef" and unwrap(value.fields[-1]).DESCRIPTOR.name == "A_Star":
                found += sorted(level.columns)
            else:
                found.append(target.name or select_list.figure_name(value))
        return found


def _returning(node: ParseNode) -> Sequence[ParseNode]:
    clause = node.returning_clause if node.HasField("returning_clause") else None
    return [] if clause is None else list(clause.exprs)
