"""ALTER SEQUENCE, and the identity of columns: ADD GENERATED … AS IDENTITY, SET GENERATED, SET sequence options, DROP IDENTITY.

Called by `execute` for AlterSeqStmt and by ALTER TABLE. A sequence's numbers are kept as `sequence.bounds` reads them; what ALTER does
not name stays (init_params in sequence.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.physical import Cursor, insert, one, run
from headgate.catalog.relation import attribute, key_text, pg_class, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.sequence import sequence
from headgate.commands.session import Session
from headgate.commands.table import rewrite_table
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.options import Option, unique
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

if TYPE_CHECKING:
    from headgate.commands.table.alteration import Alteration

NO_CONSTRAINT = "Cannot create a primary key or unique constraint using such an index."
_LARGEST = {registry.INT2: 2**15 - 1, registry.INT4: 2**31 - 1, registry.INT8: 2**63 - 1}


def alter(node: ParseNode, session: Session) -> CommandResult:
    """ALTER SEQUENCE."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    found = lookup.find(cursor, context, node.sequence)
    if found is None:
        if not node.missing_ok:
            lookup.target(cursor, context, node.sequence)
        session.notices.notice(f'relation "{node.sequence.relname}" does not exist, skipping')
        return CommandResult("ALTER SEQUENCE")
    if found.kind != RelationKind.SEQUENCE:
        raise PostgresError("42809", f'"{found.name}" is not a sequence')
    privilege.check_owner(cursor, context.user, found.owner, "sequence", found.name)
    transaction.lock_object("pg_class", found.oid)
    owners = [each.def_elem for each in node.options if each.def_elem.defname == "owned_by"]
    for owner in owners:
        use_owner(cursor, session, names.strings(owner.arg.list.items))
    change(cursor, found, [each for each in node.options if each.def_elem.defname != "owned_by"])
    for owner in owners:
        own(cursor, session, found, names.strings(owner.arg.list.items))
    return CommandResult("ALTER SEQUENCE")


def change(cursor: Cursor, found: Relation, options: Sequence[Any]) -> None:
    """Writes the numbers of a sequence anew, and where it stands."""
    given = unique([each for each in options if each.def_elem.defname != "as"])
    scope = [found.database, found.oid]
    row = one(
        cursor,
        "SELECT s.seqtypid, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcycle, t.last_value, t.is_called FROM hg.pg_sequence s"
        " JOIN hg.sequence_state t ON t.dbid = s.dbid AND t.seqrelid = s.seqrelid WHERE s.dbid = ? AND s.seqrelid = ?",
        scope,
    )
    assert row is not None
    kind, start, increment, maximum, minimum, cycle, last, called = row
    typed = next((each.def_elem for each in options if each.def_elem.defname == "as"), None)
    if typed is not None:
        old, kind = kind, names.type_name(typed.arg.type_name)[0]
        if kind not in _LARGEST:
            raise PostgresError("22023", "sequence type must be smallint, integer, or bigint")
        maximum = _LARGEST[kind] if maximum == _LARGEST[old] else maximum
        minimum = -_LARGEST[kind] - 1 if minimum == -_LARGEST[old] - 1 else minimum
    increment = given["increment"].integer() if "increment" in given else increment
    if increment == 0:
        raise PostgresError("22023", "INCREMENT must not be zero")
    maximum = _bound(given.get("maxvalue"), maximum, _LARGEST[kind] if increment > 0 else -1)
    minimum = _bound(given.get("minvalue"), minimum, 1 if increment > 0 else -_LARGEST[kind] - 1)
    if minimum >= maximum:
        raise PostgresError("22023", f"MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")
    start = given["start"].integer() if "start" in given else start
    _within("START", start, minimum, maximum)
    if "restart" in given:
        last, called = (given["restart"].integer() if given["restart"].node is not None else start), False
    _within("RESTART", last, minimum, maximum)
    cycle = given["cycle"].boolean() if "cycle" in given else cycle
    run(
        cursor,
        "UPDATE hg.pg_sequence SET seqtypid = ?, seqstart = ?, seqincrement = ?, seqmax = ?, seqmin = ?, seqcycle = ?"
        " WHERE dbid = ? AND seqrelid = ?",
        [kind, start, increment, maximum, minimum, cycle, *scope],
    )
    run(cursor, "UPDATE hg.sequence_state SET last_value = ?, is_called = ? WHERE dbid = ? AND seqrelid = ?", [last, called, *scope])


def _bound(option: Option | None, current: int, default: int) -> int:
    if option is None:
        return current
    return option.integer() if option.node is not None else default


