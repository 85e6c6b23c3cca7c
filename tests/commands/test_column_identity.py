"""The columns of a Relation message get the publisher's attribute numbers, even if its catalog has changed since."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog.replication.subscription_column import FollowedColumn
from headgate.commands.subscription.schema_evolution import Listed, identify
from headgate.walreceiver.definition import DefinedColumn

INT, TEXT = 23, 25
Table = list[DefinedColumn]


def column(number: int, name: str, type_oid: int = INT, *, dropped: bool = False) -> DefinedColumn:
    return DefinedColumn(number, name, 0 if dropped else type_oid, -1, "", False, "", False, None, dropped)


def listed(table: Table) -> list[Listed]:
    return [(defined.name, defined.type_oid, defined.typmod) for defined in table if not defined.dropped]


def known(table: Table) -> list[FollowedColumn]:
    return [FollowedColumn(defined.attnum, defined.name, "", defined.type_oid, -1, dropped=defined.dropped) for defined in table]


def numbers(table: Table) -> list[int]:
    return [defined.attnum for defined in table if not defined.dropped]


def altered(table: Table, kind: str, at: int, name: str) -> Table:
    """Return the table after one ALTER TABLE, or unchanged if that is not possible."""
    live = [index for index, defined in enumerate(table) if not defined.dropped and index]
    names = {defined.name for defined in table}
    if kind == "add" and name not in names:
        return [*table, column(len(table) + 1, name)]
    if not live or kind == "add":
        return table
    place = live[at % len(live)]
    changed = list(table)
    match kind:
        case "drop":
            changed[place] = column(place + 1, f"........pg.dropped.{place + 1}........", dropped=True)
        case "rename" if name not in names:
            changed[place] = replace(table[place], name=name)
        case "type":
            changed[place] = replace(table[place], type_oid=TEXT if table[place].type_oid == INT else INT)
        case "swap":
            next_place = live[(at + 1) % len(live)]
            changed[place], changed[next_place] = (
                replace(table[place], name=table[next_place].name),
                replace(table[next_place], name=table[place].name),
            )
    return changed


alterations = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "rename", "type", "swap"]), st.integers(0, 9), st.sampled_from(["n1", "n2", "n3", "a"])),
    max_size=6,
)


@given(alterations, alterations)
@settings(max_examples=400)
def test_columns_equal_to_the_catalogs_are_numbered_after_any_alterations(
    earlier: list[tuple[str, int, str]], later: list[tuple[str, int, str]]
) -> None:
    original = [column(1, "id"), column(2, "a"), column(3, "b", TEXT), column(4, "c")]
    table = original
    for kind, at, name in (*earlier, *later):
        table = altered(table, kind, at, name)
    assert [*identify(listed(table), known(original), table).numbers] == numbers(table), "the catalog is not ahead"


@given(alterations)
@settings(max_examples=400)
def test_columns_of_the_past_are_numbered_while_the_catalog_is_ahead(later: list[tuple[str, int, str]]) -> None:
    original = [column(1, "id"), column(2, "a"), column(3, "b", TEXT), column(4, "c")]
    table = original
    for kind, at, name in later:
        table = altered(table, kind, at, name)
    assert [*identify(listed(original), known(original), table).numbers] == numbers(original)


@given(alterations, alterations)
@settings(max_examples=400)
def test_numbers_are_never_wrong_unless_marked_as_uncertain(earlier: list[tuple[str, int, str]], later: list[tuple[str, int, str]]) -> None:
    original = [column(1, "id"), column(2, "a"), column(3, "b", TEXT), column(4, "c")]
    stream = original
    for kind, at, name in earlier:
        stream = altered(stream, kind, at, name)
    table = stream
    for kind, at, name in later:
        table = altered(table, kind, at, name)
    identified = identify(listed(stream), known(original), table)
    assert [*identified.numbers] == numbers(stream) or not identified.is_certain


def test_columns_whose_names_rotate_are_identified_by_their_order() -> None:
    original = [column(1, "id"), column(2, "a"), column(3, "b"), column(4, "c")]
    rotated = [column(1, "id"), column(2, "b"), column(3, "c"), column(4, "a")]
    assert [*identify(listed(rotated), known(original), rotated).numbers] == [1, 2, 3, 4]
    assert [*identify(listed(original), known(original), rotated).numbers] == [1, 2, 3, 4]


def test_column_that_replaces_a_dropped_one_of_its_name_is_the_new_one() -> None:
    original = [column(1, "id"), column(2, "a"), column(3, "b")]
    replaced = [column(1, "id"), column(2, "gone", dropped=True), column(3, "b"), column(4, "a", TEXT)]
    assert [*identify(listed(replaced), known(original), replaced).numbers] == [1, 3, 4]
    assert [*identify(listed(original), known(original), replaced).numbers] == [1, 2, 3]


def test_columns_outside_a_column_list_are_not_in_the_message() -> None:
    table = [column(1, "id"), column(2, "a"), column(3, "b"), column(4, "c")]
    published = [table[0], table[3]]
    assert [*identify(listed(published), known(published), table).numbers] == [1, 4]
