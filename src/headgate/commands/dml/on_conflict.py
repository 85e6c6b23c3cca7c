"""INSERT … ON CONFLICT: rows whose key is in use are skipped (DO NOTHING) or update the stored row (DO UPDATE).

The rows of a command may arrive in chunks, in their order (`insert`). Each chunk sees the rows that the chunks before it have stored, so
that DO NOTHING skips a key that an earlier chunk has inserted. DO UPDATE must not change a row that the command itself has stored. Such a
row is recognized by its file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb
from pyspark.sql import functions as F

from headgate.analysis.query import FromItem, PlanColumn
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Index, Relation
from headgate.commands import privilege, stored_expression
from headgate.commands.constraint import index_key, reference_key, referential_action, row_key
from headgate.commands.dml import assignment, driver_change
from headgate.commands.dml.returning import JOINED
from headgate.commands.dml.rows import changed_rows, first_error
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.dml.rows.owed_references import OwedReferences
from headgate.commands.publication import replica_identity
from headgate.commands.query import row_by_row
from headgate.commands.query.clause import from_clause, modifying_with
from headgate.commands.query.plan import Source, col
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Rows, RowSecurity
from headgate.errors import PostgresError, existing, not_supported
from headgate.expression.binding import binder
from headgate.expression.deparsing import deparse
from headgate.expression.node import ColumnRef, Expression, conjuncts, walk
from headgate.sql.parser import unwrap
from headgate.storage.delta.file_action import Action
from headgate.storage.partitioned import Fence, Part
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame


def permit(node: pb.InsertStmt, planner: Planner, relation: Relation) -> None:
    """Check the privileges that ON CONFLICT needs, before any row is examined.

    Raise 42501 without SELECT on the columns that determine a conflict, or without UPDATE on those that DO UPDATE sets. Raise 42P10 or
    55000 if the update could not be published. For a partitioned table, the leaves whose replica identity is checked depend on the rows
    (`Command.insert`).
    """
    clause = node.on_conflict_clause
    if clause.HasField("infer"):  # whether a row is inserted reveals which keys exist
        privilege.check_columns(planner.transaction.cursor, planner.role, relation, "SELECT", _target_columns(node, relation))
    if clause.action != pb.ONCONFLICT_UPDATE:
        return
    cursor, names = planner.transaction.cursor, _set_columns(clause.target_list)
    chosen = [column.attnum for column in relation.columns if column.name in names]
    privilege.check_columns(cursor, planner.role, relation, "UPDATE", chosen)
    planner.writes(relation, chosen)
    if not relation.is_partitioned:
        replica_identity.check(cursor, relation, "update")


def analyse(node: pb.InsertStmt, planner: Planner, relation: Relation) -> None:
    """Raise the errors of the SET list, the condition and the target of ON CONFLICT, which do not depend on rows."""
    clause = node.on_conflict_clause
    if clause.action == pb.ONCONFLICT_UPDATE:
        if not clause.HasField("infer"):
            raise PostgresError(
                "42601", "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                hint="For example, ON CONFLICT (column_name).", location=clause.location
            )  # fmt: skip
        ours, star = from_clause.named_table(planner, relation, _name(node, relation), None)
        theirs, _ = from_clause.named_table(planner, relation, "excluded", None)
        scope = FromItem((ours, theirs), star).scope(None)
        assignment.set_list(clause.target_list, planner, relation, scope)
        if clause.HasField("where_clause"):
            binder.bind_condition(clause.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
    if clause.HasField("infer"):
        _target_columns(node, relation)


@dataclass(frozen=True)
class Command:
    """One INSERT … ON CONFLICT. `before` has the files of each table (oid) before the command wrote to it, `owed` the rows it updated."""

    node: pb.InsertStmt
    planner: Planner
    security: RowSecurity
    before: dict[int, Mapping[str, Action]] = field(default_factory=dict)
    owed: dict[int, OwedReferences] = field(default_factory=dict)

    @property
    def updates(self) -> bool:
        return bool(self.node.on_conflict_clause.action == pb.ONCONFLICT_UPDATE)

    def insert(self, writer: NewRows, rows: pa.Table) -> pa.Table:
        """Check rows, insert those without conflict, update the others. Return the current versions of inserted and updated rows."""
        return writer.passing(rows, functools.partial(self._insert, writer))

    def _insert(self, writer: NewRows, arriving: pa.Table) -> pa.Table:
        if not writer.relation.is_partitioned:
            return self._settle(writer, first_error.checked(arriving, writer.checked))
        if writer.firing is not None and (writer.firing.collects(triggers.INSERT) or writer.firing.collects(triggers.UPDATE)):
            raise not_supported("INSERT with ON CONFLICT into a partitioned table with transition tables is not supported")
        parts = first_error.checked(arriving, functools.partial(self._of_leaves, writer))
        return writer.together([(part, self._settle(leaf, checked)) for leaf, part, checked in parts])

    def check_references(self) -> None:
        """Check the foreign keys of the updated rows, after all are written."""
        for owed in self.owed.values():
            owed.check()

    def _of_leaves(self, writer: NewRows, rows: pa.Table) -> list[tuple[NewRows, Part, pa.Table]]:
        """Return the checked rows of each leaf.

        A leaf that receives a row must be able to publish an UPDATE, whether or not the row conflicts (ExecInitPartitionInfo).
        """
        parts = []
        for leaf, part in writer.spread(rows, fires=True):
            if self.updates:
                replica_identity.check(writer.transaction.cursor, leaf.relation, "update")
            parts.append((leaf, part, leaf.checked(part.rows)))
        return parts

    def _settle(self, writer: NewRows, rows: pa.Table) -> pa.Table:
        """Insert or update rows of one table that have been checked."""
        relation, transaction = writer.relation, writer.transaction
        arbiters = _arbiters(self.node, writer)
        _refuse_deferrable(relation, arbiters, rows)
        referential_action.lock(transaction, relation)
        transaction.lock(relation, keys=functools.partial(writer.keys, rows))
        if not self.updates:
            return writer.store(writer.admitted(rows.filter(pa.array(_without_conflict(writer, rows, arbiters))), arbiters))
        self.before.setdefault(relation.oid, transaction.reader.newest(relation).files)
        check_changed = functools.partial(changed_rows.check_references, self.planner, relation)
        self.owed.setdefault(relation.oid, OwedReferences(self.planner, relation, check_changed))
        [index] = arbiters
        return pa.concat_tables([_settle_run(self, writer, run, index) for run in _runs(writer, rows, index)])


def _runs(writer: NewRows, rows: pa.Table, index: Index) -> Iterator[pa.Table]:
    """Yield runs of the rows in which no key occurs twice. A row with a repeated key starts a new run and sees the earlier row's result."""
    numbers = _key_numbers(writer, rows, index)
    order = np.argsort(numbers, kind="stable")
    same = numbers[order][1:] == numbers[order][:-1]
    before = np.full(rows.num_rows, -1)
    before[order[1:][same]] = order[:-1][same]
    start = 0
    while len(repeated := np.flatnonzero(before[start:] >= start)):
        yield rows.slice(start, repeated[0])
        start += int(repeated[0])
    yield rows.slice(start)


