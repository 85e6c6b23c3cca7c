"""The types of a function's variables, and the rows and arrays that variables hold.

`host` uses it for a session, and `row_function` for a task, which has no relations. A variable of a row type holds a `Row`, the fields by
name. Any other variable holds a `Value`, a text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import one
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup, stored_expression
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing
from headgate.expression.node import TypeRef
from headgate.plpgsql.scope import Row, Scope, Value, type_of
from headgate.sql import names
from headgate.sql.parser import parse, unwrap
from headgate.types import registry
from headgate.types.registry import TypeKind
from headgate.types.text import array as arrays
from headgate.types.text import record


@dataclass(frozen=True)
class VariableTypes:
    """The types that a function can name (an implementation of `headgate.plpgsql.host.Types`)."""

    named: Callable[[Sequence[str]], Relation | None]
    """Returns the relation with a name, which may be qualified."""
    with_rows: Callable[[int], Relation | None]
    """Returns the relation whose row type has an oid."""
    row_type: Callable[[Relation], int]
    """Returns the oid of a relation's row type."""

    def declared(self, text: str, scope: Scope) -> TypeRef:
        """Resolve the type of a declaration: a type, a table's row, ``variable%TYPE``, ``table.column%TYPE`` or ``table%ROWTYPE``."""
        if not text:
            return TypeRef(registry.RECORD)
        lowered = text.lower().rstrip()
        if lowered.endswith("%rowtype"):
            return self._row_type(text[: lowered.index("%rowtype")].rstrip())
        if lowered.endswith("%type"):
            return self._declared_as(text[: lowered.index("%type")].rstrip(), scope)
        [statement] = parse(f"SELECT NULL::{text}")
        node = unwrap(statement.node.target_list[0].res_target.val).type_name
        try:
            return type_of(*names.type_name(node))
        except PostgresError as error:
            relation = self.named(names.strings(node.names)) if error.sqlstate == "42704" else None
            if relation is None:
                error.position = None
                raise
            return TypeRef(self.row_type(relation))

    def _with_rows(self, oid: int) -> Relation | None:
        return self.with_rows(oid) if oid >= registry.FIRST_USER_OID else None

    def _declared_as(self, name_text: str, scope: Scope) -> TypeRef:
        parts = tuple(names.split_identifiers(name_text, ".") or (name_text,))
        resolved = scope.find(parts)
        if resolved is not None:
            variable, name = resolved
            held = variable.value
            return held.fields[name].type if name is not None and isinstance(held, Row) else variable.type
        relation = self.named(parts[:-1])
        column = None if relation is None else relation.column(parts[-1])
        if relation is None or column is None:
            raise PostgresError("42P01", f'relation "{".".join(parts[:-1])}" does not exist')
        return stored_expression.type_of(column)

    def _row_type(self, name_text: str) -> TypeRef:
        parts = tuple(names.split_identifiers(name_text, ".") or (name_text,))
        relation = existing(self.named(parts), "42P01", f'relation "{".".join(parts)}"')
        return TypeRef(self.row_type(relation))

    def is_row(self, kind: TypeRef) -> bool:
        if kind.oid == registry.RECORD:
            return True
        known_type = registry.known().find(kind.oid)
        return known_type.kind is TypeKind.COMPOSITE if known_type is not None else self._with_rows(kind.oid) is not None

    def is_array(self, kind: TypeRef) -> bool:
        """Return whether a type is an array type, or a domain over one."""
        known_type = registry.known().find(registry.known().base(kind.oid)[0])
        return known_type is not None and known_type.is_array

    def fields(self, kind: TypeRef) -> Sequence[tuple[str, TypeRef]]:
        if kind.fields:
            return kind.fields
        known_type = registry.known().find(kind.oid)
        if known_type is not None and known_type.attributes:
            return [(attribute.name, type_of(attribute.type_oid, attribute.typmod)) for attribute in known_type.attributes]
        relation = self._with_rows(kind.oid)
        if relation is None:
            return []
        return [(column.name, stored_expression.type_of(column)) for column in relation.columns]

    def row_of(self, value: Value) -> Row | None:
        """Parse the text of a row into its fields."""
        if value.text is None:
            return None
        columns = self.fields(value.type)
        if not columns:
            texts = record.parse(value.text, None)
            columns = [(f"f{place}", type_of(registry.TEXT, -1)) for place in range(1, len(texts) + 1)]
        else:
            texts = record.parse(value.text, len(columns))
        return Row({name: Value(kind, text) for (name, kind), text in zip(columns, texts, strict=True)}, value.type.oid)

    def value_of(self, row: Row) -> Value:
        """Return the text of a row. The type of a RECORD has its fields."""
        fields = tuple((name, field.type) for name, field in row.fields.items()) if row.type == registry.RECORD else ()
        return Value(
            TypeRef(row.type, fields=fields), None if row.is_null else record.print_record([field.text for field in row.fields.values()])
        )

    def elements(self, value: Value, slice_dimensions: int) -> Sequence[Value]:
        """Return the elements of an array's text, or its slices. Raise 42804 if it is not an array, 2202E for a bad slice."""
        kind = registry.known().by_oid(registry.known().base(value.type.oid)[0])
        if not kind.element:
            raise PostgresError("42804", f"FOREACH expression must yield an array, not type {registry.format_type(value.type.oid)}")
        shape, texts = arrays.parts(value.text or "{}")
        if not slice_dimensions:
            return [Value(type_of(kind.element, value.type.typmod), text) for text in texts]
        if slice_dimensions > len(shape.lengths):
            raise PostgresError("2202E", f"slice dimension ({slice_dimensions}) is out of the valid range 0..{len(shape.lengths)}")
        inner = arrays.Shape(shape.lengths[-slice_dimensions:], shape.lowers[-slice_dimensions:])
        size, delimiter = math.prod(inner.lengths), registry.known().by_oid(kind.element).delimiter
        return [
            Value(TypeRef(kind.oid, value.type.typmod), arrays.print_array(inner, texts[start : start + size], delimiter))
            for start in range(0, len(texts), size)
        ]


WITHOUT_RELATIONS = VariableTypes(lambda _: None, lambda _: None, lambda _: registry.RECORD)
"""The types in a Spark task, which has no catalog."""


def of_session(session: Session) -> VariableTypes:
    """Return the types that a session's functions can name."""

    def named(parts: Sequence[str]) -> Relation | None:
        if not parts:
            return None
        node = pb.RangeVar(relname=parts[-1], schemaname=parts[-2] if len(parts) > 1 else "")
        return lookup.find(session.begin_statement().cursor, session.context, node)

    def with_rows(oid: int) -> Relation | None:
        cursor, database = session.begin_statement().cursor, session.context.database
        row = one(cursor, "SELECT oid FROM hg.pg_class WHERE dbid = ? AND reltype = ?", [database, oid])
        return None if row is None else relations.get(cursor, database, row[0])

    return VariableTypes(named, with_rows, lambda relation: row_type(session, relation))


def row_type(session: Session, relation: Relation) -> int:
    sql = "SELECT reltype FROM hg.pg_class WHERE dbid = ? AND oid = ?"
    row = one(session.begin_statement().cursor, sql, [relation.database, relation.oid])
    return registry.RECORD if row is None else int(row[0])
