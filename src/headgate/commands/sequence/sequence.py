"""Sequences: the rows of pg_class, pg_sequence and hg.sequence_state; serial and identity columns; CREATE and DROP SEQUENCE.

Called by `execute` and by the table commands. Which sequence a column owns, and the next values: `catalog.relation.sequence`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, insert, one, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import removal
from headgate.catalog.relation.object_name import choose_name
from headgate.catalog.relation.relation import Relation
from headgate.commands import default_privilege, dependency, lookup, privilege, temporary_schema
from headgate.commands.function import dependant
from headgate.commands.result import CommandResult
from headgate.commands.sequence import sequence_owner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.options import Option, unique
from headgate.types import registry

LARGEST = {registry.INT2: 2**15 - 1, registry.INT4: 2**31 - 1, registry.INT8: 2**63 - 1}
"""The types that a sequence may have, each with its largest value."""


@dataclass(frozen=True)
class Bounds:
    """The numbers of a sequence."""

    start: int
    increment: int
    minimum: int
    maximum: int
    cycle: bool
    cache: int


def limits(options: Mapping[str, Option], type_oid: int, current: tuple[int, int, int] | None = None) -> tuple[int, int, int]:
    """Return the increment, the minimum and the maximum. `current`: those that a sequence has, for options that are not given."""
    increment = options["increment"].integer() if "increment" in options else 1 if current is None else current[0]
    if increment == 0:
        raise PostgresError("22023", "INCREMENT must not be zero")
    largest = LARGEST[type_oid]

    def bound(name: str, place: int, default: int) -> int:
        option = options.get(name)
        if option is None and current is not None:
            return current[place]
        return default if option is None or option.node is None else option.integer()

    maximum = bound("maxvalue", 2, largest if increment > 0 else -1)
    minimum = bound("minvalue", 1, 1 if increment > 0 else -largest - 1)
    check_bounds(maximum, minimum, type_oid)
    return increment, minimum, maximum


def check_within(word: str, value: int, minimum: int, maximum: int) -> None:
    """Raise 22023 `START value (0) cannot be less than MINVALUE (1)`."""
    if value < minimum:
        raise PostgresError("22023", f"{word} value ({value}) cannot be less than MINVALUE ({minimum})")
    if value > maximum:
        raise PostgresError("22023", f"{word} value ({value}) cannot be greater than MAXVALUE ({maximum})")


def bounds(nodes: Sequence[pb.Node], type_oid: int) -> Bounds:
    """Return the numbers that the options of CREATE SEQUENCE or of an identity column set."""
    options = unique(nodes)
    increment, minimum, maximum = limits(options, type_oid)
    start = options["start"].integer() if "start" in options else (minimum if increment > 0 else maximum)
    check_within("START", start, minimum, maximum)
    return Bounds(start, increment, minimum, maximum, "cycle" in options and options["cycle"].boolean(), cache(options, 1))


def check_identity_type(type_oid: int) -> None:
    """Raise 22023 unless a column of the type can be an identity column."""
    if type_oid not in LARGEST:
        raise PostgresError("22023", "identity column type must be smallint, integer, or bigint")


def check_bounds(maximum: int, minimum: int, type_oid: int) -> None:
    """Raise 22023 unless both bounds are in the range of the sequence's type, and the minimum is the smaller one."""
    for word, value in (("MAXVALUE", maximum), ("MINVALUE", minimum)):
        if not -LARGEST[type_oid] - 1 <= value <= LARGEST[type_oid]:
            shown = registry.format_type(type_oid)
            raise PostgresError("22023", f"{word} ({value}) is out of range for sequence data type {shown}")
    if minimum >= maximum:
        raise PostgresError("22023", f"MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")


def cache(options: Mapping[str, Option], otherwise: int) -> int:
    """Return the value of CACHE, which is kept but has no effect: a node takes the values of a statement together."""
    count = options["cache"].integer() if "cache" in options else otherwise
    if count <= 0:
        raise PostgresError("22023", f"CACHE ({count}) must be greater than zero")
    return count


