"""ALTER TABLE: the subcommands a node has, each with PostgreSQL's checks.

Called by `execute` for AlterTableStmt, and for RENAME, OWNER TO and SET SCHEMA of tables. Subcommands run one after the other,
each on the relation as the one before left it; a change of the stored columns goes to the storage with the old and the new relation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.catalog import definition
from headgate.catalog import foreign_key as foreign_keys
from headgate.catalog import publication as publications
from headgate.catalog import relation as relations
from headgate.catalog.physical import rows
from headgate.catalog.relation import Column, ForeignKey, Relation
from headgate.commands import (
    alter_sequence,
    binding,
    dependency,
    foreign_key,
    lookup,
    membership,
    partition_alter,
    partition_index,
    policy,
    privilege,
    rewrite_table,
    sequence,
    table_definition,
    uniqueness,
    view,
)
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import nextval, oids
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import unwrap
from headgate.storage.transaction import Transaction


class Alteration:
    """One ALTER TABLE statement on one relation."""

    def __init__(self, session: Session, transaction: Transaction, relation: Relation, *, inherited: bool = False) -> None:
        """`inherited`: it comes from the table above, so what a partition may not do by itself is not refused."""
        self.session = session
        self.transaction = transaction
        self.relation = relation
        self.inherited = inherited
        self.only = False

    @property
    def cursor(self) -> Any:
        """The catalog cursor of the transaction."""
        return self.transaction.cursor

    def refresh(self) -> None:
        """Reads the relation anew after a change of the catalog."""
        self.relation = relations.get(self.cursor, self.relation.database, self.relation.oid)

    def column(self, name: str) -> Column:
        """The live column of this name; 42703."""
        found = self.relation.column(name)
        if found is None:
            if name in table_definition.SYSTEM_COLUMNS:
                raise PostgresError("0A000", f'cannot alter system column "{name}"')
            raise PostgresError("42703", f'column "{name}" of relation "{self.relation.name}" does not exist')
        return found

    def child(self, relation: Relation) -> Alteration:
        """The same statement on a partition."""
        return Alteration(self.session, self.transaction, relation, inherited=True)

    def children(self) -> list[Alteration]:
        """The same statement on each partition directly below."""
        return [self.child(each) for each in partition_index.children(self.cursor, self.relation)] if self.relation.kind == "p" else []

    def stored_columns_changed(self, old: Relation) -> None:
        """Tells the storage of added, dropped or renamed columns."""
        if self.relation.kind == "r":
            self.transaction.alter_table(old, self.relation)


def alter(node: Any, session: Session) -> CommandResult:
    """ALTER TABLE."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = lookup.find(cursor, context, node.relation)
    word = _WORDS.get(node.objtype, "TABLE")
    if relation is None:
        if not node.missing_ok:
            lookup.target(cursor, context, node.relation)
        session.notices.notice(f'relation "{node.relation.relname}" does not exist, skipping')
        return CommandResult(f"ALTER {word}")
    kinds, shown = _KINDS.get(word, (relation.kind, ""))
    if relation.kind not in kinds:
        raise PostgresError("42809", f'"{relation.name}" is not {shown}')
    commands = [unwrap(each) for each in node.cmds]
    for command in commands:
        _check_kind(command, relation)
    privilege.check_owner(
        cursor, context.user, relation.owner, "table" if relation.kind in "rp" else lookup.KINDS[relation.kind], relation.name
    )
    alteration = Alteration(session, transaction, relation)
    alteration.only = not node.relation.inh
    for command in commands:
        action = ACTIONS.get(command.subtype)
        if action is None:
            raise not_supported(f"ALTER TABLE ... {_spelled(command)} is not supported")
        partition_alter.check(alteration, command, only=not node.relation.inh)
        action(alteration, command)
        alteration.refresh()
    transaction.catalog_changed()
    return CommandResult(f"ALTER {word}")


def _spelled(command: Any) -> str:
    name = pb.AlterTableType.Name(command.subtype).removeprefix("AT_")
    return "".join(f" {letter}" if letter.isupper() and place else letter for place, letter in enumerate(name)).upper()


