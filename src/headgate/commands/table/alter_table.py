"""ALTER TABLE: the subcommands that a node supports, each with PostgreSQL's checks.

Called by `execute` for AlterTableStmt. Subcommands run in sequence, each on the relation as its predecessor left it. Those of columns and
of constraints have their own modules (`alter_column`, `alter_constraint`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import history
from headgate.catalog.hold import Hold
from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import inheritance, pg_class
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, TABLE_KINDS, RelationKind
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication import subscription_history
from headgate.commands import lookup, privilege, storage_parameter, table_in_use
from headgate.commands.alteration import Alteration
from headgate.commands.query import rendering
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import alter_column, alter_constraint, alter_inheritance, alter_partition, identity_column
from headgate.commands.table.rename import KINDS, WORDS
from headgate.commands.trigger import definition as trigger
from headgate.commands.view import view
from headgate.errors import PostgresError, not_supported
from headgate.sql.parser import unwrap


def alter(node: pb.AlterTableStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = lookup.altered(cursor, session, node.relation, missing_ok=node.missing_ok)
    word = WORDS.get(node.objtype, "TABLE")
    if relation is None:
        return CommandResult(f"ALTER {word}")
    kinds, kind_phrase = KINDS.get(word, (frozenset(RelationKind), ""))
    if relation.kind not in kinds:
        raise PostgresError("42809", f'"{relation.name}" is not {kind_phrase}')
    commands = [unwrap(command_node) for command_node in node.cmds]
    privilege.check_owner(
        cursor, context.user, relation.owner, "table" if relation.kind in TABLE_KINDS else lookup.KINDS[relation.kind], relation.name
    )
    table_in_use.check(session, cursor, relation, "ALTER TABLE")
    if any(command.subtype not in _ALSO_OF_HISTORIES for command in commands):
        subscription_history.refuse_change(cursor, relation.database, relation.oid, relation.name, "alter")
    for command in commands:
        _check_kind(command, relation)
    if relation.is_partitioned and all(command.subtype == pb.AT_AttachPartition for command in commands):
        # As in CREATE TABLE … PARTITION OF, the existing partitions are not affected, except a default one, which `attach` locks.
        transaction.catalog.change_object("pg_class", relation.oid)
    else:
        # A transaction that is writing to the table continues with the columns and constraints of now until it ends.
        owned = inheritance.expanded(cursor, relation) if node.relation.inh else relation
        transaction.own(owned, Hold.CHANGE if all(_beside_uses(command) for command in commands) else Hold.ALONE)
    below = inheritance.below(cursor, relation) if relation.has_children else []
    alteration = Alteration(session, transaction, relation)
    alteration.only = not node.relation.inh
    with rendering.running(session, transaction):
        for command in commands:
            action = ACTIONS.get(command.subtype)
            if action is None:
                raise not_supported(f"ALTER TABLE ... {_subcommand_name(command)} is not supported")
            alter_partition.check(alteration, command, only=not node.relation.inh)
            action(alteration, command)
            alteration.refresh()
    transaction.catalog_changed(history.touched(relation, alteration.relation, *below))
    return CommandResult(f"ALTER {word}")


def _beside_uses(command: pb.AlterTableCmd) -> bool:
    """Return whether a subcommand changes nothing that views, publications or foreign keys rely on (AlterTableGetLockLevel)."""
    if command.subtype == pb.AT_AddConstraint:
        return bool(unwrap(getattr(command, "def")).contype == pb.CONSTR_FOREIGN)
    return command.subtype in _BESIDE_USES


def _subcommand_name(command: pb.AlterTableCmd) -> str:
    """Return the subcommand as messages name it (alter_table_type_to_string)."""
    if command.subtype in _SPELLED:
        return _SPELLED[command.subtype]
    name = pb.AlterTableType.Name(command.subtype).removeprefix("AT_")
    return "".join(f" {letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


_SPELLED = {
    pb.AT_ColumnDefault: "ALTER COLUMN ... SET DEFAULT",
    pb.AT_DropNotNull: "ALTER COLUMN ... DROP NOT NULL",
    pb.AT_SetNotNull: "ALTER COLUMN ... SET NOT NULL",
    pb.AT_DropExpression: "ALTER COLUMN ... DROP EXPRESSION",
    pb.AT_SetStatistics: "ALTER COLUMN ... SET STATISTICS",
    pb.AT_SetOptions: "ALTER COLUMN ... SET",
    pb.AT_ResetOptions: "ALTER COLUMN ... RESET",
    pb.AT_SetStorage: "ALTER COLUMN ... SET STORAGE",
    pb.AT_SetCompression: "ALTER COLUMN ... SET COMPRESSION",
    pb.AT_AlterColumnType: "ALTER COLUMN ... SET DATA TYPE",
    pb.AT_AddIdentity: "ALTER COLUMN ... ADD IDENTITY",
    pb.AT_SetIdentity: "ALTER COLUMN ... SET",
    pb.AT_DropIdentity: "ALTER COLUMN ... DROP IDENTITY",
    pb.AT_ChangeOwner: "OWNER TO",
    pb.AT_SetUnLogged: "SET UNLOGGED",
    pb.AT_SetRelOptions: "SET",
    pb.AT_ResetRelOptions: "RESET",
    pb.AT_EnableTrig: "ENABLE TRIGGER",
    pb.AT_EnableAlwaysTrig: "ENABLE ALWAYS TRIGGER",
    pb.AT_EnableReplicaTrig: "ENABLE REPLICA TRIGGER",
    pb.AT_DisableTrig: "DISABLE TRIGGER",
    pb.AT_EnableTrigAll: "ENABLE TRIGGER ALL",
    pb.AT_DisableTrigAll: "DISABLE TRIGGER ALL",
    pb.AT_EnableTrigUser: "ENABLE TRIGGER USER",
    pb.AT_DisableTrigUser: "DISABLE TRIGGER USER",
    pb.AT_DetachPartitionFinalize: "DETACH PARTITION ... FINALIZE",
    pb.AT_AddInherit: "INHERIT",
    pb.AT_DropInherit: "NO INHERIT",
    pb.AT_AddOf: "OF",
    pb.AT_DropOf: "NOT OF",
    pb.AT_EnableRowSecurity: "ENABLE ROW SECURITY",
    pb.AT_DisableRowSecurity: "DISABLE ROW SECURITY",
    pb.AT_ForceRowSecurity: "FORCE ROW SECURITY",
    pb.AT_NoForceRowSecurity: "NO FORCE ROW SECURITY",
}
"""Subcommands whose spelling differs from the node's name."""


