"""Tables that follow what their publisher does to its own: `schema_evolution`, add_columns or follow.

`evolve` is called by the apply worker and the table syncs before they apply what needs it, in a transaction of its own, with the rights of
the subscription's owner. A column is known by the publisher's attribute number. A table sync reads the publisher's catalog, with the
numbers, under the snapshot of its slot, so that the table has exactly the columns of the place in the log from which it is copied and
followed. The stream has names and types only: the publisher's catalog of now and the columns as they were before
(`catalog.replication.subscription_column`) tell the numbers (`column_identity`). Where they do not, the table is left as it is and is
synchronized again (`Evolved.unclear`); with two_phase, which has no second synchronization, the likeliest numbers are taken.

The catalog may be ahead of the stream: the names and types that are followed are the stream's. NOT NULL is in the catalog alone: it is
dropped at once, and set when the stream has been applied as far as the catalog was when it was read (`Evolved.pending`). The publisher may
have set it later than that: the applier then has it dropped when a row with NULL comes (`Told.nullable`), and it is set again later.

What must hold: a change that cannot be followed raises, with the statement for a person to type; nothing differs in silence. A column that
is added has in the rows that are here what they have there, where the publisher's catalog says it (a default that is a constant). Where
the publisher has anything else (the column had been there, and was added to a list; its default is no constant), the rows are counted and
the table is asked to be reconciled (`subscription_resync`), which fills them; where it cannot be (two_phase), that is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

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
from headgate.commands.subscription.column_identity import Listed, identify
from headgate.commands.subscription.create_tables import default_of, followed, kept
from headgate.commands.subscription.remote_type import LocalType, Types
from headgate.commands.transaction.subtransaction import attempt
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.sql import statement
from headgate.sql.names import qualified, quote_ident
from headgate.sql.parser import ParseNode
from headgate.subscriber.apply.evolution import Evolved, Told
from headgate.subscriber.host import Jobs
from headgate.types import registry
from headgate.walreceiver import definition
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.definition import DefinedColumn, Definitions, RemoteTable
from headgate.walreceiver.remote import PublishedTable, as_text

_log = logging.getLogger("headgate.subscriber")


def evolve(
    node: NodeParts,
    subscription: Subscription,
    told: Sequence[Told],
    stopping: Callable[[], None],
    jobs: Jobs,
    *,
    catalog: Definitions | None,
) -> Evolved:
    """Has the tables here follow those of the publisher; `catalog` as in `Evolve`."""
    position, remote = (INVALID, catalog) if catalog is not None else _read(subscription, told)
    unclear: set[int] = set()
    warnings: list[str] = []
    done: list[str] = []
    numbers: list[tuple[int | None, ...]] = []
    pending: list[Told] = []
    with acting(node, subscription, stopping, jobs) as session:
        types = Types(session, remote.types, remote.schemas, done.append)
        for each in told:
            table = relations.lookup(session.transaction.cursor, subscription.database, each.schema, each.name)
            if table is None or table.oid in unclear:
                numbers.append(())
                continue
            follower = _Follower(session, subscription, remote, types, each, table)
            numbers.append(follower.run())
            if follower.is_unclear:
                unclear.add(table.oid)
                continue
            done += follower.done
            warnings += follower.warnings
            pending = [other for other in pending if (other.schema, other.name) != (each.schema, each.name)]
            pending += [Told(each.schema, each.name, relation=each.relation, altered=False)] if follower.pending else []
    node.launcher.wake()  # for tables that are to be reconciled
    for line in done:
        _log.info('subscription "%s": %s', subscription.name, line)
    for line in warnings:
        _log.warning('subscription "%s": %s', subscription.name, line)
    return Evolved(tuple(numbers), tuple(pending), position, frozenset(unclear))


def _read(subscription: Subscription, told: Sequence[Told]) -> tuple[Lsn, Definitions]:
    """Return the end of the publisher's log, and its catalog after that."""
    with PublisherConnection.open(subscription.conninfo, subscription.name) as connection:
        position = connection.identify_system().position
        return position, definition.read(connection, [PublishedTable(table.schema, table.name) for table in told], told_types(told))


def told_types(told: Sequence[Told]) -> set[int]:
    """The types of the columns that were told."""
    return {type_oid for each in told for _, type_oid, _ in each.columns if type_oid}