def _check_kind(command: Any, relation: Relation) -> None:
    if relation.kind in "rp" or (relation.kind in "SvmiI" and command.subtype == pb.AT_ChangeOwner):
        return
    if relation.kind == "m" and command.subtype == pb.AT_ReplicaIdentity:
        return
    if relation.kind in "vi" and command.subtype in (pb.AT_SetRelOptions, pb.AT_ResetRelOptions):
        return
    word = {pb.AT_ReplicaIdentity: "REPLICA IDENTITY", pb.AT_AddColumn: "ADD COLUMN", pb.AT_DropColumn: "DROP COLUMN"}.get(
        command.subtype, _spelled(command)
    )
    raise PostgresError(
        "42809",
        f'ALTER action {word} cannot be performed on relation "{relation.name}"',
        detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
    )


def replica_identity(alteration: Alteration, command: Any) -> None:
    """REPLICA IDENTITY { DEFAULT | FULL | NOTHING | USING INDEX i }."""
    relation = alteration.relation
    wanted = unwrap(getattr(command, "def"))
    if wanted.identity_type != "i":
        definition.set_replica_identity(alteration.cursor, relation, wanted.identity_type)
        return
    oid = relations.find_oid(alteration.cursor, relation.database, relation.schema, wanted.name)
    if oid is None:
        raise PostgresError("42704", f'index "{wanted.name}" for table "{relation.name}" does not exist')
    index = next((each for each in relation.indexes if each.oid == oid), None)
    if index is None:
        raise PostgresError("42809", f'"{wanted.name}" is not an index for table "{relation.name}"')
    if not index.unique:
        raise PostgresError("42809", f'cannot use non-unique index "{wanted.name}" as replica identity')
    if not index.immediate:
        raise PostgresError("0A000", f'cannot use non-immediate index "{wanted.name}" as replica identity')
    if index.expressions:
        raise PostgresError("0A000", f'cannot use expression index "{wanted.name}" as replica identity')
    if index.predicate is not None:
        raise PostgresError("0A000", f'cannot use partial index "{wanted.name}" as replica identity')
    for attnum in index.attnums:
        column = relation.numbered(attnum)
        if column is not None and not column.not_null:
            message = f'index "{wanted.name}" cannot be used as replica identity because column "{column.name}" is nullable'
            raise PostgresError("42809", message)
    definition.set_replica_identity(alteration.cursor, relation, "i", index.oid)


def add_column(alteration: Alteration, command: Any) -> None:
    """ADD COLUMN [IF NOT EXISTS]."""
    relation, cursor = alteration.relation, alteration.cursor
    element = unwrap(getattr(command, "def"))
    if relation.column(element.colname) is not None:
        message = f'column "{element.colname}" of relation "{relation.name}" already exists'
        if not command.missing_ok:
            raise PostgresError("42701", message)
        alteration.session.notices.notice(message + ", skipping", sqlstate="42701")
        return
    column, elements = table_definition.column(element, relation.name, relation.all_columns, cursor, relation.database)
    next_oid = oids(alteration.transaction)
    sequences: dict[str, int] = {}
    for need in elements.sequences:
        name = sequence.owned_name(cursor, relation.database, relation.namespace_oid, relation.name, need.column)
        sequences[need.column] = sequence.create(
            cursor, next_oid, relation.database, relation.namespace_oid, name, relation.owner, need.type_oid, need.options
        )
        if not need.identity:
            column = replace(column, default=nextval(relation.schema, name, alteration.session.context.search_path))
    attnum = definition.add_column(cursor, next_oid, relation, column)
    for oid in sequences.values():
        sequence.own(cursor, relation.database, oid, relation.oid, attnum, identity=bool(column.identity))
    alteration.refresh()
    alteration.stored_columns_changed(relation)
    rewrite_table.fill_added_column(alteration.session, alteration.transaction, alteration.relation, replace(column, attnum=attnum))
    partition_alter.add_column(alteration, replace(column, attnum=attnum))
    for key in elements.keys:
        _add_key(alteration, key)
    for check in elements.checks:
        _add_check(alteration, check)
    for declared in elements.foreign_keys:
        foreign_key.add(declared, alteration.relation, alteration.session, alteration.transaction, check=True)


