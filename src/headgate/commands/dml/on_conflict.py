"""INSERT … ON CONFLICT: rows whose key is taken are left out (DO NOTHING) or change the stored row (DO UPDATE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Index, Relation
from headgate.commands import privilege
from headgate.commands.constraint import referential_action
from headgate.commands.dml import assignment, driver_change, first_error
from headgate.commands.dml.new_rows import NewRows
from headgate.commands.publication import replica_identity
from headgate.commands.query.clause import from_clause
from headgate.commands.query.plan import Source, col
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.sql.parser import unwrap
from headgate.storage.partitioned import Fence
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame


def permit(node: pb.InsertStmt, planner: Planner, relation: Relation) -> None:
    """42501 without the right to SELECT the columns that decide what a conflict is, or to UPDATE those that DO UPDATE sets.

    42P10 or 55000 where their change could not be published. Asked before any row is looked at; which leaves of a partitioned table are
    asked for an identity depends on the rows (`routed_rows`).
    """
    clause = node.on_conflict_clause
    if clause.HasField("infer"):  # what becomes of a row tells which keys are there
        privilege.check_columns(planner.transaction.cursor, planner.role, relation, "SELECT", _named_columns(clause.infer, relation))
    if clause.action != pb.ONCONFLICT_UPDATE:
        return
    cursor, names = planner.transaction.cursor, _set_columns(clause.target_list)
    chosen = [column.attnum for column in relation.columns if column.name in names]
    privilege.check_columns(cursor, planner.role, relation, "UPDATE", chosen)
    planner.writes(relation, chosen)
    if not relation.is_partitioned:
        replica_identity.check(cursor, relation, "update")


def insert(node: pb.InsertStmt, planner: Planner, writer: NewRows, rows: pa.Table) -> pa.Table:
    """Checks rows, inserts what does not conflict, updates what does; gives the rows that were inserted or updated, as they are now."""
    return settle(node, planner, writer, first_error.checked(rows, writer.checked))


def settle(node: pb.InsertStmt, planner: Planner, writer: NewRows, rows: pa.Table) -> pa.Table:
    """The same for rows that are checked."""
    clause = node.on_conflict_clause
    relation = writer.relation
    update = clause.action == pb.ONCONFLICT_UPDATE
    arbiters = _arbiters(clause, writer)
    _refuse_deferrable(relation, arbiters, rows)
    referential_action.lock(planner.transaction, relation)
    planner.transaction.lock(relation)
    if not update:
        return writer.store(writer.admitted(rows.filter(pa.array(_without_conflict(writer, rows, arbiters)))))
    [index] = arbiters
    if writer.repeated(rows, index):
        raise PostgresError(
            "21000",
            "ON CONFLICT DO UPDATE command cannot affect row a second time",
            hint="Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
        )
    stored = writer.stored_keys(rows, index)
    taken = set(stored["place"].to_pylist())
    fresh = rows.filter(pa.array(np.isin(np.arange(rows.num_rows), list(taken), invert=True)))
    inserted = writer.store(writer.admitted(fresh))
    if not stored.num_rows:
        return inserted
    updated = _update(clause, node, planner, writer, rows, stored)
    return pa.concat_tables([inserted, updated.cast(inserted.schema)])


def _refuse_deferrable(relation: Relation, arbiters: Sequence[Index], rows: pa.Table) -> None:
    """55000 for rows that would be judged by a deferrable constraint (ExecCheckIndexConstraints)."""
    found = next((each for each in arbiters if not each.immediate), None)
    if found is not None and rows.num_rows:
        raise PostgresError(
            "55000", "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters",
            schema=relation.schema, table=relation.name, constraint=found.name,
        )  # fmt: skip


def _without_conflict(writer: NewRows, rows: pa.Table, arbiters: Sequence[Index]) -> np.ndarray:
    """Which rows are inserted one after the other: those that share no key with a stored row or a row inserted before them.

    A row that is left out takes no key itself. So whoever comes first among the undecided rows of all its keys is inserted, and the others
    of these keys are left out; as many rounds as a chain of such rows is long.
    """
    undecided = np.ones(rows.num_rows, dtype=bool)
    inserted = np.zeros(rows.num_rows, dtype=bool)
    groups = []
    for index in arbiters:
        group = _key_numbers(writer, rows, index)
        stored = writer.stored_keys(rows, index)
        writer.transaction.refuse_unseen(writer.relation, stored["file"])
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
    """A number for each row's key; rows with a NULL in it, which equal none, have one each."""
    _, keys = writer.keys(rows, index)
    grouped = keys.group_by([name for name in keys.column_names if name != "place"]).aggregate([("place", "list")])
    members = grouped["place_list"].combine_chunks()
    numbers = -1 - np.arange(rows.num_rows)
    numbers[members.flatten().to_numpy()] = pc.list_parent_indices(members).to_numpy()
    return numbers