@dataclass
class _Follower:
    """One table. `pending`: a column is to be NOT NULL once the stream is as far as the publisher's catalog."""

    session: OwnerSession
    subscription: Subscription
    definitions: Definitions
    types: Types
    told: Told
    local: Relation
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    pending: bool = False
    is_unclear: bool = False
    """Whether the table is left as it is, to be synchronized again."""

    @property
    def _now(self) -> Relation:
        """The table as it is by now."""
        return relations.get(self.session.transaction.cursor, self.subscription.database, self.local.oid)

    @property
    def _whole(self) -> Relation:
        """The table whose columns these are: of a partition the topmost that it is part of."""
        above = relations.ancestors(self.session.transaction.cursor, self.subscription.database, self.local.oid)
        return relations.get(self.session.transaction.cursor, self.subscription.database, above[-1]) if above else self._now

    def run(self) -> tuple[int | None, ...]:
        """Brings the table to what was told; the publisher's numbers of the columns that were told."""
        self._add_labels()
        remote = self.definitions.named.get((self.told.schema, self.told.name))
        cursor, oid = self.session.transaction.cursor, self.local.oid
        known = before = subscription_column.of_table(cursor, self.subscription.oid, oid)
        if remote is not None and any(column.relation not in (0, remote.oid) for column in known):
            known = []  # the publisher has dropped the table and made another of the name: its columns are matched by name, as at first
        known = known or followed(remote, self.local, self.types)
        numbers: Sequence[int | None] = [None] * len(self.told.columns)
        if self.subscription.schema_evolution == "follow" and remote is not None and self.told.relation in (0, remote.oid):
            there = {column.attnum: column for column in remote.columns}
            if self.told.altered:
                numbers = self.told.numbers if self.told.numbers is not None else self._identified(known, remote)
                if self.is_unclear:
                    return ()
                known = self._follow(known, there, numbers)
            else:
                known = [self._settled(column, there.get(column.attnum)) for column in known]
        elif self.told.altered:
            known = [*known, *self._added(known, remote)]
        if remote is not None:
            known = [replace(column, relation=remote.oid) for column in known]
        if known != before:
            subscription_column.write(cursor, self.subscription.database, self.subscription.oid, oid, known)
        return tuple(numbers)

    def _add_labels(self) -> None:
        for each in self.definitions.types.values():
            if each.kind == "e":
                added = self.types.add_labels(each)
                if added:
                    self.done.append(f'added to type "{each.schema}.{each.name}": {", ".join(added)}')

    # ---- follow -----------------------------------------------------------------------------------------

    def _identified(self, known: Sequence[FollowedColumn], remote: RemoteTable) -> tuple[int | None, ...]:
        """Return the numbers of the columns that were told, or note that they cannot be told."""
        found = identify(self.told.columns, known, remote.columns)
        if not found.is_certain:
            is_in_subscription = subscriptions.table(self.session.transaction.cursor, self.subscription.oid, self.local.oid) is not None
            if is_in_subscription and self.subscription.two_phase != "e":
                self.is_unclear = True
            else:
                self.warnings.append(f'table "{self._shown}": which columns were altered how is not certain')
        return found.numbers

    def _follow(
        self, known: Sequence[FollowedColumn], there: dict[int, DefinedColumn], numbers: Sequence[int | None]
    ) -> list[FollowedColumn]:
        """Drops, renames, changes and adds columns; `numbers` are those of the columns that were told."""
        told = {number: column for number, column in zip(numbers, self.told.columns, strict=True) if number is not None}
        mine = self._renamed([self._kept_or_dropped(column, there.get(column.attnum), told) for column in known], told)
        here, numbered = {column.name for column in self._now.columns}, {column.attnum for column in known}
        found = [
            self._changed(column, there.get(column.attnum), told[column.attnum])
            if column.name in here and self._is_here(column, told) else column
            for column in mine
        ]  # fmt: skip
        for number, column in zip(numbers, self.told.columns, strict=True):
            if number is not None and number in numbered:
                continue
            now = None if number is None else there.get(number)
            added = self._described(column, number, now)
            if column[0] not in here:
                found.append(self._settled(self._add(added), now))
            elif number is not None:  # somebody has added it, or it came with another partition
                found.append(kept(added, self.types))
        return found

    @staticmethod
    def _is_here(column: FollowedColumn, told: dict[int, Listed]) -> bool:
        return not column.dropped and column.attnum in told

    def _kept_or_dropped(self, column: FollowedColumn, now: DefinedColumn | None, told: dict[int, Listed]) -> FollowedColumn:
        """The column; dropped if the stream does not have it any more and the publisher has dropped it."""
        if column.dropped or column.attnum in told or not (now is None or now.dropped):
            return column
        if all(local.name != column.name for local in self._now.columns):
            return replace(column, dropped=True)
        self._alter([statement.command(pb.AT_DropColumn, name=column.name)], f"DROP COLUMN {quote_ident(column.name)}")
        return replace(column, dropped=True, unfilled=0)

    def _renamed(self, known: Sequence[FollowedColumn], told: dict[int, Listed]) -> list[FollowedColumn]:
        """The columns with the names that they have in the stream. If columns exchange their names, one gets another name in between."""
        mine = [column for column in known if self._is_here(column, told)]
        wanted = {column.name: told[column.attnum][0] for column in mine if told[column.attnum][0] != column.name}
        here = {local.name for local in self._now.columns}
        waiting = {old: new for old, new in wanted.items() if old in here}
        while waiting:
            taken = {local.name for local in self._now.columns}
            old, new = next(((old, new) for old, new in waiting.items() if new not in taken), next(iter(waiting.items())))
            if new in taken and new in waiting:
                between = next(name for number in count() if (name := f"headgate_renamed_{number}") not in taken)
                self._rename(old, between)
                waiting[between] = waiting.pop(old)
                continue
            self._rename(old, new)
            del waiting[old]
        renamed = {old for old, new in wanted.items() if old in here or new in here}  # or somebody has renamed it here
        return [
            replace(column, name=wanted[column.name]) if column.name in renamed and self._is_here(column, told) else column
            for column in known
        ]  # fmt: skip

    def _rename(self, old: str, new: str) -> None:
        whole = self._whole
        self._run([statement.rename_column(whole.schema, whole.name, old, new)], f"RENAME COLUMN {quote_ident(old)} TO {quote_ident(new)}")

    def _described(self, told: Listed, number: int | None, now: DefinedColumn | None) -> DefinedColumn:
        """A column as the stream has it: the catalog's, if that has the same type."""
        name, type_oid, typmod = told
        if now is not None and not now.dropped and (now.type_oid, now.typmod) == (type_oid, typmod):
            return replace(now, name=name)
        return replace(self._as_told(name, type_oid, typmod), attnum=-1 if number is None else number)

    def _changed(self, before: FollowedColumn, now: DefinedColumn | None, told: Listed) -> FollowedColumn:
        """The column with its type, NOT NULL and default."""
        if told[1:] != (before.type_oid, before.typmod):
            before = self._change_type(before, self._described(told, before.attnum, now))
        return self._settled(before, now)

    def _settled(self, column: FollowedColumn, now: DefinedColumn | None) -> FollowedColumn:
        """The column with its NOT NULL and default, if the catalog has the column as the stream does; notes what is pending.

        The stream may have to be applied further before the column can be NOT NULL: rows from before may have NULL in it.
        """
        if column.dropped:
            return column
        if column.not_null and column.name in self.told.nullable:
            column = self._drop_not_null(column)
        elif now is not None and (now.name, now.type_oid, now.typmod) == (column.name, column.type_oid, column.typmod):
            if column.not_null and not now.not_null:
                column = self._drop_not_null(column)
            is_applied = self.told.numbers is not None or not self.told.altered
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
        """The default that the publisher has now; none where it is not known here: the stream brings every value."""
        expression = default_of(column, kind) if column.default is not None else None
        if expression is not None:
            made = statement.command(pb.AT_ColumnDefault, name=column.name, **{"def": expression})
            if self._attempt([made]) is None:
                self.done.append(f'table "{self._shown}": default of column "{column.name}" set')
                return
        error = self._attempt([statement.command(pb.AT_ColumnDefault, name=column.name)])
        if error is None and column.default is not None:
            self.warnings.append(f'table "{self._shown}": the default of column "{column.name}" is not known here, it has none')

    # ---- what is new ------------------------------------------------------------------------------------

    def _added(self, known: Sequence[FollowedColumn], remote: RemoteTable | None) -> list[FollowedColumn]:
        """Adds the columns that were told and are not here, by name."""
        here = {column.name for column in self._now.columns}
        numbered = {column.attnum for column in known}
        unknown = {column.name: column for column in (remote.live if remote is not None else ()) if column.attnum not in numbered}
        added = []
        for name, type_oid, typmod in self.told.columns:
            column = unknown.get(name)
            if name not in here:
                added.append(self._add(column or self._as_told(name, type_oid, typmod)))
            elif column is not None:  # somebody has added it, or it came with another partition
                added.append(kept(column, self.types))
        return added

    def _as_told(self, name: str, type_oid: int, typmod: int) -> DefinedColumn:
        """A column of which the publisher's catalog knows nothing any more."""
        if not type_oid:
            raise PostgresError(
                "55000",
                f'publisher has no column "{name}" in table "{self._shown}" any more',
                hint=f"ALTER TABLE {self._quoted} ADD COLUMN {quote_ident(name)} …",
            )
        known = registry.builtin().find(type_oid)
        if type_oid not in self.definitions.types:
            # a type of users that is gone: text takes every value
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
                f'column "{column.name}" of table "{self._shown}" would be text here, and the publisher sends it in binary form',
                hint=f"ALTER SUBSCRIPTION {quote_ident(self.subscription.name)} SET (binary = false);",
            )
        rows = self._rows()
        words = []
        if column.added_with is not None:
            value = pb.Node(a_const=pb.A_Const(sval=pb.String(sval=column.added_with), location=-1))
            words.append(statement.constraint(pb.CONSTR_DEFAULT, raw_expr=value))
        lacking = rows if self.told.numbers is None and rows and self._has_others(column) else 0  # a table sync fills them
        definition_node = statement.column(column.name, kind.name, words)
        text = f"ADD COLUMN {quote_ident(column.name)} {column.shown if kind.exact else 'text'}"
        self._alter([statement.command(pb.AT_AddColumn, **{"def": definition_node})], text)
        if not kind.exact:
            self.warnings.append(f'table "{self._shown}": column "{column.name}" of type {column.shown} is text here')
        if column.default is not None or column.added_with is not None:
            self._set_default(column, kind)
        if lacking:
            self._have_filled(column, lacking)
        return replace(kept(column, self.types), unfilled=lacking, not_null=False)

    def _has_others(self, column: DefinedColumn) -> bool:
        """Whether the publisher has other values of a column than the rows here get, whatever its filters let through."""
        if column.added_with is None and (column.default is not None or column.identity):
            return True
        given = "NULL" if column.added_with is None else literal(column.added_with)
        table = qualified(self.told.schema, self.told.name)
        asked = f"SELECT 1 FROM {table} WHERE {as_text(column.name, column.type_oid)} IS DISTINCT FROM {given} LIMIT 1"
        with PublisherConnection.open(self.subscription.conninfo, self.subscription.name) as connection:
            return bool(connection.query(asked)) if self._is_there(connection, column) else True

    def _is_there(self, connection: PublisherConnection, column: DefinedColumn) -> bool:
        """Whether the column has the name still that the stream has for it."""
        name = literal(qualified(self.told.schema, self.told.name))
        asked = f"SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = {name}::regclass AND attname = {literal(column.name)}"
        return bool(connection.query(f"{asked} AND NOT attisdropped"))

    def _have_filled(self, column: DefinedColumn, rows: int) -> None:
        """Has the rows that were here before a column get what the publisher has in it; warns if the table cannot be reconciled."""
        cursor, subscription = self.session.transaction.cursor, self.subscription
        state = subscriptions.table(cursor, subscription.oid, self.local.oid)
        rest = f'the {rows} rows that were here before column "{column.name}" are'
        if state is None or subscription.two_phase == "e":
            self.warnings.append(f'table "{self._shown}": {rest} not filled; the publisher has values')
        elif state.state not in {SyncState.INIT, SyncState.DATASYNC}:  # else a copy that has yet to begin brings them
            subscription_resync.request(cursor, subscription.database, subscription.oid, self.local.oid, Method.DIFFERENCE)
            self.done.append(f'table "{self._shown}": {rest} filled from the publisher')

    def _rows(self) -> int:
        transaction, table = self.session.transaction, self._whole
        held = transaction.held(table) if table.kind == RelationKind.TABLE else None
        return held.num_rows if held is not None else int(transaction.frame(table).count())

    # ---- statements -------------------------------------------------------------------------------------

    @property
    def _shown(self) -> str:
        return f"{self.local.schema}.{self.local.name}"

    @property
    def _quoted(self) -> str:
        whole = self._whole
        return qualified(whole.schema, whole.name)

    def _attempt(self, commands: Sequence[pb.AlterTableCmd]) -> PostgresError | None:
        whole = self._whole
        return attempt(self.session, [statement.alter_table(whole.schema, whole.name, commands)])

    def _alter(self, commands: Sequence[pb.AlterTableCmd], text: str) -> None:
        whole = self._whole
        self._run([statement.alter_table(whole.schema, whole.name, commands)], text)

    def _run(self, nodes: Sequence[ParseNode], text: str) -> None:
        """Runs statements; what fails is for a person to do: `text` is what to type behind ALTER TABLE."""
        error = attempt(self.session, nodes)
        if error is not None:
            raise PostgresError(
                error.sqlstate,
                f'could not follow what the publisher changed in table "{self._shown}": {error.message}',
                detail=error.detail,
                hint=f"ALTER TABLE {self._quoted} {text};",
            ) from error
        self.done.append(f'table "{self._shown}": {text}')
