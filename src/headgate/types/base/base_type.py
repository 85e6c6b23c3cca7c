"""What a node knows of one base type: what CREATE TYPE and the type's default operator classes would say of it.

Each module beside this one makes the descriptions of a family of types, `base_types` registers them. They are asked by `text` (input and
output), `binary` (receive and send), `storage` (the stored form), `order`, `sortkey` and `comparable` (the order), `hashing`, and by the
compilers of expressions. Arrays, enums and domains have no description: they follow from their element, labels and base type.

What must hold:

    write(read(text))             is what the type's output function prints
    receive(send(values))         is `values`
    in_order                      the stored form, compared as numbers, dates or bytes, compares as the type's btree operators do
    key(one) < key(other)         where the operators say so, of two values in normal text form
    one_text                      values that are equal have equal texts: (1.0, 1.00), (24:00, 1 day), ('a', 'a ') are equal and have not
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
from headgate.types.buffers import Bytes, Mask, Positions
from headgate.types.encoded import decoded, encoded, utf8
from headgate.types.text_column import PLAIN, TextSettings


@dataclass(frozen=True)
class Wire:
    """A column in binary form: value i has the `sizes[i]` bytes of `data` that begin at `starts[i]`; it is NULL where `mask` is false.

    `mask` is None where no value is NULL; a NULL has size 0. `encoding` is that of texts.
    """

    data: Bytes
    starts: Positions
    sizes: Positions
    mask: Mask | None
    encoding: Encoding

    def column(self, kind: pa.DataType) -> pa.Array:
        """The bytes of each value as an array of binary or large binary."""
        return buffers.strings(*buffers.gather(self.data, self.starts, self.sizes), self.mask, kind)

    def texts(self) -> pa.StringArray:
        """The values as text; 22021 if they are not in the encoding."""
        raw = self.column(pa.binary())
        return utf8(raw) if self.encoding.unicode else decoded(raw, self.encoding).cast(pa.string())

    def rows(self, width: int) -> Bytes:
        """The bytes of values that all have `width`, one row each; a NULL's row is of zeros. 22P03 for another size."""
        wrong = self.sizes != width
        if self.mask is not None:
            wrong &= self.mask
        if wrong.any():
            raise PostgresError("22P03", "incorrect binary data format")
        if self.mask is None:
            return buffers.rows_at(self.data, self.starts, width)
        rows = np.zeros((len(self.starts), width), np.uint8)
        rows[self.mask] = buffers.rows_at(self.data, self.starts[self.mask], width)
        return rows


Reader = Callable[[pa.StringArray, int, TextSettings], pa.Array]
"""The input function and the modifier: (texts, typmod, settings) → the stored form."""
Writer = Callable[[pa.Array, TextSettings], pa.StringArray]
"""The output function of a column in stored form."""
Receiver = Callable[[Wire, int], pa.Array]
"""The receive function and the modifier: (binary forms, typmod) → the stored form."""
Sender = Callable[[pa.Array, Encoding], pa.LargeBinaryArray]
"""The send function of a column in stored form."""
Key = Callable[[str], bytes]
"""From a value in normal text form to bytes that compare as the btree operator class does."""


class Hashing(enum.Enum):
    """Which of PostgreSQL's hash functions takes the binary form (`hashing`)."""

    WORD = "hash_bytes_uint32_extended"
    LONG = "hashint8extended"
    DOUBLE = "hashfloat8extended"
    BYTES = "hash_bytes_extended"
    NUMERIC = "hash_numeric_extended"


TEXT = pa.string()


def as_stored(values: pa.Array, _settings: TextSettings) -> pa.StringArray:
    """The output function of a type whose stored form is its text."""
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def never(_settings: TextSettings) -> bool:
    """`BaseType.restyled` of a type that is printed in one way."""
    return False


@dataclass(frozen=True)
class BaseType:
    """One base type. What is left out is that of a type that is stored as its text and has no order, no hash and no binary form here.

    `stored` is the Arrow type of its columns, `modified` gives another for a modifier (None: no other). `restyled` says whether texts
    under these settings differ from those under PLAIN, in which arrays hold their elements. `in_bulk`: `receive` runs no function for
    each value. `code` is NumPy's name of the binary form where that is a number.
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
    """The receive function of a type whose binary form is its text."""
    return lambda wire, modifier: read(wire.texts(), modifier, PLAIN)


def text_sent(values: pa.Array, encoding: Encoding) -> pa.LargeBinaryArray:
    """The send function of a type whose binary form is its text."""
    return encoded(values, encoding).cast(pa.large_binary())


def received_singly(receive: Callable[[bytes], str], read: Reader) -> Receiver:
    """A receive function from that of one value, which gives its text and raises ValueError, IndexError or struct.error for bad bytes."""

    def receive_column(wire: Wire, modifier: int) -> pa.StringArray:
        try:
            shown = [None if each is None else receive(each) for each in wire.column(pa.large_binary()).to_pylist()]
        except (struct.error, IndexError, ValueError) as error:
            raise PostgresError("22P03", "incorrect binary data format") from error
        texts = pa.array(shown, pa.string())
        return read(texts, modifier, PLAIN) if modifier >= 0 else texts

    return receive_column


def sent_singly(send: Callable[[str], bytes]) -> Sender:
    """A send function from that of one value in normal text form."""
    return lambda values, _encoding: pa.array([None if each is None else send(each) for each in values.to_pylist()], pa.large_binary())


def singly(read: Reader, receive: Callable[[bytes], str], send: Callable[[str], bytes], key: Key, *, in_order: bool = False) -> BaseType:
    """A type that is stored as its text, whose receive and send functions are those of one value."""
    return BaseType(read=read, receive=received_singly(receive, read), send=sent_singly(send), key=key, in_order=in_order, in_bulk=False)


def fixed_rows(rows: Bytes, mask: Mask | None) -> pa.LargeBinaryArray:
    """Rows of bytes as values of one width; a NULL takes none."""
    width = rows.shape[1]
    sizes = np.full(len(rows), width, np.int64)
    if mask is not None:
        sizes[~mask] = 0
        rows = rows[mask]
    return buffers.strings(rows.ravel(), buffers.offsets_of(sizes), mask, pa.large_binary())


def key_of_text(text: str) -> bytes:
    """The key of a type whose text orders by its bytes."""
    return text.encode("utf-8", "surrogatepass")


def whole_key(value: int) -> bytes:
    """The key of a number of at most 127 bits."""
    return (value + (1 << 127)).to_bytes(16, "big")


def ended(key: bytes) -> bytes:
    """A key of any length inside a longer one, so that a prefix sorts first."""
    return key.replace(b"\x00", b"\x00\xff") + b"\x00\x00"
