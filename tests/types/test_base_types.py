"""Each base type's description is consistent: its functions are inverses, its orders agree, and equal values have one text."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.types.test_text_chosen import CHOSEN

from headgate.errors import PostgresError
from headgate.settings.encoding import UTF8
from headgate.types import registry, storage
from headgate.types.base.base_type import BaseType, Wire
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.comparable import comparable
from headgate.types.text_column import PLAIN

NAMES = {registry.by_oid(oid).name: oid for oid in BASE_TYPES}
INTEGERS = {32: pa.int32(), 64: pa.int64()}
ALIKE = {"char": '"char"', "bpchar": "varchar", "bit": "varbit", "unknown": "text", "refcursor": "text", "cstring": "text"}  # fmt: skip
"""Types that use the chosen texts of another type."""


def read(described: BaseType, texts: list[str]) -> pa.Array:
    """Return the texts that the type accepts, in stored form."""
    accepted = []
    for text in texts:
        try:
            accepted.append(described.read(pa.array([text]), -1, PLAIN))
        except PostgresError:
            continue
    return pa.concat_arrays(accepted)


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> tuple[int, BaseType, pa.Array, list[str]]:
    """Return a type, its description, and values in stored form and as text."""
    name = str(request.param)
    described = BASE_TYPES[NAMES[name]]
    values = read(described, CHOSEN[ALIKE.get(name, name)])
    return NAMES[name], described, values, described.write(values, PLAIN).to_pylist()


def same(left: pa.Array, right: pa.Array) -> bool:
    """Return whether columns have the same values. NaN equals NaN."""
    return (pa.types.is_floating(left.type) and np.array_equal(np.asarray(left), np.asarray(right), equal_nan=True)) or bool(
        left.equals(right)
    )


def test_columns_accept_only_types_whose_values_are_checked() -> None:
    refused = {
        kind.name
        for kind in registry.builtin().all_types()
        if storage.storable(kind.oid) and not kind.is_array and kind.kind is registry.TypeKind.BASE and not storage.is_accepted(kind.oid)
    }
    assert {type_name for type_name in refused if not type_name.startswith(("reg", "pg_"))} == {
        "aclitem", "gtsvector", "int2vector", "oidvector", "tid", "txid_snapshot",
    }  # fmt: skip
    assert "regclass" in refused
    assert not storage.is_accepted(registry.by_name("regclass").array)


Case = tuple[int, BaseType, pa.Array, list[str]]


def test_written_text_is_read_as_the_same_value(case: Case) -> None:
    _, described, values, texts = case
    assert len(values) > 1
    assert values.type == described.stored
    assert same(described.read(pa.array(texts), -1, PLAIN), values)


def test_sent_binary_form_is_received_as_the_same_value(case: Case) -> None:
    _, described, values, _ = case
    assert described.send is not None
    assert described.receive is not None
    with_null = pa.concat_arrays([values, pa.nulls(1, values.type)])
    payloads = described.send(with_null, UTF8).to_pylist()
    sizes = np.array([0 if payload is None else len(payload) for payload in payloads])
    data = np.frombuffer(b"".join(payload or b"" for payload in payloads), np.uint8)
    wire = Wire(data, np.cumsum(sizes) - sizes, sizes, np.array([payload is not None for payload in payloads]), UTF8)
    received = described.receive(wire, -1)
    assert received[-1].as_py() is None
    assert same(received.slice(0, len(values)), values)


def test_stored_form_and_key_have_the_same_order_and_equal_values_have_one_text(case: Case) -> None:
    oid, described, values, texts = case
    if described.key is None:
        assert not described.in_order
        return
    [ordered] = comparable([values], oid)
    stored_values: list[Any] = (
        ordered.view(INTEGERS[ordered.type.bit_width]).to_pylist() if pa.types.is_temporal(ordered.type) else ordered.to_pylist()
    )
    keys = [described.key(text) for text in texts]
    for left, right in itertools.combinations(range(len(texts)), 2):
        if stored_values[left] == stored_values[left] and stored_values[right] == stored_values[right]:  # NaN has its own place
            assert (stored_values[left] < stored_values[right], stored_values[left] == stored_values[right]) == (
                keys[left] < keys[right],
                keys[left] == keys[right],
            )
        if described.one_text:
            assert (keys[left] == keys[right]) == (texts[left] == texts[right])