def drop_column(alteration: Alteration, command: Any) -> None:
    """DROP COLUMN [IF EXISTS] [CASCADE]."""
    relation, cursor = alteration.relation, alteration.cursor
    column = relation.column(command.name)
    if column is None:
        if command.missing_ok:
            alteration.session.notices.notice(f'column "{command.name}" of relation "{relation.name}" does not exist, skipping')
            return
        column = alteration.column(command.name)
    _settle_column(alteration, column, cascade=command.behavior == pb.DROP_CASCADE)
    generated = [each for each in relation.columns if column.name in _used(each.generated, relation)]
    for index in relation.indexes:
        if not index.plain and column.attnum in uniqueness.used_columns(relation, index):
            definition.drop_index(cursor, alteration.relation, index.oid)
    alteration.refresh()
    for gone in [*generated, column]:
        owned = sequence.of_column(cursor, relation.database, relation.oid, gone.attnum)
        if owned is not None:
            definition.drop(cursor, relation.database, owned)
        definition.drop_column(cursor, alteration.relation, gone.attnum)
        alteration.refresh()
    alteration.stored_columns_changed(relation)
    for child in alteration.children():
        drop_column(child, command)


def _settle_column(alteration: Alteration, column: Column, *, cascade: bool) -> None:
    """What depends on a column that is to go: refused, or with `cascade` told of and taken away."""
    relation, cursor, context = alteration.relation, alteration.cursor, alteration.session.context
    table = dependency.shown(cursor, context, relation)
    on = f"column {column.name} of {table}"
    found = [
        dependency.Dependant((1259, -each.attnum), f"column {each.name} of {table}", on, lambda: None)
        for each in relation.columns
        if column.name in _used(each.generated, relation)
    ]
    found += dependency.of_column(cursor, context, relation, column.attnum)
    found += policy.dependants(cursor, relation, table, on, column.name)
    found += [_member(alteration, table, on, member) for member in membership.depending(cursor, relation, column.attnum)]
    dependency.settle(found, [on], alteration.session.notices, cascade=cascade)
    alteration.refresh()


def _member(alteration: Alteration, table: str, on: str, member: membership.Membership) -> dependency.Dependant:
    text = f"publication of {table} in publication {member.publication}"
    return dependency.Dependant((6106, member.publication_oid), text, on, lambda: membership.remove(alteration.cursor, [member]))


def _used(expression: str | None, relation: Relation) -> set[str]:
    return set() if expression is None else binding.columns_of(expression, relation)


def set_default(alteration: Alteration, command: Any) -> None:
    """ALTER COLUMN … SET or DROP DEFAULT."""
    column = alteration.column(command.name)
    relation = alteration.relation
    if column.identity:
        hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead." if not command.HasField("def") else None
        raise PostgresError("42601", f'column "{column.name}" of relation "{relation.name}" is an identity column', hint=hint)
    if column.generated is not None:
        hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead." if not command.HasField("def") else None
        raise PostgresError("42601", f'column "{column.name}" of relation "{relation.name}" is a generated column', hint=hint)
    default = binding.default(getattr(command, "def"), column) if command.HasField("def") else None
    definition.set_default(alteration.cursor, oids(alteration.transaction), relation, column.attnum, default)
    for child in alteration.children():
        set_default(child, command)


def set_not_null(alteration: Alteration, command: Any) -> None:
    """ALTER COLUMN … SET NOT NULL; 23502 if the table has NULLs there."""
    column = alteration.column(command.name)
    for child in alteration.children():
        set_not_null(child, command)
    if not column.not_null:
        rewrite_table.check_no_nulls(alteration.transaction, alteration.relation, column)
        definition.set_not_null(alteration.cursor, alteration.relation, column.attnum, not_null=True)


