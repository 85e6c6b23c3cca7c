"""Builds statements from names and values as parse trees: untrusted input never becomes SQL text.

Called if replication creates and alters tables (`commands.subscription`). A name is a field of its node, whatever it contains. Types and
expressions are trees from `type_name` and `parse_expression`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql.parser import parse


def named(name: str) -> str:
    """Return the identifier. Raise 42601 if it is empty: SQL cannot express that, and no lower layer accepts it."""
    if not name:
        raise PostgresError("42601", "zero-length delimited identifier")
    return name


def strings(names: Iterable[str]) -> list[pb.Node]:
    return [pb.Node(string=pb.String(sval=name)) for name in names]


def type_name(schema: str, name: str, *, array: bool = False) -> pb.TypeName:
    """Return a type name, with brackets if `array` is true."""
    bounds = [pb.Node(integer=pb.Integer(ival=-1))] if array else []
    return pb.TypeName(names=strings((schema, name)), typemod=-1, array_bounds=bounds, location=-1)


def relation(schema: str, name: str) -> pb.RangeVar:
    return pb.RangeVar(schemaname=named(schema), relname=named(name), inh=True, relpersistence="p", location=-1)


def constraint(kind: int, **fields: object) -> pb.Node:
    """Return a constraint of a column, a table or a domain."""
    return pb.Node(constraint=pb.Constraint(contype=kind, location=-1, is_enforced=True, initially_valid=True, **fields))


def key(names: Iterable[str]) -> pb.Node:
    """Return PRIMARY KEY over columns."""
    return constraint(pb.CONSTR_PRIMARY, keys=strings(names))


def column(name: str, kind: pb.TypeName, constraints: Sequence[pb.Node] = ()) -> pb.Node:
    definition = pb.ColumnDef(colname=named(name), type_name=kind, is_local=True, constraints=constraints, location=-1)
    return pb.Node(column_def=definition)


def create_table(schema: str, name: str, elements: Sequence[pb.Node], **fields: object) -> pb.CreateStmt:
    return pb.CreateStmt(relation=relation(schema, name), table_elts=elements, oncommit=pb.ONCOMMIT_NOOP, **fields)


def partition_key(strategy: str, names: Iterable[str]) -> pb.PartitionSpec:
    """Return PARTITION BY. `strategy` is pg_partitioned_table.partstrat."""
    kind = {"l": pb.PARTITION_STRATEGY_LIST, "r": pb.PARTITION_STRATEGY_RANGE, "h": pb.PARTITION_STRATEGY_HASH}[strategy]
    parts = [pb.Node(partition_elem=pb.PartitionElem(name=name, location=-1)) for name in names]
    return pb.PartitionSpec(strategy=kind, part_params=parts, location=-1)


def partition_bound(text: str) -> pb.PartitionBoundSpec:
    """Parse a bound printed by pg_get_expr (``FOR VALUES IN ('a')``, ``DEFAULT``). Raise 08P01 for any other text."""
    try:
        statements = parse(f"CREATE TABLE a PARTITION OF b {text}")
        plain = parse("CREATE TABLE a PARTITION OF b DEFAULT")[0].node
    except PostgresError:
        statements = []
    if len(statements) == 1 and statements[0].kind == "CreateStmt":
        statement = statements[0].node
        plain.partbound.CopyFrom(statement.partbound)
        if plain == statement:
            return statement.partbound
    raise PostgresError("08P01", "publisher sent an invalid partition bound")


def create_schema(name: str) -> pb.CreateSchemaStmt:
    return pb.CreateSchemaStmt(schemaname=named(name))


def create_enum(schema: str, name: str, labels: Iterable[str]) -> pb.CreateEnumStmt:
    """Return CREATE TYPE … AS ENUM."""
    return pb.CreateEnumStmt(type_name=strings((named(schema), named(name))), vals=strings(labels))


def create_composite(schema: str, name: str, columns: Iterable[pb.Node]) -> pb.CompositeTypeStmt:
    """Return CREATE TYPE … AS (…). `columns` are results of `column`."""
    return pb.CompositeTypeStmt(typevar=relation(schema, name), coldeflist=columns)


def add_label(schema: str, name: str, label: str, before: str | None) -> pb.AlterEnumStmt:
    """Return ALTER TYPE … ADD VALUE [BEFORE …]."""
    return pb.AlterEnumStmt(
        type_name=strings((schema, name)), new_val=label, new_val_neighbor=before or "", new_val_is_after=before is None,
        skip_if_new_val_exists=True,
    )  # fmt: skip


def create_domain(schema: str, name: str, base: pb.TypeName, constraints: Sequence[pb.Node]) -> pb.CreateDomainStmt:
    return pb.CreateDomainStmt(domainname=strings((named(schema), named(name))), type_name=base, constraints=constraints)


def alter_table(schema: str, name: str, commands: Sequence[pb.AlterTableCmd]) -> pb.AlterTableStmt:
    wrapped = [pb.Node(alter_table_cmd=command) for command in commands]
    return pb.AlterTableStmt(relation=relation(schema, name), cmds=wrapped, objtype=pb.OBJECT_TABLE)


def command(kind: int, **fields: object) -> pb.AlterTableCmd:
    return pb.AlterTableCmd(subtype=kind, behavior=pb.DROP_RESTRICT, **fields)


def change_type(name: str, kind: pb.TypeName) -> pb.AlterTableCmd:
    """Return ALTER COLUMN … TYPE."""
    definition = pb.Node(column_def=pb.ColumnDef(type_name=kind, location=-1))
    return command(pb.AT_AlterColumnType, name=name, **{"def": definition})


def replica_identity_full() -> pb.AlterTableCmd:
    identity = pb.Node(replica_identity_stmt=pb.ReplicaIdentityStmt(identity_type="f"))
    return command(pb.AT_ReplicaIdentity, **{"def": identity})


def rename_column(schema: str, name: str, before: str, after: str) -> pb.RenameStmt:
    """Return ALTER TABLE … RENAME COLUMN."""
    return pb.RenameStmt(
        rename_type=pb.OBJECT_COLUMN, relation_type=pb.OBJECT_TABLE, relation=relation(schema, name), subname=before, newname=named(after),
        behavior=pb.DROP_RESTRICT,
    )  # fmt: skip


def comment(kind: int, names: Sequence[str], text: str) -> pb.CommentStmt:
    """Return COMMENT ON a schema (one name), a table or a column."""
    if kind == pb.OBJECT_SCHEMA:
        target = strings(names)[0]
    else:
        target = pb.Node(list=pb.List(items=strings(names)))
    return pb.CommentStmt(objtype=kind, object=target, comment=text)
