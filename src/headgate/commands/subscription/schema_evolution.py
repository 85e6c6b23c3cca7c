"""Make local tables follow the schema changes of their publisher: `schema_evolution`, add_columns or follow.

The apply worker and the table syncs call `evolve` before they apply changes that need it. It runs in its own transaction, with the rights
of the subscription's owner. A column is identified by the publisher's attribute number. A table sync reads the publisher's catalog, with
the numbers, under the snapshot of its slot. So the table has exactly the columns of the log position from which it is copied and followed.
The stream has only names and types. The numbers are derived from the publisher's current catalog and the columns as they were before
(`catalog.replication.subscription_column`; `identify`). If they are ambiguous, the table is left unchanged and synchronized again
(`Evolved.unclear`). With two_phase, which does not allow a second synchronization, the most likely numbers are used.

The catalog may be ahead of the stream, so names and types are taken from the stream. NOT NULL is only in the catalog. It is dropped at
once, and set after the stream has been applied up to the position at which the catalog was read (`Evolved.pending`). The publisher may have
set it after that. If a row with NULL then arrives, the applier has it dropped (`DescribedTable.nullable`), and it is set again later.

A change that cannot be followed must raise an error with the statement to run by hand. No difference may be silent. In existing rows, an
added column gets the publisher's value if the publisher's catalog has it (a constant default). In other cases (an existing column was added
to a column list, or its default is not constant), the rows are counted and a reconciliation of the table is requested
(`subscription_resync`), which fills them. If the table cannot be reconciled (two_phase), a warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_column, subscription_resync
from headgate.catalog.replication.subscription import Subscription, SyncState
from headgate.catalog.replication.subscription_column import FollowedColumn
from headgate.catalog.replication.subscription_resync import Method
from headgate.commands.session import NodeParts
from headgate.commands.subscription.applied_ddl import OwnerSession, acting
from headgate.commands.subscription.create_tables import default_of, followed, kept
from headgate.commands.subscription.remote_type import LocalType, Types
from headgate.commands.transaction.subtransaction import attempt
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.sql import statement
from headgate.sql.names import qualified, quote_ident
from headgate.sql.parser import ParseNode
from headgate.subscriber.described_table import DescribedTable, Evolved
from headgate.subscriber.host import Jobs
from headgate.types import registry
from headgate.walreceiver import definition
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.definition import DefinedColumn, Definitions, RemoteTable
from headgate.walreceiver.remote import PublishedTable, as_text

Listed = tuple[str, int, int]
"""A column of the message: name, type and type modifier."""
_UNKNOWN = 1000.0
"""The cost of a listed column without a number: the catalog keeps the numbers of dropped columns."""


@dataclass(frozen=True)
class Identified:
    """The attribute number of each listed column, None if it has none in the catalog.

    `is_certain`: whether each of them has the name and type that the column had before, or has now. Otherwise the catalog is ahead by
    several alterations of a column, and the numbers are a guess.
    """

    numbers: tuple[int | None, ...]
    is_certain: bool = True


def identify(listed: Sequence[Listed], known: Sequence[FollowedColumn], there: Sequence[DefinedColumn]) -> Identified:
    """Return the attribute numbers of the columns of a Relation message on the publisher.

    The message has names and types in the order of the attribute numbers, but not the numbers. The publisher's catalog has them, but it may
    be ahead of the stream: columns may since have been renamed, retyped or dropped (dropped columns keep their numbers), or are not in the
    stream yet. So the listed columns are aligned with the numbers in order, with the fewest contradictions to the catalog and to the
    previously known columns. `there`: the columns of the catalog, dropped ones too.

    Example: known 1 id, 2 a, 3 b; the catalog has 1 id, 2 b, 3 a; the message lists id, b, a. Their numbers are 1, 2, 3, and a and b
    swapped their names.
    """
    before, now = {column.attnum: column for column in known}, {column.attnum: column for column in there}
    numbers = [number for number in sorted({*before, *now}) if number not in before or not before[number].dropped]
    skipped = [_skip(before.get(number), now.get(number)) for number in numbers]
    costs = [[*accumulate(skipped, initial=0.0)]]
    for row, column in enumerate(listed, 1):
        costs.append([row * _UNKNOWN])
        for at, number in enumerate(numbers, 1):
            paired = costs[row - 1][at - 1] + _pair(column, before.get(number), now.get(number))
            costs[row].append(min(paired, costs[row][at - 1] + skipped[at - 1], costs[row - 1][at] + _UNKNOWN))
    # columns that are not known and come last may not be in the stream yet
    later = [0.0 if number not in before else cost for number, cost in zip(numbers, skipped, strict=True)]
    rest = [*accumulate(reversed(later), initial=0.0)][::-1]
    end = min(range(len(numbers) + 1), key=lambda at: costs[-1][at] + rest[at])
    path = _path(costs, listed, numbers, skipped, end)
    pairs = [_pair(column, before.get(number), now.get(number)) for column, number in zip(listed, path, strict=True) if number is not None]
    left_out = [column for column in known if not column.dropped and column.attnum not in path]
    is_replaced = any((column.name, column.type_oid, column.typmod) in listed for column in left_out)  # or is about to be
    newest = max((number for number in path if number is not None), default=0)
    # a number that was passed over may have been listed and dropped since, and a column that is gone may have been another one's name
    added = [column for number, column in now.items() if max(before, default=0) < number < newest and number not in path]
    is_passed_over = any(column.dropped or not column.generated for column in added)
    is_ambiguous = bool(left_out) and any(number is not None and (number not in now or now[number].dropped) for number in path)
    is_lost = is_passed_over or is_ambiguous or any(_skip(column, now.get(column.attnum)) for column in left_out)
    is_contradicted = None in path or any(cost >= 1 for cost in pairs)
    return Identified(tuple(path), not (is_replaced or is_lost or is_contradicted))


def _path(
    costs: list[list[float]], listed: Sequence[Listed], numbers: Sequence[int], skipped: Sequence[float], end: int
) -> list[int | None]:
    """Return the numbers of the cheapest alignment that uses the first `end` numbers."""
    path: list[int | None] = [None] * len(listed)
    row, at = len(listed), end
    while row:
        if at and costs[row][at] == costs[row][at - 1] + skipped[at - 1]:
            at -= 1
        elif costs[row][at] == costs[row - 1][at] + _UNKNOWN:
            row -= 1
        else:
            row, at = row - 1, at - 1
            path[row] = numbers[at]
    return path


def _skip(before: FollowedColumn | None, now: DefinedColumn | None) -> float:
    """Return the cost of a number that the message does not list. Dropped and generated columns are never listed."""
    if now is None or now.dropped or now.generated:
        return 0.0
    return 1.0 if before is None else 3.0


def _pair(listed: Listed, before: FollowedColumn | None, now: DefinedColumn | None) -> float:
    """Return the cost of a listed column with a number. If two numbers match, that of the existing column is cheaper."""
    name, type_oid, typmod = listed
    is_gone = now is None or now.dropped
    best = 3.0
    for column in (before, None if is_gone else now):
        if column is not None:
            same_type = (column.type_oid, column.typmod) == (type_oid, typmod)
            best = min(best, (0.0 if same_type else 1.0) if column.name == name else 2.0 if same_type else 3.0)
    return best + 0.5 * is_gone


_log = logging.getLogger("headgate.subscriber")


def evolve(
    node: NodeParts,
    subscription: Subscription,
    stopping: Callable[[], None],
    jobs: Jobs,
    tables: Sequence[DescribedTable],
    *,
    catalog: Definitions | None,
) -> Evolved:
    """Make the local tables follow those of the publisher. `catalog` as in `Evolve`."""
    position, remote = (INVALID, catalog) if catalog is not None else _read(subscription, tables, stopping)
    unclear: set[int] = set()
    warnings: list[str] = []
    done: list[str] = []
    numbers: list[tuple[int | None, ...]] = []
    pending: list[DescribedTable] = []
    with acting(node, subscription, stopping, jobs) as session:
        types = Types(session, remote.types, remote.schemas, done.append)
        for change in tables:
            table = relations.lookup(session.transaction.cursor, subscription.database, change.schema, change.name)
            if table is None or table.oid in unclear:
                numbers.append(())
                continue
            follower = _Follower(session, subscription, remote, types, change, table)
            numbers.append(follower.run())
            if follower.is_unclear:
                unclear.add(table.oid)
                continue
            done += follower.done
            warnings += follower.warnings
            pending = [waiting for waiting in pending if (waiting.schema, waiting.name) != (change.schema, change.name)]
            pending += [DescribedTable(change.schema, change.name, relation=change.relation, altered=False)] if follower.pending else []
    node.workers.wake()  # it starts the reconciliations
    for line in done:
        _log.info('subscription "%s": %s', subscription.name, line)
    for line in warnings:
        _log.warning('subscription "%s": %s', subscription.name, line)
    return Evolved(tuple(numbers), tuple(pending), position, frozenset(unclear))


def _read(subscription: Subscription, tables: Sequence[DescribedTable], check: Callable[[], None]) -> tuple[Lsn, Definitions]:
    """Return the end of the publisher's log, and its catalog after that."""
    with PublisherConnection.open(subscription.conninfo, subscription.name, check=check) as connection:
        position = connection.identify_system().position
        return position, definition.read(
            connection, [PublishedTable(table.schema, table.name) for table in tables], announced_types(tables)
        )


