"""Row security: decide which policies a statement must meet, and apply them to its rows (manual, 5.8 and CREATE POLICY; rowsecurity.c).

Each statement calls `of_statement` once for every relation that it names, and gets a `RowSecurity`. The policies are always those of the
named relation: the policies of a leaf do not apply to rows that are read or written through its root. Both paths of a statement, in the
driver and in Spark, use this one object: `visible` filters the stored rows, `violations` are conditions that new rows must not meet, and
`refuse` raises for stored rows that ON CONFLICT or MERGE must not change.

Superusers, roles with BYPASSRLS and the table's owner (without FORCE ROW LEVEL SECURITY) are exempt. With `row_security = off` a statement
that policies would affect is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.analysis.query import PlanColumn
from headgate.catalog.relation.relation import Relation
from headgate.catalog.security import acl, policy
from headgate.catalog.security.policy import ALL, DELETE, INSERT, SELECT, UPDATE, Policy
from headgate.commands import privilege, stored_expression
from headgate.commands.query import row_by_row
from headgate.commands.query.plan import Source
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope
from headgate.expression.node import BoolKind, Expression, joined
from headgate.expression.spark import compiler
from headgate.expression.spark.value import PythonInside, without_python
from headgate.sql.parser import parse_expression
from headgate.storage.spark import failure
from headgate.types import registry


class Statement(Enum):
    """The statements that policies distinguish."""

    SELECT = "SELECT"
    LOCK = "SELECT FOR UPDATE or FOR SHARE"
    INSERT = "INSERT"
    UPSERT = "INSERT ON CONFLICT DO UPDATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    MERGE = "MERGE"


class Rows(Enum):
    """The rows that policies apply to; all but STORED are PostgreSQL's WCOKind."""

    STORED = "stored rows that the statement finds; the others are hidden without an error"
    INSERTED = "new rows of INSERT, with or without a conflict"
    UPDATED = "new versions of stored rows"
    CONFLICT = "stored rows that ON CONFLICT DO UPDATE updates"
    MERGE_UPDATE = "stored rows that MERGE updates"
    MERGE_DELETE = "stored rows that MERGE deletes"


class Clause(Enum):
    """The expression of a policy that rows must meet."""

    USING = "USING"
    CHECK = "WITH CHECK, or USING if the policy has no WITH CHECK"


@dataclass(frozen=True)
class Rule:
    """Rows of a statement must meet the policies for `command` (and those for ALL). `reading`: only if the statement reads the table."""

    statement: Statement
    rows: Rows
    command: str
    clause: Clause
    reading: bool = False


RULES = (
    Rule(Statement.SELECT, Rows.STORED, SELECT, Clause.USING),
    Rule(Statement.LOCK, Rows.STORED, UPDATE, Clause.USING),
    Rule(Statement.LOCK, Rows.STORED, SELECT, Clause.USING),
    Rule(Statement.INSERT, Rows.INSERTED, INSERT, Clause.CHECK),
    Rule(Statement.INSERT, Rows.INSERTED, SELECT, Clause.USING, reading=True),
    Rule(Statement.UPSERT, Rows.INSERTED, INSERT, Clause.CHECK),
    Rule(Statement.UPSERT, Rows.INSERTED, SELECT, Clause.USING, reading=True),
    Rule(Statement.UPSERT, Rows.CONFLICT, UPDATE, Clause.USING),
    Rule(Statement.UPSERT, Rows.CONFLICT, SELECT, Clause.USING, reading=True),
    Rule(Statement.UPSERT, Rows.UPDATED, UPDATE, Clause.CHECK),
    Rule(Statement.UPSERT, Rows.UPDATED, SELECT, Clause.USING, reading=True),
    Rule(Statement.UPDATE, Rows.STORED, UPDATE, Clause.USING),
    Rule(Statement.UPDATE, Rows.STORED, SELECT, Clause.USING, reading=True),
    Rule(Statement.UPDATE, Rows.UPDATED, UPDATE, Clause.CHECK),
    Rule(Statement.UPDATE, Rows.UPDATED, SELECT, Clause.USING, reading=True),
    Rule(Statement.DELETE, Rows.STORED, DELETE, Clause.USING),
    Rule(Statement.DELETE, Rows.STORED, SELECT, Clause.USING, reading=True),
    Rule(Statement.MERGE, Rows.STORED, SELECT, Clause.USING, reading=True),
    Rule(Statement.MERGE, Rows.MERGE_UPDATE, UPDATE, Clause.USING),
    Rule(Statement.MERGE, Rows.UPDATED, UPDATE, Clause.CHECK),
    Rule(Statement.MERGE, Rows.UPDATED, SELECT, Clause.USING, reading=True),
    Rule(Statement.MERGE, Rows.MERGE_DELETE, DELETE, Clause.USING),
    Rule(Statement.MERGE, Rows.INSERTED, INSERT, Clause.CHECK),
)
"""The table "Policies Applied by Command Type" of the manual, in the order in which PostgreSQL evaluates the policies.

A statement reads the table if it names a column of it: in WHERE, RETURNING, a SET expression, a join condition, or as the target of
ON CONFLICT. PostgreSQL asks for the right to SELECT in the same cases.
"""


