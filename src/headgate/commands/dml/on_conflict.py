"""INSERT … ON CONFLICT: rows whose key is taken are left out (DO NOTHING) or change the stored row (DO UPDATE).

The rows of a command may come in chunks, in their order (`insert`). Each sees what those before it have stored, so that DO NOTHING leaves
out what an earlier one has brought; DO UPDATE must not change what the command itself has stored: such a row is told by its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Index, Relation
from headgate.commands import privilege
from headgate.commands.constraint import referential_action
from headgate.commands.dml import assignment, driver_change
from headgate.commands.dml.rows import first_error, routed_rows
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.publication import replica_identity
from headgate.commands.query.clause import from_clause
from headgate.commands.query.plan import PlanColumn, Source, col
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_security import Rows, RowSecurity
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.sql.parser import unwrap
from headgate.storage.delta.file_action import Action
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


@dataclass(frozen=True)
class Command:
    """One INSERT … ON CONFLICT. `before`: the files of each table (oid) before the command wrote there."""

    node: pb.InsertStmt
    planner: Planner
    security: RowSecurity
    before: dict[int, Mapping[str, Action]] = field(default_factory=dict)

    @property
    def updates(self) -> bool:
        """Whether it is DO UPDATE."""
        return bool(self.node.on_conflict_clause.action == pb.ONCONFLICT_UPDATE)

    def insert(self, writer: NewRows, rows: pa.Table) -> pa.Table:
        """Checks rows, inserts what does not conflict, updates what does; gives the rows that were inserted or updated, as they are now."""
        if writer.relation.is_partitioned:
            return routed_rows.insert(self, writer, rows)
        return settle(self, writer, first_error.checked(writer.arriving(rows), writer.checked))


def settle(command: Command, writer: NewRows, rows: pa.Table) -> pa.Table:
    """The same for rows of a table that are checked."""
    relation, transaction = writer.relation, writer.transaction
    arbiters = _arbiters(command.node.on_conflict_clause, writer)
    _refuse_deferrable(relation, arbiters, rows)
    referential_action.lock(transaction, relation)
    transaction.lock(relation)
    if not command.updates:
        return writer.store(writer.admitted(rows.filter(pa.array(_without_conflict(writer, rows, arbiters))), arbiters))
    command.before.setdefault(relation.oid, transaction.newest(relation).files)
    [index] = arbiters
    return pa.concat_tables([_settle_run(command, writer, run, index) for run in _runs(writer, rows, index)])


def _runs(writer: NewRows, rows: pa.Table, index: Index) -> Iterator[pa.Table]:
    """The rows, cut before each that has the key of one behind the last cut: it meets what has become of that one."""
    numbers = _key_numbers(writer, rows, index)
    order = np.argsort(numbers, kind="stable")
    same = numbers[order][1:] == numbers[order][:-1]
    before = np.full(rows.num_rows, -1)
    before[order[1:][same]] = order[:-1][same]
    start = 0
    while len(met := np.flatnonzero(before[start:] >= start)):
        yield rows.slice(start, met[0])
        start += int(met[0])
    yield rows.slice(start)


def _settle_run(command: Command, writer: NewRows, rows: pa.Table, index: Index) -> pa.Table:
    """DO UPDATE for rows of which no two have one key; 21000 for one that meets a row of the command's own making."""
    writer.planner.session.check_cancel()
    stored = writer.stored_keys(rows, index)
    own = writer.transaction.has_added(writer.relation, command.before[writer.relation.oid], stored["file"])
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


def _update(command: Command, writer: NewRows, rows: pa.Table, stored: pa.Table) -> pa.Table:
    node, planner, relation = command.node, command.planner, writer.relation
    clause = node.on_conflict_clause
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
            return assignment.rewrite_few(planner, relation, few, _set_columns(clause.target_list), writer.owed.change)[1]
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
    from_clause.restrict(planner, writer.shown, [_of_root(each, writer.shown) for each in (*ours.star, *theirs.star)])
    scope = source.scope(None)
    if clause.HasField("where_clause"):
        condition = binder.bind_condition(clause.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
        source = replace(source, frame=source.frame.where(planner.evaluation.filter(condition)))
    command.security.refuse(Rows.CONFLICT, replace(source, tables=ours.tables))
    new = assignment.new_row(clause.target_list, planner, relation, ours.star, scope)
    fence = Fence(planner.transaction.cursor, relation) if writer.shown is not relation else None
    if fence is not None and fence.crossed(source.frame.select(new.row.alias("new")).select("new.*")):
        detail = "The result tuple would appear in a different partition than the original tuple."
        raise PostgresError("0A000", "invalid ON UPDATE specification", detail=detail)
    changed = source.frame.select(
        F.struct(*[col(each.key).alias(each.name) for each in ours.star]).alias("old"), new.row.alias("new"), "file", "row"
    )
    with ExitStack() as kept:
        changed = assignment.numbered(planner, relation, changed, new, kept)
        violations = command.security.violations(Rows.UPDATED)
        return assignment.write(planner, relation, changed, _set_columns(clause.target_list), violations, writer.owed.change)


def _of_root(column: PlanColumn, root: Relation) -> PlanColumn:
    """Return a leaf's column with the number that it has in the table that the statement names, whose rights count."""
    found = root.column(column.name)
    assert found is not None
    return replace(column, attnum=found.attnum)


def _set_columns(targets: Sequence[pb.Node]) -> set[str]:
    return {unwrap(each).name for each in targets}
