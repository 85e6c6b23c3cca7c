"""Arrays as lists of stored elements, as files WITH (array_storage = array) contain them, and as texts, as the node holds them.

A list can represent only one dimension with subscripts from 1. Other arrays are rejected (0A000), never flattened. Called by
`storage.delta.array_column` when files are written and read. Invariant: ``texts(lists(x)) == x`` for each array in normal form that `lists`
accepts. Both process the bytes of a whole column, because arrays of texts are mostly quoted, without a loop over rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import buffers, registry, typmod
from headgate.types.text import array, text

_ELEMENTS: dict[pa.DataType, int] = {
    pa.bool_(): registry.BOOL,
    pa.int16(): registry.INT2,
    pa.int32(): registry.INT4,
    pa.int64(): registry.INT8,
    pa.float32(): registry.FLOAT4,
    pa.float64(): registry.FLOAT8,
    pa.binary(): registry.BYTEA,
    pa.date32(): registry.DATE,
    pa.timestamp("us"): registry.TIMESTAMP,
    pa.timestamp("us", tz="UTC"): registry.TIMESTAMPTZ,
    pa.string(): registry.TEXT,
}
"""The type whose functions read and print elements. If several types have the same stored form (oid, bigint), one is enough."""
PIECE_BYTES = 1 << 20
"""The bytes of texts processed at once, because the masks take several bytes per byte of text."""


def lists(texts: pa.StringArray, kind: pa.ListType, column: str) -> pa.ListArray:
    """Convert arrays in normal form to lists of this Arrow type. NULL stays NULL. `column`: its name, for errors.

    Raise 0A000 for more than one dimension, subscripts that do not begin at 1, and elements that the stored type cannot hold.
    """
    ends = buffers.view(texts)[1]
    pieces, first = [], 0
    while first < len(texts):
        last = max(int(np.searchsorted(ends, ends[first] + PIECE_BYTES, "right")) - 1, first + 1)
        pieces.append(_lists(texts.slice(first, last - first), kind, column))
        first = last
    return pa.concat_arrays(pieces) if pieces else pa.nulls(0, kind)


def _lists(texts: pa.StringArray, kind: pa.ListType, column: str) -> pa.ListArray:
    data, offsets = buffers.packed(texts)
    valid = buffers.valid(texts)
    is_present = np.diff(offsets) > 0  # a NULL has no bytes, an array at least two
    first = np.zeros(len(data), bool)
    first[offsets[:-1][is_present]] = True
    escaped = _are_escaped(data)
    quote = (data == ord('"')) & ~escaped
    outside = np.cumsum(quote, dtype=np.uint8) % 2 == 0  # it wraps around at 256, which is even
    opening, closing = (data == ord("{")) & outside, (data == ord("}")) & outside
    if bool((opening != first).any()):
        raise PostgresError(
            "0A000",
            f'column "{column}" holds Delta arrays, which have one dimension and subscripts that begin at 1',
            hint="Store the column as text: ALTER TABLE … SET (array_storage = text), then ALTER COLUMN … TYPE with its type again.",
        )
    comma = (data == ord(",")) & outside
    # the bytes of elements: not delimiters, quotes, or the backslash before a character
    is_content = ~(opening | closing | comma | quote | ((data == ord("\\")) & ~escaped))
    content_before = np.concatenate([[0], np.cumsum(is_content, dtype=np.int32)])
    empty = np.zeros(len(data), bool)
    empty[np.flatnonzero(opening)[closing[np.flatnonzero(opening) + 1]]] = True
    starts = np.flatnonzero((opening & ~empty) | comma) + 1
    ends = np.flatnonzero(comma | (closing & ~np.concatenate([[False], empty[:-1]]))) if len(data) else starts
    null = (ends - starts == 4) & (content_before[ends] - content_before[starts] == 4)
    places = np.append(content_before[starts], content_before[-1])
    items = buffers.strings(data[is_content], places, None, pa.string())
    null &= np.asarray(pc.equal(items, "NULL").to_numpy(zero_copy_only=False), bool) if len(items) else null
    element, modifier = _element(kind.value_type)
    values = text.read_text(pc.if_else(pa.array(null), pa.scalar(None, pa.string()), items), element, modifier)
    counts = np.searchsorted(starts, offsets)  # the number of elements before each row
    missing = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(counts, pa.int32()), values.cast(kind.value_type), type=kind, mask=missing)


def texts(lists: pa.ListArray) -> pa.StringArray:
    """Print lists as array_out prints the arrays, in the form in which the node holds them. NULL stays NULL."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    items = lists.flatten()
    kind = _usual(items.type)
    shown = text.write_text(items.cast(kind), _element(kind)[0])
    if kind in (pa.string(), pa.binary(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.date32()):
        odd = pc.or_(
            pc.match_substring_regex(shown, array.special(",").pattern), pc.or_(pc.equal(shown, ""), pc.equal(pc.utf8_upper(shown), "NULL"))
        )
        escaped = pc.replace_substring(pc.replace_substring(shown, "\\", "\\\\"), '"', '\\"')
        shown = pc.if_else(odd, pc.binary_join_element_wise('"', escaped, '"', ""), shown)
    shown = pc.fill_null(shown, "NULL")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(buffers.offsets_of(counts.astype(np.int64)), pa.int32()), shown), ",")
    whole = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pc.is_valid(lists), whole, pa.scalar(None, pa.string())) if lists.null_count else whole


def _are_escaped(data: buffers.Bytes) -> buffers.Mask:
    """Return which bytes are escaped: an odd number of backslashes is directly before them."""
    escaped = np.zeros(len(data) + 1, bool)
    slashes = np.flatnonzero(data == ord("\\"))
    if len(slashes):
        begins = np.concatenate([[True], np.diff(slashes) != 1])
        place_in_run = np.arange(len(slashes)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        escaped[slashes[place_in_run % 2 == 0] + 1] = True
    return escaped[:-1]


def _element(kind: pa.DataType) -> tuple[int, int]:
    """Return the type and the modifier of elements with this stored type."""
    if pa.types.is_decimal(kind):
        return registry.NUMERIC, typmod.numeric(kind.precision, kind.scale)
    return _ELEMENTS[kind], -1


def _usual(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which the node holds values that another writer has stored with this type."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