def _settle_run(command: Command, writer: NewRows, rows: pa.Table, index: Index) -> pa.Table:
    """Execute DO UPDATE for rows with distinct keys. Raise 21000 if one conflicts with a row that the command or its WITH has stored."""
    writer.planner.session.check_cancel()
    stored = row_key.stored(writer.transaction, writer.relation, index, rows)
    own = writer.transaction.reader.has_added(writer.relation, command.before[writer.relation.oid], stored["file"])
    own |= np.asarray(pc.is_in(stored["file"], pa.array(modifying_with.written_files(writer.planner, writer.shown), pa.string())))
    if own.any():
        _settle_run(command, writer, rows.slice(0, stored["place"].to_numpy()[own].min()), index)  # whose error is the first
        raise PostgresError(
            "21000",
            "ON CONFLICT DO UPDATE command cannot affect row a second time",
            hint="Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
        )
    fresh = np.ones(rows.num_rows, bool)
    fresh[stored["place"].to_numpy()] = False
    inserted = writer.store(writer.admitted(rows.filter(pa.array(fresh)), [index]))
    if not stored.num_rows:
        return inserted
    updated = _update(command, writer, rows, stored)
    places = np.concatenate([np.flatnonzero(fresh), updated[JOINED].to_numpy()])  # RETURNING has the order of the proposed rows
    return pa.concat_tables([inserted, updated.drop_columns(JOINED).cast(inserted.schema)]).take(
        pa.array(np.argsort(places, kind="stable"))
    )


def _refuse_deferrable(relation: Relation, arbiters: Sequence[Index], rows: pa.Table) -> None:
    """Raise 55000 if a deferrable constraint would decide about the rows (ExecCheckIndexConstraints)."""
    deferrable = next((index for index in arbiters if not index.immediate), None)
    if deferrable is not None and rows.num_rows:
        raise PostgresError(
            "55000", "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters",
            schema=relation.schema, table=relation.name, constraint=deferrable.name,
        )  # fmt: skip


