"""Identity columns of existing tables: ADD GENERATED … AS IDENTITY, SET GENERATED, SET sequence options, DROP IDENTITY, and TYPE.

Called by `alter_table` and `alter_column`. The column owns a sequence (pg_depend), which provides the numbers.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import attribute, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.commands.alteration import Alteration
from headgate.commands.sequence import alter_sequence, sequence, sequence_owner
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.parser import unwrap


def add_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER COLUMN … ADD GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY."""
    column, relation = alteration.column(command.name), alteration.relation
    node = unwrap(getattr(command, "def"))
    description = f'column "{column.name}" of relation "{relation.name}"'
    sequence.check_identity_type(column.type_oid)
    if not column.not_null:
        raise PostgresError("55000", f"{description} must be declared NOT NULL before identity can be added")
    if column.identity:
        raise PostgresError("55000", f"{description} is already an identity column")
    if column.default is not None:
        raise PostgresError("55000", f"{description} already has a default value")
    cursor, next_oid = alteration.cursor, alteration.transaction.catalog.next_oid
    name_option = next((option.def_elem for option in node.options if option.def_elem.defname == "sequence_name"), None)
    name = (
        names.strings(name_option.arg.list.items)[-1]
        if name_option is not None
        else sequence.owned_name(cursor, relation.database, relation.namespace_oid, relation.name, column.name)
    )
    options = [option for option in node.options if option.def_elem.defname not in ("sequence_name", "as")]
    oid = sequence.create(cursor, next_oid, relation.database, relation.namespace_oid, name, relation.owner, column.type_oid, options)
    attribute.set_identity(cursor, relation, column.attnum, node.generated_when)
    sequence_owner.own(cursor, relation.database, oid, relation.oid, column.attnum, identity=True)


def change_type(alteration: Alteration, attnum: int, kind: pb.TypeName) -> None:
    """Change the type of an identity column's sequence to the type that the column gets. Raise 22023 if it is not an integer type."""
    sequence.check_identity_type(names.type_name(kind)[0])
    option = pb.Node(def_elem=pb.DefElem(defname="as", arg=pb.Node(type_name=kind)))
    alter_sequence.change(alteration.cursor, _identity_sequence(alteration, attnum), [option])


def _identity_sequence(alteration: Alteration, attnum: int) -> Relation:
    relation = alteration.relation
    sequence_oid = sequences.of_column(alteration.cursor, relation.database, relation.oid, attnum)
    assert sequence_oid is not None
    return relations.get(alteration.cursor, relation.database, sequence_oid)


def set_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER COLUMN … SET GENERATED, SET sequence option, RESTART."""
    column = alteration.column(command.name)
    if not column.identity:
        raise PostgresError("55000", f'column "{column.name}" of relation "{alteration.relation.name}" is not an identity column')
    options = unwrap(getattr(command, "def")).items
    for item in options:
        if item.def_elem.defname == "generated":
            attribute.set_identity(alteration.cursor, alteration.relation, column.attnum, chr(item.def_elem.arg.integer.ival))
    rest = [option for option in options if option.def_elem.defname != "generated"]
    if rest:
        sequence = _identity_sequence(alteration, column.attnum)
        alteration.transaction.catalog.lock_object("pg_class", sequence.oid)
        alter_sequence.change(alteration.cursor, sequence, rest)


def drop_identity(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    column, relation = alteration.column(command.name), alteration.relation
    if not column.identity:
        message = f'column "{column.name}" of relation "{relation.name}" is not an identity column'
        alteration.session.notices.skip(PostgresError("55000", message), allowed=command.missing_ok)
        return
    sequence = _identity_sequence(alteration, column.attnum)
    attribute.set_identity(alteration.cursor, relation, column.attnum, "")
    removal.drop(alteration.cursor, relation.database, sequence.oid)
