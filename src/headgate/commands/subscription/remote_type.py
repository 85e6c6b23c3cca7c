"""Translate the types of a publisher's columns to local types. Enums, domains and composite types are created; other types become text.

`Types.of_column` is called for each column that replication creates (`create_tables`, `schema_evolution`), inside their transaction. An
existing enum or domain is used as it is. A text from the publisher must never be run as SQL. A column whose type cannot be created becomes
text, which accepts the text form of every value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace as namespaces
from headgate.catalog import user_type
from headgate.commands.session import Session
from headgate.commands.subscription.remote_expression import accepted, harmless
from headgate.commands.transaction.subtransaction import attempt
from headgate.errors import PostgresError
from headgate.sql import names, statement
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.sql.type_name import parsed
from headgate.types import registry
from headgate.types.storage import is_accepted
from headgate.types.text.array import MAX_DIMENSIONS
from headgate.walreceiver.definition import DefinedColumn, RemoteType

CATALOG = "pg_catalog"


@dataclass(frozen=True)
class LocalType:
    """A local type. `exact`: it is the same type as on the publisher."""

    name: pb.TypeName
    exact: bool = True


TEXT = LocalType(statement.type_name(CATALOG, "text"), exact=False)


@dataclass
class Types:
    """The local types for one publisher. `tell` is called with a line for each type that is created."""

    session: Session
    remote: dict[int, RemoteType]
    schemas: dict[str, str]
    """Comments of schemas."""
    tell: Callable[[str], None]
    _known: dict[int, LocalType] = field(default_factory=dict)
    _builtins: dict[str, LocalType] = field(default_factory=dict)
    """Built-in types by the publisher's name for them. Each name is parsed once, not for each column."""

    def of_column(self, column: DefinedColumn) -> LocalType:
        """Return the local type of a column, declared with as many dimensions as on the publisher."""
        kind = self.local(column.type_oid, column.shown)
        if column.dimensions <= 1 or not kind.name.array_bounds:
            return kind
        name = pb.TypeName()
        name.CopyFrom(kind.name)
        name.array_bounds.extend([name.array_bounds[0]] * (min(column.dimensions, MAX_DIMENSIONS) - 1))
        return replace(kind, name=name)

    def local(self, oid: int, shown: str) -> LocalType:
        """Return the local type of a publisher's type. `shown` is the type as format_type prints it, with its modifier."""
        remote = self.remote.get(oid)
        if remote is None:
            raise PostgresError("08P01", "invalid response from publisher", detail=f"There is no type {oid}.")
        if remote.schema == CATALOG and not remote.element:
            return self._builtin(shown)
        if oid not in self._known:
            self._known[oid] = TEXT  # a placeholder, in case a type refers to itself
            self._known[oid] = self._find(remote, shown)
        return self._known[oid]

    def _find(self, remote: RemoteType, shown: str) -> LocalType:
        if remote.element:
            element = self.remote.get(remote.element)
            if element is None or element.schema == CATALOG:
                return self._builtin(shown)
            if not self.local(remote.element, element.shown).exact:
                return TEXT
            return self._usable(statement.type_name(element.schema, element.name, array=True))
        if remote.kind not in ("e", "d") and not remote.attributes:
            return TEXT
        type_name = statement.type_name(remote.schema, remote.name)
        if self._kind(type_name) is None:
            self._make(remote)
        kind = self._kind(type_name)
        return self._usable(type_name) if kind is not None and kind.kind.value == remote.kind else TEXT

    def _builtin(self, shown: str) -> LocalType:
        """Return a built-in type, parsed from the publisher's name."""
        if shown not in self._builtins:
            self._builtins[shown] = self._usable(parsed(shown))
        return self._builtins[shown]

    def _usable(self, name: ParseNode) -> LocalType:
        kind = self._kind(name)
        if kind is None or not is_accepted(kind.oid):
            return TEXT
        if kind.is_array and registry.known().by_oid(kind.element).kind is registry.TypeKind.DOMAIN:
            return TEXT
        return LocalType(name)

    def _kind(self, name: ParseNode) -> registry.PgType | None:
        try:
            oid, _ = names.type_name(name)
        except PostgresError:
            return None
        return registry.known().find(oid)

    def _make_composite(self, remote: RemoteType) -> None:
        """Create a composite type, if each of its attributes can have the publisher's type."""
        kinds = [self.local(attribute.type_oid, attribute.shown) for attribute in remote.attributes]
        if not all(kind.exact for kind in kinds):
            return
        self.make_schema(remote.schema)
        columns = [statement.column(attribute.name, kind.name) for attribute, kind in zip(remote.attributes, kinds, strict=True)]
        if attempt(self.session, [statement.create_composite(remote.schema, remote.name, columns)]) is None:
            self.tell(f'created type "{remote.schema}.{remote.name}"')

    def _make(self, remote: RemoteType) -> None:
        """Create an enum, or a domain over a supported type. Unsupported defaults and checks are left out."""
        if remote.kind == "c":
            self._make_composite(remote)
            return
        if remote.kind == "e":
            self.make_schema(remote.schema)
            error = attempt(self.session, [statement.create_enum(remote.schema, remote.name, remote.labels)])
            if error is None:
                self.tell(f'created type "{remote.schema}.{remote.name}"')
            return
        base = self.local(remote.base, remote.base_shown)
        if not base.exact:
            return
        self.make_schema(remote.schema)
        words = self._constraints(remote)
        for constraints in (words, [word for word in words if unwrap(word).contype == pb.CONSTR_NOTNULL]):
            error = attempt(self.session, [statement.create_domain(remote.schema, remote.name, base.name, constraints)])
            if error is None:
                whole = len(constraints) == len(remote.checks) + remote.not_null + (remote.default is not None)
                self.tell(f'created domain "{remote.schema}.{remote.name}"{"" if whole else ", without all that its publisher has"}')
                return

    @staticmethod
    def _constraints(remote: RemoteType) -> list[pb.Node]:
        constraints = [statement.constraint(pb.CONSTR_NOTNULL)] if remote.not_null else []
        default = accepted(remote.default)
        if default is not None:
            constraints.append(statement.constraint(pb.CONSTR_DEFAULT, raw_expr=wrapped(default)))
        for name, text in remote.checks:
            expression = _parse_check(text)
            if expression is not None:
                constraints.append(statement.constraint(pb.CONSTR_CHECK, conname=name, raw_expr=expression))
        return constraints

    def add_labels(self, remote: RemoteType) -> Sequence[str]:
        """Add the labels that a local enum lacks, at the publisher's places. Return the added labels."""
        kind = self._kind(statement.type_name(remote.schema, remote.name))
        if kind is None or kind.kind is not registry.TypeKind.ENUM:
            return ()
        context = self.session.context
        labels = {label for label, _ in user_type.labels_of(self.session.begin_statement().cursor, context.database, kind.oid)}
        added = []
        for place in range(len(remote.labels) - 1, -1, -1):
            label, behind = remote.labels[place], remote.labels[place + 1 : place + 2]
            if label not in labels:
                add_label = statement.add_label(remote.schema, remote.name, label, behind[0] if behind else None)
                error = attempt(self.session, [add_label])
                if error is not None:
                    raise error
                added.append(label)
        return added[::-1]

    def make_schema(self, name: str) -> None:
        """Create a schema, with its comment, if it does not exist. Raise the error that prevents that."""
        if namespaces.lookup(self.session.begin_statement().cursor, self.session.context.database, name) is not None:
            return
        error = attempt(self.session, [statement.create_schema(name)])
        if error is not None:
            raise error
        if comment := self.schemas.get(name):
            attempt(self.session, [statement.comment(pb.OBJECT_SCHEMA, [name], comment)])


def _parse_check(text: str) -> pb.Node | None:
    """Return the expression of ``CHECK ((…))``, as pg_get_constraintdef prints it, or None for other texts and rejected expressions."""
    try:
        statements = parse(f"CREATE DOMAIN a AS int {text}")
    except PostgresError:
        return None
    constraints = list(statements[0].node.constraints) if len(statements) == 1 and statements[0].kind == "CreateDomainStmt" else []
    if len(constraints) != 1 or unwrap(constraints[0]).contype != pb.CONSTR_CHECK:
        return None
    expression = unwrap(constraints[0]).raw_expr
    return expression if harmless(expression) else None


def wrapped(tree: ParseNode) -> pb.Node:
    """Wrap a message in a Node, as the fields of statements require."""
    if tree.DESCRIPTOR.name == "Node":
        return tree
    node = pb.Node()
    field = next(descriptor for descriptor in node.DESCRIPTOR.fields if descriptor.message_type is tree.DESCRIPTOR)
    getattr(node, field.name).CopyFrom(tree)
    return node