def _without_conflict(writer: NewRows, rows: pa.Table, arbiters: Sequence[Index]) -> np.ndarray:
    """Return which rows are inserted if they are inserted one by one: those that share no key with a stored or previously inserted row.

    A skipped row does not occupy a key. So in each round, a row that is the first undecided one for all its keys is inserted, and the other
    rows with these keys are skipped. The number of rounds is the length of the longest chain of such rows.
    """
    undecided = np.ones(rows.num_rows, dtype=bool)
    inserted = np.zeros(rows.num_rows, dtype=bool)
    groups = []
    for index in arbiters:
        group = _key_numbers(writer, rows, index)
        stored = row_key.stored(writer.transaction, writer.relation, index, rows)
        writer.transaction.reader.refuse_unseen(writer.relation, stored["file"])
        undecided &= ~np.isin(group, group[stored["place"].to_numpy()])
        groups.append(group)
    while undecided.any():
        places = np.flatnonzero(undecided)
        first = np.ones(len(places), dtype=bool)
        for group in groups:
            first &= np.isin(np.arange(len(places)), np.unique(group[places], return_index=True)[1])
        inserted[places[first]] = True
        undecided[places[first]] = False
        for group in groups:
            undecided &= ~np.isin(group, group[places[first]])
    return inserted


def _key_numbers(writer: NewRows, rows: pa.Table, index: Index) -> np.ndarray:
    """Return a number for each row's key. Rows with a NULL in it, which equal no other row, have a number each."""
    keys = row_key.of_rows(writer.transaction, writer.relation, index, rows)
    grouped = keys.group_by([name for name in keys.column_names if name != "place"]).aggregate([("place", "list")])
    members = grouped["place_list"].combine_chunks()
    numbers = -1 - np.arange(rows.num_rows)
    numbers[members.flatten().to_numpy()] = pc.list_parent_indices(members).to_numpy()
    return numbers


def _name(node: pb.InsertStmt, relation: Relation) -> str:
    """Return the name of the table in the clause."""
    return str(node.relation.alias.aliasname) or relation.name


def _target_columns(node: pb.InsertStmt, relation: Relation) -> set[int]:
    """Return the columns (attnums) that the target of ON CONFLICT reads: those of the constraint, or of the key and its WHERE."""
    infer, name = node.on_conflict_clause.infer, _name(node, relation)
    if infer.conname:
        return set(_constraint(infer.conname, relation).attnums)
    key, terms = _key(infer, relation, name), _terms(infer, relation, name)
    _inferred(key, terms, relation)
    return {part.attnum for expression in (*key, *terms) for part in walk(expression) if isinstance(part, ColumnRef)}


def _inferred(key: Sequence[Expression], terms: Sequence[Expression], relation: Relation) -> list[Index]:
    """Return the unique indexes that the target names, those over all rows first (infer_arbiter_indexes). Raise 42P10 if there is none.

    They have the target's columns and expressions (`key`), and each term of their predicate is a term of the target's WHERE (`terms`).
    """
    indexes = [
        index
        for index in relation.unique_indexes
        if _is_key(key, index_key.expressions(relation, index)) and all(term in terms for term in _predicate(index, relation))
    ]
    if not indexes:
        raise PostgresError("42P10", "there is no unique or exclusion constraint matching the ON CONFLICT specification")
    return sorted(indexes, key=lambda index: index.predicate is not None)


def _is_key(key: Sequence[Expression], parts: Sequence[Expression]) -> bool:
    return all(part in key for part in parts) and all(part in parts for part in key)


def _predicate(index: Index, relation: Relation) -> list[Expression]:
    condition = index_key.predicate(relation, index)
    return [] if condition is None else conjuncts(condition)


def _terms(infer: pb.InferClause, relation: Relation, name: str) -> list[Expression]:
    """Return the terms of the target's WHERE, which names its table `name`, as the catalog would store and read them."""
    return conjuncts(_indexed(infer.where_clause, relation, name, "predicate")) if infer.HasField("where_clause") else []


def _key(infer: pb.InferClause, relation: Relation, name: str) -> list[Expression]:
    """Return the columns and expressions of the target's key, as an index has them (`index_key.expressions`)."""
    expressions: list[Expression] = []
    for item in infer.index_elems:
        element = unwrap(item)
        if element.HasField("expr"):
            expressions.append(_indexed(element.expr, relation, name, "expression"))
            continue
        column = existing(relation.column(element.name), "42703", f'column "{element.name}"')
        expressions.append(index_key.reference(column))
    return expressions


def _indexed(node: pb.Node, relation: Relation, name: str, place: str) -> Expression:
    """Bind an expression of the target, which names its table `name`, as the catalog would store and read it in an index."""
    context = stored_expression.context().within(refuse_subquery=f"cannot use subquery in index {place}")
    bound = binder.bind_raw(node, stored_expression.scope_of(relation.columns, name), context)
    return stored_expression.indexed(deparse.stored(bound), relation)


def _constraint(name: str, relation: Relation) -> Index:
    return existing(relation.key_constraint(name), "42704", f'constraint "{name}" for table "{relation.name}"')


