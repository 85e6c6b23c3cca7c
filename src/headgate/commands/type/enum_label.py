"""ALTER TYPE … RENAME VALUE: a label's new name in all values that contain the label.

Called by `user_type`. Columns store an enum's labels as text. A label can be the value itself, or part of an array or a composite value.
Domains have the stored form of their base type. So the rows of all columns of such types are rewritten, as ALTER COLUMN … TYPE would.
Streams do not see that as a change. Constants in the texts of the catalog and the bounds of partitions contain labels too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.catalog import stored_text, user_type
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.partition import Edge
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands.table import rewrite_table
from headgate.expression.spark.value import arrow_function
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.types.registry import BY_OID, Attribute, TypeKind, TypeRegistry
from headgate.types.text import array, record


@dataclass(frozen=True)
class Renaming:
    """A label of an enum and its new name. Spark's tasks use it too."""

    types: TypeRegistry
    enum: int
    label: str
    new_label: str

    def type_oids(self) -> list[int]:
        """Return the types whose values can contain the label."""
        return [oid for pg_type in self.types.user_types() if self.enum in self.types.of_users(oid := pg_type.oid)]

    def of_column(self, texts: pa.StringArray, oid: int) -> pa.StringArray:
        """Return the stored values of a type with the new label."""
        oid, _ = self.types.base(oid)
        if oid == self.enum:
            return pc.if_else(pc.equal(texts, self.label), self.new_label, texts)
        if self.enum not in self.types.of_users(oid):
            return texts
        pg_type = self.types.by_oid(oid)
        if pg_type.kind is not TypeKind.COMPOSITE:
            return array.read_array(texts, ",", lambda items: self.of_column(items, pg_type.element))

        def of_field(items: pa.StringArray, attribute: Attribute) -> pa.StringArray:
            return self.of_column(items, attribute.type_oid)

        return record.read_record(texts, pg_type, of_field)

    def of_value(self, text: str, oid: int) -> str:
        """Return one stored value of a type with the new label."""
        new_text: str = self.of_column(pa.array([text], pa.string()), oid)[0].as_py()
        return new_text


def rename_in_rows(transaction: Transaction, database: int, renaming: Renaming) -> None:
    """Rewrite the rows of all tables that have a column whose values contain the label."""
    for oid, name, kind in user_type.columns_of(transaction.cursor, database, renaming.type_oids()):
        relation = relations.get(transaction.cursor, database, oid)
        column = relation.column(name)
        if relation.kind != RelationKind.TABLE or column is None:
            continue
        value = F.col(quoted(name))
        if renaming.types.base(kind)[0] == renaming.enum:
            changed = F.when(value == F.lit(renaming.label), F.lit(renaming.new_label)).otherwise(value)
        else:
            changed = arrow_function(lambda texts, kind=kind: renaming.of_column(texts, kind), StringType())(value)
        transaction.lock(relation, alone=True)
        with transaction.snapshot.seeing_newest():
            stored_rows = transaction.reader.frame(relation)
        if not stored_rows.where(~changed.eqNullSafe(value)).limit(1).isEmpty():
            rewrite_table.replace_column(transaction, relation, column, changed)


def rename_in_texts(cursor: Cursor, database: int, renaming: Renaming) -> None:
    """Write the constants in the texts of the catalog that contain the label with its new name."""
    oids = {renaming.types.stored_name(oid): oid for oid in renaming.type_oids()}
    constant = re.compile(rf"'((?:[^']|'')*)'::({'|'.join(map(re.escape, oids))})(?!\[)")

    def renamed(match: re.Match[str]) -> str:
        value = renaming.of_value(match[1].replace("''", "'"), oids[match[2]]).replace("'", "''")
        return f"'{value}'::{match[2]}"

    stored_text.change(cursor, database, f"'::{BY_OID}", lambda text: constant.sub(renamed, text))


def rename_in_bounds(cursor: Cursor, database: int, renaming: Renaming) -> None:
    """Write the bounds of partitions with the new label."""
    type_oids = set(renaming.type_oids())
    for (oid,) in rows(cursor, "SELECT partrelid FROM hg.pg_partitioned_table WHERE dbid = ?", [database]):
        root = partition.load(cursor, database, oid)
        kinds = [column.type_oid for column in root.key]

        def renamed(edge: Edge, kind: int) -> Edge:
            return edge if edge.infinite else replace(edge, value=renaming.of_value(edge.value, kind))

        for child in root.children if type_oids.intersection(kinds) else ():
            assert child.bound is not None
            lower, upper = (tuple(map(renamed, edges, kinds)) for edges in (child.bound.lower, child.bound.upper))
            values = tuple(value and renaming.of_value(value, kinds[0]) for value in child.bound.values)
            partition.set_bound(cursor, child, replace(child.bound, values=values, lower=lower, upper=upper), root.key)
