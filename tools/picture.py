"""Convert terminal text to an SVG picture: ``headgate status -D lake | python tools/picture.py docs/status.svg``.

The picture does not load fonts from a host.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

text = sys.stdin.read().rstrip("\n")
console = Console(record=True, width=max(map(len, text.splitlines())) + 2, file=io.StringIO(), color_system=None)
console.print("$ headgate status -D lake\n" + text, markup=False, highlight=False, soft_wrap=True)
plain = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.S)
Path(sys.argv[1]).write_text(console.export_svg(title="headgate", code_format=plain))
