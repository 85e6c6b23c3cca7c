"""Create the tables of `create_tables` as the publisher defines them, as far as headgate supports the definitions.

CREATE SUBSCRIPTION and REFRESH (`subscription_tables`) call `make`, and so does the apply worker for tables that are added later. It runs
in their transaction, with the rights of the subscription's owner. Unsupported parts are left out and reported. A type becomes text
(`remote_type`). A default or a generated column is left out if the binder does not know its functions or `remote_expression` does not
accept it. A partition is created as a partition if headgate routes each row as the publisher does, otherwise as a table.

Statements are built as trees (`sql/statement`). Of the publisher's answers, only single expressions, types and bounds are parsed as SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication.subscription_column import FollowedColumn
from headgate.commands.session import Session
from headgate.commands.subscription.remote_expression import accepted, harmless, is_number_of_a_sequence
from headgate.commands.subscription.remote_type import CATALOG, LocalType, Types, wrapped
from headgate.commands.table import table_definition
from headgate.commands.transaction.subtransaction import attempt
from headgate.errors import PostgresError
from headgate.sql import statement
from headgate.walreceiver.definition import DefinedColumn, Definitions, RemoteTable

_SERIALS = {"smallint": "smallserial", "integer": "serial", "bigint": "bigserial"}
_TEXTS = frozenset({"text", "varchar", "bpchar", "name", "char"})
_NAMED = 5
"""Maximum number of columns of each kind that a DETAIL names."""


@dataclass
class _Draft:
    """The definition of a local table. `omissions`: a line for each part that is omitted or changed."""

    elements: list[pb.Node]
    omissions: list[str] = field(default_factory=list)


@dataclass
class Maker:
    """The creator of the local tables of one publisher."""

    session: Session
    remote: Definitions
    types: Types

    @classmethod
    def of(cls, session: Session, remote: Definitions) -> Maker:
        return cls(session, remote, Types(session, remote.types, remote.schemas, session.notices.notice))

    def explain_storage(self, names: Sequence[tuple[str, str]]) -> None:
        """Report the columns that are stored as text in Delta, which readers of the files may not expect, before the tables are created."""
        tables = [self.remote.named[name] for name in names if name in self.remote.named]
        columns = [(f"{table.schema}.{table.name}.{column.name}", column.shown) for table in tables for column in table.live]
        arrays = [name for name, shown in columns if shown.endswith("[]")] if self.session.settings.text("array_storage") == "text" else []
        documents = [name for name, shown in columns if shown in ("json", "jsonb")]
        numbers = [name for name, shown in columns if shown == "numeric"]
        details = [
            f"{title}: {_shorten(column_names)}."
            for title, column_names in (("Arrays", arrays), ("json and jsonb", documents), ("numeric without precision", numbers))
            if column_names
        ]
        if not details:
            return
        hints = []
        if arrays:
            hints.append(
                "For Delta arrays set array_storage = array in headgate.conf and restart the node before the tables are made. For a table"
                " that is there: ALTER TABLE … SET (array_storage = array), then ALTER COLUMN … TYPE with the type that it has."
            )
        if numbers:
            hints.append("A column that is made here as numeric(p, s), with p up to 38, is a Delta decimal.")
        text = "columns of these types are stored as text in Delta"
        self.session.notices.notice(text, detail="\n".join(details), hint=" ".join(hints) or None)

    def make(self, schema: str, name: str) -> None:
        """Create a published table. Raise the error that prevents its creation, with the table's name in the context."""
        table = self.remote.named.get((schema, name))
        if table is None:
            raise PostgresError("42704", f'table "{schema}.{name}" not found on publisher')
        self.types.make_schema(schema)
        draft = self._draft(table)
        as_partition = self._make_partition(table)
        if not as_partition:
            if table.parent:
                draft.omissions.append("It is not a partition here.")
            statements = [statement.create_table(schema, name, draft.elements)]
            error = attempt(self.session, statements)
            if error is not None:
                error.position = None
                raise error.within(f'creating table "{schema}.{name}" as the publisher has it')
        if table.replica_identity == "f" and table.kind == "r":
            attempt(self.session, [statement.alter_table(schema, name, [statement.replica_identity_full()])])
        self._comment(table)
        how = "with the parts that a node supports" if draft.omissions else "as the publisher has it"
        self.session.notices.notice(f'created table "{schema}.{name}" {how}', detail="\n".join(draft.omissions) or None)

    def _comment(self, table: RemoteTable) -> None:
        place = [table.schema, table.name]
        comments = [statement.comment(pb.OBJECT_TABLE, place, table.comment)] if table.comment else []
        comments += [statement.comment(pb.OBJECT_COLUMN, [*place, column.name], column.comment) for column in table.live if column.comment]
        for comment in comments:
            attempt(self.session, [comment])

    # ---- columns ----------------------------------------------------------------------------------------

    def _draft(self, table: RemoteTable) -> _Draft:
        """Return the columns and the key in a form that this node accepts."""
        kinds = {column.attnum: self.types.of_column(column) for column in table.live}
        draft = _Draft([])
        draft.omissions = [
            f'Column "{column.name}" of type {column.shown} is text here.' for column in table.live if not kinds[column.attnum].exact
        ]
        plain = [plain_column(column, kinds[column.attnum]) for column in table.live if not column.generated]
        names = {column.attnum: column.name for column in table.live}
        key = [statement.key([names[attnum] for attnum in table.key])] if table.key and set(table.key) <= set(names) else []
        if key and self._refusal(table, [*plain, *key]) is not None:
            key = []
            draft.omissions.append("It does not have a key here.")
        expressions = {column.attnum: with_expression(column, kinds[column.attnum]) for column in table.live}
        for column in table.live:
            definition = expressions[column.attnum]
            alone = [node if node.column_def.colname != column.name else definition for node in plain] + (
                [definition] if column.generated else []
            )
            is_known = definition is not None and (definition in plain or self._refusal(table, alone) is None)
            if is_known:
                draft.elements.append(definition)
            elif column.generated:
                draft.omissions.append(f'Generated column "{column.name}" is omitted: its expression is not supported here.')
            else:
                draft.elements.append(plain_column(column, kinds[column.attnum]))
            if not column.generated and column.default is not None and (not is_known or definition in plain):
                draft.omissions.append(f'Column "{column.name}" has no default here.')
        draft.elements += key
        return draft

    def _refusal(self, table: RemoteTable, elements: Sequence[pb.Node]) -> PostgresError | None:
        """Return the error with which this node rejects a definition, or None. Nothing is created."""
        cursor, context = self.session.begin_statement().cursor, self.session.context
        try:
            table_definition.read(elements, table.name, cursor, context.database, context.forms)
        except PostgresError as error:
            return error
        return None

    # ---- partitions -------------------------------------------------------------------------------------

    def _make_partition(self, table: RemoteTable) -> bool:
        """Create a table as a partition of its parent. Return False if that is not possible."""
        parent = self.remote.tables.get(table.parent)
        columns = [column.name for column in table.columns if not column.dropped and not column.generated]
        if parent is None or (table.published is not None and not set(columns) <= set(table.published)):
            return False
        bound = _parse_bound(table.bound)
        if bound is None or not self._make_branch(parent):
            return False
        names = {column.attnum: column.name for column in table.live}
        own_key = table.key if not parent.key and set(table.key) <= set(names) else ()
        elements = [statement.key([names[attnum] for attnum in own_key])] if own_key else []
        return attempt(self.session, [_partition(table, parent, bound, elements)]) is None

    def _make_branch(self, table: RemoteTable, depth: int = 0) -> bool:
        """Create a missing partitioned table. Return False if this node would route its rows differently from the publisher."""
        local = relations.lookup(self.session.begin_statement().cursor, self.session.context.database, table.schema, table.name)
        if local is not None:
            return local.is_partitioned
        if depth > len(self.remote.tables) or not self._routes_alike(table):
            return False
        self.types.make_schema(table.schema)
        names = {column.attnum: column.name for column in table.columns}
        key = statement.partition_key(table.strategy, [names[attnum] for attnum in table.partition_key])
        if not table.parent:
            draft = self._draft(table)
            create_statement = statement.create_table(table.schema, table.name, draft.elements, partspec=key)
        else:
            parent, bound, draft = self.remote.tables.get(table.parent), _parse_bound(table.bound), _Draft([])
            if parent is None or bound is None or not self._make_branch(parent, depth + 1):
                return False
            create_statement = _partition(table, parent, bound, [])
            create_statement.partspec.CopyFrom(key)
        if attempt(self.session, [create_statement]) is not None:
            return False
        self._comment(table)
        detail = "\n".join(draft.omissions) or None
        self.session.notices.notice(f'created partitioned table "{table.schema}.{table.name}"', detail=detail)
        return True

    def _routes_alike(self, table: RemoteTable) -> bool:
        columns = {column.attnum: column for column in table.columns if not column.dropped}
        if table.strategy not in ("l", "r", "h") or not table.partition_key or not set(table.partition_key) <= set(columns):
            return False
        for attnum in table.partition_key:
            column = columns[attnum]
            remote = self.remote.types.get(column.type_oid)
            if remote is None or not self.types.of_column(column).exact:
                return False
            if table.strategy == "h" and remote.schema != CATALOG:
                return False  # the publisher hashes it by its oid
            if table.strategy == "r" and remote.schema == CATALOG and remote.name in _TEXTS:
                return False  # the publisher orders it by a collation
        return True


