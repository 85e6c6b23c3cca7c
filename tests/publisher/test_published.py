"""The publications of a stream determine how a relation is published: its filter, column list, partition root and actions."""

from __future__ import annotations

import pytest

from headgate.catalog.history import PublishedState
from headgate.catalog.relation.relation import Column, Index, Relation
from headgate.catalog.replication.publication import Member, Publication
from headgate.errors import PostgresError
from headgate.publisher.published import Published, PublishedAction, named, published, truncated

ROOT, MIDDLE, LEAF, OTHER_LEAF, PLAIN = 100, 101, 102, 103, 104
SCHEMA, OTHER_SCHEMA = 2200, 2201
COLUMNS = (Column(1, "a", 23), Column(2, "b", 25), Column(3, "c", 23))
KEY = (Index("k", 900, (1,), unique=True, primary=True),)


def relation(
    oid: int, name: str, kind: str = "r", parent: int = 0, namespace: int = SCHEMA, columns: tuple[Column, ...] = COLUMNS
) -> Relation:
    return Relation(oid, 5, namespace, "public", name, kind, columns, indexes=KEY, parent=parent)


STATE = PublishedState(
    {
        ROOT: relation(ROOT, "root", "p"),
        MIDDLE: relation(MIDDLE, "middle", "p", ROOT),
        LEAF: relation(LEAF, "leaf", "r", MIDDLE, OTHER_SCHEMA, (COLUMNS[1], Column(5, "a", 23), COLUMNS[2])),
        OTHER_LEAF: relation(OTHER_LEAF, "other", "r", ROOT),
        PLAIN: relation(PLAIN, "plain"),
    },
    {},
    {SCHEMA: "public", OTHER_SCHEMA: "other"},
)


def publication(*members: Member, **flags: object) -> Publication:
    return Publication(1, "p", members=members, **flags)  # type: ignore[arg-type]


def filtered(oid: int, tree: str = "F", columns: tuple[int, ...] | None = None) -> Member:
    return Member(oid, tree, tree, columns)


def of_leaf(*publications: Publication, oid: int = LEAF) -> Published:
    result = published(STATE, publications, oid)
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("publications", "target", "filters"),
    [
        ([publication(Member(ROOT))], LEAF, None),
        ([publication(Member(ROOT), via_root=True)], ROOT, None),
        ([publication(filtered(ROOT), via_root=True)], ROOT, ("F",)),
        ([publication(filtered(LEAF))], LEAF, ("F",)),
        ([publication(filtered(LEAF), via_root=True)], LEAF, ("F",)),
        ([publication(Member(ROOT), filtered(LEAF))], LEAF, ("F",)),
        ([publication(filtered(ROOT, "R"), filtered(LEAF, "L"), via_root=True)], ROOT, ("R",)),
        ([publication(Member(MIDDLE))], LEAF, None),
        ([publication(Member(MIDDLE), via_root=True)], MIDDLE, None),
        ([publication(schemas=(SCHEMA,))], LEAF, None),
        ([publication(schemas=(SCHEMA,), via_root=True)], ROOT, None),
        ([publication(schemas=(OTHER_SCHEMA,), via_root=True)], LEAF, None),
        ([publication(filtered(ROOT), schemas=(OTHER_SCHEMA,), via_root=True)], ROOT, ("F",)),
        ([publication(filtered(LEAF), schemas=(SCHEMA,))], LEAF, ("F",)),
        ([publication(all_tables=True)], LEAF, None),
        ([publication(all_tables=True, via_root=True)], ROOT, None),
        ([publication(Member(ROOT)), publication(filtered(LEAF))], LEAF, None),
        ([publication(filtered(ROOT, "R"), via_root=True), publication(filtered(LEAF, "L"))], ROOT, ("R",)),
        ([publication(filtered(ROOT, "R"), via_root=True), publication(filtered(MIDDLE, "M"), via_root=True)], ROOT, ("R",)),
        ([publication(filtered(MIDDLE, "M"), via_root=True), publication(Member(ROOT))], MIDDLE, ("M",)),
    ],
)
def test_partition_is_sent_as_its_topmost_published_ancestor(
    publications: list[Publication], target: int, filters: tuple[str, ...] | None
) -> None:
    for order in (publications, publications[::-1]):
        leaf = of_leaf(*order)
        assert leaf.target.oid == target
        assert leaf.filters.get(PublishedAction.INSERT) == filters


