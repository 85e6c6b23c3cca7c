"""Converts decoded changes of a published relation to a changes frame of the local table, column by column.

Values are read by the local type's input function (text) or receive function (binary), including its declared precision. Runs
for a part of a segment at a time (`batch`). Needs nothing but Arrow. `headgate.changes.merge` takes the frame, whose columns are:
commit_lsn, seq, position bigint, op string, old struct, new struct, unchanged array<string>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.subscriber.rows import conflict
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.relation_map import Mapping
from headgate.types import buffers, registry, sortkey
from headgate.types.binary.binary import read_binary
from headgate.types.buffers import Mask
from headgate.types.storage import arrow_type
from headgate.types.text.text import first_refused, read_text, reader, write_text
from headgate.types.text_column import PLAIN
from headgate.types.text_column import TextSettings as Forms


@dataclass(frozen=True)
class InputSettings:
    """The settings that input functions depend on: text forms, and user-defined types."""

    forms: Forms = PLAIN
    types: registry.TypeRegistry | None = None


def row_type(columns: Sequence[Column]) -> pa.StructType:
    return pa.struct([pa.field(c.name, arrow_type(c.type_oid, c.typmod)) for c in columns])


def old_columns(mapping: Mapping) -> list[Column]:
    """Return the columns of `old`: those of the key, or all if the whole row is the key."""
    local = mapping.local.columns
    return list(local) if mapping.key is None else [c for c in local if c.attnum in mapping.key]


def frame_schema(mapping: Mapping) -> pa.Schema:
    return pa.schema(
        [
            ("commit_lsn", pa.int64()),
            ("seq", pa.int64()),
            ("position", pa.int64()),
            ("op", pa.string()),
            ("old", row_type(old_columns(mapping))),
            ("new", row_type(mapping.local.columns)),
            ("unchanged", pa.list_(pa.string())),
        ]
    )


def changes_frame(
    changes: decode.Changes,
    commit_lsn: npt.NDArray[np.int64],
    mapping: Mapping,
    session: InputSettings,
    place: ApplyPlace,
    *,
    checked_later: str = "",
) -> pa.Table:
    """Return the changes as a frame. `commit_lsn` is per change. `place` is set to the current column, for errors.

    `checked_later`: the operations whose new rows are checked afterwards: I, after defaults were added (`row_completion`), U, after their
    rows were looked up (`updated_rows`).
    """
    codes = changes.op
    place.relation, place.column = f"{mapping.local.schema}.{mapping.local.name}", None
    if mapping.refusal is not None:
        changed = np.flatnonzero(codes != ord("I"))
        if len(changed):
            place.message = conflict.MESSAGES[chr(codes[changed[0]])]
            raise mapping.refusal
    rows = len(changes)
    is_insert, is_delete = codes == ord("I"), codes == ord("D")
    old = old_rows(changes, mapping, session, place, old_columns(mapping))
    fields, unsent = [], []
    for column, source in zip(mapping.local.columns, mapping.sources, strict=True):
        values, lacking = _column(changes, mapping, place, column, source, session), _unsent_rows(changes, column, source)
        if lacking is not None and old.type.get_field_index(column.name) >= 0:
            values, lacking = _from_old(changes, values, lacking, old, column, source)
        fields.append(values)
        unsent.append(lacking)
    place.column = None
    unchanged = _unchanged_columns(mapping, unsent, rows)
    _check_not_null(mapping, changes, fields, unsent, np.isin(codes, list(b"D" + checked_later.encode())), place)
    new = _struct(mapping.local.columns, fields, is_delete if is_delete.any() else None, rows)
    ops = pa.array(["I", "U", "D"], pa.string()).take(pa.array(np.where(is_insert, 0, np.where(is_delete, 2, 1))))
    return pa.table(
        [
            pa.array(commit_lsn, pa.int64()),
            pa.array(changes.seq, pa.int64()),
            pa.array(np.zeros(rows, np.int64)),
            ops,
            old,
            new,
            unchanged,
        ],
        schema=frame_schema(mapping),
    )


def truncate_frame(mapping: Mapping, commit_lsn: int, seq: int) -> pa.Table:
    schema = frame_schema(mapping)
    values = [[commit_lsn], [seq], [0], ["T"], [None], [None], [None]]
    return pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)


def _struct(columns: Sequence[Column], fields: Sequence[pa.Array], nulls: Mask | None, rows: int) -> pa.StructArray:
    mask = None if nulls is None else pa.array(nulls)
    if not columns:
        return pa.array([{}] * rows, pa.struct([])) if nulls is None else pa.array([None if n else {} for n in nulls], pa.struct([]))
    return pa.StructArray.from_arrays(list(fields), fields=list(row_type(columns)), mask=mask)


def read_column(values: pa.Array, column: Column, session: InputSettings) -> pa.Array:
    """Return text or binary forms as stored values."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        data, offsets = buffers.packed(values)
        lengths = np.diff(offsets).astype(np.int32)
        valid = buffers.valid(values)
        if valid is not None:
            lengths[~valid] = -1
        return read_binary(data, offsets[:-1], lengths, column.type_oid, column.typmod, registry=session.types)
    return read_text(values, column.type_oid, column.typmod, session=session.forms, registry=session.types)


