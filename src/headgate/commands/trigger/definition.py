"""CREATE, ALTER and DROP TRIGGER, and ALTER TABLE … ENABLE and DISABLE TRIGGER (manual, 39; PostgreSQL's trigger.c)."""

from __future__ import annotations

from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import history
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.relation.trigger import Trigger
from headgate.commands import dependency, lookup, privilege, stored_expression
from headgate.commands.function import row_call
from headgate.commands.function.permission import may_execute
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing, not_supported
from headgate.expression.binding import binder, user_function
from headgate.expression.deparsing import deparse
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.types import registry


def create(node: pb.CreateTrigStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = lookup.target(cursor, context, node.relation)
    _check_kind(relation, node)
    privilege.refuse_system(relation)
    privilege.check_table(cursor, context.user, relation.database, relation.oid, relation.name, "TRIGGER")
    transaction.own(relation)
    kind = (triggers.ROW if node.row else 0) | int(node.timing) | int(node.events)
    _check_shape(node, kind)
    transition_tables = _transition_tables(node, relation, cursor)
    function = _function(node, session, cursor)
    existing = next(
        (trigger for trigger in triggers.of_relation(cursor, relation.database, relation.oid) if trigger.name == node.trigname), None
    )
    if existing is not None and existing.parent and node.replace:
        raise PostgresError("42710", f'trigger "{node.trigname}" for relation "{relation.name}" is an internal or a child trigger')
    if existing is not None and not node.replace:
        raise PostgresError("42710", f'trigger "{node.trigname}" for relation "{relation.name}" already exists')
    if existing is not None and (existing.is_constraint or node.isconstraint):
        raise PostgresError("42710", f'trigger "{node.trigname}" for relation "{relation.name}" is a constraint trigger')
    new_trigger = Trigger(
        transaction.catalog.next_oid() if existing is None else existing.oid, relation.oid, node.trigname, function, kind,
        "O" if existing is None else existing.enabled, _columns(node, relation), tuple(unwrap(argument).sval for argument in node.args),
        *_condition(node, relation, session), node.isconstraint, 0, node.deferrable, node.initdeferred, *transition_tables,
        _referenced(node, session, cursor),
    )  # fmt: skip
    if existing is not None:
        triggers.drop_clones(cursor, relation.database, existing.oid)
    triggers.write(cursor, relation.database, new_trigger)
    triggers.clone_below(cursor, transaction.catalog.next_oid, new_trigger, relation, replaces=node.replace)
    transaction.catalog_changed(history.touched(relation))
    return CommandResult("CREATE TRIGGER")


def _check_kind(relation: Relation, node: pb.CreateTrigStmt) -> None:
    """Raise 42809 for relations that cannot have this trigger."""
    if relation.kind == RelationKind.VIEW:
        _check_of_view(relation, node)
        return
    if relation.kind not in (RelationKind.TABLE, RelationKind.PARTITIONED_TABLE):
        detail = f"This operation is not supported for {lookup.PLURALS[relation.kind]}."
        raise PostgresError("42809", f'relation "{relation.name}" cannot have triggers', detail=detail)
    if node.timing & triggers.INSTEAD:
        raise PostgresError("42809", f'"{relation.name}" is a table', detail="Tables cannot have INSTEAD OF triggers.")


def _check_of_view(relation: Relation, node: pb.CreateTrigStmt) -> None:
    """Check a trigger of a view, which can have INSTEAD OF row triggers and statement triggers."""
    if node.row and not node.timing & triggers.INSTEAD:
        detail = "Views cannot have row-level BEFORE or AFTER triggers."
        raise PostgresError("42809", f'"{relation.name}" is a view', detail=detail)
    if not node.row and node.timing & triggers.INSTEAD:
        raise PostgresError("0A000", "INSTEAD OF triggers must be FOR EACH ROW")
    if node.events & triggers.TRUNCATE:
        raise PostgresError("42809", f'"{relation.name}" is a view', detail="Views cannot have TRUNCATE triggers.")
    if node.timing & triggers.INSTEAD and node.HasField("when_clause"):
        raise PostgresError("0A000", "INSTEAD OF triggers cannot have WHEN conditions")
    if node.timing & triggers.INSTEAD and node.columns:
        raise PostgresError("0A000", "INSTEAD OF triggers cannot have column lists")


def _check_shape(node: pb.CreateTrigStmt, kind: int) -> None:
    if kind & triggers.TRUNCATE and node.row:
        raise not_supported("TRUNCATE FOR EACH ROW triggers are not supported")


def _transition_tables(node: pb.CreateTrigStmt, relation: Relation, cursor: Cursor) -> tuple[str | None, str | None]:
    """Return the names of the transition tables of old and of new rows (CreateTriggerFiringOn)."""
    names_by_side: dict[bool, str] = {}
    for item in node.transition_rels:
        transition = unwrap(item)
        _check_transition_table(node, relation, transition, cursor)
        side, events = ("NEW", triggers.INSERT) if transition.is_new else ("OLD", triggers.DELETE)
        if not node.events & (events | triggers.UPDATE):
            allowed = "an INSERT or UPDATE" if transition.is_new else "a DELETE or UPDATE"
            raise PostgresError("42P17", f"{side} TABLE can only be specified for {allowed} trigger")
        if transition.is_new in names_by_side:
            raise PostgresError("42P17", f"{side} TABLE cannot be specified multiple times")
        names_by_side[transition.is_new] = transition.name
    if len(names_by_side) > len(set(names_by_side.values())):
        raise PostgresError("42P17", "OLD TABLE name and NEW TABLE name cannot be the same")
    return names_by_side.get(False), names_by_side.get(True)


def _check_transition_table(node: pb.CreateTrigStmt, relation: Relation, transition: pb.TriggerTransition, cursor: Cursor) -> None:
    """Raise an error if a trigger of this kind cannot have the transition table."""
    if not transition.is_table:
        hint = "Use OLD TABLE or NEW TABLE for naming transition tables."
        raise PostgresError("0A000", "ROW variable naming in the REFERENCING clause is not supported", hint=hint)
    if relation.kind == RelationKind.VIEW:
        detail = "Triggers on views cannot have transition tables."
        raise PostgresError("42809", f'"{relation.name}" is a view', detail=detail)
    if node.row and relation.is_partitioned:
        detail = "ROW triggers with transition tables are not supported on partitioned tables."
        raise PostgresError("0A000", f'"{relation.name}" is a partitioned table', detail=detail)
    if node.row and (relation.parent or inheritance.parents(cursor, relation)):
        raise not_supported(
            f"ROW triggers with transition tables are not supported on {'partitions' if relation.parent else 'inheritance children'}"
        )
    if node.timing:
        raise PostgresError("42P17", "transition table name can only be specified for an AFTER trigger")
    if node.events & triggers.TRUNCATE:
        raise PostgresError("42P17", "TRUNCATE triggers with transition tables are not supported")
    if node.events & (node.events - 1):
        raise PostgresError("0A000", "transition tables cannot be specified for triggers with more than one event")
    if node.columns:
        raise PostgresError("0A000", "transition tables cannot be specified for triggers with column lists")


def _function(node: pb.CreateTrigStmt, session: Session, cursor: Cursor) -> int:
    context = session.context
    schema, name = names.split_name(node.funcname, context.database_name)
    if schema in (None, "pg_catalog") and name == functions.SUPPRESS_REDUNDANT.name:
        return functions.SUPPRESS_REDUNDANT.oid
    candidates = [function for function in lookup.functions_named(cursor, context, node.funcname) if not function.inputs]
    if not candidates:
        raise PostgresError("42883", f"function {name}() does not exist")
    function = candidates[0]
    if function.result != registry.TRIGGER:
        raise PostgresError("42P17", f"function {name} must return type trigger")
    if not may_execute(cursor, context.user, context.database, function.oid):
        raise PostgresError("42501", f"permission denied for function {name}")
    return function.oid


def _referenced(node: pb.CreateTrigStmt, session: Session, cursor: Cursor) -> int:
    """Return the table of FROM. Raise 42501 without the right TRIGGER on it."""
    if not node.HasField("constrrel"):
        return 0
    referenced = lookup.target(cursor, session.context, node.constrrel)
    privilege.check_table(cursor, session.context.user, referenced.database, referenced.oid, referenced.name, "TRIGGER")
    return referenced.oid


def _columns(node: pb.CreateTrigStmt, relation: Relation) -> tuple[int, ...]:
    attnums: list[int] = []
    for item in node.columns:
        name = unwrap(item).sval
        column = existing(relation.column(name), "42703", f'column "{name}" of relation "{relation.name}"')
        if column.attnum in attnums:
            raise PostgresError("42701", f'column "{name}" specified more than once')
        attnums.append(column.attnum)
    return tuple(attnums)


def _condition(node: pb.CreateTrigStmt, relation: Relation, session: Session) -> tuple[str | None, str | None]:
    """Return the WHEN condition as text and as it is displayed. Raise an error for invalid references (CreateTriggerFiringOn)."""
    if not node.HasField("when_clause"):
        return None, None
    for reference in _references(node.when_clause):
        parts = [unwrap(part) for part in reference.fields]
        side = parts[0].sval if parts[0].DESCRIPTOR.name == "String" else ""
        location = reference.location
        if side not in ("old", "new"):
            raise PostgresError(
                "42P01",
                f'missing FROM-clause entry for table "{side}"' if len(parts) > 1 else f'column "{side}" does not exist',
                location=location,
            )
        if not node.row:
            raise PostgresError("42P17", "statement trigger's WHEN condition cannot reference column values", location=location)
        if side == "old" and node.events & triggers.INSERT:
            raise PostgresError("42P17", "INSERT trigger's WHEN condition cannot reference OLD values", location=location)
        if side == "new" and node.events & triggers.DELETE:
            raise PostgresError("42P17", "DELETE trigger's WHEN condition cannot reference NEW values", location=location)
        name = parts[1].sval if len(parts) > 1 and parts[1].DESCRIPTOR.name == "String" else None
        if name is not None and relation.column(name) is None:
            raise PostgresError("42703", f"column {side}.{name} does not exist", location=location)
        if side == "new" and node.timing & triggers.BEFORE:
            _refuse_generated(relation, name, location)
    scope = stored_expression.scope_of_sides(relation)
    with user_function.resolving(row_call.Resolver(session, computes=False)):  # a host evaluates the text
        bound = binder.bind_condition(node.when_clause, scope, "WHEN", context=stored_expression.context(session.context.forms))
    return deparse.stored(bound), deparse.stored(bound, pretty=True)


def _refuse_generated(relation: Relation, name: str | None, location: int) -> None:
    """Raise 42P17 for a column of NEW that is generated after BEFORE triggers. `name`: None for the whole row."""
    generated = [column.name for column in relation.columns if column.generated is not None]
    if not generated or name not in (None, *generated):
        return
    raise PostgresError(
        "42P17", "BEFORE trigger's WHEN condition cannot reference NEW generated columns", location=location,
        detail="A whole-row reference is used and the table contains generated columns."
        if name is None else f'Column "{name}" is a generated column.',
    )  # fmt: skip


def _references(node: ParseNode) -> list[ParseNode]:
    if any(descendant.DESCRIPTOR.name == "SubLink" for descendant in walk(node)):
        raise PostgresError("0A000", "cannot use subquery in trigger WHEN condition")
    return [descendant for descendant in walk(node) if descendant.DESCRIPTOR.name == "ColumnRef"]


# ---- other statements ---------------------------------------------------------------------------------------


def _owned(cursor: Cursor, session: Session, node: pb.RangeVar) -> Relation:
    relation = lookup.target(cursor, session.context, node)
    privilege.check_owner(cursor, session.context.user, relation.owner, "table", relation.name)
    privilege.refuse_system(relation)
    session.begin_statement().own(relation)
    return relation


def _get(cursor: Cursor, relation: Relation, name: str) -> Trigger:
    trigger = next(
        (candidate for candidate in triggers.of_relation(cursor, relation.database, relation.oid) if candidate.name == name), None
    )
    if trigger is None:
        raise _missing(relation, name)
    return trigger


def _missing(relation: Relation, name: str) -> PostgresError:
    return PostgresError("42704", f'trigger "{name}" for table "{relation.name}" does not exist')


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor

    def names_of(relation: Relation) -> list[str]:
        return [name for _, name, _ in triggers.states(cursor, relation.database, relation.oid)]

    for target, name in lookup.on_tables(node, session, "trigger", names_of):
        relation = _owned(cursor, session, target)
        for key in (*relation.foreign_keys, *relation.referenced):
            if name in triggers.names_of_constraint(cursor, relation, key.oid):
                owner = relations.get(cursor, relation.database, key.relation)
                raise _required(cursor, session, relation, name, f"constraint {key.name}", owner)
        trigger = _get(cursor, relation, name)
        if trigger.parent:
            parent = relations.get(cursor, relation.database, relation.parent)
            raise _required(cursor, session, relation, name, f"trigger {name}", parent)
        triggers.drop(cursor, relation.database, trigger.oid)
    transaction.catalog_changed()
    return CommandResult("DROP TRIGGER")


def _required(cursor: Cursor, session: Session, relation: Relation, name: str, owner: str, table: Relation) -> PostgresError:
    """Return the error of DROP for a trigger that belongs to another object, `owner` on `table`."""
    context = session.context
    shown = f"{owner} on table {dependency.shown_name(cursor, context, table)}"
    subject = f"trigger {name} on table {dependency.shown_name(cursor, context, relation)}"
    return PostgresError("2BP01", f"cannot drop {subject} because {shown} requires it", hint=f"You can drop {shown} instead.")


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor
    relation = _owned(cursor, session, node.relation)
    trigger = _get(cursor, relation, node.subname)
    if trigger.parent:
        parent = relations.get(cursor, relation.database, relation.parent)
        hint = f'Rename the trigger on the partitioned table "{parent.name}" instead.'
        raise PostgresError("XX000", f'cannot rename trigger "{trigger.name}" on table "{relation.name}"', hint=hint)
    _rename(cursor, relation, trigger, node.newname)
    transaction.catalog_changed()
    return CommandResult("ALTER TRIGGER")


def _rename(cursor: Cursor, relation: Relation, original: Trigger, name: str) -> None:
    """Rename a trigger and its clones. Raise 42710 if one of the tables already has a trigger of the new name."""
    if any(trigger.name == name for trigger in triggers.of_relation(cursor, relation.database, relation.oid)):
        raise PostgresError("42710", f'trigger "{name}" for relation "{relation.name}" already exists')
    triggers.write(cursor, relation.database, replace(original, name=name))
    for partition, clone in _clones(cursor, relation, original):
        _rename(cursor, partition, clone, name)


def _clones(cursor: Cursor, relation: Relation, trigger: Trigger) -> list[tuple[Relation, Trigger]]:
    """Return the partitions directly below with their clones of a trigger."""
    clones_below = []
    for oid, table in triggers.clones(cursor, relation.database, trigger.oid):
        clone = next(trigger for trigger in triggers.of_relation(cursor, relation.database, table) if trigger.oid == oid)
        clones_below.append((relations.get(cursor, relation.database, table), clone))
    return clones_below


_ENABLED = {
    pb.AT_EnableTrig: "O", pb.AT_EnableTrigAll: "O", pb.AT_EnableTrigUser: "O", pb.AT_EnableAlwaysTrig: "A", pb.AT_EnableReplicaTrig: "R",
    pb.AT_DisableTrig: "D", pb.AT_DisableTrigAll: "D", pb.AT_DisableTrigUser: "D",
}  # fmt: skip
"""The value of tgenabled for each form of ALTER TABLE … TRIGGER."""


def enable(session: Session, cursor: Cursor, relation: Relation, command: pb.AlterTableCmd, *, only: bool = False) -> None:
    """Enable or disable triggers (ALTER TABLE): that of the command, or all. `only`: do not change the clones on partitions.

    Raise 42501 for a trigger of a foreign key unless the user is a superuser (EnableDisableTrigger).
    """
    of_table = triggers.states(cursor, relation.database, relation.oid)
    chosen = [trigger for trigger in of_table if command.name in ("", trigger[1])]
    if command.name and not chosen:
        raise _missing(relation, command.name)
    for oid, name, is_internal in chosen:
        if is_internal and command.subtype in (pb.AT_EnableTrigUser, pb.AT_DisableTrigUser):
            continue
        if is_internal and not privilege.is_superuser(cursor, session.context.user):
            raise PostgresError("42501", f'permission denied: "{name}" is a system trigger')
        triggers.set_enabled(cursor, relation.database, oid, _ENABLED[command.subtype], only=only)
