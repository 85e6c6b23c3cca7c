"""Make the query of a view independent of the search path, and collect the objects that it reads.

`view` calls it when a view is created and when an object that it reads is renamed. The resolved parse tree qualifies every table with its
schema and an alias, and every column with its table's alias. It expands ``*`` and names every output column. So the text that libpg_query
deparses from it has the same meaning in any session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Relation
from headgate.catalog.session import SessionContext
from headgate.commands import lookup
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.column_name import title
from headgate.sql.parser import ParseNode, position, unwrap
from headgate.types.text import text
from headgate.types.text_column import TextSettings

_EVERY_STYLE = TextSettings("", date_style="", interval_style="")
"""A style that differs from every plain setting of DateStyle and IntervalStyle."""


@dataclass
class FromEntry:
    """An item of FROM: its alias, its columns, and its relation, if any."""

    alias: str
    columns: list[str]
    relation: Relation | None = None


@dataclass
class LevelNames:
    """The names of one query level. `star`: the columns of ``*``; ('', name) is a column that JOIN … USING merged."""

    entries: list[FromEntry] = field(default_factory=list)
    star: list[tuple[str, str]] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    outer: LevelNames | None = None

    def entry(self, alias: str) -> FromEntry | None:
        """Return the item with this alias, also from an outer level."""
        from_entry = next((candidate for candidate in self.entries if candidate.alias == alias), None)
        return from_entry if from_entry is not None or self.outer is None else self.outer.entry(alias)

    def holder(self, column: str) -> FromEntry | None:
        """Return the item that has an unqualified column, or None if there is none or several."""
        holders = [from_entry for from_entry in self.entries if column in from_entry.columns]
        if len(holders) == 1:
            return holders[0]
        return self.outer.holder(column) if not holders and self.outer is not None else None

    def has_merged(self, column: str) -> bool:
        """Return whether an unqualified name is a merged column."""
        return column in self.merged or (self.outer is not None and not self.holder(column) and self.outer.has_merged(column))


class Resolver:
    """Resolves one query. `uses` collects (relation oid, attnum) of the relations and columns that it reads."""

    def __init__(self, cursor: Cursor, context: SessionContext) -> None:
        self.cursor = cursor
        self.context = context
        self.uses: set[tuple[int, int]] = set()
        self.ctes: dict[str, list[str]] = {}

    def select(self, node: pb.SelectStmt, outer: LevelNames | None = None) -> list[str]:
        """Resolve a SELECT in place and return its output columns."""
        saved = dict(self.ctes)
        try:
            if node.HasField("with_clause"):
                self._with(node.with_clause)
            if node.into_clause.ByteSize():
                raise PostgresError("42601", "views must not contain SELECT INTO")
            if node.op != pb.SETOP_NONE:
                output_names = self.select(node.larg, outer)
                self.select(node.rarg, outer)
                self._clauses(node, LevelNames(outer=outer), output_names)
                return output_names
            if node.values_lists:
                scope = LevelNames(outer=outer)
                for row in node.values_lists:
                    self._walk(row, scope)
                return [f"column{place}" for place in range(1, len(unwrap(node.values_lists[0]).items) + 1)]
            scope = LevelNames(outer=outer)
            for item in node.from_clause:
                self._from(unwrap(item), scope)
            self._targets(node, scope)
            output_names = [unwrap(target).name for target in node.target_list]
            self._clauses(node, scope, output_names)
            return output_names
        finally:
            self.ctes = saved

    def _with(self, clause: ParseNode) -> None:
        for item in clause.ctes:
            cte = unwrap(item)
            query = unwrap(cte.ctequery)
            if query.DESCRIPTOR.name != "SelectStmt":
                raise PostgresError("0A000", "views must not contain data-modifying statements in WITH")
            aliases = names.strings(cte.aliascolnames)
            if clause.recursive:
                self.ctes[cte.ctename] = aliases
            columns = self.select(query)
            self.ctes[cte.ctename] = aliases + columns[len(aliases) :]

    # ---- FROM ------------------------------------------------------------------------------------------------

    def _from(self, item: ParseNode, scope: LevelNames) -> None:
        match item.DESCRIPTOR.name:
            case "RangeVar":
                self._add(scope, self._range_var(item))
            case "RangeSubselect":
                columns = self.select(unwrap(item.subquery), scope if item.lateral else scope.outer)
                aliases = names.strings(item.alias.colnames)
                self._add(scope, FromEntry(item.alias.aliasname, aliases + columns[len(aliases) :]))
            case "RangeFunction":
                self._walk(item, scope)
                self._add(scope, self._function(item))
            case "JoinExpr":
                self._join(item, scope)
            case node_type:
                raise not_supported(f"{node_type} in a view is not supported")

    def _add(self, scope: LevelNames, entry: FromEntry) -> None:
        scope.entries.append(entry)
        scope.star += [(entry.alias, column) for column in entry.columns]

    def _range_var(self, item: pb.RangeVar) -> FromEntry:
        aliases = names.strings(item.alias.colnames)
        if not item.schemaname and item.relname in self.ctes:
            columns = self.ctes[item.relname]
            return FromEntry(item.alias.aliasname or item.relname, aliases + columns[len(aliases) :])
        relation = lookup.source(self.cursor, self.context, item)
        item.schemaname = relation.schema
        if not item.alias.aliasname:
            item.alias.aliasname = relation.name
        hold.use(self.cursor, "pg_class", relation.oid)
        hold.use(self.cursor, "pg_namespace", relation.namespace_oid)  # the view's text contains its name
        self.uses.add((relation.oid, 0))
        columns = [column.name for column in relation.columns]
        return FromEntry(item.alias.aliasname, aliases + columns[len(aliases) :], relation)

    @staticmethod
    def _function(item: pb.RangeFunction) -> FromEntry:
        call = unwrap(unwrap(item.functions[0]).items[0])
        name = title(call)
        if not item.alias.aliasname:
            item.alias.aliasname = name
        aliases = names.strings(item.alias.colnames) or [item.alias.aliasname]
        return FromEntry(item.alias.aliasname, aliases + (["ordinality"] if item.ordinality and len(aliases) == 1 else []))

    def _join(self, item: pb.JoinExpr, scope: LevelNames) -> None:
        left, right = LevelNames(outer=scope.outer), LevelNames(outer=scope.outer)
        self._from(unwrap(item.larg), left)
        self._from(unwrap(item.rarg), right)
        using = names.strings(item.using_clause)
        if item.is_natural:
            using = [column for _, column in left.star if any(column == right_column for _, right_column in right.star)]
            item.is_natural = False
            for name in using:
                item.using_clause.add().string.sval = name
        both = LevelNames([*left.entries, *right.entries], outer=scope.outer, merged=[*left.merged, *right.merged])
        if item.HasField("quals"):
            self._walk(item.quals, both)
        for name in using:
            for entry in both.entries:
                if entry.relation is not None and name in entry.columns:
                    self._use(entry, name)
        rest = [column_pair for column_pair in left.star + right.star if column_pair[1] not in using]
        if item.HasField("alias"):
            self._add(scope, FromEntry(item.alias.aliasname, using + [column for _, column in rest]))
            return
        scope.entries += both.entries
        scope.star += [("", name) for name in using] + rest
        scope.merged += both.merged + using

    # ---- expressions -----------------------------------------------------------------------------------------

    def _targets(self, node: pb.SelectStmt, scope: LevelNames) -> None:
        expanded = []
        for item in node.target_list:
            target = unwrap(item)
            value = unwrap(target.val)
            if value is not None and value.DESCRIPTOR.name == "ColumnRef" and unwrap(value.fields[-1]).DESCRIPTOR.name == "A_Star":
                expanded += self._star(value, scope)
                continue
            if not target.name:
                target.name = title(target.val)
            self._walk(target.val, scope)
            copied = pb.Node()
            copied.CopyFrom(item)
            expanded.append(copied)
        del node.target_list[:]
        node.target_list.extend(expanded)

    def _star(self, value: pb.ColumnRef, scope: LevelNames) -> list[pb.Node]:
        qualifier = [unwrap(part).sval for part in value.fields[:-1]]
        columns = scope.star
        if qualifier:
            entry = scope.entry(qualifier[-1])
            if entry is None:
                raise PostgresError("42P01", f'missing FROM-clause entry for table "{qualifier[-1]}"', position=position(value.location))
            columns = [(entry.alias, column) for column in entry.columns]
        elif not scope.entries:
            raise PostgresError("42601", "SELECT * with no tables specified is not valid", position=position(value.location))
        nodes = []
        for alias, column in columns:
            node = pb.Node()
            node.res_target.name = column
            reference = node.res_target.val.column_ref
            if alias:
                reference.fields.add().string.sval = alias
                entry = scope.entry(alias)
                if entry is not None:
                    self._use(entry, column)
            reference.fields.add().string.sval = column
            nodes.append(node)
        return nodes

    def _clauses(self, node: pb.SelectStmt, scope: LevelNames, outputs: Sequence[str]) -> None:
        for name in ("where_clause", "having_clause", "limit_offset", "limit_count"):
            if node.HasField(name):
                self._walk(getattr(node, name), scope)
        for item in [*node.group_clause, *node.window_clause, *node.distinct_clause]:
            self._walk(item, scope)
        for item in node.sort_clause:
            value = unwrap(unwrap(item).node)
            if value.DESCRIPTOR.name == "ColumnRef" and len(value.fields) == 1 and unwrap(value.fields[0]).sval in outputs:
                continue
            self._walk(item, scope)

    def _walk(self, node: ParseNode, scope: LevelNames) -> None:
        inner = unwrap(node)
        if inner is None:
            return
        kind = inner.DESCRIPTOR.name
        if kind == "ColumnRef":
            self._column(inner, scope)
            return
        if kind == "TypeCast" and unwrap(inner.arg).DESCRIPTOR.name == "A_Const":
            self._rewrite_constant(unwrap(inner.arg), inner.type_name)
            return
        if kind == "SubLink":
            self._walk(inner.testexpr, scope)
            self.select(unwrap(inner.subselect), scope)
            return
        for descriptor, value in inner.ListFields():
            if descriptor.message_type is not None:
                for child in value if descriptor.is_repeated else [value]:
                    self._walk(child, scope)

    def _rewrite_constant(self, constant: pb.A_Const, type_name: ParseNode) -> None:
        """Rewrite a date or interval constant under a cast to a form that does not depend on the DateStyle of its creator."""
        if constant.WhichOneof("val") != "sval":
            return
        try:
            oid, modifier = names.type_name(type_name)
            if text.depends_on(oid, _EVERY_STYLE):
                constant.sval.sval = text.normal_form(constant.sval.sval, oid, modifier, session=self.context.forms)
        except PostgresError:
            return  # the planner raises the error

    def _column(self, reference: pb.ColumnRef, scope: LevelNames) -> None:
        fields = [unwrap(field_node) for field_node in reference.fields]
        if fields[-1].DESCRIPTOR.name == "A_Star":
            return
        parts = [part.sval for part in fields]
        column = parts[-1]
        if len(parts) == 1:
            if scope.has_merged(column):
                return
            entry = scope.holder(column)
        else:
            entry = scope.entry(parts[-2])
        if entry is None:
            return  # the planner raises the error
        del reference.fields[:]
        reference.fields.add().string.sval = entry.alias
        reference.fields.add().string.sval = column
        self._use(entry, column)

    def _use(self, entry: FromEntry, column: str) -> None:
        used_column = (
            entry.relation.columns[entry.columns.index(column)] if entry.relation is not None and column in entry.columns else None
        )
        if used_column is not None and entry.relation is not None:
            self.uses.add((entry.relation.oid, used_column.attnum))