def drop_not_null(alteration: Alteration, command: Any) -> None:
    """ALTER COLUMN … DROP NOT NULL."""
    column = alteration.column(command.name)
    relation = alteration.relation
    if column.attnum in relation.primary_key:
        raise PostgresError("42P16", f'column "{column.name}" is in a primary key')
    if column.identity:
        raise PostgresError("42601", f'column "{column.name}" of relation "{relation.name}" is an identity column')
    if relation.replica_identity == "i" and column.attnum in (relation.identity_index or ()):
        raise PostgresError("42P16", f'column "{column.name}" is in index used as replica identity')
    definition.set_not_null(alteration.cursor, relation, column.attnum, not_null=False)
    for child in alteration.children():
        drop_not_null(child, command)


def alter_type(alteration: Alteration, command: Any) -> None:
    """ALTER COLUMN … TYPE … [USING …]."""
    element = unwrap(getattr(command, "def"))
    column = alteration.column(command.name)
    relation = alteration.relation
    oid, typmod = names.type_name(element.type_name)
    for each in dependency.views_of(alteration.cursor, alteration.session.context, relation, "", column.attnum)[:1]:
        raise PostgresError(
            "0A000",
            "cannot alter type of a column used by a view or rule",
            detail=f'rule _RETURN on {each.shown} depends on column "{column.name}"',
        )
    for member in membership.depending(alteration.cursor, relation, column.attnum):
        raise PostgresError(
            "0A000",
            "cannot alter type of a column used by a publication WHERE clause",
            detail=f'publication of table {relation.name} in publication {member.publication} depends on column "{column.name}"',
        )
    rewrite_table.alter_type(alteration, column, oid, typmod, element.raw_default if element.HasField("raw_default") else None)
    for child in alteration.children():
        alter_type(child, command)


def add_constraint(alteration: Alteration, command: Any) -> None:
    """ADD [CONSTRAINT …] PRIMARY KEY, UNIQUE or CHECK."""
    node = unwrap(getattr(command, "def"))
    relation = alteration.relation
    if node.contype == pb.CONSTR_CHECK:
        check = table_definition.check(node, relation.columns, relation.name)
        _add_check(alteration, check)
        return
    if node.contype == pb.CONSTR_FOREIGN:
        foreign_key.add(table_definition.ForeignKeyNeed(node), relation, alteration.session, alteration.transaction, check=True)
        return
    if node.indexname:
        alter_sequence.using_index(alteration, node)
        return
    _add_key(alteration, table_definition.key(node, relation.columns, relation.name))


def _add_key(alteration: Alteration, key: definition.Key) -> None:
    relation = alteration.relation
    if key.primary and relation.primary_key:
        raise PostgresError("42P16", f'multiple primary keys for table "{relation.name}" are not allowed')
    label = "pkey" if key.primary else "key"
    named = None if key.primary else "_".join(each.name for number in (*key.attnums, *key.included) if (each := relation.numbered(number)))
    name = key.name or definition.choose_name(alteration.cursor, relation.database, relation.namespace_oid, relation.name, named, label)
    if key.primary:
        for number in key.attnums:
            column = relation.numbered(number)
            if column is not None and not column.not_null:
                partition_alter.check_no_nulls(alteration, column.name)
    partition_index.add(alteration.transaction, relation, replace(key, name=name), only=alteration.only)
    alteration.refresh()


def _add_check(alteration: Alteration, check: definition.NewCheck) -> None:
    oid = definition.add_check(alteration.cursor, oids(alteration.transaction), alteration.relation, check)
    alteration.refresh()
    made = next(each for each in alteration.relation.checks if each.oid == oid)
    rewrite_table.check_rows(alteration.transaction, alteration.relation, made)
    partition_alter.add_check(alteration, made)


def drop_constraint(alteration: Alteration, command: Any) -> None:
    """DROP CONSTRAINT [IF EXISTS] [CASCADE]."""
    relation, cursor, context = alteration.relation, alteration.cursor, alteration.session.context
    index = next((each for each in relation.indexes if each.constraint and each.name == command.name), None)
    if index is not None:
        subject = f"constraint {index.name} on {dependency.shown(cursor, context, relation)}"
        found = dependency.of_index(cursor, context, relation, index)
        dependency.settle(found, [subject], alteration.session.notices, cascade=command.behavior == pb.DROP_CASCADE)
        alteration.refresh()
    done = partition_alter.drop_constraint(alteration, command.name, missing_ok=command.missing_ok)
    if not done:
        alteration.session.notices.notice(f'constraint "{command.name}" of relation "{relation.name}" does not exist, skipping')