def _check_kind(command: pb.AlterTableCmd, relation: Relation) -> None:
    if relation.kind in TABLE_KINDS or (
        relation.kind
        in {RelationKind.SEQUENCE, RelationKind.VIEW, RelationKind.MATERIALIZED_VIEW, RelationKind.INDEX, RelationKind.PARTITIONED_INDEX}
        and command.subtype == pb.AT_ChangeOwner
    ):
        return
    if relation.kind == RelationKind.SEQUENCE and command.subtype in (pb.AT_SetLogged, pb.AT_SetUnLogged):
        return
    if relation.kind == RelationKind.MATERIALIZED_VIEW and command.subtype == pb.AT_ReplicaIdentity:
        return
    if relation.kind == RelationKind.PARTITIONED_INDEX and command.subtype == pb.AT_AttachPartition:
        return
    if relation.kind in INDEX_KINDS and command.subtype == pb.AT_SetStatistics:
        return
    if relation.kind in {RelationKind.VIEW, RelationKind.INDEX} and command.subtype in (pb.AT_SetRelOptions, pb.AT_ResetRelOptions):
        return
    raise PostgresError(
        "42809",
        f'ALTER action {_subcommand_name(command)} cannot be performed on relation "{relation.name}"',
        detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
    )


def replica_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute REPLICA IDENTITY { DEFAULT | FULL | NOTHING | USING INDEX i }."""
    relation = alteration.relation
    identity = unwrap(getattr(command, "def"))
    if identity.identity_type != "i":
        pg_class.set_replica_identity(alteration.cursor, relation, ReplicaIdentity(identity.identity_type))
        return
    oid = relations.find_oid(alteration.cursor, relation.database, relation.schema, identity.name)
    if oid is None:
        raise PostgresError("42704", f'index "{identity.name}" for table "{relation.name}" does not exist')
    index = next((candidate for candidate in relation.indexes if candidate.oid == oid), None)
    if index is None:
        raise PostgresError("42809", f'"{identity.name}" is not an index for table "{relation.name}"')
    if not index.unique:
        raise PostgresError("42809", f'cannot use non-unique index "{identity.name}" as replica identity')
    if not index.immediate:
        raise PostgresError("0A000", f'cannot use non-immediate index "{identity.name}" as replica identity')
    if index.expressions:
        raise PostgresError("0A000", f'cannot use expression index "{identity.name}" as replica identity')
    if index.predicate is not None:
        raise PostgresError("0A000", f'cannot use partial index "{identity.name}" as replica identity')
    for column in relation.columns_at(index.attnums):
        if not column.not_null:
            message = f'index "{identity.name}" cannot be used as replica identity because column "{column.name}" is nullable'
            raise PostgresError("42809", message)
    pg_class.set_replica_identity(alteration.cursor, relation, ReplicaIdentity.INDEX, index.oid)


def change_owner(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    context, cursor = alteration.session.context, alteration.cursor
    new_owner, oid = privilege.new_owner(cursor, context, command.newowner)
    relation = alteration.relation
    if relation.kind in INDEX_KINDS:
        if oid != relation.owner:
            hint = "Change the ownership of the index's table, instead."
            alteration.session.notices.warning(f'cannot change owner of index "{relation.name}"', sqlstate="42809", hint=hint)
        return
    if relation.kind == RelationKind.SEQUENCE:
        _refuse_linked(cursor, relation)
    if oid == relation.owner:
        return
    if not privilege.is_superuser(cursor, context.user):
        privilege.check_member(cursor, context.user, new_owner)
        privilege.check_create_in_schema(cursor, new_owner, context.database, alteration.relation.namespace_oid)
    pg_class.set_owner(cursor, alteration.relation, oid)


def _refuse_linked(cursor: Cursor, relation: Relation) -> None:
    """Raise 0A000 for the sequence of a column, because its owner is the table's."""
    table = sequences.table_of(cursor, relation.database, relation.oid)
    if table is not None:
        detail = f'Sequence "{relation.name}" is linked to table "{table}".'
        raise PostgresError("0A000", f'cannot change owner of sequence "{relation.name}"', detail=detail)


