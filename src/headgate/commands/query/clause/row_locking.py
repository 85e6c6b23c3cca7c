"""FOR UPDATE, FOR SHARE and their like (manual, SELECT: The Locking Clause; transformLockingClause of analyze.c).

The planner reads the clauses of a query with `of_query`, and asks `take` for each table of its FROM. A node locks tables, not rows: each
clause takes the write lock of the table, of a partitioned one those of its leaves, until the transaction ends.

    (nothing)      waits for who has it, and reads what is committed by then; under REPEATABLE READ 40001 where others have changed or
                   deleted rows of the table, whichever, since the snapshot
    NOWAIT         55P03
    SKIP LOCKED    the table, or the leaf, gives no rows: any of them may be locked

What must hold: a table is locked before its frame is made. A clause without OF reaches into subqueries and views, as there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.commands.query.clause.select_list import SelectItem
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.node import Aggregate, FuncExpr, WindowCall, walk
from headgate.sql import command_tag
from headgate.sql.parser import position, unwrap
from headgate.types.registry import FIRST_USER_OID

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation
    from headgate.commands.query.planner import Planner


@dataclass(frozen=True)
class RowLock:
    """A locking clause: how strong, how it waits, and the items of FROM that it names; none: all."""

    strength: str
    policy: int
    names: frozenset[str] = frozenset()

    def of(self, alias: str) -> bool:
        """Whether it locks an item of FROM."""
        return not self.names or alias in self.names


def of_query(node: pb.SelectStmt, inherited: Sequence[RowLock], ctes: Container[str]) -> tuple[RowLock, ...]:
    """The clauses that count for the FROM of a SELECT: its own, and those of a query around it; 0A000, 42601, 42P01 for what they name."""
    found = list(inherited)
    for item in node.locking_clause:
        clause = unwrap(item)
        strength = command_tag.STRENGTHS[clause.strength]
        _check_named(clause, strength, node, ctes)
        found.append(RowLock(strength, clause.wait_policy, frozenset(unwrap(each).relname for each in clause.locked_rels)))
    if found:
        _check_clauses(node, found[-1].strength)
    return tuple(found)


def inside(locks: Sequence[RowLock], alias: str) -> tuple[RowLock, ...]:
    """The clauses that reach into a subquery or view of FROM."""
    return tuple(replace(each, names=frozenset()) for each in locks if each.of(alias))


# ---- what is refused --------------------------------------------------------------------------------------------------------


def _check_clauses(node: pb.SelectStmt, strength: str) -> None:
    """0A000 for queries whose rows are no rows of a table (CheckSelectLocking)."""
    for met, what in (
        (node.op != pb.SETOP_NONE, "UNION/INTERSECT/EXCEPT"),
        (bool(node.distinct_clause), "DISTINCT clause"),
        (bool(node.group_clause), "GROUP BY clause"),
        (node.HasField("having_clause"), "HAVING clause"),
    ):
        if met:
            raise _not_allowed(strength, what)


def check_targets(locks: Sequence[RowLock], targets: Sequence[SelectItem]) -> None:
    """0A000 for aggregates, window functions and sets in the SELECT list."""
    if not locks:
        return
    parts = [part for each in targets for part in walk(each.expression)]
    for kind, what in ((Aggregate, "aggregate functions"), (WindowCall, "window functions")):
        if any(isinstance(part, kind) for part in parts):
            raise _not_allowed(locks[-1].strength, what)
    if any(isinstance(part, FuncExpr) and builtin.function(part.function).retset for part in parts):
        raise _not_allowed(locks[-1].strength, "set-returning functions in the target list")


def _not_allowed(strength: str, what: str) -> PostgresError:
    return PostgresError("0A000", f"{strength} is not allowed with {what}")


def _check_named(clause: pb.LockingClause, strength: str, node: pb.SelectStmt, ctes: Container[str]) -> None:
    there = dict(_named(node.from_clause, ctes))
    for item in clause.locked_rels:
        name = unwrap(item)
        if name.schemaname or name.catalogname:
            message = f"{strength} must specify unqualified relation names"
            raise PostgresError("42601", message, position=position(name.location))
        if name.relname not in there:
            message = f'relation "{name.relname}" in {strength} clause not found in FROM clause'
            raise PostgresError("42P01", message, position=position(name.location))
        if there[name.relname]:
            message = f"{strength} cannot be applied to {there[name.relname]}"
            raise PostgresError("0A000", message, position=position(name.location))


def _named(items: Sequence[pb.Node], ctes: Container[str]) -> Iterator[tuple[str, str]]:
    """The items of a FROM by name, and what they are if they cannot be locked."""
    for item in items:
        inner = unwrap(item)
        match inner.DESCRIPTOR.name:
            case "RangeVar":
                yield inner.alias.aliasname or inner.relname, "a WITH query" if not inner.schemaname and inner.relname in ctes else ""
            case "RangeSubselect":
                yield inner.alias.aliasname, ""
            case "RangeFunction":
                yield inner.alias.aliasname, "a function"
            case "JoinExpr":
                yield from _named([inner.larg, inner.rarg], ctes)
                if inner.HasField("alias"):
                    yield inner.alias.aliasname, "a join"
            case _:
                pass


def refuse_nullable(locks: Sequence[RowLock], node: pb.JoinExpr) -> None:
    """0A000 for an item on the side of an outer join that may have no row."""
    sides = {pb.JOIN_LEFT: [node.rarg], pb.JOIN_RIGHT: [node.larg], pb.JOIN_FULL: [node.larg, node.rarg]}.get(node.jointype, [])
    for alias, what in _named(sides, ()):
        found = next((each for each in locks if each.of(alias)), None)
        if found is not None and not what:
            raise PostgresError("0A000", f"{found.strength} cannot be applied to the nullable side of an outer join")


# ---- what is done -----------------------------------------------------------------------------------------------------------


def permit(planner: Planner, relation: Relation, alias: str) -> tuple[RowLock, ...]:
    """The clauses that lock an item of FROM; 42809 for a sequence, 42501 without the right to UPDATE."""
    found = tuple(each for each in planner.locks if each.of(alias))
    if found and relation.kind == RelationKind.SEQUENCE:
        raise PostgresError("42809", f'cannot lock rows in sequence "{relation.name}"')
    if found and relation.oid >= FIRST_USER_OID:
        cursor, role = planner.transaction.cursor, planner.role
        whole = privilege.may_on_table(cursor, role, relation.database, relation.oid, "UPDATE")
        if not whole and not privilege.columns_with(cursor, role, relation, "UPDATE"):
            raise privilege.denied(cursor, relation.database, relation.oid, relation.name)
    return found


def take(planner: Planner, relation: Relation, locks: Sequence[RowLock]) -> set[int]:
    """Locks a table, or the leaves of a partitioned one; gives those (oids) whose rows are to be left out."""
    if not locks or planner.describing:
        return set()
    skipped: set[int] = set()
    policy = max(each.policy for each in locks)
    for leaf in planner.transaction.partitioned(relation).leaves if relation.is_partitioned else [relation]:
        try:
            planner.transaction.lock(leaf, wait=policy == pb.LockWaitBlock)
            planner.transaction.refuse_changed(leaf)
        except PostgresError as error:
            if error.sqlstate != "55P03" or policy == pb.LockWaitBlock:
                raise
            if policy == pb.LockWaitError:
                raise PostgresError("55P03", f'could not obtain lock on row in relation "{leaf.name}"') from error
            skipped.add(leaf.oid)
    return skipped
