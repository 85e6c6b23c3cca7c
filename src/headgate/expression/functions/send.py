"""The send functions (int4send, textsend, numeric_send …): the binary form of values, called in an expression.

Called through `vectorised` from `implementation.character.bytea`. `types.binary.binary` implements the form itself.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.types.binary.binary import write_binary
from headgate.types.storage import arrow_type


def sent(type_oid: int, values: pa.Array) -> pa.BinaryArray:
    """Return the binary forms of plain values of a type."""
    return write_binary(values.cast(arrow_type(type_oid, -1)), type_oid).cast(pa.binary())