def row_security(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ENABLE, DISABLE, FORCE or NO FORCE ROW LEVEL SECURITY."""
    column, value = {
        pb.AT_EnableRowSecurity: ("relrowsecurity", True),
        pb.AT_DisableRowSecurity: ("relrowsecurity", False),
        pb.AT_ForceRowSecurity: ("relforcerowsecurity", True),
        pb.AT_NoForceRowSecurity: ("relforcerowsecurity", False),
    }[command.subtype]
    pg_class.set_class(alteration.cursor, alteration.relation, column, value)


def set_logged(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute SET LOGGED or SET UNLOGGED, which determines whether a publication may have the table (ATPrepChangePersistence)."""
    relation, cursor = alteration.relation, alteration.cursor
    persistence = "p" if command.subtype == pb.AT_SetLogged else "u"
    if relation.persistence == "t":
        raise PostgresError("42P16", f'cannot change logged status of table "{relation.name}" because it is temporary')
    if relation.persistence == persistence:
        return
    if persistence == "u" and publications.of_relation(cursor, relation.database, relation.oid):
        raise PostgresError(
            "55000",
            f'cannot change table "{relation.name}" to unlogged because it is part of a publication',
            detail="Unlogged relations cannot be replicated.",
        )
    for key in relation.foreign_keys if persistence == "p" else relation.referenced:
        related = relations.get(cursor, relation.database, key.target if persistence == "p" else key.relation)
        if related.oid != relation.oid and (related.persistence != "p") == (persistence == "p"):
            word = "logged" if persistence == "p" else "unlogged"
            state = "unlogged" if persistence == "p" else "logged"
            raise PostgresError(
                "42P16", f'could not change table "{relation.name}" to {word} because it references {state} table "{related.name}"'
            )
    if relation.is_partitioned:  # PostgreSQL changes it with the rewrite, and there is nothing to rewrite
        return
    for oid in (relation.oid, *[index.oid for index in relation.indexes]):
        pg_class.set_class(cursor, replace(relation, oid=oid), "relpersistence", persistence)


def triggers(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ENABLE or DISABLE TRIGGER."""
    trigger.enable(alteration.session, alteration.cursor, alteration.relation, command, only=alteration.only)


def set_options(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute SET (…) or RESET (…). Those of an index concern PostgreSQL's storage."""
    if alteration.relation.kind == RelationKind.VIEW:
        view.alter_options(alteration, command)
    elif alteration.relation.kind in TABLE_KINDS:
        storage_parameter.alter(alteration, command)
    elif command.subtype == pb.AT_SetRelOptions:
        relation = alteration.relation
        sql = "SELECT m.amname FROM hg.pg_class c JOIN hg.pg_am m ON m.oid = c.relam WHERE c.dbid = ? AND c.oid = ?"
        method = one(alteration.cursor, sql, [relation.database, relation.oid])
        storage_parameter.check_index(unwrap(getattr(command, "def")).items, method[0] if method else "btree")


def accept(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Accept a subcommand about PostgreSQL's storage or planner, which has no effect here. Only the column is checked."""
    if command.subtype == pb.AT_SetOptions:
        storage_parameter.check_column(unwrap(getattr(command, "def")).items)
    if command.subtype == pb.AT_SetCompression:
        alteration.column(command.name)


TRIGGERS = (
    pb.AT_EnableTrig, pb.AT_EnableAlwaysTrig, pb.AT_EnableReplicaTrig, pb.AT_DisableTrig, pb.AT_EnableTrigAll, pb.AT_DisableTrigAll,
    pb.AT_EnableTrigUser, pb.AT_DisableTrigUser,
)  # fmt: skip


_BESIDE_USES = frozenset({
    *TRIGGERS, pb.AT_AttachPartition, pb.AT_ValidateConstraint, pb.AT_SetStatistics, pb.AT_SetOptions, pb.AT_ResetOptions,
    pb.AT_SetRelOptions, pb.AT_ResetRelOptions, pb.AT_ClusterOn, pb.AT_DropCluster,
})  # fmt: skip
_ALSO_OF_HISTORIES = frozenset({
    pb.AT_ChangeOwner, pb.AT_ReplicaIdentity,
    pb.AT_EnableRowSecurity, pb.AT_DisableRowSecurity, pb.AT_ForceRowSecurity, pb.AT_NoForceRowSecurity,
})  # fmt: skip
"""Subcommands that do not change which rows a table can hold."""


ACTIONS: dict[int, Callable[[Alteration, pb.AlterTableCmd], None]] = {
    pb.AT_ReplicaIdentity: replica_identity,
    pb.AT_AddColumn: alter_column.add_column,
    pb.AT_DropColumn: alter_column.drop_column,
    pb.AT_ColumnDefault: alter_column.set_default,
    pb.AT_SetNotNull: alter_column.set_not_null,
    pb.AT_DropNotNull: alter_column.drop_not_null,
    pb.AT_AlterColumnType: alter_column.alter_type,
    pb.AT_AddConstraint: alter_constraint.add_constraint,
    pb.AT_DropConstraint: alter_constraint.drop_constraint,
    pb.AT_AlterConstraint: alter_constraint.alter_constraint,
    pb.AT_ValidateConstraint: alter_constraint.validate_constraint,
    pb.AT_ChangeOwner: change_owner,
    pb.AT_AddInherit: alter_inheritance.inherit,
    pb.AT_DropInherit: alter_inheritance.disinherit,
    pb.AT_AttachPartition: alter_partition.attach,
    pb.AT_DetachPartition: alter_partition.detach,
    pb.AT_DetachPartitionFinalize: alter_partition.detach,
    pb.AT_AddIdentity: identity_column.add_identity,
    pb.AT_SetIdentity: identity_column.set_identity,
    pb.AT_DropIdentity: identity_column.drop_identity,
    pb.AT_DropExpression: alter_column.drop_expression,
    pb.AT_EnableRowSecurity: row_security,
    pb.AT_DisableRowSecurity: row_security,
    pb.AT_ForceRowSecurity: row_security,
    pb.AT_NoForceRowSecurity: row_security,
    pb.AT_SetLogged: set_logged,
    pb.AT_SetUnLogged: set_logged,
    **dict.fromkeys(TRIGGERS, triggers),
    pb.AT_SetStorage: alter_column.set_storage,
    pb.AT_SetCompression: accept,
    pb.AT_SetStatistics: alter_column.set_statistics,
    pb.AT_SetRelOptions: set_options,
    pb.AT_ResetRelOptions: set_options,
    pb.AT_SetOptions: accept,
    pb.AT_ResetOptions: accept,
    pb.AT_ClusterOn: accept,
    pb.AT_DropCluster: accept,
}