def _foreign_key(alteration: Alteration, name: str) -> ForeignKey:
    relation = alteration.relation
    found = next((each for each in relation.foreign_keys if each.name == name), None)
    if found is None:
        others = [each.name for each in relation.checks] + [each.name for each in relation.indexes if each.constraint]
        if name in others:
            raise PostgresError("42809", f'constraint "{name}" of relation "{relation.name}" is not a foreign key constraint')
        raise PostgresError("42704", f'constraint "{name}" of relation "{relation.name}" does not exist')
    return found


def alter_constraint(alteration: Alteration, command: Any) -> None:
    """ALTER CONSTRAINT … [NOT] DEFERRABLE, INITIALLY DEFERRED or IMMEDIATE."""
    node = unwrap(getattr(command, "def"))
    key = _foreign_key(alteration, node.conname)
    foreign_keys.set_deferrable(
        alteration.cursor, alteration.relation.database, key.oid, deferrable=node.deferrable, deferred=node.initdeferred
    )


def validate_constraint(alteration: Alteration, command: Any) -> None:
    """VALIDATE CONSTRAINT."""
    relation = alteration.relation
    check = next((each for each in relation.checks if each.name == command.name), None)
    if check is not None:
        rewrite_table.check_rows(alteration.transaction, relation, check)
        foreign_keys.validate(alteration.cursor, relation.database, check.oid)
        return
    if any(each.constraint and each.name == command.name for each in relation.indexes):
        raise PostgresError("42809", f'constraint "{command.name}" of relation "{relation.name}" is not a foreign key or check constraint')
    key = _foreign_key(alteration, command.name)
    if not key.validated:
        foreign_key.validate(key, relation, alteration.session, alteration.transaction)


def change_owner(alteration: Alteration, command: Any) -> None:
    """OWNER TO."""
    context, cursor = alteration.session.context, alteration.cursor
    new_owner = names.role_name(command.newowner, context.user, context.session_user)
    oid = privilege.role_oid(cursor, new_owner)
    if not privilege.is_superuser(cursor, context.user):
        if not privilege.is_member(cursor, context.user, new_owner):
            raise PostgresError("42501", f'must be member of role "{new_owner}"')
        privilege.check_create_in_schema(cursor, new_owner, context.database, alteration.relation.namespace_oid)
    definition.set_owner(cursor, alteration.relation, oid)


def row_security(alteration: Alteration, command: Any) -> None:
    """ENABLE, DISABLE, FORCE, NO FORCE ROW LEVEL SECURITY."""
    column, value = {
        pb.AT_EnableRowSecurity: ("relrowsecurity", True),
        pb.AT_DisableRowSecurity: ("relrowsecurity", False),
        pb.AT_ForceRowSecurity: ("relforcerowsecurity", True),
        pb.AT_NoForceRowSecurity: ("relforcerowsecurity", False),
    }[command.subtype]
    definition.set_class(alteration.cursor, alteration.relation, column, value)


def set_logged(alteration: Alteration, command: Any) -> None:
    """SET LOGGED and SET UNLOGGED: which rows a publication may have (ATPrepChangePersistence)."""
    relation, cursor = alteration.relation, alteration.cursor
    wanted = "p" if command.subtype == pb.AT_SetLogged else "u"
    if relation.persistence == "t":
        raise PostgresError("42P16", f'cannot change logged status of table "{relation.name}" because it is temporary')
    if relation.persistence == wanted:
        return
    if wanted == "u" and publications.of_relation(cursor, relation.database, relation.oid):
        raise PostgresError(
            "55000",
            f'cannot change table "{relation.name}" to unlogged because it is part of a publication',
            detail="Unlogged relations cannot be replicated.",
        )
    for key in relation.foreign_keys if wanted == "p" else relation.referenced:
        other = relations.get(cursor, relation.database, key.target if wanted == "p" else key.relation)
        if other.oid != relation.oid and (other.persistence != "p") == (wanted == "p"):
            word = "logged" if wanted == "p" else "unlogged"
            state = "unlogged" if wanted == "p" else "logged"
            raise PostgresError(
                "42P16", f'could not change table "{relation.name}" to {word} because it references {state} table "{other.name}"'
            )
    for oid in (relation.oid, *[each.oid for each in relation.indexes]):
        definition.set_class(cursor, replace(relation, oid=oid), "relpersistence", wanted)


