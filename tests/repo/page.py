"""The code blocks of README and docs pages that a user types (commands, SQL and Python).

The tests that run them use this module. A block is fenced with the name of its language, or indented by four spaces for shell commands. A
fence without a language is the output of a program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n|^\n(?=    ))+)", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One block: `language` is "sql", "python", … or "shell"; `line` is its first line in the page."""

    language: str
    text: str
    line: int
    before: str = ""
    """The paragraph before it, empty if it follows another block."""

    @property
    def is_template(self) -> bool:
        """Whether the block has placeholders: an ellipsis, or a word in capitals such as DIR."""
        return re.search(r"…|\b(?:DIR|FILE|TARGET|SOURCE|DB|ELSEWHERE)\b", self.text) is not None


def blocks(page: str, section: str | None = None) -> list[Block]:
    """Return the blocks of a page, or of the section with this heading and its subsections, in order."""
    whole = (ROOT / page).read_text()
    start, end = 0, len(whole)
    if section is not None:
        heading = re.search(rf"^(#+) {re.escape(section)}$", whole, re.M)
        assert heading is not None, f"{page} has no section {section!r}"
        following = re.compile(rf"^#{{1,{len(heading[1])}}} ", re.M).search(whole, heading.end())
        start, end = heading.end(), following.start() if following else end
    result = []
    last = start
    for match in _BLOCK.finditer(whole, start, end):
        paragraph = whole[last : match.start()].strip().rsplit("\n\n", 1)[-1]
        last = match.end()
        text = match[2] if match[3] is None else re.sub(r"^    ", "", match[3].strip("\n") + "\n", flags=re.M)
        language = match[1] or "text" if match[3] is None else "shell"
        result.append(Block(language, text, whole.count("\n", 0, match.start()) + 1, paragraph))
    return result
