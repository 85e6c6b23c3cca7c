"""Results for short texts are cached, and those for long ones are not."""

from __future__ import annotations

from headgate.types import text_cache


def test_only_the_results_of_short_texts_are_kept() -> None:
    calls: list[tuple[int, str]] = []

    @text_cache.cached(8)
    def length(text: str, unit: str) -> str:
        calls.append((len(text), unit))
        return f"{len(text)} {unit}"

    short, long = "x" * text_cache.LONGEST, "x" * (text_cache.LONGEST + 1)
    for text in (short, long, short, long):
        assert length(text, "characters") == f"{len(text)} characters"
    length(short, "letters")
    assert calls == [(4096, "characters"), (4097, "characters"), (4097, "characters"), (4096, "letters")]


def test_the_most_recent_results_of_texts_that_are_together_short_are_kept() -> None:
    calls: list[int] = []

    @text_cache.limited(1_000, overhead=10)
    def first(text: str, place: int) -> str:
        calls.append(place)
        return text[place]

    for place in range(90):
        assert first("x" * 90, place) == "x"
        first("y" * 90, 0)
    assert len(calls) == 91, "a text that is used again and again stays"
    calls.clear()
    for place in (89, 88, 87, 70, 60, 50):
        first("x" * 90, place)
    assert calls == [70, 60, 50]


def test_a_text_beyond_the_limit_is_kept_while_no_other_is_used() -> None:
    calls: list[str] = []

    @text_cache.limited(100, overhead=10)
    def measured(text: str) -> int:
        calls.append(text)
        return len(text)

    for text in ("x" * 500, "x" * 500, "x" * 500, "y" * 500, "z" * 500, "x" * 500):
        assert measured(text) == 500
    assert [text[0] for text in calls] == ["x", "y", "z", "x"]