def _within(word: str, value: int, minimum: int, maximum: int) -> None:
    if value < minimum:
        raise PostgresError("22023", f"{word} value ({value}) cannot be less than MINVALUE ({minimum})")
    if value > maximum:
        raise PostgresError("22023", f"{word} value ({value}) cannot be greater than MAXVALUE ({maximum})")


def use_owner(cursor: Cursor, session: Session, parts: Sequence[str]) -> None:
    """Nobody drops or changes the table that OWNED BY names, if it is there, until the transaction ends."""
    schema = parts[-3] if len(parts) > 2 else None
    path = lookup.search_path(cursor, session.context)
    table = relations.lookup(cursor, session.context.database, schema, parts[-2], path) if len(parts) > 1 else None
    if table is not None:
        hold.use(cursor, "pg_class", table.oid)


def own(cursor: Cursor, session: Session, found: Relation, parts: Sequence[str]) -> None:
    """OWNED BY t.c, or NONE (process_owned_by)."""
    if list(parts) == ["none"]:
        _disown(cursor, found)
        return
    if len(parts) < 2:
        raise PostgresError("42601", "invalid OWNED BY option", hint="Specify OWNED BY table.column or OWNED BY NONE.")
    *path, column_name = parts
    schema = path[-2] if len(path) > 1 else None
    table = relations.lookup(cursor, found.database, schema, path[-1], lookup.search_path(cursor, session.context))
    if table is None:
        raise PostgresError("42P01", f'relation "{".".join(path)}" does not exist')
    if table.kind not in {RelationKind.TABLE, RelationKind.PARTITIONED_TABLE, RelationKind.VIEW, RelationKind.FOREIGN_TABLE}:
        raise PostgresError("42809", f'sequence cannot be owned by relation "{table.name}"')
    if table.owner != found.owner:
        raise PostgresError("55000", "sequence must have same owner as table it is linked to")
    if table.namespace_oid != found.namespace_oid:
        raise PostgresError("55000", "sequence must be in same schema as table it is linked to")
    column = table.column(column_name)
    if column is None:
        raise PostgresError("42703", f'column "{column_name}" of relation "{table.name}" does not exist')
    _disown(cursor, found)
    sequence.own(cursor, found.database, found.oid, table.oid, column.attnum, identity=False)


def _disown(cursor: Cursor, found: Relation) -> None:
    scope = "dbid = ? AND classid = 1259 AND objid = ? AND refclassid = 1259"
    if one(cursor, f"SELECT 1 FROM hg.pg_depend WHERE {scope} AND deptype = 'i'", [found.database, found.oid]):
        raise PostgresError("0A000", "cannot change ownership of identity sequence")
    run(cursor, f"DELETE FROM hg.pg_depend WHERE {scope} AND deptype = 'a'", [found.database, found.oid])


# ---- identity columns ----------------------------------------------------------------------------------------


def add_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """ALTER COLUMN … ADD GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY."""
    column, relation = alteration.column(command.name), alteration.relation
    node = unwrap(getattr(command, "def"))
    shown = f'column "{column.name}" of relation "{relation.name}"'
    if not column.not_null:
        raise PostgresError("55000", f"{shown} must be declared NOT NULL before identity can be added")
    if column.identity:
        raise PostgresError("55000", f"{shown} is already an identity column")
    if column.default is not None:
        raise PostgresError("55000", f"{shown} already has a default value")
    if column.type_oid not in _LARGEST:
        raise PostgresError("22023", "identity column type must be smallint, integer, or bigint")
    cursor, next_oid = alteration.cursor, alteration.transaction.engine.catalog.next_oid
    named = next((each.def_elem for each in node.options if each.def_elem.defname == "sequence_name"), None)
    name = (
        names.strings(named.arg.list.items)[-1]
        if named is not None
        else sequence.owned_name(cursor, relation.database, relation.namespace_oid, relation.name, column.name)
    )
    options = [each for each in node.options if each.def_elem.defname not in ("sequence_name", "as")]
    oid = sequence.create(cursor, next_oid, relation.database, relation.namespace_oid, name, relation.owner, column.type_oid, options)
    attribute.set_identity(cursor, relation, column.attnum, node.generated_when)
    sequence.own(cursor, relation.database, oid, relation.oid, column.attnum, identity=True)


def _identity_sequence(alteration: Alteration, attnum: int) -> Relation:
    relation = alteration.relation
    found = sequence.of_column(alteration.cursor, relation.database, relation.oid, attnum)
    assert found is not None
    return relations.get(alteration.cursor, relation.database, found)