def _column(
    changes: decode.Changes, mapping: Mapping, place: ApplyPlace, column: Column, source: int | None, session: InputSettings
) -> pa.Array:
    if source is None:
        return pa.nulls(len(changes), arrow_type(column.type_oid, column.typmod))
    values = changes.new[source].values
    try:
        return read_column(values, column, session)
    except PostgresError:
        _locate(changes, values, column, mapping.remote.columns[source].name, place, session)
        raise


def old_rows(
    changes: decode.Changes, mapping: Mapping, session: InputSettings, place: ApplyPlace, columns: Sequence[Column]
) -> pa.StructArray:
    """Return some local columns of the old rows. NULL for a change without an old row, and for a column that was not sent."""
    rows = len(changes)
    if changes.old is None:
        return pa.nulls(rows, row_type(columns))
    fields = []
    sources = dict(zip((c.attnum for c in mapping.local.columns), mapping.sources, strict=True))
    for column in columns:
        source = sources[column.attnum]
        if source is None:
            fields.append(pa.nulls(rows, arrow_type(column.type_oid, column.typmod)))
            continue
        values = changes.old[source].values
        try:
            fields.append(read_column(values, column, session))
        except PostgresError:
            _locate(changes, values, column, mapping.remote.columns[source].name, place, session)
            raise
    if mapping.key is None:
        _check_equality(columns, fields, changes, place)
    nothing = changes.old_kind == 0
    return _struct(columns, fields, nothing if nothing.any() else None, rows)


def _check_equality(columns: Sequence[Column], fields: Sequence[pa.Array], changes: decode.Changes, place: ApplyPlace) -> None:
    """Raise 42883 if a row must be found by the value of a type without equality (json)."""
    types = registry.known()
    for column, values in zip(columns, fields, strict=True):
        if values.null_count < len(values) and not sortkey.comparable(column.type_oid, types):
            place.message = conflict.MESSAGES[chr(changes.op[int(np.argmax(np.asarray(values.is_valid())))])]
            name = getattr(types.find(types.base(column.type_oid)[0]), "name", column.type_oid)
            raise PostgresError("42883", f"could not identify an equality operator for type {name}")


def _locate(changes: decode.Changes, values: pa.Array, column: Column, name: str, place: ApplyPlace, session: InputSettings) -> None:
    place.column = name
    if pa.types.is_string(values.type):
        row = first_refused([reader(values, column.type_oid, column.typmod, session=session.forms)], len(values))
        if row is not None:
            place.message = conflict.MESSAGES[chr(changes.op[row])]


def _unsent_rows(changes: decode.Changes, column: Column, source: int | None) -> Mask | None:
    """Return the UPDATEs that lack a column (an unchanged TOAST value, or a column that the publisher does not have), or None."""
    if source is None:
        lacking = (changes.op == ord("U")) if column.generated is None else None
    else:
        unchanged = changes.new[source].unchanged
        lacking = None if unchanged is None else unchanged & (changes.op == ord("U"))
    return lacking if lacking is not None and lacking.any() else None


def _from_old(
    changes: decode.Changes, values: pa.Array, lacking: Mask, old: pa.StructArray, column: Column, source: int | None
) -> tuple[pa.Array, Mask | None]:
    """Return a key column with unsent values copied from the old row, and the UPDATEs that still lack one.

    The publisher sends the old row if a column of the replica identity is stored out of line, so that a key is always complete.
    """
    known = lacking & (changes.old_kind != 0)
    if source is None or not known.any():
        return values, lacking
    rest = lacking & ~known
    return pc.if_else(pa.array(known), buffers.field(old, column.name), values), rest if rest.any() else None


def _unchanged_columns(mapping: Mapping, unsent: Sequence[Mask | None], rows: int) -> pa.Array:
    """Return the names of the local columns whose value each UPDATE does not send."""
    lacking = [(column.name, mask) for column, mask in zip(mapping.local.columns, unsent, strict=True) if mask is not None]
    if not lacking:
        return pa.nulls(rows, pa.list_(pa.string()))
    patterns, codes = np.unique(np.packbits(np.stack([mask for _, mask in lacking], axis=1), axis=1), axis=0, return_inverse=True)
    bits = np.unpackbits(patterns, axis=1)[:, : len(lacking)].astype(bool)
    lists = [[name for (name, _), bit in zip(lacking, row, strict=True) if bit] or None for row in bits]
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(codes.reshape(-1)))


def _check_not_null(
    mapping: Mapping, changes: decode.Changes, fields: Sequence[pa.Array], unsent: Sequence[Mask | None], left_out: Mask, place: ApplyPlace
) -> None:
    for column, source, values, lacking in zip(mapping.local.columns, mapping.sources, fields, unsent, strict=True):
        if not column.not_null or column.generated is not None or not values.null_count:
            continue
        if source is None and (column.default is not None or column.identity):
            continue
        wrong = np.asarray(pc.is_null(values)) & ~left_out
        if lacking is not None:
            wrong &= ~lacking
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            place.message = conflict.MESSAGES[chr(changes.op[row])]
            raise conflict.not_null(mapping.local, column.name, row_text(mapping.local, [f.slice(row, 1) for f in fields]))


def row_text(relation: Relation, fields: Sequence[pa.Array]) -> list[str | None]:
    return [write_text(f, c.type_oid)[0].as_py() for f, c in zip(fields, relation.columns, strict=True)]
