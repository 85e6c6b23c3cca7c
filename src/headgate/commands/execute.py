"""Dispatch a statement to the function that runs it.

The server calls `execute` with every statement that is not handled by the session itself (BEGIN, SET, PREPARE, …). A statement without a
function raises 0A000 with the command's name: headgate never silently ignores a statement.
"""

from __future__ import annotations

from collections.abc import Callable

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup, stale_plan
from headgate.commands.constraint import set_constraints
from headgate.commands.copy import copy
from headgate.commands.database import comment, database, maintenance, restore, schema
from headgate.commands.describe import describe, returned_columns
from headgate.commands.dml import column_reads, delete, insert, merge, update
from headgate.commands.function import call, definition, user_call
from headgate.commands.publication import publication
from headgate.commands.query import engine, explain
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.result import CommandResult, Result
from headgate.commands.role import grant, ownership, role, stored_setting
from headgate.commands.sequence import alter_sequence, sequence
from headgate.commands.session import Session
from headgate.commands.subscription import subscription
from headgate.commands.table import alter_table, create_table_as, drop_table, index, policy, rename, table
from headgate.commands.transaction import read_only
from headgate.commands.trigger import definition as trigger
from headgate.commands.type import composite_type, domain, user_type
from headgate.commands.view import view
from headgate.errors import PostgresError, not_supported
from headgate.sql import command_tag
from headgate.sql.parser import ParseNode
from headgate.types.resultset import ResultSet

Action = Callable[[ParseNode, Session], Result]


def execute(node: ParseNode, session: Session) -> Result:
    """Run one statement (the message inside RawStmt)."""

    def run() -> Result:
        if restore.is_wanted(node, session):
            return restore.run(node, session, lambda: run_one(node, session))
        return run_one(node, session)

    return stale_plan.replaced(session, run)


def run_one(node: ParseNode, session: Session) -> Result:
    """Run one statement once, without retrying after concurrent commits."""
    kind = node.DESCRIPTOR.name
    node = user_call.settled(node, session)
    read_only.check(
        node, session, lambda statement: describe(statement, session, tuple(parameter.type_oid for parameter in session.parameters))
    )
    if kind in (*_MODIFYING, "MergeStmt") and (written := _fires_before(node, session)) is not None:
        # PostgreSQL analyses a statement and checks the rights to write and read columns before it fires triggers
        describe(node, session, tuple(parameter.type_oid for parameter in session.parameters))
        if kind in _PERMITTED:
            _PERMITTED[kind](node, session)
        column_reads.permit(node, session, written)
    by_object = BY_OBJECT.get(kind)
    if by_object is not None:
        field, actions = by_object
        action = actions.get(getattr(node, field))
        if action is None:
            raise _refusal(node)
        return action(node, session)
    action = ACTIONS.get(kind)
    if action is None:
        raise _refusal(node)
    try:
        return action(node, session)
    except RecursionError as error:
        raise PostgresError("54001", "stack depth limit exceeded") from error


def _fires_before(node: ParseNode, session: Session) -> Relation | None:
    """Return the table of a statement that fires BEFORE STATEMENT triggers of it, otherwise None."""
    cursor = session.begin_statement().cursor
    if not triggers.any_before_statement(cursor, session.context.database):
        return None
    relation = lookup.find(cursor, session.context, node.relation)
    if relation is None or not relation.has_triggers:
        return None
    fired = triggers.of_relation(cursor, relation.database, relation.oid)
    return relation if any(trigger.is_before and not trigger.is_row for trigger in fired) else None


def _refusal(node: ParseNode) -> PostgresError:
    """Return 0A000 for an unsupported statement, with a DETAIL if there is a known reason."""
    tag = command_tag.of(node)
    detail = 'A node keeps all its tables in one place, which the setting "data_location" names.' if tag.endswith("TABLESPACE") else None
    return not_supported(f"{tag} is not supported", detail=detail)


def modify(node: ParseNode, planner: object) -> ResultSet | None:
    """Run an INSERT, UPDATE or DELETE of a WITH clause once, or only describe it. Return the rows of its RETURNING, or None."""
    assert isinstance(planner, QueryPlanner)
    action = _MODIFYING.get(node.DESCRIPTOR.name)
    if action is None:
        raise not_supported("this statement in WITH is not supported")
    if planner.describing:
        columns = returned_columns(node, planner)
        return None if columns is None else ResultSet(columns, [], None)
    result = action(node, planner.session, planner)
    return result if isinstance(result, ResultSet) else None


def _notify(node: ParseNode, session: Session) -> CommandResult:
    session.begin_command()
    session.pending.notify(node.conditionname, node.payload)
    return CommandResult("NOTIFY")