def _arbiters(node: pb.InsertStmt, writer: NewRows) -> list[Index]:
    clause, relation = node.on_conflict_clause, writer.relation
    unique = relation.unique_indexes
    if not clause.HasField("infer"):
        return unique
    infer = clause.infer
    if infer.conname:
        root = writer.shown
        names = reference_key.column_names(root, _constraint(infer.conname, root).attnums)
        return [index for index in unique if index.constraint and names == reference_key.column_names(relation, index.attnums)]
    name = _name(node, writer.shown)
    return _inferred(_key(infer, relation, name), _terms(infer, relation, name), relation)[:1]


def _update(command: Command, writer: NewRows, rows: pa.Table, stored: pa.Table) -> pa.Table:
    """Execute the SET list for the stored rows. Return the new rows, each with the place of the proposed row in the column JOINED."""
    node, planner, relation = command.node, command.planner, writer.relation
    clause = node.on_conflict_clause
    wide = _wide(relation, rows, stored)
    table_name, owed = _name(node, writer.shown), command.owed[relation.oid]
    if writer.shown is relation:
        few = driver_change.taken(planner, relation, clause, table_name, wide)
        if few is not None:
            return changed_rows.written(planner, relation, few, _set_columns(clause.target_list), (), owed.change)
    source, ours = _source(planner, writer, table_name, wide)
    scope = source.scope(None)
    if clause.HasField("where_clause"):
        condition = binder.bind_condition(clause.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
        source = replace(source, frame=row_by_row.filtered(planner.evaluation, source.frame, condition))
    command.security.refuse(Rows.CONFLICT, replace(source, tables=ours.tables))
    new = assignment.new_row(clause.target_list, planner, relation, ours.star, source, source.frame)
    fence = Fence(planner.transaction.cursor, relation) if writer.shown is not relation else None
    if fence is not None and fence.crossed(new.frame.select(new.row.alias("new")).select("new.*")):
        detail = "The result tuple would appear in a different partition than the original tuple."
        raise PostgresError("0A000", "invalid ON UPDATE specification", detail=detail)
    changed = new.frame.select(
        F.struct(*[col(plan_column.key).alias(plan_column.name) for plan_column in ours.star]).alias("old"),
        new.row.alias("new"),
        "file",
        "row",
        F.col("place").alias(JOINED),
    )
    with ExitStack() as persisted_frames:
        changed = assignment.numbered(planner, relation, changed, new, persisted_frames)
        violations = command.security.violations(Rows.UPDATED)
        return changed_rows.written(planner, relation, changed, _set_columns(clause.target_list), violations, owed.change)


def _wide(relation: Relation, rows: pa.Table, stored: pa.Table) -> pa.Table:
    """Return the stored rows (columns o_…) beside the proposed rows that conflict with them (e_…).

    `file` and `row` are the place of the stored row, `place` that of the proposed row.
    """
    old = stored["old"].combine_chunks()
    old_struct = old.chunk(0) if isinstance(old, pa.ChunkedArray) else old
    proposed = rows.take(stored["place"])
    names = [column.name for column in relation.columns]
    return pa.table(
        [*old_struct.flatten(), *[proposed.column(name) for name in names], stored["file"], stored["row"], stored["place"]],
        names=[*[f"o_{name}" for name in names], *[f"e_{name}" for name in names], "file", "row", "place"],
    )


def _source(planner: Planner, writer: NewRows, table_name: str, wide: pa.Table) -> tuple[Source, Source]:
    """Return the source of SET and WHERE, which sees the stored row and EXCLUDED, and that of the stored row alone."""
    frame, relation = local_frame(planner.session_spark, wide), writer.relation
    sides = {}
    for prefix, name in (("o_", table_name), ("e_", "excluded")):
        columns = [F.col(quoted(f"{prefix}{column.name}")).alias(column.name) for column in relation.columns]
        sides[prefix] = from_clause.table_source(planner, frame.select(*columns), relation, name, None)
    ours, theirs = sides.values()
    keys = [F.col(quoted(f"{prefix}{column.name}")).alias(column.key) for prefix, side in sides.items() for column in side.star]
    from_clause.restrict(planner, writer.shown, [_of_root(column, writer.shown) for column in (*ours.star, *theirs.star)])
    return Source(frame.select(*keys, "file", "row", "place"), ours.tables + theirs.tables, ours.star), ours


def _of_root(column: PlanColumn, root: Relation) -> PlanColumn:
    """Return a leaf's column with the number that it has in the table that the statement names, whose rights count."""
    root_column = root.column(column.name)
    assert root_column is not None
    return replace(column, attnum=root_column.attnum)


def _set_columns(targets: Sequence[pb.Node]) -> set[str]:
    return {unwrap(target).name for target in targets}
