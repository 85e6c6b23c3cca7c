"""The parts of the node and the functions of the commands that the subscriber uses (`subscriber.host`). Called by the node."""

from __future__ import annotations

import functools
from functools import partial
from typing import TYPE_CHECKING

from headgate.subscriber.host import Commands, Host
from headgate.subscriber.rows.leaf_constraints import UniqueChecks

if TYPE_CHECKING:
    from headgate.server.node import Node


def of_node(node: Node) -> Host:
    return Host(
        catalog=node.catalog,
        engine=node.engine,
        settings=node.settings,
        data_dir=node.data_dir,
        system_identifier=node.system_identifier,
        enter=node.activity.enter,
        leave=node.activity.leave,
        commands=functools.cache(lambda: _commands(node)),
    )


def _commands(node: Node) -> Commands:
    # imported here so that a start does not wait for the planner
    from headgate.commands.constraint import uniqueness
    from headgate.commands.subscription import applied_ddl, applied_triggers, history_tables, row_completion, schema_evolution
    from headgate.commands.subscription import target_privilege as privilege
    from headgate.verify.difference import Difference

    parts = node.parts
    return Commands(
        rows=lambda subscription: partial(row_completion.applied_rows, parts, subscription),
        triggers=lambda subscription: partial(applied_triggers.applied_triggers, parts, subscription),
        difference=lambda subscription: partial(Difference, parts, subscription),
        evolution=lambda subscription, patience, jobs: partial(schema_evolution.evolve, parts, subscription, patience, jobs),
        unique=UniqueChecks(uniqueness.check_rows, uniqueness.check_applied),
        check_rights=privilege.check,
        check_login=privilege.check_login,
        histories=partial(history_tables.prepare, parts),
        tables=partial(applied_ddl.join, parts),
    )
