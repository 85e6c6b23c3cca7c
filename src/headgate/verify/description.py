"""The way in which one published table is compared: its columns, filters and key, and the text forms of both sides.

Called by `verification` and `difference` for each table, with the result of `remote.fetch_relation`.
"""

from __future__ import annotations

from headgate.catalog.relation.relation import Relation
from headgate.sql.names import qualified
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry
from headgate.verify.digest import BARE, Compared, digits_for
from headgate.walreceiver import answer
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.remote import RemoteRelation, as_text


def described(reader: PublisherConnection, transaction: Transaction, remote: RemoteRelation, local: Relation) -> Compared:
    """Describe the comparison of a published table with the one here. `reader`: a session at the publisher; raises as it does."""
    here = {column.name: column for column in local.columns}
    sent = [column for column in remote.columns if column.name in here and here[column.name].generated is None]
    modifiers = {
        str(row[0]): answer.number(row[1], least=-1)
        for row in reader.query(f"SELECT attname, atttypmod FROM pg_catalog.pg_attribute WHERE attrelid = {remote.oid}", 2)
    }
    names = [column.name for column in sent]
    theirs, kinds, bare, integers = [], [], [], []
    for column in sent:
        ours, text = here[column.name], as_text(column.name, column.type_oid)
        is_same_type = (column.type_oid, modifiers.get(column.name, -1)) == (ours.type_oid, ours.typmod)
        plain = is_same_type or ours.type_oid >= registry.FIRST_USER_OID or column.type_oid >= registry.FIRST_USER_OID
        kinds.append(None if plain else (ours.type_oid, ours.typmod))
        oids = {column.type_oid, ours.type_oid}
        bare.append(oids <= BARE)
        integers.append(oids <= registry.INTEGERS)
        theirs.append(text if plain else _convert(text, ours.type_oid, ours.typmod))
    key = [name for column in sent if column.key for name in [column.name]]
    if not key and local.primary_key:
        key_columns = [column.name for column in local.columns if column.attnum in local.primary_key]
        key = key_columns if set(key_columns) <= set(names) else []
    only, only_here = "ONLY " if remote.kind == "r" else "", "" if local.is_partitioned else "ONLY "
    where = f" WHERE {' OR '.join(remote.filters)}" if remote.filters else ""
    rows = sum(state.rows for state in transaction.reader.states(local))
    return Compared(
        local.schema, local.name, tuple(names), tuple(theirs), tuple(as_text(name, here[name].type_oid) for name in names),
        tuple(names.index(name) for name in key), f"FROM {only}{qualified(remote.schema, remote.name)}{where}",
        f"FROM {only_here}{qualified(local.schema, local.name)}", tuple(kinds), tuple(bare), tuple(integers), digits_for(rows),
    )  # fmt: skip


def _convert(text: str, oid: int, typmod: int) -> str:
    """Convert a text of the publisher to the text form of another type, through that type's input function."""
    value = f"({text})::{registry.format_type(oid, typmod)}"
    probe = as_text("x", oid)
    return (
        f"({value})::pg_catalog.text"
        if probe == "x::pg_catalog.text"
        else f"CASE WHEN ({value}) IS NOT NULL THEN pg_catalog.concat({value}) END"
    )
