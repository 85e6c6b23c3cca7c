"""The modes of a transaction: isolation level, READ ONLY, DEFERRABLE (manual, SET TRANSACTION; guc hooks of variable.c).

BEGIN and SET TRANSACTION set them with `set_modes`; `check` is asked before any of them is set, by SET and set_config too. The values are
settings of the session that end with the transaction (`headgate.settings.session`). What must hold: the isolation level does not change
once a snapshot was taken, and a transaction that is READ ONLY by then stays so.
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
    """The modes of BEGIN … and SET TRANSACTION …: name and value."""
    found = []
    for option in options:
        element = parser.unwrap(option)
        value = parser.unwrap(element.arg)
        which = value.WhichOneof("val")
        text = value.sval.sval if which == "sval" else "on" if value.ival.ival else "off"
        found.append((str(element.defname), str(text)))
    return found


def set_modes(session: ClientSession, options: Iterable[pb.Node]) -> None:
    """Sets what BEGIN … or SET TRANSACTION … says, in its order."""
    for name, value in read(options):
        check(session, name, [value])
        session.settings.set(name, value, local=True)


def check(session: ClientSession, name: str, values: list[str]) -> None:
    """25001 for a mode that the transaction cannot have any more; other settings pass."""
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