_MODIFYING: dict[str, Callable[[ParseNode, Session, QueryPlanner], Result]] = {
    "InsertStmt": insert.insert,
    "UpdateStmt": update.update,
    "DeleteStmt": delete.delete,
}
_PERMITTED: dict[str, Callable[[ParseNode, Session], None]] = {
    "InsertStmt": insert.permit,
    "UpdateStmt": update.permit,
    "MergeStmt": merge.permit,
}
ACTIONS: dict[str, Action] = {
    "SelectStmt": lambda node, session: (create_table_as.select_into if node.HasField("into_clause") else engine.run)(node, session),
    "InsertStmt": insert.insert,
    "UpdateStmt": update.update,
    "DeleteStmt": delete.delete,
    "MergeStmt": merge.merge,
    "CopyStmt": copy.copy,
    "CreateStmt": table.create,
    "CreateTableAsStmt": create_table_as.create,
    "TruncateStmt": table.truncate,
    "IndexStmt": index.create,
    "ViewStmt": view.create,
    "CreateSeqStmt": sequence.create_sequence,
    "AlterSeqStmt": alter_sequence.alter,
    "CreateSchemaStmt": schema.create,
    "CreateEnumStmt": user_type.create_enum,
    "CompositeTypeStmt": composite_type.create,
    "AlterEnumStmt": user_type.alter_enum,
    "CreateDomainStmt": domain.create,
    "AlterDomainStmt": domain.alter,
    "CreatedbStmt": database.create,
    "DropdbStmt": database.drop,
    "CreatePublicationStmt": publication.create,
    "AlterPublicationStmt": publication.alter,
    "CreateSubscriptionStmt": subscription.create,
    "AlterSubscriptionStmt": subscription.alter,
    "DropSubscriptionStmt": subscription.drop,
    "CreateRoleStmt": role.create,
    "AlterRoleStmt": role.alter,
    "AlterRoleSetStmt": stored_setting.alter_role,
    "AlterDatabaseSetStmt": stored_setting.alter_database,
    "DropRoleStmt": role.drop,
    "GrantRoleStmt": role.grant_role,
    "GrantStmt": grant.grant,
    "AlterDefaultPrivilegesStmt": grant.alter_default,
    "CreatePolicyStmt": policy.create,
    "AlterPolicyStmt": policy.alter,
    "ConstraintsSetStmt": set_constraints.set_constraints,
    "DropOwnedStmt": ownership.drop_owned,
    "ReassignOwnedStmt": ownership.reassign_owned,
    "CreateFunctionStmt": definition.create,
    "AlterFunctionStmt": definition.alter,
    "CreateTrigStmt": trigger.create,
    "CallStmt": call.call,
    "DoStmt": call.do,
    "NotifyStmt": _notify,
    "CommentStmt": comment.comment,
    "VacuumStmt": maintenance.vacuum,
    "ReindexStmt": maintenance.reindex,
    "ExplainStmt": explain.explain,
}

BY_OBJECT: dict[str, tuple[str, dict[int, Action]]] = {
    "DropStmt": (
        "remove_type",
        {
            pb.OBJECT_TABLE: drop_table.drop,
            pb.OBJECT_INDEX: index.drop,
            pb.OBJECT_POLICY: policy.drop,
            pb.OBJECT_TRIGGER: trigger.drop,
            pb.OBJECT_VIEW: view.drop,
            pb.OBJECT_SCHEMA: schema.drop,
            pb.OBJECT_PUBLICATION: publication.drop,
            pb.OBJECT_SEQUENCE: sequence.drop_sequence,
            pb.OBJECT_TYPE: user_type.drop,
            pb.OBJECT_DOMAIN: user_type.drop,
            **dict.fromkeys(definition.ROUTINES, definition.drop),
        },
    ),
    "RenameStmt": (
        "rename_type",
        {
            pb.OBJECT_TABLE: rename.rename,
            pb.OBJECT_VIEW: rename.rename,
            pb.OBJECT_INDEX: rename.rename,
            pb.OBJECT_SEQUENCE: rename.rename,
            pb.OBJECT_COLUMN: rename.rename,
            pb.OBJECT_TABCONSTRAINT: rename.rename,
            pb.OBJECT_POLICY: policy.rename,
            pb.OBJECT_TRIGGER: trigger.rename,
            pb.OBJECT_SCHEMA: schema.rename,
            pb.OBJECT_TYPE: user_type.rename,
            pb.OBJECT_DOMAIN: user_type.rename,
            pb.OBJECT_DOMCONSTRAINT: domain.rename_check,
            pb.OBJECT_ATTRIBUTE: composite_type.rename_attribute,
            pb.OBJECT_DATABASE: database.rename,
            pb.OBJECT_ROLE: role.rename,
            pb.OBJECT_PUBLICATION: publication.rename,
            pb.OBJECT_SUBSCRIPTION: subscription.rename,
            **dict.fromkeys(definition.ROUTINES, definition.rename),
        },
    ),
    "AlterOwnerStmt": (
        "object_type",
        {
            pb.OBJECT_SCHEMA: schema.change_owner,
            pb.OBJECT_TYPE: user_type.change_owner,
            pb.OBJECT_DOMAIN: user_type.change_owner,
            pb.OBJECT_DATABASE: database.change_owner,
            pb.OBJECT_PUBLICATION: publication.change_owner,
            pb.OBJECT_SUBSCRIPTION: subscription.change_owner,
            **dict.fromkeys(definition.ROUTINES, definition.change_owner),
        },
    ),
    "AlterObjectSchemaStmt": (
        "object_type",
        {
            pb.OBJECT_TABLE: rename.set_schema,
            pb.OBJECT_VIEW: rename.set_schema,
            pb.OBJECT_SEQUENCE: rename.set_schema,
            pb.OBJECT_TYPE: user_type.set_schema,
            pb.OBJECT_DOMAIN: user_type.set_schema,
            **dict.fromkeys(definition.ROUTINES, definition.set_schema),
        },
    ),
    "AlterTableStmt": (
        "objtype",
        {
            pb.OBJECT_TABLE: alter_table.alter,
            pb.OBJECT_SEQUENCE: alter_table.alter,
            pb.OBJECT_INDEX: alter_table.alter,
            pb.OBJECT_VIEW: alter_table.alter,
            pb.OBJECT_TYPE: composite_type.alter,
        },
    ),
}
