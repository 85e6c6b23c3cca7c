"""The columns of a Relation message get the publisher's attribute numbers, whatever the catalog has become since."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog.replication.subscription_column import FollowedColumn
from headgate.commands.subscription.column_identity import Listed, identify
from headgate.walreceiver.definition import DefinedColumn

INT, TEXT = 23, 25
Table = list[DefinedColumn]


def column(number: int, name: str, type_oid: int = INT, *, dropped: bool = False) -> DefinedColumn:
    return DefinedColumn(number, name, 0 if dropped else type_oid, -1, "", False, "", False, None, dropped)


def listed(table: Table) -> list[Listed]:
    return [(each.name, each.type_oid, each.typmod) for each in table if not each.dropped]


def known(table: Table) -> list[FollowedColumn]:
    return [FollowedColumn(each.attnum, each.name, "", each.type_oid, -1, dropped=each.dropped) for each in table]


def numbers(table: Table) -> list[int]:
    return [each.attnum for each in table if not each.dropped]


def altered(table: Table, kind: str, at: int, name: str) -> Table:
    """The table after one ALTER TABLE, or as it is if that is not possible."""
    live = [place for place, each in enumerate(table) if not each.dropped and place]
    names = {each.name for each in table}
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
            other = live[(at + 1) % len(live)]
            changed[place], changed[other] = replace(table[place], name=table[other].name), replace(table[other], name=table[place].name)
    return changed


alterations = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "rename", "type", "swap"]), st.integers(0, 9), st.sampled_from(["n1", "n2", "n3", "a"])),
    max_size=6,
)


@given(alterations, alterations)
@settings(max_examples=400)
def test_columns_that_the_stream_has_as_the_catalog_are_numbered_whatever_was_altered(
    earlier: list[tuple[str, int, str]], later: list[tuple[str, int, str]]
) -> None:
    before = [column(1, "id"), column(2, "a"), column(3, "b", TEXT), column(4, "c")]
    table = before
    for kind, at, name in (*earlier, *later):
        table = altered(table, kind, at, name)
    assert [*identify(listed(table), known(before), table).numbers] == numbers(table), "the catalog is not ahead"


@given(alterations)
@settings(max_examples=400)
def test_columns_that_the_stream_has_as_they_were_are_numbered_while_the_catalog_is_ahead(later: list[tuple[str, int, str]]) -> None:
    before = [column(1, "id"), column(2, "a"), column(3, "b", TEXT), column(4, "c")]
    table = before
    for kind, at, name in later:
        table = altered(table, kind, at, name)
    assert [*identify(listed(before), known(before), table).numbers] == numbers(before)


@given(alterations, alterations)
@settings(max_examples=400)
def test_numbers_are_never_wrong_without_being_uncertain(earlier: list[tuple[str, int, str]], later: list[tuple[str, int, str]]) -> None:
    before = [column(1, "id"), column(2, "a"), column(3, "b", TEXT), column(4, "c")]
    stream = before
    for kind, at, name in earlier:
        stream = altered(stream, kind, at, name)
    table = stream
    for kind, at, name in later:
        table = altered(table, kind, at, name)
    found = identify(listed(stream), known(before), table)
    assert [*found.numbers] == numbers(stream) or not found.is_certain


def test_names_that_go_round_in_a_ring_are_told_by_their_order() -> None:
    before = [column(1, "id"), column(2, "a"), column(3, "b"), column(4, "c")]
    after = [column(1, "id"), column(2, "b"), column(3, "c"), column(4, "a")]
    assert [*identify(listed(after), known(before), after).numbers] == [1, 2, 3, 4]
    assert [*identify(listed(before), known(before), after).numbers] == [1, 2, 3, 4]


def test_a_column_that_replaces_a_dropped_one_of_its_name_is_the_new_one() -> None:
    before = [column(1, "id"), column(2, "a"), column(3, "b")]
    after = [column(1, "id"), column(2, "gone", dropped=True), column(3, "b"), column(4, "a", TEXT)]
    assert [*identify(listed(after), known(before), after).numbers] == [1, 3, 4]
    assert [*identify(listed(before), known(before), after).numbers] == [1, 2, 3]


def test_columns_that_a_column_list_leaves_out_have_no_place_in_the_message() -> None:
    table = [column(1, "id"), column(2, "a"), column(3, "b"), column(4, "c")]
    published = [table[0], table[3]]
    assert [*identify(listed(published), known(published), table).numbers] == [1, 4]