def _named_columns(infer: pb.InferClause, relation: Relation) -> set[int]:
    """The columns (attnums) that ON CONFLICT names, by themselves or by a constraint."""
    if infer.conname:
        return set(_constraint(infer.conname, relation).attnums)
    attnums = set()
    for item in infer.index_elems:
        element = unwrap(item)
        if element.HasField("expr"):
            raise not_supported("ON CONFLICT with an expression is not supported")
        column = relation.column(element.name)
        if column is None:
            raise PostgresError("42703", f'column "{element.name}" does not exist')
        attnums.add(column.attnum)
    if all(set(each.attnums) != attnums for each in relation.unique_indexes if each.plain):
        raise PostgresError("42P10", "there is no unique or exclusion constraint matching the ON CONFLICT specification")
    return attnums


def _constraint(name: str, relation: Relation) -> Index:
    found = next((each for each in relation.indexes if each.constraint and each.name == name), None)
    if found is None:
        raise PostgresError("42704", f'constraint "{name}" for table "{relation.name}" does not exist')
    return found


def _arbiters(clause: pb.OnConflictClause, writer: NewRows) -> list[Index]:
    """The unique indexes that decide what a conflict is."""
    relation = writer.relation
    unique = relation.unique_indexes
    if not clause.HasField("infer"):
        if any(not each.plain for each in unique):
            raise not_supported("ON CONFLICT DO NOTHING without a target is not supported on a table with a partial or expression index")
        return unique
    unique = [each for each in unique if each.plain]
    infer = clause.infer
    if infer.conname:
        root = writer.shown
        names = [column.name for n in _constraint(infer.conname, root).attnums if (column := root.numbered(n))]
        return [each for each in unique if each.constraint and names == [c.name for n in each.attnums if (c := relation.numbered(n))]]
    attnums = _named_columns(infer, relation)
    return [each for each in unique if set(each.attnums) == attnums][:1]


def _update(
    clause: pb.OnConflictClause, node: pb.InsertStmt, planner: Planner, writer: NewRows, rows: pa.Table, stored: pa.Table
) -> pa.Table:
    relation = writer.relation
    old = stored["old"].combine_chunks()
    old_struct = old.chunk(0) if isinstance(old, pa.ChunkedArray) else old
    proposed = rows.take(stored["place"])
    names = [each.name for each in relation.columns]
    wide = pa.table(
        [*old_struct.flatten(), *[proposed.column(name) for name in names], stored["file"], stored["row"]],
        names=[*[f"o_{name}" for name in names], *[f"e_{name}" for name in names], "file", "row"],
    )
    named = node.relation.alias.aliasname or writer.shown.name
    if writer.shown is relation:
        few = driver_change.taken(planner, relation, clause, named, wide)
        if few is not None:
            _, written = assignment.rewrite_few(planner, relation, few, _set_columns(clause.target_list), keep=True)
            assert written is not None
            return written
    frame = local_frame(planner.session_spark, wide)
    ours = from_clause.table_source(
        planner,
        frame.select(*[F.col(quoted(f"o_{n}")).alias(n) for n in names]),
        relation,
        named,
        None,
    )
    theirs = from_clause.table_source(planner, frame.select(*[F.col(quoted(f"e_{n}")).alias(n) for n in names]), relation, "excluded", None)
    keyed = frame.select(
        *[F.col(quoted(f"o_{each.name}")).alias(each.key) for each in ours.star],
        *[F.col(quoted(f"e_{each.name}")).alias(each.key) for each in theirs.star],
        "file",
        "row",
    )
    source = Source(keyed, ours.tables + theirs.tables, ours.star)
    from_clause.restrict(planner, relation, (*ours.star, *theirs.star))
    scope = source.scope(None)
    if clause.HasField("where_clause"):
        condition = binder.bind_condition(clause.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
        source = replace(source, frame=source.frame.where(planner.evaluation.filter(condition)))
    new = assignment.new_row(clause.target_list, planner, relation, ours.star, scope)
    fence = Fence(planner.transaction.cursor, relation) if writer.shown is not relation else None
    if fence is not None and fence.crossed(source.frame.select(new.alias("new")).select("new.*")):
        detail = "The result tuple would appear in a different partition than the original tuple."
        raise PostgresError("0A000", "invalid ON UPDATE specification", detail=detail)
    changed = source.frame.select(
        F.struct(*[col(each.key).alias(each.name) for each in ours.star]).alias("old"), new.alias("new"), "file", "row"
    )
    return assignment.write(planner, relation, changed, _set_columns(clause.target_list))


def _set_columns(targets: Sequence[pb.Node]) -> set[str]:
    return {unwrap(each).name for each in targets}