def test_filters_of_several_publications_are_ored_per_action() -> None:
    plain = of_leaf(publication(filtered(PLAIN, "A"), update=False), publication(filtered(PLAIN, "B"), delete=False), oid=PLAIN)
    assert plain.filters == {PublishedAction.INSERT: ("A", "B"), PublishedAction.UPDATE: ("B",), PublishedAction.DELETE: ("A",)}


@pytest.mark.parametrize("whole", [publication(Member(PLAIN)), publication(all_tables=True), publication(schemas=(SCHEMA,))])
def test_publication_without_a_filter_passes_every_row(whole: Publication) -> None:
    assert of_leaf(publication(filtered(PLAIN)), whole, oid=PLAIN).unfiltered


def test_publication_without_a_filter_counts_only_for_its_actions() -> None:
    plain = of_leaf(publication(filtered(PLAIN)), publication(Member(PLAIN), update=False, delete=False), oid=PLAIN)
    assert plain.filters == {PublishedAction.UPDATE: ("F",), PublishedAction.DELETE: ("F",)}


def test_action_that_only_a_lower_level_publishes_passes_unfiltered() -> None:
    leaf = of_leaf(publication(filtered(ROOT), via_root=True, update=False, delete=False), publication(filtered(LEAF, "L"), insert=False))
    assert leaf.actions == frozenset(PublishedAction)
    assert leaf.filters == {PublishedAction.INSERT: ("F",)}


def test_column_list_is_sent_in_table_order_without_generated_columns() -> None:
    assert of_leaf(publication(filtered(PLAIN, columns=(1, 3))), oid=PLAIN).columns == (1, 3)
    assert of_leaf(publication(Member(PLAIN)), oid=PLAIN).columns == (1, 2, 3)
    generated = relation(PLAIN, "plain", columns=(*COLUMNS, Column(4, "g", 23, generated="(a * 2)")))
    plain = published(PublishedState({PLAIN: generated}), [publication(Member(PLAIN))], PLAIN)
    assert plain is not None
    assert plain.columns == (1, 2, 3)


def test_list_of_all_columns_equals_no_list() -> None:
    assert of_leaf(publication(Member(PLAIN, columns=(1, 2, 3))), publication(Member(PLAIN)), oid=PLAIN).columns == (1, 2, 3)


def test_different_column_lists_are_an_error() -> None:
    with pytest.raises(PostgresError) as caught:
        of_leaf(publication(Member(PLAIN, columns=(1, 2))), publication(Member(PLAIN)), oid=PLAIN)
    assert caught.value.sqlstate == "0A000"
    assert caught.value.message == 'cannot use different column lists for table "public.plain" in different publications'


def test_truncate_of_a_partition_is_not_sent_when_its_root_is_published() -> None:
    assert not truncated(of_leaf(publication(Member(ROOT), via_root=True)))
    assert truncated(of_leaf(publication(Member(ROOT))))
    assert not truncated(of_leaf(publication(Member(PLAIN), truncate=False), oid=PLAIN))


def test_unlisted_relation_has_no_actions() -> None:
    assert of_leaf(publication(Member(LEAF)), oid=PLAIN).actions == frozenset()
    assert published(STATE, [], 4711) is None


def test_missing_publication_is_named() -> None:
    with pytest.raises(PostgresError) as caught:
        named(STATE, ["nosuch"])
    assert (caught.value.sqlstate, caught.value.message) == ("42704", 'publication "nosuch" does not exist')
