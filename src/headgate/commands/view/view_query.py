"""The query of a view: made independent of the search path, and the names that it reads.

Called by `view` when a view is made and when something that it reads is renamed. `resolve` gives the query's parse tree with every
table by schema and with an alias, every column by its table's alias, ``*`` written out and every output column named; so the text
that libpg_query deparses from it means the same for ever, in any session.
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
"""Has none of the plain settings of dates and intervals."""


@dataclass
class FromEntry:
    """An item of FROM: its alias, its columns, and the relation if it is one."""

    alias: str
    columns: list[str]
    relation: Relation | None = None


@dataclass
class LevelNames:
    """The names of one query level. `star`: what ``*`` stands for, ('', name) being a column that JOIN … USING merged."""

    entries: list[FromEntry] = field(default_factory=list)
    star: list[tuple[str, str]] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    outer: LevelNames | None = None

    def entry(self, alias: str) -> FromEntry | None:
        """The item of this alias, of an outer level if need be."""
        found = next((each for each in self.entries if each.alias == alias), None)
        return found if found is not None or self.outer is None else self.outer.entry(alias)

    def holder(self, column: str) -> FromEntry | None:
        """The item that an unqualified column belongs to."""
        found = [each for each in self.entries if column in each.columns]
        if len(found) == 1:
            return found[0]
        return self.outer.holder(column) if not found and self.outer is not None else None

    def has_merged(self, column: str) -> bool:
        """Whether an unqualified name is a merged column."""
        return column in self.merged or (self.outer is not None and not self.holder(column) and self.outer.has_merged(column))


class Resolver:
    """Resolves one query. `uses` collects (relation's oid, attnum) of all that it reads."""

    def __init__(self, cursor: Cursor, context: SessionContext) -> None:
        self.cursor = cursor
        self.context = context
        self.uses: set[tuple[int, int]] = set()
        self.ctes: dict[str, list[str]] = {}

    def select(self, node: pb.SelectStmt, outer: LevelNames | None = None) -> list[str]:
        """Resolves a SELECT in place; its output columns."""
        saved = dict(self.ctes)
        try:
            if node.HasField("with_clause"):
                self._with(node.with_clause)
            if node.into_clause.ByteSize():
                raise PostgresError("42601", "views must not contain SELECT INTO")
            if node.op != pb.SETOP_NONE:
                found = self.select(node.larg, outer)
                self.select(node.rarg, outer)
                self._clauses(node, LevelNames(outer=outer), found)
                return found
            if node.values_lists:
                scope = LevelNames(outer=outer)
                for row in node.values_lists:
                    self._walk(row, scope)
                return [f"column{place}" for place in range(1, len(unwrap(node.values_lists[0]).items) + 1)]
            scope = LevelNames(outer=outer)
            for item in node.from_clause:
                self._from(unwrap(item), scope)
            self._targets(node, scope)
            found = [unwrap(each).name for each in node.target_list]
            self._clauses(node, scope, found)
            return found
        finally:
            self.ctes = saved

    def _with(self, clause: ParseNode) -> None:
        for each in clause.ctes:
            cte = unwrap(each)
            query = unwrap(cte.ctequery)
            if query.DESCRIPTOR.name != "SelectStmt":
                raise PostgresError("0A000", "views must not contain data-modifying statements in WITH")
            given = names.strings(cte.aliascolnames)
            if clause.recursive:
                self.ctes[cte.ctename] = given
            columns = self.select(query)
            self.ctes[cte.ctename] = given + columns[len(given) :]

    # ---- FROM ------------------------------------------------------------------------------------------------

    def _from(self, item: ParseNode, scope: LevelNames) -> None:
        match item.DESCRIPTOR.name:
            case "RangeVar":
                self._add(scope, self._range_var(item))
            case "RangeSubselect":
                columns = self.select(unwrap(item.subquery), scope if item.lateral else scope.outer)
                given = names.strings(item.alias.colnames)
                self._add(scope, FromEntry(item.alias.aliasname, given + columns[len(given) :]))
            case "RangeFunction":
                self._walk(item, scope)
                self._add(scope, self._function(item))
            case "JoinExpr":
                self._join(item, scope)
            case other:
                raise not_supported(f"{other} in a view is not supported")

    def _add(self, scope: LevelNames, entry: FromEntry) -> None:
        scope.entries.append(entry)
        scope.star += [(entry.alias, column) for column in entry.columns]

    def _range_var(self, item: pb.RangeVar) -> FromEntry:
        given = names.strings(item.alias.colnames)
        if not item.schemaname and item.relname in self.ctes:
            columns = self.ctes[item.relname]
            return FromEntry(item.alias.aliasname or item.relname, given + columns[len(given) :])
        relation = lookup.source(self.cursor, self.context, item)
        item.schemaname = relation.schema
        if not item.alias.aliasname:
            item.alias.aliasname = relation.name
        hold.use(self.cursor, "pg_class", relation.oid)
        hold.use(self.cursor, "pg_namespace", relation.namespace_oid)  # its name is in the view's text
        self.uses.add((relation.oid, 0))
        columns = [each.name for each in relation.columns]
        return FromEntry(item.alias.aliasname, given + columns[len(given) :], relation)

    @staticmethod
    def _function(item: pb.RangeFunction) -> FromEntry:
        call = unwrap(unwrap(item.functions[0]).items[0])
        name = title(call)
        if not item.alias.aliasname:
            item.alias.aliasname = name
        given = names.strings(item.alias.colnames) or [item.alias.aliasname]
        return FromEntry(item.alias.aliasname, given + (["ordinality"] if item.ordinality and len(given) == 1 else []))

    def _join(self, item: pb.JoinExpr, scope: LevelNames) -> None:
        left, right = LevelNames(outer=scope.outer), LevelNames(outer=scope.outer)
        self._from(unwrap(item.larg), left)
        self._from(unwrap(item.rarg), right)
        using = names.strings(item.using_clause)
        if item.is_natural:
            using = [column for _, column in left.star if any(column == other for _, other in right.star)]
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
        rest = [each for each in left.star + right.star if each[1] not in using]
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
        wanted = [unwrap(each).sval for each in value.fields[:-1]]
        columns = scope.star
        if wanted:
            entry = scope.entry(wanted[-1])
            if entry is None:
                raise PostgresError("42P01", f'missing FROM-clause entry for table "{wanted[-1]}"', position=position(value.location))
            columns = [(entry.alias, column) for column in entry.columns]
        elif not scope.entries:
            raise PostgresError("42601", "SELECT * with no tables specified is not valid", position=position(value.location))
        made = []
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
            made.append(node)
        return made

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
            self._constant(unwrap(inner.arg), inner.type_name)
            return
        if kind == "SubLink":
            self._walk(inner.testexpr, scope)
            self.select(unwrap(inner.subselect), scope)
            return
        for descriptor, value in inner.ListFields():
            if descriptor.message_type is not None:
                for child in value if descriptor.is_repeated else [value]:
                    self._walk(child, scope)

    def _constant(self, written: pb.A_Const, type_name: ParseNode) -> None:
        """A date or interval under a cast means what it means to whoever makes the view; an order of day and month is none of the text."""
        if written.WhichOneof("val") != "sval":
            return
        try:
            oid, modifier = names.type_name(type_name)
            if text.depends_on(oid, _EVERY_STYLE):
                written.sval.sval = text.normal_form(written.sval.sval, oid, modifier, session=self.context.forms)
        except PostgresError:
            return  # the planner says what is wrong

    def _column(self, reference: pb.ColumnRef, scope: LevelNames) -> None:
        fields = [unwrap(each) for each in reference.fields]
        if fields[-1].DESCRIPTOR.name == "A_Star":
            return
        parts = [each.sval for each in fields]
        column = parts[-1]
        if len(parts) == 1:
            if scope.has_merged(column):
                return
            entry = scope.holder(column)
        else:
            entry = scope.entry(parts[-2])
        if entry is None:
            return  # the planner says what is wrong
        del reference.fields[:]
        reference.fields.add().string.sval = entry.alias
        reference.fields.add().string.sval = column
        self._use(entry, column)

    def _use(self, entry: FromEntry, column: str) -> None:
        found = entry.relation.columns[entry.columns.index(column)] if entry.relation is not None and column in entry.columns else None
        if found is not None and entry.relation is not None:
            self.uses.add((entry.relation.oid, found.attnum))
