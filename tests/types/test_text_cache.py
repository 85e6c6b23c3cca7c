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
