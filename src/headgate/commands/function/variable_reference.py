"""Replace the names in a function's statement that denote variables by parameters (PostgreSQL's plpgsql_post_column_ref).

Called by `host`. A name denotes a column if a table in FROM has it, otherwise a variable. If both have it, it is ambiguous (42702), unless
plpgsql.variable_conflict says otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.plpgsql.scope import Row, Scope
from headgate.plpgsql.tree import Names
from headgate.sql import names
from headgate.sql.column_name import title
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

Columns = Callable[[pb.RangeVar], Sequence[str]]
"""Returns the column names of a table that a statement names."""
_QUERIES = ("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt")
_WHOLE_VALUES = ("ResTarget", "CoalesceExpr", "CaseExpr", "CaseWhen")
"""The nodes whose operands may be a whole row, which keeps its type."""


@dataclass
class _Level:
    """The names of one query level: columns and aliases of FROM, and the queries of WITH."""

    columns: set[str] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)
    with_names: dict[str, Sequence[str]] = field(default_factory=dict)


class References:
    """Replaces the variables in one statement, in place.

    `found` has the variables in the order of their parameters. `rows` has the records that are named as a whole, with their fields.
    """

    def __init__(self, scope: Scope, columns: Columns, conflict: str = "error") -> None:
        """Create the object. `conflict`: the meaning of a name of both a variable and a column, as plpgsql.variable_conflict."""
        self._scope, self._columns, self._conflict = scope, columns, conflict
        self._levels: list[_Level] = []
        self.found: list[Names] = []
        self.rows: dict[str, Sequence[str] | None] = {}

    def replace(self, node: ParseNode) -> None:
        kind = node.DESCRIPTOR.name
        if kind == "ResTarget" and not node.name and node.HasField("val"):
            self._replace_titled(node)
            return
        level = None
        if kind in _QUERIES:
            level = _Level()
            self._levels.append(level)
            self._open(node, level)
        try:
            for described, value in node.ListFields():
                if described.message_type is None:
                    continue
                if described.is_repeated and kind != "FuncCall":  # as an argument, ``record.*`` is the whole row
                    self._spread(value)
                is_apart = described.name in ("with_clause", "select_stmt")
                with self._apart() if is_apart else contextlib.nullcontext():
                    for child in value if described.is_repeated else (value,):
                        self._visit(child, kind)
        finally:
            if level is not None:
                self._levels.pop()

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Hide the columns of the query level in the block: WITH, FROM (SELECT …) and INSERT … SELECT do not see them."""
        own = self._levels[-1]
        self._levels[-1] = _Level(with_names=own.with_names)
        try:
            yield
        finally:
            self._levels[-1] = own

    def _replace_titled(self, target: pb.ResTarget) -> None:
        """Replace the variables in an item of a SELECT list, whose column keeps the name that it has by the item's text."""
        shown = title(target.val)
        self._visit(target.val, "ResTarget")
        if title(target.val) != shown:
            target.name = shown

    def _visit(self, node: ParseNode, parent: str) -> None:
        """Replace a reference, or visit any other node of a list or field. `parent`: the kind of the node that has it."""
        if node.DESCRIPTOR.name != "Node":
            self.replace(node)
            return
        inner = unwrap(node)
        if inner is None:
            return
        kind = inner.DESCRIPTOR.name
        if kind == "ColumnRef":
            parts = [unwrap(field_node) for field_node in inner.fields]
            row = self._whole_row(parts) if parent not in _WHOLE_VALUES else None
            if row is not None:
                self._put_row(node, unwrap(inner.fields[0]).sval, row, inner.location)
            elif all(part.DESCRIPTOR.name == "String" for part in parts):
                variable = self._variable(tuple(part.sval for part in parts), inner.location)
                if variable is not None:
                    self._put(node, variable, inner.location)
        elif kind == "A_Indirection" and (variable := self._field(inner)) is not None:
            has_more, location = len(inner.indirection) > 1, unwrap(inner.arg).location
            self._put(inner.arg if has_more else node, variable, location)
            if has_more:
                del inner.indirection[0]
                for step in inner.indirection:
                    self._visit(step, kind)
        elif kind == "ParamRef":
            if self._scope.find((f"${inner.number}",)) is None:
                raise PostgresError("42P02", f"there is no parameter ${inner.number}", location=inner.location)
            self._put(node, (f"${inner.number}",), inner.location)
        elif kind == "RangeSubselect" and not inner.lateral:
            with self._apart():
                self.replace(inner)
        elif kind == "CurrentOfExpr" and inner.cursor_name and self._scope.find((inner.cursor_name,)) is not None:
            inner.cursor_param = self._number((inner.cursor_name,))
            inner.cursor_name = ""
        else:
            self.replace(inner)

    def _whole_row(self, parts: Sequence[ParseNode]) -> Row | None:
        """Return the row that ``record`` or ``record.*`` denotes inside an expression, or None.

        The type of a table's rows and of a RECORD is not known to the binder, so the fields replace the row.
        """
        name = parts[0].sval if parts[0].DESCRIPTOR.name == "String" else None
        is_star = len(parts) == 2 and parts[1].DESCRIPTOR.name == "A_Star"
        if name is None or not (is_star or len(parts) == 1):
            return None
        if any(name in (level.aliases if is_star else level.columns | level.aliases) for level in self._levels):
            return None
        match = self._scope.find((name,))
        if match is None or not match[0].row:
            return None
        self.rows[name] = fields_of(self._scope, name)
        if not isinstance(match[0].value, Row):
            return None
        row_type = registry.known().find(match[0].type.oid)
        is_known = row_type is not None and not row_type.of_table and row_type.oid != registry.RECORD
        return match[0].value if is_star or not (is_known or match[0].value.is_null) else None

    def _field(self, node: pb.A_Indirection) -> Names | None:
        """Return the field of a record that ``(record).field`` denotes, or None."""
        record, step = unwrap(node.arg), unwrap(node.indirection[0])
        if not isinstance(record, pb.ColumnRef) or len(record.fields) != 1 or step.DESCRIPTOR.name != "String":
            return None
        name = unwrap(record.fields[0])
        if name.DESCRIPTOR.name != "String" or any(name.sval in level.columns for level in self._levels):
            return None
        match = self._scope.find((name.sval,))
        if match is None or not isinstance(match[0].value, Row) or step.sval not in match[0].value.fields:
            return None
        return self._variable((name.sval, step.sval), record.location)

    def _put_row(self, node: ParseNode, name: str, row: Row, location: int) -> None:
        """Replace a row by ``ROW(record.field, …)`` with the names of its fields."""
        node.Clear()
        node.row_expr.row_format, node.row_expr.location = pb.COERCE_EXPLICIT_CALL, location
        for field_name in row.fields:
            node.row_expr.colnames.add().string.sval = field_name
            item = node.row_expr.args.add()
            item.param_ref.number, item.param_ref.location = self._number((name, field_name)), location

    def _number(self, variable: Names) -> int:
        known = self._scope.find(variable)
        for number, earlier in enumerate(self.found, 1):  # $1 and the name of the first argument are one variable
            entry = self._scope.find(earlier)
            if known is not None and entry is not None and known[0] is entry[0] and known[1] == entry[1]:
                return number
        self.found.append(variable)
        return len(self.found)

    def _put(self, node: ParseNode, variable: Names, location: int) -> None:
        number = self._number(variable)
        node.Clear()
        node.param_ref.number, node.param_ref.location = number, location

    def _variable(self, parts: Names, location: int) -> Names | None:
        """Return the variable that a name denotes, or None if it can only be a column. Raise 42702 if it is ambiguous."""
        is_column = any(parts[0] in level.aliases or (len(parts) == 1 and parts[0] in level.columns) for level in reversed(self._levels))
        if self._scope.find(parts) is None:
            return None
        if is_column and self._conflict == "use_column":
            return None
        if is_column and self._conflict != "use_variable":
            raise PostgresError(
                "42702", f'column reference "{".".join(parts)}" is ambiguous',
                detail="It could refer to either a PL/pgSQL variable or a table column.", location=location
            )  # fmt: skip
        return parts

    def _spread(self, items: ParseNode) -> None:
        """Expand ``record.*`` and ``(record).*`` in a list to the record's fields."""
        nodes, changed = [], False
        for item in items:
            inner = unwrap(item)
            target = unwrap(inner.val) if inner is not None and inner.DESCRIPTOR.name == "ResTarget" else inner
            starred = self._starred(target)
            if starred is None:
                nodes.append(item)
                continue
            changed, (record, row) = True, starred
            for name in row.fields:
                copied = pb.Node()
                reference = copied.res_target.val if inner is not target else copied
                if inner is not target:
                    copied.res_target.name = name
                    copied.res_target.location = inner.location
                for part in (unwrap(record.fields[0]).sval, name):
                    reference.column_ref.fields.add().string.sval = part
                reference.column_ref.location = record.location
                nodes.append(copied)
        if changed:
            copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
            del items[:]
            items.extend(copies)

    def _starred(self, node: ParseNode) -> tuple[pb.ColumnRef, Row] | None:
        """Return the reference to the record of ``record.*`` or ``(record).*``, and its value."""
        steps: Sequence[ParseNode] = ()
        if isinstance(node, pb.A_Indirection):
            node, steps = unwrap(node.arg), node.indirection
        if not isinstance(node, pb.ColumnRef):
            return None
        first, *rest = [unwrap(part) for part in (*node.fields, *steps)]
        if [part.DESCRIPTOR.name for part in (first, *rest)] != ["String", "A_Star"]:
            return None
        name = first.sval
        if any(name in level.aliases or (steps and name in level.columns) for level in self._levels):
            return None
        variable = self._scope.find((name,))
        if variable is None or not variable[0].row:
            return None
        if not isinstance(variable[0].value, Row):
            raise PostgresError("55000", f'record "{name}" is not assigned yet')
        return node, variable[0].value

    # ---- what FROM gives ----------------------------------------------------------------------------------

    def _open(self, node: ParseNode, level: _Level) -> None:
        kind = node.DESCRIPTOR.name
        if node.HasField("with_clause"):
            for item in node.with_clause.ctes:
                query = unwrap(item)
                aliases = names.strings(query.aliascolnames)
                level.with_names[query.ctename] = aliases or self._outputs(unwrap(query.ctequery))
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
            columns: Sequence[str] = next(
                (
                    level_above.with_names[node.relname]
                    for level_above in reversed(self._levels)
                    if not node.schemaname and node.relname in level_above.with_names
                ),
                (),
            ) or self._columns(node)
            name = node.relname
        elif kind == "RangeSubselect":
            columns, name = self._outputs(unwrap(node.subquery)), ""
        elif kind == "RangeFunction":
            called = unwrap(unwrap(node.functions[0]).items[0])
            name = title(called)
            columns = [node.alias.aliasname or name, *(unwrap(definition).colname for definition in node.coldeflist)]
        else:
            return
        if node.HasField("alias"):
            name = node.alias.aliasname
            aliases = names.strings(node.alias.colnames)
            columns = [*aliases, *list(columns)[len(aliases) :]]
        level.columns.update(columns)
        level.aliases.add(name)

    def _outputs(self, node: ParseNode) -> Sequence[str]:
        """Return the names of a query's columns."""
        if node.DESCRIPTOR.name != "SelectStmt":
            return [unwrap(target).name or title(unwrap(target).val) for target in _returning(node)]
        if node.op != pb.SETOP_NONE:
            return self._outputs(node.larg)
        if node.values_lists:
            return [f"column{place}" for place in range(1, len(unwrap(node.values_lists[0]).items) + 1)]
        level, outputs = _Level(), []
        self._levels.append(level)
        self._open(node, level)
        self._levels.pop()
        for item in node.target_list:
            target = unwrap(item)
            value = unwrap(target.val)
            if value.DESCRIPTOR.name == "ColumnRef" and unwrap(value.fields[-1]).DESCRIPTOR.name == "A_Star":
                outputs += sorted(level.columns)
            else:
                outputs.append(target.name or title(value))
        return outputs


def fields_of(scope: Scope, name: str) -> Sequence[str] | None:
    """Return the names of the fields that a record has, or None if it is NULL or not assigned."""
    found = scope.find((name,))
    row = None if found is None else found[0].value
    return tuple(row.fields) if isinstance(row, Row) and not row.is_null else None


def _returning(node: ParseNode) -> Sequence[ParseNode]:
    clause = node.returning_clause if node.HasField("returning_clause") else None
    return [] if clause is None else list(clause.exprs)
