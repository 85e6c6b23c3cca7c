"""Tables that follow what their publisher does to its own: `schema_evolution`, add_columns or follow.

`evolve` is called by the apply worker and the table syncs before they apply what needs it, in a transaction of its own, with the rights of
the subscription's owner. The stream says which columns there are and no more; what has become of which is told by the publisher's catalog,
by the number of the column, against what it was when it was last looked at (`catalog.replication.subscription_column`). The catalog may be
ahead of the stream: nothing is renamed or dropped as long as the stream has the old name.

What must hold: a change that cannot be followed raises, with the statement for a person to type; nothing differs in silence. A column that
is added has in the rows that are here what they have there, where the publisher's catalog says it (a default that is a constant). Where
the publisher has anything else (the column had been there, and was added to a list; its default is no constant), the rows are counted and
the table is asked to be reconciled (`subscription_resync`), which fills them; where it cannot be (two_phase), that is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

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
from headgate.sql import statement
from headgate.sql.names import qualified, quote_ident
from headgate.sql.parser import ParseNode
from headgate.subscriber.apply.evolution import Told
from headgate.subscriber.host import Jobs
from headgate.types import registry
from headgate.walreceiver import definition
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.definition import DefinedColumn, Definitions, RemoteTable
from headgate.walreceiver.remote import PublishedTable, as_text

_log = logging.getLogger("headgate.subscriber")


def evolve(node: NodeParts, subscription: Subscription, told: Sequence[Told], stopping: Callable[[], None], jobs: Jobs) -> None:
    """Has the tables here follow those of the publisher."""
    with PublisherConnection.open(subscription.conninfo, subscription.name) as connection:
        remote = definition.read(connection, [PublishedTable(each.schema, each.name) for each in told])
    warnings: list[str] = []
    done: list[str] = []
    with acting(node, subscription, stopping, jobs) as session:
        types = Types(session, remote.types, remote.schemas, done.append)
        for each in told:
            table = relations.lookup(session.transaction.cursor, subscription.database, each.schema, each.name)
            if table is not None:
                follower = _Follower(session, subscription, remote, types, each, table)
                follower.run()
                done += follower.done
                warnings += follower.warnings
    node.launcher.wake()  # for tables that are to be reconciled
    for line in done:
        _log.info('subscription "%s": %s', subscription.name, line)
    for line in warnings:
        _log.warning('subscription "%s": %s', subscription.name, line)


@dataclass
class _Follower:
    """One table."""

    session: OwnerSession
    subscription: Subscription
    definitions: Definitions
    types: Types
    told: Told
    local: Relation
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def _now(self) -> Relation:
        """The table as it is by now."""
        return relations.get(self.session.transaction.cursor, self.subscription.database, self.local.oid)

    @property
    def _whole(self) -> Relation:
        """The table whose columns these are: of a partition the topmost that it is part of."""
        above = relations.ancestors(self.session.transaction.cursor, self.subscription.database, self.local.oid)
        return relations.get(self.session.transaction.cursor, self.subscription.database, above[-1]) if above else self._now

    def run(self) -> None:
        """Brings the table to what was told."""
        self._add_labels()
        remote = self.definitions.named.get((self.told.schema, self.told.name))
        cursor, oid = self.session.transaction.cursor, self.local.oid
        known = subscription_column.of_table(cursor, self.subscription.oid, oid) or followed(remote, self.local, self.types)
        there = {each.attnum: each for each in (remote.columns if remote is not None else ())}
        if self.subscription.schema_evolution == "follow" and self.told.whole and remote is not None:
            names = self._interim_names(known, there)
            known = [self._follow(each, there.get(each.attnum), names.get(each.attnum)) for each in known]
        known += self._added(known, remote)
        subscription_column.write(cursor, self.subscription.database, self.subscription.oid, oid, known)

    def _add_labels(self) -> None:
        for each in self.definitions.types.values():
            if each.kind == "e":
                added = self.types.add_labels(each)
                if added:
                    self.done.append(f'added to type "{each.schema}.{each.name}": {", ".join(added)}')

    # ---- what is known already --------------------------------------------------------------------------

    def _interim_names(self, known: Sequence[FollowedColumn], there: dict[int, DefinedColumn]) -> dict[int, str]:
        """What the stream calls columns that had one name before, and have another by now: by their order and type, where both fit."""
        sent = {name for name, _, _ in self.told.columns}
        mine = [each for each in known if not each.dropped and each.name not in sent]
        mine = [each for each in mine if each.attnum not in there or there[each.attnum].dropped or there[each.attnum].name not in sent]
        taken = {each.name for each in known} | {name for each in known for name in each.former} | {each.name for each in there.values()}
        extra = [(name, oid) for name, oid, _ in self.told.columns if name not in taken]
        if len(mine) > len(extra):  # some have gone: those that fit are told by their type alone
            mine = [each for each in mine if each.attnum in there and not there[each.attnum].dropped]
        if len(mine) > len(extra):
            return {}
        pairs = [(each, found) for each, found in zip(mine, extra, strict=False) if each.type_oid == found[1]]
        return {each.attnum: found[0] for each, found in pairs}

    def _follow(self, before: FollowedColumn, now: DefinedColumn | None, interim: str | None) -> FollowedColumn:
        sent = {name: (oid, typmod) for name, oid, typmod in self.told.columns}
        here = {each.name for each in self._now.columns}
        if before.dropped or before.name not in here:  # somebody has done here what was done there
            name = interim or (now.name if now is not None else "")
            if now is None or now.dropped:
                return replace(before, dropped=True)
            return replace(before, name=name, former=(*before.former, before.name)) if name in here else before
        if interim is not None:
            return self._rename(before, interim)
        if now is None or now.dropped:
            return self._drop(before) if before.name not in sent or self._is_another(before, sent[before.name]) else before
        if now.name != before.name:
            if now.name not in sent or before.name in sent:
                return before  # the stream is not there yet
            before = self._rename(before, now.name)
        if sent.get(now.name) != (now.type_oid, now.typmod):
            return before
        if (now.type_oid, now.typmod) != (before.type_oid, before.typmod):
            before = self._change_type(before, now)
        if now.not_null != before.not_null and not before.unfilled:
            before = self._change_not_null(before, now)
        if now.default != before.default:
            before = self._change_default(before, now)
        return before

    def _is_another(self, gone: FollowedColumn, sent: tuple[int, int]) -> bool:
        """Whether the column that the stream calls as one that has gone is a later one of the same name."""
        remote = self.definitions.named[self.told.schema, self.told.name]
        if not any(each.name == gone.name and (each.type_oid, each.typmod) == sent for each in remote.live):
            return False
        is_current = {each.name for each in remote.live if not each.generated} == {name for name, _, _ in self.told.columns}
        return is_current or (gone.type_oid, gone.typmod) != sent

    def _drop(self, column: FollowedColumn) -> FollowedColumn:
        self._alter([statement.command(pb.AT_DropColumn, name=column.name)], f"DROP COLUMN {quote_ident(column.name)}")
        return replace(column, dropped=True, unfilled=0)

    def _rename(self, column: FollowedColumn, name: str) -> FollowedColumn:
        whole = self._whole
        made = statement.rename_column(whole.schema, whole.name, column.name, name)
        self._run([made], f"RENAME COLUMN {quote_ident(column.name)} TO {quote_ident(name)}")
        former = (*(each for each in column.former if each != name), column.name)
        return replace(column, name=name, former=former)

    def _change_type(self, before: FollowedColumn, now: DefinedColumn) -> FollowedColumn:
        kind, after = self.types.of_column(now), kept(now, self.types)
        after = replace(after, former=before.former, unfilled=before.unfilled, not_null=before.not_null, default=before.default)
        if not kind.exact and before.local_type is not None:
            return after
        column = quote_ident(now.name)
        text = f"ALTER COLUMN {column} TYPE {now.shown if kind.exact else 'text'} USING … (an expression with {column})"
        self._alter([statement.change_type(now.name, kind.name)], text)
        return after

    def _change_not_null(self, before: FollowedColumn, now: DefinedColumn) -> FollowedColumn:
        kind, word = (pb.AT_SetNotNull, "SET") if now.not_null else (pb.AT_DropNotNull, "DROP")
        self._alter([statement.command(kind, name=now.name)], f"ALTER COLUMN {quote_ident(now.name)} {word} NOT NULL")
        return replace(before, not_null=now.not_null)

    def _change_default(self, before: FollowedColumn, now: DefinedColumn) -> FollowedColumn:
        self._set_default(now, self.types.of_column(now))
        return replace(before, default=now.default)

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
        """Adds the columns that were told and are not here."""
        here = {each.name for each in self._now.columns}
        former = {name for each in known for name in (each.name, *each.former)}
        unknown = [each for each in (remote.live if remote is not None else ()) if each.attnum not in {one.attnum for one in known}]
        sent = {name for name, _, _ in self.told.columns}
        added = []
        for name, type_oid, typmod in self.told.columns:
            found = next((each for each in unknown if each.name == name), None)
            if name in here or (name in former and found is None):
                if found is not None:  # somebody has added it, or it came with another partition
                    added.append(kept(found, self.types))
                continue
            if found is None:  # it has another name by now
                alike = [each for each in unknown if each.name not in sent and (each.type_oid, each.typmod) == (type_oid, typmod)]
                found = replace(alike[0], name=name) if len(alike) == 1 else self._as_told(name, type_oid, typmod)
            unknown = [each for each in unknown if each.attnum != found.attnum]
            added.append(self._add(found))
        return added

    def _as_told(self, name: str, type_oid: int, typmod: int) -> DefinedColumn:
        """A column of which the publisher's catalog knows nothing any more."""
        builtin = registry.builtin().find(type_oid)
        if builtin is None:
            raise PostgresError(
                "55000",
                f'publisher sends column "{name}" of table "{self._shown}", whose type it does not tell any more',
                hint=f"ALTER TABLE {self._quoted} ADD COLUMN {quote_ident(name)} …",
            )
        self.definitions.types.setdefault(
            type_oid, definition.RemoteType(type_oid, "pg_catalog", builtin.name, "b", 0, 0, -1, "", "", False, None)
        )
        return DefinedColumn(-1, name, type_oid, typmod, registry.builtin().format_type(type_oid, typmod), False, "", False, None, False)

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
        lacking = rows if rows and self._has_others(column) else 0
        not_null = column.not_null and not (rows and column.added_with is None)
        if not_null:
            words.append(statement.constraint(pb.CONSTR_NOTNULL))
        definition_node = statement.column(column.name, kind.name, words)
        text = f"ADD COLUMN {quote_ident(column.name)} {column.shown if kind.exact else 'text'}"
        self._alter([statement.command(pb.AT_AddColumn, **{"def": definition_node})], text)
        if not kind.exact:
            self.warnings.append(f'table "{self._shown}": column "{column.name}" of type {column.shown} is text here')
        if column.default is not None or column.added_with is not None:
            self._set_default(column, kind)
        if lacking:
            self._have_filled(column, lacking)
        return replace(kept(column, self.types), unfilled=lacking, not_null=not_null)

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
        """Has the rows that were here before a column get what the publisher has in it."""
        cursor, subscription = self.session.transaction.cursor, self.subscription
        table = f'table "{self._shown}"'
        state = subscriptions.table(cursor, subscription.oid, self.local.oid)
        if state is None or subscription.two_phase == "e":
            self.warnings.append(
                f'{table}: column "{column.name}" is not filled in the {rows} rows that were here before it; the publisher has values'
            )
        elif state.state not in {SyncState.INIT, SyncState.DATASYNC}:  # else a copy that has yet to begin brings them
            subscription_resync.request(cursor, subscription.database, subscription.oid, self.local.oid, Method.DIFFERENCE)
            self.done.append(f'{table}: the {rows} rows that were here before column "{column.name}" are filled from the publisher')

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