@dataclass(frozen=True)
class Requirement:
    """A condition: one of the expressions `texts` is true. `policy`: the name of a restrictive policy, None for the permissive ones."""

    policy: str | None
    texts: tuple[str, ...]


Violation = tuple[Column | Expression, Column]
"""A Column that is true for rows to reject, or an expression that rows must meet, and the message (`row_constraint.checked`)."""


class RowSecurity:
    """The policies that the rows of one statement must meet in one relation."""

    def __init__(self, planner: Planner, relation: Relation, requirements: dict[Rows, list[Requirement]]) -> None:
        self._planner = planner
        self._relation = relation
        self._requirements = requirements

    def visible(self, source: Source) -> Source:
        """Return the table's rows without those that the policies hide."""
        frame = source.frame
        for requirement in self._requirements.get(Rows.STORED, ()):
            condition = self._bind(requirement, source.scope(None))
            with self._readable(source.star):
                if row_by_row.calls_session(condition):
                    frame = row_by_row.passing(self._planner.evaluation, frame, [condition])
                else:
                    frame = frame.where(self._met_first(condition))
        return replace(source, frame=frame)

    def violations(self, rows: Rows) -> list[Violation]:
        """Return the conditions of new rows to reject, for frames with the relation's columns by name, and their errors (42501)."""
        relation = self._relation
        scope = stored_expression.scope_of(relation.columns, relation.name, relation.schema, relation.oid)
        return [
            (self._bind(requirement, scope), F.lit(failure.marked("42501", self._message(rows, requirement))))
            for requirement in self._requirements.get(rows, ())
        ]

    def refuse(self, rows: Rows, source: Source) -> None:
        """Raise 42501 if a stored row of `source` violates a policy."""
        requirements = self._requirements.get(rows)
        if not requirements:
            return
        evaluation = self._planner.evaluation
        with self._readable(source.star):
            bound = [self._bind(requirement, source.scope(None)) for requirement in requirements]
            frame, conditions = row_by_row.settled(evaluation, source.frame, bound)
            cases = [F.when(~evaluation.condition(condition), F.lit(place)) for place, condition in enumerate(conditions)]
        violation = frame.select(F.coalesce(*cases).alias("broken")).where("broken IS NOT NULL").limit(1).toArrow()
        if violation.num_rows:
            raise PostgresError("42501", self._message(rows, requirements[violation["broken"][0].as_py()]))

    def _message(self, rows: Rows, requirement: Requirement) -> str:
        row = "target row" if rows in (Rows.MERGE_UPDATE, Rows.MERGE_DELETE) else "new row"
        shown = "" if requirement.policy is None else f' "{requirement.policy}"'
        clause = "" if rows in (Rows.INSERTED, Rows.UPDATED) else " (USING expression)"
        return f'{row} violates row-level security policy{shown}{clause} for table "{self._relation.name}"'

    def _bind(self, requirement: Requirement, scope: Scope) -> Expression:
        context = self._planner.context.within(types=registry.known().anywhere(), stored=True)
        return _any_of([binder.bind_condition(parse_expression(text), scope, "POLICY", context=context) for text in requirement.texts])

    @contextmanager
    def _readable(self, columns: Sequence[PlanColumn]) -> Iterator[None]:
        """Let expressions in the block read the table's columns, whatever rights the role has on them."""
        evaluation, restricted = self._planner.evaluation, self._planner.evaluation.restricted
        own = {column.key for column in columns}
        evaluation.restricted = {key: error for key, error in restricted.items() if key not in own}
        try:
            yield
        finally:
            evaluation.restricted = restricted

    def _met_first(self, condition: Expression) -> Column:
        """Return the Column of a condition that is evaluated before those of the query, whose errors would otherwise tell of hidden rows.

        Spark evaluates conditions without Python in their order, and skips files by them. Other conditions get a barrier.
        """
        evaluation = self._planner.evaluation
        try:
            with without_python():
                return evaluation.condition(condition)
        except PythonInside:
            return compiler.barrier(evaluation.condition(condition))


