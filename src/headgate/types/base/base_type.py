"""The description of a base type, which corresponds to CREATE TYPE and the type's default operator classes.

Each module of this package creates the descriptions of a type family, and `base_types` registers them. They are used by `text` (input and
output), `binary` (receive and send), `storage` (the stored form), `order`, `sortkey` and `comparable` (the order), `hashing`, and by the
compilers of expressions. Arrays, enums and domains have no description, because their element, labels and base type determine them.

Invariants:

    write(read(text))             is what the type's output function prints
    receive(send(values))         is `values`
    in_order                      the stored form, compared as numbers, dates or bytes, compares as the type's btree operators do
    key(one) < key(other)         is the result of the operators for two values in normal text form
    one_text                      equal values have equal texts; false for (1.0, 1.00), (24:00, 1 day), ('a', 'a '), which are equal
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import buffers
from headgate.types.buffers import Bytes, Mask, Numbers
from headgate.types.encoded import decoded, encoded, utf8
from headgate.types.text_column import PLAIN, TextSettings


@dataclass(frozen=True)
class Wire:
    """A column in binary form: value i has `sizes[i]` bytes of `data` from `starts[i]`. It is NULL if `mask` is false.

    `mask` is None if no value is NULL. A NULL has size 0. `encoding` is that of texts.
    """

    data: Bytes
    starts: Numbers
    sizes: Numbers
    mask: Mask | None
    encoding: Encoding

    def column(self, kind: pa.DataType) -> pa.Array:
        """Return the bytes of each value as an array of binary or large binary."""
        return buffers.strings(*buffers.gather(self.data, self.starts, self.sizes), self.mask, kind)

    def texts(self) -> pa.StringArray:
        """Return the values as text. Raise 22021 if they are not in the encoding."""
        raw = self.column(pa.binary())
        return utf8(raw) if self.encoding.unicode else decoded(raw, self.encoding).cast(pa.string())

    def rows(self, width: int) -> Bytes:
        """Return the bytes of values of size `width`, one row each; a NULL is a row of zeros.

        Raise 08P01 for a value with fewer bytes, 22P03 for one with more, for the first one if there are several.
        """
        wrong = self.sizes != width
        if self.mask is not None:
            wrong &= self.mask
        if wrong.any():
            if self.sizes[wrong][0] < width:
                raise PostgresError("08P01", "insufficient data left in message")
            raise PostgresError("22P03", "incorrect binary data format")
        if self.mask is None:
            return buffers.rows_at(self.data, self.starts, width)
        rows = np.zeros((len(self.starts), width), np.uint8)
        rows[self.mask] = buffers.rows_at(self.data, self.starts[self.mask], width)
        return rows


Reader = Callable[[pa.StringArray, int, TextSettings], pa.Array]
"""The input function with the modifier: (texts, typmod, settings) → the stored form."""
Writer = Callable[[pa.Array, TextSettings], pa.StringArray]
"""The output function of a column in stored form."""
Receiver = Callable[[Wire, int], pa.Array]
"""The receive function with the modifier: (binary forms, typmod) → the stored form."""
Sender = Callable[[pa.Array, Encoding], pa.LargeBinaryArray]
"""The send function of a column in stored form."""
Key = Callable[[str], bytes]
"""Converts a value in normal text form to bytes that compare as the btree operator class does."""


class Hashing(enum.Enum):
    """PostgreSQL's hash function for the binary form (`hashing`)."""

    WORD = "hash_bytes_uint32_extended"
    LONG = "hashint8extended"
    DOUBLE = "hashfloat8extended"
    BYTES = "hash_bytes_extended"
    NUMERIC = "hash_numeric_extended"


TEXT = pa.string()


def as_stored(values: pa.Array, _settings: TextSettings) -> pa.StringArray:
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def never(_settings: TextSettings) -> bool:
    """Return False: the `BaseType.restyled` of a type whose text does not depend on settings."""
    return False


@dataclass(frozen=True)
class BaseType:
    """One base type. The defaults are those of a type that is stored as its text and has no order, no hash and no binary form here.

    `stored` is the Arrow type of its columns; `modified` returns another one for a modifier, or None. `restyled` returns whether texts
    under these settings differ from those under PLAIN, in which arrays hold their elements. `in_bulk`: `receive` calls no function per
    value. `code` is NumPy's name of the binary form if that is a number.
    """

    read: Reader
    write: Writer = as_stored
    receive: Receiver | None = None
    send: Sender | None = None
    stored: pa.DataType = TEXT
    modified: Callable[[int], pa.DataType | None] | None = None
    restyled: Callable[[TextSettings], bool] = never
    key: Key | None = None
    in_order: bool = False
    one_text: bool = True
    hashing: Hashing | None = None
    code: str | None = None
    in_bulk: bool = True


def text_received(read: Reader) -> Receiver:
    return lambda wire, modifier: read(wire.texts(), modifier, PLAIN)


def text_sent(values: pa.Array, encoding: Encoding) -> pa.LargeBinaryArray:
    return encoded(values, encoding).cast(pa.large_binary())


def received_singly(receive: Callable[[bytes], str], read: Reader) -> Receiver:
    """Return a receive function for one of single values, which returns text and raises ValueError, IndexError or struct.error."""

    def receive_column(wire: Wire, modifier: int) -> pa.StringArray:
        try:
            shown = [None if raw is None else receive(raw) for raw in wire.column(pa.large_binary()).to_pylist()]
        except (struct.error, IndexError, ValueError) as error:
            raise PostgresError("22P03", "incorrect binary data format") from error
        texts = pa.array(shown, pa.string())
        return read(texts, modifier, PLAIN) if modifier >= 0 else texts

    return receive_column


def sent_singly(send: Callable[[str], bytes]) -> Sender:
    """Return a send function for one of single values in normal text form."""
    return lambda values, _encoding: pa.array([None if text is None else send(text) for text in values.to_pylist()], pa.large_binary())


def singly(read: Reader, receive: Callable[[bytes], str], send: Callable[[str], bytes], key: Key, *, in_order: bool = False) -> BaseType:
    """Describe a type that is stored as its text and has receive and send functions for single values."""
    return BaseType(read=read, receive=received_singly(receive, read), send=sent_singly(send), key=key, in_order=in_order, in_bulk=False)


def fixed_rows(rows: Bytes, mask: Mask | None) -> pa.LargeBinaryArray:
    """Return rows of bytes as values of one width. A NULL has no bytes."""
    width = rows.shape[1]
    sizes = np.full(len(rows), width, np.int64)
    if mask is not None:
        sizes[~mask] = 0
        rows = rows[mask]
    return buffers.strings(rows.ravel(), buffers.offsets_of(sizes), mask, pa.large_binary())


def key_of_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def whole_key(value: int) -> bytes:
    """Return the key of a number of at most 127 bits."""
    return (value + (1 << 127)).to_bytes(16, "big")


def ended(key: bytes) -> bytes:
    """Encode a key of any length for use in a longer key, so that a prefix sorts first."""
    return key.replace(b"\x00", b"\x00\xff") + b"\x00\x00"
