"""CREATE, ALTER and DROP SUBSCRIPTION (manual, CREATE SUBSCRIPTION).

`subscription_tables` queries the publisher. The order of checks is that of PostgreSQL's
subscriptioncmds.c. A rejected command leaves nothing behind: catalog rows belong to the transaction, and the slot on the publisher is
created last. The options are those of PostgreSQL 15, origin, run_as_owner, password_required and failover of 16 and 17, and headgate's own
create_tables, schema_evolution, history and copy_data = reconcile (docs/compatibility.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_history, subscription_resync
from headgate.catalog.replication.subscription import COPIED, Subscription, SyncState
from headgate.catalog.replication.subscription_resync import Method
from headgate.commands import privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.subscription import history_tables, subscription_tables
from headgate.commands.subscription.publisher_session import connected
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.publisher.slots import check_name
from headgate.sql import names
from headgate.sql.options import Option, conflicting, options
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.advice import on_publisher
from headgate.walreceiver import remote
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.link import check_conninfo

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.subscriber.worker_registry import WorkerRegistry

CREATABLE = {
    "connect",
    "enabled",
    "create_slot",
    "slot_name",
    "copy_data",
    "synchronous_commit",
    "binary",
    "streaming",
    "two_phase",
    "disable_on_error",
    "origin",
    "run_as_owner",
    "password_required",
    "failover",
    "create_tables",
    "schema_evolution",
    "history",
}
LATER = ("origin", "run_as_owner", "password_required", "failover", "create_tables", "schema_evolution", "history")
"""Options that PostgreSQL 15 does not have."""
ALTERABLE = {"slot_name", "synchronous_commit", "binary", "streaming", "disable_on_error", *LATER}
_COMMITS = {"local", "remote_write", "remote_apply", "on", "off", "true", "false", "yes", "no", "1", "0"}


@dataclass
class SubscriptionOptions:
    """The values of the options, specified or default. `given` has the names of the specified ones."""

    connect: bool = True
    enabled: bool = True
    create_slot: bool = True
    slot_name: str | None = None
    copy_data: bool = True
    copies_difference: bool = False
    """copy_data = reconcile: tables that are added already have rows, of which only those that differ are copied."""
    refresh: bool = True
    reconcile: bool = False
    synchronous_commit: str = "off"
    binary: bool = False
    streaming: bool = False
    two_phase: bool = False
    disable_on_error: bool = False
    origin: str = "any"
    run_as_owner: bool = True
    password_required: bool = True
    failover: bool = False
    create_tables: bool = False
    schema_evolution: str = "none"
    history: str = subscription_history.NONE
    lsn: Lsn | None = None
    given: set[str] = field(default_factory=set)


def read_options(nodes: Iterable[pb.Node], supported: set[str]) -> SubscriptionOptions:
    """Read the options of a command that supports `supported`. Raise 42601 for other options and for duplicates."""
    subscription_options = SubscriptionOptions()
    for option in options(nodes):
        if option.name not in supported:
            raise PostgresError("42601", f'unrecognized subscription parameter: "{option.name}"')
        if option.name in subscription_options.given:
            raise conflicting(option)
        subscription_options.given.add(option.name)
        if option.name == "copy_data" and (option.value or "").lower() == "reconcile":
            subscription_options.copies_difference = True
            continue
        setattr(subscription_options, option.name, _option_value(option))
    return subscription_options


def _option_value(option: Option) -> str | bool | Lsn | None:
    if option.name == "slot_name":
        name = option.text()
        if name == "none":
            return None
        check_name(name)
        return name
    if option.name == "synchronous_commit":
        text = option.text()
        if text.lower() not in _COMMITS:
            raise PostgresError(
                "22023",
                f'invalid value for parameter "synchronous_commit": "{text}"',
                hint="Available values: local, remote_write, remote_apply, on, off.",
            )
        return text
    if option.name == "origin":
        text = option.text()
        if text.lower() not in ("none", "any"):
            raise PostgresError("22023", f'unrecognized origin value: "{text}"')
        return text.lower()
    if option.name == "schema_evolution":
        text = option.text()
        if text.lower() not in ("none", "add_columns", "follow"):
            raise PostgresError(
                "22023", f'invalid value for parameter "schema_evolution": "{text}"', hint="Available values: none, add_columns, follow."
            )
        return text.lower()
    if option.name == "history":
        return _option_history(option)
    if option.name == "lsn":
        text = option.text()
        if text == "none":
            return None
        lsn = Lsn.parse(text)
        if not lsn:
            raise PostgresError("22023", f"invalid WAL location (LSN): {lsn}")
        return lsn
    if option.name == "streaming":
        return _option_streaming(option)
    return option.boolean()


def _option_history(option: Option) -> str:
    """Return the tables whose changes are recorded: all, none, or a list of names. Raise 22023 for an invalid value."""
    try:
        return subscription_history.ALL if option.boolean() else subscription_history.NONE
    except PostgresError:
        text = option.text()
    if subscription_history.named(text) is None:
        hint = "Give true, false, or the names of tables, separated by commas."
        raise PostgresError("22023", f'invalid value for parameter "history": "{text}"', hint=hint)
    return text


def _option_streaming(option: Option) -> bool:
    """Return whether large transactions are streamed. `parallel` (PostgreSQL 16; the default in 18) counts as on."""
    if option.value is not None and option.value.lower() == "parallel":
        return True
    try:
        return option.boolean()
    except PostgresError as error:
        raise PostgresError("42601", f'{option.name} requires a Boolean value or "parallel"') from error


def check_exclusive(options: SubscriptionOptions) -> None:
    """Raise 42601 for options of CREATE SUBSCRIPTION that exclude each other. With connect = false, three defaults become false."""

    def exclusive(first: str, second: str) -> PostgresError:
        return PostgresError("42601", f"{first} and {second} are mutually exclusive options")

    if not options.connect:
        for name in ("enabled", "create_slot", "copy_data"):
            if name in options.given and getattr(options, name):
                raise exclusive("connect = false", f"{name} = true")
        options.enabled = options.create_slot = options.copy_data = False
    if "slot_name" in options.given and options.slot_name is None:
        for name in ("enabled", "create_slot"):
            if getattr(options, name):
                if name in options.given:
                    raise exclusive("slot_name = NONE", f"{name} = true")
                raise PostgresError("42601", f"subscription with slot_name = NONE must also set {name} = false")


NOT_SUBSCRIBED = "tables were not subscribed, you will have to run ALTER SUBSCRIPTION ... REFRESH PUBLICATION to subscribe the tables"


def create(node: pb.CreateSubscriptionStmt, session: Session) -> CommandResult:
    options = read_options(node.options, CREATABLE)
    check_exclusive(options)
    if options.create_slot:
        session.prevent_in_block("CREATE SUBSCRIPTION ... WITH (create_slot = true)")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    if not privilege.is_superuser(cursor, context.user):
        raise PostgresError("42501", "must be superuser to create subscriptions")
    if subscriptions.lookup(cursor, context.database, node.subname) is not None:
        raise PostgresError("42710", f'subscription "{node.subname}" already exists')
    check_conninfo(node.conninfo)
    publications = names.strings(node.publication)
    _refuse_repeated(publications)
    slot = options.slot_name if "slot_name" in options.given else node.subname
    subscription = Subscription(
        transaction.catalog.next_oid(),
        context.database,
        node.subname,
        privilege.used_role(cursor, context.user),
        node.conninfo,
        tuple(publications),
        enabled=options.enabled,
        slot_name=slot,
        binary=options.binary,
        stream=options.streaming,
        two_phase="p" if options.two_phase else "d",
        disable_on_error=options.disable_on_error,
        synchronous_commit=options.synchronous_commit,
        **{name: getattr(options, name) for name in LATER},
    )
    subscriptions.create(cursor, subscription)
    origins.create(cursor, f"pg_{subscription.oid}")
    if options.connect:
        _connect_and_add(session, transaction, subscription, options)
        history_tables.check(cursor, subscription)
    else:
        session.notices.warning(NOT_SUBSCRIBED)
    if options.enabled:
        session.after_commit(session.parts.workers.wake)
    return CommandResult("CREATE SUBSCRIPTION")


def _connect_and_add(session: Session, transaction: Transaction, subscription: Subscription, options: SubscriptionOptions) -> None:
    with _connect(session, subscription) as connection:
        warn_missing(session, connection, subscription.publications)
        state = SyncState.INIT if options.copy_data else SyncState.READY
        added = subscription_tables.add_all(session, transaction, connection, subscription, state)
        if options.copies_difference:
            subscription_tables.copy_differences(transaction.cursor, subscription)
        if not options.create_slot:
            return
        assert subscription.slot_name is not None
        two_phase = options.two_phase and not options.copy_data and added
        connection.create_slot(subscription.slot_name, snapshot="nothing", two_phase=bool(two_phase), failover=options.failover)
        if two_phase:
            subscriptions.change(transaction.cursor, subscription.oid, two_phase="e")
        session.notices.notice(f'created replication slot "{subscription.slot_name}" on publisher')


@contextlib.contextmanager
def _connect(session: Session, subscription: Subscription) -> Iterator[PublisherConnection]:
    """Connect to the publisher. The HINT of its errors is the statement that fixes them there, if there is one."""
    try:
        with connected(session, subscription) as connection:
            yield connection
    except PostgresError as error:
        error.hint = error.hint or on_publisher(error, subscription.name, subscription.conninfo)
        raise


def warn_missing(session: Session, connection: PublisherConnection, publications: Iterable[str]) -> None:
    missing = remote.missing_publications(connection, list(publications))
    if missing:
        session.notices.warning(remote.missing_text(missing), sqlstate="42704")


def _refuse_repeated(publications: list[str]) -> None:
    used_names: set[str] = set()
    for name in publications:
        if name in used_names:
            raise PostgresError("42710", f'publication name "{name}" used more than once')
        used_names.add(name)


def _find_owned(session: Session, transaction: Transaction, name: str) -> Subscription:
    cursor, context = transaction.cursor, session.context
    subscription = subscriptions.get(cursor, context.database, name)
    privilege.check_owner(cursor, context.user, subscription.owner, "subscription", subscription.name)
    transaction.catalog.lock_object("pg_subscription", subscription.oid)
    return subscription


def alter(node: pb.AlterSubscriptionStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    subscription = _find_owned(session, transaction, node.subname)
    action = {
        pb.ALTER_SUBSCRIPTION_OPTIONS: _set_options,
        pb.ALTER_SUBSCRIPTION_ENABLED: _set_enabled,
        pb.ALTER_SUBSCRIPTION_CONNECTION: _set_connection,
        pb.ALTER_SUBSCRIPTION_SET_PUBLICATION: _set_publication,
        pb.ALTER_SUBSCRIPTION_ADD_PUBLICATION: _change_publication,
        pb.ALTER_SUBSCRIPTION_DROP_PUBLICATION: _change_publication,
        pb.ALTER_SUBSCRIPTION_REFRESH: _refresh,
        pb.ALTER_SUBSCRIPTION_SKIP: _skip,
    }[node.kind]
    action(node, session, transaction, subscription)
    session.after_commit(session.parts.workers.wake)
    return CommandResult("ALTER SUBSCRIPTION")


def _set_options(node: pb.AlterSubscriptionStmt, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    options = read_options(node.options, ALTERABLE)
    changes: dict[str, object] = {}
    for name, attribute in (
        ("slot_name", "slot_name"),
        ("synchronous_commit", "synchronous_commit"),
        ("binary", "binary"),
        ("streaming", "stream"),
        ("disable_on_error", "disable_on_error"),
        *((name, name) for name in LATER),
    ):
        if name in options.given:
            changes[attribute] = getattr(options, name)
    if "slot_name" in changes and changes["slot_name"] is None and subscription.enabled:
        raise PostgresError("55000", "cannot set slot_name = NONE for enabled subscription")
    if "failover" in changes:
        _alter_failover(session, subscription, options.failover)
    subscriptions.change(transaction.cursor, subscription.oid, **changes)
    if "history" in changes:
        history_tables.change(transaction.cursor, replace(subscription, history=options.history))


def _alter_failover(session: Session, subscription: Subscription, failover: bool) -> None:
    """Make the checks of PostgreSQL 17, and alter the slot on the publisher."""
    if subscription.enabled:
        raise PostgresError("55000", 'cannot set option "failover" for enabled subscription')
    if subscription.slot_name is None:
        raise PostgresError("55000", 'cannot set option "failover" for a subscription that does not have a slot name')
    session.prevent_in_block("ALTER SUBSCRIPTION ... SET (failover)")
    if failover == subscription.failover:
        return
    with _connect(session, subscription) as connection:
        connection.alter_slot(subscription.slot_name, failover=failover)


def _set_enabled(node: pb.AlterSubscriptionStmt, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    options = read_options(node.options, {"enabled"})
    if subscription.slot_name is None and options.enabled:
        raise PostgresError("55000", "cannot enable subscription that does not have a slot name")
    subscriptions.change(transaction.cursor, subscription.oid, enabled=options.enabled)


def _set_connection(node: ParseNode, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    check_conninfo(node.conninfo)
    subscriptions.change(transaction.cursor, subscription.oid, conninfo=node.conninfo)


def _set_publication(node: ParseNode, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    options = read_options(node.options, {"copy_data", "refresh"})
    publications = names.strings(node.publication)
    _refuse_repeated(publications)
    subscriptions.change(transaction.cursor, subscription.oid, publications=tuple(publications))
    if options.refresh:
        hint = "Use ALTER SUBSCRIPTION ... SET PUBLICATION ... WITH (refresh = false)."
        _check_refresh(session, subscription, options, hint)
        changed = subscriptions.find(transaction.cursor, subscription.oid)
        assert changed is not None
        _do_refresh(session, transaction, changed, options, validate=publications)


def _change_publication(node: pb.AlterSubscriptionStmt, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    adding = node.kind == pb.ALTER_SUBSCRIPTION_ADD_PUBLICATION
    options = read_options(node.options, {"copy_data", "refresh"})
    changed_names = names.strings(node.publication)
    _refuse_repeated(changed_names)
    publications = list(subscription.publications)
    for name in changed_names:
        if adding and name in publications:
            raise PostgresError("42710", f'publication "{name}" is already in subscription "{subscription.name}"')
        if not adding and name not in publications:
            raise PostgresError("42P17", f'publication "{name}" is not in subscription "{subscription.name}"')
        if adding:
            publications.append(name)
        else:
            publications.remove(name)
    if not publications:
        raise PostgresError("42P17", "cannot drop all the publications from a subscription")
    subscriptions.change(transaction.cursor, subscription.oid, publications=tuple(publications))
    if options.refresh:
        word = "ADD" if adding else "DROP"
        _check_refresh(
            session, subscription, options, f"Use ALTER SUBSCRIPTION ... {word} PUBLICATION ... WITH (refresh = false) instead.", word
        )
        changed = subscriptions.find(transaction.cursor, subscription.oid)
        assert changed is not None
        _do_refresh(session, transaction, changed, options, validate=changed_names if adding else [])


def _check_refresh(session: Session, subscription: Subscription, options: SubscriptionOptions, hint: str, word: str = "SET") -> None:
    if not subscription.enabled:
        raise PostgresError("55000", "ALTER SUBSCRIPTION with refresh is not allowed for disabled subscriptions", hint=hint)
    if subscription.two_phase == "e" and options.copy_data:
        raise PostgresError(
            "55000",
            "ALTER SUBSCRIPTION with refresh and copy_data is not allowed when two_phase is enabled",
            hint=f"Use ALTER SUBSCRIPTION ... {word} PUBLICATION with refresh = false, or with copy_data = false, or use"
            " DROP/CREATE SUBSCRIPTION.",
        )
    session.prevent_in_block("ALTER SUBSCRIPTION with refresh")


def _refresh(node: ParseNode, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    if not subscription.enabled:
        raise PostgresError("55000", "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions")
    options = read_options(node.options, {"copy_data", "reconcile"})
    if subscription.two_phase == "e" and (options.copy_data or options.reconcile):
        word = "copy_data" if options.copy_data else "reconcile"
        raise PostgresError(
            "42601",
            f"ALTER SUBSCRIPTION ... REFRESH with {word} is not allowed when two_phase is enabled",
            hint="Use ALTER SUBSCRIPTION ... REFRESH with copy_data = false, or use DROP/CREATE SUBSCRIPTION.",
        )
    session.prevent_in_block("ALTER SUBSCRIPTION ... REFRESH")
    if options.reconcile:  # newly added tables are copied anyway
        for member in subscriptions.tables(transaction.cursor, subscription.oid):
            subscription_resync.request(transaction.cursor, subscription.database, subscription.oid, member.relation, Method.DIFFERENCE)
    _do_refresh(session, transaction, subscription, options, validate=[])


def _do_refresh(
    session: Session, transaction: Transaction, subscription: Subscription, options: SubscriptionOptions, validate: list[str]
) -> None:
    with _connect(session, subscription) as connection:
        if validate:
            warn_missing(session, connection, validate)
        state = SyncState.INIT if options.copy_data else SyncState.READY
        subscription_tables.refresh(session, transaction, connection, subscription, state)
        if options.copies_difference:
            subscription_tables.copy_differences(transaction.cursor, subscription)


def _skip(node: pb.AlterSubscriptionStmt, session: Session, transaction: Transaction, subscription: Subscription) -> None:
    options = read_options(node.options, {"lsn"})
    cursor = transaction.cursor
    if not privilege.is_superuser(cursor, session.context.user):
        raise PostgresError("42501", "must be superuser to skip transaction")
    lsn = options.lsn
    if lsn is not None:
        progress = origins.progress(cursor, f"pg_{subscription.oid}")
        if progress is not None and progress.remote_lsn != INVALID and lsn < progress.remote_lsn:
            raise PostgresError("22023", f"skip WAL location (LSN {lsn}) must be greater than origin LSN {progress.remote_lsn}")
    subscriptions.change(cursor, subscription.oid, skip_lsn=int(Lsn(0) if lsn is None else lsn))


def drop(node: pb.DropSubscriptionStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    workers = session.parts.workers
    _hold_workers(node.subname, session, transaction)
    cursor, context = transaction.cursor, session.context
    subscription = subscriptions.lookup(cursor, context.database, node.subname)
    if subscription is None:
        session.notices.skip(PostgresError("42704", f'subscription "{node.subname}" does not exist'), allowed=node.missing_ok)
        return CommandResult("DROP SUBSCRIPTION")
    privilege.check_owner(cursor, context.user, subscription.owner, "subscription", subscription.name)
    if subscription.slot_name is not None:
        session.prevent_in_block("DROP SUBSCRIPTION")
    oid = subscription.oid
    session.after_commit(lambda: _clean_up(session, oid))
    session.after_rollback(lambda: _release(workers, oid))
    workers.hold(oid, session.check_cancel)
    tables = subscriptions.tables(cursor, oid)
    copying = {member.relation for member in tables if member.state not in COPIED}
    unfinished = sorted(copying | origins.of_syncs(cursor, oid))  # an origin is dropped after its sync slot
    subscriptions.drop(cursor, oid)
    for relation in unfinished:
        origins.drop(cursor, f"pg_{oid}_{relation}", missing_ok=True)
    origins.drop(cursor, f"pg_{oid}", missing_ok=True)
    if subscription.slot_name is not None or unfinished:
        subscription_tables.drop_slots(session, subscription, unfinished)
    return CommandResult("DROP SUBSCRIPTION")


def _hold_workers(name: str, session: Session, transaction: Transaction) -> None:
    """Stop the workers of a subscription before the catalog is read. Otherwise their last writes would conflict with the DROP."""
    catalog, context = session.parts.engine.catalog, session.context
    with contextlib.closing(catalog.cursor()) as cursor:
        subscription = subscriptions.lookup(cursor, context.database, name)
        if subscription is None or not _may_own(cursor, context.user, subscription.owner):
            return
    if subscription.slot_name is not None and session.in_block:
        return  # `drop` rejects the command, or finds that this block has run SET (slot_name = NONE)
    transaction.catalog.lock_object("pg_subscription", subscription.oid)
    workers = session.parts.workers
    session.after_commit(lambda: _release(workers, subscription.oid))
    session.after_rollback(lambda: _release(workers, subscription.oid))
    workers.hold(subscription.oid, session.check_cancel)
    transaction.plan_again()  # the snapshot is older, because the session's role was looked up at the start of the statement


def _may_own(cursor: CatalogCursor, user: str, owner: int) -> bool:
    try:
        privilege.check_owner(cursor, user, owner, "subscription", "")
    except PostgresError:
        return False
    return True


def _clean_up(session: Session, oid: int) -> None:
    """After the commit of a DROP, also remove the rows that workers wrote after the block's snapshot, then release the workers."""
    session.parts.engine.catalog.change(lambda cursor: origins.forget_subscription(cursor, oid))
    _release(session.parts.workers, oid)


def _release(workers: WorkerRegistry, oid: int) -> None:
    workers.release(oid)
    workers.wake()


def rename(node: ParseNode, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    subscription = _find_owned(session, transaction, unwrap(node.object).sval)
    subscriptions.change(transaction.cursor, subscription.oid, name=node.newname)
    session.after_commit(session.parts.workers.wake)
    return CommandResult("ALTER SUBSCRIPTION")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    new_owner, oid = privilege.new_owner(cursor, context, node.newowner)
    subscription = subscriptions.get(cursor, context.database, unwrap(node.object).sval)
    if oid != subscription.owner:
        privilege.check_owner(cursor, context.user, subscription.owner, "subscription", subscription.name)
        privilege.check_subscription_owner(cursor, subscription.name, new_owner)
    transaction.catalog.lock_object("pg_subscription", subscription.oid)
    subscriptions.change(cursor, subscription.oid, owner=oid)
    session.after_commit(session.parts.workers.wake)
    return CommandResult("ALTER SUBSCRIPTION")