def create(
    cursor: Cursor,
    oids: Callable[[], int],
    database: int,
    namespace: int,
    name: str,
    owner: int,
    type_oid: int,
    options: Sequence[pb.Node],
) -> int:
    """Create a sequence and return its oid. Raise 42P07 if the name is in use."""
    if one(cursor, "SELECT 1 FROM hg.pg_class WHERE dbid IN (0, ?) AND relnamespace = ? AND relname = ?", [database, namespace, name]):
        raise PostgresError("42P07", f'relation "{name}" already exists')
    numbers = bounds(options, type_oid)
    oid, persistence = oids(), "t" if temporary_schema.holds(cursor, database, namespace) else "p"
    insert(
        cursor, "pg_class", dbid=database, oid=oid, relname=name, relnamespace=namespace, relowner=owner, relfilenode=oid,
        relpersistence=persistence, relkind="S", relnatts=3, relispopulated=True, relreplident="n", relpages=1, reltuples=1.0,
    )  # fmt: skip
    insert(
        cursor, "pg_sequence", dbid=database, seqrelid=oid, seqtypid=type_oid, seqstart=numbers.start, seqincrement=numbers.increment,
        seqmax=numbers.maximum, seqmin=numbers.minimum, seqcache=numbers.cache, seqcycle=numbers.cycle,
    )  # fmt: skip
    run(
        cursor,
        "INSERT INTO hg.sequence_state (dbid, seqrelid, last_value, is_called) VALUES (?, ?, ?, false)",
        [database, oid, numbers.start],
    )
    return oid


def owned_name(cursor: Cursor, database: int, namespace: int, table: str, column: str) -> str:
    """Return PostgreSQL's name for the sequence of a serial or identity column."""
    return choose_name(cursor, database, namespace, table, column, "seq")


def create_sequence(node: pb.CreateSeqStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    if temporary_schema.wanted(node.sequence):
        namespace, schema = temporary_schema.schema(session, transaction)
    else:
        namespace, schema = lookup.creation_schema(cursor, context, node.sequence.schemaname)
    name = node.sequence.relname
    if node.if_not_exists and relations.find_oid(cursor, context.database, schema, name) is not None:
        session.notices.notice(f'relation "{name}" already exists, skipping', sqlstate="42P07")
        return CommandResult("CREATE SEQUENCE")
    options = [option for option in node.options if option.def_elem.defname not in ("as", "owned_by")]
    owned_by = [names.strings(option.def_elem.arg.list.items) for option in node.options if option.def_elem.defname == "owned_by"]
    typed = [option.def_elem for option in node.options if option.def_elem.defname == "as"]
    type_oid = names.type_name(typed[0].arg.type_name)[0] if typed else registry.INT8
    if type_oid not in LARGEST:
        raise PostgresError("22023", "sequence type must be smallint, integer, or bigint")
    owner = privilege.used_role(cursor, context.user)
    for path in owned_by:
        sequence_owner.use_owner(cursor, session, path)
    oid = create(cursor, transaction.catalog.next_oid, context.database, namespace, name, owner, type_oid, options)
    relation = relations.get(cursor, context.database, oid)
    default_privilege.apply_default(cursor, relation, context.user)
    for path in owned_by:
        sequence_owner.own_by_name(cursor, session, relation, path)
    return CommandResult("CREATE SEQUENCE")


def drop_sequence(node: pb.DropStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    going: list[Relation] = []
    for relation in lookup.dropped(cursor, session, node, "sequence"):
        privilege.check_owner(cursor, context.user, relation.owner, "sequence", relation.name)
        transaction.own(relation)
        going.append(relation)
    for dropped in going:
        cascade = node.behavior == pb.DROP_CASCADE
        subject = f"sequence {dependency.shown_name(cursor, context, dropped)}"
        dependants = dependant.of_relation(session, dropped)
        dependency.settle(transaction, dependants, [subject], session.notices, cascade=cascade)
        removal.drop(cursor, context.database, dropped.oid)
    return CommandResult("DROP SEQUENCE")