def announced_types(tables: Sequence[DescribedTable]) -> set[int]:
    """Return the types of the columns that the stream has announced."""
    return {type_oid for change in tables for _, type_oid, _ in change.columns if type_oid}


@dataclass
class _Follower:
    """One table. `pending`: a column is to be NOT NULL once the stream is as far as the publisher's catalog."""

    session: OwnerSession
    subscription: Subscription
    definitions: Definitions
    types: Types
    description: DescribedTable
    local: Relation
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    pending: bool = False
    is_unclear: bool = False
    """Whether the table is left unchanged, to be synchronized again."""

    @property
    def _now(self) -> Relation:
        """The current definition of the table."""
        return relations.get(self.session.transaction.cursor, self.subscription.database, self.local.oid)

    @property
    def _whole(self) -> Relation:
        """The table that owns the columns: the topmost ancestor of a partition, otherwise the table itself."""
        ancestors = relations.ancestors(self.session.transaction.cursor, self.subscription.database, self.local.oid)
        return relations.get(self.session.transaction.cursor, self.subscription.database, ancestors[-1]) if ancestors else self._now

    def run(self) -> tuple[int | None, ...]:
        """Apply the announced columns to the table. Return the publisher's attribute numbers of these columns."""
        self._add_labels()
        remote = self.definitions.named.get((self.description.schema, self.description.name))
        cursor, oid = self.session.transaction.cursor, self.local.oid
        known = before = subscription_column.of_table(cursor, self.subscription.oid, oid)
        if remote is not None and any(column.relation not in (0, remote.oid) for column in known):
            known = []  # the publisher has recreated the table under the same name: match its columns by name, as at first
        known = known or followed(remote, self.local, self.types)
        numbers: Sequence[int | None] = [None] * len(self.description.columns)
        if self.subscription.schema_evolution == "follow" and remote is not None and self.description.relation in (0, remote.oid):
            remote_columns = {column.attnum: column for column in remote.columns}
            if self.description.altered:
                numbers = self.description.numbers if self.description.numbers is not None else self._identify(known, remote)
                if self.is_unclear:
                    return ()
                known = self._follow(known, remote_columns, numbers)
            else:
                known = [self._follow_catalog(column, remote_columns.get(column.attnum)) for column in known]
        elif self.description.altered:
            known = [*known, *self._add_columns(known, remote)]
        if remote is not None:
            known = [replace(column, relation=remote.oid) for column in known]
        if known != before:
            subscription_column.write(cursor, self.subscription.database, self.subscription.oid, oid, known)
        return tuple(numbers)

    def _add_labels(self) -> None:
        for remote_type in self.definitions.types.values():
            if remote_type.kind == "e":
                added = self.types.add_labels(remote_type)
                if added:
                    self.done.append(f'added to type "{remote_type.schema}.{remote_type.name}": {", ".join(added)}')

    # ---- follow -----------------------------------------------------------------------------------------

    def _identify(self, known: Sequence[FollowedColumn], remote: RemoteTable) -> tuple[int | None, ...]:
        """Return the numbers of the announced columns, or note that they are ambiguous."""
        identity = identify(self.description.columns, known, remote.columns)
        if not identity.is_certain:
            is_in_subscription = subscriptions.table(self.session.transaction.cursor, self.subscription.oid, self.local.oid) is not None
            if is_in_subscription and self.subscription.two_phase != "e":
                self.is_unclear = True
            else:
                self.warnings.append(f'table "{self._plain_name}": which columns were altered how is not certain')
        return identity.numbers

    def _follow(
        self, known: Sequence[FollowedColumn], there: dict[int, DefinedColumn], numbers: Sequence[int | None]
    ) -> list[FollowedColumn]:
        """Drop, rename, change and add columns. `numbers` are those of the announced columns."""
        listed = {number: column for number, column in zip(numbers, self.description.columns, strict=True) if number is not None}
        mine = self._renamed([self._kept_or_dropped(column, there.get(column.attnum), listed) for column in known], listed)
        local_names, numbered = {column.name for column in self._now.columns}, {column.attnum for column in known}
        followed_columns = [
            self._change(column, there.get(column.attnum), listed[column.attnum])
            if column.name in local_names and self._is_here(column, listed) else column
            for column in mine
        ]  # fmt: skip
        for number, column in zip(numbers, self.description.columns, strict=True):
            if number is not None and number in numbered:
                continue
            now = None if number is None else there.get(number)
            added = self._describe(column, number, now)
            if column[0] not in local_names:
                followed_columns.append(self._follow_catalog(self._add(added), now))
            elif number is not None:  # it was added by hand, or with another partition
                followed_columns.append(kept(added, self.types))
        return followed_columns

    @staticmethod
    def _is_here(column: FollowedColumn, listed: dict[int, Listed]) -> bool:
        return not column.dropped and column.attnum in listed

    def _kept_or_dropped(self, column: FollowedColumn, now: DefinedColumn | None, listed: dict[int, Listed]) -> FollowedColumn:
        """Return the column. Drop it if it is neither in the stream nor in the publisher's catalog."""
        if column.dropped or column.attnum in listed or not (now is None or now.dropped):
            return column
        if all(local.name != column.name for local in self._now.columns):
            return replace(column, dropped=True)
        self._alter([statement.command(pb.AT_DropColumn, name=column.name)], f"DROP COLUMN {quote_ident(column.name)}")
        return replace(column, dropped=True, unfilled=0)

    def _renamed(self, known: Sequence[FollowedColumn], listed: dict[int, Listed]) -> list[FollowedColumn]:
        """Rename the columns to their names in the stream. If columns exchange their names, one gets a temporary name in between."""
        mine = [column for column in known if self._is_here(column, listed)]
        new_names = {column.name: listed[column.attnum][0] for column in mine if listed[column.attnum][0] != column.name}
        local_names = {local.name for local in self._now.columns}
        waiting = {old: new for old, new in new_names.items() if old in local_names}
        while waiting:
            used_names = {local.name for local in self._now.columns}
            old, new = next(((old, new) for old, new in waiting.items() if new not in used_names), next(iter(waiting.items())))
            if new in used_names and new in waiting:
                between = next(name for number in count() if (name := f"headgate_renamed_{number}") not in used_names)
                self._rename(old, between)
                waiting[between] = waiting.pop(old)
                continue
            self._rename(old, new)
            del waiting[old]
        renamed = {old for old, new in new_names.items() if old in local_names or new in local_names}  # or it was renamed by hand here
        return [
            replace(column, name=new_names[column.name]) if column.name in renamed and self._is_here(column, listed) else column
            for column in known
        ]  # fmt: skip

    def _rename(self, old: str, new: str) -> None:
        whole = self._whole
        self._run([statement.rename_column(whole.schema, whole.name, old, new)], f"RENAME COLUMN {quote_ident(old)} TO {quote_ident(new)}")

    def _describe(self, listed: Listed, number: int | None, now: DefinedColumn | None) -> DefinedColumn:
        """Return a column as the stream has it, or as the catalog has it if the type is the same."""
        name, type_oid, typmod = listed
        if now is not None and not now.dropped and (now.type_oid, now.typmod) == (type_oid, typmod):
            return replace(now, name=name)
        return replace(self._announced_column(name, type_oid, typmod), attnum=-1 if number is None else number)

    def _change(self, before: FollowedColumn, now: DefinedColumn | None, listed: Listed) -> FollowedColumn:
        """Change the type, NOT NULL and default of a column."""
        if listed[1:] != (before.type_oid, before.typmod):
            before = self._change_type(before, self._describe(listed, before.attnum, now))
        return self._follow_catalog(before, now)

    def _follow_catalog(self, column: FollowedColumn, now: DefinedColumn | None) -> FollowedColumn:
        """Change NOT NULL and default of a column if the catalog agrees with the stream on it, and note pending changes.

        The stream may have to be applied further before the column can be NOT NULL, because earlier rows may contain NULL.
        """
        if column.dropped:
            return column
        if column.name in self.description.nullable:
            column = self._drop_not_null(column) if column.not_null else column
        elif now is not None and (now.name, now.type_oid, now.typmod) == (column.name, column.type_oid, column.typmod):
            if column.not_null and not now.not_null:
                column = self._drop_not_null(column)
            is_applied = self.description.numbers is not None or not self.description.altered
            if now.not_null and not column.not_null and is_applied and not column.unfilled:
                error = self._attempt([statement.command(pb.AT_SetNotNull, name=now.name)])
                column = replace(column, not_null=error is None)
            if now.default != column.default:
                self._set_default(now, self.types.of_column(now))
                column = replace(column, default=now.default)
        if now is not None and now.not_null and not column.not_null:
            self.pending = True
        return column

    def _drop_not_null(self, column: FollowedColumn) -> FollowedColumn:
        name = column.name
        self._alter([statement.command(pb.AT_DropNotNull, name=name)], f"ALTER COLUMN {quote_ident(name)} DROP NOT NULL")
        return replace(column, not_null=False)

    def _change_type(self, before: FollowedColumn, now: DefinedColumn) -> FollowedColumn:
        kind, after = self.types.of_column(now), kept(now, self.types)
        after = replace(after, unfilled=before.unfilled, not_null=before.not_null, default=before.default)
        if not kind.exact and before.local_type is not None:
            return after
        column = quote_ident(now.name)
        text = f"ALTER COLUMN {column} TYPE {now.shown if kind.exact else 'text'} USING … (an expression with {column})"
        self._alter([statement.change_type(now.name, kind.name)], text)
        return after

    def _set_default(self, column: DefinedColumn, kind: LocalType) -> None:
        """Set the publisher's current default, or none if it is not supported here. The stream contains every value anyway."""
        expression = default_of(column, kind) if column.default is not None else None
        if expression is not None:
            set_default = statement.command(pb.AT_ColumnDefault, name=column.name, **{"def": expression})
            if self._attempt([set_default]) is None:
                self.done.append(f'table "{self._plain_name}": default of column "{column.name}" set')
                return
        error = self._attempt([statement.command(pb.AT_ColumnDefault, name=column.name)])
        if error is None and column.default is not None:
            self.warnings.append(f'table "{self._plain_name}": the default of column "{column.name}" is not known here, it has none')

    # ---- what is new ------------------------------------------------------------------------------------

    def _add_columns(self, known: Sequence[FollowedColumn], remote: RemoteTable | None) -> list[FollowedColumn]:
        """Add the announced columns that are missing here, by name."""
        local_names = {column.name for column in self._now.columns}
        numbered = {column.attnum for column in known}
        unknown = {column.name: column for column in (remote.live if remote is not None else ()) if column.attnum not in numbered}
        added = []
        for name, type_oid, typmod in self.description.columns:
            column = unknown.get(name)
            if name not in local_names:
                added.append(self._add(column or self._announced_column(name, type_oid, typmod)))
            elif column is not None:  # it was added by hand, or with another partition
                added.append(kept(column, self.types))
        return added

    def _announced_column(self, name: str, type_oid: int, typmod: int) -> DefinedColumn:
        """Return a column that is no longer in the publisher's catalog."""
        if not type_oid:
            raise PostgresError(
                "55000",
                f'publisher has no column "{name}" in table "{self._plain_name}" any more',
                hint=f"ALTER TABLE {self._quoted_name} ADD COLUMN {quote_ident(name)} …",
            )
        known = registry.builtin().find(type_oid)
        if type_oid not in self.definitions.types:
            # a dropped user-defined type: text accepts every value
            schema, shown = ("", "") if known is None else ("pg_catalog", known.name)
            self.definitions.types[type_oid] = definition.RemoteType(type_oid, schema, shown, "b", 0, 0, -1, "text", "", False, None)
        remote = self.definitions.types[type_oid]
        text = remote.shown if known is None else registry.builtin().format_type(type_oid, typmod)
        return DefinedColumn(-1, name, type_oid, typmod, text, False, "", False, None, False)

    def _add(self, column: DefinedColumn) -> FollowedColumn:
        kind = self.types.of_column(column)
        if self.subscription.binary and not kind.exact:
            raise PostgresError(
                "0A000",
                f'column "{column.name}" of table "{self._plain_name}" would be text here, and the publisher sends it in binary form',
                hint=f"ALTER SUBSCRIPTION {quote_ident(self.subscription.name)} SET (binary = false);",
            )
        rows = self._rows()
        words = []
        if column.added_with is not None:
            value = pb.Node(a_const=pb.A_Const(sval=pb.String(sval=column.added_with), location=-1))
            words.append(statement.constraint(pb.CONSTR_DEFAULT, raw_expr=value))
        lacking = rows if self.description.numbers is None and rows and self._has_others(column) else 0  # a table sync fills them
        definition_node = statement.column(column.name, kind.name, words)
        text = f"ADD COLUMN {quote_ident(column.name)} {column.shown if kind.exact else 'text'}"
        self._alter([statement.command(pb.AT_AddColumn, **{"def": definition_node})], text)
        if not kind.exact:
            self.warnings.append(f'table "{self._plain_name}": column "{column.name}" of type {column.shown} is text here')
        if column.default is not None or column.added_with is not None:
            self._set_default(column, kind)
        if lacking:
            self._have_filled(column, lacking)
        return replace(kept(column, self.types), unfilled=lacking, not_null=False)

    def _has_others(self, column: DefinedColumn) -> bool:
        """Return whether the publisher has other values in a column than existing rows get here, regardless of row filters."""
        if column.added_with is None and (column.default is not None or column.identity):
            return True
        default_value = "NULL" if column.added_with is None else literal(column.added_with)
        table = qualified(self.description.schema, self.description.name)
        query = f"SELECT 1 FROM {table} WHERE {as_text(column.name, column.type_oid)} IS DISTINCT FROM {default_value} LIMIT 1"
        with PublisherConnection.open(self.subscription.conninfo, self.subscription.name, check=self.session.check_cancel) as connection:
            return bool(connection.query(query)) if self._is_there(connection, column) else True

    def _is_there(self, connection: PublisherConnection, column: DefinedColumn) -> bool:
        """Return whether the column still has the name that it has in the stream."""
        name = literal(qualified(self.description.schema, self.description.name))
        query = f"SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = {name}::regclass AND attname = {literal(column.name)}"
        return bool(connection.query(f"{query} AND NOT attisdropped"))

    def _have_filled(self, column: DefinedColumn, rows: int) -> None:
        """Request that the existing rows get the publisher's values of a new column. Warn if the table cannot be reconciled."""
        cursor, subscription = self.session.transaction.cursor, self.subscription
        state = subscriptions.table(cursor, subscription.oid, self.local.oid)
        rest = f'the {rows} rows that were here before column "{column.name}" are'
        if state is None or subscription.two_phase == "e":
            self.warnings.append(f'table "{self._plain_name}": {rest} not filled; the publisher has values')
        elif state.state not in {SyncState.INIT, SyncState.DATASYNC}:  # otherwise, a copy that has not started yet brings them
            subscription_resync.request(cursor, subscription.database, subscription.oid, self.local.oid, Method.DIFFERENCE)
            self.done.append(f'table "{self._plain_name}": {rest} filled from the publisher')

    def _rows(self) -> int:
        transaction, table = self.session.transaction, self._whole
        rows_held = transaction.reader.held(table) if table.kind == RelationKind.TABLE else None
        return rows_held.num_rows if rows_held is not None else int(transaction.reader.frame(table).count())

    # ---- statements -------------------------------------------------------------------------------------

    @property
    def _plain_name(self) -> str:
        return f"{self.local.schema}.{self.local.name}"

    @property
    def _quoted_name(self) -> str:
        whole = self._whole
        return qualified(whole.schema, whole.name)

    def _attempt(self, commands: Sequence[pb.AlterTableCmd]) -> PostgresError | None:
        whole = self._whole
        return attempt(self.session, [statement.alter_table(whole.schema, whole.name, commands)])

    def _alter(self, commands: Sequence[pb.AlterTableCmd], text: str) -> None:
        whole = self._whole
        self._run([statement.alter_table(whole.schema, whole.name, commands)], text)

    def _run(self, nodes: Sequence[ParseNode], text: str) -> None:
        """Run statements. If they fail, raise an error whose HINT is the ALTER TABLE (with `text`) to run by hand."""
        error = attempt(self.session, nodes)
        if error is not None:
            raise PostgresError(
                error.sqlstate,
                f'could not follow what the publisher changed in table "{self._plain_name}": {error.message}',
                detail=error.detail,
                hint=f"ALTER TABLE {self._quoted_name} {text};",
            ) from error
        self.done.append(f'table "{self._plain_name}": {text}')
