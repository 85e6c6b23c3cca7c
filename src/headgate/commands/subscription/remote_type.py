"""The types that a publisher's columns have, as types here: the same, with enums, domains and composite types made; others as text.

`Types.of_column` is called for each column that replication makes (`create_tables`, `schema_evolution`), inside their transaction. An
enum or domain that is there already is taken as it is. What must hold: a text that the publisher sent never becomes SQL; a column that
cannot have its type becomes text, which takes every value's text form.
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
    """A type here; `exact`: it is the type that the publisher has."""

    name: pb.TypeName
    exact: bool = True


TEXT = LocalType(statement.type_name(CATALOG, "text"), exact=False)


@dataclass
class Types:
    """See the module. `tell` is called with a line for each type that is made."""

    session: Session
    remote: dict[int, RemoteType]
    schemas: dict[str, str]
    """Comments of schemas."""
    tell: Callable[[str], None]
    _known: dict[int, LocalType] = field(default_factory=dict)
    _builtins: dict[str, LocalType] = field(default_factory=dict)
    """PostgreSQL's own types by the publisher's name of them: each is taken apart once, not for each column."""

    def of_column(self, column: DefinedColumn) -> LocalType:
        """The type for a column, declared with as many dimensions as there."""
        kind = self.local(column.type_oid, column.shown)
        if column.dimensions <= 1 or not kind.name.array_bounds:
            return kind
        name = pb.TypeName()
        name.CopyFrom(kind.name)
        name.array_bounds.extend([name.array_bounds[0]] * (min(column.dimensions, MAX_DIMENSIONS) - 1))
        return replace(kind, name=name)

    def local(self, oid: int, shown: str) -> LocalType:
        """The type for this one; `shown` is format_type of it, with its modifier."""
        remote = self.remote.get(oid)
        if remote is None:
            raise PostgresError("08P01", "invalid response from publisher", detail=f"There is no type {oid}.")
        if remote.schema == CATALOG and not remote.element:
            return self._builtin(shown)
        if oid not in self._known:
            self._known[oid] = TEXT  # until it is known: a type that says that it is over itself
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
        made = statement.type_name(remote.schema, remote.name)
        if self._kind(made) is None:
            self._make(remote)
        kind = self._kind(made)
        return self._usable(made) if kind is not None and kind.kind.value == remote.kind else TEXT

    def _builtin(self, shown: str) -> LocalType:
        """A type of PostgreSQL's own; the name is the publisher's, and taken apart."""
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
        """Makes a composite type, if each of its attributes can have the publisher's type."""
        kinds = [self.local(each.type_oid, each.shown) for each in remote.attributes]
        if not all(each.exact for each in kinds):
            return
        self.make_schema(remote.schema)
        columns = [statement.column(each.name, kind.name) for each, kind in zip(remote.attributes, kinds, strict=True)]
        if attempt(self.session, [statement.create_composite(remote.schema, remote.name, columns)]) is None:
            self.tell(f'created type "{remote.schema}.{remote.name}"')

    def _make(self, remote: RemoteType) -> None:
        """Makes an enum, or a domain over a type that is here; without the default and the checks that a node does not take."""
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
        for given in (words, [each for each in words if unwrap(each).contype == pb.CONSTR_NOTNULL]):
            error = attempt(self.session, [statement.create_domain(remote.schema, remote.name, base.name, given)])
            if error is None:
                whole = len(given) == len(remote.checks) + remote.not_null + (remote.default is not None)
                self.tell(f'created domain "{remote.schema}.{remote.name}"{"" if whole else ", without all that its publisher has"}')
                return

    @staticmethod
    def _constraints(remote: RemoteType) -> list[pb.Node]:
        found = [statement.constraint(pb.CONSTR_NOTNULL)] if remote.not_null else []
        default = accepted(remote.default)
        if default is not None:
            found.append(statement.constraint(pb.CONSTR_DEFAULT, raw_expr=wrapped(default)))
        for name, text in remote.checks:
            expression = _checked(text)
            if expression is not None:
                found.append(statement.constraint(pb.CONSTR_CHECK, conname=name, raw_expr=expression))
        return found

    def add_labels(self, remote: RemoteType) -> Sequence[str]:
        """The labels that an enum here lacks, added where the publisher has them; which they are."""
        kind = self._kind(statement.type_name(remote.schema, remote.name))
        if kind is None or kind.kind is not registry.TypeKind.ENUM:
            return ()
        context = self.session.context
        held = {label for label, _ in user_type.labels_of(self.session.begin_statement().cursor, context.database, kind.oid)}
        added = []
        for place in range(len(remote.labels) - 1, -1, -1):
            label, behind = remote.labels[place], remote.labels[place + 1 : place + 2]
            if label not in held:
                wanted = statement.add_label(remote.schema, remote.name, label, behind[0] if behind else None)
                error = attempt(self.session, [wanted])
                if error is not None:
                    raise error
                added.append(label)
        return added[::-1]

    def make_schema(self, name: str) -> None:
        """Makes a schema that is not there, with its comment; raises why it cannot be made."""
        if namespaces.lookup(self.session.begin_statement().cursor, self.session.context.database, name) is not None:
            return
        error = attempt(self.session, [statement.create_schema(name)])
        if error is not None:
            raise error
        if comment := self.schemas.get(name):
            attempt(self.session, [statement.comment(pb.OBJECT_SCHEMA, [name], comment)])


def _checked(text: str) -> pb.Node | None:
    """The expression of ``CHECK ((…))``, as pg_get_constraintdef prints it; None for another text, and for what is not taken."""
    try:
        statements = parse(f"CREATE DOMAIN a AS int {text}")
    except PostgresError:
        return None
    found = list(statements[0].node.constraints) if len(statements) == 1 and statements[0].kind == "CreateDomainStmt" else []
    if len(found) != 1 or unwrap(found[0]).contype != pb.CONSTR_CHECK:
        return None
    expression = unwrap(found[0]).raw_expr
    return expression if harmless(expression) else None


def wrapped(tree: ParseNode) -> pb.Node:
    """A message in its Node, as the fields of statements want it."""
    if tree.DESCRIPTOR.name == "Node":
        return tree
    made = pb.Node()
    field = next(each for each in made.DESCRIPTOR.fields if each.message_type is tree.DESCRIPTOR)
    getattr(made, field.name).CopyFrom(tree)
    return made