def triggers(alteration: Alteration, command: Any) -> None:
    """ENABLE and DISABLE TRIGGER: there are none but those of foreign keys, which a node always has."""
    if command.name:
        raise PostgresError("42704", f'trigger "{command.name}" for table "{alteration.relation.name}" does not exist')
    if command.subtype == pb.AT_DisableTrigAll and (alteration.relation.foreign_keys or alteration.relation.referenced):
        raise not_supported(
            "disabling the triggers of foreign keys is not supported", hint="SET session_replication_role = replica does it."
        )


def accept(alteration: Alteration, command: Any) -> None:
    """A subcommand about PostgreSQL's storage or planner, which has no counterpart here: only the column is checked."""
    if command.name and command.subtype in (pb.AT_SetStorage, pb.AT_SetCompression, pb.AT_SetStatistics):
        alteration.column(command.name)


TRIGGERS = (
    pb.AT_EnableTrig, pb.AT_EnableAlwaysTrig, pb.AT_EnableReplicaTrig, pb.AT_DisableTrig, pb.AT_EnableTrigAll, pb.AT_DisableTrigAll,
    pb.AT_EnableTrigUser, pb.AT_DisableTrigUser,
)  # fmt: skip
ACTIONS: dict[int, Callable[[Alteration, Any], None]] = {
    pb.AT_ReplicaIdentity: replica_identity,
    pb.AT_AddColumn: add_column,
    pb.AT_DropColumn: drop_column,
    pb.AT_ColumnDefault: set_default,
    pb.AT_SetNotNull: set_not_null,
    pb.AT_DropNotNull: drop_not_null,
    pb.AT_AlterColumnType: alter_type,
    pb.AT_AddConstraint: add_constraint,
    pb.AT_DropConstraint: drop_constraint,
    pb.AT_AlterConstraint: alter_constraint,
    pb.AT_ValidateConstraint: validate_constraint,
    pb.AT_ChangeOwner: change_owner,
    pb.AT_AttachPartition: partition_alter.attach,
    pb.AT_DetachPartition: partition_alter.detach,
    pb.AT_DetachPartitionFinalize: partition_alter.detach,
    pb.AT_AddIdentity: alter_sequence.add_identity,
    pb.AT_SetIdentity: alter_sequence.set_identity,
    pb.AT_DropIdentity: alter_sequence.drop_identity,
    pb.AT_DropExpression: alter_sequence.drop_expression,
    pb.AT_EnableRowSecurity: row_security,
    pb.AT_DisableRowSecurity: row_security,
    pb.AT_ForceRowSecurity: row_security,
    pb.AT_NoForceRowSecurity: row_security,
    pb.AT_SetLogged: set_logged,
    pb.AT_SetUnLogged: set_logged,
    **dict.fromkeys(TRIGGERS, triggers),
    pb.AT_SetStorage: accept,
    pb.AT_SetCompression: accept,
    pb.AT_SetStatistics: accept,
    pb.AT_SetRelOptions: accept,
    pb.AT_ResetRelOptions: accept,
    pb.AT_SetOptions: accept,
    pb.AT_ResetOptions: accept,
    pb.AT_ClusterOn: accept,
    pb.AT_DropCluster: accept,
}


_WORDS = {pb.OBJECT_INDEX: "INDEX", pb.OBJECT_VIEW: "VIEW", pb.OBJECT_SEQUENCE: "SEQUENCE"}
_KINDS = {"INDEX": ("iI", "an index"), "VIEW": ("v", "a view"), "SEQUENCE": ("S", "a sequence")}


