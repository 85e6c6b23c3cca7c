"""The modes of a transaction: isolation level, READ ONLY, DEFERRABLE (manual, SET TRANSACTION; the GUC hooks of variable.c).

BEGIN and SET TRANSACTION set them with `set_modes`. SET and set_config also call `check` before they set one of them. The values are
settings of the session that end with the transaction (`headgate.settings.session`). Invariants: the isolation level does not change
after the transaction's first snapshot, and a transaction that is READ ONLY at that time stays READ ONLY.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.settings.definition import read_bool
from headgate.sql import parser

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


def read(options: Iterable[pb.Node]) -> list[tuple[str, str]]:
    """Return the (name, value) pairs of the modes in BEGIN … or SET TRANSACTION …."""
    modes = []
    for option in options:
        element = parser.unwrap(option)
        value = parser.unwrap(element.arg)
        kind = value.WhichOneof("val")
        text = value.sval.sval if kind == "sval" else "on" if value.ival.ival else "off"
        modes.append((str(element.defname), str(text)))
    return modes


def set_modes(session: ClientSession, options: Iterable[pb.Node]) -> None:
    """Set the modes of BEGIN … or SET TRANSACTION …, in the order of the statement."""
    for name, value in read(options):
        check(session, name, [value])
        session.settings.set(name, value, local=True)


def check(session: ClientSession, name: str, values: list[str]) -> None:
    """Raise 25001 if the transaction can no longer change to this mode. Other settings always pass."""
    block, lowered = session.block, name.lower()
    if lowered == "transaction_isolation":
        if values[0].lower() == block.isolation:
            return
        if block.statements:
            raise PostgresError("25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query")
        if block.in_subtransaction:
            raise PostgresError("25001", "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction")
    elif lowered == "transaction_read_only":
        if read_bool(values[0]) is not False or not block.read_only:
            return
        if block.in_subtransaction:
            raise PostgresError("25001", "cannot set transaction read-write mode inside a read-only transaction")
        if block.statements:
            raise PostgresError("25001", "transaction read-write mode must be set before any query")
    elif lowered == "transaction_deferrable":
        if block.in_subtransaction:
            raise PostgresError("25001", "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction")
        if block.statements:
            raise PostgresError("25001", "SET TRANSACTION [NOT] DEFERRABLE must be called before any query")