def set_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """ALTER COLUMN … SET GENERATED, SET sequence option, RESTART."""
    column = alteration.column(command.name)
    if not column.identity:
        raise PostgresError("55000", f'column "{column.name}" of relation "{alteration.relation.name}" is not an identity column')
    options = unwrap(getattr(command, "def")).items
    for item in options:
        if item.def_elem.defname == "generated":
            attribute.set_identity(alteration.cursor, alteration.relation, column.attnum, chr(item.def_elem.arg.integer.ival))
    rest = [each for each in options if each.def_elem.defname != "generated"]
    if rest:
        found = _identity_sequence(alteration, column.attnum)
        alteration.transaction.lock_object("pg_class", found.oid)
        change(alteration.cursor, found, rest)


def drop_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """ALTER COLUMN … DROP IDENTITY [IF EXISTS]."""
    column, relation = alteration.column(command.name), alteration.relation
    if not column.identity:
        message = f'column "{column.name}" of relation "{relation.name}" is not an identity column'
        if not command.missing_ok:
            raise PostgresError("55000", message)
        alteration.session.notices.notice(f"{message}, skipping")
        return
    found = _identity_sequence(alteration, column.attnum)
    attribute.set_identity(alteration.cursor, relation, column.attnum, "")
    removal.drop(alteration.cursor, relation.database, found.oid)


def drop_expression(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """ALTER COLUMN … DROP EXPRESSION [IF EXISTS]: the values stay."""
    column, relation, cursor = alteration.column(command.name), alteration.relation, alteration.cursor
    if column.generated is None:
        message = f'column "{column.name}" of relation "{relation.name}" is not a stored generated column'
        if not command.missing_ok:
            raise PostgresError("55000", message)
        alteration.session.notices.notice(f"{message}, skipping")
        return
    run(cursor, "UPDATE hg.pg_attribute SET attgenerated = '' WHERE dbid = ? AND attrelid = ? AND attnum = ?", [
        relation.database, relation.oid, column.attnum])  # fmt: skip
    attribute.set_default(cursor, lambda: 0, relation, column.attnum, None)


def using_index(alteration: Alteration, node: ParseNode) -> None:
    """ADD CONSTRAINT … PRIMARY KEY | UNIQUE USING INDEX i (transformIndexConstraint)."""
    relation, cursor = alteration.relation, alteration.cursor
    primary, name = node.contype == pb.CONSTR_PRIMARY, node.indexname
    index = next((each for each in relation.indexes if each.name == name), None)
    if index is None:
        if relations.find_oid(cursor, relation.database, relation.schema, name) is None:
            raise PostgresError("42704", f'index "{name}" does not exist')
        raise PostgresError("55000", f'index "{name}" does not belong to table "{relation.name}"')
    if index.constraint:
        raise PostgresError("55000", f'index "{name}" is already associated with a constraint')
    if not index.unique:
        raise PostgresError("42809", f'"{name}" is not a unique index', detail=NO_CONSTRAINT)
    for found, shown in ((index.expressions, f'index "{name}" contains expressions'), (index.predicate, f'"{name}" is a partial index')):
        if found:
            raise PostgresError("42809", shown, detail=NO_CONSTRAINT)
    if primary and relation.primary_key:
        raise PostgresError("42P16", f'multiple primary keys for table "{relation.name}" are not allowed')
    wanted = node.conname or name
    if wanted != name:
        alteration.session.notices.notice(f'ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index "{name}" to "{wanted}"')
        pg_class.rename(cursor, relations.get(cursor, relation.database, index.oid), wanted)
    deferrable = node.deferrable or node.initdeferred
    oid = alteration.transaction.engine.catalog.next_oid()
    insert(
        cursor, "pg_constraint", dbid=relation.database, oid=oid, conname=wanted, connamespace=relation.namespace_oid,
        contype="p" if primary else "u", condeferrable=deferrable, condeferred=node.initdeferred, convalidated=True,
        conrelid=relation.oid, conindid=index.oid, confupdtype=" ", confdeltype=" ", confmatchtype=" ", conislocal=True, connoinherit=True,
        conkey=list(index.attnums),
    )  # fmt: skip
    run(
        cursor, "UPDATE hg.pg_index SET indisprimary = ?, indimmediate = ? WHERE dbid = ? AND indexrelid = ?",
        [primary, not deferrable, relation.database, index.oid],
    )  # fmt: skip
    for attnum in index.attnums if primary else ():
        column = relation.numbered(attnum)
        if column is not None and not column.not_null:
            rewrite_table.check_no_nulls(alteration.transaction, relation, column)
            attribute.set_not_null(cursor, relation, attnum, not_null=True)
    key_text.write(cursor, relation.database, relation.oid)
