"""Analyse FOR UPDATE, FOR SHARE and similar clauses (transformLockingClause of analyze.c).

A clause without OF also applies to subqueries and views, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import RowLock, SelectItem
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.node import Aggregate, WindowCall, walk
from headgate.sql import command_tag
from headgate.sql.parser import unwrap


def of_query(node: pb.SelectStmt, inherited: Sequence[RowLock], ctes: Container[str], *, in_view: bool) -> tuple[RowLock, ...]:
    """Return the locking clauses that apply to the FROM of a SELECT: its own and those of the enclosing query.

    Raise 0A000, 42601 or 42P01 if they name items that cannot be locked. The text of a view (`in_view`) was checked by CREATE VIEW. Its
    FROM has references, so it does not tell the names of tables.
    """
    locks = list(inherited)
    for item in node.locking_clause:
        clause = unwrap(item)
        strength = command_tag.STRENGTHS[clause.strength]
        if not in_view:
            _check_named(clause, strength, node, ctes)
        locks.append(RowLock(strength, clause.wait_policy, frozenset(unwrap(name).relname for name in clause.locked_rels)))
    if locks:
        _check_clauses(node, locks[-1].strength)
    return tuple(locks)


def inside(locks: Sequence[RowLock], alias: str) -> tuple[RowLock, ...]:
    """Return the clauses that apply inside a subquery or view of FROM."""
    return tuple(replace(lock, names=frozenset()) for lock in locks if lock.of(alias))


def _check_clauses(node: pb.SelectStmt, strength: str) -> None:
    """Raise 0A000 for queries whose rows do not correspond to table rows (CheckSelectLocking)."""
    for is_present, construct in (
        (node.op != pb.SETOP_NONE, "UNION/INTERSECT/EXCEPT"),
        (bool(node.distinct_clause), "DISTINCT clause"),
        (bool(node.group_clause), "GROUP BY clause"),
        (node.HasField("having_clause"), "HAVING clause"),
    ):
        if is_present:
            raise _not_allowed(strength, construct)


def check_targets(locks: Sequence[RowLock], targets: Sequence[SelectItem]) -> None:
    """Raise 0A000 for aggregates, window functions and set-returning functions in the SELECT list."""
    if not locks:
        return
    parts = [part for target in targets for part in walk(target.expression)]
    for kind, construct in ((Aggregate, "aggregate functions"), (WindowCall, "window functions")):
        if any(isinstance(part, kind) for part in parts):
            raise _not_allowed(locks[-1].strength, construct)
    if any(map(builtin.returns_set, parts)):
        raise _not_allowed(locks[-1].strength, "set-returning functions in the target list")


def _not_allowed(strength: str, what: str) -> PostgresError:
    return PostgresError("0A000", f"{strength} is not allowed with {what}")


def _check_named(clause: pb.LockingClause, strength: str, node: pb.SelectStmt, ctes: Container[str]) -> None:
    unlockable = dict(_named(node.from_clause, ctes))
    for item in clause.locked_rels:
        name = unwrap(item)
        if name.schemaname or name.catalogname:
            message = f"{strength} must specify unqualified relation names"
            raise PostgresError("42601", message, location=name.location)
        if name.relname not in unlockable:
            message = f'relation "{name.relname}" in {strength} clause not found in FROM clause'
            raise PostgresError("42P01", message, location=name.location)
        if unlockable[name.relname]:
            message = f"{strength} cannot be applied to {unlockable[name.relname]}"
            raise PostgresError("0A000", message, location=name.location)


def _named(items: Sequence[pb.Node], ctes: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each FROM item, and its kind if it cannot be locked."""
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
    """Raise 0A000 for an item on the nullable side of an outer join."""
    sides = {pb.JOIN_LEFT: [node.rarg], pb.JOIN_RIGHT: [node.larg], pb.JOIN_FULL: [node.larg, node.rarg]}.get(node.jointype, [])
    for alias, unlockable in _named(sides, ()):
        clause = next((lock for lock in locks if lock.of(alias)), None)
        if clause is not None and not unlockable:
            raise PostgresError("0A000", f"{clause.strength} cannot be applied to the nullable side of an outer join")