def _named(node: Any, word: str, session: Session, transaction: Transaction) -> Relation | None:
    """The relation of ALTER INDEX, VIEW, … if it is of that kind; ALTER TABLE takes all. None, and a NOTICE, for IF EXISTS."""
    cursor, context = transaction.cursor, session.context
    relation = lookup.find(cursor, context, node.relation)
    if relation is None:
        if not node.missing_ok:
            lookup.target(cursor, context, node.relation)
        session.notices.notice(f'relation "{node.relation.relname}" does not exist, skipping')
        return None
    kinds, shown = _KINDS.get(word, ("rpvmfciIS", ""))
    if relation.kind not in kinds:
        raise PostgresError("42809", f'"{relation.name}" is not {shown}')
    privilege.check_owner(cursor, context.user, relation.owner, lookup.KINDS[relation.kind], relation.name)
    return relation


def rename(node: Any, session: Session) -> CommandResult:
    """ALTER TABLE … RENAME [COLUMN | CONSTRAINT], ALTER INDEX, VIEW, SEQUENCE … RENAME."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    word = _WORDS.get(node.relation_type if node.rename_type == pb.OBJECT_COLUMN else node.rename_type, "TABLE")
    tag = CommandResult(f"ALTER {word}")
    relation = _named(node, "TABLE" if word == "INDEX" else word, session, transaction)
    if relation is None:
        return tag
    if node.rename_type == pb.OBJECT_COLUMN:
        column = relation.column(node.subname)
        if column is None:
            raise PostgresError("42703", f'column "{node.subname}" does not exist')
        partition_alter.check_rename(cursor, relation, column, only=not node.relation.inh)
        _rename_column(transaction, relation, node.subname, node.newname)
        partition_alter.renamed(transaction, relation)
    elif node.rename_type == pb.OBJECT_TABCONSTRAINT:
        definition.rename_constraint(cursor, relation, node.subname, node.newname)
    else:
        definition.rename(cursor, relation, node.newname)
    if relation.kind in "rpv" and node.rename_type != pb.OBJECT_TABCONSTRAINT:
        view.renamed(session, transaction, relation, relations.get(cursor, relation.database, relation.oid))
    transaction.catalog_changed()
    return tag


def _rename_column(transaction: Transaction, relation: Relation, name: str, new_name: str) -> None:
    cursor = transaction.cursor
    column = relation.column(name)
    assert column is not None
    for child in partition_index.children(cursor, relation) if relation.kind == "p" else ():
        _rename_column(transaction, child, name, new_name)
    definition.rename_column(cursor, relation, column.attnum, new_name)
    changed = relations.get(cursor, relation.database, relation.oid)
    binding.rename_in_expressions(cursor, oids(transaction), relation, changed)
    membership.renamed(cursor, relation, changed)
    if relation.kind == "r":
        transaction.alter_table(relation, changed)


def set_schema(node: Any, session: Session) -> CommandResult:
    """ALTER TABLE, VIEW, SEQUENCE … SET SCHEMA."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    word = _WORDS.get(node.object_type, "TABLE")
    relation = _named(node, word, session, transaction)
    if relation is None:
        return CommandResult(f"ALTER {word}")
    if any(name == "pg_temp" or name.startswith("pg_temp_") for name in (node.newschema, relation.schema)):
        raise PostgresError("0A000", "cannot move objects into or out of temporary schemas")
    namespace = lookup.namespace(cursor, context.database, node.newschema)
    privilege.check_create_in_schema(cursor, context.user, context.database, namespace)
    if "pg_toast" in (node.newschema, relation.schema):
        raise PostgresError("0A000", "cannot move objects into or out of TOAST schema")
    if namespace == relation.namespace_oid:
        return CommandResult(f"ALTER {word}")
    taken = rows(
        cursor,
        "SELECT 1 FROM hg.pg_class WHERE dbid = ? AND relnamespace = ? AND relname = ?",
        [context.database, namespace, relation.name],
    )
    if taken:
        raise PostgresError("42P07", f'relation "{relation.name}" already exists in schema "{node.newschema}"')
    definition.set_schema(cursor, relation, namespace)
    view.renamed(session, transaction, relation, relations.get(cursor, relation.database, relation.oid))
    transaction.catalog_changed()
    return CommandResult(f"ALTER {word}")