def applies(planner: Planner, relation: Relation) -> bool:
    """Return whether row security applies to a relation for the role whose rights count; 42501 if `row_security` is off then."""
    if not privilege.under_row_security(planner.transaction.cursor, planner.role, relation):
        return False
    if planner.session.settings.text("row_security") == "off":
        raise PostgresError("42501", f'query would be affected by row-level security policy for table "{relation.name}"')
    return True


def of_statement(planner: Planner, relation: Relation, statement: Statement, reads: Callable[[], bool] = lambda: True) -> RowSecurity:
    """Return what row security requires of a statement for the relation that it names, and for the role whose rights count.

    `reads` says whether the statement reads the relation (`RULES`); it is called only if row security applies.
    """
    if not applies(planner, relation):
        return RowSecurity(planner, relation, {})
    cursor = planner.transaction.cursor
    roles = acl.role(cursor, planner.role).roles
    policies = [
        row_policy
        for row_policy in policy.of_relation(cursor, relation.database, relation.oid)
        if 0 in row_policy.roles or roles & set(row_policy.roles)
    ]
    reading = functools.cache(reads)
    requirements: dict[Rows, list[Requirement]] = {}
    for rule in RULES:
        if rule.statement is statement and (not rule.reading or reading()):
            chosen = [row_policy for row_policy in policies if row_policy.command in (rule.command, ALL)]
            requirements.setdefault(rule.rows, []).extend(_requirements(chosen, rule.clause))
    return RowSecurity(planner, relation, requirements)


def _requirements(policies: Sequence[Policy], clause: Clause) -> list[Requirement]:
    """Return the conditions of policies: any of the permissive ones, and every restrictive one. No permissive one: no row meets them."""

    def texts(*, permissive: bool) -> list[tuple[str, str]]:
        named_texts = []
        for row_policy in policies:
            text = row_policy.check if clause is Clause.CHECK and row_policy.check is not None else row_policy.using
            if row_policy.permissive is permissive and text is not None:
                named_texts.append((row_policy.name, text))
        return named_texts

    allowed = texts(permissive=True)
    if not allowed:
        return [Requirement(None, ("false",))]
    return [
        Requirement(None, tuple(text for _, text in allowed)),
        *[Requirement(name, (text,)) for name, text in texts(permissive=False)],
    ]


def _any_of(conditions: Sequence[Expression]) -> Expression:
    return conditions[0] if len(conditions) == 1 else joined(BoolKind.OR, conditions)