def _partition(table: RemoteTable, parent: RemoteTable, bound: pb.PartitionBoundSpec, elements: Sequence[pb.Node]) -> pb.CreateStmt:
    parents = [pb.Node(range_var=statement.relation(parent.schema, parent.name))]
    return statement.create_table(table.schema, table.name, elements, inh_relations=parents, partbound=bound)


def _parse_bound(text: str | None) -> pb.PartitionBoundSpec | None:
    if text is None:
        return None
    bound = statement.partition_bound(text)
    values = [*bound.listdatums, *bound.lowerdatums, *bound.upperdatums]
    return bound if all(harmless(datum) for datum in values) else None


def plain_column(column: DefinedColumn, kind: LocalType) -> pb.Node:
    constraints = [statement.constraint(pb.CONSTR_NOTNULL)] if column.not_null else []
    return statement.column(column.name, kind.name, constraints)


def with_expression(column: DefinedColumn, kind: LocalType) -> pb.Node | None:
    """Return a column with its identity, default or generation expression, or None if that is not accepted."""
    constraints = [statement.constraint(pb.CONSTR_NOTNULL)] if column.not_null else []
    if column.identity in ("a", "d"):
        return statement.column(
            column.name, kind.name, [*constraints, statement.constraint(pb.CONSTR_IDENTITY, generated_when=column.identity)]
        )
    if column.default is None:
        return plain_column(column, kind) if not column.generated else None
    if is_number_of_a_sequence(column.default):
        serial = _SERIALS.get(column.shown) if column.not_null and kind.exact else None
        return (
            None
            if serial is None
            else statement.column(column.name, pb.TypeName(names=statement.strings([serial]), typemod=-1, location=-1))
        )
    expression = default_of(column, kind)
    if expression is None:
        return None
    if column.generated:
        generated = statement.constraint(pb.CONSTR_GENERATED, generated_when="a", raw_expr=expression, generated_kind="s")
        return statement.column(column.name, kind.name, [*constraints, generated])
    return statement.column(column.name, kind.name, [*constraints, statement.constraint(pb.CONSTR_DEFAULT, raw_expr=expression)])


def default_of(column: DefinedColumn, kind: LocalType) -> pb.Node | None:
    """Return the tree of a column's default, or None if it is not accepted. If the local type differs, a constant loses its cast."""
    tree = accepted(column.default)
    if tree is None:
        return None
    if not kind.exact and tree.DESCRIPTOR.name == "TypeCast":
        return tree.arg
    return wrapped(tree)


def _shorten(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def followed(table: RemoteTable | None, local: Relation, types: Types) -> list[FollowedColumn]:
    """Return the published columns that also exist locally, in the form in which they are recorded."""
    local_names = {column.name for column in local.columns if column.generated is None}
    if table is None:
        return []
    return [
        replace(kept(column, types), relation=table.oid) for column in table.live if column.name in local_names and not column.generated
    ]


def kept(column: DefinedColumn, types: Types) -> FollowedColumn:
    """Return the record of a column in its current form."""
    local_type = None if types.of_column(column).exact else "text"
    return FollowedColumn(
        column.attnum, column.name, column.shown, column.type_oid, column.typmod, local_type, column.not_null, column.default
    )
